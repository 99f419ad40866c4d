"""The one writer of a loop's state: starts it, stops it, and does what the core decides after every run (architecture 3).

Every entry locks the agent's row, reads the loop, decides, writes, and leaves the bell and the hint for after the commit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.functions import Coalesce

from agents import access, audit, executions, hints, refusals, sql
from agents.access import Caller
from agents.executions import Ended, NewTurn
from agents.failpoint import failpoint
from agents.ids import may_be_id, new_id
from agents.models import Agent, Execution, User
from loops import sql as loop_sql
from loops.core import facts as core
from loops.core import prompt
from loops.core.decide import Decision, Finish, StartRun, Wait, deadline, decide
from loops.core.facts import Facts, Outcome
from loops.core.spec import Invalid, MessageSpec, check_against_agent
from loops.core.words import ACTIVE, LoopStatus, OnFailure, RunStatus, StopReason, WaitingFor
from loops.models import Loop, LoopEvent, LoopRun, StartKey

PREVIEW = 500  # characters of a response that lists show
EVENTS_KEPT = timedelta(days=1)
START_KEYS_KEPT = timedelta(hours=24)
DELETED = "the agent was deleted"


# -- what the core needs to know ------------------------------------------------------------------
def spec_of(loop: Loop) -> MessageSpec:
    """The loop's limits as the core reads them."""
    return MessageSpec(
        message=loop.message,
        max_runs=loop.max_runs,
        stop_signal=loop.stop_signal or None,
        delay_seconds=loop.delay_seconds,
        timeout_per_run=loop.timeout_per_run,
        max_duration_seconds=loop.max_duration_seconds,
        max_cost_usd=loop.max_cost_usd,
        no_progress_threshold=loop.no_progress_threshold,
        on_failure=OnFailure(loop.on_failure),
        max_consecutive_failures=loop.max_consecutive_failures,
        model=loop.model or None,
        allowed_tools=None if loop.allowed_tools is None else tuple(loop.allowed_tools),
    )


def facts_of(loop: Loop) -> Facts:
    """The loop's past as the core reads it."""
    return Facts(
        runs_completed=loop.runs_completed,
        failed_runs=loop.failed_runs,
        failure_streak=loop.failure_streak,
        same_replies=loop.same_replies,
        fingerprint=loop.fingerprint,
        spend=loop.spend,
        unknown_cost_runs=loop.unknown_cost_runs,
        carry=loop.carry,
        started_at=loop.started_at,
        stop_requested=loop.stop_requested_at is not None,
    )


@dataclass(slots=True)
class _Change:
    """A loop that is being changed in the open transaction, with the events to be told of it."""

    loop: Loop
    now: datetime
    seen_version: int
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def of(cls, loop: Loop, now: datetime) -> _Change:
        return cls(loop, now, loop.version)

    def tell(self, type: str, **data: Any) -> None:
        self.events.append((type, data))

    def save(self) -> None:
        """Write the loop and its events, each event under a version of its own, and hint after the commit."""
        loop = self.loop
        loop.version = self.seen_version + max(1, len(self.events))
        if not loop_sql.save_loop(loop, self.seen_version):
            raise RuntimeError(f"{loop.pk} was changed without its agent's lock")
        failpoint("save.loop")
        _store_events(loop, self.events, self.seen_version + 1, self.now)


def _store_events(loop: Loop, events: list[tuple[str, dict[str, Any]]], first: int, now: datetime) -> None:
    LoopEvent.objects.bulk_create(
        LoopEvent(loop=loop, version=first + place, type=type, data=data, created_at=now)
        for place, (type, data) in enumerate(events)
    )
    hints.say("loop", loop.pk, agent=loop.agent_id, version=loop.version)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _money(cost: Decimal | None) -> float | None:
    return None if cost is None else float(cost)


