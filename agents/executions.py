"""The ledger's verbs: every change of an execution's state, each one short transaction and a compare-and-set (architecture 2).

Whoever changes an execution locks its agent's row first (`submit` and the owner's own `renew`, `adopt`, `let_go`,
each of one row or one owner, excepted). What follows from a turn is the observer's business: this module knows no loops.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Protocol

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils.module_loading import import_string

from agents import queue, sql
from agents.failpoint import failpoint
from agents.harness.contract import Result
from agents.ids import may_be_id, new_id
from agents.models import Agent, Execution

State = Execution.State


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn to be put on the ledger. Optional values as on the row; `id` made beforehand where another row points to it."""

    agent_id: int
    triggered_by: str
    requested_by: str
    message: str
    id: str = ""
    depth: int = 0
    model: str = ""
    timeout_seconds: int | None = None
    allowed_tools: list[str] | None = None
    session_id: str = ""
    loop_id: str = ""
    variables: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A claimed turn, as the slot that runs it needs it: its row, its agent, and the fence it is run under."""

    execution: Execution
    agent: Agent
    fence: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn that is over, as an observer is told of it. `cut_off` = a person ended it."""

    execution_id: str
    loop_id: str
    succeeded: bool
    response: str
    error: str
    cost: Decimal | None
    duration_ms: int | None
    cut_off: bool


class Observer(Protocol):
    """Who is told of a turn's life, inside the transaction that changes it and with the agent locked."""

    def claimed(self, execution: Execution, now: datetime) -> None:
        """A slot has begun with it."""

    def put_back(self, execution: Execution, agent: Agent, now: datetime) -> None:
        """Its host has vanished, and it waits in the line again."""

    def finished(self, ended: Ended, agent: Agent, now: datetime, starts_now: bool) -> NewTurn | None:
        """It is over. A turn that is returned is put on the ledger: running in the same slot if `starts_now`, else queued."""


@cache
def _observer(trigger: str) -> Observer | None:
    path = settings.EXECUTION_OBSERVERS.get(trigger)
    return import_string(path) if path else None


def _lease(now: datetime) -> datetime:
    return now + timedelta(seconds=settings.TRINITY_LEASE_SECONDS)


def _row(new: NewTurn, now: datetime) -> Execution:
    return Execution(
        id=new.id or new_id("exec"),
        agent_id=new.agent_id,
        triggered_by=new.triggered_by,
        requested_by=new.requested_by,
        depth=new.depth,
        message=new.message,
        model=new.model,
        timeout_seconds=new.timeout_seconds,
        allowed_tools=new.allowed_tools,
        session_id=new.session_id,
        loop_id=new.loop_id,
        variables=new.variables or {},
        created_at=now,
    )


def named(execution_id: str) -> Execution | None:
    """The execution of this id, with its agent."""
    if not may_be_id(execution_id):
        return None
    return Execution.objects.select_related("agent").filter(pk=execution_id).first()


# -- coming in ------------------------------------------------------------------------------------
def submit(new: NewTurn, now: datetime) -> Execution:
    """Put a turn in its agent's line, and ring once this is committed."""
    row = _row(new, now)
    row.save(force_insert=True)
    queue.ring_after_commit(row.pk)
    return row


def claim(execution_id: str, owner: str, now: datetime) -> Turn | None:
    """Answer a bell: take the head of that execution's agent's line, if the agent runs and has a free slot.

    The head need not be the execution that rang: each one in the line has rung once, and the line is served in order.
    """
    agent_id = Execution.objects.filter(pk=execution_id).values_list("agent_id", flat=True).first()
    if agent_id is None:
        return None
    with transaction.atomic():
        turn = _claim_next(sql.lock_agent(agent_id), owner, now)
        failpoint("claim.written")
    failpoint("claim.committed")
    return turn


def _claim_next(agent: Agent, owner: str, now: datetime) -> Turn | None:
    if agent.status != Agent.Status.RUNNING or agent.deleted_at is not None:
        return None
    head = sql.claim_head(agent, owner, _lease(now), now)
    if head is None:
        return None
    failpoint("claim.execution")
    execution = Execution.objects.get(pk=head)
    if observer := _observer(execution.triggered_by):
        observer.claimed(execution, max(now, execution.created_at))  # as in `claim_head`
    return Turn(execution, agent, execution.fence, execution.attempt)


