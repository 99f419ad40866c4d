"""What an opened loop shows beside its row: its runs, what has been used of each limit, the limits as stored, the last response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from django.db.models.functions import Left, Length
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from agents.models import Execution
from loops import prose, words
from loops.core.words import OnFailure, RunStatus
from loops.last_line import last_line
from loops.models import Loop, LoopRun

if TYPE_CHECKING:
    from loops.live import Row

MESSAGE_SHOWN = 5_000  # characters of the template in an opened row
NEAR = Decimal("0.8")  # from this share of a limit on, its bar says so

_RUN_WORDS = {
    RunStatus.RUNNING: words.Words((words.Part("Running"),), "active", "running", live=True),
    RunStatus.COMPLETED: words.Words((words.Part("Completed"),), "", "done"),
    RunStatus.FAILED: words.Words((words.Part("Failed"),), "danger", "failed"),
}


@dataclass(frozen=True, slots=True)
class Guard:
    """One limit: what is used of it and what is left, as text and as a bar. Without `most` it has no bar."""

    label: str
    used: str
    rest: str = ""
    value: Decimal = Decimal(0)
    most: Decimal | None = None
    tone: str = ""
    note: str = ""
    ends_at: datetime | None = None

    @property
    def said(self) -> str:
        """The bar in words."""
        return f"{self.used} {self.rest}".strip()


@dataclass(frozen=True, slots=True)
class Response:
    """The end of a run that succeeded: rendered, and as it was; `size` characters in all."""

    run_number: int
    html: SafeString
    raw: str
    size: int

    @property
    def is_cut(self) -> bool:
        return self.size > prose.RENDERED


@dataclass(frozen=True, slots=True)
class Body:
    runs: list[LoopRun]
    total: str
    cost: Cost
    sparks: SafeString | str
    guards: list[Guard]
    message: str
    message_is_cut: bool
    response: Response | None
    now_line: str


def of(row: Row, now: datetime) -> Body:
    """Read it: the runs, the template, the last response and the last line of the run in flight; a query each."""
    loop = row.loop
    runs = list(loop.runs.exclude(status=RunStatus.WAITING).order_by("-run_number"))
    message, size = Loop.objects.values_list(Left("message", MESSAGE_SHOWN), Length("message")).get(pk=loop.pk)
    return Body(
        runs=runs,
        total=words.duration_words(sum(run.duration_ms or 0 for run in runs)),
        cost=cost(loop),
        sparks=_sparks(loop, runs, now),
        guards=guards(loop, now),
        message=message,
        message_is_cut=size > MESSAGE_SHOWN,
        response=_response(loop, runs),
        now_line=last_line(row.running) if row.running else "",
    )


def run_words(status: str) -> words.Words:
    """The status of a run as it is shown."""
    return _RUN_WORDS[RunStatus(status)]


def _response(loop: Loop, runs: list[LoopRun]) -> Response | None:
    number = next((run.run_number for run in runs if run.execution_id == loop.last_success_id), None)
    if number is None:
        return None
    text, size = Execution.objects.values_list(Left("response", prose.RENDERED), Length("response")).get(
        pk=loop.last_success_id
    )
    return Response(number, prose.render(text), text, size)


# -- money ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Cost:
    """What a row says of money: the spend, of which budget, and how many runs are missing in it. Empty where there is nothing to say."""

    spend: str = ""
    is_known: bool = True
    budget: str = ""
    silent: int = 0


def cost(loop: Loop) -> Cost:
    """The spend of the budget; a spend that nobody reported is not zero."""
    budget = words.money(loop.max_cost_usd) if loop.max_cost_usd is not None else ""
    unknown = loop.unknown_cost_runs
    if not loop.runs_completed:
        return Cost(words.money(loop.spend), budget=budget) if budget else Cost()
    if unknown >= loop.runs_completed and not loop.spend:
        return Cost(words.NOT_REPORTED, False, budget)
    return Cost(words.money(loop.spend), budget=budget, silent=unknown)


# -- limits ---------------------------------------------------------------------------------------
def guards(loop: Loop, now: datetime) -> list[Guard]:
    """Every limit that was set. One that never was is not there at all: no budget is not an untouched budget."""
    found = [_runs_guard(loop)]
    if loop.max_cost_usd is not None:
        found.append(_cost_guard(loop, loop.max_cost_usd))
    if loop.max_duration_seconds is not None:
        found.append(_time_guard(loop, loop.max_duration_seconds, now))
    if loop.on_failure == OnFailure.CONTINUE:
        found.append(_count_guard("Failures in a row", loop.failure_streak, loop.max_consecutive_failures))
    if loop.no_progress_threshold:
        found.append(_count_guard("Same reply in a row", loop.same_replies, loop.no_progress_threshold))
    return found


def _runs_guard(loop: Loop) -> Guard:
    left = loop.max_runs - loop.runs_completed
    rest = f"of {loop.max_runs} · {left} left" if loop.is_active else f"of {loop.max_runs}"
    return Guard("Runs", str(loop.runs_completed), rest, Decimal(loop.runs_completed), Decimal(loop.max_runs))


def _cost_guard(loop: Loop, budget: Decimal) -> Guard:
    left = budget - loop.spend
    rest = f"of {words.money(budget)} · {words.money(abs(left))} {'left' if left >= 0 else 'over'}"
    silent = loop.unknown_cost_runs
    runs = "1 run" if silent == 1 else f"{silent} runs"
    note = f"{runs} reported no cost; the budget cannot count {'it' if silent == 1 else 'them'}." if silent else ""
    used = (
        words.NOT_REPORTED if silent and silent >= loop.runs_completed and not loop.spend else words.money(loop.spend)
    )
    return Guard("Cost budget", used, rest, min(loop.spend, budget), budget, _tone(loop.spend, budget), note)


def _time_guard(loop: Loop, limit: int, now: datetime) -> Guard:
    elapsed = loop.elapsed_seconds(now)
    if elapsed is None:
        rest = f"of {words.seconds_words(limit)}"
        note = "Counts from the first run’s begin." if loop.is_active else ""
        return Guard("Time limit", "0 s", rest, Decimal(0), Decimal(limit), note=note)
    left = limit - elapsed
    rest = f"of {words.seconds_words(limit)} · {words.seconds_words(abs(left))} {'left' if left >= 0 else 'over'}"
    return Guard(
        "Time limit",
        words.seconds_words(elapsed),
        rest,
        Decimal(min(elapsed, limit)),
        Decimal(limit),
        _tone(Decimal(elapsed), Decimal(limit)),
        ends_at=loop.deadline_at if loop.is_active else None,
    )


def _count_guard(label: str, used: int, most: int) -> Guard:
    tone = "over" if used >= most else ""  # 2 of 3 is no alarm: the next good reply sets it back
    return Guard(label, str(used), f"of {most}", Decimal(min(used, most)), Decimal(most), tone)


def _tone(used: Decimal, most: Decimal) -> str:
    if used >= most:
        return "over"
    return "near" if used >= most * NEAR else ""


# -- the two small charts -------------------------------------------------------------------------
_HIGH, _BAR, _STEP, _LOW = 40, 14, 20, 1.5


def _sparks(loop: Loop, runs: Sequence[LoopRun], now: datetime) -> SafeString | str:
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
            paths.setdefault("b unknown", []).append(f"M{place * _STEP + 1} 30h{_BAR - 2}v9h-{_BAR - 2}z")
            continue
        height = max(_LOW, round(float(min(1, value / most)) * (_HIGH - 2), 1))
        paths.setdefault(kind, []).append(f"M{place * _STEP} {_HIGH - height:g}h{_BAR}v{height:g}h-{_BAR}z")
    drawn = "".join(f'<path class="{kind}" d="{"".join(pieces)}"></path>' for kind, pieces in paths.items())
    return format_html(
        '<p class="label"><b>{}</b> <span>{}</span></p><svg viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>',
        label,
        said,
        allowed * _STEP - (_STEP - _BAR),
        _HIGH,
        mark_safe(drawn),  # noqa: S308 (numbers and our own words)
    )
