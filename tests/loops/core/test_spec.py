"""What a message loop may be asked to do: every bound of the parameter table, from both sides, and the exactness of JSON."""

import json
from decimal import Decimal
from itertools import product

import pytest

from loops.core.spec import FIELDS, Invalid, MessageSpec, check_against_agent, parse
from loops.core.words import OnFailure

BODY = {"message": "Do it.", "max_runs": 3}
FAMILY = "👨‍👩‍👧‍👦"


def parsed(**fields: object) -> MessageSpec:
    return parse({**BODY, **fields})


def refused(body: dict[str, object]) -> dict[str, list[str]]:
    with pytest.raises(Invalid) as refusal:
        parse(body)
    return refusal.value.errors


def test_the_defaults_are_those_of_the_parameter_table():
    assert parse(BODY) == MessageSpec(
        message="Do it.",
        max_runs=3,
        stop_signal=None,
        delay_seconds=0,
        timeout_per_run=None,
        max_duration_seconds=None,
        max_cost_usd=None,
        no_progress_threshold=3,
        on_failure=OnFailure.ABORT,
        max_consecutive_failures=3,
        model=None,
        allowed_tools=None,
    )


def shown(value: object) -> str:
    """A short name for a parameter; integers of thousands of digits have no text form."""
    return "huge" if isinstance(value, int) and abs(value) > 10**20 else ascii(value)[:24]


ACCEPTED = [
    ("message", "x", "x"),
    ("message", "x" * 100_000, "x" * 100_000),
    ("message", "  {{run}}\n", "  {{run}}\n"),
    ("message", FAMILY, FAMILY),
    ("max_runs", 1, 1),
    ("max_runs", 100, 100),
    ("stop_signal", "x" * 200, "x" * 200),
    ("stop_signal", " " * 300 + "x" * 200 + "\n", "x" * 200),
    ("stop_signal", "  [[DONE]]\n", "[[DONE]]"),
    ("stop_signal", "all  done", "all  done"),
    ("delay_seconds", 0, 0),
    ("delay_seconds", 3600, 3600),
    ("timeout_per_run", 10, 10),
    ("timeout_per_run", 7200, 7200),
    ("max_duration_seconds", 1, 1),
    ("max_duration_seconds", 604_800, 604_800),
    ("max_cost_usd", 1, Decimal(1)),
    ("max_cost_usd", 0.1, Decimal("0.1")),
    ("max_cost_usd", 1e-6, Decimal("0.000001")),
    ("max_cost_usd", 1e-300, Decimal("0.000001")),
    ("max_cost_usd", 0.1234567, Decimal("0.123457")),
    ("max_cost_usd", 1_000_000_000, Decimal(1_000_000_000)),
    ("max_cost_usd", Decimal("12.5"), Decimal("12.5")),
    ("no_progress_threshold", 0, 0),
    ("no_progress_threshold", 2, 2),
    ("no_progress_threshold", 101, 101),
    ("no_progress_threshold", 1_000_000, 1_000_000),
    ("on_failure", "abort", OnFailure.ABORT),
    ("on_failure", "continue", OnFailure.CONTINUE),
    ("max_consecutive_failures", 1, 1),
    ("max_consecutive_failures", 100, 100),
    ("model", " opus ", "opus"),
    ("model", "", None),
    ("model", "m" * 200, "m" * 200),
    ("allowed_tools", [], ()),
    ("allowed_tools", ["Read", "Bash(git *)"], ("Read", "Bash(git *)")),
    ("allowed_tools", ["t" * 200] * 200, ("t" * 200,) * 200),
]


@pytest.mark.parametrize(("name", "value", "kept"), ACCEPTED, ids=shown)
def test_a_value_within_its_bounds_is_kept(name, value, kept):
    found = getattr(parsed(**{name: value}), name)
    assert found == kept
    assert type(found) is type(kept)


WHOLE = ("max_runs", "delay_seconds", "timeout_per_run", "max_duration_seconds", "max_consecutive_failures")
REFUSED = [
    ("message", ""),
    ("message", " \n\t "),
    ("message", "x" * 100_001),
    ("message", "a\0b"),
    ("message", "a\ud800b"),
    ("message", "\udfff"),
    ("message", 7),
    ("message", ["x"]),
    ("max_runs", 0),
    ("max_runs", -1),
    ("max_runs", 101),
    ("stop_signal", "x" * 201),
    ("stop_signal", "a\0"),
    ("stop_signal", "\ud83d"),
    ("stop_signal", 5),
    ("delay_seconds", -1),
    ("delay_seconds", 3601),
    ("timeout_per_run", 9),
    ("timeout_per_run", 7201),
    ("max_duration_seconds", 0),
    ("max_duration_seconds", 604_801),
    ("max_cost_usd", 0),
    ("max_cost_usd", 0.0),
    ("max_cost_usd", -0.0),
    ("max_cost_usd", -0.01),
    ("max_cost_usd", float("nan")),
    ("max_cost_usd", float("inf")),
    ("max_cost_usd", float("-inf")),
    ("max_cost_usd", Decimal("sNaN")),
    ("max_cost_usd", 10**5000),
    ("max_cost_usd", 1_000_000_001),
    ("max_cost_usd", 1e300),
    ("max_cost_usd", "1"),
    ("max_cost_usd", "NaN"),
    ("max_cost_usd", "inf"),
    ("max_cost_usd", ""),
    ("max_cost_usd", True),
    ("max_cost_usd", [1]),
    ("no_progress_threshold", 1),
    ("no_progress_threshold", -1),
    ("no_progress_threshold", 2.5),
    ("no_progress_threshold", 3.0),
    ("no_progress_threshold", True),
    ("no_progress_threshold", False),
    ("no_progress_threshold", "3"),
    ("no_progress_threshold", 1_000_001),
    ("on_failure", "retry"),
    ("on_failure", "ABORT"),
    ("on_failure", ""),
    ("on_failure", True),
    ("on_failure", ["abort"]),
    ("max_consecutive_failures", 0),
    ("max_consecutive_failures", 101),
    ("model", 3),
    ("model", "m" * 201),
    ("model", "a\0"),
    ("model", "a\udc00"),
    ("allowed_tools", "Read"),
    ("allowed_tools", {"Read": 1}),
    ("allowed_tools", [""]),
    ("allowed_tools", ["Read", " "]),
    ("allowed_tools", ["Read,Write"]),
    ("allowed_tools", ["Read", None]),
    ("allowed_tools", [["Read"]]),
    ("allowed_tools", ["a\0"]),
    ("allowed_tools", ["a\ud800"]),
    ("allowed_tools", ["t" * 201]),
    ("allowed_tools", ["t"] * 201),
    *product(WHOLE, (True, False, 10.0, 10.5, "10", [10], {}, float("nan"), 10**5000)),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=shown)
