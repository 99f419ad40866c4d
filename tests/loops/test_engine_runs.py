"""The engine from the first run to the last: what is written after each run, in which state, and what follows."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.db.models import Sum

from agents import executions, life, refusals
from agents.access import Caller
from agents.models import Audit, Execution
from loops import engine
from loops.core import spec
from loops.models import Loop, LoopEvent, LoopRun
from tests.conftest import caller
from tests.ledger import OWNER, bad, claim, ok, play, start


def end(loop: Loop) -> tuple:
    loop.refresh_from_db()
    return loop.status, loop.stop_reason, loop.runs_completed


def types(loop: Loop) -> list[str]:
    return list(loop.events.order_by("version").values_list("type", flat=True))


def test_a_started_loop_is_queued_with_one_turn_in_the_line(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = Execution.objects.get(loop_id=loop.pk)
    assert (loop.status, loop.started_at, loop.waiting_for) == ("queued", None, "")
    assert (turn.state, turn.triggered_by, turn.message) == ("queued", "loop", "work")
    assert turn.variables == {"TRINITY_RUN": "1", "TRINITY_MAX_RUNS": "3"}
    assert types(loop) == ["loop_started"]


def test_the_first_claim_starts_the_clock(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_duration_seconds=3600)
    claim(cast.falcon, now + timedelta(minutes=5))
    loop.refresh_from_db()
    assert loop.status == "running" and loop.started_at == now + timedelta(minutes=5)
    assert loop.deadline_at == loop.started_at + timedelta(seconds=3600)


def test_three_runs_follow_each_other_in_one_slot(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    assert play(cast.falcon, now, ok("a"), ok("b"), ok("c")) is None
    assert end(loop) == ("completed", "max_runs_reached", 3)
    assert list(loop.runs.order_by("run_number").values_list("run_number", "status")) == [
        (1, "completed"),
        (2, "completed"),
        (3, "completed"),
    ]
    assert loop.last_success.response == "c"
    assert types(loop) == ["loop_started", *["loop_run_started", "loop_run_completed"] * 3, "loop_completed"]
    assert loop.version == LoopEvent.objects.filter(loop=loop).order_by("-version").first().version


def test_the_next_message_carries_the_last_successful_answer(cast, now):
    start(caller(cast.alice), cast.falcon, now, message="{{run}}:{{previous_response}}", on_failure="continue")
    play(cast.falcon, now, ok("first {{run}}"), bad("broken"))
    assert Execution.objects.order_by("-id").first().message == "3:first {{run}}"


def test_a_stop_signal_ends_with_its_proof(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, stop_signal="[[DONE]]")
    play(cast.falcon, now, ok("not yet"), ok("all 3 pass. [[DONE]]"))
    assert end(loop) == ("completed", "stop_signal_matched", 2)
    assert loop.stop_run == 2 and "[[DONE]]" in loop.stop_excerpt


def test_an_abort_loop_ends_with_the_first_failure_and_names_it(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    play(cast.falcon, now, bad("the disk is full"))
    assert end(loop) == ("failed", "error", 1)
    assert loop.failed_runs == 0 and loop.error == "Run 1: the disk is full"


def test_the_failure_that_ends_a_tolerant_loop_is_not_counted_as_tolerated(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=9, on_failure="continue", max_consecutive_failures=2)
    play(cast.falcon, now, bad(), ok(), bad(), bad())
    assert end(loop) == ("failed", "max_consecutive_failures", 4) and loop.failed_runs == 2


def test_spend_is_the_sum_of_what_the_rows_report(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=9, max_cost_usd=0.3, on_failure="continue")
    play(cast.falcon, now, ok("a", "0.1"), bad("b", "0.1"), ok("c"), ok("d", "0.1"))
    assert end(loop) == ("stopped", "budget_exhausted", 4)
    assert loop.spend == loop.runs.aggregate(Sum("cost"))["cost__sum"] == Decimal("0.3") and loop.unknown_cost_runs == 1


def test_a_run_with_more_than_the_preview_keeps_its_whole_response(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok("x" * 501))
    run = loop.runs.get()
    assert run.response_preview == "x" * 500 and run.execution.response == "x" * 501


def test_the_end_is_on_the_trail_with_its_reason(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok())
    rows = Audit.objects.filter(target=loop.pk).order_by("id").values_list("actor", "through", "action", "reason")
    assert list(rows) == [("alice", "rest", "loop.start", ""), ("alice", "engine", "loop.end", "max_runs_reached")]


# -- twice, late, overlapping -----------------------------------------------------------------------
def test_the_same_end_told_twice_advances_once(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    executions.finish(turn, ok("a"), OWNER, now)
    assert executions.finish(turn, ok("again"), OWNER, now) is None
    loop.refresh_from_db()
    assert loop.runs_completed == 1 and loop.runs.count() == 2
    assert "again" in Execution.objects.get(pk=turn.execution.pk).late_result


def test_a_result_brought_under_an_old_fence_counts_for_nothing(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    late = claim(cast.falcon, now)
    heir = executions.adopt(late.execution.pk, late.fence, "host/boot/2/2", now)
    assert executions.finish(late, ok("late"), OWNER, now) is None
    loop.refresh_from_db()
    assert loop.runs_completed == 0
    executions.finish(heir, ok("heir"), "host/boot/2/2", now)
    assert loop.runs.get(run_number=1).response_preview == "heir"


def test_the_database_refuses_a_second_live_run_and_a_doubled_number(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = executions.submit(engine._turn(loop, 2), now)
    for number in (1, 2):
        with pytest.raises(IntegrityError), transaction.atomic():
            LoopRun.objects.create(loop=loop, run_number=number, execution=turn)


def test_a_turn_repeated_after_its_host_vanished_is_the_same_run(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    claim(cast.falcon, now)
    assert executions.reclaim_lost({"another"}, now + timedelta(minutes=1)) == 1
    turn = claim(cast.falcon, now + timedelta(minutes=1), "other/boot/3/3")
    executions.finish(turn, ok(), "other/boot/3/3", now + timedelta(minutes=2))
    assert turn.attempt == 2 and list(loop.runs.values_list("run_number", flat=True).order_by("run_number")) == [1, 2]


def test_a_run_that_waits_to_be_repeated_can_be_stopped_and_runs_out_of_time(cast, now):
    stopped = start(caller(cast.alice), cast.falcon, now)
    overdue = start(caller(cast.alice), cast.falcon, now, timeout_per_run=10, max_duration_seconds=60)
    for _ in range(2):
        claim(cast.falcon, now)
    executions.reclaim_lost(set(), now + timedelta(seconds=30))
    stopped.refresh_from_db()
    assert (stopped.waiting_for, stopped.runs.get().status) == ("capacity", "waiting")
    engine.request_stop(caller(cast.bob), stopped.pk, now)
    assert end(stopped) == ("stopped", "user_stopped", 0)
    engine.end_overdue(now + timedelta(seconds=61))
    assert end(overdue) == ("stopped", "deadline_exceeded", 0)


def test_a_cut_off_turn_of_a_vanished_host_is_not_repeated(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    executions.cancel(turn.execution.pk, "bob", now)
    executions.reclaim_lost(set(), now + timedelta(minutes=1))
    assert end(loop) == ("failed", "error", 1) and "Cancelled by bob" in loop.error
    assert claim(cast.falcon, now) is None


def test_a_turn_of_a_deleted_agent_on_a_vanished_host_ends_its_loop(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    claim(cast.falcon, now)
    life.delete(cast.falcon, caller(cast.alice), now)
    executions.reclaim_lost(set(), now + timedelta(minutes=1))
    assert end(loop) == ("failed", "error", 1) and loop.error == "the agent was deleted"


def test_a_turn_of_a_living_host_is_left_to_it(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    claim(cast.falcon, now)
    assert executions.reclaim_lost({"host"}, now + timedelta(hours=1)) == 0


def test_a_turn_that_vanished_three_times_fails_as_lost(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    for minute in (1, 2, 3):
        claim(cast.falcon, now)
        executions.reclaim_lost(set(), now + timedelta(minutes=minute))
    assert end(loop) == ("failed", "error", 1) and "lost" in loop.error


# -- capacity ---------------------------------------------------------------------------------------
def test_a_loop_waits_for_a_slot_and_takes_its_turn_in_order(cast, now):
    cast.falcon.max_parallel_tasks = 1
    cast.falcon.save()
    first, second, third = (start(caller(cast.alice), cast.falcon, now, max_runs=2) for _ in range(3))
    turn = claim(cast.falcon, now)
    assert claim(cast.falcon, now) is None
    second.refresh_from_db()
    assert (second.status, second.waiting_for) == ("queued", "capacity")
    order = []
    while turn is not None:
        order.append(turn.execution.loop_id)
        turn = executions.finish(turn, ok(str(len(order))), OWNER, now)
    assert order == [first.pk, second.pk, third.pk] * 2


def test_a_slot_that_is_given_back_leaves_the_next_run_in_the_line(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    assert executions.finish(turn, ok(), OWNER, now, keep_slot=False) is None
    assert Execution.objects.get(state="queued").variables["TRINITY_RUN"] == "2"
    assert claim(cast.falcon, now).execution.loop_id == loop.pk


# -- delay, deadline --------------------------------------------------------------------------------
def test_a_delay_parks_the_loop_until_the_sweep_wakes_it_once(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, delay_seconds=60)
    assert play(cast.falcon, now, ok("a"), step=timedelta(0)) is None
    loop.refresh_from_db()
    assert (loop.status, loop.waiting_for, loop.wake_at) == ("running", "delay", now + timedelta(seconds=60))
    engine.wake_due(now + timedelta(seconds=59))
    assert not Execution.objects.filter(state="queued").exists()
    engine.wake_due(now + timedelta(seconds=60))
    engine.wake_due(now + timedelta(seconds=60))
    assert Execution.objects.filter(state="queued").count() == 1
    loop.refresh_from_db()
    assert (loop.waiting_for, loop.wake_at) == ("", None)


def test_a_delay_longer_than_the_time_left_ends_at_the_deadline(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, delay_seconds=3600, timeout_per_run=10, max_duration_seconds=10)
    play(cast.falcon, now, ok("a"))
    engine.wake_due(now + timedelta(seconds=9))
    assert end(loop)[0] == "running"
    engine.wake_due(now + timedelta(seconds=10))
    assert end(loop) == ("stopped", "deadline_exceeded", 1)


def test_the_time_limit_ends_a_loop_that_waits_for_a_slot(cast, now):
    cast.falcon.max_parallel_tasks = 1
    cast.falcon.save()
    loop = start(caller(cast.alice), cast.falcon, now, timeout_per_run=10, max_duration_seconds=10)
    turn = claim(cast.falcon, now)
    start(caller(cast.alice), cast.falcon, now)
    assert executions.finish(turn, ok(), OWNER, now).execution.loop_id != loop.pk
    engine.end_overdue(now + timedelta(seconds=9))
    assert end(loop)[0] == "running"
    engine.end_overdue(now + timedelta(seconds=10))
    assert end(loop) == ("stopped", "deadline_exceeded", 1)
    assert list(loop.runs.values_list("run_number", flat=True)) == [1]


def test_a_run_in_flight_is_not_ended_by_the_time_limit(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, timeout_per_run=10, max_duration_seconds=10)
    turn = claim(cast.falcon, now)
    engine.end_overdue(now + timedelta(seconds=30))
    assert end(loop)[0] == "running"
    executions.finish(turn, ok(), OWNER, now + timedelta(seconds=31))
    assert end(loop) == ("stopped", "deadline_exceeded", 1)


# -- starting ---------------------------------------------------------------------------------------
def test_a_stopped_agent_refuses_a_start_and_the_trail_says_so(cast, now):
    cast.falcon.status = "stopped"
    cast.falcon.save()
    with pytest.raises(refusals.Refused) as refused:
        start(caller(cast.alice), cast.falcon, now)
    assert refused.value.status == 409 and not Loop.objects.exists()
    assert Audit.objects.get().verdict == "refused"


def test_the_agents_own_limit_bounds_a_run(cast, now):
    with pytest.raises(refusals.Refused) as refused:
        start(caller(cast.alice), cast.falcon, now, timeout_per_run=3601)
    assert refused.value.status == 400 and refused.value.facts["agent_cap_seconds"] == 3600


def test_twenty_active_loops_per_agent_and_no_more(cast, now, settings):
    settings.TRINITY_MAX_ACTIVE_PER_AGENT = 2
    for _ in range(2):
        start(caller(cast.alice), cast.falcon, now)
    with pytest.raises(refusals.Refused) as refused:
        start(caller(cast.bob), cast.falcon, now)
    assert refused.value.status == 429 and refused.value.retry_after


def test_the_limits_per_person_count_that_person_alone(cast, now, settings):
    settings.TRINITY_MAX_ACTIVE_PER_USER = settings.TRINITY_MAX_STARTS_PER_MINUTE = 1
    loop = start(caller(cast.alice), cast.falcon, now)
    start(caller(cast.bob), cast.falcon, now)
    with pytest.raises(refusals.Refused):
        start(caller(cast.alice), cast.falcon, now)
    engine.request_stop(caller(cast.alice), loop.pk, now)
    with pytest.raises(refusals.Refused):  # the rate still counts it
        start(caller(cast.alice), cast.falcon, now + timedelta(seconds=59))
    start(caller(cast.alice), cast.falcon, now + timedelta(seconds=61))


def test_a_loop_from_inside_a_run_is_one_deeper_and_three_is_the_most(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    for depth in (1, 2, 3):
        turn = Execution.objects.get(loop_id=loop.pk)
        inner = Caller(user=cast.alice, through="rest", agent=cast.falcon, execution=turn)
        loop = start(inner, cast.falcon, now)
        assert loop.depth == depth
    turn = Execution.objects.get(loop_id=loop.pk)
    with pytest.raises(refusals.Refused) as refused:
        start(Caller(user=cast.alice, through="rest", agent=cast.falcon, execution=turn), cast.falcon, now)
    assert refused.value.status == 409


def test_an_idempotency_key_belongs_to_its_caller_and_its_body(cast, now):
    def begin(who, key="k", **body):
        asked = spec.parse({"message": "work", "max_runs": 3, **body})
        return engine.create_loop(caller(who), cast.falcon, asked, now, idempotency_key=key)

    first = begin(cast.alice)
    assert begin(cast.alice).pk == first.pk
    assert begin(cast.bob).pk != first.pk
    for other in ({"max_runs": 4}, {"model": "None"}, {"stop_signal": "None"}):
        with pytest.raises(refusals.Refused) as refused:
            begin(cast.alice, **other)
        assert refused.value.status == 409
    engine.forget_old(now + timedelta(hours=24, seconds=1))
    assert begin(cast.alice).pk != first.pk


def test_a_hundred_runs_cost_the_same_statements_each(cast, now, django_assert_num_queries):
    start(caller(cast.alice), cast.falcon, now, max_runs=100, no_progress_threshold=0)
    turn = claim(cast.falcon, now)
    turn = executions.finish(turn, ok("x"), OWNER, now)
    with django_assert_num_queries(10):  # eight, and the savepoint of the test's own transaction
        turn = executions.finish(turn, ok("x"), OWNER, now)
    for _ in range(90):
        turn = executions.finish(turn, ok("x"), OWNER, now)
    with django_assert_num_queries(10):
        executions.finish(turn, ok("x"), OWNER, now)
