"""How one finished run changes what is known of a loop: chain, streak, money, excerpt."""

from decimal import Decimal
from functools import reduce

import pytest

from loops.core.facts import EXCERPT, Facts, Outcome, after, excerpt, fingerprint


def past(*runs: str | None, costs: tuple[Decimal | None, ...] = ()) -> Facts:
    """The facts after these runs in order: a text is a success, None a failure."""
    outcomes = [
        Outcome(number, said is not None, said or "", cost=costs[number - 1] if costs else None)
        for number, said in enumerate(runs, 1)
    ]
    return reduce(after, outcomes, Facts())


@pytest.mark.parametrize(
    ("runs", "same"),
    [
        (("A",), 1),
        (("A", "A"), 2),
        (("A", "A", "A"), 3),
        (("A", "B"), 1),
        (("A", "A", "B"), 1),
        (("A", "B", "A", "B"), 1),
        (("A", None, "A"), 2),
        (("A", None, None, "A", "A"), 3),
        (("A", None, "B"), 1),
        ((None, "A"), 1),
        ((None, None), 0),
        ((), 0),
        (("", "", ""), 3),
        (("",), 1),
        (("", " \n ", "\t"), 3),
        (("", None, ""), 2),
        (("A", "", "A"), 1),
        (("hi", "hi \n", "  hi"), 3),
        (("foo bar", "foo  \n\tbar"), 2),
        (("foo bar", "foo\u2003bar"), 2),
        (("foo bar", "foobar"), 1),
        (("Done", "done"), 1),
        (("x" * 3000 + "a", "y" * 3000 + "a"), 1),
    ],
)
def test_only_equal_successes_make_the_chain_longer(runs, same):
    assert past(*runs).same_replies == same


def test_the_fingerprint_sees_the_whole_response():
    assert fingerprint("a" + "x" * 10_000) != fingerprint("b" + "x" * 10_000)
    assert fingerprint("a b") == fingerprint(" a \r\n\f b ")
    assert len(fingerprint("")) == 64


def test_a_failure_leaves_the_chain_as_it_was():
    before = past("A", "A")
    failed = after(before, Outcome(3, False, "A"))
    assert (failed.same_replies, failed.fingerprint, failed.carry) == (2, before.fingerprint, "A")


@pytest.mark.parametrize(
    ("runs", "streak", "failed"),
    [
        ((), 0, 0),
        (("A",), 0, 0),
        ((None,), 1, 1),
        ((None, None, "A"), 0, 2),
        ((None, None, "A", None), 1, 3),
        (("A", None, None), 2, 2),
    ],
)
def test_a_success_ends_the_streak_and_forgets_no_failure(runs, streak, failed):
    facts = past(*runs)
    assert (facts.failure_streak, facts.failed_runs, facts.runs_completed) == (streak, failed, len(runs))


def test_every_reported_cost_counts_and_every_other_is_counted_as_unknown():
    facts = past("A", None, "B", "C", costs=(Decimal("0.10"), Decimal("0.70"), None, Decimal(0)))
    assert facts.spend == Decimal("0.80")
    assert facts.unknown_cost_runs == 1


def test_money_is_added_in_tenths_not_in_binary_fractions():
    assert past("A", "B", "C", costs=(Decimal("0.10"),) * 3).spend == Decimal("0.30")
    assert past("A", "B", costs=(Decimal("0.1"), Decimal("0.7"))).spend == Decimal("0.8")


def test_a_past_without_a_cost_has_spent_nothing_and_says_how_often_it_does_not_know():
    facts = past("A", None)
    assert facts.spend == Decimal(0)
    assert isinstance(facts.spend, Decimal)
    assert facts.unknown_cost_runs == 2


def test_the_run_that_has_just_ended_is_the_last():
    run = Outcome(1, True, "A")
    assert after(Facts(), run).last is run


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        ("[[DONE]]", "[[DONE]]"),
        ("I will not write [[DONE]] yet", "I will not write [[DONE]] yet"),
        ("a" * EXCERPT + "[[DONE]]" + "b" * EXCERPT, "a" * EXCERPT + "[[DONE]]" + "b" * EXCERPT),
        ("a" * (EXCERPT + 1) + "[[DONE]]", "…" + "a" * EXCERPT + "[[DONE]]"),
        ("[[DONE]]" + "b" * (EXCERPT + 1), "[[DONE]]" + "b" * EXCERPT + "…"),
        (
            "x" * 500 + " first [[DONE]] " + "y" * 500 + "[[DONE]]",
            "…" + "x" * (EXCERPT - 7) + " first [[DONE]] " + "y" * (EXCERPT - 1) + "…",
        ),
    ],
)
def test_the_excerpt_shows_the_first_match_with_what_stands_around_it(response, shown):
    assert excerpt(response, "[[DONE]]") == shown
