"""The message of one run: one pass over the template, everything else byte for byte."""

import pytest

from loops.core.facts import CARRY, Facts, Outcome, after, tail
from loops.core.prompt import render

FAMILY = "👨‍👩‍👧‍👦"  # seven code points joined into one picture


def test_both_placeholders_are_filled_wherever_they_stand():
    assert render("{{run}}{{run}}: {{previous_response}}/{{previous_response}}", 7, "ok") == "77: ok/ok"


def test_the_first_run_has_no_previous_response():
    assert render("N={{run}} P=[{{previous_response}}]", 1, Facts().carry) == "N=1 P=[]"


@pytest.mark.parametrize(
    "text",
    [
        "{{ run }}",
        "{{RUN}}",
        "{run}",
        "{{run",
        "run}}",
        "{{{{x}}}}",
        "%s %(run)s ${run} $1",
        "{{previous}}",
        "`id` $(x) \\ \r\n\t",
    ],
)
def test_everything_else_stays_as_it_is(text):
    assert render(text, 3, "never seen") == text


@pytest.mark.parametrize(
    ("template", "sent"), [("{{{run}}}", "{3}"), ("{{{{run}}}}", "{{3}}"), ("{{run}}{{run}", "3{{run}")]
)
def test_only_the_exact_text_is_a_placeholder(template, sent):
    assert render(template, 3, "") == sent


def test_signs_that_mean_something_to_a_substitution_are_carried_literally():
    said = r"$& $1 \1 \g<0> %s {0} ${x} \n \\"
    assert render("Before: {{previous_response}}!", 2, said) == f"Before: {said}!"


def test_what_is_put_in_is_never_expanded_again():
    sent = render("N={{run}} P={{previous_response}}", 2, "{{run}} and {{previous_response}}")
    assert sent == "N=2 P={{run}} and {{previous_response}}"


def test_a_placeholder_that_only_the_filling_would_complete_is_left():
    assert render("{{previous_response}}run}}", 2, "{{") == "{{run}}"


def carried(response: str) -> str:
    return after(Facts(), Outcome(1, True, response)).carry


@pytest.mark.parametrize("length", [0, 1, CARRY - 1, CARRY])
def test_a_response_up_to_2000_characters_is_carried_whole(length):
    assert carried("é" * length) == "é" * length


def test_of_a_longer_response_the_last_2000_characters_are_carried():
    assert carried("x" * 500 + "y" * 1999 + "z") == "y" * 1999 + "z"
    assert carried("x" + "y" * 2000) == "y" * 2000


@pytest.mark.parametrize("inside", range(len(FAMILY) + 1))
def test_a_cut_through_a_joined_emoji_leaves_2000_whole_characters(inside):
    response = "a" * 500 + FAMILY + "b" * (CARRY - inside)
    kept = tail(response)
    assert kept == FAMILY[len(FAMILY) - inside :] + "b" * (CARRY - inside)
    assert kept.encode("utf-8").decode() == kept


def test_a_failed_run_never_overwrites_what_is_carried():
    facts = after(Facts(), Outcome(1, True, "A"))
    facts = after(facts, Outcome(2, False, "B", error="bad"))
    assert render("[{{previous_response}}]", 3, facts.carry) == "[A]"


def test_where_all_runs_failed_nothing_is_carried():
    facts = after(after(Facts(), Outcome(1, False, "B")), Outcome(2, False, "C"))
    assert render("[{{previous_response}}]", 3, facts.carry) == "[]"


def test_an_empty_success_is_carried_as_empty():
    facts = after(after(Facts(), Outcome(1, True, "A")), Outcome(2, True, ""))
    assert facts.carry == ""
