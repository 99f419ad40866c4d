"""Workers, sweeps and webs as processes of their own within a tenth of a second: forked from one that has loaded everything.

`python -m tests.chaos.nursery PARENT DATABASE` reads lines `PART ARGUMENT|FAILPOINT`, answers each with a pid; `Nursery` is its other end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from trinity.parent import bind_to_parent

ROOT = Path(__file__).resolve().parents[2]
LEASE = 2


@dataclass(frozen=True, slots=True)
class Child:
    """One process of the nursery. It is reaped there, so it is known here by a descriptor, not by its pid alone."""

    pid: int
    descriptor: int

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it is still there."""
        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            return

    @property
    def state(self) -> str:
        """As in /proc: R S D T; empty when it is gone."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def kill(self) -> None:
        """Kill it and wait until it is gone."""
        self.signal(signal.SIGKILL)
        until(lambda: not self.state)

    def freeze(self) -> None:
        """Stop it where it stands."""
        self.signal(signal.SIGSTOP)
        until(lambda: self.state == "T")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)


class Nursery:
    """Starts parts on the database of the running test, with the data folder `data` for their host."""

    def __init__(self, database: str, data: Path) -> None:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "trinity.settings",
            "TRINITY_DATA": str(data),
            "TRINITY_LEASE_SECONDS": str(LEASE),
        }
        self.data = data
        self._children: list[Child] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery", str(os.getpid()), database],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def worker(self, slots: int = 5, failpoint: str = "") -> Child:
        """A worker process; see agents.failpoint for what it may be made to die of."""
        return self._start(f"worker {slots}", failpoint)

    def sweep(self, failpoint: str = "") -> Child:
        return self._start("sweep 0", failpoint)

    def web(self, port: int) -> Child:
        """Daphne, listening on this port a little later."""
        return self._start(f"web {port}", "")

    def _start(self, part: str, failpoint: str) -> Child:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{part}|{failpoint}\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        child = Child(pid, os.pidfd_open(pid))
        self._children.append(child)
        return child

    def end_all(self) -> None:
        """Kill what it has started, and forget it."""
        while self._children:
            child = self._children.pop()
            child.kill()
            os.close(child.descriptor)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_all()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def until(claim: Callable[[], object], seconds: float = 15, what: str = "it did not come true") -> object:
    """What `claim` returns as soon as it is true."""
    limit = time.monotonic() + seconds
    while not (found := claim()):
        assert time.monotonic() < limit, what
        time.sleep(0.02)
    return found


# -- the nursery's own process ------------------------------------------------------------------------
def _serve(database: str) -> None:
    from django.conf import settings

    settings.DATABASES["default"]["NAME"] = database
    import django

    django.setup()
    from django.db import connections
    from django.utils.module_loading import import_string

    import trinity.urls  # noqa: F401 (what every part needs is loaded before the fork)

    for path in (*settings.EXECUTION_OBSERVERS.values(), *settings.AGENT_OBSERVERS, *settings.SWEEP_DUTIES):
        import_string(path)
    connections.close_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    for line in sys.stdin:
        order, _, failpoint = line.rstrip("\n").partition("|")
        nursery = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be(order, failpoint, nursery)
        print(pid, flush=True)


def _be(order: str, failpoint: str, nursery: int) -> None:
    """In the child: be the part, and never come back."""
    from django.conf import settings

    from agents.sweep import run_sweep
    from agents.worker import run_worker

    code = 1
    try:
        bind_to_parent(nursery)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        settings.TRINITY_FAILPOINT = failpoint
        part, _, argument = order.partition(" ")
        if part == "worker":
            run_worker(int(argument))
        elif part == "sweep":
            run_sweep()
        else:
            _be_web(int(argument))
        code = 0
    finally:
        os._exit(code)


def _be_web(port: int) -> None:
    from daphne.cli import CommandLineInterface

    CommandLineInterface().run(["-v", "0", "-p", str(port), "trinity.asgi:application"])


if __name__ == "__main__":
    bind_to_parent(int(sys.argv[1]))
    _serve(sys.argv[2])
