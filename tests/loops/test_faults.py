"""Every fault in every state of a loop: what the page says right after it, and how the loop ends; and a crash between any two writes.

What needs no process is played on the ledger; the rest runs in real workers, sweeps and webs (tests.chaos.nursery).
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import django_rq
import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections
from django.utils import timezone

from agents import access, executions, keys, life, queue, worker
from agents.access import Verdict
from agents.harness import process
from agents.models import Agent, Audit, Execution, Share, Worker
from loops import engine, words
from loops.core.words import RunStatus
from loops.models import Loop
from loops.words.state import LoopFacts
from tests.chaos.nursery import Child, Nursery, until
from tests.chaos.services import free_port
from tests.conftest import caller
from tests.ledger import OWNER, bad, claim, ok, play, start

STATES = ("queued", "delay", "capacity", "in flight", "terminal")

# Bob, with whom the agent is shared, has started the loop of 2 runs (one run in `terminal`), and it is he who looks.
# fault -> for each of STATES: what the page says right after it | what it says when all has played on, and the runs it had
TABLE = {
    "stop": (
        "Stopped by you | Stopped by you 0",
        "Stopped by you | Stopped by you 1",
        "Stopped by you | Stopped by you 0",
        "Finishing run 1, then stopping | Stopped by you 1",
        "Done | Done 1",
    ),
    "stop twice by two people": (
        "Stopped by alice | Stopped by alice 0",
        "Stopped by alice | Stopped by alice 1",
        "Stopped by alice | Stopped by alice 0",
        "Finishing run 1, then stopping | Stopped by alice 1",
        "Done | Done 1",
    ),
    "agent stopped": (
        "Waiting for the agent | Done 2",
        "Waiting until | Done 2",
        "Waiting for the agent | Done 2",
        "Running | Done 2",
        "Done | Done 1",
    ),
    "agent deleted": (
        "Failed | Failed 0",
        "Failed | Failed 1",
        "Failed | Failed 0",
        "Running | Failed 1",
        "Done | Done 1",
    ),
    "rights removed": (
        "Queued | Done 2",
        "Waiting until | Done 2",
        "Waiting for a free slot | Done 2",
        "Running | Done 2",
        "Done | Done 1",
    ),
    "timeout lowered": (
        "Queued | Done 2",
        "Waiting until | Done 2",
        "Waiting for a free slot | Done 2",
        "Running | Done 2",
        "Done | Done 1",
    ),
    "web restart": (
        "Queued | Done 2",
        "Waiting until | Done 2",
        "Waiting for a free slot | Done 2",
        "Running | Done 2",
        "Done | Done 1",
    ),
    "worker kill": (
        "Queued | Done 2",
        "Waiting until | Done 2",
        "Waiting for a free slot | Done 2",
        "Running | Done 2",
        "Done | Done 1",
    ),
    "Redis wipe": (
        "Queued | Done 2",
        "Waiting until | Done 2",
        "Waiting for a free slot | Done 2",
        "Running | Done 2",
        "Done | Done 1",
    ),
    "database restart": (
        "Queued | Done 2",
        "Waiting until | Done 2",
        "Waiting for a free slot | Done 2",
        "Running | Done 2",
        "Done | Done 1",
    ),
}
WITH_PROCESSES = ("web restart", "worker kill", "Redis wipe", "database restart")

# Where a process dies between two writes (agents.failpoint), and what reaches that place. `@2` = the second time.
# One slot: the next run waits in the line and another loop's is claimed. Three: it is inserted running.
CRASHES = [
    ("claim.execution", 3),
    ("claim.run", 3),
    ("save.loop", 3),
    ("claim.written", 3),
    ("claim.committed", 3),
    ("finish.begun", 3),
    ("finish.execution", 3),
    ("finish.run", 3),
    ("finish.done", 3),
    ("save.loop@3", 3),
    ("finish.told", 3),
    ("finish.written", 3),
    ("finish.committed", 3),
    ("finish.done@3", 3),
    ("finish.told@4", 3),
    ("finish.next_queued", 1),
    ("claim.execution@2", 1),
    ("claim.run@2", 1),
    ("finish.written@2", 1),
    ("finish.committed@2", 1),
]


def pairs(faults: list[str]) -> list[tuple[str, str, str]]:
    return [(state, fault, TABLE[fault][STATES.index(state)]) for fault in faults for state in STATES]


# -- what a person sees and what is kept ----------------------------------------------------------------
def said(loop: Loop) -> str:
    """The words of the loop's status, as bob reads them; times are cut off."""
    loop.refresh_from_db()
    run = loop.runs.filter(status=RunStatus.RUNNING).first()
    facts = LoopFacts.of(loop, run, agent_timeout=loop.agent.timeout_seconds)
    text = words.status_words(facts, "bob").text
    return text.partition(" (by")[0].partition("until")[0] + ("until" if "until" in text else "")


