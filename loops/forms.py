"""The start form: what a person typed, as the fields that the API takes, and the API's sentences beside what was typed.

A number that cannot be read stays the text that it is, so that the core's own sentence refuses it. Nothing typed is ever lost.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.http import QueryDict

from agents.models import Agent
from loops import curl, words
from loops.advice import advice
from loops.core import prompt
from loops.core.spec import Errors, Invalid, MessageSpec, parse
from loops.models import Loop
from loops.patterns import PATTERNS

LABELS = {
    "message": "Message template",
    "max_runs": "Max runs",
    "stop_signal": "Stop signal",
    "delay_seconds": "Delay between runs",
    "timeout_per_run": "Timeout per run",
    "max_duration_seconds": "Max duration",
    "max_cost_usd": "Max cost",
    "no_progress_threshold": "No-progress threshold",
    "on_failure": "On iteration failure",
    "max_consecutive_failures": "Max consecutive failures",
    "model": "Model",
    "allowed_tools": "Allowed tools",
}
WHOLE = (
    *("max_runs", "delay_seconds", "timeout_per_run", "max_duration_seconds", "no_progress_threshold"),
    "max_consecutive_failures",
)
LEAST_TIMEOUT = 10  # seconds, of one run
INITIAL = {
    **dict.fromkeys(LABELS, ""),
    **{"max_runs": "5", "delay_seconds": "0", "no_progress_threshold": "3"},
    **{"on_failure": "abort", "max_consecutive_failures": "3"},
}
TOOLS = {
    "File": ("Read", "Write", "Edit"),
    "Search": ("Glob", "Grep"),
    "Execution": ("Bash",),
    "Web": ("WebFetch", "WebSearch"),
}


@dataclass(frozen=True, slots=True)
class LoopForm:
    """The form as it is on the page. `once` tells one filled-in form from another, so that it starts one loop however often it is sent."""

    values: Mapping[str, str]
    tools: tuple[str, ...] | None = None  # None = unrestricted
    ticked: tuple[str, ...] = ()
    once: str = field(default_factory=lambda: secrets.token_hex(16))
    errors: Errors = field(default_factory=dict)
    problem: str = ""
    pattern: str = ""

    # -- where it comes from --------------------------------------------------------------------
    @classmethod
    def new(cls, pattern: str = "") -> LoopForm:
        """The empty form, or one of the patterns."""
        chosen = next((known for known in PATTERNS if known.name == pattern), None)
        return cls({**INITIAL, **(chosen.fields if chosen else {})}, pattern=chosen.name if chosen else "")

    @classmethod
    def again(cls, loop: Loop) -> LoopForm:
        """Filled in with an earlier loop's limits."""
        stored = {name: getattr(loop, name) for name in LABELS if name != "allowed_tools"}
        values = {name: "" if value is None else _typed(value) for name, value in stored.items()}
        tools = None if loop.allowed_tools is None else tuple(loop.allowed_tools)
        return cls({**values, "allowed_tools": ""}, tools, tools or ())

    @classmethod
    def typed(cls, fields: QueryDict) -> LoopForm:
        """As it was sent. Browsers end lines with CR LF; a template has LF, as everywhere else."""
        values = {name: fields.get(name, "").replace("\r\n", "\n") for name in LABELS}
        ticked = tuple(fields.getlist("allowed_tools"))
        once = re.sub(r"[^0-9a-f]", "", fields.get("once", ""))[:32] or secrets.token_hex(16)
        return cls(values, ticked if fields.get("tools") == "only" else None, ticked, once)

    # -- what it means ----------------------------------------------------------------------------
    def body(self) -> dict[str, Any]:
        """The API's fields. An empty optional one is not sent, and takes its default there."""
        sent: dict[str, Any] = {name: text for name, text in self.values.items() if text.strip() and name in LABELS}
        sent.pop("allowed_tools", None)
        sent["message"] = self.values["message"]
        for name in WHOLE:
            if name in sent:
                sent[name] = _whole(sent[name])
        if "max_cost_usd" in sent:
            sent["max_cost_usd"] = _amount(sent["max_cost_usd"])
        if sent.get("on_failure") != "continue":
            sent.pop("max_consecutive_failures", None)
        if self.tools is not None:
            sent["allowed_tools"] = list(self.tools)
        return sent

    def spec(self) -> MessageSpec:
        """Raises Invalid with the API's sentences."""
        return parse(self.body())

    def shaped(self, pattern: str) -> LoopForm:
        """The form in the shape of a pattern; what the person has typed stays, what an earlier pattern filled in does not."""
        chosen = next((known for known in PATTERNS if known.name == pattern), None)
        if chosen is None:
            return self
        values = dict(self.values)
        for name, first in INITIAL.items():
            filled_in = {first, *(known.fields[name] for known in PATTERNS if name in known.fields)}
            if values[name] in filled_in or not values[name].strip():
                values[name] = chosen.fields.get(name, first)
        return replace(self, values=values, pattern=chosen.name)

    def refused(self, errors: Errors, problem: str = "") -> LoopForm:
        """The same form with what is wrong with it."""
        return replace(self, errors=errors, problem=problem)

    # -- how it is shown --------------------------------------------------------------------------
    @property
    def title(self) -> str:
        """The head of the error box."""
        if not self.errors:
            return "Not started"
        return (
            f"Not started: {'1 field needs' if len(self.errors) == 1 else f'{len(self.errors)} fields need'} a change"
        )

    @property
    def said(self) -> list[tuple[str, str]]:
        """Every refused field with its sentence, in the order of the form."""
        named = [name for name in LABELS if name in self.errors] + [name for name in self.errors if name not in LABELS]
        return [(name, f"{LABELS.get(name, name)} {self.errors[name][0]}") for name in named]

    @property
    def inputs(self) -> dict[str, dict[str, str]]:
        """Value and error of each field, for the template."""
        return {name: {"value": self.values[name], "error": _sentence(self.errors.get(name))} for name in LABELS}

    @property
    def tool_groups(self) -> list[tuple[str, list[tuple[str, bool]]]]:
        """The chips: the common tools by group, and whatever else an earlier loop was restricted to."""
        known = {name for names in TOOLS.values() for name in names}
        other = tuple(name for name in self.ticked if name not in known)
        groups = {**TOOLS, **({"Other": other} if other else {})}
        return [(group, [(name, name in self.ticked) for name in names]) for group, names in groups.items()]


