"""Fills the tables with years of history by one statement per table: loops, their runs and the runs' executions."""

from __future__ import annotations

from typing import Any

from django.db import connection, models
from django.db.models import NOT_PROVIDED

from agents.models import Execution
from loops.models import Loop, LoopRun

AGENTS = 20  # the first has half of all loops, the others share the rest


def fill(agents: list[int], begin: int, end: int, runs_each: int) -> None:
    """Loops number `begin` to `end`, each over after so many runs; one in 50 failed, one in 1,000 still runs, without any worker."""
    owner = f"CASE WHEN n % 2 = 0 THEN {agents[0]} ELSE {agents[1]} + n % {len(agents) - 1} END"
    loop_id, run = _id("loop", f"n / {runs_each}"), f"(n % {runs_each} + 1)"
    runs, is_last = range(begin * runs_each, end * runs_each), f"n % {runs_each} = {runs_each - 1}"
    live = f"({is_last} AND n / {runs_each} % 1000 = 998)"
    failed = f"({is_last} AND n / {runs_each} % 50 = 0)"
    _insert(
        Execution,
        runs,
        id=_id("exec", "n"),
        agent_id=owner.replace("n %", f"n / {runs_each} %"),
        state=f"CASE WHEN {live} THEN 'running' WHEN {failed} THEN 'failed' ELSE 'success' END",
        triggered_by="'loop'",
        requested_by="'bench'",
        message="'Sort the inbox, then say what is left.'",
        loop_id=loop_id,
        response="'Sorted; nothing is left for run ' || n || '. ' || 'The rest of what it said is not of interest here. '",
        cost="0.0123",
        duration_ms="1500",
        fence="1",
        attempt="1",
        owner=f"CASE WHEN {live} THEN 'nobody/boot/1/1' ELSE '' END",
        created_at=_time("n"),
        started_at=_time("n"),
        finished_at=f"CASE WHEN {live} THEN NULL ELSE {_time('n')} END",
        lease_until=f"CASE WHEN {live} THEN {_time('n')} END",
    )
    _insert(
        Loop,
        range(begin, end),
        id=_id("loop", "n"),
        agent_id=owner,
        status="CASE WHEN n % 1000 = 998 THEN 'running' WHEN n % 50 = 0 THEN 'failed' ELSE 'completed' END",
        stop_reason="CASE WHEN n % 1000 = 998 THEN '' WHEN n % 50 = 0 THEN 'error' ELSE 'max_runs_reached' END",
        starter_id=f"(SELECT owner_id FROM agents_agent WHERE id = {agents[0]})",
        started_by="'bench'",
        message="'Sort the inbox, then say what is left. This is loop ' || n",
        max_runs=str(runs_each),
        runs_completed=f"CASE WHEN n % 1000 = 998 THEN {runs_each - 1} ELSE {runs_each} END",
        spend="0.123",
        last_success_id=_id("exec", f"(n * {runs_each})"),
        version=str(2 * runs_each + 2),
        created_at=_time(f"n * {runs_each}"),
        started_at=_time(f"n * {runs_each}"),
        completed_at=f"CASE WHEN n % 1000 = 998 THEN NULL ELSE {_time(f'n * {runs_each}')} END",
    )
    _insert(
        LoopRun,
        runs,
        loop_id=loop_id,
        run_number=run,
        execution_id=_id("exec", "n"),
        status=f"CASE WHEN {live} THEN 'running' WHEN {failed} THEN 'failed' ELSE 'completed' END",
        response_preview="'Sorted; nothing is left for run ' || n",
        error=f"CASE WHEN {failed} THEN 'exit code 1' ELSE '' END",
        cost="0.0123",
        duration_ms="1500",
        started_at=_time("n"),
        completed_at=f"CASE WHEN {live} THEN NULL ELSE {_time('n')} END",
    )


def refresh_statistics() -> None:
    """What the database does by itself within minutes after so many rows."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


def loop_name(number: int) -> str:
    """The id of that loop."""
    return f"loop_{number:013x}{0:016x}"


def _id(prefix: str, number: str) -> str:
    digits = f"lpad(to_hex({number}), 13, '0')" if connection.vendor == "postgresql" else f"printf('%013x', {number})"
    return f"('{prefix}_' || {digits} || '{0:016x}')"


def _time(number: str) -> str:
    """Twenty seconds apart, from a day in 2025 on."""
    if connection.vendor == "postgresql":
        return f"(timestamptz '2025-01-01' + ({number}) * interval '20 s')"
    return f"datetime('2025-01-01', (({number}) * 20) || ' seconds')"


def _insert(model: type[models.Model], numbers: range, **given: str) -> None:
    """A row per number: `given` columns by SQL over `n`, the others by the model's defaults."""
    values: list[Any] = []
    sources = []
    fields = [field for field in model._meta.concrete_fields if not (field.primary_key and field.attname not in given)]
    for field in fields:
        if field.attname in given:
            sources.append(given[field.attname])
            continue
        default = field.get_default() if field.default is not NOT_PROVIDED or not field.null else None
        values.append(field.get_db_prep_save(default, connection))
        sources.append(
            "CAST(%s AS jsonb)" if connection.vendor == "postgresql" and isinstance(field, models.JSONField) else "%s"
        )
    columns = ", ".join(f'"{field.column}"' for field in fields)
    given_sql = ", ".join(sources)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} ({columns}) "
            f"WITH RECURSIVE counted(n) AS (SELECT {numbers.start} UNION ALL SELECT n + 1 FROM counted WHERE n < {numbers.stop - 1}) "
            f"SELECT {given_sql} FROM counted".replace(" % ", " %% "),
            values,
        )
