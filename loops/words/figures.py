"""Money, spans of time and counts as a person reads them. Knows nothing of loops."""

from __future__ import annotations

from decimal import Decimal

NOT_REPORTED = "not reported"

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_UNITS = ((_DAY, "day"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s"))


def count(many: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{many:,} {noun}" if many == 1 else f"{many:,} {noun}s"


def money(amount: Decimal | None) -> str:
    """US dollars with all their digits, two decimals at least; None = not reported, which is never $0.00."""
    if amount is None:
        return NOT_REPORTED
    dollars, _, cents = f"{abs(amount):,f}".partition(".")
    return f"{'-' if amount < 0 else ''}${dollars}.{cents.rstrip('0').ljust(2, '0')}"


def seconds_words(seconds: int) -> str:
    """A span in its two greatest units: 45 s, 3 min 20 s, 2 h 5 min, 7 days. What is smaller is left out."""
    for place, (size, _) in enumerate(_UNITS):
        if seconds >= size:
            left, said = seconds, []
            for unit_size, unit in _UNITS[place : place + 2]:
                many, left = divmod(left, unit_size)
                said.append((many, unit))
            return " ".join(count(many, unit) if unit == "day" else f"{many} {unit}" for many, unit in said if many)
    return "0 s"


def at_most(seconds: int) -> str:
    """As `seconds_words`, but rounded up, so that an upper bound stays one."""
    smallest = _HOUR if seconds >= _DAY else _MINUTE if seconds >= _HOUR else 1
    return seconds_words(-(-seconds // smallest) * smallest)


def duration_words(milliseconds: int | None) -> str:
    """How long a run took: 850 ms, 12.3 s, 2 min 19 s; cut, not rounded. None = not reported."""
    if milliseconds is None:
        return NOT_REPORTED
    if milliseconds < 1000:
        return f"{max(0, milliseconds)} ms"
    if milliseconds < 60_000:
        return f"{milliseconds // 1000}.{milliseconds % 1000 // 100} s"
    return seconds_words(milliseconds // 1000)
