"""What the kernel says about processes; changes nothing. A process is its pid and start time, never its pid alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)


def boot_id() -> str:
    """Which boot of this machine (or container host) we live in: no process outlives it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat_fields(line: bytes) -> list[bytes]:
    """The fields of a stat line from the state (field 3) on; the name before it may hold blanks and brackets."""
    return line.rpartition(b")")[2].split()


def start_field(line: bytes) -> int:
    """When the process of this stat line started, in ticks after boot (field 22)."""
    return int(stat_fields(line)[19])


def read(pid: int, name: str) -> bytes | None:
    """A file of /proc/PID; None when the process is gone or is not ours to look at."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.readall()
    except (*_GONE, PermissionError):
        return None


def start_time(pid: int) -> int | None:
    """When this process started, in ticks after boot; None when there is none (a zombie has one)."""
    line = read(pid, "stat")
    return start_field(line) if line else None


def alive(pid: int, start: int) -> bool:
    """Whether this very process still runs. A zombie is dead."""
    line = read(pid, "stat")
    return bool(line and start_field(line) == start and stat_fields(line)[0] not in (b"Z", b"X"))


def pids() -> Iterator[int]:
    """All processes there are now."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def session(pid: int) -> int | None:
    """The session of a process, None when it is gone. Cheap: no file is read."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def variables(pid: int, name: str) -> list[str]:
    """The values that this process was given for an environment variable; nearly always none or one."""
    wanted = os.fsencode(name) + b"="
    environ = read(pid, "environ") or b""
    if wanted not in environ:
        return []
    return [os.fsdecode(entry[len(wanted) :]) for entry in environ.split(b"\0") if entry.startswith(wanted)]
