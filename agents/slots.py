"""Counts the turns that a worker process may hold, with one of its slots lent to whoever listens for the next bell."""

from __future__ import annotations

import threading


class Slots:
    """`count` slots. Who listens for a bell holds one meanwhile, so that no bell is taken that cannot be answered.

    That slot may be taken away from the listener for a turn which is at hand; `heard` then says so.
    """

    def __init__(self, count: int) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._lock = threading.Lock()
        self._lent = False

    def acquire(self) -> None:
        """Wait for a slot and take it."""
        self._free.acquire()

    def release(self) -> None:
        """Give a slot back."""
        self._free.release()

    def take(self) -> bool:
        """Take a slot without waiting, if need be the listener's; False where all hold turns."""
        if self._free.acquire(blocking=False):
            return True
        with self._lock:
            lent, self._lent = self._lent, False
        return lent

    def listen(self) -> None:
        """Wait for a slot, to listen for a bell."""
        self._free.acquire()
        with self._lock:
            self._lent = True

    def heard(self) -> bool:
        """Listen no longer. True: the slot is the caller's, to be used or released; False: it was taken for a turn."""
        with self._lock:
            lent, self._lent = self._lent, False
        return lent
