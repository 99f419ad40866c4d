"""Keeps the children of one process alive and ends them in order; knows nothing of what they do.

It is the only reaper of its process: use neither `subprocess` nor a second supervisor beside it.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

from trinity.child import SUPERVISED_SIGNALS, Part, ending, fork
from trinity.log_lines import LineReader, write_line

FIRST_PAUSE, LONGEST_PAUSE, STEADY = 0.5, 10.0, 30.0  # seconds
_PR_SET_CHILD_SUBREAPER = 36


def next_pause(last: float | None, lived: float) -> float:
    """Seconds to wait before a part that lived so long is started again, after `last` seconds the time before."""
    if last is None or lived >= STEADY:
        return FIRST_PAUSE
    return min(last * 2, LONGEST_PAUSE)


@dataclass(order=True, slots=True)
class _Timer:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Child:
    part: Part
    born: float


class Supervisor:
    """Keeps its parts alive until SIGTERM, SIGINT or SIGHUP, then ends them stage by stage.

    A SIGINT during the stop kills all that is left at once. `notice` says what happened to a part.
    """

    def __init__(self, notice: Callable[[str], None] = write_line) -> None:
        self._notice = notice
        self._children: dict[int, _Child] = {}
        self._pauses: dict[str, float] = {}
        self._timers: list[_Timer] = []
        self._numbers = itertools.count()
        self._selector = selectors.DefaultSelector()
        self._stopping = self._hurrying = False
        self._stage: int | None = None  # the one that is being stopped
        self._code = 0
        self._become_reaper()
        self._take_over_signals()

    # -- for its owner ----------------------------------------------------------------------------
    def start(self, part: Part) -> None:
        """Start a part now; not while stopping."""
        if self._stopping:
            return
        pid, output = fork(part, self._shed)
        self._children[pid] = _Child(part, time.monotonic())
        if output is not None:
            self._read_lines(part, output)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call a function in the main loop, so many seconds from now."""
        heapq.heappush(self._timers, _Timer(time.monotonic() + seconds, next(self._numbers), act))

    def watch(self, source: socket.socket, readable: Callable[[], object]) -> None:
        """Call a function in the main loop whenever there is something to read, until `forget`."""
        self._selector.register(source, selectors.EVENT_READ, readable)

    def forget(self, source: socket.socket) -> None:
        """End a `watch`."""
        self._selector.unregister(source)

    def stop(self, code: int = 0) -> None:
        """Stop everything in order; `run` then returns `code`."""
        self._code = self._code or code
        self._stopping = True

    def run(self) -> int:
        """Supervise until everything has been stopped; the exit code."""
        while not (self._stopping and not self._children):
            if self._stopping:
                self._go_on_stopping()
            self._wait()
            self._reap()
        self._read_the_rest()
        return self._code

    # -- signals ----------------------------------------------------------------------------------
    def _become_reaper(self) -> None:
        """Have orphans among our descendants come to us, so that no zombie is left where the first process reaps none."""
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")

    def _take_over_signals(self) -> None:
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.watch(self._woken, lambda: self._woken.recv(4096))
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in SUPERVISED_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # ignored: started by nohup
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            return  # it has woken the loop, which reaps
        if number == signal.SIGINT and self._stopping:
            self._hurrying = True
        self._stopping = True

    def _shed(self) -> None:
        """In a child: close what only its parent uses. Closing alone leaves the parent's registrations as they are."""
        for key in list(self._selector.get_map().values()):
            _close(key.fileobj)
        self._selector.close()
        self._waker.close()

    # -- the loop ---------------------------------------------------------------------------------
    def _wait(self) -> None:
        """Wait for the next event and act on it."""
        patience = max(0.0, self._timers[0].at - time.monotonic()) if self._timers else None
        for key, _ in self._selector.select(patience):
            key.data()
        while self._timers and self._timers[0].at <= time.monotonic():
            heapq.heappop(self._timers).act()

    def _read_lines(self, part: Part, output: int) -> None:
        def emit(line: str) -> None:
            if not any(word in line for word in part.hushed):
                write_line(f"{part.name:<5} | {line}")

        reader = LineReader(emit)

        def readable() -> None:
            data = os.read(output, 65536)
            reader.feed(data)
            if not data:
                self._selector.unregister(output)
                os.close(output)

        self._selector.register(output, selectors.EVENT_READ, readable)

    def _read_the_rest(self) -> None:
        """Read what the children wrote last; a pipe that somebody still holds open is not waited for."""
        while ready := [key for key, _ in self._selector.select(0) if isinstance(key.fileobj, int)]:
            for key in ready:
                key.data()

    def _reap(self) -> None:
        """Take the exit status of all that have ended; orphans come here too and are only reaped."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None and not self._stopping:
                self._on_end(child, status)

    def _on_end(self, child: _Child, status: int) -> None:
        part = child.part
        if part.then is not None:
            if status == 0:
                part.then()
            else:
                self._notice(f"{part.name} {ending(status)}")
                self.stop(1)
            return
        pause = next_pause(self._pauses.get(part.name), time.monotonic() - child.born)
        self._pauses[part.name] = pause
        self._notice(f"{part.name} {ending(status)}; it is started again in {pause:g} s")
        self.later(pause, lambda: self.start(part))

    # -- the stop ---------------------------------------------------------------------------------
    def _go_on_stopping(self) -> None:
        """Ask the next stage to leave once the one before has left; in a hurry kill everything."""
        if self._hurrying:
            self._signal(signal.SIGKILL, self._children)
            return
        stage = min(child.part.stage for child in self._children.values())
        if stage == self._stage:
            return
        self._stage = stage
        for pid, child in self._children.items():
            if child.part.stage == stage:
                self._signal(signal.SIGTERM, [pid])
                self.later(child.part.patience, partial(self._signal, signal.SIGKILL, [pid]))

    def _signal(self, number: signal.Signals, pids: Iterable[int]) -> None:
        """Signal those that have not been reaped: the others' pids may be somebody else's by now."""
        for pid in pids:
            if pid in self._children:
                os.kill(pid, number)


def _close(source: object) -> None:
    if isinstance(source, int):
        os.close(source)
    elif isinstance(source, socket.socket):
        source.close()
