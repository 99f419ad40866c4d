"""Ties a process to the supervisor that started it: when that one is gone, so is this one."""

import ctypes
import os
import signal

PARENT = "TRINITY_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def follow_parent(signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to end this process with its parent; leave at once if the parent is gone already.

    Does nothing for a process that a person started: only a supervisor of ours sets the variable.
    """
    expected = os.environ.pop(PARENT, None)
    if expected is None:
        return
    bind_to_parent(int(expected), signal_number)


def bind_to_parent(expected: int, signal_number: int = signal.SIGKILL) -> None:
    """End this process with the process `expected`, its parent (Linux)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != expected:  # it died before the line above
        os._exit(1)