def _typed(value: object) -> str:
    if isinstance(value, Decimal):
        dollars, _, cents = f"{value:f}".partition(".")
        return f"{dollars}.{cents.rstrip('0').ljust(2, '0')}"
    return str(value)


def _whole(text: str) -> int | str:
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) else text


def _amount(text: str) -> Decimal | str:
    return (
        Decimal(text.strip()) if re.fullmatch(r"\s*[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})\s*", text) else text
    )


def _sentence(errors: list[str] | None) -> str:
    return f"{errors[0][0].upper()}{errors[0][1:]}" if errors else ""


# -- what it will do --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Outlook:
    """What will end the loop as the form stands, and the most that it can take. `left_out` = fields that cannot be counted yet."""

    ends: list[str] = field(default_factory=list)
    not_limited: str = ""
    worst: str = ""
    reckoning: str = ""
    left_out: list[str] = field(default_factory=list)
    first: str = ""
    second: str = ""
    hints: list[str] = field(default_factory=list)
    shorter_timeout: int | None = None
    curl: str = ""


def outlook(form: LoopForm, agent: Agent) -> Outlook:
    """Reads the form with the API's own rules; a field that they refuse is left out, and said to be."""
    body, left_out = form.body(), []
    message, signal = body["message"], str(body.get("stop_signal", "")).strip()
    reports_cost = agent.harness != "command" or agent.output != "text"
    hints = advice(message, signal, has_budget="max_cost_usd" in body, reports_cost=reports_cost)
    command = curl.of_fields(settings.TRINITY_BASE_URL, agent.name, body) if message.strip() else ""
    body["message"] = "any"
    try:
        spec = parse(body)
    except Invalid as refused:
        left_out = [LABELS.get(name, name) for name in LABELS if name in refused.errors]
        if "max_runs" in refused.errors:
            return Outlook(left_out=left_out, first=message, hints=hints, curl=command)
        spec = parse({name: value for name, value in body.items() if name not in refused.errors})
    limit = agent.timeout_seconds
    return Outlook(
        ends=words.summary(spec, limit),
        not_limited=words.not_limited(spec),
        worst=words.worst_case(spec, limit),
        reckoning=words.reckoning(spec, limit),
        left_out=left_out,
        first=message,
        second=message if spec.max_runs > 1 and prompt.PREVIOUS in message else "",
        hints=hints,
        shorter_timeout=_shorter_timeout(spec, limit),
        curl=command,
    )


def _shorter_timeout(spec: MessageSpec, agent_timeout: int) -> int | None:
    """The timeout of a run with which a deadline below it would be met; None where there is nothing to mend."""
    limit = spec.max_duration_seconds
    if limit is None or not LEAST_TIMEOUT <= limit < (spec.timeout_per_run or agent_timeout):
        return None
    return limit