def is_consistent(loop: Loop) -> None:
    """The rows of a loop that has ended agree with each other."""
    loop.refresh_from_db()
    runs = list(loop.runs.order_by("run_number").select_related("execution"))
    assert [run.run_number for run in runs] == list(range(1, loop.runs_completed + 1))
    assert all(run.execution.is_over and run.completed_at for run in runs)
    assert {turn.pk for turn in Execution.objects.filter(loop_id=loop.pk, started_at__isnull=False)} == {
        run.execution_id for run in runs
    }
    assert not Execution.objects.filter(loop_id=loop.pk, state__in=["queued", "running"]).exists()
    assert loop.spend == sum(run.cost or 0 for run in runs)
    assert (loop.waiting_for, loop.wake_at) == ("", None)
    events = list(loop.events.order_by("version").values_list("type", flat=True))
    assert events[0] == "loop_started" and events[-1] == "loop_completed" and events.count("loop_completed") == 1
    assert events.count("loop_run_started") == len(runs)
    trail = Counter(Audit.objects.filter(target=loop.pk, verdict="allowed").values_list("action", flat=True))
    assert (trail["loop.start"], trail["loop.end"]) == (1, 1)


# -- pairs without a process ----------------------------------------------------------------------------
@dataclass
class Stage:
    """A loop in a state, on the ledger alone; `turn` is what a slot holds: the loop's own run, or another loop's."""

    cast: SimpleNamespace
    loop: Loop
    now: datetime
    turn: executions.Turn | None = None
    other: Loop | None = None

    def play_on(self) -> None:
        """Be the worker and the sweep, an hour at a time, until the loop has ended."""
        for _ in range(20):
            if self.turn is not None:
                self.turn = executions.finish(self.turn, ok(), OWNER, self.now)
                continue
            self.loop.refresh_from_db()
            if not self.loop.is_active:
                return
            self.now += timedelta(hours=1)
            engine.wake_due(self.now)
            engine.end_overdue(self.now)
            self.turn = claim(self.cast.falcon, self.now)
        raise AssertionError("it does not end")


def staged(cast: SimpleNamespace, state: str, now: datetime) -> Stage:
    falcon, bob = cast.falcon, caller(cast.bob)
    life.change(falcon, {"max_parallel_tasks": 1}, caller(cast.alice))
    if state == "capacity":
        other = start(caller(cast.alice), falcon, now, max_runs=1)
        turn = claim(falcon, now)
        return Stage(cast, start(bob, falcon, now, max_runs=2), now, turn, other)
    loop = start(
        bob, falcon, now, max_runs=1 if state == "terminal" else 2, delay_seconds=600 if state == "delay" else 0
    )
    if state == "queued":
        return Stage(cast, loop, now)
    if state == "in flight":
        return Stage(cast, loop, now, claim(falcon, now))
    assert play(falcon, now, ok()) is None
    return Stage(cast, loop, now)


def strike(stage: Stage, fault: str) -> None:
    """Do it, and look at once at what only this fault has."""
    cast, loop, now = stage.cast, stage.loop, stage.now
    over = not loop.is_active
    match fault:
        case "stop":
            assert engine.request_stop(caller(cast.bob), loop.pk, now) == ("already_done" if over else "stopping")
        case "stop twice by two people":
            for who in (cast.alice, cast.bob):
                engine.request_stop(caller(who), loop.pk, now)
        case "agent stopped":
            life.stop(cast.falcon, caller(cast.alice), now)
        case "agent deleted":
            life.delete(cast.falcon, caller(cast.alice), now)
        case "rights removed":
            Share.objects.filter(user=cast.bob).delete()
        case "timeout lowered":
            life.change(cast.falcon, {"timeout_seconds": 60}, caller(cast.alice))


