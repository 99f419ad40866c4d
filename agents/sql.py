"""The ledger's hand-written statements: the ones every iteration runs, where building them anew costs more than running them.

They use Django's own connection and the same text on both databases, but for the row lock that SQLite neither has nor needs
(its transactions are IMMEDIATE, so writers are one after another). On PostgreSQL they are prepared: parsed and planned once
for a connection.
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

import psycopg
from django.db import connection
from django.db.models import Field, Model
from django.db.models.expressions import Col

from agents.models import Agent, Execution

Row = TypeVar("Row", bound=Model)


class _Prepared(psycopg.Cursor[Any]):
    """Has the server keep each statement. Django's own cursors put the values into the text instead."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> _Prepared:
        return super().execute(query, params, prepare=True, **options)


def execute(statement: str, *values: Any) -> Any:
    """Execute one statement; the cursor with what it found or changed."""
    if connection.vendor == "postgresql":
        connection.ensure_connection()
        wrapped = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
        cursor = wrapped(_Prepared(connection.connection))  # type: ignore[arg-type]  # the stubs want a wrapper
    else:
        cursor = connection.cursor()
    cursor.execute(statement, [_adapt(value) for value in values])
    return cursor


def run(statement: str, *values: Any) -> int:
    """Execute one statement; the number of rows that it changed."""
    return int(execute(statement, *values).rowcount)


def _adapt(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    if isinstance(value, Decimal):
        return connection.ops.adapt_decimalfield_value(value, max_digits=18, decimal_places=6)
    return value


# -- whole rows -----------------------------------------------------------------------------------
def columns(model: type[Model], table: str) -> str:
    """The columns of a model for a SELECT or RETURNING, in the order in which `read` takes them."""
    return ", ".join(f'{table}."{field.column}"' for field in model._meta.concrete_fields)


def read(model: type[Row], found: tuple[Any, ...], *beside: str) -> Row:
    """The model's row from a database row of its `columns`; further columns become attributes named by `beside`."""
    names, converters = _reader(model, connection.vendor)
    values = list(found[: len(names)])
    for place, column, convert in converters:
        values[place] = convert(values[place], column, connection)
    row = model.from_db(connection.alias, names, values)
    for name, value in zip(beside, found[len(names) :], strict=True):
        setattr(row, name, value)
    return row


@cache
def _reader(model: type[Model], vendor: str) -> tuple[list[str], list[tuple[int, Col, Any]]]:
    """The names of the model's fields, and what the database's values of some of them must go through."""
    fields = model._meta.concrete_fields
    found = []
    for place, field in enumerate(fields):
        column = field.get_col(model._meta.db_table)
        for convert in connection.ops.get_db_converters(column) + field.get_db_converters(connection):
            found.append((place, column, convert))
    return [field.attname for field in fields], found


def insert(*rows: Model) -> None:
    """Insert new rows of one model; a key that the database makes is not read back."""
    fields = _to_insert(type(rows[0]))
    values = [field.get_db_prep_save(getattr(row, field.attname), connection) for row in rows for field in fields]
    execute(_insertion(type(rows[0]), len(rows)), *values)
    for row in rows:
        row._state.adding, row._state.db = False, connection.alias


@cache
def _to_insert(model: type[Model]) -> list[Field[Any, Any]]:
    return [field for field in model._meta.concrete_fields if field is not model._meta.auto_field]


@cache
def _insertion(model: type[Model], rows: int) -> str:
    fields = _to_insert(model)
    names = ", ".join(f'"{field.column}"' for field in fields)
    values = f"({', '.join(['%s'] * len(fields))})"
    return f'INSERT INTO "{model._meta.db_table}" ({names}) VALUES {", ".join([values] * rows)}'  # noqa: S608 - our own names


# -- the ledger -----------------------------------------------------------------------------------
def lock_agent(agent_id: int) -> Agent:
    """The agent's row, locked to the end of the transaction, with `slots_taken` and `somebody_waits` beside it.

    NO KEY: a plain row lock would block every insert that points to the agent. The two counts are as of the moment the
    statement began, before it had the lock: good for a choice, not for a promise; `claim_head` counts again.
    """
    lock = " FOR NO KEY UPDATE OF a" if connection.features.has_select_for_no_key_update else ""
    found = execute(_AGENT + lock, agent_id).fetchone()
    return read(Agent, found, "slots_taken", "somebody_waits")


_AGENT = f"""
SELECT {columns(Agent, "a")},
  (SELECT count(*) FROM agents_execution r WHERE r.agent_id = a.id AND r.state = 'running') AS slots_taken,
  EXISTS (SELECT 1 FROM agents_execution w WHERE w.agent_id = a.id AND w.state = 'queued') AS somebody_waits
FROM agents_agent a WHERE a.id = %s"""  # noqa: S608 - our own names


def claim_head(agent: Agent, owner: str, lease_until: datetime, now: datetime) -> Execution | None:
    """Give the first in the agent's line to `owner` if a slot is free; its row, or None. The agent must be locked.

    `now` was read before the lock was had, so the turn may be younger: it begins when it was made, at the earliest.
    """
    later = "MAX" if connection.vendor == "sqlite" else "GREATEST"
    statement = _CLAIM_HEAD.format(later=later, columns=columns(Execution, "agents_execution"))
    found = execute(statement, owner, lease_until, now, agent.pk, agent.pk, agent.max_parallel_tasks).fetchone()
    return read(Execution, found) if found else None


_CLAIM_HEAD = """
UPDATE agents_execution
SET state = 'running', fence = fence + 1, attempt = attempt + 1, owner = %s, lease_until = %s,
  started_at = COALESCE(started_at, {later}(%s, created_at))
WHERE id = (SELECT id FROM agents_execution WHERE agent_id = %s AND state = 'queued' ORDER BY id LIMIT 1)
  AND state = 'queued'
  AND (SELECT count(*) FROM agents_execution WHERE agent_id = %s AND state = 'running') < %s
RETURNING {columns}"""


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
