"""Advice beside the start form: what is no error and often a mistake."""

import pytest

from loops.advice import advice


def said(message: str = "work", signal: str = "", *, has_budget: bool = False, reports_cost: bool = True) -> str:
    return " ".join(advice(message, signal, has_budget=has_budget, reports_cost=reports_cost))


@pytest.mark.parametrize("wrong", ["{{run_numbr}}", "{{ run }}", "{{RUN}}", "{{previous}}"])
def test_a_mistyped_placeholder_is_named_with_those_that_there_are(wrong):
    sentence = said(f"item {wrong} of {{{{run}}}}")
    assert sentence.startswith(f"{wrong} is sent as it is") and "{{run}} and {{previous_response}}" in sentence


@pytest.mark.parametrize("fine", ["{{run}} {{previous_response}}", "{run}", "{{}}", "{{a\nb}}", "{{" * 5000])
def test_what_is_no_placeholder_is_not_complained_of(fine):
    assert said(fine) == ""


def test_a_budget_on_an_agent_that_reports_no_cost_is_said_to_be_without_effect():
    assert "cannot end the loop" in said(has_budget=True, reports_cost=False)
    assert said(has_budget=True) == said(reports_cost=False) == ""


def test_a_signal_that_the_template_never_mentions_is_pointed_out():
    assert "never mentions [[DONE]]" in said(signal="[[DONE]]")
    assert "only replies are searched" in said("say [[DONE]]", "[[DONE]]")
