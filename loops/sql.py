"""The engine's hand-written statements, run once or more per iteration; see agents.sql for why and how."""

from __future__ import annotations

from datetime import datetime

from agents import sql
from loops.models import Loop, LoopRun


def loop_of_turn(loop_id: str, execution_id: str) -> Loop:
    """The loop with the run of this execution beside it: `run_id`, `run_number`, `run_status`. Its agent must be locked."""
    return Loop.objects.raw(_LOOP_OF_TURN, [execution_id, loop_id])[0]


_LOOP_OF_TURN = """
SELECT l.*, r.id AS run_id, r.run_number AS run_number, r.status AS run_status
FROM loops_loop l JOIN loops_looprun r ON r.loop_id = l.id AND r.execution_id = %s
WHERE l.id = %s"""


def close_run(run_id: int, run: LoopRun) -> int:
    """Write how a run ended; 0 where it was closed before."""
    return sql.run(
        _CLOSE_RUN,
        run.status,
        run.response_preview,
        run.cost,
        run.duration_ms,
        run.error,
        run.started_at,
        run.completed_at,
        run_id,
    )


_CLOSE_RUN = """
UPDATE loops_looprun
SET status = %s, response_preview = %s, cost = %s, duration_ms = %s, error = %s, started_at = COALESCE(started_at, %s), completed_at = %s
WHERE id = %s AND status IN ('waiting', 'running')"""


def save_loop(loop: Loop, seen_version: int) -> int:
    """Write everything that a decision may change; 0 where the row has another version by now."""
    return sql.run(
        _SAVE_LOOP,
        loop.status,
        loop.stop_reason,
        loop.waiting_for,
        loop.version,
        loop.runs_completed,
        loop.failed_runs,
        loop.failure_streak,
        loop.same_replies,
        loop.fingerprint,
        loop.spend,
        loop.unknown_cost_runs,
        loop.carry,
        loop.last_success_id,
        loop.error,
        loop.stop_excerpt,
        loop.stop_run,
        loop.stop_requested_at,
        loop.stopped_by,
        loop.started_at,
        loop.deadline_at,
        loop.wake_at,
        loop.completed_at,
        loop.pk,
        seen_version,
    )


_SAVE_LOOP = """
UPDATE loops_loop
SET status = %s, stop_reason = %s, waiting_for = %s, version = %s,
  runs_completed = %s, failed_runs = %s, failure_streak = %s, same_replies = %s, fingerprint = %s,
  spend = %s, unknown_cost_runs = %s, carry = %s, last_success_id = %s, error = %s, stop_excerpt = %s, stop_run = %s,
  stop_requested_at = %s, stopped_by = %s, started_at = %s, deadline_at = %s, wake_at = %s, completed_at = %s
WHERE id = %s AND version = %s"""


def take_wake(loop_id: str, seen: datetime) -> int:
    """Claim a due waking by the exact time that was seen, so that of many sweeps one acts."""
    return sql.run("UPDATE loops_loop SET wake_at = NULL WHERE id = %s AND wake_at = %s", loop_id, seen)
