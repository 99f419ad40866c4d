"""One child of a supervisor: forked, bound to its parent's death, and turned into what it is to be."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trinity.parent import bind_to_parent

SUPERVISED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass(frozen=True, slots=True)
class Part:
    """What a child is. `run` is called in it, in its main thread; its return ends it with code 0, an exception with 1.

    A part is started again whenever it ends, except one with `then`: that runs once, a good end calls `then` in the
    supervisor, and any other end stops the supervisor with exit code 1. Parts of a lower `stage` are stopped before those
    of a higher one, each with `patience` seconds between TERM and KILL. With `logged`, what it writes is read and written
    line by line behind its name, without the lines that hold a word of `hushed`.
    """

    name: str
    run: Callable[[], object]
    then: Callable[[], None] | None = None
    stage: int = 0
    patience: float = 6.0
    death_signal: signal.Signals = signal.SIGKILL
    logged: bool = False
    hushed: tuple[str, ...] = ()


def program(
    arguments: list[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    kept: Iterable[int] = (),
    blocked: Iterable[signal.Signals] = (),
) -> Callable[[], NoReturn]:
    """What a part runs to become another program, with the descriptors `kept` and the signals `blocked`."""

    def become() -> NoReturn:
        os.chdir(folder)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored stays ignored
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - a list, no shell

    return become


def fork(part: Part, shed: Callable[[], None]) -> tuple[int, int | None]:
    """Start a part; its pid, and where to read what it writes if it is `logged`.

    `shed` is called in the child to drop what only the parent needs.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread: the death signal follows the thread")
    pipe = os.pipe() if part.logged else None
    _flush()
    parent = os.getpid()
    # Blocked until the child has let go of its parent's handlers: they would swallow a signal that is meant for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISED_SIGNALS)
    pid = os.fork()
    if pid == 0:
        _be_child(part, parent, pipe, shed)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISED_SIGNALS)
    if pipe is None:
        return pid, None
    os.close(pipe[1])
    os.set_blocking(pipe[0], False)
    return pid, pipe[0]


def ending(status: int) -> str:
    """A wait status in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-code}"


def _be_child(part: Part, parent: int, pipe: tuple[int, int] | None, shed: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        bind_to_parent(parent, part.death_signal)
        shed()
        _use_pipe(pipe)
        _take_signals_back()
        part.run()
        code = 0
    except SystemExit as leaving:
        code = _exit_code(leaving)
    except BaseException:  # it must never get back into the parent's code
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1


def _use_pipe(pipe: tuple[int, int] | None) -> None:
    """Write to the pipe and read nothing."""
    if pipe is None:
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (pipe[1], 1), (pipe[1], 2)):
        os.dup2(source, target)
    for descriptor in (nothing, *pipe):
        os.close(descriptor)


def _take_signals_back() -> None:
    signal.set_wakeup_fd(-1)
    for number in SUPERVISED_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISED_SIGNALS)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or somebody closed it
            stream.flush()