@pytest.mark.parametrize(("state", "fault", "due"), pairs([fault for fault in TABLE if fault not in WITH_PROCESSES]))
def test_what_a_fault_does_to_a_loop(cast, now, state, fault, due):
    stage = staged(cast, state, now)
    stage.loop.refresh_from_db()
    before = said(stage.loop), stage.loop.version
    strike(stage, fault)
    after = said(stage.loop)
    if fault == "agent stopped":
        if stage.turn is not None:  # what is in flight finishes, and nothing else begins
            assert executions.finish(stage.turn, ok(), OWNER, now) is None
            stage.turn = None
        engine.wake_due(now + timedelta(hours=1))
        assert claim(cast.falcon, now) is None
        if state != "terminal":
            assert said(stage.loop) == "Waiting for the agent"
        life.start(cast.falcon, caller(cast.alice), now + timedelta(hours=1))
    stage.play_on()
    assert f"{after} | {said(stage.loop)} {stage.loop.runs_completed}" == due
    is_consistent(stage.loop)
    if state == "terminal":
        assert (said(stage.loop), stage.loop.version) == before


@pytest.mark.parametrize("state", STATES)
def test_whose_rights_are_removed_may_follow_what_they_started_and_start_nothing(cast, now, state):
    stage = staged(cast, state, now)
    strike(stage, "rights removed")
    bob = caller(cast.bob)
    assert access.use_agent(bob, cast.falcon) is Verdict.FORBIDDEN
    assert engine.may_follow(bob, stage.loop) is Verdict.ALLOWED
    if stage.other is not None:
        assert engine.may_follow(bob, stage.other) is Verdict.FORBIDDEN
    assert engine.may_follow(caller(cast.carol), stage.loop) is Verdict.FORBIDDEN


@pytest.mark.parametrize("state", [state for state in STATES if state != "terminal"])
def test_a_lowered_timeout_holds_from_the_next_run_on(cast, now, state):
    stage = staged(cast, state, now)
    before = worker.order_of(stage.turn).timeout_seconds if stage.turn else None
    strike(stage, "timeout lowered")
    if stage.turn is not None:
        assert worker.order_of(stage.turn).timeout_seconds == before == 3600
        stage.turn = executions.finish(stage.turn, ok(), OWNER, now)
    else:
        engine.wake_due(now + timedelta(hours=1))
        stage.turn = claim(cast.falcon, now)
    assert worker.order_of(stage.turn).timeout_seconds == 60


@pytest.mark.parametrize("state", STATES)
def test_a_deleted_agent_is_named_as_the_reason(cast, now, state):
    stage = staged(cast, state, now)
    strike(stage, "agent deleted")
    stage.play_on()
    stage.loop.refresh_from_db()
    assert stage.loop.error == ("" if state == "terminal" else "the agent was deleted")
    if state == "in flight":
        assert stage.loop.runs.get().execution.state == "cancelled"


@pytest.mark.parametrize(
    ("step", "due"),
    [
        (timedelta(days=-1), "Done"),
        (timedelta(seconds=-1), "Done"),
        (timedelta(0), "Stopped — time limit reached"),
        (timedelta(days=1), "Stopped — time limit reached"),
    ],
)
def test_a_clock_that_is_moved_between_two_decisions_breaks_nothing(cast, now, step, due):
    limits = {"delay_seconds": 60, "max_duration_seconds": 7200, "no_progress_threshold": 0}
    loop = start(caller(cast.bob), cast.falcon, now, max_runs=3, **limits)
    turn = claim(cast.falcon, now)
    moved = now + step
    assert executions.finish(turn, ok(), OWNER, moved) is None
    if loop_waits := said(loop) == "Waiting until":
        assert loop.wake_at == moved + timedelta(seconds=60) and loop.elapsed_seconds(moved) == 0
        Stage(cast, loop, moved).play_on()  # an hour at a time: the third run would begin at the second full hour
    assert said(loop) == due and loop_waits == (step < timedelta(hours=2))
    is_consistent(loop)


# -- with real processes --------------------------------------------------------------------------------
NOTE = "import os, time; open('calls', 'a').write(os.environ['TRINITY_LOOP_ID'] + ' ' + os.environ['TRINITY_RUN'] + '\\n'); "
HELD = "exec(\"while not os.path.exists('go'): time.sleep(0.02)\"); "
SAY = "print('run', os.environ['TRINITY_RUN'])"


