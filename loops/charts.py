"""The small drawings of a loop, as SVG: a tick per run, and bars of duration and cost. The text beside them says the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from loops import words
from loops.core.words import RunStatus
from loops.models import Loop, LoopRun

_SHAPES = {
    "ran": (0, 14),
    "hit": (0, 14),
    "now": (0, 14),
    "bad": (7, 7),
    "left": (11.5, 2.5),
}  # top and height of a tick
_TICK, _STEP = 7, 10
_WIDTH_OF_20 = 20 * _STEP - 3  # up to so many runs a tick keeps its width, so length means size


def strip(ticks: Sequence[str], allowed: int) -> SafeString:
    """One tick per allowed run, as one path per kind of tick."""
    paths: dict[str, list[str]] = {}
    for place in range(allowed):
        kind = ticks[place] if place < len(ticks) else "left"
        top, height = _SHAPES[kind]
        paths.setdefault(kind, []).append(f"M{place * _STEP} {top}h{_TICK}v{height}h-{_TICK}z")
    drawn = "".join(f'<path class="{kind}" d="{"".join(pieces)}"></path>' for kind, pieces in paths.items())
    width = max(_WIDTH_OF_20, allowed * _STEP - 3)
    return format_html(
        '<svg class="strip" viewBox="0 0 {} 14" preserveAspectRatio="none" aria-hidden="true">{}</svg>',
        width,
        mark_safe(drawn),  # noqa: S308 (numbers and our own words)
    )


# -- bars -----------------------------------------------------------------------------------------
_HIGH, _BAR, _BAR_STEP, _LOW = 40, 14, 20, 1.5


def sparks(loop: Loop, runs: Sequence[LoopRun], now: datetime) -> SafeString | str:
    """Duration and cost of each run, side by side; from two finished runs on, and only as the table beside says the same."""
    finished = [run for run in runs if run.completed_at]
    if len(finished) < 2:
        return ""
    in_order = sorted(runs, key=lambda run: run.run_number)
    lasted = [(_kind(run), _lasted(run, now)) for run in in_order]
    cost = [(_kind(run), run.cost) for run in in_order if run.completed_at]
    longest = max(finished, key=lambda run: run.duration_ms or 0)
    dearest = max((run.cost for run in finished if run.cost is not None), default=None)
    return format_html(
        '<div class="spark" aria-hidden="true">{}{}<p class="axis"><span>Run 1</span><span>{}</span></p></div>',
        _spark("Duration", f"longest {words.duration_words(longest.duration_ms)}", lasted, loop.max_runs),
        _spark("Cost", "not reported" if dearest is None else f"highest {words.money(dearest)}", cost, loop.max_runs),
        loop.max_runs,
    )


def _kind(run: LoopRun) -> str:
    if run.status == RunStatus.RUNNING:
        return "b now"
    return "b bad" if run.status == RunStatus.FAILED else "b"


def _lasted(run: LoopRun, now: datetime) -> Decimal | None:
    if run.completed_at is None and run.started_at is not None:
        return Decimal(max(0, int((now - run.started_at).total_seconds() * 1000)))
    return None if run.duration_ms is None else Decimal(run.duration_ms)


def _spark(label: str, said: str, bars: list[tuple[str, Decimal | None]], allowed: int) -> SafeString:
    paths: dict[str, list[str]] = {}
    # The run in flight has no say in the scale: it would press all others flat while it hangs.
    most = max((value for kind, value in bars if value is not None and kind != "b now"), default=Decimal(0)) or Decimal(
        1
    )
    for place in range(allowed):
        kind, value = bars[place] if place < len(bars) else ("b later", Decimal(0))
        if value is None:
            paths.setdefault("b unknown", []).append(f"M{place * _BAR_STEP + 1} 30h{_BAR - 2}v9h-{_BAR - 2}z")
            continue
        height = max(_LOW, round(float(min(Decimal(1), value / most)) * (_HIGH - 2), 1))
        paths.setdefault(kind, []).append(f"M{place * _BAR_STEP} {_HIGH - height:g}h{_BAR}v{height:g}h-{_BAR}z")
    drawn = "".join(f'<path class="{kind}" d="{"".join(pieces)}"></path>' for kind, pieces in paths.items())
    return format_html(
        '<p class="label"><b>{}</b> <span>{}</span></p><svg viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>',
        label,
        said,
        allowed * _BAR_STEP - (_BAR_STEP - _BAR),
        _HIGH,
        mark_safe(drawn),  # noqa: S308 (numbers and our own words)
    )