# -- while it runs --------------------------------------------------------------------------------
def renew(owner: str, now: datetime) -> int:
    """Push out the leases of all turns of this owner; how many it holds."""
    return Execution.objects.filter(owner=owner, state=State.RUNNING).update(lease_until=_lease(now))


def let_go(owner: str, now: datetime) -> int:
    """Give up the leases of this owner, which leaves; its turns go on, and whoever is on this host adopts them."""
    return Execution.objects.filter(owner=owner, state=State.RUNNING).update(lease_until=now)


def adoptable(host: str, owner: str) -> list[tuple[str, str, int, datetime]]:
    """Turns of this host that another owner holds: (id, owner, fence, lease_until), oldest first."""
    rows = Execution.objects.filter(state=State.RUNNING, owner__startswith=f"{host}/").exclude(owner=owner)
    found = rows.order_by("id").values_list("id", "owner", "fence", "lease_until")
    return [(execution_id, holder, fence, until) for execution_id, holder, fence, until in found if until is not None]


def held_by(owner: str) -> list[tuple[str, int]]:
    """The turns that the ledger gives to this owner, with their fences."""
    return list(Execution.objects.filter(state=State.RUNNING, owner=owner).values_list("id", "fence"))


def adopt(execution_id: str, fence: int, owner: str, now: datetime) -> Turn | None:
    """Take over a turn from an owner that is dead or late, raising the fence; None where somebody was faster."""
    took = Execution.objects.filter(pk=execution_id, fence=fence, state=State.RUNNING).update(
        fence=F("fence") + 1, owner=owner, lease_until=_lease(now)
    )
    if not took:
        return None
    failpoint("adopt.committed")
    execution = Execution.objects.select_related("agent").get(pk=execution_id)
    return Turn(execution, execution.agent, fence + 1, execution.attempt)


def begin_again(turn: Turn) -> Turn | None:
    """Count another attempt of a turn whose process vanished without a recorded end; None when the fence has moved on."""
    raised = Execution.objects.filter(pk=turn.execution.pk, fence=turn.fence, state=State.RUNNING).update(
        attempt=F("attempt") + 1
    )
    if not raised:
        return None
    failpoint("again.committed")
    turn.execution.attempt = turn.attempt + 1
    return replace(turn, attempt=turn.attempt + 1)


def holds(turn: Turn) -> bool:
    """Is this turn still run under this fence, or has another owner taken it over?"""
    return Execution.objects.filter(pk=turn.execution.pk, fence=turn.fence, state=State.RUNNING).exists()


def cancelled_of(owner: str) -> list[str]:
    """Turns of this owner that somebody has cancelled and whose processes are to be ended."""
    rows = Execution.objects.filter(owner=owner, state=State.RUNNING).exclude(cancelled_by="")
    return list(rows.values_list("id", flat=True))


# -- going out ------------------------------------------------------------------------------------
def finish(turn: Turn, result: Result, owner: str, now: datetime, *, keep_slot: bool = True) -> Turn | None:
    """Close a turn, let its observer decide what follows, and claim the next turn for this slot: one transaction.

    Returns the turn that this slot runs next, if any. A result whose fence has moved on changes nothing but `late_result`.
    """
    execution = _closed(turn, result, now)
    failpoint("finish.begun")
    with transaction.atomic():
        agent = sql.lock_agent(execution.agent_id)
        if not (sql.close_execution(execution, turn.fence) or _close_cancelled(execution, turn.fence)):
            _keep_late(execution, turn.fence)
            return None
        failpoint("finish.execution")
        following = _follow(execution, agent, owner, now, keep_slot)
        failpoint("finish.written")
    failpoint("finish.committed")
    return following


def _follow(execution: Execution, agent: Agent, owner: str, now: datetime, keep_slot: bool) -> Turn | None:
    """Tell the observer of a turn that is closed now, put what follows on the ledger, and fill the slot that it leaves."""
    starts_now = keep_slot and _has_slot_for_next(agent)
    follower = _tell(execution, agent, now, starts_now)
    failpoint("finish.told")
    if follower is not None and starts_now:
        return _insert_running(follower, agent, owner, now)
    if follower is not None:
        _row(follower, now).save(force_insert=True)
        failpoint("finish.next_queued")
    if keep_slot:
        return _claim_next(agent, owner, now)
    _ring_head(agent)
    return None


