"""What happens next in a message loop. Reading GUARDS from top to bottom is reading product.md 3.6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from loops.core.facts import Facts
from loops.core.spec import MessageSpec
from loops.core.words import LoopStatus, OnFailure, StopReason


@dataclass(frozen=True, slots=True)
class Finish:
    """End the loop. `tolerated` = the run that has just failed counts among the tolerated failures."""

    status: LoopStatus
    reason: StopReason
    tolerated: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at `until`: the delay is over then, or the deadline is reached."""

    until: datetime


@dataclass(frozen=True, slots=True)
class StartRun:
    """Hand run `number` to the agent."""

    number: int


Decision = Finish | Wait | StartRun
Guard = Callable[[MessageSpec, Facts, datetime], Finish | None]


def deadline(spec: MessageSpec, started_at: datetime | None) -> datetime | None:
    """When the loop's time is over; None while no run has begun or where no limit is set (product.md 3.7)."""
    if started_at is None or spec.max_duration_seconds is None:
        return None
    return started_at + timedelta(seconds=spec.max_duration_seconds)


def _natural_end(reason: StopReason, facts: Facts) -> Finish:
    return Finish(LoopStatus.COMPLETED_WITH_ERRORS if facts.failed_runs else LoopStatus.COMPLETED, reason)


def _past_deadline(spec: MessageSpec, facts: Facts, now: datetime) -> bool:
    end = deadline(spec, facts.started_at)
    return end is not None and now >= end


def cut_off_by_a_person_who_stops(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    if facts.last is not None and facts.last.cut_off and not facts.last.succeeded and facts.stop_requested:
        return Finish(LoopStatus.STOPPED, StopReason.USER_STOPPED, tolerated=False)
    return None


def stop_signal_matched(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    if facts.last is not None and facts.last.succeeded and spec.stop_signal and spec.stop_signal in facts.last.response:
        return _natural_end(StopReason.STOP_SIGNAL_MATCHED, facts)
    return None


def no_progress(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    if facts.last is None or not facts.last.succeeded or facts.stop_requested or _past_deadline(spec, facts, now):
        return None
    if spec.no_progress_threshold and facts.same_replies >= spec.no_progress_threshold:
        return Finish(LoopStatus.STOPPED, StopReason.NO_PROGRESS)
    return None


def failed_and_aborts(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    if facts.last is not None and not facts.last.succeeded and spec.on_failure is OnFailure.ABORT:
        return Finish(LoopStatus.FAILED, StopReason.ERROR, tolerated=False)
    return None


def too_many_failures_in_a_row(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    if facts.last is None or facts.last.succeeded:
        return None
    if facts.failure_streak >= spec.max_consecutive_failures:
        return Finish(LoopStatus.FAILED, StopReason.MAX_CONSECUTIVE_FAILURES, tolerated=False)
    return None


def max_runs_reached(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    return _natural_end(StopReason.MAX_RUNS_REACHED, facts) if facts.runs_completed >= spec.max_runs else None


def stop_requested(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    return Finish(LoopStatus.STOPPED, StopReason.USER_STOPPED) if facts.stop_requested else None


def deadline_exceeded(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    return Finish(LoopStatus.STOPPED, StopReason.DEADLINE_EXCEEDED) if _past_deadline(spec, facts, now) else None


def budget_exhausted(spec: MessageSpec, facts: Facts, now: datetime) -> Finish | None:
    if spec.max_cost_usd is not None and facts.spend >= spec.max_cost_usd:
        return Finish(LoopStatus.STOPPED, StopReason.BUDGET_EXHAUSTED)
    return None


GUARDS: tuple[Guard, ...] = (
    cut_off_by_a_person_who_stops,
    # after a successful run
    stop_signal_matched,
    no_progress,
    # after a failed run
    failed_and_aborts,
    too_many_failures_in_a_row,
    # before the next run
    max_runs_reached,
    stop_requested,
    deadline_exceeded,
    budget_exhausted,
)


def decide(spec: MessageSpec, facts: Facts, now: datetime) -> Decision:
    """The first guard that speaks wins; when none does, the next run is due, or due after the delay.

    The delay follows a run (`facts.last`), so it never stands before run 1 nor is waited for twice.
    """
    for guard in GUARDS:
        if verdict := guard(spec, facts, now):
            return verdict
    if spec.delay_seconds and facts.last is not None:
        due = now + timedelta(seconds=spec.delay_seconds)
        end = deadline(spec, facts.started_at)
        return Wait(min(due, end) if end else due)
    return StartRun(facts.runs_completed + 1)