# -- starting -------------------------------------------------------------------------------------
def create_loop(
    caller: Caller, agent: Agent, spec: MessageSpec, now: datetime, *, idempotency_key: str | None = None
) -> Loop:
    """Start a loop: its row, its first run and that run's turn, in one transaction.

    The caller's access to the agent has been checked. Raises Refused: 409 where the agent does not run, the key was used with
    another body or the depth is over; 429 at a limit; 400 for the rules that need the agent.
    """
    digest = _digest(agent, spec)
    try:
        with transaction.atomic():
            if idempotency_key is not None and (earlier := _earlier(caller, idempotency_key, digest)):
                return earlier
            locked = sql.lock_agent(agent.pk)
            # Looked up again: who came first with this key may have held the lock until now.
            if idempotency_key is not None and (earlier := _earlier(caller, idempotency_key, digest)):
                return earlier
            User.objects.select_for_update(no_key=True).get(pk=caller.user.pk)  # after the agent's, always
            _check_start(caller, locked, spec, now)
            loop = _insert_loop(caller, locked, spec, now)
            if idempotency_key is not None:
                StartKey.objects.create(
                    caller=caller.identity, key=idempotency_key, body_digest=digest, loop=loop, created_at=now
                )
            audit.allowed(caller.name, caller.through, "loop.start", loop.pk)
            return loop
    except IntegrityError:
        # The same key came in at the same time: the other request has made the loop.
        earlier = _earlier(caller, idempotency_key, digest) if idempotency_key is not None else None
        if earlier is None:
            raise
        return earlier
    except refusals.Refused as refusal:
        audit.refused(caller.name, caller.through, "loop.start", agent.name, refusal.detail)
        raise


def _digest(agent: Agent, spec: MessageSpec) -> str:
    fields = {name: repr(getattr(spec, name)) for name in MessageSpec.__dataclass_fields__}  # None is not "None"
    return hashlib.sha256(json.dumps([agent.pk, fields], sort_keys=True).encode()).hexdigest()


def _earlier(caller: Caller, key: str, digest: str) -> Loop | None:
    """The loop that this key has started; refused where it came with another body."""
    used = StartKey.objects.select_related("loop__agent").filter(caller=caller.identity, key=key).first()
    if used is None:
        return None
    if used.body_digest != digest:
        raise refusals.conflict("This Idempotency-Key was used before, with another agent or other fields.")
    return used.loop


def _check_start(caller: Caller, agent: Agent, spec: MessageSpec, now: datetime) -> None:
    """The rules that need the agent and the other loops; under both locks, so that no two starts pass the same limit."""
    if agent.deleted_at is not None:
        raise refusals.unknown("Agent")
    try:
        check_against_agent(spec, agent.timeout_seconds)
    except Invalid as bad:
        raise refusals.invalid(bad.errors, **bad.facts) from bad
    if agent.status != Agent.Status.RUNNING:
        raise refusals.conflict("The agent is not running. Start it first.")
    if _depth(caller) > settings.TRINITY_MAX_LOOP_DEPTH:
        most = settings.TRINITY_MAX_LOOP_DEPTH
        raise refusals.conflict(f"A loop started from inside loops may be {most} deep at most.")
    active = Loop.objects.active()
    if active.filter(agent=agent).count() >= settings.TRINITY_MAX_ACTIVE_PER_AGENT:
        most = settings.TRINITY_MAX_ACTIVE_PER_AGENT
        raise refusals.too_many(
            f"The agent has {most} active loops, the most allowed. Wait for one to end or stop one.", 30
        )
    if active.filter(starter=caller.user).count() >= settings.TRINITY_MAX_ACTIVE_PER_USER:
        most = settings.TRINITY_MAX_ACTIVE_PER_USER
        raise refusals.too_many(f"You have {most} active loops, the most allowed. Wait for one to end or stop one.", 30)
    lately = Loop.objects.filter(starter=caller.user, created_at__gt=now - timedelta(minutes=1)).count()
    if lately >= settings.TRINITY_MAX_STARTS_PER_MINUTE:
        most = settings.TRINITY_MAX_STARTS_PER_MINUTE
        raise refusals.too_many(f"You have started {most} loops within a minute, the most allowed.", 60)