def _has_slot_for_next(agent: Agent) -> bool:
    """May the next turn of the same chain go straight into the slot that has just ended? Not if somebody waits longer."""
    if agent.status != Agent.Status.RUNNING or agent.deleted_at is not None:
        return False
    return not agent.somebody_waits and agent.slots_taken <= agent.max_parallel_tasks


def _closed(turn: Turn, result: Result, now: datetime) -> Execution:
    """The execution's row with the result in it, not yet saved."""
    execution = turn.execution
    execution.state = State.SUCCESS if result.succeeded else State.FAILED
    execution.response = result.response
    execution.response_truncated = result.response_truncated
    execution.error = result.error
    execution.cost = result.cost
    execution.reported_session = result.session_id[:200]
    execution.reported_model = result.model[:200]
    execution.usage = result.usage
    execution.duration_ms = result.duration_ms
    execution.finished_at = now
    if execution.cancelled_by:
        _as_cancelled(execution)
    return execution


def _as_cancelled(execution: Execution) -> None:
    execution.state = State.CANCELLED
    execution.error = f"Cancelled by {execution.cancelled_by}."


def _close_cancelled(execution: Execution, fence: int) -> bool:
    """Close a turn that a person cut off meanwhile: it is cancelled, whatever its process still said."""
    by = Execution.objects.filter(pk=execution.pk, fence=fence, state=State.RUNNING).values_list(
        "cancelled_by", flat=True
    )
    execution.cancelled_by = by.first() or ""
    if not execution.cancelled_by:
        return False
    _as_cancelled(execution)
    return sql.close_execution(execution, fence)


def _keep_late(execution: Execution, fence: int) -> None:
    """Keep what a worker brought after it had lost the turn, where a person can see it; it counts for nothing.

    The very same under the same fence is no late result: the worker's own commit, whose answer was lost with the connection.
    """
    said = json.dumps({"state": execution.state, "error": execution.error, "response": execution.response[-2000:]})
    own = {"fence": fence, "state": execution.state, "error": execution.error, "response": execution.response}
    Execution.objects.filter(pk=execution.pk, late_result="").exclude(**own).update(late_result=said)


def _tell(execution: Execution, agent: Agent, now: datetime, starts_now: bool) -> NewTurn | None:
    observer = _observer(execution.triggered_by)
    if observer is None:
        return None
    ended = Ended(
        execution_id=execution.pk,
        loop_id=execution.loop_id,
        succeeded=execution.state == State.SUCCESS,
        response=execution.response,
        error=execution.error,
        cost=execution.cost,
        duration_ms=execution.duration_ms,
        cut_off=bool(execution.cancelled_by),
    )
    return observer.finished(ended, agent, now, starts_now)


def _insert_running(new: NewTurn, agent: Agent, owner: str, now: datetime) -> Turn:
    """Insert a turn already claimed, in the slot that its predecessor has just left: no bell, no second commit."""
    row = _row(new, now)
    row.state, row.fence, row.attempt = State.RUNNING, 1, 1
    row.owner, row.lease_until, row.started_at = owner, _lease(now), now
    row.save(force_insert=True)
    return Turn(row, agent, 1, 1)


def _ring_head(agent: Agent) -> None:
    head = Execution.objects.filter(agent=agent, state=State.QUEUED).order_by("id").values_list("id", flat=True).first()
    if head:
        queue.ring_after_commit(head)


def ring_line(agent: Agent) -> None:
    """Ring for as many of the agent's line as it has free slots; after its slots or its status have changed."""
    taken = Execution.objects.filter(agent=agent, state=State.RUNNING).count()
    free = agent.max_parallel_tasks - taken
    if free > 0:
        line = Execution.objects.filter(agent=agent, state=State.QUEUED).order_by("id").values_list("id", flat=True)
        for execution_id in line[:free]:
            queue.ring_after_commit(execution_id)


def withdraw(execution_id: str, now: datetime) -> bool:
    """Take a turn out of the line without telling its observer, who asks for it; the agent must be locked."""
    return bool(
        Execution.objects.filter(pk=execution_id, state=State.QUEUED).update(state=State.CANCELLED, finished_at=now)
    )


