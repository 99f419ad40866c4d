"""The process harness with `true`: a whole run by a real process, and the parts of it that are not the engine's."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from agents.harness import command, process
from agents.harness.contract import Order
from agents.ids import new_id
from agents.worker import Beat, Desk
from loops.models import Loop
from tests.bench import cast
from tests.bench.bell import gaps_of
from tests.bench.raw import Lane
from tests.bench.stage import until


@contextmanager
def lane() -> Iterator[Lane]:
    """Runs of a loop in one slot of a real desk: the seconds from the beginning of one run to that of the next."""
    desk = Desk(4)
    Beat(desk).start()

    def steps(count: int) -> list[float]:
        desk.free.acquire()
        turn = cast.start_claimed(cast.agent("process"), min(cast.MOST_RUNS, count + 1), desk.owner)
        desk._pool.submit(desk._hold_slot, lambda: turn)
        loop = Loop.objects.get(pk=turn.execution.loop_id)
        until(lambda: not Loop.objects.active().filter(pk=loop.pk).exists(), "a loop of processes", every=0.05)
        return gaps_of(loop)

    try:
        yield steps
    finally:
        desk.leave()


@contextmanager
def harness_lane() -> Iterator[Lane]:
    """The harness alone: run folder, wrapper, `true`, watcher and result, without the ledger."""
    watcher = process.Watcher()
    watcher.start()
    workspace = Path(settings.TRINITY_DATA) / "bench-workspace"

    def step() -> float:
        execution_id = new_id("exec")
        order = Order(
            execution_id=execution_id,
            folder=Path(settings.TRINITY_DATA) / "bench-runs" / execution_id / "1",
            workspace=workspace,
            command=("true",),
            message="x",
            output="text",
            environment={"PATH": "/usr/bin:/bin", "TRINITY_EXECUTION_ID": execution_id},
            timeout_seconds=60,
        )
        over = threading.Event()
        began = time.perf_counter()
        watcher.watch(process.start(order), lambda _: over.set())
        over.wait(30)
        result = command.collect(order)
        took = time.perf_counter() - began
        if result is None or not result.succeeded:
            raise RuntimeError(f"`true` failed: {result}")
        shutil.rmtree(order.folder.parent)
        return took

    try:
        yield lambda count: [step() for _ in range(count)]
    finally:
        watcher.stop()


@contextmanager
def system_lane() -> Iterator[Lane]:
    """The operating system's part: `true` started and waited for, without anything of ours."""

    def step() -> float:
        began = time.perf_counter()
        subprocess.Popen(["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).wait()
        return time.perf_counter() - began

    yield lambda count: [step() for _ in range(count)]
