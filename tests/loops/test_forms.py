"""The start form: typed text becomes the API's fields, its refusals are the API's words, and nothing typed is lost."""

import json
import shlex
from decimal import Decimal
from types import SimpleNamespace

import pytest
from django.http import QueryDict
from django.utils import timezone

from loops.core.spec import Invalid, parse
from loops.forms import INITIAL, LABELS, LoopForm, outlook
from loops.patterns import PATTERNS
from tests.conftest import caller
from tests.ledger import start

AGENT = SimpleNamespace(name="falcon", timeout_seconds=900, harness="command", output="json")


def typed(**fields: str | list[str]) -> LoopForm:
    """The form as a browser sends it, with these fields changed."""
    query = QueryDict(mutable=True)
    for name, value in {**INITIAL, "message": "work", "tools": "all", **fields}.items():
        query.setlist(name, value if isinstance(value, list) else [value])
    if "allowed_tools" not in fields:
        query.pop("allowed_tools")
    return LoopForm.typed(query)


def refusals(form: LoopForm) -> dict[str, list[str]]:
    with pytest.raises(Invalid) as refused:
        form.spec()
    return refused.value.errors


def test_the_form_as_it_comes_is_the_smallest_start():
    spec = typed().spec()
    assert spec == parse({"message": "work", "max_runs": 5})


def test_every_field_reaches_the_spec_in_its_own_type():
    form = typed(
        message="Item {{run}}\r\nlast {{previous_response}}",
        max_runs=" 7 ",
        stop_signal=" [[DONE]] ",
        delay_seconds="5",
        timeout_per_run="600",
        max_duration_seconds="3600",
        max_cost_usd="1.50",
        no_progress_threshold="0",
        on_failure="continue",
        max_consecutive_failures="4",
        model="opus",
        tools="only",
        allowed_tools=["Read", "Bash"],
    )
    spec = form.spec()
    assert spec.message == "Item {{run}}\nlast {{previous_response}}"
    assert (spec.max_runs, spec.stop_signal, spec.delay_seconds, spec.timeout_per_run) == (7, "[[DONE]]", 5, 600)
    assert (spec.max_duration_seconds, spec.max_cost_usd, spec.no_progress_threshold) == (3600, Decimal("1.50"), 0)
    assert (spec.on_failure, spec.max_consecutive_failures, spec.model) == ("continue", 4, "opus")
    assert spec.allowed_tools == ("Read", "Bash")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_runs", "0"),
        ("max_runs", "101"),
        ("max_runs", "5.5"),
        ("max_runs", "five"),
        ("max_runs", "٣"),
        ("delay_seconds", "3601"),
        ("timeout_per_run", "9"),
        ("max_duration_seconds", "604801"),
        ("max_cost_usd", "0"),
        ("max_cost_usd", "NaN"),
        ("max_cost_usd", "1e3"),
        ("max_cost_usd", "1,5"),
        ("no_progress_threshold", "1"),
        ("on_failure", "retry"),
        ("stop_signal", "x" * 201),
        ("model", "x" * 201),
    ],
)
def test_a_bad_value_is_refused_with_the_sentence_of_the_api(name, text):
    form = typed(**{name: text})
    said = refusals(form)[name]
    body = {"message": "work", "max_runs": 5, name: text if name != "on_failure" else "retry"}
    with pytest.raises(Invalid) as by_api:
        parse(body)
    assert said == by_api.value.errors[name]
    assert form.values[name] == text


def test_a_blank_message_is_refused_and_so_is_an_empty_one():
    assert refusals(typed(message="  \n "))["message"] == ["must not be blank"]
    assert "1 to 100,000" in refusals(typed(message=""))["message"][0]


def test_only_these_tools_with_none_ticked_means_no_tools_at_all():
    assert typed(tools="all").spec().allowed_tools is None
    assert typed(tools="only").spec().allowed_tools == ()
    assert typed(tools="all", allowed_tools=["Read"]).spec().allowed_tools is None


def test_the_cap_of_failures_counts_only_with_continue():
    assert typed(on_failure="abort", max_consecutive_failures="nonsense").spec().max_consecutive_failures == 3
    assert "max_consecutive_failures" in refusals(typed(on_failure="continue", max_consecutive_failures="nonsense"))


def test_what_is_wrong_is_listed_in_the_order_of_the_form():
    form = typed(max_runs="", timeout_per_run="5", message="")
    said = form.refused(refusals(form)).said
    assert [name for name, _ in said] == ["message", "max_runs", "timeout_per_run"]
    assert said[2][1] == "Timeout per run must be a whole number from 10 to 7,200"
    assert form.refused(refusals(form)).title == "Not started: 3 fields need a change"


