"""What the bench measures: each function runs so many steps and returns the seconds of each."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import django_rq
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from agents import executions, queue
from agents.access import Caller
from agents.db import released
from agents.harness.contract import Result
from agents.models import Agent, User, Worker
from agents.worker import Beat, Desk
from loops import engine
from loops.core import spec
from loops.models import Loop
from trinity import redis_server

NOW = ["date", "+%s.%N"]  # an agent that does nothing but say when it ran


@contextmanager
def stage() -> Iterator[None]:
    """A database, a Valkey and nothing else."""
    socket = settings.REDIS_EMBEDDED_SOCKET
    server = redis_server.start(socket, Path(settings.TRINITY_DATA) / "redis") if socket else None
    try:
        if socket:
            redis_server.wait_until_ready(socket, 10)
        call_command("migrate", verbosity=0, skip_checks=True)
        yield
    finally:
        if server is not None:
            server.terminate()
            server.wait(10)


def gaps(steps: int, act: Callable[[], object]) -> list[float]:
    """The seconds that each of so many calls took."""
    found = []
    for _ in range(steps):
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return found


def raw(steps: int) -> list[float]:
    """The least: one row committed and one round trip to Redis."""
    redis = django_rq.get_connection(queue.QUEUE)

    def step() -> None:
        Worker(owner=f"raw/{time.time_ns()}", slots=1, seen_at=timezone.now()).save(force_insert=True)
        redis.ping()

    return gaps(steps, step)


def chains(agent: Agent, steps: int) -> Iterator[Loop]:
    """Loops of at most a hundred runs that make up so many steps."""
    for begun in range(0, steps, 100):
        body = {"message": "x", "max_runs": min(100, steps - begun), "no_progress_threshold": 0}
        caller = Caller(user=agent.owner, through="command")
        yield engine.create_loop(caller, agent, spec.parse(body), timezone.now())


def _agent() -> Agent:
    owner, _ = User.objects.get_or_create(username="bench")
    agent, _ = Agent.objects.get_or_create(owner=owner, name="bench", defaults={"command": NOW})
    return agent


def inline(steps: int) -> list[float]:
    """The engine alone: from a finished turn to the next one claimed, all rows, events and audit included."""
    found: list[float] = []
    for loop in chains(_agent(), steps):
        turn = executions.claim(loop.runs.get().execution_id, "bench/boot/1/1", timezone.now())
        while turn is not None:
            began = time.perf_counter()
            with released():
                turn = executions.finish(turn, Result(True, "ok", duration_ms=1), "bench/boot/1/1", timezone.now())
            found.append(time.perf_counter() - began)
    return found


def process(steps: int) -> list[float]:
    """A real worker with a real process: from one agent's last act to the next one's."""
    desk = Desk(4)
    Beat(desk).start()
    found: list[float] = []
    try:
        for loop in chains(_agent(), steps):
            desk.free.acquire()
            desk.answer(loop.runs.get().execution_id)
            while Loop.objects.active().filter(pk=loop.pk).exists():
                time.sleep(0.05)
            said = [float(text) for text in loop.runs.order_by("run_number").values_list("response_preview", flat=True)]
            found += [later - earlier for earlier, later in pairwise(said)]
    finally:
        desk.leave()
    return found


def alone(steps: int) -> list[float]:
    """The operating system's part: the same program started and waited for, without anything of ours."""
    return gaps(steps, lambda: subprocess.run(NOW, stdout=subprocess.DEVNULL, check=True))


ALL: dict[str, Callable[[int], list[float]]] = {"raw": raw, "inline": inline, "process": process, "alone": alone}
WORDS = {
    "raw": "raw: one commit + one Redis ping",
    "inline": "engine: finished to next claimed",
    "process": "process: agent to next agent",
    "alone": "the program alone",
}
