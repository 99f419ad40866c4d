"""The order of verdicts (product.md 3.6): for every pair, the one before wins; and the boundaries of clock, money and count."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

import pytest

from loops.core.decide import Decision, Finish, StartRun, Wait, deadline, decide
from loops.core.facts import Facts, Outcome, after
from loops.core.spec import MessageSpec
from loops.core.words import LoopStatus, OnFailure, StopReason

NOW = datetime(2026, 12, 1, 14, 0, tzinfo=UTC)
TICK = timedelta(microseconds=1)
DONE = "[[DONE]]"
CONTINUE = OnFailure.CONTINUE


def spec(**limits: object) -> MessageSpec:
    return MessageSpec(message="x", max_runs=limits.pop("max_runs", 10), **limits)


def after_run(succeeded: bool = True, response: str = "fine", cut_off: bool = False, **facts: object) -> Facts:
    """Facts in the middle of a loop whose run 4 has just ended."""
    outcome = Outcome(4, succeeded, response, error="" if succeeded else "bad", cut_off=cut_off)
    known = {"runs_completed": 4, "same_replies": 1, "started_at": NOW - timedelta(hours=1), "last": outcome, **facts}
    if not succeeded:
        known = {"failure_streak": 1, "failed_runs": 1, **known}
    return Facts(**known)


def between_runs(**facts: object) -> Facts:
    return replace(after_run(**facts), last=None)


def ends(verdict: Decision) -> tuple[str, str]:
    assert isinstance(verdict, Finish)
    return verdict.status.value, verdict.reason.value


def label(condition: "Condition") -> str:
    return condition.label


# -- the order ------------------------------------------------------------------------------------
class Condition(NamedTuple):
    """What the limits and the facts must say for a verdict to speak."""

    label: str
    reason: str
    limits: dict[str, object]
    facts: dict[str, object]


SIGNAL = Condition("signal", "stop_signal_matched", {"stop_signal": DONE}, {"response": f"x {DONE}"})
SAME = Condition("same replies", "no_progress", {"no_progress_threshold": 3}, {"same_replies": 3})
ABORTS = Condition("aborts", "error", {"on_failure": OnFailure.ABORT}, {"succeeded": False})
IN_A_ROW = Condition(
    "failures in a row",
    "max_consecutive_failures",
    {"on_failure": CONTINUE, "max_consecutive_failures": 3},
    {"succeeded": False, "failure_streak": 3},
)
CUT_OFF = Condition("cut off", "user_stopped", {}, {"succeeded": False, "cut_off": True, "stop_requested": True})
MAX_RUNS = Condition("max runs", "max_runs_reached", {"max_runs": 4}, {})
STOP = Condition("stop", "user_stopped", {}, {"stop_requested": True})
DEADLINE = Condition("deadline", "deadline_exceeded", {"max_duration_seconds": 3600}, {})
BUDGET = Condition("budget", "budget_exhausted", {"max_cost_usd": Decimal(1)}, {"spend": Decimal(1)})
LAST = (MAX_RUNS, STOP, DEADLINE, BUDGET)

PAIRS = [
    *[(SIGNAL, later) for later in (SAME, *LAST)],
    # No progress keeps silent where a stop is pending or the deadline has passed, so those two win over it.
    *[(SAME, MAX_RUNS), (SAME, BUDGET), (STOP, SAME), (DEADLINE, SAME)],
    *[(failure, later) for failure in (ABORTS, IN_A_ROW) for later in LAST],
    *[(CUT_OFF, other) for other in (ABORTS, IN_A_ROW, *LAST)],
    *combinations(LAST, 2),
]


def both(first: Condition, second: Condition) -> tuple[MessageSpec, Facts]:
    """Limits and facts under which both conditions hold."""
    return spec(**{**first.limits, **second.limits}), after_run(**{**first.facts, **second.facts})


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{one.label} before {other.label}" for one, other in PAIRS])
def test_of_two_verdicts_the_one_before_wins(first, second):
    limits, facts = both(first, second)
    assert ends(decide(limits, facts, NOW))[1] == first.reason


@pytest.mark.parametrize("condition", [SIGNAL, SAME, ABORTS, IN_A_ROW, CUT_OFF, *LAST], ids=label)
def test_each_verdict_speaks_alone(condition):
    limits, facts = both(condition, condition)
    assert ends(decide(limits, facts, NOW))[1] == condition.reason


@pytest.mark.parametrize("condition", LAST, ids=label)
def test_a_loop_that_is_looked_at_between_runs_ends_by_the_same_order(condition):
    later = LAST[LAST.index(condition) :]
    limits = spec(**{name: value for one in later for name, value in one.limits.items()})
    facts = between_runs(**{name: value for one in later for name, value in one.facts.items()})
    assert ends(decide(limits, facts, NOW))[1] == condition.reason


def test_a_stop_pending_and_a_passed_deadline_silence_no_progress_only():
    limits = spec(stop_signal=DONE, max_duration_seconds=3600)
    assert ends(decide(limits, after_run(same_replies=9, stop_requested=True), NOW)) == ("stopped", "user_stopped")
    assert ends(decide(limits, after_run(response=DONE, stop_requested=True), NOW)) == (
        "completed",
        "stop_signal_matched",
    )


# -- after a successful run -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("signal", "response", "found"),
    [
        (DONE, "done [[DONE]]", True),
        (DONE, "[[DONE]] and more", True),
        (DONE, "I will not write [[DONE]] yet", True),
        (DONE, "[[done]]", False),
        (DONE, "[[DONE]", False),
        (DONE, "", False),
        ("all  done", "all done", False),
        (None, "None", False),
        ("", "anything", False),
    ],
)
def test_the_signal_is_an_exact_part_of_the_response(signal, response, found):
    verdict = decide(spec(stop_signal=signal), after_run(response=response), NOW)
    assert isinstance(verdict, Finish if found else StartRun)


def test_a_failed_run_is_never_searched_for_the_signal():
    facts = after_run(succeeded=False, response=DONE)
    assert decide(spec(stop_signal=DONE, on_failure=CONTINUE), facts, NOW) == StartRun(5)
    assert ends(decide(spec(stop_signal=DONE), facts, NOW)) == ("failed", "error")


def test_the_prompt_and_the_carried_text_are_never_searched():
    limits = replace(spec(stop_signal=DONE), message=f"Say {DONE}.")
    assert decide(limits, after_run(response="working", carry=DONE), NOW) == StartRun(5)


@pytest.mark.parametrize(
    ("threshold", "same", "stops"), [(3, 2, False), (3, 3, True), (3, 4, True), (2, 2, True), (0, 50, False)]
)
def test_no_progress_begins_at_the_threshold(threshold, same, stops):
    verdict = decide(spec(no_progress_threshold=threshold), after_run(same_replies=same), NOW)
    assert verdict == (Finish(LoopStatus.STOPPED, StopReason.NO_PROGRESS) if stops else StartRun(5))


def test_no_progress_is_not_looked_for_after_a_failure_or_between_runs():
    assert decide(spec(on_failure=CONTINUE), after_run(succeeded=False, same_replies=3), NOW) == StartRun(5)
    assert decide(spec(), between_runs(same_replies=3), NOW) == StartRun(5)


# -- after a failed run ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cap", "streak", "fails"), [(3, 2, False), (3, 3, True), (3, 4, True), (1, 1, True), (2, 1, False)]
)
def test_continue_gives_up_at_the_cap(cap, streak, fails):
    facts = after_run(succeeded=False, failure_streak=streak)
    verdict = decide(spec(on_failure=CONTINUE, max_consecutive_failures=cap), facts, NOW)
    expected = Finish(LoopStatus.FAILED, StopReason.MAX_CONSECUTIVE_FAILURES, tolerated=False)
    assert verdict == (expected if fails else StartRun(5))


def test_abort_ends_at_the_first_failure_whatever_the_cap():
    facts = after_run(succeeded=False)
    expected = Finish(LoopStatus.FAILED, StopReason.ERROR, tolerated=False)
    assert decide(spec(max_consecutive_failures=100), facts, NOW) == expected


@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_run_cut_off_while_a_stop_is_pending_ends_the_loop_as_stopped(on_failure):
    facts = after_run(succeeded=False, cut_off=True, stop_requested=True, failure_streak=3)
    expected = Finish(LoopStatus.STOPPED, StopReason.USER_STOPPED, tolerated=False)
    assert decide(spec(on_failure=on_failure), facts, NOW) == expected


def test_a_run_cut_off_without_a_stop_is_a_failed_run():
    facts = after_run(succeeded=False, cut_off=True)
    assert ends(decide(spec(), facts, NOW)) == ("failed", "error")
    assert decide(spec(on_failure=CONTINUE), facts, NOW) == StartRun(5)


def test_a_run_that_fails_by_itself_while_a_stop_is_pending_fails_an_abort_loop():
    facts = after_run(succeeded=False, stop_requested=True)
    assert ends(decide(spec(), facts, NOW)) == ("failed", "error")
    assert decide(spec(on_failure=CONTINUE), facts, NOW) == Finish(LoopStatus.STOPPED, StopReason.USER_STOPPED)


def test_a_run_that_succeeds_though_somebody_cut_it_off_counts_as_what_it_said():
    facts = after_run(response=DONE, cut_off=True, stop_requested=True)
    assert ends(decide(spec(stop_signal=DONE), facts, NOW)) == ("completed", "stop_signal_matched")


# -- clock, money, count --------------------------------------------------------------------------
@pytest.mark.parametrize(("early", "over"), [(TICK, False), (timedelta(0), True), (-TICK, True)])
def test_the_deadline_is_reached_at_its_very_moment(early, over):
    facts = after_run(started_at=NOW - timedelta(seconds=60) + early)
    verdict = decide(spec(max_duration_seconds=60), facts, NOW)
    assert verdict == (Finish(LoopStatus.STOPPED, StopReason.DEADLINE_EXCEEDED) if over else StartRun(5))


def test_a_loop_that_has_not_begun_has_no_deadline():
    assert deadline(spec(max_duration_seconds=60), None) is None
    assert deadline(spec(), NOW) is None
    assert deadline(spec(max_duration_seconds=60), NOW) == NOW + timedelta(seconds=60)
    assert decide(spec(max_duration_seconds=1), Facts(), NOW) == StartRun(1)


@pytest.mark.parametrize(
    ("budget", "costs", "ends_it"),
    [
        ("0.80", ("0.10", "0.70"), True),
        ("0.30", ("0.10", "0.10", "0.10"), True),
        ("0.30", ("0.10", "0.10"), False),
        ("0.5", ("0.25", "0.25"), True),
        ("0.50", ("5.11",), True),
        ("0.000001", ("0.000001",), True),
        ("0.10", (None, None, None), False),
        ("0.10", (None, "0.10"), True),
        ("1", ("0.999999",), False),
    ],
)
def test_the_budget_is_met_in_decimal_arithmetic(budget, costs, ends_it):
    facts = Facts(started_at=NOW)
    for number, cost in enumerate(costs, 1):
        facts = after(facts, Outcome(number, True, str(number), cost=None if cost is None else Decimal(cost)))
    verdict = decide(spec(max_cost_usd=Decimal(budget)), facts, NOW)
    exhausted = Finish(LoopStatus.STOPPED, StopReason.BUDGET_EXHAUSTED)
    assert verdict == (exhausted if ends_it else StartRun(len(costs) + 1))


@pytest.mark.parametrize(
    ("done", "max_runs", "over"), [(3, 4, False), (4, 4, True), (0, 1, False), (1, 1, True), (99, 100, False)]
)
def test_runs_end_at_their_count(done, max_runs, over):
    verdict = decide(spec(max_runs=max_runs), between_runs(runs_completed=done), NOW)
    assert verdict == (Finish(LoopStatus.COMPLETED, StopReason.MAX_RUNS_REACHED) if over else StartRun(done + 1))


def test_a_stop_before_the_first_run_ends_the_loop_with_none():
    assert decide(spec(delay_seconds=60), Facts(stop_requested=True), NOW) == Finish(
        LoopStatus.STOPPED, StopReason.USER_STOPPED
    )


# -- the delay ------------------------------------------------------------------------------------
def test_no_delay_stands_before_the_first_run():
    assert decide(spec(delay_seconds=3600), Facts(), NOW) == StartRun(1)


def test_the_delay_follows_a_run_and_is_not_waited_for_twice():
    assert decide(spec(delay_seconds=15), after_run(), NOW) == Wait(NOW + timedelta(seconds=15))
    assert decide(spec(delay_seconds=15), between_runs(), NOW + timedelta(seconds=15)) == StartRun(5)
    assert decide(spec(delay_seconds=0), after_run(), NOW) == StartRun(5)


def test_a_tolerated_failure_is_followed_by_the_delay_too():
    verdict = decide(spec(delay_seconds=15, on_failure=CONTINUE), after_run(succeeded=False), NOW)
    assert verdict == Wait(NOW + timedelta(seconds=15))


@pytest.mark.parametrize(("limit", "wait"), [(3660, 60), (3601, 1), (4200, 600), (4199, 599), (4201, 600)])
def test_a_wait_ends_at_the_deadline(limit, wait):
    verdict = decide(spec(delay_seconds=600, max_duration_seconds=limit), after_run(), NOW)
    assert verdict == Wait(NOW + timedelta(seconds=wait))


def test_where_the_wait_ended_at_the_deadline_no_run_follows():
    limits = spec(delay_seconds=3600, max_duration_seconds=60, timeout_per_run=30)
    facts = after_run(started_at=NOW - timedelta(seconds=2))
    verdict = decide(limits, facts, NOW)
    assert isinstance(verdict, Wait)
    assert ends(decide(limits, replace(facts, last=None), verdict.until)) == ("stopped", "deadline_exceeded")


@pytest.mark.parametrize("condition", [SAME, *LAST], ids=label)
def test_a_loop_that_is_over_does_not_wait_first(condition):
    limits, facts = both(condition, condition)
    assert ends(decide(replace(limits, delay_seconds=60), facts, NOW))[1] == condition.reason


# -- with errors ----------------------------------------------------------------------------------
@pytest.mark.parametrize("condition", [SIGNAL, SAME, *LAST], ids=label)
@pytest.mark.parametrize("failed", [0, 1, 7])
def test_only_a_natural_end_is_completed_with_errors(condition, failed):
    limits, facts = both(condition, condition)
    status, reason = ends(decide(replace(limits, on_failure=CONTINUE), replace(facts, failed_runs=failed), NOW))
    natural = "completed_with_errors" if failed else "completed"
    assert status == (natural if reason in ("max_runs_reached", "stop_signal_matched") else "stopped")


def test_a_tolerated_failure_in_the_last_run_counts_and_ends_with_errors():
    facts = after_run(succeeded=False, failed_runs=1)
    verdict = decide(spec(max_runs=4, on_failure=CONTINUE), facts, NOW)
    assert verdict == Finish(LoopStatus.COMPLETED_WITH_ERRORS, StopReason.MAX_RUNS_REACHED, tolerated=True)
