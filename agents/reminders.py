"""An agent's reminders: sets, lists and cancels them, and fires what is due through the ledger. Asks nobody's permission.

A reminder is one turn for later. While the agent's autonomy is off it is held, however late; the execution that it becomes
begins a new chain of calls.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from agents import audit, executions, refusals, sql
from agents.access import Caller
from agents.executions import NewTurn
from agents.ids import may_be_id, new_id
from agents.models import Agent, Execution, Reminder

MIN_DELAY_SECONDS = 60
MAX_DELAY_SECONDS = 30 * 86_400
MAX_PENDING = 25
MAX_PER_DAY = 100
MOST_LISTED = 200
KEYS_KEPT = timedelta(hours=24)
_DAY = timedelta(hours=24)
_AT_ONCE = 200  # reminders that one sweep fires

Status = Reminder.Status


@dataclass(frozen=True, slots=True)
class NewReminder:
    """What is wanted, and when: `delay_seconds` from now, or at `fire_at` (aware). Optional values as on the row."""

    message: str
    delay_seconds: int | None = None
    fire_at: datetime | None = None
    model: str = ""
    timeout_seconds: int | None = None
    allowed_tools: list[str] | None = None


# -- the rules ------------------------------------------------------------------------------------
def fire_time(new: NewReminder, now: datetime) -> datetime:
    """When it is to fire. Raises Refused unless exactly one of the two times is given, a minute to thirty days ahead."""
    if new.delay_seconds is not None and new.fire_at is None:
        field, ahead = "delay_seconds", float(min(new.delay_seconds, MAX_DELAY_SECONDS + 1))
    elif new.fire_at is not None and new.delay_seconds is None:
        field, ahead = "fire_at", (new.fire_at - now).total_seconds()
    else:
        raise refusals.invalid(
            {
                "delay_seconds": ["must be given where fire_at is not, and only there"],
                "fire_at": ["must be given where delay_seconds is not, and only there"],
            }
        )
    if ahead < MIN_DELAY_SECONDS:
        raise refusals.invalid(
            {field: [f"must be at least {MIN_DELAY_SECONDS} seconds ahead"]},
            error="reminder_fire_too_soon",
            min_delay_seconds=MIN_DELAY_SECONDS,
        )
    if ahead > MAX_DELAY_SECONDS:
        raise refusals.invalid(
            {field: [f"must be at most {MAX_DELAY_SECONDS:,} seconds (30 days) ahead"]},
            error="reminder_fire_too_far",
            max_delay_seconds=MAX_DELAY_SECONDS,
        )
    return new.fire_at.astimezone(UTC) if new.fire_at is not None else now + timedelta(seconds=ahead)


def _check_timeout(agent: Agent, new: NewReminder) -> None:
    if new.timeout_seconds is not None and new.timeout_seconds > agent.timeout_seconds:
        raise refusals.invalid(
            {"timeout_seconds": [f"must be at most {agent.timeout_seconds:,}, the agent's own limit"]},
            error="reminder_timeout_exceeds_agent_cap",
            agent_cap_seconds=agent.timeout_seconds,
            requested_seconds=new.timeout_seconds,
        )


def _check_counts(agent: Agent, now: datetime) -> None:
    """The two limits on how many; under the agent's lock, so that no two requests pass the same one."""
    pending = list(_pending(agent).values_list("fire_at", flat=True))
    if len(pending) >= MAX_PENDING:
        raise refusals.too_many(
            f"The agent has {MAX_PENDING} pending reminders, the most allowed. Cancel one, or wait until one has fired.",
            _seconds_until(min(pending), now),
            error="reminder_pending_cap_reached",
            max_pending=MAX_PENDING,
        )
    lately = Reminder.objects.filter(agent=agent, created_at__gt=now - _DAY).order_by("created_at")
    times = list(lately.values_list("created_at", flat=True)[:MAX_PER_DAY])
    if len(times) >= MAX_PER_DAY:
        raise refusals.too_many(
            f"The agent has set {MAX_PER_DAY} reminders within 24 hours, the most allowed.",
            _seconds_until(times[0] + _DAY, now),
            error="reminder_daily_cap_reached",
            max_per_day=MAX_PER_DAY,
        )


def _seconds_until(moment: datetime, now: datetime) -> int:
    return max(1, math.ceil((moment - now).total_seconds()))


# -- setting, listing, cancelling -----------------------------------------------------------------
def set_reminder(
    caller: Caller, agent: Agent, new: NewReminder, now: datetime, *, idempotency_key: str | None = None
) -> Reminder:
    """Note one turn of the agent for later.

    The caller's access has been checked. Raises Refused: 400 for a time or timeout out of bounds, 429 at a limit, 409 where
    the key came with another body. The same key with the same body is answered with the reminder that it has set.
    """
    digest = _digest(agent, new)
    try:
        with transaction.atomic():
            locked = sql.lock_agent(agent.pk)
            if idempotency_key is not None and (earlier := _earlier(caller, idempotency_key, digest, now)):
                return earlier
            row = _checked_row(caller, locked, new, now)
            if idempotency_key is not None:
                row.idempotency_key, row.body_digest = idempotency_key, digest
            row.save(force_insert=True)
            audit.allowed(caller.name, caller.through, "reminder.create", row.pk)
            return row
    except IntegrityError:
        # The same key came in for another agent at the same time; for the same one the lock lets only one in.
        if idempotency_key is None or not (earlier := _earlier(caller, idempotency_key, digest, now)):
            raise
        return earlier
    except refusals.Refused as refusal:
        audit.refused(caller.name, caller.through, "reminder.create", agent.name, refusal.detail)
        raise


