"""What a message loop may be asked to do: its limits, their bounds, and the words that refuse a bad one (seed 000, parameters).

The one validator of every door: form, REST and MCP hand in the same mapping and give out the same sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from loops.core.words import OnFailure

Errors = dict[str, list[str]]

MICRO = Decimal("0.000001")
MOST_MONEY = Decimal(10) ** 9  # up to here a JSON number keeps six decimals exactly


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """The limits of one message loop. `timeout_per_run` None = the agent's own; seconds and US dollars throughout."""

    message: str
    max_runs: int
    stop_signal: str | None = None
    delay_seconds: int = 0
    timeout_per_run: int | None = None
    max_duration_seconds: int | None = None
    max_cost_usd: Decimal | None = None
    no_progress_threshold: int = 3
    on_failure: OnFailure = OnFailure.ABORT
    max_consecutive_failures: int = 3
    model: str | None = None
    allowed_tools: tuple[str, ...] | None = None


class Invalid(Exception):
    """Input that breaks a rule: field name -> sentences."""

    def __init__(self, errors: Errors, **facts: Any) -> None:
        super().__init__(errors)
        self.errors = errors
        self.facts = facts


def _refuse(sentence: str) -> Any:
    raise ValueError(sentence)


def whole(value: Any, least: int, most: int) -> int:
    """A JSON integer within bounds; no boolean, fraction or number in a string."""
    said = f"must be a whole number from {least:,} to {most:,}"
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        _refuse(said)
    return int(value)


def _message(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 100_000:
        _refuse("must be text of 1 to 100,000 characters")
    if not value.strip():
        _refuse("must not be blank")
    return clean_text(value)


def clean_text(value: str) -> str:
    """Refuse what no database or process can carry: NUL and lone surrogates."""
    if "\0" in value or (not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value)):
        _refuse("must not contain NUL or broken characters")
    return value


def _signal(value: Any) -> str | None:
    if not isinstance(value, str):
        _refuse("must be text of at most 200 characters")
    stripped = value.strip()
    if len(stripped) > 200:
        _refuse("must be text of at most 200 characters")
    return clean_text(stripped) or None


def _threshold(value: Any) -> int:
    said = "must be 0 (off) or a whole number from 2 to 1,000,000"
    if isinstance(value, bool) or not isinstance(value, int) or value == 1 or not 0 <= value <= 1_000_000:
        _refuse(said)
    return int(value)


def money(value: Any) -> Decimal:
    """A JSON number above 0, kept to 6 decimals; rounded up where it would vanish."""
    said = "must be a number above 0, at most 1,000,000,000"
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        _refuse(said)
    # By way of text: 0.1 means a tenth here, not the binary fraction nearest to it.
    amount = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    if not amount.is_finite() or not 0 < amount <= MOST_MONEY:
        _refuse(said)
    return max(amount.quantize(MICRO), MICRO)


def _policy(value: Any) -> OnFailure:
    if value not in tuple(OnFailure) or not isinstance(value, str):
        _refuse("must be abort or continue")
    return OnFailure(value)


def _model(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > 200:
        _refuse("must be text of at most 200 characters")
    return clean_text(value.strip()) or None


def tools(value: Any) -> tuple[str, ...]:
    """A list of tool names; the empty list means no tools at all, so it is kept as it is."""
    said = "must be a list of at most 200 tool names (non-empty text of at most 200 characters without a comma)"
    if not isinstance(value, list | tuple) or len(value) > 200:
        _refuse(said)
    if not all(isinstance(name, str) and name.strip() and "," not in name and len(name) <= 200 for name in value):
        _refuse(said)
    return tuple(clean_text(name) for name in value)


FIELDS: dict[str, Callable[[Any], Any]] = {
    "message": _message,
    "max_runs": lambda value: whole(value, 1, 100),
    "stop_signal": _signal,
    "delay_seconds": lambda value: whole(value, 0, 3600),
    "timeout_per_run": lambda value: whole(value, 10, 7200),
    "max_duration_seconds": lambda value: whole(value, 1, 604_800),
    "max_cost_usd": money,
    "no_progress_threshold": _threshold,
    "on_failure": _policy,
    "max_consecutive_failures": lambda value: whole(value, 1, 100),
    "model": _model,
    "allowed_tools": tools,
}
REQUIRED = ("message", "max_runs")


def parse(body: Mapping[str, Any]) -> MessageSpec:
    """The spec that a caller's fields describe.

    A null optional field counts as not sent (product.md 3.13). Raises Invalid naming every bad, missing or unknown field.
    """
    errors: Errors = {_sayable(name): ["is not a field of a loop"] for name in body if name not in FIELDS}
    found: dict[str, Any] = {}
    for name, check in FIELDS.items():
        value = body.get(name)
        if value is None:
            if name in REQUIRED:
                errors[name] = [_said(check) if name in body else f"is required, {_said(check)}"]
            continue
        try:
            found[name] = check(value)
        except ValueError as refused:
            errors[name] = [str(refused)]
    if errors:
        raise Invalid(errors)
    return MessageSpec(**found)


def _sayable(name: str) -> str:
    """A field's name as an answer can carry it: JSON text may hold lone surrogates, UTF-8 may not."""
    return name.encode("utf-8", "replace").decode()


def _said(check: Callable[[Any], Any]) -> str:
    """The sentence that refuses null in a required field: what the field must be."""
    try:
        check(None)
    except ValueError as refused:
        return str(refused)
    return "is required"


def check_against_agent(spec: MessageSpec, agent_cap_seconds: int) -> None:
    """The two rules across fields: no run longer than the agent allows, no deadline that one run could not meet."""
    if spec.timeout_per_run is not None and spec.timeout_per_run > agent_cap_seconds:
        raise Invalid(
            {"timeout_per_run": [f"must be at most {agent_cap_seconds:,}, the agent's own limit"]},
            error="loop_timeout_exceeds_agent_cap",
            agent_cap_seconds=agent_cap_seconds,
            requested_seconds=spec.timeout_per_run,
        )
    effective = spec.timeout_per_run or agent_cap_seconds
    if spec.max_duration_seconds is not None and spec.max_duration_seconds < effective:
        raise Invalid({"max_duration_seconds": [f"must be at least {effective:,}, the timeout of one run"]})