def _depth(caller: Caller) -> int:
    return caller.execution.depth + 1 if caller.execution else 0


def _insert_loop(caller: Caller, agent: Agent, spec: MessageSpec, now: datetime) -> Loop:
    loop = Loop(
        agent=agent,
        starter=caller.user,
        starter_agent=caller.agent,
        started_by=caller.name,
        depth=_depth(caller),
        message=spec.message,
        max_runs=spec.max_runs,
        stop_signal=spec.stop_signal or "",
        delay_seconds=spec.delay_seconds,
        timeout_per_run=spec.timeout_per_run,
        max_duration_seconds=spec.max_duration_seconds,
        max_cost_usd=spec.max_cost_usd,
        no_progress_threshold=spec.no_progress_threshold,
        on_failure=spec.on_failure,
        max_consecutive_failures=spec.max_consecutive_failures,
        model=spec.model or "",
        allowed_tools=None if spec.allowed_tools is None else list(spec.allowed_tools),
        created_at=now,
    )
    turn = _turn(loop, 1)
    loop.waiting_for = _queue_reason(agent)
    events = [("loop_started", {"max_runs": loop.max_runs})]
    if loop.waiting_for:
        events.append(_waiting_event(loop))
    loop.version = len(events)
    loop.save(force_insert=True)
    executions.submit(turn, now)
    LoopRun.objects.create(loop=loop, run_number=1, execution_id=turn.id)
    _store_events(loop, events, 1, now)
    return loop


def _turn(loop: Loop, number: int) -> NewTurn:
    """The turn of run `number`."""
    return NewTurn(
        id=new_id("exec"),
        agent_id=loop.agent_id,
        triggered_by=Execution.Trigger.LOOP,
        requested_by=loop.started_by,
        depth=loop.depth,
        message=prompt.render(loop.message, number, loop.carry),
        model=loop.model,
        timeout_seconds=loop.timeout_per_run,
        allowed_tools=loop.allowed_tools,
        loop_id=loop.pk,
        variables={"TRINITY_RUN": str(number), "TRINITY_MAX_RUNS": str(loop.max_runs)},
    )


def _queue_reason(agent: Agent) -> str:
    """What a turn that is put in the line now waits for; nothing where a slot is free for it."""
    if agent.status != Agent.Status.RUNNING:
        return WaitingFor.AGENT
    free = agent.slots_taken < agent.max_parallel_tasks and not agent.somebody_waits
    return "" if free else WaitingFor.CAPACITY


def _waiting_event(loop: Loop) -> tuple[str, dict[str, Any]]:
    return "loop_waiting", {"waiting_for": loop.waiting_for, "next_run_at": _time(loop.wake_at)}


