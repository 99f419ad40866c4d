"""Stop in every state, cutting a run off, and what the agent's own life does to its loops."""

from datetime import timedelta

import pytest

from agents import executions, life
from agents.models import Audit, Execution
from loops import engine
from tests.conftest import caller
from tests.ledger import OWNER, bad, claim, ok, play, start
from tests.loops.test_engine_runs import end, types


def test_stop_before_the_first_run_ends_at_once_with_none(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    assert engine.request_stop(caller(cast.bob), loop.pk, now) == "stopping"
    assert end(loop) == ("stopped", "user_stopped", 0)
    assert loop.stopped_by == "bob" and not loop.runs.exists()
    assert Execution.objects.get().state == "cancelled"
    assert claim(cast.falcon, now) is None


def test_stop_lets_the_run_in_flight_finish(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    assert engine.request_stop(caller(cast.alice), loop.pk, now) == "stopping"
    assert end(loop)[0] == "running"
    assert executions.finish(turn, ok("kept"), OWNER, now) is None
    assert end(loop) == ("stopped", "user_stopped", 1) and loop.runs.get().response_preview == "kept"


def test_stop_during_the_delay_ends_at_once(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, delay_seconds=600)
    play(cast.falcon, now, ok())
    engine.request_stop(caller(cast.alice), loop.pk, now)
    assert end(loop) == ("stopped", "user_stopped", 1)
    engine.wake_due(now + timedelta(hours=1))
    assert not Execution.objects.filter(state="queued").exists()


def test_the_first_who_stops_is_remembered_and_told_once(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    claim(cast.falcon, now)
    for who in (cast.bob, cast.alice, cast.root):
        assert engine.request_stop(caller(who), loop.pk, now) == "stopping"
    loop.refresh_from_db()
    assert loop.stopped_by == "bob" and types(loop).count("loop_stop_requested") == 1
    assert Audit.objects.filter(action="loop.stop").count() == 3


def test_stop_of_an_ended_loop_changes_nothing(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok())
    before = end(loop), loop.version
    assert engine.request_stop(caller(cast.alice), loop.pk, now) == "already_done"
    assert (end(loop), loop.version) == before


def test_stop_during_the_last_run_does_not_hide_that_it_was_the_last(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    turn = claim(cast.falcon, now)
    engine.request_stop(caller(cast.alice), loop.pk, now)
    executions.finish(turn, ok(), OWNER, now)
    assert end(loop) == ("completed", "max_runs_reached", 1)


@pytest.mark.parametrize("policy", ["abort", "continue"])
def test_cutting_the_run_off_while_a_stop_is_pending_ends_stopped(cast, now, policy):
    loop = start(caller(cast.alice), cast.falcon, now, on_failure=policy)
    turn = claim(cast.falcon, now)
    engine.request_stop(caller(cast.alice), loop.pk, now)
    assert executions.cancel(turn.execution.pk, "alice", now) == "cancelling"
    executions.finish(turn, bad("killed"), OWNER, now)
    assert end(loop) == ("stopped", "user_stopped", 1) and loop.failed_runs == 0
    assert Execution.objects.get(pk=turn.execution.pk).state == "cancelled"


def test_cutting_a_run_off_without_a_stop_is_a_failed_run(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    executions.cancel(turn.execution.pk, "bob", now)
    executions.finish(turn, ok("too late"), OWNER, now)
    assert end(loop) == ("failed", "error", 1) and "Cancelled by bob" in loop.error


def test_cancelling_a_run_that_waits_fails_it_before_it_began(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, on_failure="continue")
    assert executions.cancel(Execution.objects.get().pk, "bob", now) == "cancelled"
    loop.refresh_from_db()
    assert (loop.runs_completed, loop.failed_runs, loop.status) == (1, 1, "running")
    assert types(loop)[:3] == ["loop_started", "loop_run_started", "loop_run_failed"] and loop.started_at == now
    assert claim(cast.falcon, now).execution.variables["TRINITY_RUN"] == "2"


def test_cancelling_what_is_over_changes_nothing(cast, now):
    start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok())
    assert executions.cancel(Execution.objects.get().pk, "bob", now) is None


# -- the agent's life -------------------------------------------------------------------------------
def test_a_stopped_agent_makes_its_loops_wait_and_a_start_lets_them_go_on(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    life.stop(cast.falcon, caller(cast.alice), now)
    assert executions.finish(turn, ok(), OWNER, now) is None
    loop.refresh_from_db()
    assert (loop.status, loop.waiting_for, loop.runs_completed) == ("running", "agent", 1)
    assert claim(cast.falcon, now) is None
    life.start(cast.falcon, caller(cast.alice), now)
    loop.refresh_from_db()
    assert loop.waiting_for == ""
    assert claim(cast.falcon, now).execution.loop_id == loop.pk


def test_stopping_the_agent_marks_a_run_that_waits_already(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    life.stop(cast.falcon, caller(cast.alice), now)
    loop.refresh_from_db()
    assert loop.waiting_for == "agent" and "loop_waiting" in types(loop)


def test_the_clock_goes_on_while_the_agent_is_stopped(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, timeout_per_run=10, max_duration_seconds=10)
    turn = claim(cast.falcon, now)
    life.stop(cast.falcon, caller(cast.alice), now)
    executions.finish(turn, ok(), OWNER, now)
    engine.end_overdue(now + timedelta(seconds=10))
    assert end(loop) == ("stopped", "deadline_exceeded", 1)


def test_stop_works_while_the_agent_is_stopped(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    life.stop(cast.falcon, caller(cast.alice), now)
    engine.request_stop(caller(cast.alice), loop.pk, now)
    assert end(loop) == ("stopped", "user_stopped", 0)


def test_deleting_the_agent_ends_what_waits_at_once_and_what_runs_with_its_run(cast, now):
    running = start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    parked = start(caller(cast.alice), cast.falcon, now)
    life.delete(cast.falcon, caller(cast.alice), now)
    assert end(parked) == ("failed", "error", 0) and parked.error == "the agent was deleted"
    assert Execution.objects.get(pk=turn.execution.pk).cancelled_by == "alice"
    executions.finish(turn, bad("killed"), OWNER, now)
    assert end(running) == ("failed", "error", 1) and running.error == "the agent was deleted"


def test_a_lowered_timeout_holds_from_the_next_run_on(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    life.change(cast.falcon, {"timeout_seconds": 60}, caller(cast.alice))
    following = executions.finish(turn, ok(), OWNER, now)
    assert turn.agent.timeout_seconds == 3600 and following.agent.timeout_seconds == 60
