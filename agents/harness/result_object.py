"""Find the result object in what an agent printed: the last JSON object with one of its names, whatever stands around it.

Work and memory are bounded by the size of the data: one pass finds the brackets, and no byte is parsed more than a few times.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right, insort
from collections import deque
from decimal import Decimal, InvalidOperation
from typing import Any

NAMES = ("is_error", "result")
_QUOTED = tuple(f'"{name}"'.encode() for name in NAMES)
_TOKEN = re.compile(rb'["{}\[\]]|\\.', re.DOTALL)
_GOES_ON = re.compile(rb"\s*[,\]}]")
_DEEPEST = 500  # levels; the parser gives up at about twice as many
_MOST = 1000  # objects looked at, from the end

Span = tuple[int, int]
Open = deque[tuple[int, bytes]]


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond anything that can be reckoned with
        return Decimal("NaN")


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) <= 18 else _number(text)


_DECODER = json.JSONDecoder(
    strict=False, parse_float=_number, parse_int=_whole, parse_constant=lambda _: Decimal("NaN")
)


def last_result(data: bytes, whole: bool) -> dict[str, Any] | None:
    """The last JSON object with a result's names; None when there is none. Numbers with a fraction are Decimals.

    `whole` False = something stood before the data: an object inside of one that began there is none of its own.
    """
    if not any(name in data for name in _QUOTED):
        return None
    broken: list[int] = []  # where a parse failed: no object that has begun before and ends after such a place is one
    inside_from = len(data)  # what ends after this is part of an object that was parsed
    for begin, end in reversed(_objects(data)):
        at = bisect_right(broken, begin)
        if end > inside_from or (at < len(broken) and broken[at] < end):
            continue
        # One character a byte: the places of errors are places in the data, and structure is ASCII.
        value, error_at = _parsed(data[begin:end].decode("latin-1"))
        if value is None:
            insort(broken, begin + error_at)
            continue
        inside_from = begin
        if any(name in value for name in NAMES) and (whole or not _GOES_ON.match(data, end)):
            del value
            return _parsed(data[begin:end].decode("utf-8", "replace"))[0]
    return None


def _parsed(text: str) -> tuple[dict[str, Any] | None, int]:
    """The object, or None and where the text stops to be one."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as problem:
        return None, min(problem.pos, len(text) - 1)
    except RecursionError:
        return None, 0
    return (value, 0) if isinstance(value, dict) else (None, 0)


def _objects(data: bytes) -> deque[Span]:
    """Balanced `{…}` that hold one of the names, in the order of their ends; whether they are JSON is not looked at.

    Noise may hold single quotes and brackets, so whether a place lies in a string depends on which bracket one starts
    from. There are never more than two opinions, and a quote makes them change places: `outside` are the brackets open
    in the eyes of those for whom this place is outside of a string, `inside` of those for whom it is within one.
    """
    spans: deque[Span] = deque(maxlen=_MOST)
    outside: Open = deque(maxlen=_DEEPEST)  # what is open below the deepest level can be no object for the parser
    inside: Open = deque(maxlen=_DEEPEST)
    named_at = -1  # where one of the names was last seen
    for token in _TOKEN.finditer(data):
        sign, at = token[0], token.start()
        if sign == b'"':
            outside, inside = inside, outside
            if data.startswith(_QUOTED, at):
                named_at = at
        elif sign == b"{" or (sign == b"[" and outside):
            outside.append((at, sign))
        elif sign[:1] == b"\\":
            outside.clear()  # a backslash outside of a string: what is open there is no JSON
            if sign == b"\\{":
                outside.append((at + 1, b"{"))
        elif outside:
            begin, opened = outside.pop()
            if (opened == b"{") != (sign == b"}"):
                outside.clear()
            elif opened == b"{" and begin < named_at:
                spans.append((begin, at + 1))
    return spans
