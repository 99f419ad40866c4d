"""The sentence that stands beside a loop's status and makes it believable: run, excerpt, spend, elapsed time, last error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from loops.core.words import ACTIVE, LoopStatus, StopReason, WaitingFor
from loops.words.figures import count, money, seconds_words
from loops.words.state import LoopFacts, Part
from loops.words.status import who

ERROR_SHOWN = 300  # characters of an error that fit beside a status
MOST_NUMBERS = 6  # failed runs that are named one by one


def proof(loop: LoopFacts, now: datetime, viewer_name: str = "") -> list[Part]:
    """What makes the loop's status true, for the person of this username; spans are those at `now`."""
    if loop.status in ACTIVE:
        return _waits(loop, now) or _works(loop, now, viewer_name)
    said = _ENDS.get(loop.stop_reason, _ended)
    return said(loop, now)


# -- active ---------------------------------------------------------------------------------------
def _waits(loop: LoopFacts, now: datetime) -> list[Part]:
    number = loop.next_run
    match loop.waiting_for:
        case WaitingFor.DELAY if loop.wake_at is not None:
            return _delayed(loop, loop.wake_at, now)
        case WaitingFor.CAPACITY:
            return [Part(f"{_place(loop)}{_slots(loop)}Run {number} begins when one is free.")]
        case WaitingFor.AGENT:
            counts = " The time limit goes on counting." if loop.deadline_at else ""
            return [Part(f"Run {number} begins when the agent runs again.{counts}")]
        case WaitingFor.CONVERSATION:
            return [Part(f"Run {number} begins when the chat is free.")]
    if loop.waiting_for or loop.status == LoopStatus.QUEUED:
        return [Part(f"{_place(loop)}Run {number} is about to begin.")]
    return []


