"""The real product under attack: `up` on a data folder, a port and services of its own, its processes by what they are, its REST."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.services import PostgreSQL, Redis, free_port
from tests.trinity.running import ROOT, command_line, parent, processes_with

logging.getLogger("httpx").setLevel(logging.WARNING)  # one line for each of thousands of questions

WORKERS, SLOTS, LEASE = 3, 6, 5
ADMIN = "root"
NOT_OURS = re.compile(r"TRINITY_|DJANGO_|DATABASE_URL|REDIS_URL|SECRET_KEY|ALLOWED_HOSTS")
# Lines of the log that no fault of another part excuses.
BAD_LINES = re.compile(
    r"database is locked|deadlock|without its agent's lock|IntegrityError|UNIQUE constraint|do not end|DeprecationWarning"
)


class Product:
    """One installation. Its `up` ends with the thread that called `start`, so that must be one that stays."""

    def __init__(self, database: str, lease: int = LEASE, workers: int = WORKERS, slots: int = SLOTS) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trinity-chaos-"))
        self.folder.chmod(0o755)  # PostgreSQL runs as a user of its own
        self.data = self.folder / "data"
        self.data.mkdir()
        self.port, self.workers, self.slots = free_port(), workers, slots
        self.postgresql: PostgreSQL | None = None
        self.redis: Redis | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.key = ""
        inherited = {name: value for name, value in os.environ.items() if not NOT_OURS.match(name)}
        self.environment = {
            **inherited,
            "DJANGO_SETTINGS_MODULE": "trinity.settings",
            "TRINITY_DATA": str(self.data),
            "TRINITY_LEASE_SECONDS": str(lease),
            "TRINITY_SLOTS": str(slots),
            "PYTHONUNBUFFERED": "1",
        }
        if database == "postgresql":
            self.postgresql, self.redis = PostgreSQL(self.folder / "postgresql"), Redis(self.folder)
            self.environment |= {"DATABASE_URL": self.postgresql.url, "REDIS_URL": self.redis.url}
            self.environment["SECRET_KEY"] = "only-for-chaos-0123456789-0123456789-0123456789"

    # -- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start `up`; it is not waited for."""
        options = ["--no-demo", "--port", str(self.port), "--workers", str(self.workers)]
        with (self.folder / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable, "manage.py", "up", *options],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ready(self, workers: int | None = None) -> bool:
        """Is every part up, and so many workers?"""
        try:
            answer = httpx.get(f"{self.address}/health", timeout=2)
        except httpx.TransportError:
            return False
        return answer.status_code == 200 and answer.json()["workers"] >= (workers or 1)

    def wait_until_ready(self, seconds: float = 40) -> None:
        until(lambda: self.ready(self.workers), seconds, "up is not ready")

    def command(self, *words: str, **environment: str) -> str:
        """Run a management command or another program of ours; what it printed."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        return done.stdout.decode().strip()

    def make_admin(self) -> None:
        """Make the administrator whose key the REST calls carry."""
        who = {
            "DJANGO_SUPERUSER_USERNAME": ADMIN,
            "DJANGO_SUPERUSER_PASSWORD": "long enough 7",
            "DJANGO_SUPERUSER_EMAIL": "",
        }
        self.command("manage.py", "createsuperuser", "--noinput", **who)
        self.key = self.command("manage.py", "createkey", ADMIN)

    def close(self) -> None:
        """End everything, whatever state it is in, and remove the folder."""
        for pid in self.everything():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(10)
        for marks in self.marked().values():
            for pid in marks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for service in (self.postgresql, self.redis):
            if service is not None:
                service.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- its processes ----------------------------------------------------------------------------
    def everything(self) -> list[int]:
        """Every process of ours, turns excepted."""
        return list(processes_with(f"TRINITY_DATA={self.data}"))

    def parts(self) -> dict[str, list[int]]:
        """The pids by what they are, each list by age."""
        names = {
            "daphne": "web",
            "manage.py sweep": "sweep",
            "manage.py up": "up",
            "valkey": "redis",
            "redis-server": "redis",
        }
        found: dict[str, list[int]] = {
            "worker": [],
            "workers' supervisor": [],
            "other": [],
            **{n: [] for n in names.values()},
        }
        workers: dict[int, int] = {}
        for pid in sorted(self.everything()):
            with contextlib.suppress(OSError):
                line = command_line(pid)
                if "manage.py worker" in line:
                    workers[pid] = parent(pid)
                    continue
                found[next((name for word, name in names.items() if word in line), "other")].append(pid)
        for pid, above in workers.items():
            found["worker" if above in workers else "workers' supervisor"].append(pid)
        return found

    def marked(self) -> dict[str, list[int]]:
        """The processes of turns by execution id: those of this installation, as they work in its folder."""
        found: dict[str, list[int]] = {}
        for pid in processes_with("TRINITY_EXECUTION_ID="):
            with contextlib.suppress(OSError):
                if not os.readlink(f"/proc/{pid}/cwd").startswith(str(self.data)):
                    continue
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                mark = next(word for word in words if word.startswith(b"TRINITY_EXECUTION_ID="))
                found.setdefault(mark.partition(b"=")[2].decode(), []).append(pid)
        return found

    def zombies(self) -> list[int]:
        """Dead children that a process of ours has not reaped."""
        ours, found = set(self.everything()), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    state, above = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                    if state == "Z" and int(above) in ours:
                        found.append(int(entry.name))
        return found

    # -- its witnesses ----------------------------------------------------------------------------
    def calls(self) -> list[dict[str, Any]]:
        """What the agents have written down, in the order of time."""
        logs = (self.data / "workspaces").glob("*/calls.log")
        lines = [
            {**json.loads(line), "agent": log.parent.name} for log in logs for line in log.read_text().splitlines()
        ]
        return sorted(lines, key=lambda line: line["at"])

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """What the database says."""
        return json.loads(self.command("-m", "tests.chaos.rows"))

    def log(self) -> str:
        return (self.folder / "up.log").read_text(errors="replace")

    # -- REST -------------------------------------------------------------------------------------
    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def call(self, method: str, path: str, body: Any = None, seconds: float = 90, **headers: str) -> tuple[Any, int]:
        """Ask until there is an answer that is not our own trouble (5xx, nobody there): the answer, and how often it was asked."""
        limit, tries = time.monotonic() + seconds, 0
        headers = {"Authorization": f"Bearer {self.key}", **headers}
        while True:
            tries += 1
            try:
                answer = httpx.request(method, self.address + path, json=body, headers=headers, timeout=4)
            except httpx.TransportError as away:
                problem = str(away) or type(away).__name__
            else:
                if answer.status_code < 400:
                    return (answer.json() if answer.content else None), tries
                problem = f"{answer.status_code} {answer.text[:300]}"
                assert answer.status_code >= 500, f"{method} {path}: {problem}"
            assert time.monotonic() < limit, f"{method} {path}: {problem}"
            time.sleep(0.2)


def until(claim: Callable[[], object], seconds: float, what: str) -> None:
    """Return as soon as `claim` is true."""
    limit = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < limit, f"{what} after {seconds} s"
        time.sleep(0.05)


@contextlib.contextmanager
def running(database: str, **options: int) -> Iterator[Product]:
    """An installation that is up, with an administrator; nothing is left of it afterwards."""
    assert threading.current_thread() is threading.main_thread()
    product = Product(database, **options)
    try:
        product.start()
        until(product.ready, 60, "up is not ready")
        product.make_admin()
        yield product
    except BaseException:
        print(product.log()[-20_000:])
        raise
    finally:
        product.close()