@pytest.fixture(scope="module")
def nursery(django_db_setup, valkey):
    with Nursery(str(connection.settings_dict["NAME"]), Path(settings.TRINITY_DATA)) as found:
        yield found


@pytest.fixture
def parts(nursery, transactional_db):
    django_rq.get_queue(queue.QUEUE).empty()
    yield nursery
    nursery.end_all()
    process.end_leftovers(set(Execution.objects.values_list("id", flat=True)), 0)


@pytest.fixture
def falcon(parts, cast) -> Agent:
    """The agent of the cast, with a program that does what its message says, and one slot."""
    command = [sys.executable, "-c", "import sys; exec(sys.stdin.read())"]
    Agent.objects.filter(pk=cast.falcon.pk).update(command=command, max_parallel_tasks=1)
    cast.falcon.refresh_from_db()
    cast.falcon.workspace.mkdir(parents=True, exist_ok=True)
    for name in ("calls", "go"):
        (cast.falcon.workspace / name).unlink(missing_ok=True)
    return cast.falcon


def begin(who, agent: Agent, code: str, **body: object) -> Loop:
    return start(caller(who), agent, timezone.now(), message=NOTE + code, **body)


def calls(agent: Agent, loop: Loop) -> list[str]:
    """The runs of the loop whose agent was really called, in that order."""
    file = agent.workspace / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.partition(" ")[2] for line in lines if line.startswith(loop.pk)]


def waits(loop: Loop, words_said: str) -> None:
    until(lambda: said(loop) == words_said, what=f"it never said {words_said!r}, but {said(loop)!r}")


def ends(loop: Loop) -> None:
    def over() -> bool:
        loop.refresh_from_db()
        return not loop.is_active

    until(over, 30, "it does not end")


def staged_with_processes(parts: Nursery, cast: SimpleNamespace, state: str, fault: str) -> tuple[Loop, Child | None]:
    """A loop in a state, and the worker that holds it or would; a run that is in flight waits for the file `go`."""
    falcon, bob = cast.falcon, cast.bob
    if state == "queued":
        if fault != "worker kill":
            return begin(bob, falcon, SAY, max_runs=2), None
        held = parts.worker()
        until(Worker.objects.exists)
        held.freeze()  # the bell may reach it, but it will answer no more
        return begin(bob, falcon, SAY, max_runs=2), held
    held = parts.worker()
    if state == "capacity":
        other = begin(cast.alice, falcon, HELD + SAY, max_runs=1)
        until(lambda: calls(falcon, other))
        return begin(bob, falcon, SAY, max_runs=2), held
    if state == "in flight":
        loop = begin(bob, falcon, HELD + SAY, max_runs=2)
        until(lambda: calls(falcon, loop))
    elif state == "delay":
        loop = begin(bob, falcon, SAY, max_runs=2, delay_seconds=1)
        waits(loop, "Waiting until")
    else:
        loop = begin(bob, falcon, SAY, max_runs=1)
        ends(loop)
    return loop, held