def _delayed(loop: LoopFacts, until: datetime, now: datetime) -> list[Part]:
    left = Part(seconds_words(-((now - until) // timedelta(seconds=1))), "time", until)
    if loop.deadline_at is not None and until >= loop.deadline_at:
        return [Part("The time limit is reached in "), left, Part(f", before run {loop.next_run}.")]
    return [Part(f"Run {loop.next_run} begins in "), left, Part(".")]


def _place(loop: LoopFacts) -> str:
    if loop.place is None:
        return ""
    return "First in line. " if loop.place == 1 else f"Number {loop.place} in line. "


def _slots(loop: LoopFacts) -> str:
    taken = {None: "All slots are taken. ", 1: "The only slot is taken. ", 2: "Both slots are taken. "}
    return taken.get(loop.slots, f"All {loop.slots} slots are taken. ")


def _works(loop: LoopFacts, now: datetime, viewer_name: str) -> list[Part]:
    number = loop.next_run
    if loop.stop_requested_at is not None:
        by = f" by {who(loop.stopped_by, viewer_name)}" if loop.stopped_by else ""
        return [Part(f"Stop asked for{by} "), _ago(loop.stop_requested_at, now), Part(f". Run {number} is kept.")]
    if loop.run_started_at is None:
        said = [Part(f"Run {number} is running.")]
    else:
        said = [Part(f"Run {number} started "), _ago(loop.run_started_at, now), Part(".")]
    replies = loop.runs_completed - loop.failed_runs
    if loop.stop_signal and replies > 0:
        said.append(Part(f" {loop.stop_signal} not seen in {'1 reply' if replies == 1 else f'{replies} replies'}."))
    if loop.failure_streak and loop.last_error:
        said += [Part(f" Run {loop.runs_completed} failed: "), _bad(loop.last_error)]
    return said


# -- ended ----------------------------------------------------------------------------------------
def _ended(loop: LoopFacts, now: datetime) -> list[Part]:
    return [Part(f"{_after_run(loop)}.{_detail(loop)}")]


def _reached_max_runs(loop: LoopFacts, now: datetime) -> list[Part]:
    reached = f"Reached {loop.runs_completed} of {count(loop.max_runs, 'run')}."
    return [Part(reached), *_tolerated(loop), *([Part(_detail(loop))] if loop.detail else [])]


def _found_signal(loop: LoopFacts, now: datetime) -> list[Part]:
    in_run = f"Stop signal found in run {loop.stop_run or loop.runs_completed}"
    before, found, behind = loop.stop_excerpt.partition(loop.stop_signal) if loop.stop_signal else ("", "", "")
    if not found:
        return [Part(f"{in_run}."), *_tolerated(loop)]
    return [Part(f"{in_run}: “{before}"), Part(found, "mark"), Part(f"{behind}”"), *_tolerated(loop)]


def _stopped_by_somebody(loop: LoopFacts, now: datetime) -> list[Part]:
    if loop.completed_at is None:
        return _ended(loop, now)
    return [Part(f"{_after_run(loop)}, "), _ago(loop.completed_at, now), Part(f".{_detail(loop)}")]


def _spent_budget(loop: LoopFacts, now: datetime) -> list[Part]:
    of = f" of {money(loop.max_cost_usd)}" if loop.max_cost_usd else ""
    over = _over(loop.spend, loop.max_cost_usd) if loop.max_cost_usd else ""
    silent = f" {count(loop.unknown_cost_runs, 'run')} reported no cost." if loop.unknown_cost_runs else ""
    spent = f"Spent {money(loop.spend)}{of} by the end of run {loop.runs_completed}{over}."
    return [Part(f"{spent} Run {loop.next_run} was not started.{silent}{_detail(loop)}")]


def _over(spend: Decimal, budget: Decimal) -> str:
    """How far over, and why that can be: the budget cannot act inside a run."""
    if spend <= budget:
        return ""
    per_cent = int((spend - budget) / budget * 100)
    return f", {f'{per_cent:,}' if per_cent else 'less than 1'} % over: a budget is checked between runs"


def _spent_time(loop: LoopFacts, now: datetime) -> list[Part]:
    if loop.started_at is None or not loop.max_duration_seconds:
        return _ended(loop, now)
    elapsed = seconds_words(int(((loop.completed_at or now) - loop.started_at).total_seconds()))
    took = f"{elapsed} of {seconds_words(loop.max_duration_seconds)} elapsed by the end of run {loop.runs_completed}."
    return [Part(f"{took} Run {loop.next_run} was not started.{_detail(loop)}")]


def _repeated_itself(loop: LoopFacts, now: datetime) -> list[Part]:
    last, empty = loop.runs_completed, "" if loop.last_reply.strip() else "empty "
    if loop.failed_runs:  # then a failed run may stand among them, and the numbers are not in a row
        return [Part(f"The last {loop.same_replies} {empty}replies were the same, up to run {last}.")]
    return [Part(f"{_row(last - loop.same_replies + 1, last)} gave the same {empty}reply.")]


def _failed(loop: LoopFacts, now: datetime) -> list[Part]:
    lead, error = f"Run {loop.runs_completed}: ", loop.error or loop.last_error or "no error was given"
    if error.startswith(lead):
        return [Part(f"Run {loop.runs_completed} failed: "), _bad(error.removeprefix(lead))]
    return [Part(f"{_after_run(loop)}: "), _bad(error)]


def _failed_in_a_row(loop: LoopFacts, now: datetime) -> list[Part]:
    last = loop.runs_completed
    runs = _row(last - loop.failure_streak + 1, last)
    error = (loop.error or loop.last_error or "no error was given").removeprefix(f"Run {last}: ")
    if loop.failure_streak < 2:
        return [Part(f"{runs} failed: "), _bad(error)]
    return [Part(f"{runs} failed one after another; last: "), _bad(error)]


_ENDS: dict[str, Callable[[LoopFacts, datetime], list[Part]]] = {
    StopReason.MAX_RUNS_REACHED: _reached_max_runs,
    StopReason.STOP_SIGNAL_MATCHED: _found_signal,
    StopReason.USER_STOPPED: _stopped_by_somebody,
    StopReason.DEADLINE_EXCEEDED: _spent_time,
    StopReason.BUDGET_EXHAUSTED: _spent_budget,
    StopReason.NO_PROGRESS: _repeated_itself,
    StopReason.ERROR: _failed,
    StopReason.MAX_CONSECUTIVE_FAILURES: _failed_in_a_row,
}


# -- pieces ---------------------------------------------------------------------------------------
def _ago(moment: datetime, now: datetime) -> Part:
    return Part(f"{seconds_words(int((now - moment).total_seconds()))} ago", "time", moment)


def _bad(error: str) -> Part:
    """The error on one line, cut where it would fill the page."""
    line = " ".join(error.split())
    return Part(line if len(line) <= ERROR_SHOWN else line[:ERROR_SHOWN].rstrip() + "…", "bad")


def _detail(loop: LoopFacts) -> str:
    return f" {loop.detail}" if loop.detail else ""


def _after_run(loop: LoopFacts) -> str:
    return f"After run {loop.runs_completed} of {loop.max_runs}" if loop.runs_completed else "Before run 1 began"


def _row(first: int, last: int) -> str:
    """Run 3, Runs 3 and 4, Runs 3 to 5."""
    if first >= last:
        return f"Run {last}"
    return f"Runs {first} {'and' if first + 1 == last else 'to'} {last}"


def _listed(numbers: Sequence[int]) -> str:
    """Runs 11, 12 and 31; of many the first few and how many more."""
    if len(numbers) == 1:
        return f"Run {numbers[0]}"
    shown = [str(number) for number in numbers[:MOST_NUMBERS]]
    more = len(numbers) - len(shown)
    last = f"{more} more" if more else shown.pop()
    return f"Runs {', '.join(shown)} and {last}"


def _tolerated(loop: LoopFacts) -> list[Part]:
    """Which runs failed on the way, and how the last of them did."""
    if not loop.failed_runs:
        return []
    named = len(loop.failed_numbers) == loop.failed_runs
    failed = Part(f"{_listed(loop.failed_numbers) if named else count(loop.failed_runs, 'run')} failed", "bad")
    last = _bad(loop.last_error).text
    stop = "" if last.endswith((".", "!", "?", "…")) else "."
    return [Part(" "), failed, Part(f"; last: {last}{stop}" if last else ".")]
