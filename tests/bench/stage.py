"""The stage of the bench: a database, a Redis and child processes of its own, all gone at the end, all on loopback."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from trinity.parent import bind_to_parent

PROJECT = Path(__file__).resolve().parents[2]
LONG = 120.0  # seconds after which anything that is waited for has failed


class Failed(Exception):
    """Something did not happen in time, or a child died; the reason in one sentence."""


class Child:
    """A child process that ends with the bench. `ask` sends it a line and returns the line that it answers."""

    def __init__(self, name: str, arguments: list[str], **environment: str) -> None:
        self.name = name
        self.log = Path(os.environ["TRINITY_DATA"]) / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=PROJECT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                preexec_fn=partial(bind_to_parent, os.getpid(), signal.SIGKILL),
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n".encode())

    def hear(self, seconds: float = LONG) -> str:
        """The next line that it writes. Raises Failed when there is none in time."""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else b""
        if not line.endswith(b"\n"):
            raise Failed(f"{self.name} does not answer; its log ends with: {self.said()[-800:]}")
        return line.decode().rstrip("\n")

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def check(self) -> None:
        """Raises Failed when it has ended."""
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended with {self.process.returncode}: {self.said()[-800:]}")

    def stop(self) -> None:
        """TERM, and KILL after ten seconds."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def children(*started: Child) -> Iterator[tuple[Child, ...]]:
    """These children, until the end of the block."""
    try:
        yield started
    finally:
        for child in started:
            child.stop()


def until(condition: Callable[[], Any], what: str, *, seconds: float = LONG, every: float = 0.02) -> Any:
    """Ask again and again until the answer is true, and return it. Raises Failed after so many seconds."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds:g} s")
        time.sleep(every)
    return answer


# -- what is set before Django is loaded --------------------------------------------------------------
@contextmanager
def environment() -> Iterator[None]:
    """A data folder and, where DATABASE_URL names a server, a new database on it; both are removed at the end."""
    folder = tempfile.mkdtemp(prefix="trinity-bench-")
    os.environ.update(
        TRINITY_DATA=folder,
        DJANGO_SETTINGS_MODULE="trinity.settings",
        SECRET_KEY=secrets.token_urlsafe(48),
        TRINITY_MAX_ACTIVE_PER_AGENT="10000",
        TRINITY_MAX_ACTIVE_PER_USER="100000",
        TRINITY_MAX_STARTS_PER_MINUTE="100000",
        TRINITY_BASE_URL="http://127.0.0.1:1",  # nobody calls back
    )
    try:
        with _own_database(os.environ.get("DATABASE_URL", "")):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own_database(url: str) -> Iterator[None]:
    if not url:
        yield
        return
    parts = urlsplit(url)
    name = f"{parts.path.lstrip('/')}_bench_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        os.environ["DATABASE_URL"] = urlunsplit(parts._replace(path=f"/{name}"))
        try:
            yield
        finally:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


# -- what is started after it -------------------------------------------------------------------------
class Redis:
    """A Valkey of our own, or the empty database that REDIS_URL names. `wipe` loses everything that is in it."""

    def __init__(self, socket: Path | None, url: str, folder: Path) -> None:
        self.socket, self.url, self.folder = socket, url, folder
        self._server: subprocess.Popen[bytes] | None = None
        if socket is None:
            self._refuse_one_in_use()
        else:
            self._start()

    def _refuse_one_in_use(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            if client.dbsize():
                raise Failed("REDIS_URL must name an empty database: the bench wipes it")

    def _start(self) -> None:
        from trinity import redis_server

        self._server = redis_server.start(self.socket, self.folder)
        redis_server.wait_until_ready(self.socket, 10)

    def wipe(self) -> None:
        """Kill our own server and start one that knows nothing; empty a foreign database and cut its connections to us."""
        if self._server is None:
            with redis.Redis.from_url(self.url) as client:
                client.flushdb()
            return
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self.folder)
        self._start()

    def close(self) -> None:
        if self._server is None:
            with redis.Redis.from_url(self.url) as client:
                client.flushdb()
            return
        from trinity import redis_server

        self._server.terminate()
        self._server.wait(10)
        redis_server.tidy_up(self.socket)


@contextmanager
def services() -> Iterator[Redis]:
    """The migrated database and the Redis; Django is set up."""
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection, connections

    held = Redis(settings.REDIS_EMBEDDED_SOCKET, settings.REDIS_URL, settings.TRINITY_DATA / "redis")
    try:
        call_command("migrate", verbosity=0, skip_checks=True)
        yield held
    finally:
        connections.close_all()
        if connection.vendor == "postgresql":
            connection.close_pool()
        with contextlib.suppress(redis.RedisError):
            held.close()


def memory_mb(pids: list[int]) -> float:
    """The proportional share (PSS) of these processes in MB; one that is gone counts nothing."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024
