"""Who plays in the bench: one person, agents with commands that do next to nothing, and loops started as a person would."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents import executions
from agents.access import Caller
from agents.executions import Turn
from agents.models import Agent, User, Worker
from loops import engine
from loops.core import spec
from loops.models import Loop
from tests.bench.stage import until

MOST_RUNS = 100  # of one loop


def person() -> User:
    return User.objects.get_or_create(username="bench", defaults={"is_superuser": True})[0]


def agent(name: str, command: tuple[str, ...] = ("true",), *, slots: int = 3) -> Agent:
    """The agent of this name, made when there is none."""
    fields = {"command": list(command), "max_parallel_tasks": slots}
    return Agent.objects.get_or_create(owner=person(), name=name, defaults=fields)[0]


def start(on: Agent, runs: int, **limits: object) -> Loop:
    """A loop of so many runs that nothing ends before."""
    body = {"message": "x", "max_runs": runs, "no_progress_threshold": 0, **limits}
    caller = Caller(user=on.owner, through="command")
    return engine.create_loop(caller, on, spec.parse(body), timezone.now())


def start_claimed(on: Agent, runs: int, owner: str) -> Turn:
    """A loop whose first turn `owner` holds before any worker can hear its bell."""
    with transaction.atomic():
        loop = start(on, runs)
        turn = executions.claim(loop.runs.get().execution_id, owner, timezone.now())
    if turn is None:
        raise RuntimeError(f"{on.name} has no free slot")
    return turn


def stop_all(loops: QuerySet[Loop]) -> None:
    """Ask each of these loops to end."""
    for loop in loops:
        engine.request_stop(Caller(user=person(), through="command"), loop.pk, timezone.now())


def wait_for_workers(count: int, since: datetime) -> None:
    """Return when so many worker processes have been heard since then."""
    until(lambda: Worker.objects.filter(seen_at__gte=since).count() >= count, "the workers")