class Web:
    """A web process on a port of its own, asked by bob."""

    def __init__(self, parts: Nursery, bob) -> None:
        self.parts, self.port, self.key = parts, free_port(), keys.issue(bob, name="test")[1]
        self.process = parts.web(self.port)

    def restart(self) -> None:
        self.process.kill()
        self.process = self.parts.web(self.port)

    def status(self, loop: Loop) -> dict:
        """The status object, without what changes by the second."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/loops/{loop.pk}", headers={"Authorization": f"Bearer {self.key}"}
        )

        def answer() -> bytes:
            try:
                with urllib.request.urlopen(request, timeout=5) as reply:
                    return reply.read()
            except urllib.error.HTTPError:
                raise
            except (ConnectionError, urllib.error.URLError):  # nobody listens yet
                return b""

        return {**json.loads(until(answer)), "elapsed_seconds": None}


def restart_database() -> None:
    """What a restart is to its clients: every session is cut off, also ours. SQLite has none but ours."""
    if connection.vendor == "postgresql":
        parameters = {
            name: value for name, value in connection.get_connection_params().items() if name != "cursor_factory"
        }
        with psycopg.connect(**parameters, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connection.close()
        connection.close_pool()
    connections.close_all()


@pytest.mark.parametrize(("state", "fault", "due"), pairs(list(WITH_PROCESSES)))
def test_what_a_fault_of_a_part_does_to_a_loop(parts, cast, falcon, state, fault, due):
    loop, held = staged_with_processes(parts, cast, state, fault)
    waits(loop, due.partition(" | ")[0])
    version = loop.version
    web = Web(parts, cast.bob) if fault == "web restart" else None
    before = web.status(loop) if web else None
    match fault:
        case "web restart":
            web.restart()
            assert web.status(loop) == before
        case "worker kill" if held is not None:
            held.kill()
            held = None
        case "Redis wipe":
            django_rq.get_connection(queue.QUEUE).flushdb()
        case "database restart":
            restart_database()
    after = said(loop)
    parts.sweep()
    if held is None:
        parts.worker()
    (falcon.workspace / "go").touch()
    ends(loop)
    assert f"{after} | {said(loop)} {loop.runs_completed}" == due
    assert calls(falcon, loop) == [str(run) for run in range(1, loop.runs_completed + 1)]
    is_consistent(loop)
    if state == "terminal":
        time.sleep(1.2)  # a beat and a sweep that look at what is over
        loop.refresh_from_db()
        assert loop.version == version
    if web:
        assert web.status(loop)["status"] == "completed"


# -- a crash between any two writes -----------------------------------------------------------------------
def all_went_well(falcon: Agent, *loops: Loop) -> None:
    """Both runs of each, each called once and counted once; no other process is called for than was promised."""
    for loop in loops:
        ends(loop)
        assert (loop.status, loop.stop_reason, loop.runs_completed) == ("completed", "max_runs_reached", 2)
        assert calls(falcon, loop) == ["1", "2"]
        assert [run.execution.response for run in loop.runs.order_by("run_number")] == ["run 1\n", "run 2\n"]
        is_consistent(loop)


@pytest.mark.parametrize(("failpoint", "slots"), CRASHES)
def test_a_worker_that_dies_between_two_writes_loses_and_repeats_nothing(parts, cast, falcon, failpoint, slots):
    life.change(falcon, {"max_parallel_tasks": slots}, caller(cast.alice))
    loops = [begin(cast.bob, falcon, SAY, max_runs=2) for _ in range(2)]
    first = parts.worker(failpoint=failpoint)
    until(lambda: not first.state, what=f"{failpoint} is never reached")
    parts.sweep()
    parts.worker()
    all_went_well(falcon, *loops)
    attempts = set(Execution.objects.values_list("attempt", flat=True))
    assert attempts <= ({1, 2} if "committed" in failpoint else {1})


@pytest.mark.parametrize("failpoint", ["wake.taken", "save.loop", "wake.submitted"])
def test_a_sweep_that_dies_while_it_wakes_a_loop_loses_no_waking(parts, cast, falcon, failpoint):
    parts.worker()
    loop = begin(cast.bob, falcon, SAY, max_runs=2, delay_seconds=1)
    waits(loop, "Waiting until")
    first = parts.sweep(failpoint=failpoint)
    until(lambda: not first.state, what=f"{failpoint} is never reached")
    assert said(loop) == "Waiting until"
    parts.sweep()
    all_went_well(falcon, loop)


@pytest.mark.parametrize(("second", "attempts"), [("adopt.committed", 2), ("again.committed", 3)])
def test_an_heir_that_dies_while_it_adopts_has_an_heir_too(parts, cast, falcon, second, attempts):
    loop = begin(cast.bob, falcon, SAY, max_runs=2)
    for failpoint in ("claim.committed", second):
        dying = parts.worker(failpoint=failpoint)
        until(lambda dying=dying: not dying.state, what=f"{failpoint} is never reached")
    parts.worker()
    all_went_well(falcon, loop)
    assert loop.runs.get(run_number=1).execution.attempt == attempts


def test_an_heir_that_dies_after_it_adopted_a_running_turn_lets_it_run(parts, cast, falcon):
    loop = begin(cast.bob, falcon, HELD + SAY, max_runs=2)
    first = parts.worker()
    until(lambda: calls(falcon, loop))
    first.kill()
    second = parts.worker(failpoint="adopt.committed")
    until(lambda: not second.state)
    parts.worker()
    (falcon.workspace / "go").touch()
    all_went_well(falcon, loop)
    assert loop.runs.get(run_number=1).execution.fence >= 3


def test_a_connection_that_breaks_while_a_turn_is_adopted_costs_no_slot(parts, cast, falcon):
    """Many times over, as each may cost the only slot of the heir; SQLite has no connection that could break."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has sessions that can be cut off")
    loop = begin(cast.bob, falcon, HELD + SAY, max_runs=2)
    first = parts.worker()
    until(lambda: calls(falcon, loop))
    parts.worker(slots=1)
    first.kill()
    for _ in range(20):
        restart_database()
        time.sleep(0.1)
    (falcon.workspace / "go").touch()
    all_went_well(falcon, loop)


