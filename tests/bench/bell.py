"""The engine by its bell: every run queued, rung for through Redis and claimed by a real RQ worker whose agent does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from loops.models import Loop
from tests.bench import cast
from tests.bench.raw import Lane
from tests.bench.stage import Child, children, until


def steps(count: int) -> list[float]:
    """The seconds between the claims of consecutive runs of one loop."""
    loop = cast.start(cast.agent("bell"), min(cast.MOST_RUNS, count + 1))
    until(lambda: not Loop.objects.active().filter(pk=loop.pk).exists(), "a loop by the bell", every=0.05)
    return gaps_of(loop)


def gaps_of(loop: Loop) -> list[float]:
    """The seconds between the beginnings of its runs."""
    began = loop.runs.order_by("run_number").values_list("started_at", flat=True)
    return [(later - earlier).total_seconds() for earlier, later in pairwise(began)]


@contextmanager
def lane() -> Iterator[Lane]:
    with children(Child("bell-worker", ["-m", "tests.bench.stand_in", "bell", "4"])) as (worker,):
        worker.hear()
        yield steps
