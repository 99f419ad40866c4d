"""Turn what a process said and how it ended into a Result (interface.md 2, "Results"). Reads no file and no clock."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agents.harness.contract import Result
from agents.harness.masking import mask, mask_text
from agents.harness.spools import Tail
from agents.harness.wrapper import Exit

RESPONSE_LIMIT = 1_048_576  # characters
ERROR_LIMIT = 2_000
MISSING = (
    'no result object on stdout: an agent with output json prints one, such as {"result": "…", "total_cost_usd": 0.12} '
    '(README, "What a loop is"); one that answers in plain text needs output text'
)
TEXT_WINDOW = 4 * RESPONSE_LIMIT + 4_096  # bytes: whatever the characters, and a secret that begins before them
ERROR_WINDOW = 16_384
# Bytes within which a result object is looked for: first the near ones, which nearly always do, then as many as the
# longest response takes where every character is written as an escaped surrogate pair.
RESULT_WINDOWS = (1 << 20, 12 * RESPONSE_LIMIT + 65_536)

COST_MOST = Decimal(1_000_000_000)
_COST_STEP = Decimal("0.000001")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_TIMEOUT_CODES = (124, 137)  # what `timeout` answers at its limit: it asked, or it had to kill
_CANNOT_RUN_CODES = (126, 127)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process of `program` ended."""

    program: str
    exit: Exit

    @property
    def succeeded(self) -> bool:
        return self.exit.rc == 0

    @property
    def timed_out(self) -> bool:
        """An agent may answer 124 itself, or be killed by somebody: it was the limit only if the time is up."""
        return self.exit.rc in _TIMEOUT_CODES and self.exit.seconds >= self.exit.limit


# -- text -----------------------------------------------------------------------------------------
def text_result(ending: Ending, out: Tail, err: Tail, secrets: Sequence[str]) -> Result:
    """The result of a process whose stdout is the answer."""
    if not ending.succeeded:
        error = _without_answer(ending, out, err, secrets)
        return Result(False, error=error, duration_ms=ending.exit.duration_ms, timed_out=ending.timed_out)
    text = mask(out.data, secrets).decode("utf-8", "replace")
    cut = not out.whole or len(text) > RESPONSE_LIMIT
    response = clean(text[-RESPONSE_LIMIT:])
    return Result(True, response=response, response_truncated=cut, duration_ms=ending.exit.duration_ms)


def last_characters(tail: Tail, limit: int, secrets: Sequence[str]) -> str:
    """The last characters of a spool as they may be shown: masked before they are cut, and always proper text."""
    return clean(mask(tail.data, secrets).decode("utf-8", "replace")[-limit:])


def clean(text: str) -> str:
    """Text that can be stored and sent: U+FFFD for NUL and for lone surrogates."""
    return _NOT_TEXT.sub("\ufffd", text)


# -- json -----------------------------------------------------------------------------------------
def json_result(ending: Ending, found: dict[str, Any] | None, out: Tail, err: Tail, secrets: Sequence[str]) -> Result:
    """The result of a process that prints a result object; `found` is that object (see `result_object`)."""
    if found is None:
        error = _without_answer(ending, out, err, secrets, missing=MISSING)
        return Result(False, error=error, duration_ms=ending.exit.duration_ms, timed_out=ending.timed_out)
    text = _text(found.get("result"), secrets)
    succeeded = ending.succeeded and found.get("is_error") is not True
    return Result(
        succeeded,
        response=text[-RESPONSE_LIMIT:] if succeeded else "",
        response_truncated=succeeded and len(text) > RESPONSE_LIMIT,
        error="" if succeeded else _with_answer(ending, text, err, secrets),
        cost=cost_of(found.get("total_cost_usd")),
        session_id=_name(found.get("session_id"), secrets),
        model=_name(found.get("model"), secrets),
        usage=_usage(found, secrets),
        duration_ms=ending.exit.duration_ms,
        timed_out=ending.timed_out,
    )


