"""One thread that watches all turns of a worker: their ends at once, their output four times a second."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agents.harness import descendants, spools
from agents.harness.wrapper import Process

log = logging.getLogger(__name__)

TICK = 0.25  # seconds between two looks at the output
_GRACE = 5.0

Tell = Callable[[Process], None]


@dataclass(slots=True, eq=False)
class _Watched:
    process: Process
    tell: Tell
    sizes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(spools.NAMES, 0))
    freed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(spools.NAMES, 0))
    ending: bool = False


class Watcher(threading.Thread):
    """Watches wrappers, own children and adopted ones alike.

    `on_output(process, size)` is called from this thread, at most once per tick for each turn whose `out` has grown.
    Callbacks must be quick: every other turn waits for them. `bound`, `unfreed_bound`: see spools.
    """

    def __init__(
        self,
        on_output: Callable[[Process, int], None] | None = None,
        *,
        bound: int = spools.BOUND,
        unfreed_bound: int = spools.UNFREED_BOUND,
        free: spools.Free = spools.punch,
    ) -> None:
        super().__init__(name="turns-watcher", daemon=True)
        self._on_output = on_output
        self._bound, self._unfreed_bound, self._free = bound, unfreed_bound, free
        self._watched: dict[int, _Watched] = {}
        self._over: deque[tuple[Process, Tell]] = deque()  # were over when they came
        self._lock = threading.Lock()
        self._stopping = False
        self._bell = os.eventfd(0)
        self._epoll = select.epoll()
        self._epoll.register(self._bell, select.EPOLLIN)

    # -- called from any thread -----------------------------------------------------------------------
    def watch(self, process: Process, tell: Tell) -> None:
        """Call `tell(process)` once, from the watcher's thread, when the process has ended, also if it already has.

        The process is closed then; whoever gives it here does not close it.
        """
        with self._lock:
            if self._stopping:
                raise RuntimeError("this watcher has been stopped")
            if process.pidfd < 0:
                self._over.append((process, tell))
                os.eventfd_write(self._bell, 1)
                return
            self._epoll.register(process.pidfd, select.EPOLLIN)
            self._watched[process.pidfd] = _Watched(process, tell)

    def forget(self, process: Process) -> None:
        """Watch it no longer and close it; nobody is told. The process goes on. Forgetting twice is harmless."""
        with self._lock:
            watched = self._watched.get(process.pidfd)
            if watched is not None and watched.process is process:
                self._drop(watched)
                process.close()

    def stop(self) -> None:
        """End the thread, forgetting all turns, which go on."""
        with self._lock:
            already, self._stopping = self._stopping, True
            if not already and self.ident is None:
                self._close()  # never started: there is no thread to do it
            elif not already:
                os.eventfd_write(self._bell, 1)
        if self.ident is not None and self is not threading.current_thread():
            self.join()

    # -- the thread -----------------------------------------------------------------------------------
    def run(self) -> None:
        look_at = time.monotonic() + TICK
        while not self._stopping:
            for fd, _ in self._epoll.poll(max(0.0, look_at - time.monotonic())):
                if fd == self._bell:
                    self._bell_rang()
                else:
                    self._ended(fd)
            if time.monotonic() >= look_at:
                self._look()
                look_at = time.monotonic() + TICK
        with self._lock:
            self._close()

    def _drop(self, watched: _Watched) -> None:
        del self._watched[watched.process.pidfd]
        self._epoll.unregister(watched.process.pidfd)

    def _close(self) -> None:
        for watched in list(self._watched.values()):
            self._drop(watched)
            watched.process.close()
        self._epoll.close()
        os.close(self._bell)

    def _bell_rang(self) -> None:
        os.eventfd_read(self._bell)
        while self._over and not self._stopping:
            process, tell = self._over.popleft()
            self._safely(tell, process)

    def _ended(self, fd: int) -> None:
        with self._lock:
            watched = self._watched.get(fd)
            # The number may have become that of a younger turn since the kernel told us.
            if watched is None or not watched.process.over():
                return
            self._drop(watched)
        watched.process.reap()
        watched.process.close()
        self._safely(watched.tell, watched.process)

    def _safely(self, act: Callable[..., None], *values: object) -> None:
        """An error about one turn is that turn's trouble: all others must still be watched."""
        try:
            act(*values)
        except Exception:
            log.exception("the watcher failed at %s", values)

    def _look(self) -> None:
        with self._lock:
            watched = list(self._watched.values())
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        for one in watched:
            self._safely(self._look_at_output, one)
            overdue_at = one.process.overdue_at
            if overdue_at is not None and now >= overdue_at:
                self._safely(descendants.wake, one.process)

    def _look_at_output(self, one: _Watched) -> None:
        for name in spools.NAMES:
            path = one.process.folder / name
            size = spools.size(path)
            if size <= one.sizes[name]:
                continue
            one.sizes[name] = size
            self._bound_spool(one, name, path, size)
            if name == "out" and self._on_output is not None and self._watched.get(one.process.pidfd) is one:
                self._safely(self._on_output, one.process, size)

    def _bound_spool(self, one: _Watched, name: str, path: Path, size: int) -> None:
        excess = size - self._bound
        if excess <= one.freed[name]:
            return
        if spools.free_head(path, excess, self._free):
            one.freed[name] = excess
        elif size > self._unfreed_bound and not one.ending:
            one.ending = True
            threading.Thread(target=self._end_flooding, args=(one.process, path.parent), daemon=True).start()

    def _end_flooding(self, process: Process, folder: Path) -> None:
        """End a turn that prints without end where nothing can be freed, and say so where its error is read."""
        with open(folder / "err", "ab") as err:
            err.write(f"\nended: it printed more than {self._unfreed_bound >> 20} MiB\n".encode())
        descendants.end(process.execution_id, process, _GRACE)
