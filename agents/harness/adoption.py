"""Take over a turn from a worker that is gone: find out what became of it, and make sure that it runs at most once."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path

from agents.harness import procfs
from agents.harness.wrapper import MARK, Process, exit_record

_TAKEN = b"taken\n"
_PATIENCE = 1.0  # seconds for a `start` that is just being written
_LOOK_EVERY = 0.01
_NOBODY = (-1, -1)  # pid and start time of a process of an earlier boot


class Taken(StrEnum):
    """What a taker finds."""

    NEVER_STARTED = "never started"  # and never will be: another attempt is safe
    RUNNING = "running"
    ENDED = "ended"
    VANISHED = "vanished"  # started, gone, no recorded end; its descendants may still live


def take_over(folder: Path, same_boot: bool) -> tuple[Taken, Process | None]:
    """Find out what became of the turn of this folder; one that has not begun never will. May be called again.

    `same_boot` False = it was started before this machine last booted: whatever it was, it does not run. There is a
    process wherever one was started, dead or alive, so that a watcher can be given it in any case.
    """
    folder = folder.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _start_is_ours(folder):
        return Taken.NEVER_STARTED, None
    line = _start_line(folder, _PATIENCE if same_boot else 0)
    if line == _TAKEN or (line is None and same_boot):
        return Taken.NEVER_STARTED, None
    process = _wrapper_of(line, folder) if line is not None and same_boot else Process(*_NOBODY, folder)
    if _attach(process):
        return Taken.RUNNING, process
    # Looked at only now: a wrapper that was seen dead has written all that it will ever write.
    return Taken.VANISHED if exit_record(folder) is None else Taken.ENDED, process


def _start_is_ours(folder: Path) -> bool:
    try:
        fd = os.open(folder / "start", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(fd, "wb") as file:
        file.write(_TAKEN)
    return True


def _start_line(folder: Path, patience: float) -> bytes | None:
    """What `start` says; None when its writer has not come to write it, and now can no longer start the command."""
    path, limit = folder / "start", time.monotonic() + patience
    while not (line := path.read_bytes()).endswith(b"\n"):
        if time.monotonic() < limit:
            time.sleep(_LOOK_EVERY)
            continue
        # A wrapper writes `start` and then opens `in`: one that has not written by now finds no message, and leaves.
        (folder / "in").unlink(missing_ok=True)
        line = path.read_bytes()
        return line if line.endswith(b"\n") else None
    return line


def _wrapper_of(line: bytes, folder: Path) -> Process:
    return Process(int(line.split(b" ", 1)[0]), procfs.start_field(line), folder)


def _attach(process: Process) -> bool:
    """Attach to the wrapper if it is alive, and ask it what it was started with."""
    if not process.attach():
        return False
    if not process.alive():  # a zombie of a worker that is frozen
        process.close()
        return False
    argv = (procfs.read(process.pid, "cmdline") or b"").split(b"\0")
    process.limit = int(argv[3]) if len(argv) > 3 and argv[3].isdigit() else None
    process.execution_id = next(iter(procfs.variables(process.pid, MARK)), "")
    return True
