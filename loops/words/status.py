"""The words of a loop's status and of its end, as product.md 5 has them; the proof beside them is `loops.words.proof`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from loops.core.words import LoopStatus, StopReason, WaitingFor
from loops.words.state import LoopFacts, Part, Words

_REASONS: dict[str, str] = {
    StopReason.MAX_RUNS_REACHED: "reached max runs",
    StopReason.STOP_SIGNAL_MATCHED: "stop signal matched",
    StopReason.USER_STOPPED: "stopped by user",
    StopReason.DEADLINE_EXCEEDED: "deadline exceeded",
    StopReason.BUDGET_EXHAUSTED: "budget exhausted",
    StopReason.NO_PROGRESS: "no progress",
    StopReason.ERROR: "error",
    StopReason.MAX_CONSECUTIVE_FAILURES: "too many consecutive failures",
    "goal_met": "goal met",
    "stalled": "nothing changed on disk",
    "needs_person": "needs a person",
}

_STOPPED_BECAUSE: dict[str, str] = {
    StopReason.BUDGET_EXHAUSTED: "cost budget reached",
    StopReason.DEADLINE_EXCEEDED: "time limit reached",
    StopReason.NO_PROGRESS: "it stopped making progress",
    StopReason.MAX_RUNS_REACHED: "ran out of rounds",
    "stalled": "nothing changed on disk",
    "needs_person": "it needs a person",
}

_WAITING: dict[str, str] = {
    WaitingFor.CAPACITY: "Waiting for a free slot",
    WaitingFor.AGENT: "Waiting for the agent",
    WaitingFor.CONVERSATION: "Waiting for the chat",
}


def reason_words(stop_reason: str) -> str:
    """Why a loop ended, in the operators' words; an unknown reason as it is."""
    return _REASONS.get(stop_reason, stop_reason)


def status_words(loop: LoopFacts, viewer_name: str, zone: tzinfo = UTC) -> Words:
    """What the loop's status is called for the person of this username; an unknown status is shown raw, as inactive."""
    match loop.status:
        case LoopStatus.QUEUED | LoopStatus.RUNNING:
            return _active(loop, zone)
        case LoopStatus.COMPLETED:
            return _still("Done — goal met" if loop.stop_reason == "goal_met" else "Done", "ok", "done")
        case LoopStatus.COMPLETED_WITH_ERRORS:
            return _still("Done, with errors", "warn", "done-errors")
        case LoopStatus.STOPPED:
            return _still(_stopped(loop, viewer_name), "warn", "stopped")
        case LoopStatus.FAILED:
            many = loop.stop_reason == StopReason.MAX_CONSECUTIVE_FAILURES
            return _still("Failed — too many errors in a row" if many else "Failed", "danger", "failed")
        case LoopStatus.INTERRUPTED:
            return _still("Interrupted", "warn", "interrupted")
        case unknown:
            return _still(unknown, "", "alert")


def counter(loop: LoopFacts, between: str = " / ") -> str:
    """`Run 7 / 20 · 1 failed`; the rail puts " of " between."""
    number = loop.next_run if loop.in_flight else loop.runs_completed
    failed = f" · {loop.failed_runs} failed" if loop.failed_runs else ""
    return f"Run {number}{between}{loop.max_runs}{failed}"


def who(name: str, viewer_name: str) -> str:
    """The person or agent of this name, or "you" for that person."""
    if name == viewer_name:
        return "you"
    return f"agent {name.removeprefix('agent:')}" if name.startswith("agent:") else name


def _still(text: str, tone: str, icon: str) -> Words:
    return Words((Part(text),), tone, icon)


def _active(loop: LoopFacts, zone: tzinfo) -> Words:
    if loop.waiting_for == WaitingFor.DELAY and loop.wake_at is not None:
        return Words((Part("Waiting until "), _clock(loop.wake_at, zone, "%H:%M:%S")), "active", "waiting")
    if loop.waiting_for:
        return _still(_WAITING.get(loop.waiting_for, "Waiting"), "active", "waiting")
    if loop.status == LoopStatus.QUEUED:
        return _still("Queued", "active", "queued")
    if loop.stop_requested_at is None:
        return Words((Part("Running"),), "active", "running", live=True)
    return Words(_finishing(loop, zone), "active", "running")


def _finishing(loop: LoopFacts, zone: tzinfo) -> tuple[Part, ...]:
    said = Part(f"Finishing run {loop.next_run}, then stopping")
    if loop.run_ends_by is None:
        return (said,)
    # The next whole minute, or the minute that is shown would be over before the run has to be.
    by = (loop.run_ends_by + timedelta(seconds=60, microseconds=-1)).replace(second=0, microsecond=0)
    return said, Part(" (by "), _clock(by, zone, "%H:%M"), Part(" at the latest)")


def _stopped(loop: LoopFacts, viewer_name: str) -> str:
    if loop.stop_reason == StopReason.USER_STOPPED and loop.stopped_by:
        return f"Stopped by {who(loop.stopped_by, viewer_name)}"
    if loop.stop_reason in ("", StopReason.USER_STOPPED):
        return "Stopped"
    return f"Stopped — {_STOPPED_BECAUSE.get(loop.stop_reason, loop.stop_reason)}"


def _clock(moment: datetime, zone: tzinfo, shape: str) -> Part:
    return Part(moment.astimezone(zone).strftime(shape), "time", moment)
