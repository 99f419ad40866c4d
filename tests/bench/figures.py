"""What was measured: printed line by line as it comes, kept by the names of the goals for --json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """`goals` = name of a goal -> (words, bound); `kept` = name -> value, of those that were measured."""

    kept: dict[str, float] = field(default_factory=dict)

    def head(self, title: str) -> None:
        print(f"\n{title}", flush=True)

    def line(self, words: str, text: str, goal: str = "") -> None:
        print(f"  {words:<58}{text:>26}   {goal}".rstrip(), flush=True)

    def goal(self, name: str, words: str, value: float, bound: str = "", unit: str = "", digits: int = 2) -> None:
        """A figure that has a name. `bound` like `<= 5` says what it should be; a miss is marked."""
        value = round(value, digits)
        self.kept[name] = value
        missed = bool(bound) and not _holds(value, bound)
        self.line(f"{words} [{name}]", f"{value:,g} {unit}".strip(), f"{bound}{'  MISSED' if missed else ''}")


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda value, bound: value <= bound,
    ">=": lambda value, bound: value >= bound,
    "=": lambda value, bound: value == bound,
}


def _holds(value: float, bound: str) -> bool:
    sign, number = bound.split()
    return _COMPARE[sign](value, float(number))


def quantile(values: list[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