def cost_of(value: object) -> Decimal | None:
    """Reported money in dollars, to six decimals; None = not reported, as which all but a sane number counts."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    amount = Decimal(value)
    if not amount.is_finite() or not 0 <= amount <= COST_MOST:
        return None
    return abs(amount.quantize(_COST_STEP))


def _text(value: object, secrets: Sequence[str]) -> str:
    """The answer of a result object as text; what is no text is shown as JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(_plain(value, secrets, depth=8), ensure_ascii=False)
    return mask_text(clean(text), secrets)


def _name(value: object, secrets: Sequence[str]) -> str:
    return mask_text(clean(value[:2000]), secrets)[:200] if isinstance(value, str) else ""


def _usage(found: dict[str, Any], secrets: Sequence[str]) -> dict[str, Any] | None:
    """What the agent says about tokens and turns, as far as it is small and plain."""
    usage = found.get("usage")
    facts = dict(usage) if isinstance(usage, dict) else {}
    if isinstance(found.get("num_turns"), int):
        facts["num_turns"] = found["num_turns"]
    return _plain(facts, secrets, depth=3) if facts else None


def _plain(value: object, secrets: Sequence[str], depth: int) -> Any:
    """A copy that any database and any JSON reader takes: finite numbers, proper text, at most 100 entries a level."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Decimal):
        return float(value) if value.is_finite() and abs(value) < Decimal("1e300") else None
    if isinstance(value, str):
        return mask_text(clean(value[:2000]), secrets)[:1000]
    if depth == 0:
        return None
    if isinstance(value, dict):
        entries = list(value.items())[:100]
        return {_name(name, secrets): _plain(entry, secrets, depth - 1) for name, entry in entries}
    if isinstance(value, list):
        return [_plain(entry, secrets, depth - 1) for entry in value[:100]]
    return None


# -- errors ---------------------------------------------------------------------------------------
def _without_answer(ending: Ending, out: Tail, err: Tail, secrets: Sequence[str], missing: str = "") -> str:
    """Why there is no answer, and the last that the process said: on stderr, or else on stdout."""
    if reason := _cannot_run(ending, err):
        return clean(mask_text(reason, secrets))
    why = _how_it_ended(ending)
    if missing and not why:
        why = missing if ending.succeeded else f"{missing}, exit code {ending.exit.rc}"
    said = _last_words(err, secrets) or _last_words(out, secrets)
    return "\n".join(filter(None, (why, said))) or f"exit code {ending.exit.rc}"


def _with_answer(ending: Ending, text: str, err: Tail, secrets: Sequence[str]) -> str:
    """Why a turn with a result object failed: how the process ended, and what the result says."""
    why = _how_it_ended(ending)
    if not why and not ending.succeeded:
        why = f"exit code {ending.exit.rc}"
    said = text.strip()[-ERROR_LIMIT:] or _last_words(err, secrets)
    return ": ".join(filter(None, (why, said))) or "the agent reported an error and did not say which"


def _how_it_ended(ending: Ending) -> str:
    """The limit or a signal, in words; empty where the exit code was the process' own."""
    if ending.timed_out:
        return f"timed out after {ending.exit.limit} s"
    number = ending.exit.rc - 128
    if not 1 <= number <= 64:
        return ""
    try:
        return f"ended by {signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"ended by signal {number}"


def _cannot_run(ending: Ending, err: Tail) -> str:
    """That the program could not be executed at all, which `timeout` reports in one line; empty where it ran."""
    if ending.exit.rc not in _CANNOT_RUN_CODES or not err.whole:
        return ""
    # The words around the name depend on the locale, and so do the quotes.
    line = rf"timeout: .*\W{re.escape(ending.program)}\W[^:]*: (.+)\n"
    found = re.fullmatch(line, err.data.decode("utf-8", "replace"))
    return f"could not start {ending.program}: {found[1]}" if found else ""


def _last_words(tail: Tail, secrets: Sequence[str]) -> str:
    return last_characters(Tail(tail.data[-ERROR_WINDOW:].rstrip(), tail.whole), ERROR_LIMIT, secrets).strip()
