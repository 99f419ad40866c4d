"""What a running turn has printed since somebody looked last: whole lines, masked, so much at once and no more.

Where the turn runs on another host there is nothing to read, and the reader is told so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agents import keys, owner
from agents.harness import masking, spools
from agents.harness.results import clean
from agents.models import Execution
from agents.worker import run_folder

MOST_AT_ONCE = 64 << 10  # bytes of a spool in one answer; of more the newest are shown
MOST_SHOWN = 256 << 10  # bytes that a page gathers before it begins anew with the newest
LONGEST_LINE = 4 << 10  # bytes; a longer one is shown in pieces
_CONTEXT = 1 << 10  # bytes before the new ones that are looked at too: a key may begin there
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")  # colours and cursor moves of a terminal
_PLACES = re.compile(r"([0-9]{1,15})\.([0-9]{1,15})\.([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class Places:
    """How far a page has read stdout and stderr, and how many bytes it shows by now."""

    out: int = 0
    err: int = 0
    shown: int = 0

    @classmethod
    def of(cls, text: str) -> Places:
        """From an address; nonsense begins at the beginning."""
        found = _PLACES.fullmatch(text)
        return cls(*(int(number) for number in found.groups())) if found else cls()

    def __str__(self) -> str:
        return f"{self.out}.{self.err}.{self.shown}"


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """New lines. `anew`: they take the place of what is shown; `skipped` bytes before them are not shown."""

    lines: list[Line]
    places: Places
    anew: bool = False
    skipped: int = 0


def is_here(execution: Execution) -> bool:
    """Is the turn on this host, where its output can be read?"""
    return execution.owner.partition("/")[0] == owner.host()


def read(execution: Execution, places: Places) -> Output:
    """What the running turn has printed since `places`."""
    folder = run_folder(execution.pk, execution.attempt)
    secrets = (keys.turn_key(execution.pk, execution.attempt),)
    anew = places.shown > MOST_SHOWN
    if anew:
        places = Places()
    lines: list[Line] = []
    skipped, ends = 0, []
    for name, begin in zip(spools.NAMES, (places.out, places.err), strict=True):
        text, left_out, end = _new_text(folder / name, begin, secrets)
        lines += [Line(line, name == "err") for line in _lines(text)]
        skipped += left_out
        ends.append(end)
    read_now = sum(ends) - places.out - places.err - skipped
    return Output(lines, Places(ends[0], ends[1], places.shown + read_now), anew, skipped)


def _new_text(path: Path, begin: int, secrets: tuple[str, ...]) -> tuple[str, int, int]:
    """The whole lines after `begin`, how many bytes before them were left out, and where they end."""
    size = spools.size(path)
    begin = min(begin, size)  # another attempt has begun its file anew
    start = max(begin, size - MOST_AT_ONCE)
    context = max(0, start - _CONTEXT)
    try:
        with open(path, "rb") as file:
            file.seek(context)
            data = file.read(size - context)
    except FileNotFoundError:
        return "", 0, begin
    first = start - context
    end = data.rfind(b"\n") + 1
    if end <= first:  # no line has ended: wait for its end, unless it is too long
        end = len(data) if len(data) - first > LONGEST_LINE else first
    text = masking.mask_from(data[:end], first, secrets).decode("utf-8", "replace")
    return clean(text), start - begin, context + end


def _lines(text: str) -> list[str]:
    return [_CONTROL.sub("", line)[:LONGEST_LINE] for line in re.split(r"\r?\n|\r", text) if line.strip()]
