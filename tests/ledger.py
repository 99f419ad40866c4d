"""Plays the worker's part in tests of the ledger and the engine: claims and finishes turns without any process."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from agents import executions
from agents.access import Caller
from agents.executions import Turn
from agents.harness.contract import Result
from agents.models import Agent, Execution
from loops import engine
from loops.core import spec
from loops.models import Loop

OWNER = "host/boot/1/1"


def start(caller: Caller, agent: Agent, now: datetime, **body: object) -> Loop:
    """A loop as REST would start it."""
    return engine.create_loop(caller, agent, spec.parse({"message": "work", "max_runs": 3, **body}), now)


def ok(response: str = "done", cost: str | None = None) -> Result:
    return Result(succeeded=True, response=response, cost=None if cost is None else Decimal(cost), duration_ms=5)


def bad(error: str = "no", cost: str | None = None) -> Result:
    return Result(succeeded=False, error=error, cost=None if cost is None else Decimal(cost), duration_ms=5)


def claim(agent: Agent, now: datetime, owner: str = OWNER) -> Turn | None:
    """Answer the bell of the agent's newest turn, which gives the head of its line."""
    newest = Execution.objects.filter(agent=agent).order_by("-id").values_list("id", flat=True).first()
    return None if newest is None else executions.claim(newest, owner, now)


def play(agent: Agent, now: datetime, *results: Result, step: timedelta = timedelta(seconds=1)) -> Turn | None:
    """Run the agent's line in one slot, one result per turn; the turn that is still open, if any."""
    turn = claim(agent, now)
    for result in results:
        assert turn is not None, "nothing is left to run"
        now += step
        turn = executions.finish(turn, result, OWNER, now)
    return turn
