"""Any history at all: whatever people, workers, clocks and vanished hosts do, the rows of a loop keep their promises."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agents import executions, life, refusals
from agents.models import Audit, Execution
from loops import engine
from loops.core.decide import Finish, StartRun, decide
from loops.core.facts import Outcome, after
from loops.models import Loop, LoopEvent, LoopRun
from tests.conftest import caller
from tests.ledger import OWNER, bad, claim, ok, start

COSTS = st.sampled_from([None, "0", "0.1", "0.333333"])
STEPS = st.one_of(
    st.tuples(st.just("finish"), st.sampled_from(["A", "B", "", "x [[DONE]]"]), COSTS, st.booleans()),
    st.tuples(st.just("fail"), COSTS, st.booleans()),
    st.tuples(
        st.sampled_from(["stop", "cancel", "claim", "wake", "overdue", "vanish", "late", "agent stop", "agent start"])
    ),
    st.tuples(st.just("time"), st.integers(0, 40)),
)
LIMITS = st.fixed_dictionaries(
    {"max_runs": st.integers(1, 6)},
    optional={
        "stop_signal": st.just("[[DONE]]"),
        "delay_seconds": st.sampled_from([0, 5, 30]),
        "max_duration_seconds": st.sampled_from([60, 120]),
        "timeout_per_run": st.just(60),
        "max_cost_usd": st.sampled_from([0.1, 0.5]),
        "no_progress_threshold": st.sampled_from([0, 2, 3]),
        "on_failure": st.sampled_from(["abort", "continue"]),
        "max_consecutive_failures": st.integers(1, 3),
    },
).filter(lambda limits: "max_duration_seconds" not in limits or "timeout_per_run" in limits)


class History:
    """One loop and everything that happens to it."""

    def __init__(self, cast, now, limits):
        self.alice, self.agent, self.now = caller(cast.alice), cast.falcon, now
        self.loop = start(self.alice, self.agent, now, **limits)
        self.turn = self.stale = None
        self.ended_as = None

    def step(self, what, *values):
        getattr(self, what.replace(" ", "_"))(*values)
        self.check()

    def finish(self, response, cost, keep):
        self._close(ok(response, cost), keep)

    def fail(self, cost, keep):
        self._close(bad("no", cost), keep)

    def _close(self, result, keep):
        if self.turn is not None:
            turn, self.stale = self.turn, self.turn
            self.turn = executions.finish(turn, result, OWNER, self.now, keep_slot=keep)

    def late(self):
        if self.stale is not None:
            assert executions.finish(self.stale, ok("late"), OWNER, self.now) is None

    def claim(self):
        if self.turn is None:
            self.turn = claim(self.agent, self.now)

    def stop(self):
        engine.request_stop(self.alice, self.loop.pk, self.now)

    def cancel(self):
        live = Execution.objects.filter(finished_at=None).first()
        if live is not None:
            executions.cancel(live.pk, "alice", self.now)

    def wake(self):
        engine.wake_due(self.now)

    def overdue(self):
        engine.end_overdue(self.now)

    def vanish(self):
        if self.turn is not None:
            self.stale, self.turn = self.turn, None
            executions.reclaim_lost(set(), self.now + timedelta(hours=1))

    def time(self, seconds):
        self.now += timedelta(seconds=seconds)

    def agent_stop(self):
        life.stop(self.agent, self.alice, self.now)

    def agent_start(self):
        life.start(self.agent, self.alice, self.now)

    def check(self):
        loop = self.loop = Loop.objects.get(pk=self.loop.pk)
        runs = list(LoopRun.objects.filter(loop=loop).order_by("run_number"))
        finished = [run for run in runs if run.completed_at]
        assert [run.run_number for run in runs] == list(range(1, len(runs) + 1))
        assert len(runs) - len(finished) <= (1 if loop.is_active else 0)
        assert loop.runs_completed == len(finished) <= loop.max_runs
        assert loop.spend == (LoopRun.objects.filter(loop=loop).aggregate(Sum("cost"))["cost__sum"] or Decimal(0))
        assert loop.unknown_cost_runs == sum(run.cost is None for run in finished)
        failed = sum(run.status == "failed" for run in finished)
        assert loop.failed_runs in {failed, failed - 1} and (loop.on_failure == "continue" or loop.failed_runs == 0)
        live = Execution.objects.filter(loop_id=loop.pk, finished_at=None)
        assert live.count() == len(runs) - len(finished)
        versions = list(LoopEvent.objects.filter(loop=loop).order_by("version").values_list("version", flat=True))
        assert versions == sorted(set(versions)) and loop.version >= versions[-1]
        if self.ended_as is not None:
            assert self.ended_as == (loop.status, loop.stop_reason, loop.version)
        elif not loop.is_active:
            assert loop.stop_reason and loop.completed_at
            assert Audit.objects.filter(action="loop.end", target=loop.pk).count() == 1
            self.ended_as = (loop.status, loop.stop_reason, loop.version)

    def drain(self):
        """With everybody back and time enough, the loop ends by itself."""
        self.agent_start()
        for _ in range(4 * self.loop.max_runs + 4):
            if not self.loop.is_active:
                return
            self.time(40)
            self.wake()
            self.claim()
            self.step("finish", f"{self.now}", None, True)
        assert not self.loop.is_active


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(limits=LIMITS, steps=st.lists(STEPS, max_size=25))
def test_any_history_keeps_the_promises_and_comes_to_an_end(cast, now, limits, steps):
    with transaction.atomic():
        history = History(cast, now, limits)
        for step in steps:
            history.step(*step)
        history.drain()
        transaction.set_rollback(True)


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limits=LIMITS,
    results=st.lists(st.tuples(st.booleans(), st.sampled_from(["A", "B", "[[DONE]]"]), COSTS), max_size=8),
)
def test_the_rows_say_what_the_core_would_say_of_the_same_runs(cast, now, limits, results):
    with transaction.atomic():
        limits = {**limits, "delay_seconds": 0}
        loop = start(caller(cast.alice), cast.falcon, now, **limits)
        spec, facts = engine.spec_of(loop), engine.facts_of(loop)
        turn, verdict = claim(cast.falcon, now), StartRun(1)
        loop.refresh_from_db()
        facts = engine.facts_of(loop)
        for good, text, cost in results:
            if turn is None:
                break
            result = ok(text, cost) if good else bad(text, cost)
            outcome = Outcome(facts.runs_completed + 1, good, result.response, result.error, result.cost)
            turn = executions.finish(turn, result, OWNER, now)
            facts = after(facts, outcome)
            verdict = decide(spec, facts, now)
        loop.refresh_from_db()
        assert (loop.runs_completed, loop.spend, loop.same_replies) == (
            facts.runs_completed,
            facts.spend,
            facts.same_replies,
        )
        if isinstance(verdict, Finish):
            assert (loop.status, loop.stop_reason) == (verdict.status, verdict.reason)
        else:
            assert loop.is_active
        transaction.set_rollback(True)


def test_a_refused_start_leaves_nothing_but_its_refusal(cast, now):
    before = Audit.objects.count()
    for body in ({"max_duration_seconds": 59}, {"timeout_per_run": 7200}):
        with pytest.raises(refusals.Refused) as refused:
            start(caller(cast.alice), cast.falcon, now, **body)
        assert refused.value.status == 400
    assert not Loop.objects.exists() and not Execution.objects.exists() and Audit.objects.count() == before + 2
