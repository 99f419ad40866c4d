"""Ties a process to the one that started it: when that one is gone, so is this one."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def bind_to_parent(expected: int, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process with its parent `expected`; leave at once if that one is gone already (Linux)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != expected:  # it died before the line above
        os._exit(1)
