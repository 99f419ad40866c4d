"""A turn's wrapper (turn.sh) seen from outside: which process it is, whether it is over, what it has recorded."""

from __future__ import annotations

import os
import re
import select
import subprocess
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from threading import Lock

from agents.harness import procfs

MARK = "TRINITY_EXECUTION_ID"  # the environment variable by which every process of a turn is known
_EXIT = re.compile(rb"(\d{1,3}) (\d+\.\d+) (\d+\.\d+) (\d+)\n")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended: its exit code as a shell gives it, begin and end in seconds after boot, the limit it had."""

    rc: int
    began: Decimal
    ended: Decimal
    limit: int

    @property
    def seconds(self) -> Decimal:
        """How long it ran."""
        return max(self.ended - self.began, Decimal(0))

    @property
    def duration_ms(self) -> int:
        """How long it ran, in whole milliseconds (the clock counts hundredths of a second)."""
        return int(self.seconds * 1000)


def exit_record(folder: Path) -> Exit | None:
    """The recorded end of the turn in this folder; None while there is none (only a complete line counts)."""
    try:
        found = _EXIT.match((folder / "exit").read_bytes())
    except FileNotFoundError:
        return None
    if found is None:
        return None
    return Exit(int(found[1]), Decimal(found[2].decode()), Decimal(found[3].decode()), int(found[4]))


class Process:
    """A turn's wrapper: `pid` and `start` (ticks after boot) are its identity, and `pid` is also its session.

    `folder` is its run folder, `limit` its seconds (None where nobody can tell). Holds a descriptor of the process
    (`pidfd`, else -1) until `close`.
    """

    def __init__(
        self,
        pid: int,
        start: int,
        folder: Path,
        *,
        execution_id: str = "",
        limit: int | None = None,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.pid, self.start, self.folder = pid, start, folder
        self.execution_id, self.limit = execution_id, limit
        self.pidfd = -1
        self._child = child
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Process {self.pid} of {self.execution_id or self.folder}>"

    @property
    def overdue_at(self) -> float | None:
        """Seconds after boot from which on the limit must have been enforced."""
        return None if self.limit is None else self.start / procfs.TICKS + self.limit + 1

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return procfs.alive(self.pid, self.start)

    def attach(self) -> bool:
        """Open a descriptor of the process; False when it has ended. Raises OSError where none is to be had."""
        if self.pid <= 0:
            return False
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        # Looked at after the descriptor was opened, so that it cannot be that of a later process with this pid.
        if procfs.start_time(self.pid) != self.start:
            self.close()
            return False
        return True

    def over(self, timeout: float = 0) -> bool:
        """Whether it has ended, after waiting for that at most `timeout` seconds. Without a descriptor it counts as ended."""
        if self.pidfd < 0:
            return True
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def reap(self) -> None:
        """Take the exit status of a wrapper that has ended, if it is our child: no zombie stays."""
        if self._child is not None:
            self._child.wait()

    def close(self) -> None:
        """Let go of the process, which may run on. Harmless twice, and from any thread."""
        with self._lock:
            if self._child is not None and self._child.poll() is None:
                self._child.returncode = 0  # it runs on, on purpose: no warning when the object is dropped
            if self.pidfd >= 0:
                os.close(self.pidfd)
                self.pidfd = -1
