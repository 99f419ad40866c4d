"""A stage for turns with real processes: makes orders, runs them, and leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.harness import process, registry
from agents.harness.contract import Order, Result
from agents.harness.environment import clean_environment

ROOT = Path(__file__).parents[3]

# What a worker process does with a turn, for tests that kill or freeze one.
WORKER = """
import sys, time
from pathlib import Path
from agents.harness import process
from agents.harness.contract import Order
folder, workspace, execution_id, seconds, *command = sys.argv[1:]
env = {"PATH": "/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8", "TRINITY_EXECUTION_ID": execution_id}
order = Order(execution_id, Path(folder), Path(workspace), tuple(command), "", "text", env, int(seconds), 1)
print(process.start(order).pid, flush=True)
time.sleep(60)
"""


class Stage:
    """Makes orders in a folder of their own and remembers their ids."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.ids: list[str] = []
        self.watcher = process.Watcher()
        self.watcher.start()
        self.workers: list[subprocess.Popen[str]] = []
        self.started: list[process.Process] = []

    def order(self, *command: str, environment: dict[str, str] | None = None, **fields: Any) -> Order:
        execution_id = f"exec_{uuid.uuid4().hex}"
        self.ids.append(execution_id)
        env = {**clean_environment(os.environ), **(environment or {}), "TRINITY_EXECUTION_ID": execution_id}
        defaults: dict[str, Any] = {
            "folder": self.base / "runs" / execution_id / "1",
            "workspace": self.base / "workspace",
            "message": "",
            "output": "text",
            "timeout_seconds": 60,
            "grace_seconds": 1,
        }
        return Order(execution_id=execution_id, command=command, environment=env, **{**defaults, **fields})

    def sh(self, script: str, **fields: Any) -> Order:
        return self.order("/bin/sh", "-c", script, **fields)

    def python(self, program: str, **fields: Any) -> Order:
        return self.order(sys.executable, "-c", program, **fields)

    def start(self, order: Order, argv: list[str] | None = None) -> process.Process:
        running = process.start(order, argv)
        self.started.append(running)
        return running

    def wait(self, running: process.Process, timeout: float = 20) -> None:
        """Wait for the watcher's word that the process is over."""
        over = threading.Event()
        self.watcher.watch(running, lambda _: over.set())
        assert over.wait(timeout), "nobody told of the end"

    def run(self, order: Order) -> Result:
        self.wait(self.start(order))
        return self.collect(order)

    def collect(self, order: Order) -> Result:
        result = registry.harness("command").collect(order)
        assert result is not None, "the turn vanished"
        return result

    def worker(self, order: Order) -> tuple[subprocess.Popen[str], int]:
        """Start the order in another process; that process and the wrapper's pid."""
        argv = [str(order.folder), str(order.workspace), order.execution_id, str(order.timeout_seconds), *order.command]
        child = subprocess.Popen([sys.executable, "-c", WORKER, *argv], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.workers.append(child)
        assert child.stdout is not None
        return child, int(child.stdout.readline())

    def close(self) -> None:
        self.watcher.stop()
        for worker in self.workers:
            worker.kill()
            worker.communicate()
        process.end_leftovers(self.ids, 0)
        for running in self.started:
            running.over(5)
            running.reap()
            running.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def until(true: Callable[[], Any], timeout: float = 10) -> Any:
    """Wait until something is true; its value."""
    limit = time.monotonic() + timeout
    while not (value := true()):
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.005)
    return value


def said(order: Order) -> str:
    """What the turn has printed so far."""
    try:
        return (order.folder / "out").read_text()
    except FileNotFoundError:
        return ""


def living(order: Order) -> list[int]:
    """The living processes that carry the order's mark."""
    found = process.marked({order.execution_id}).get(order.execution_id, [])
    return [pid for pid in found if (began := process.start_time(pid)) is not None and process.alive(pid, began)]


def is_there(pid: int) -> bool:
    began = process.start_time(pid)
    return began is not None and process.alive(pid, began)
