"""The engine alone: from a finished turn to the next one claimed in the same transaction, events and audit included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.utils import timezone

from agents import executions
from agents.db import released
from agents.harness.contract import Result
from tests.bench import cast
from tests.bench.raw import Lane

OWNER = "bench/boot/1/1"
DONE = Result(succeeded=True, response="ok", duration_ms=1)


def steps(count: int) -> list[float]:
    """The seconds of each finishing transaction that claimed the next run; the ends of the chains are left out."""
    found: list[float] = []
    while len(found) < count:
        turn = cast.start_claimed(cast.agent("inline"), min(cast.MOST_RUNS, count - len(found) + 1), OWNER)
        while True:
            began = time.perf_counter()
            with released():
                turn = executions.finish(turn, DONE, OWNER, timezone.now())
            if turn is None:
                break
            found.append(time.perf_counter() - began)
    return found


@contextmanager
def lane() -> Iterator[Lane]:
    yield steps
