"""Start a turn's process: folders, message, wrapper. It does not wait for anything and does not look at the end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from agents.harness import descendants, procfs
from agents.harness.contract import Order
from agents.harness.wrapper import MARK, Process

_TURN = Path(__file__).resolve().with_name("turn.sh")


class CannotStart(Exception):
    """The turn cannot begin at all; the text is a sentence for a person."""


def start(order: Order, argv: Sequence[str] | None = None) -> Process:
    """Start the turn (`argv`, or else the order's command) in a session of its own. Raises CannotStart.

    A command that cannot be executed is no exception: the wrapper records it, and collecting says so.
    """
    command = list(order.command if argv is None else argv)
    if not command:
        raise CannotStart("could not start: the agent has no command")
    if order.timeout_seconds < 1 or order.environment.get(MARK) != order.execution_id:
        raise ValueError("an order needs a limit of at least a second, and its own id in its environment")
    folder = order.folder.absolute()
    _make(order.workspace, "working folder")
    _make(folder, "run folder", mode=0o700)
    numbers = [str(order.timeout_seconds), str(order.grace_seconds)]
    try:
        with open(folder / "in", "xb") as message:  # exclusive: the agent of an earlier start may be reading it
            message.write(order.message.encode("utf-8", "replace"))
        child = _popen(["/bin/sh", str(_TURN), str(folder), *numbers, *command], order)
        return _attached(child, folder, order)
    except (OSError, ValueError) as problem:  # ValueError: a NUL or a lone surrogate in the command or the environment
        raise CannotStart(f"could not start {command[0]}: {_reason(problem)}") from problem


def _make(folder: Path, what: str, mode: int = 0o777) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:
        raise CannotStart(f"could not make the {what}: {_reason(problem)}") from problem


def _reason(problem: OSError | ValueError) -> str:
    if not isinstance(problem, OSError) or problem.strerror is None:
        return str(problem)
    return f"{problem.strerror}: {problem.filename}" if problem.filename else problem.strerror


def _popen(argv: list[str], order: Order) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    # No preexec_fn: without one CPython starts it by vfork, which is safe beside other threads.
    return subprocess.Popen(
        argv, cwd=order.workspace, env=order.environment, start_new_session=True, stdin=null, stdout=null, stderr=null
    )


def _attached(child: subprocess.Popen[bytes], folder: Path, order: Order) -> Process:
    began = procfs.start_time(child.pid)
    if began is None:
        raise RuntimeError("a child that was not waited for is gone: somebody else reaps the children of this process")
    limit = order.timeout_seconds
    process = Process(child.pid, began, folder, execution_id=order.execution_id, limit=limit, child=child)
    try:
        process.attach()
    except OSError:  # no descriptor left: a turn that cannot be watched must not run
        descendants.end(order.execution_id, process, grace=0)
        process.reap()
        raise
    return process
