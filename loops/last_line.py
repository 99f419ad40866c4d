"""The last line that a running turn has printed, read from its run folder where that is on this host. Masked, and proper text."""

from __future__ import annotations

import re
from pathlib import Path

from agents import keys, owner
from agents.harness.results import last_characters
from agents.harness.spools import NAMES, read_tail
from agents.models import Execution
from agents.worker import run_folder

LONGEST = 300  # characters that are shown
_WINDOW = 4_096
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")  # colours and cursor moves of a terminal


def last_line(execution_id: str) -> str:
    """What the turn said last, on stdout or stderr; empty where it has said nothing, is over, or runs on another host."""
    found = Execution.objects.filter(pk=execution_id, state=Execution.State.RUNNING).values_list("owner", "attempt")
    turn = found.first()
    if turn is None or turn[0].partition("/")[0] != owner.host():
        return ""
    folder, secrets = run_folder(execution_id, turn[1]), (keys.turn_key(execution_id, turn[1]),)
    spools = sorted((folder / name for name in NAMES), key=_written_at, reverse=True)
    return next(filter(None, (_last_of(spool, secrets) for spool in spools)), "")


def _written_at(spool: Path) -> float:
    try:
        return spool.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _last_of(spool: Path, secrets: tuple[str, ...]) -> str:
    text = last_characters(read_tail(spool, _WINDOW), _WINDOW, secrets)
    lines = (_CONTROL.sub("", line).strip() for line in reversed(re.split(r"[\r\n]+", text)))
    return next(filter(None, lines), "")[:LONGEST]