def test_a_value_out_of_bounds_or_of_another_type_is_refused_by_name(name, value):
    errors = refused({**BODY, name: value})
    assert list(errors) == [name]
    assert all(sentence.startswith("must ") for sentence in errors[name])
    assert errors[name] == json.loads(json.dumps(errors[name]))


@pytest.mark.parametrize("raw", ["1e400", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_cannot_hold_is_no_budget(raw):
    body = json.loads(f'{{"message": "x", "max_runs": 2, "max_cost_usd": {raw}}}')
    assert list(refused(body)) == ["max_cost_usd"]


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", " \u2003 ", None])
def test_a_blank_stop_signal_is_unset(blank):
    assert parsed(stop_signal=blank).stop_signal is None


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in BODY])
def test_null_in_an_optional_field_is_as_not_sent(name):
    assert parsed(**{name: None}) == parse(BODY)


@pytest.mark.parametrize(("name", "bounds"), [("message", "1 to 100,000"), ("max_runs", "1 to 100")])
@pytest.mark.parametrize("sent", [True, False], ids=["null", "missing"])
def test_a_required_field_must_be_there_and_the_refusal_says_what_it_may_be(name, bounds, sent):
    body = {key: value for key, value in BODY.items() if key != name} | ({name: None} if sent else {})
    (sentence,) = refused(body)[name]
    assert bounds in sentence
    assert ("required" in sentence) is not sent


@pytest.mark.parametrize("name", ["max_iterations", "stopSignal", "maxCost", "Message", "max_runs ", ""])
def test_an_unknown_field_is_refused_by_name(name):
    assert refused({**BODY, name: 5}) == {name: ["is not a field of a loop"]}


def test_an_unknown_field_is_refused_even_when_null():
    assert list(refused({**BODY, "maxCost": None})) == ["maxCost"]


def test_a_broken_unknown_name_can_be_said_in_an_answer():
    (name,) = refused({**BODY, "max\ud800": 1})
    assert name.encode() == b"max?"


def test_every_bad_field_is_named_at_once():
    assert set(refused({"max_runs": 0, "delay_seconds": -1, "x": 1})) == {"message", "max_runs", "delay_seconds", "x"}


def test_no_tools_and_any_tools_are_never_confused():
    assert parsed(allowed_tools=None).allowed_tools is None
    assert parsed(allowed_tools=[]).allowed_tools == ()


@pytest.mark.parametrize(("timeout", "cap"), [(10, 60), (300, 300), (None, 60)])
def test_a_timeout_up_to_the_agents_own_is_accepted(timeout, cap):
    check_against_agent(parsed(timeout_per_run=timeout), cap)


def test_a_timeout_above_the_agents_own_is_refused_with_both_figures():
    with pytest.raises(Invalid) as refusal:
        check_against_agent(parsed(timeout_per_run=301), 300)
    assert refusal.value.errors == {"timeout_per_run": ["must be at most 300, the agent's own limit"]}
    assert refusal.value.facts == {
        "error": "loop_timeout_exceeds_agent_cap",
        "agent_cap_seconds": 300,
        "requested_seconds": 301,
    }


@pytest.mark.parametrize(
    ("timeout", "duration", "cap"), [(600, 600, 900), (None, 900, 900), (600, None, 900), (10, 11, 60)]
)
def test_a_deadline_that_one_run_can_meet_is_accepted(timeout, duration, cap):
    check_against_agent(parsed(timeout_per_run=timeout, max_duration_seconds=duration), cap)


@pytest.mark.parametrize(
    ("timeout", "duration", "cap", "least"),
    [(600, 599, 900, "600"), (None, 800, 900, "900"), (None, 3599, 3600, "3,600")],
)
def test_a_deadline_that_no_run_could_meet_is_refused(timeout, duration, cap, least):
    with pytest.raises(Invalid) as refusal:
        check_against_agent(parsed(timeout_per_run=timeout, max_duration_seconds=duration), cap)
    assert refusal.value.errors == {"max_duration_seconds": [f"must be at least {least}, the timeout of one run"]}
