"""Real processes under test: what they write, whether they are still there, and how they end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Running:
    """A command whose output, both streams, is read line by line. Leaves nothing behind."""

    def __init__(self, *command: str, env: dict[str, str] | None = None, inherit: bool = True) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**(os.environ if inherit else {}), "PYTHONUNBUFFERED": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = 10, count: int = 1) -> re.Match[str]:
        """The `count`-th line that has the pattern."""
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                found = [match for line in self.lines if (match := re.search(pattern, line))]
                if len(found) >= count:
                    return found[count - 1]
                patience = deadline - time.monotonic()
                assert patience > 0, f"no {pattern!r} within {seconds} s in:\n{self.text}"
                assert not self._over, f"no {pattern!r} in:\n{self.text}"
                self._news.wait(patience)

    def end(self, signal_number: int | None = None, seconds: float = 10) -> int:
        """Send a signal and return the exit code; all that was written can then be read."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code


def python(code: str, **env: str) -> Running:
    """A Python program of its own."""
    return Running(sys.executable, "-c", code, env=env)


def gone(pid: int, seconds: float = 5) -> bool:
    """Has this process ended within so many seconds?"""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def processes_with(mark: str) -> Iterator[int]:
    """Processes that have the text in their environment."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                yield int(entry.name)


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
