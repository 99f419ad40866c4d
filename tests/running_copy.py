"""A running copy of the product for clients that others have made: `manage.py up` on a free port with a data folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import PASSWORD, SCRIPTED
from tests.trinity.running import ROOT, Running

# Those of the test run itself would be taken over, and with them its data folder and its Redis.
OURS = re.compile(r"TRINITY_|DJANGO_|DATABASE_URL|REDIS_URL|SECRET_KEY|ALLOWED_HOSTS")
FOREIGN = re.compile(r"ANTHROPIC_|CLAUDE")  # what a client would take from the environment it is started in


def clean_environment() -> dict[str, str]:
    """Ours without what is about the product or about a client."""
    return {name: value for name, value in os.environ.items() if not (OURS.match(name) or FOREIGN.match(name))}


class Copy:
    """One running copy; `base` is its address."""

    def __init__(self, base: str, environment: dict[str, str]) -> None:
        self.base = base
        self._environment = environment

    def manage(self, *words: str, **variables: str) -> str:
        """What a command of manage.py has printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env={**self._environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextmanager
def running_copy(data: Path) -> Iterator[Copy]:
    """A copy with the admin `admin`, who owns falcon, an agent that does what its message says."""
    environment = {**clean_environment(), "TRINITY_DATA": str(data)}
    command = (sys.executable, "manage.py", "up", "--port", "0", "--workers", "1", "--no-demo")
    with Running(*command, env=environment, inherit=False) as up:
        copy = Copy(up.wait_for(r"^Trinity is ready at (http://\S+)$", 60)[1], environment)
        copy.manage(
            *("createsuperuser", "--noinput"),
            **{"DJANGO_SUPERUSER_USERNAME": "admin", "DJANGO_SUPERUSER_PASSWORD": PASSWORD},
            DJANGO_SUPERUSER_EMAIL="admin@example.org",
        )
        copy.manage("createagent", "falcon", "--owner", "admin", "--command", f"{sys.executable} {SCRIPTED}")
        yield copy
        assert up.end(signal.SIGTERM, 30) == 0, up.text
