"""Celery beside us: a task that commits one row and then sends the next task, acknowledged late. Needs the extra `bench`.

Loaded by Celery's worker too (`celery -A tests.bench.celery_steps`), so it does not load Django.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise

from tests.bench import plain
from tests.bench.raw import Lane
from tests.bench.stage import Child, children, until


def is_here() -> bool:
    return find_spec("celery") is not None


if is_here():
    from celery import Celery

    app = Celery("bench", broker=os.environ["BENCH_REDIS"].replace("unix://", "redis+socket://", 1))
    app.conf.update(
        task_default_queue="bench-celery",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
    )

    @app.task(name="bench.step")
    def step(run: str, number: int, count: int) -> None:
        plain.execute(plain.ADD_STEP, "celery", run, number, time.monotonic())
        if number + 1 < count:
            step.delay(run, number + 1, count)


def steps(count: int) -> list[float]:
    """The seconds between the beginnings of consecutive steps."""
    run = uuid.uuid4().hex
    step.delay(run, 0, count + 1)
    mine = "FROM bench_step WHERE engine = 'celery' AND run = ?"
    until(lambda: plain.execute(f"SELECT 1 {mine} AND n = ?", run, count).fetchone(), "a chain of Celery", every=0.05)
    rows = plain.execute(f"SELECT t {mine} ORDER BY n", run).fetchall()
    return [later - earlier for (earlier,), (later,) in pairwise(rows)]


@contextmanager
def lane() -> Iterator[Lane]:
    plain.execute(plain.MAKE_STEPS)
    arguments = ["-W", "ignore", "-m", "celery", "-A", "tests.bench.celery_steps", "worker", "-c", "2", "-l", "ERROR"]
    with children(Child("celery", [*arguments, "--without-gossip", "--without-mingle"])):
        yield steps
