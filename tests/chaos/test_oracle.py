"""The oracle of the chaos runs and the core were written apart from each other; on any history they agree."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from loops.core import facts as core
from loops.core.decide import Finish, decide
from loops.core.facts import Facts, Outcome
from loops.core.spec import parse
from tests.chaos import oracle
from tests.chaos.oracle import End, Seen

BEGAN = datetime(2026, 5, 1, tzinfo=UTC)
COSTS = st.sampled_from([None, Decimal("0.1"), Decimal("0.25")])

bodies = st.fixed_dictionaries(
    {"max_runs": st.integers(1, 6), "no_progress_threshold": st.sampled_from([0, 2, 3])},
    optional={
        "on_failure": st.sampled_from(["abort", "continue"]),
        "max_consecutive_failures": st.integers(1, 3),
        "stop_signal": st.just("c"),
        "max_cost_usd": st.sampled_from([0.1, 0.3]),
        "max_duration_seconds": st.sampled_from([20, 40]),
    },
)
# succeeded, answer, cost, seconds since the run before
histories = st.lists(
    st.tuples(st.booleans(), st.sampled_from("abc"), COSTS, st.integers(1, 15)), min_size=6, max_size=6
)


@given(bodies, histories, st.integers(1, 7))
def test_the_oracle_says_what_the_core_decides(body, history, stop_in_run):
    """`stop_in_run`: the run during which somebody asks the loop to end; 7 = nobody does."""
    spec = parse({"message": "x", "timeout_per_run": 10, **body})
    facts, now, seen = Facts(started_at=BEGAN), BEGAN, []
    for number, (succeeded, answer, cost, seconds) in enumerate(history, 1):
        now += timedelta(seconds=seconds)
        stopped = number >= stop_in_run
        outcome = Outcome(number, succeeded, answer if succeeded else "", "" if succeeded else "no", cost)
        facts = core.after(replace(facts, stop_requested=stopped), outcome)
        seen.append(Seen(succeeded, answer, cost, now, stopped))
        verdict = decide(spec, facts, now)
        if isinstance(verdict, Finish):
            failed = facts.failed_runs - (not verdict.tolerated)
            due = End(verdict.status, verdict.reason, number, failed)
            assert oracle.expected(body, seen, BEGAN, now, stopped) == due
            return
    raise AssertionError("max_runs is at most 6")


def test_a_loop_that_was_stopped_between_two_runs_is_stopped_and_otherwise_its_time_must_be_over():
    body = {"max_runs": 5, "no_progress_threshold": 0, "max_duration_seconds": 20}
    run = Seen(True, "a", None, BEGAN + timedelta(seconds=5), False)
    at_the_limit = BEGAN + timedelta(seconds=20)
    early = at_the_limit - timedelta(microseconds=1)
    assert oracle.expected(body, [run], BEGAN, early, stopped=True).reason == "user_stopped"
    assert oracle.expected(body, [run], BEGAN, at_the_limit, stopped=False).reason == "deadline_exceeded"
    assert oracle.expected(body, [run], BEGAN, early, stopped=False) == End("running", "", 1, 0)
    assert oracle.expected(body, [], None, early, stopped=True) == End("stopped", "user_stopped", 0, 0)
