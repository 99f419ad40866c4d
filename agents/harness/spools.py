"""The files into which a turn prints: their tails, and the bound on what they take of the disk."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NAMES = ("out", "err")
BOUND = 32 << 20  # bytes of a spool that stay; the head above them is given back to the file system
UNFREED_BOUND = 512 << 20  # where the file system gives nothing back, a turn that prints more is ended

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate64", None) or _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

Free = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of a spool. `whole` = there is nothing before them."""

    data: bytes
    whole: bool


def read_tail(path: Path, most: int) -> Tail:
    """The last `most` bytes of a file; of one that does not exist, nothing."""
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed below; only opening it may fail)
    except FileNotFoundError:
        return Tail(b"", True)
    with file:
        begin = max(0, os.fstat(file.fileno()).st_size - most)
        file.seek(begin)
        return Tail(file.read(most), begin == 0)


def punch(fd: int, length: int) -> None:
    """Give the first `length` bytes of a file back to the file system; size and offsets stay. Raises OSError."""
    if _fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, 0, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def free_head(path: Path, length: int, free: Free = punch) -> bool:
    """Free the head of a spool; False where the file system refuses. A spool that is gone needs nothing."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        free(fd, length)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def size(path: Path) -> int:
    """Bytes from the begin to the end of a spool, holes included; 0 when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def bound_output(folder: Path, bound: int = BOUND) -> bool:
    """Keep the last `bound` bytes of what a turn has printed, for whoever looks where no worker watches.

    False where the file system refuses to free the rest.
    """
    excess = {path: size(path) - bound for path in (folder / name for name in NAMES)}
    freed = [free_head(path, length) for path, length in excess.items() if length > 0]
    return all(freed)