def test_the_same_form_keeps_its_key_and_a_new_one_has_its_own():
    once = "a" * 32
    assert typed(once=once).once == once
    assert LoopForm.new().once != LoopForm.new().once
    assert set(typed(once="<script>").once) <= set("0123456789abcdef")


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_each_pattern_could_be_started_as_it_is(pattern):
    form = LoopForm.new(pattern.name)
    assert form.pattern == pattern.name
    spec = form.spec()
    assert spec.stop_signal is None or spec.stop_signal in spec.message


def test_polling_does_not_end_by_equal_replies_and_an_unknown_pattern_is_the_empty_form():
    assert LoopForm.new("poll").spec().no_progress_threshold == 0
    assert dict(LoopForm.new("nonsense").values) == INITIAL


def test_run_again_fills_in_the_limits_as_they_were_stored(cast):
    body = {
        "message": "a\nb",
        "max_runs": 9,
        "stop_signal": "END",
        "max_cost_usd": 2.5,
        "on_failure": "continue",
        "allowed_tools": ["Read", "mcp__x"],
    }
    loop = start(caller(cast.alice), cast.falcon, timezone.now(), **body)
    form = LoopForm.again(loop)
    assert form.spec() == parse(body)
    assert form.values["max_cost_usd"] == "2.50" and form.values["timeout_per_run"] == ""
    assert ("Other", [("mcp__x", True)]) in form.tool_groups


def test_run_again_tells_no_tools_from_unrestricted(cast):
    now = timezone.now()
    none = start(caller(cast.alice), cast.falcon, now, allowed_tools=[])
    every = start(caller(cast.alice), cast.falcon, now)
    assert (LoopForm.again(none).tools, LoopForm.again(every).tools) == ((), None)


def test_the_outlook_says_the_worst_case_of_what_is_typed():
    seen = outlook(typed(max_runs="30", delay_seconds="120", no_progress_threshold="0"), AGENT)
    assert seen.worst == "At most 30 runs, at most 8 h 28 min, no cost ceiling"
    assert seen.left_out == []


def test_the_outlook_leaves_a_bad_field_out_and_says_so():
    seen = outlook(typed(message="", timeout_per_run="5"), AGENT)
    assert seen.left_out == [LABELS["timeout_per_run"]] and seen.worst.startswith("At most 5 runs")
    assert outlook(typed(max_runs="many"), AGENT).worst == ""


def test_the_outlook_warns_of_a_signal_that_the_template_does_not_name():
    assert "never mentions END" in outlook(typed(stop_signal="END"), AGENT).hints[0]
    assert "only replies are searched" in outlook(typed(message="say END", stop_signal="END"), AGENT).hints[0]
    assert outlook(typed(), AGENT).hints == []


def test_the_message_of_run_two_is_shown_where_it_differs():
    assert outlook(typed(message="before: {{previous_response}}"), AGENT).second
    assert not outlook(typed(message="plain"), AGENT).second
    assert not outlook(typed(message="before: {{previous_response}}", max_runs="1"), AGENT).second


def test_a_pattern_keeps_what_was_typed_and_takes_back_what_an_earlier_one_filled_in():
    form = typed(message="my own words", max_runs="7").shaped("poll")
    assert (form.values["message"], form.values["max_runs"]) == ("my own words", "7")
    assert (form.values["delay_seconds"], form.values["no_progress_threshold"]) == ("120", "0")
    again = form.shaped("drain")
    assert (again.values["delay_seconds"], again.values["on_failure"]) == ("0", "continue")
    assert (again.values["message"], again.values["max_runs"], again.once) == ("my own words", "7", form.once)
    assert form.shaped("nope") == form


@pytest.mark.parametrize(
    ("duration", "timeout", "offered"),
    [("600", "", 600), ("899", "", 899), ("900", "", None), ("9", "", None), ("60", "61", 60), ("60", "60", None)],
)
def test_a_deadline_below_the_timeout_of_a_run_offers_to_lower_it(duration, timeout, offered):
    assert outlook(typed(max_duration_seconds=duration, timeout_per_run=timeout), AGENT).shorter_timeout == offered


def test_the_outlook_is_also_a_command_line_that_a_shell_reads_back():
    message = 'it\'s {{run}} "quoted" $HOME'
    words = shlex.split(outlook(typed(message=message, max_cost_usd="1.50"), AGENT).curl.replace("\\\n", ""))
    assert words[3].endswith("/api/agents/falcon/loops")
    sent = json.loads(words[-1])
    assert (sent["message"], sent["max_cost_usd"]) == (message, 1.5) and parse(sent).max_runs == 5