def _digest(agent: Agent, new: NewReminder) -> str:
    return hashlib.sha256(json.dumps([agent.pk, asdict(new)], sort_keys=True, default=str).encode()).hexdigest()


def _earlier(caller: Caller, key: str, digest: str, now: datetime) -> Reminder | None:
    """The reminder that this key has set in the last 24 hours; refused where it came with another body."""
    found = Reminder.objects.select_related("agent").filter(set_by=caller.name, idempotency_key=key).first()
    if found is None:
        return None
    if found.created_at <= now - KEYS_KEPT:
        Reminder.objects.filter(pk=found.pk).update(idempotency_key="")
        return None
    if found.body_digest != digest:
        raise refusals.conflict("This Idempotency-Key was used before, with another agent or other fields.")
    return found


def _checked_row(caller: Caller, agent: Agent, new: NewReminder, now: datetime) -> Reminder:
    if agent.deleted_at is not None:
        raise refusals.unknown("Agent")
    _check_timeout(agent, new)
    fire_at = fire_time(new, now)
    _check_counts(agent, now)
    return Reminder(
        agent=agent,
        set_by=caller.name,
        message=new.message,
        model=new.model,
        timeout_seconds=new.timeout_seconds,
        allowed_tools=new.allowed_tools,
        fire_at=fire_at,
        created_at=now,
    )


def _pending(agent: Agent) -> QuerySet[Reminder]:
    return Reminder.objects.filter(agent=agent, status=Status.PENDING)


def listed(agent: Agent, *, everything: bool) -> list[Reminder]:
    """The pending reminders, soonest first; with `everything` also the latest of those that are over, 200 in all at most."""
    rows = list(_pending(agent).select_related("agent"))
    if everything:
        over = Reminder.objects.filter(agent=agent).exclude(status=Status.PENDING).select_related("agent")
        rows += over.order_by("-fire_at", "-pk")[: MOST_LISTED - MAX_PENDING]
    return sorted(rows, key=lambda row: (row.fire_at, row.pk))


def named(agent: Agent, reminder_id: str) -> Reminder | None:
    """This agent's reminder of this id."""
    if not may_be_id(reminder_id):
        return None
    return Reminder.objects.select_related("agent").filter(agent=agent, pk=reminder_id).first()


def cancel_reminder(caller: Caller, reminder: Reminder, now: datetime) -> Reminder:
    """Take it back; one that is cancelled stays so. Raises Refused (409) where it has fired. The caller's access was checked."""
    with transaction.atomic():
        waiting = Reminder.objects.filter(pk=reminder.pk, status=Status.PENDING)
        if waiting.update(status=Status.CANCELLED, cancelled_at=now, cancelled_by=caller.name):
            audit.allowed(caller.name, caller.through, "reminder.cancel", reminder.pk)
        found = Reminder.objects.select_related("agent").get(pk=reminder.pk)
    if found.status == Status.FIRED:
        refusal = refusals.conflict("The reminder has fired; its execution can be cancelled instead.")
        audit.refused(caller.name, caller.through, "reminder.cancel", reminder.pk, refusal.detail)
        raise refusal
    return found


# -- the sweep's part -----------------------------------------------------------------------------
def fire_due(now: datetime) -> None:
    """Put the turn of every due reminder on the ledger, unless its agent's autonomy is off; a duty of the sweep."""
    due = Reminder.objects.filter(status=Status.PENDING, fire_at__lte=now, agent__autonomy=True, agent__deleted_at=None)
    for reminder_id, agent_id in due.order_by("fire_at", "pk").values_list("pk", "agent_id")[:_AT_ONCE]:
        _fire(reminder_id, agent_id, now)


def _fire(reminder_id: str, agent_id: int, now: datetime) -> None:
    with transaction.atomic():
        agent = sql.lock_agent(agent_id)
        if not agent.autonomy or agent.deleted_at is not None:
            return
        turn_id = new_id("exec")
        waiting = Reminder.objects.filter(pk=reminder_id, status=Status.PENDING)
        if not waiting.update(status=Status.FIRED, fired_at=now, execution_id=turn_id):
            return  # another sweep fired it, or it was cancelled
        reminder = Reminder.objects.get(pk=reminder_id)
        asker = f"agent:{agent.name}"
        turn = NewTurn(
            id=turn_id,
            agent_id=agent_id,
            triggered_by=Execution.Trigger.REMINDER,
            requested_by=asker,
            message=reminder.message,
            model=reminder.model,
            timeout_seconds=reminder.timeout_seconds,
            allowed_tools=reminder.allowed_tools,
        )
        executions.submit(turn, now)
        audit.allowed(asker, "engine", "execution.start", turn_id, f"reminder {reminder_id}")


def cancel_of_deleted(now: datetime) -> None:
    """Cancel what deleted agents had still to be reminded of; a duty of the sweep, which writes only when there is something."""
    orphaned = Reminder.objects.filter(status=Status.PENDING, agent__deleted_at__isnull=False)
    for reminder_id in list(orphaned.values_list("pk", flat=True)[:_AT_ONCE]):
        waiting = Reminder.objects.filter(pk=reminder_id, status=Status.PENDING)
        waiting.update(status=Status.CANCELLED, cancelled_at=now, cancelled_by="")
