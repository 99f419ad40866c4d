"""A PostgreSQL cluster and a Redis of a test's own, which it may kill and restart. They end with the test, whatever ends it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psycopg
import redis

USER = "trinity"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _postgresql_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    elsewhere = shutil.which("initdb")
    return Path(elsewhere).parent if elsewhere else None


def missing() -> str:
    """What of the two programs this machine has not; empty where it has both."""
    lacking = [] if _postgresql_programs() else ["PostgreSQL (initdb)"]
    return " and ".join(lacking if shutil.which("redis-server") else [*lacking, "redis-server"])


def _child(command: list[str], log: Path, death: str, identity: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a server that gets the signal `death` when the thread that calls this is gone."""
    with log.open("ab") as out:
        return subprocess.Popen(
            ["setpriv", *identity, "--pdeathsig", death, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def _until(ready, what: str, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < limit, f"{what} does not answer after {seconds} s"
        time.sleep(0.02)


class PostgreSQL:
    """A cluster in `folder`, which everybody must be able to enter."""

    def __init__(self, folder: Path) -> None:
        programs = _postgresql_programs()
        assert programs is not None
        self.programs, self.folder, self.port = programs, folder, free_port()
        folder.mkdir()
        self.identity: tuple[str, ...] = ()
        if os.getuid() == 0:  # which PostgreSQL refuses to run as
            shutil.chown(folder, "postgres", "postgres")
            self.identity = ("--reuid=postgres", "--regid=postgres", "--init-groups")
        data = str(folder / "data")
        initdb = [str(programs / "initdb"), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]
        setpriv = ["setpriv", *self.identity] if self.identity else []
        subprocess.run([*setpriv, *initdb, "--locale=C.UTF-8"], check=True, stdout=subprocess.DEVNULL)
        options = ["-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=100"]
        self.command = [str(programs / "postgres"), "-D", data, "-p", str(self.port), *options]
        self.start()
        with self._admin() as connection:
            connection.execute("CREATE DATABASE trinity")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/trinity"

    def _admin(self) -> psycopg.Connection:
        return psycopg.connect(f"postgresql://{USER}@127.0.0.1:{self.port}/postgres", autocommit=True)

    def _answers(self) -> bool:
        try:
            self._admin().close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> None:
        """Start and wait until it answers."""
        self.process = _child(self.command, self.folder.parent / "postgresql.log", "QUIT", self.identity)
        _until(self._answers, "PostgreSQL", 20)

    def restart(self, how: signal.Signals) -> None:
        """SIGINT: every session is cut off. SIGQUIT: as after a crash."""
        self.stop(how)
        self.start()

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        self.process.send_signal(how)
        self.process.wait(20)


class Redis:
    """A Redis that keeps nothing on disk: killing it wipes it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ["--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder), "--loglevel", "warning"]
        command = ["redis-server", "--port", str(self.port), *options]
        self.process = _child(command, self.folder / "redis.log", "KILL")
        _until(self._answers, "Redis", 10)

    def _answers(self) -> bool:
        try:
            with redis.Redis(port=self.port) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)