def test_a_worker_frozen_between_two_writes_holds_nobody_up_for_long(parts, cast, falcon):
    """PostgreSQL ends its transaction and with it its locks. SQLite cannot: there a frozen writer must be thawed or killed."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL ends the transaction of a client that is silent")
    life.change(falcon, {"max_parallel_tasks": 2}, caller(cast.alice))
    loop, other = begin(cast.bob, falcon, SAY, max_runs=2), begin(cast.bob, falcon, HELD + SAY, max_runs=2)
    frozen = parts.worker(failpoint="finish.execution STOP")
    until(lambda: frozen.state == "T", what="it is never frozen")
    parts.sweep()
    parts.worker()
    asked = time.monotonic()
    engine.request_stop(caller(cast.bob), other.pk, timezone.now())
    assert time.monotonic() - asked < 12
    all_went_well(falcon, loop)
    assert time.monotonic() - asked < 15
    frozen.thaw()
    (falcon.workspace / "go").touch()
    ends(other)
    assert (other.stop_reason, calls(falcon, other)) == ("user_stopped", ["1"])


def test_a_worker_with_one_slot_adopts_and_runs_nothing_beside_what_it_adopted(parts, cast, falcon):
    life.change(falcon, {"max_parallel_tasks": 2}, caller(cast.alice))
    abandoned = begin(cast.bob, falcon, HELD + SAY, max_runs=2)
    first = parts.worker(slots=1)
    until(lambda: calls(falcon, abandoned))
    first.kill()
    parts.worker(slots=1)
    until(lambda: Execution.objects.get().fence == 2, what="it is not adopted")
    later = begin(cast.bob, falcon, SAY, max_runs=2)
    until(lambda: django_rq.get_queue(queue.QUEUE).count == 1, what="the bell is not given back")
    assert calls(falcon, later) == []
    (falcon.workspace / "go").touch()
    all_went_well(falcon, abandoned, later)


# -- what a crash once broke ----------------------------------------------------------------------------
def test_a_cancelled_turn_that_was_adopted_is_closed_as_cancelled(cast, now):
    loop = start(caller(cast.bob), cast.falcon, now, on_failure="continue")
    turn = claim(cast.falcon, now)
    assert executions.cancel(turn.execution.pk, "alice", now) == "cancelling"
    heir = executions.adopt(turn.execution.pk, turn.fence, "host/boot/2/2", now)
    executions.finish(heir, bad("ended by SIGTERM"), "host/boot/2/2", now)
    row = Execution.objects.get(pk=turn.execution.pk)
    assert (row.state, row.error) == ("cancelled", "Cancelled by alice.")
    assert loop.runs.get(run_number=1).error == "Cancelled by alice."


def test_a_run_that_waited_for_the_agents_lock_does_not_begin_before_the_one_before_has_ended(cast, now):
    loop = start(caller(cast.bob), cast.falcon, now)
    turn = claim(cast.falcon, now)
    later = now + timedelta(seconds=1)
    executions.finish(turn, ok(), OWNER, later, keep_slot=False)
    heir = claim(cast.falcon, now)  # its clock was read before it waited for the lock
    one, two = loop.runs.order_by("run_number")
    assert one.completed_at == two.started_at == heir.execution.started_at == later


def test_an_end_that_is_told_again_because_its_answer_was_lost_is_no_late_result(cast, now):
    loop = start(caller(cast.bob), cast.falcon, now)
    turn = claim(cast.falcon, now)
    for _ in range(2):
        executions.finish(turn, ok("a"), OWNER, now)
    assert Execution.objects.get(pk=turn.execution.pk).late_result == ""
    loop.refresh_from_db()
    assert loop.runs_completed == 1