# -- the ledger tells -----------------------------------------------------------------------------
class LoopObserver:
    """Hears of the turns that loops have asked for (agents.executions.Observer)."""

    def claimed(self, execution: Execution, now: datetime) -> None:
        """A run begins; the first one starts the loop's clock."""
        loop = loop_sql.loop_of_turn(execution.loop_id, execution.pk)
        change = _Change.of(loop, now)
        begun = Coalesce(
            "started_at", now
        )  # a run that is repeated after its host had vanished began when it first did
        LoopRun.objects.filter(pk=loop.run_id).update(status=RunStatus.RUNNING, started_at=begun)
        failpoint("claim.run")
        _begin_run(change, loop.run_number, execution.pk)
        change.save()

    def put_back(self, execution: Execution, agent: Agent, now: datetime) -> None:
        """The run waits again, to be repeated under its number; so Stop, deadline and a stopped agent act on it at once."""
        loop = loop_sql.loop_of_turn(execution.loop_id, execution.pk)
        change = _Change.of(loop, now)
        LoopRun.objects.filter(pk=loop.run_id).update(status=RunStatus.WAITING)
        loop.waiting_for = _queue_reason(agent) or WaitingFor.CAPACITY
        change.events.append(_waiting_event(loop))
        change.save()

    def finished(self, ended: Ended, agent: Agent, now: datetime, starts_now: bool) -> NewTurn | None:
        """A run is over: close it, decide, and hand back the next turn or end the loop."""
        loop = loop_sql.loop_of_turn(ended.loop_id, ended.execution_id)
        if loop.status not in ACTIVE:
            return None
        outcome = Outcome(
            run_number=loop.run_number,
            succeeded=ended.succeeded,
            response=ended.response,
            error=ended.error,
            cost=ended.cost,
            cut_off=ended.cut_off,
        )
        change = _Change.of(loop, now)
        if loop.run_status == RunStatus.WAITING:  # cut off before a slot had it: a run that began and failed at once
            _begin_run(change, loop.run_number, ended.execution_id)
        _close_run(change, ended, outcome)
        failpoint("finish.run")
        counted = core.after(facts_of(loop), outcome)
        verdict = _verdict(agent, spec_of(loop), counted, now)
        if isinstance(verdict, Finish) and not verdict.tolerated:
            counted = replace(counted, failed_runs=loop.failed_runs)
        _write_facts(loop, counted, ended)
        turn = _do(change, verdict, counted, agent, starts_now)
        failpoint("finish.done")
        change.save()
        return turn


observer = LoopObserver()


def _verdict(agent: Agent, spec: MessageSpec, facts: Facts, now: datetime) -> Decision:
    if agent.deleted_at is not None:
        return Finish(LoopStatus.FAILED, StopReason.ERROR, tolerated=False)
    return decide(spec, facts, now)


def _begin_run(change: _Change, number: int, execution_id: str) -> None:
    loop = change.loop
    loop.status, loop.waiting_for = LoopStatus.RUNNING, ""
    if loop.started_at is None:
        loop.started_at = change.now
        loop.deadline_at = deadline(spec_of(loop), change.now)
    change.tell("loop_run_started", run_number=number, execution_id=execution_id)


def _close_run(change: _Change, ended: Ended, outcome: Outcome) -> None:
    loop = change.loop
    run = LoopRun(
        status=RunStatus.COMPLETED if outcome.succeeded else RunStatus.FAILED,
        response_preview=outcome.response[:PREVIEW],
        cost=outcome.cost,
        duration_ms=ended.duration_ms,
        error=outcome.error,
        started_at=change.now,
        completed_at=change.now,
    )
    loop_sql.close_run(loop.run_id, run)
    said = {
        "run_number": outcome.run_number,
        "execution_id": ended.execution_id,
        "cost": _money(outcome.cost),
        "duration_ms": ended.duration_ms,
    }
    if outcome.succeeded:
        change.tell("loop_run_completed", **said)
    else:
        change.tell("loop_run_failed", **said, error=outcome.error)


def _write_facts(loop: Loop, facts: Facts, ended: Ended) -> None:
    loop.runs_completed = facts.runs_completed
    loop.failed_runs = facts.failed_runs
    loop.failure_streak = facts.failure_streak
    loop.same_replies = facts.same_replies
    loop.fingerprint = facts.fingerprint
    loop.spend = facts.spend
    loop.unknown_cost_runs = facts.unknown_cost_runs
    loop.carry = facts.carry
    if ended.succeeded:
        loop.last_success_id = ended.execution_id


