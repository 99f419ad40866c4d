"""What often goes wrong with a loop and is no error: said beside the form before it is started. Pure."""

from __future__ import annotations

import re

from loops.core.prompt import PREVIOUS, RUN

_LIKE_A_PLACEHOLDER = re.compile(r"\{\{[^{}\n]{1,60}\}\}")
_MOST_NAMED = 3


def advice(message: str, signal: str, *, has_budget: bool, reports_cost: bool) -> list[str]:
    """Sentences, the most likely mistake first; `reports_cost` False = the agent answers in plain text alone."""
    said = [_placeholders(message), _budget(has_budget, reports_cost), _signal(message, signal)]
    return [sentence for sentence in said if sentence]


def _placeholders(message: str) -> str:
    found = dict.fromkeys(_LIKE_A_PLACEHOLDER.findall(message))
    if not (unknown := [name for name in found if name not in {RUN, PREVIOUS}]):
        return ""
    names, verb = ", ".join(unknown[:_MOST_NAMED]), "are sent as they are" if len(unknown) > 1 else "is sent as it is"
    return f"{names} {verb}: only {RUN} and {PREVIOUS} are filled in."


def _budget(has_budget: bool, reports_cost: bool) -> str:
    if not has_budget or reports_cost:
        return ""
    return "This agent answers in plain text, which reports no cost: a run without a cost adds nothing, so the budget cannot end the loop."


def _signal(message: str, signal: str) -> str:
    if not signal or not message.strip():
        return ""
    if signal in message:
        return f"The template itself contains {signal}. That is fine: only replies are searched."
    return f"The template never mentions {signal}, so the agent may not know to say it."
