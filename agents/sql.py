"""The ledger's hand-written statements: the ones every iteration runs, where building them anew costs more than running them.

They use Django's own connection and the same text on both databases, but for the row lock that SQLite neither has nor needs
(its transactions are IMMEDIATE, so writers are one after another).
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from agents.models import Agent, Execution


def run(statement: str, *values: Any) -> int:
    """Execute one statement; the number of rows that it changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement, [_adapt(value) for value in values])
        return int(cursor.rowcount)


def _adapt(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    if isinstance(value, Decimal):
        return connection.ops.adapt_decimalfield_value(value, max_digits=18, decimal_places=6)
    return value


def lock_agent(agent_id: int) -> Agent:
    """The agent's row, locked to the end of the transaction, with `slots_taken` and `somebody_waits` beside it.

    NO KEY: a plain row lock would block every insert that points to the agent. The two counts are as of the moment the
    statement began, before it had the lock: good for a choice, not for a promise; `claim_head` counts again.
    """
    lock = " FOR NO KEY UPDATE OF a" if connection.features.has_select_for_no_key_update else ""
    return Agent.objects.raw(_AGENT + lock, [agent_id])[0]


_AGENT = """
SELECT a.*,
  (SELECT count(*) FROM agents_execution r WHERE r.agent_id = a.id AND r.state = 'running') AS slots_taken,
  EXISTS (SELECT 1 FROM agents_execution w WHERE w.agent_id = a.id AND w.state = 'queued') AS somebody_waits
FROM agents_agent a WHERE a.id = %s"""


def claim_head(agent: Agent, owner: str, lease_until: datetime, now: datetime) -> str | None:
    """Give the first in the agent's line to `owner` if a slot is free; its id, or None. The agent must be locked.

    `now` was read before the lock was had, so the turn may be younger: it begins when it was made, at the earliest.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _CLAIM_HEAD.format(later="MAX" if connection.vendor == "sqlite" else "GREATEST"),
            [owner, _adapt(lease_until), _adapt(now), agent.pk, agent.pk, agent.max_parallel_tasks],
        )
        row = cursor.fetchone()
    return row[0] if row else None


_CLAIM_HEAD = """
UPDATE agents_execution
SET state = 'running', fence = fence + 1, attempt = attempt + 1, owner = %s, lease_until = %s,
  started_at = COALESCE(started_at, {later}(%s, created_at))
WHERE id = (SELECT id FROM agents_execution WHERE agent_id = %s AND state = 'queued' ORDER BY id LIMIT 1)
  AND state = 'queued'
  AND (SELECT count(*) FROM agents_execution WHERE agent_id = %s AND state = 'running') < %s
RETURNING id"""


def close_execution(execution: Execution, fence: int) -> bool:
    """Write how the turn ended, if the fence is still the one it was run under and nobody has cancelled it since it was read."""
    return bool(
        run(
            _CLOSE,
            execution.state,
            execution.response,
            execution.response_truncated,
            execution.error,
            execution.cost,
            execution.reported_session,
            execution.reported_model,
            None if execution.usage is None else json.dumps(execution.usage),
            execution.duration_ms,
            execution.finished_at,
            execution.pk,
            fence,
            execution.cancelled_by,
        )
    )


_CLOSE = """
UPDATE agents_execution
SET state = %s, response = %s, response_truncated = %s, error = %s, cost = %s, reported_session = %s, reported_model = %s,
  usage = %s, duration_ms = %s, finished_at = %s, lease_until = NULL, owner = ''
WHERE id = %s AND fence = %s AND state = 'running' AND cancelled_by = %s"""