# -- doing what was decided -----------------------------------------------------------------------
def _do(change: _Change, verdict: Decision, facts: Facts, agent: Agent, starts_now: bool = False) -> NewTurn | None:
    """Carry a decision out on the loop; the turn that is to be put on the ledger, if any."""
    match verdict:
        case Finish():
            _finish(change, verdict, facts, agent)
            return None
        case Wait(until=until):
            change.loop.wake_at, change.loop.waiting_for = until, WaitingFor.DELAY
            change.events.append(_waiting_event(change.loop))
            return None
        case StartRun(number=number):
            return _dispatch(change, number, agent, starts_now)


def _dispatch(change: _Change, number: int, agent: Agent, starts_now: bool) -> NewTurn:
    """Insert run `number`: running already in the slot that is free for it, or waiting."""
    loop = change.loop
    turn = _turn(loop, number)
    LoopRun.objects.create(
        loop=loop,
        run_number=number,
        execution_id=turn.id,
        status=RunStatus.RUNNING if starts_now else RunStatus.WAITING,
        started_at=change.now if starts_now else None,
    )
    if starts_now:
        _begin_run(change, number, turn.id)
    else:
        loop.waiting_for = _queue_reason(agent)
        if loop.waiting_for:
            change.events.append(_waiting_event(loop))
    return turn


def _finish(change: _Change, verdict: Finish, facts: Facts, agent: Agent) -> None:
    """End the loop; its last run has been closed or taken back."""
    loop, last = change.loop, facts.last
    loop.status, loop.stop_reason = verdict.status, verdict.reason
    loop.waiting_for, loop.wake_at, loop.completed_at = "", None, change.now
    if verdict.reason is StopReason.STOP_SIGNAL_MATCHED and last is not None:
        loop.stop_run, loop.stop_excerpt = last.run_number, core.excerpt(last.response, loop.stop_signal)
    if agent.deleted_at is not None:
        loop.error = DELETED
    elif verdict.status is LoopStatus.FAILED and last is not None:
        loop.error = f"Run {last.run_number}: {last.error}"
    change.tell(
        "loop_completed",
        status=loop.status,
        stop_reason=loop.stop_reason,
        runs_completed=loop.runs_completed,
        failed_runs=loop.failed_runs,
    )
    actor = loop.stopped_by if verdict.reason is StopReason.USER_STOPPED else loop.started_by
    audit.allowed(actor, "engine", "loop.end", loop.pk, str(verdict.reason))


# -- stopping, waking, running out of time --------------------------------------------------------
def request_stop(caller: Caller, loop_id: str, now: datetime) -> str:
    """Ask a loop to end: `stopping`, or `already_done`. The run in flight finishes; a loop between runs ends at once.

    The caller's access has been checked. The first who asks is remembered; asking again changes nothing.
    """
    agent_id = Loop.objects.values_list("agent_id", flat=True).get(pk=loop_id)
    with transaction.atomic():
        agent = sql.lock_agent(agent_id)
        loop = Loop.objects.get(pk=loop_id)
        audit.allowed(caller.name, caller.through, "loop.stop", loop_id)
        if not loop.is_active:
            return "already_done"
        change = _Change.of(loop, now)
        if loop.stop_requested_at is None:
            loop.stop_requested_at, loop.stopped_by = now, caller.name
            change.tell("loop_stop_requested", stopped_by=caller.name)
        if _take_back_waiting_run(loop, now):
            facts = facts_of(loop)
            _do(change, decide(spec_of(loop), facts, now), facts, agent)
        if change.events:
            change.save()
        return "stopping"


def _take_back_waiting_run(loop: Loop, now: datetime) -> bool:
    """Remove the run that has not begun, if there is one; False where a run is in flight."""
    live = LoopRun.objects.filter(loop=loop, status__in=[RunStatus.WAITING, RunStatus.RUNNING]).first()
    if live is None:
        return True
    if live.status == RunStatus.RUNNING:
        return False
    executions.withdraw(live.execution_id, now)
    live.delete()
    return True


