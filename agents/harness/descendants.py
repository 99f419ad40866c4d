"""End what a turn is or has left behind: all of its session, and all that carries its mark wherever it went.

Only a process with a new session *and* a cleared environment is not found.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable

from agents.harness import procfs
from agents.harness.wrapper import MARK, Process, exit_record

log = logging.getLogger(__name__)

Identity = tuple[int, int]  # pid and start time
_LOOK_EVERY = 0.03
_STUBBORN = 5.0  # seconds from the first KILL until we give up on what the kernel does not end


def marked(execution_ids: Collection[str] | None = None) -> dict[str, list[int]]:
    """The pids that carry each mark (all marks, or these), wrappers included. One look at every process there is."""
    found: dict[str, list[int]] = {}
    for pid in procfs.pids():
        for execution_id in set(procfs.variables(pid, MARK)):
            if execution_ids is None or execution_id in execution_ids:
                found.setdefault(execution_id, []).append(pid)
    return found


def end(execution_id: str, process: Process | None, grace: float) -> None:
    """End a turn and every descendant: TERM and CONT, after `grace` seconds KILL, until nothing is found. Blocks.

    The wrapper itself is spared, so that it records the end; it is gone when this returns.
    """
    wrapper = {(process.pid, process.start)} if process is not None and process.alive() else set()
    for identity in wrapper:
        _signal(identity, signal.SIGCONT)
    sessions = [process] if process is not None else []
    _end_all(lambda: _find({execution_id}, sessions) - wrapper, grace)
    if process is not None:
        _await_end(process)


def end_leftovers(execution_ids: Collection[str], grace: float, wrappers: Iterable[Process] = ()) -> int:
    """End what turns that are over have left behind, of many turns in one look; how many processes there were. Blocks.

    The `wrappers` of these turns, where known, find also what has cleared its environment. Never name a turn that runs.
    """
    known = list(wrappers)
    return _end_all(lambda: _find(execution_ids, known), grace)


def wake(process: Process) -> None:
    """Let everything in the turn's session go on: a `timeout` that somebody has stopped does not see its limit pass."""
    for identity in _find((), [process]):
        _signal(identity, signal.SIGCONT)


# -- finding --------------------------------------------------------------------------------------
def _find(execution_ids: Collection[str], wrappers: Iterable[Process]) -> set[Identity]:
    """All living processes with one of the marks or in the session of one of the wrappers, but ourselves."""
    begun_until = _sessions(wrappers)
    found: set[Identity] = set()
    unmarked: list[tuple[int, Identity]] = []
    for pid in procfs.pids():
        if pid == os.getpid():
            continue
        session = procfs.session(pid) if begun_until else None
        has_mark = bool(execution_ids) and any(mark in execution_ids for mark in procfs.variables(pid, MARK))
        if not has_mark and session not in begun_until:
            continue
        identity = _living(pid)
        if identity is not None and has_mark:
            found.add(identity)
            if session in begun_until:
                begun_until[session] = float("inf")
        elif identity is not None and session is not None:
            unmarked.append((session, identity))
    return found | {identity for session, identity in unmarked if identity[1] <= begun_until[session]}


def _sessions(wrappers: Iterable[Process]) -> dict[int, float]:
    """The sessions of these wrappers, and until when (ticks after boot) a member must have started to be the turn's own.

    A number is not given anew while its session has members; afterwards it may become that of a stranger, whose leader
    may be gone as well. So where the wrapper is dead only its record tells, or a member with the mark (see `_find`).
    """
    begun_until: dict[int, float] = {}
    for process in wrappers:
        leader = procfs.start_time(process.pid)
        if leader == process.start:
            begun_until[process.pid] = float("inf")
        elif leader is None:
            record = exit_record(process.folder)
            begun_until[process.pid] = float(record.ended * procfs.TICKS) if record else 0.0
    return begun_until


def _living(pid: int) -> Identity | None:
    began = procfs.start_time(pid)
    return (pid, began) if began is not None and procfs.alive(pid, began) else None


# -- ending ---------------------------------------------------------------------------------------
def _signal(identity: Identity, number: signal.Signals) -> None:
    """Send a signal to this very process, if it is still there."""
    pid, began = identity
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if procfs.start_time(pid) == began:
            signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return  # it has just ended, which is what was wanted
    finally:
        os.close(fd)


def _end_all(find: Callable[[], set[Identity]], grace: float) -> int:
    """Signal whatever `find` finds until it finds nothing; how many processes there were."""
    kill_at = time.monotonic() + grace
    asked: set[Identity] = set()
    while True:
        looked_at = time.monotonic()
        found = find()
        now = time.monotonic()
        if not found:
            return len(asked)
        if now >= kill_at + _STUBBORN:
            log.error("processes do not end: %s", sorted(pid for pid, _ in found))
            return len(asked)
        for identity in found if now >= kill_at else found - asked:
            for number in (signal.SIGKILL,) if now >= kill_at else (signal.SIGTERM, signal.SIGCONT):
                _signal(identity, number)
        asked |= found
        time.sleep(max(_LOOK_EVERY, 2 * (now - looked_at)))  # a look at thousands of processes is not free


def _await_end(process: Process) -> None:
    """Wait until the wrapper has recorded the end and is gone; one that hangs is ended."""
    limit = time.monotonic() + _STUBBORN
    while process.alive():
        if time.monotonic() >= limit:
            _signal((process.pid, process.start), signal.SIGKILL)
            return
        time.sleep(0.002)
