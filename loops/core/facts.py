"""What is known of a loop's past, and how one finished run changes it. Computes; decides nothing.

Everything here is a running counter, so that a decision after run 100 costs what one after run 1 does.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

CARRY = 2000  # characters of the last successful response that the next message may carry (seed 000)
EXCERPT = 80  # characters shown on either side of a matched stop signal

_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended. `cost` None = not reported; `cut_off` = a person ended it."""

    run_number: int
    succeeded: bool
    response: str = ""
    error: str = ""
    cost: Decimal | None = None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The past of one loop, counted. `last` is the run that has just ended, None when it is looked at between runs."""

    runs_completed: int = 0
    failed_runs: int = 0
    failure_streak: int = 0
    same_replies: int = 0
    fingerprint: str = ""
    spend: Decimal = Decimal(0)
    unknown_cost_runs: int = 0
    carry: str = ""
    started_at: datetime | None = None
    stop_requested: bool = False
    last: Outcome | None = None


def fingerprint(response: str) -> str:
    """Of the whole response, each run of whitespace folded to one space and the ends stripped (product.md 3.3)."""
    return hashlib.sha256(_BLANKS.sub(" ", response).strip().encode("utf-8", "replace")).hexdigest()


def tail(text: str, size: int = CARRY) -> str:
    """The last `size` characters."""
    return text[-size:]


def excerpt(response: str, signal: str) -> str:
    """The first match of the signal with a little text on both sides, so that a false match is seen as one."""
    at = response.index(signal)
    begin, end = max(0, at - EXCERPT), at + len(signal) + EXCERPT
    return ("…" if begin else "") + response[begin:end] + ("…" if end < len(response) else "")


def after(facts: Facts, run: Outcome) -> Facts:
    """The facts once this run is counted.

    Only successes move the chain of equal replies and the carried text; spend counts every reported cost (product.md 3.3, 3.4).
    A failure is counted as tolerated here; `decide.Finish.tolerated` takes the one back that ends the loop.
    """
    counted = replace(
        facts,
        runs_completed=facts.runs_completed + 1,
        spend=facts.spend + (run.cost or 0),
        unknown_cost_runs=facts.unknown_cost_runs + (run.cost is None),
        last=run,
    )
    if not run.succeeded:
        return replace(counted, failed_runs=facts.failed_runs + 1, failure_streak=facts.failure_streak + 1)
    seen = fingerprint(run.response)
    return replace(
        counted,
        failure_streak=0,
        same_replies=facts.same_replies + 1 if seen == facts.fingerprint else 1,
        fingerprint=seen,
        carry=tail(run.response),
    )