def cancel(execution_id: str, by: str, now: datetime) -> str | None:
    """Cut a turn off: `cancelled` when it had not begun, `cancelling` when its process is being ended, None when it is over."""
    agent_id = Execution.objects.values_list("agent_id", flat=True).get(pk=execution_id)
    with transaction.atomic():
        agent = sql.lock_agent(agent_id)
        return cancel_locked(Execution.objects.get(pk=execution_id), agent, by, now)


def cancel_locked(execution: Execution, agent: Agent, by: str, now: datetime) -> str | None:
    """`cancel` for who holds the agent's lock already."""
    if execution.state == State.RUNNING:
        Execution.objects.filter(pk=execution.pk, cancelled_by="").update(cancelled_by=by)
        return "cancelling"
    if execution.state != State.QUEUED:
        return None
    execution.state, execution.cancelled_by, execution.finished_at = State.CANCELLED, by, now
    execution.error = f"Cancelled by {by} before it began."
    execution.save(update_fields=["state", "cancelled_by", "finished_at", "error"])
    follower = _tell(execution, agent, now, starts_now=False)
    if follower is not None:
        submit(follower, now)
    return "cancelled"


# -- the sweep's part -----------------------------------------------------------------------------
def reclaim_lost(living_hosts: set[str], now: datetime) -> int:
    """Put the turns of vanished hosts back in the line: their lease is over and none of their host's workers is alive.

    A turn of a living host is left to that host, which alone can tell whether its process still runs.
    """
    count = 0
    overdue = Execution.objects.filter(state=State.RUNNING, lease_until__lt=now).values_list(
        "id", "owner", "fence", "agent_id"
    )
    for execution_id, owner, fence, agent_id in overdue[:200]:
        if owner.partition("/")[0] not in living_hosts:
            with transaction.atomic():
                count += _put_back(execution_id, fence, sql.lock_agent(agent_id), now)
    return count


def _put_back(execution_id: str, fence: int, agent: Agent, now: datetime) -> int:
    """Queue a lost turn again; one that was cut off, whose agent is gone, or that was lost too often is closed instead."""
    execution = Execution.objects.filter(pk=execution_id, fence=fence, state=State.RUNNING).first()
    if execution is None:
        return 0
    if execution.cancelled_by or agent.deleted_at or execution.attempt >= settings.TRINITY_MAX_ATTEMPTS:
        _fail_lost(execution, agent, now)
        return 0
    execution.state, execution.owner, execution.lease_until = State.QUEUED, "", None
    execution.save(update_fields=["state", "owner", "lease_until"])
    if observer := _observer(execution.triggered_by):
        observer.put_back(execution, agent, now)
    queue.ring_after_commit(execution_id)
    return 1


LOST = "The turn was lost: its process vanished without a recorded end, {attempts} times."


def _fail_lost(execution: Execution, agent: Agent, now: datetime) -> None:
    turn = Turn(execution, agent, execution.fence, execution.attempt)
    finish(turn, Result(succeeded=False, error=LOST.format(attempts=execution.attempt)), "", now, keep_slot=False)


def unheard(older_than: datetime, limit: int) -> list[str]:
    """Queued turns whose bell seems lost: they have waited a while though their agent runs and has a free slot.

    At most as many of each agent as it has free slots, oldest first, so that a long line hides nobody else's.
    """
    agents = Agent.objects.living().filter(status=Agent.Status.RUNNING, executions__state=State.QUEUED).distinct()
    found: list[str] = []
    for agent_id, most in agents.order_by("pk").values_list("pk", "max_parallel_tasks"):
        free = most - Execution.objects.filter(agent=agent_id, state=State.RUNNING).count()
        if free > 0:
            line = Execution.objects.filter(agent=agent_id, state=State.QUEUED).order_by("pk")
            found += [pk for pk, born in line.values_list("pk", "created_at")[:free] if born < older_than]
        if len(found) >= limit:
            break
    return found[:limit]


def over_among(ids: list[str]) -> set[str]:
    """Which of these turns are over; what carries the mark of one is a left-over."""
    return set(Execution.objects.filter(pk__in=ids, finished_at__isnull=False).values_list("id", flat=True))