def wake_due(now: datetime) -> None:
    """Look again at every loop whose delay is over; a duty of the sweep."""
    due = Loop.objects.filter(wake_at__lte=now).order_by("wake_at").values_list("pk", "agent_id", "wake_at")
    for loop_id, agent_id, seen in due[:500]:
        if seen is not None:
            _wake(loop_id, agent_id, seen, now)


def _wake(loop_id: str, agent_id: int, seen: datetime, now: datetime) -> None:
    with transaction.atomic():
        agent = sql.lock_agent(agent_id)
        if not loop_sql.take_wake(loop_id, seen):
            return
        failpoint("wake.taken")
        loop = Loop.objects.get(pk=loop_id)
        change, facts = _Change.of(loop, now), facts_of(loop)
        turn = _do(change, _verdict(agent, spec_of(loop), facts, now), facts, agent)
        change.save()
        if turn is not None:
            executions.submit(turn, now)
            failpoint("wake.submitted")


def end_overdue(now: datetime) -> None:
    """End loops whose time is over while they wait for a slot or for the agent; a duty of the sweep."""
    overdue = (
        Loop.objects.active()
        .filter(deadline_at__lte=now, wake_at=None)
        .exclude(pk__in=LoopRun.objects.filter(status=RunStatus.RUNNING).values("loop"))
    )
    for loop_id, agent_id in overdue.values_list("pk", "agent_id")[:500]:
        with transaction.atomic():
            agent = sql.lock_agent(agent_id)
            loop = Loop.objects.get(pk=loop_id)
            facts = facts_of(loop)
            verdict = _verdict(agent, spec_of(loop), facts, now)
            if not (loop.is_active and isinstance(verdict, Finish) and _take_back_waiting_run(loop, now)):
                continue
            change = _Change.of(loop, now)
            _do(change, verdict, facts, agent)
            change.save()


def forget_old(now: datetime) -> None:
    """Drop events and idempotency keys whose time is over; a duty of the sweep, which writes only when there is something."""
    for old in (
        LoopEvent.objects.filter(created_at__lt=now - EVENTS_KEPT),
        StartKey.objects.filter(created_at__lt=now - START_KEYS_KEPT),
    ):
        if old.exists():
            old.delete()


def agent_changed(agent: Agent, now: datetime) -> None:
    """An agent was started, stopped or deleted; its row is locked."""
    if agent.deleted_at is not None:
        _end_all(agent, now)
        return
    free = agent.max_parallel_tasks - agent.slots_taken
    line = LoopRun.objects.filter(loop__agent=agent, status=RunStatus.WAITING).order_by("execution_id")
    for place, run in enumerate(line.select_related("loop")):
        loop, waits_for = run.loop, WaitingFor.AGENT if agent.status != Agent.Status.RUNNING else WaitingFor.CAPACITY
        change = _Change.of(loop, now)
        loop.waiting_for = waits_for if waits_for is WaitingFor.AGENT or place >= free else ""
        if loop.waiting_for:
            change.events.append(_waiting_event(loop))
        change.save()


def _end_all(agent: Agent, now: datetime) -> None:
    """End the loops of a deleted agent that have no run in flight; the others end with their run, which is being cut off."""
    for loop in Loop.objects.active().filter(agent=agent):
        if _take_back_waiting_run(loop, now):
            change, facts = _Change.of(loop, now), facts_of(loop)
            _do(change, _verdict(agent, spec_of(loop), facts, now), facts, agent)
            change.save()


def loop_named(loop_id: str) -> Loop | None:
    """The loop of this id with its agent and that agent's owner."""
    if not may_be_id(loop_id):
        return None
    return Loop.objects.select_related("agent__owner").filter(pk=loop_id).first()


def may_follow(caller: Caller, loop: Loop | None) -> access.Verdict:
    """May the caller read and stop this loop?"""
    if loop is None:
        return access.Verdict.UNKNOWN
    return access.follow_loop(caller, loop.agent, loop.starter_id, loop.starter_agent_id is not None)
