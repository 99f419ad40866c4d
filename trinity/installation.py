"""The parts of the product on one machine, and the order in which they start."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from trinity import checks, data_folder, first_steps, redis_server
from trinity.child import Part, program
from trinity.log_lines import write_line
from trinity.readiness import Readiness
from trinity.supervisor import Supervisor

CTRL_C = (
    signal.SIGINT,
)  # it reaches the whole process group: for parts that leave when they are asked in order, and not before
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a listener on all addresses is reached from here


@dataclass(frozen=True, slots=True)
class Installation:
    """`host` as the user gave it, the socket that listens there, and the descriptor that locks the data folder."""

    host: str
    listener: socket.socket
    lock: int
    workers: int
    demo: bool

    def run(self) -> int:
        """Start everything in order and keep it running until a signal; the exit code."""
        supervisor = Supervisor(notice=notice)
        address = settings.REDIS_EMBEDDED_SOCKET
        if address is not None:
            redis_server.prepare(address, settings.TRINITY_DATA / "redis")
            supervisor.start(self._redis(address))
        supervisor.start(Part("rules", _check_rules, then=lambda: None))
        supervisor.start(Part("setup", self._set_up, then=lambda: self._start_rest(supervisor)))
        code = supervisor.run()
        redis_server.tidy_up(address)
        if code:
            data_folder.leave_unused(settings.TRINITY_DATA)
        return code

    @property
    def port(self) -> int:
        """Where it listens (the one that was found for port 0)."""
        return int(self.listener.getsockname()[1])

    def _set_up(self) -> None:
        try:
            first_steps.take(self.demo)
        except first_steps.NotReady as reason:
            sys.exit(f"error: {reason}")

    def _start_rest(self, supervisor: Supervisor) -> None:
        for part in (self._web(), self._work(), self._sweep()):
            supervisor.start(part)
        ready = f"Trinity is ready at {_url(self.host, self.port)}"
        Readiness(
            supervisor,
            self.listener,
            _accepted_host(),
            on_ready=lambda: write_line(ready),
            on_wait=lambda reason: notice(f"not ready yet, /health says: {reason}"),
        ).ask()

    # -- the parts --------------------------------------------------------------------------------
    def _redis(self, address: Path) -> Part:
        folder = settings.TRINITY_DATA / "redis"
        become = program(
            redis_server.command(address, folder),
            environment={"TRINITY_DATA": str(settings.TRINITY_DATA), "PATH": os.environ.get("PATH", os.defpath)},
            folder=folder,
            kept=(self.lock,),
            blocked=CTRL_C,
        )
        return Part(
            "redis",
            become,
            stage=1,  # stopped when everybody who speaks to it has left
            patience=2.5,
            death_signal=signal.SIGTERM,  # so that it writes the rest of its log
            logged=True,
            hushed=redis_server.HUSHED,
        )

    def _web(self) -> Part:
        """Daphne on our listening socket: while it is started again, requests wait instead of being refused.

        At its end it closes all connections at once and then waits for threads whose answers nobody hears any more.
        """
        descriptor = self.listener.fileno()
        arguments = ["-m", "daphne", "-v", "0", "--fd", str(descriptor), "trinity.asgi:application"]
        return Part("web", self._python(arguments, descriptor, blocked=CTRL_C), patience=2.0, logged=True)

    def _work(self) -> Part:
        return Part("work", self._python(["manage.py", "worker", "--workers", str(self.workers)]), logged=True)

    def _sweep(self) -> Part:
        return Part("sweep", self._python(["manage.py", "sweep"]), logged=True)

    def _python(self, arguments: list[str], *kept: int, blocked: Iterable[signal.Signals] = ()) -> Callable[[], object]:
        return program(
            [sys.executable, *arguments],
            environment=self._environment(),
            folder=settings.BASE_DIR,
            kept=(self.lock, *kept),
            blocked=blocked,
        )

    def _environment(self) -> dict[str, str]:
        """This process' own, and what the options of `up` decided."""
        reached = _url(ANY_ADDRESS.get(self.host, self.host), self.port)
        return {
            **os.environ,
            "TRINITY_DATA": str(settings.TRINITY_DATA),
            "TRINITY_HOST": self.host,
            "TRINITY_PORT": str(self.port),
            "TRINITY_BASE_URL": os.environ.get("TRINITY_BASE_URL") or reached,
            "REDIS_URL": settings.REDIS_URL,
            "PYTHONUNBUFFERED": "1",
        }


def _check_rules() -> None:
    """Beside the setup, as it loads every page's code."""
    if found := checks.holes(checks.ways()):
        sys.exit(f"error: {' '.join(found)}")


def notice(line: str) -> None:
    """Say something in the name of `up` itself."""
    write_line(f"up    | {line}")


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _accepted_host() -> str:
    """A name that the web server takes for its own."""
    first = settings.ALLOWED_HOSTS[0]
    return "localhost" if first == "*" else first.lstrip(".")
