"""An agent's life: made, changed, started, stopped, deleted. Each with its row locked, told to the observers in the same transaction."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.module_loading import import_string

from agents import audit, executions, hints, refusals, sql
from agents.access import Caller
from agents.models import NAME_RULE, Agent, Execution, User

Check = Callable[[Any], Any]


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least:,} to {most:,}")
        return value

    return check


def _text(most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > most or re.search(r"[\0\ud800-\udfff]", value):
            raise ValueError(f"must be text of at most {most:,} characters")
        return value.strip()

    return check


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME_RULE.fullmatch(value):
        raise ValueError("must be 1 to 63 letters, digits, - or _, and begin with a letter or digit")
    return value


def _command(value: Any) -> list[str]:
    if (
        not isinstance(value, list)
        or not 1 <= len(value) <= 200
        or not all(isinstance(word, str) and word for word in value)
    ):
        raise ValueError("must be a list of 1 to 200 non-empty texts: the program and its arguments")
    if any(re.search(r"[\0\ud800-\udfff]", word) for word in value):
        raise ValueError("must not contain NUL or broken characters")
    return value


def _one_of(*words: str) -> Check:
    def check(value: Any) -> str:
        if value not in words or not isinstance(value, str):
            raise ValueError(f"must be {' or '.join(words)}")
        return value

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


FIELDS: dict[str, Check] = {
    "display_name": _text(100),
    "description": _text(10_000),
    "harness": _one_of("command"),
    "command": _command,
    "output": _one_of(*Agent.Output.values),
    "model": _text(200),
    "timeout_seconds": _whole(60, 7200),
    "max_parallel_tasks": _whole(1, 32),
    "autonomy": _flag,
    "keep_background": _flag,
}


def parse(body: dict[str, Any], *, creating: bool) -> dict[str, Any]:
    """The agent's fields in a request. Raises Refused naming each bad, missing or unknown one; null = not sent."""
    fields = {"name": _name, **FIELDS} if creating else FIELDS
    errors = {name: ["is not a field that can be set"] for name in body if name not in fields}
    found: dict[str, Any] = {}
    for name, check in fields.items():
        if body.get(name) is None:
            continue
        try:
            found[name] = check(body[name])
        except ValueError as refused:
            errors[name] = [str(refused)]
    for name in ("name", "command"):
        if creating and name not in found and name not in errors:
            errors[name] = ["is required"]
    if errors:
        raise refusals.invalid(errors)
    return found


def create(owner: User, fields: dict[str, Any], by: Caller) -> Agent:
    """A new agent, running. Raises Refused (409) where a living one has the name."""
    try:
        with transaction.atomic():
            agent = Agent.objects.create(owner=owner, **fields)
            audit.allowed(by.name, by.through, "agent.change", agent.name, "created")
    except IntegrityError as taken:
        raise refusals.conflict(f"An agent named {fields['name']} exists already.") from taken
    agent.workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    return agent


def change(agent: Agent, fields: dict[str, Any], by: Caller) -> Agent:
    """Write these fields; a turn that is running keeps what it began with, the next one has the new values."""
    with transaction.atomic():
        locked = _locked(agent)
        Agent.objects.filter(pk=locked.pk).update(**fields)
        for name, value in fields.items():
            setattr(locked, name, value)
        executions.ring_line(locked)  # there may be more slots now
        _written(locked, by, f"changed {', '.join(fields)}"[:300])
    return locked


def start(agent: Agent, by: Caller, now: datetime) -> Agent:
    """Let it take turns again; what waited for it goes on. Starting one that runs changes nothing."""
    return _set_status(agent, Agent.Status.RUNNING, by, now)


def stop(agent: Agent, by: Caller, now: datetime) -> Agent:
    """Let it take no further turn; what is in flight finishes."""
    return _set_status(agent, Agent.Status.STOPPED, by, now)


def _set_status(agent: Agent, status: Agent.Status, by: Caller, now: datetime) -> Agent:
    with transaction.atomic():
        locked = _locked(agent)
        if locked.status != status:
            Agent.objects.filter(pk=locked.pk).update(status=status)
            locked.status = status
            _tell(locked, now)
            if status == Agent.Status.RUNNING:
                executions.ring_line(locked)
        _written(locked, by, "started" if status == Agent.Status.RUNNING else "stopped")
    return locked


def delete(agent: Agent, by: Caller, now: datetime) -> None:
    """End its turns and loops and free its name; the rows stay for owner and admins."""
    with transaction.atomic():
        locked = _locked(agent)
        Agent.objects.filter(pk=locked.pk).update(deleted_at=now, status=Agent.Status.STOPPED)
        locked.deleted_at, locked.status = now, Agent.Status.STOPPED
        _tell(locked, now)
        live = Execution.objects.filter(agent=locked, state__in=[Execution.State.QUEUED, Execution.State.RUNNING])
        for execution in live.order_by("id"):
            executions.cancel_locked(execution, locked, by.name, now)
        _written(locked, by, "deleted")
        hints.say_access_changed()


def _locked(agent: Agent) -> Agent:
    locked = sql.lock_agent(agent.pk)
    if locked.deleted_at is not None:
        raise refusals.unknown("Agent")
    return locked


def _tell(agent: Agent, now: datetime) -> None:
    for path in settings.AGENT_OBSERVERS:
        import_string(path)(agent, now)


def _written(agent: Agent, by: Caller, what: str) -> None:
    audit.allowed(by.name, by.through, "agent.change", agent.name, what)
    hints.say("agent", agent.name, agent=agent.pk)
