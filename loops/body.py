"""What an opened loop shows beside its row: its runs, what has been used of each limit, the limits as stored, the last response."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from django.conf import settings
from django.db.models.functions import Left, Length
from django.utils.safestring import SafeString

from agents.models import Execution
from loops import charts, curl, prose, words
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
    curl: str


def of(row: Row, now: datetime) -> Body:
    """Read it: the runs, the template, the last response and the last line of the run in flight; a query each."""
    loop = row.loop
    runs = list(loop.runs.exclude(status=RunStatus.WAITING).order_by("-run_number"))
    message, size = Loop.objects.values_list(Left("message", MESSAGE_SHOWN), Length("message")).get(pk=loop.pk)
    return Body(
        runs=runs,
        total=words.duration_words(sum(run.duration_ms or 0 for run in runs)),
        cost=cost(loop),
        sparks=charts.sparks(loop, runs, now),
        guards=guards(loop, now),
        message=message,
        message_is_cut=size > MESSAGE_SHOWN,
        response=_response(loop, runs),
        curl="" if size > MESSAGE_SHOWN else curl.of_loop(settings.TRINITY_BASE_URL, loop.agent.name, loop, message),
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
