"""How a loop must have ended, reckoned from its plan and from what happened to its runs. Knows nothing of the product's own code."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from tests.chaos.plans import Body


@dataclass(frozen=True, slots=True)
class Seen:
    """One run as it went: whether it had to succeed, what it answered and cost, when it was closed, and if a stop was pending then."""

    succeeded: bool
    answer: str
    cost: Decimal | None
    ended_at: datetime
    stop_pending: bool


@dataclass(frozen=True, slots=True)
class End:
    """How a loop ends. `after` = the number of runs it has then."""

    status: str
    reason: str
    after: int
    failed_runs: int


def expected(body: Body, runs: list[Seen], began: datetime | None, ended: datetime, stopped: bool) -> End:
    """The only end that the rules leave for these runs. `stopped` = somebody has asked it to end, at any time."""
    failed = streak = same = 0
    spend, last_answer = Decimal(0), None
    deadline = _deadline(body, began)
    for number, run in enumerate(runs, 1):
        spend += run.cost or 0
        late = deadline is not None and run.ended_at >= deadline
        if run.succeeded:
            streak = 0
            same = same + 1 if run.answer == last_answer else 1
            last_answer = run.answer
            if body.get("stop_signal") and body["stop_signal"] in run.answer:
                return _natural("stop_signal_matched", number, failed)
            standing = body["no_progress_threshold"] and same >= body["no_progress_threshold"]
            if standing and not run.stop_pending and not late:
                return End("stopped", "no_progress", number, failed)
        else:
            streak += 1
            if body.get("on_failure", "abort") == "abort":
                return End("failed", "error", number, failed)
            if streak >= body.get("max_consecutive_failures", 3):
                return End("failed", "max_consecutive_failures", number, failed)
            failed += 1
        if number == body["max_runs"]:
            return _natural("max_runs_reached", number, failed)
        if run.stop_pending:
            return End("stopped", "user_stopped", number, failed)
        if late:
            return End("stopped", "deadline_exceeded", number, failed)
        if "max_cost_usd" in body and spend >= Decimal(str(body["max_cost_usd"])):
            return End("stopped", "budget_exhausted", number, failed)
    # Nothing has ended it at the end of a run, so it ended while it waited for the next one.
    if stopped:
        return End("stopped", "user_stopped", len(runs), failed)
    if deadline is not None and ended >= deadline:
        return End("stopped", "deadline_exceeded", len(runs), failed)
    return End("running", "", len(runs), failed)


def _natural(reason: str, number: int, failed: int) -> End:
    return End("completed_with_errors" if failed else "completed", reason, number, failed)


def _deadline(body: Body, began: datetime | None) -> datetime | None:
    if began is None or "max_duration_seconds" not in body:
        return None
    return began + timedelta(seconds=body["max_duration_seconds"])
