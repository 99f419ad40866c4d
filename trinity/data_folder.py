"""The lock on the data folder: one `up` at a time, the next one only when the last of the earlier one's processes is gone."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

FOR_EVERY_START = {"lock", "secret_key", "host_id", "static"}  # there before anything has begun
LOOK_EVERY = 0.05  # seconds; waiting inside flock could not be given a limit


class FolderInUse(Exception):
    """Somebody else holds the folder."""


def take(folder: Path, patience: float = 10.0, on_wait: Callable[[], None] = lambda: None) -> int:
    """Lock the folder and return the descriptor that holds the lock: as long as any process has it open, the lock stays.

    Waits up to `patience` seconds for what is left of an earlier holder (calling `on_wait` once), then raises FolderInUse.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + patience
    waiting = False
    while not _try_lock(descriptor):
        if not waiting:
            on_wait()
            waiting = True
        if time.monotonic() >= deadline:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise FolderInUse(f"the data folder {folder} is in use by process {holder}, or by what is left of it")
        time.sleep(LOOK_EVERY)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def leave_unused(folder: Path) -> None:
    """For its holder, whose start has failed: remove what was made for it where nothing has been kept in the folder yet."""
    found = {entry.name for entry in folder.iterdir()}
    if found <= FOR_EVERY_START:
        for name in found:
            entry = folder / name
            entry.rmdir() if entry.is_dir() else entry.unlink()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
