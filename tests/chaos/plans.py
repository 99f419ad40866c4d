"""What happens in a chaos run, all of it drawn from its seed: which loops people start and stop, and when what is killed. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Body = dict[str, Any]
Orders = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A loop to be started `at` seconds, and stopped `stop_after` seconds later where that is set. `orders` go to its agent."""

    name: str
    agent: str
    at: float
    body: Body
    orders: Orders
    stop_after: float | None = None

    @property
    def request(self) -> Body:
        """The body of the start."""
        message = "run {{run}}\nprevious {{previous_response}}\n" + json.dumps(self.orders)
        return {"message": message, **self.body}

    def fails(self, run: int) -> bool:
        """Is this run to fail by itself?"""
        return run in self.orders.get("fail", [])

    def answer(self, run: int) -> str:
        """What the agent answers in this run, if it succeeds."""
        say = self.orders["say"]
        return say.replace("{run}", str(run)) if isinstance(say, str) else say[run - 1]


@dataclass(frozen=True, slots=True)
class Blow:
    """Something bad that happens `at` seconds. `pick` (0–1) chooses among those it may hit, `lasts` seconds is its length."""

    at: float
    kind: str
    pick: float
    lasts: float


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    loops: int
    seconds: float  # in which loops are started and blows fall
    blows: int
    supervisor_blows: int
    agents: tuple[int, ...] = field(default=())  # their parallel turns


SHORT = Scale(loops=12, seconds=9, blows=10, supervisor_blows=1, agents=(1, 2, 3, 3))
LONG = Scale(loops=40, seconds=60, blows=70, supervisor_blows=2, agents=(1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3))

# kind -> how often, beside the others
BLOWS = {
    "worker KILL": 5,
    "worker TERM": 3,
    "worker STOP": 4,
    "workers' supervisor KILL": 1,
    "web KILL": 2,
    "web TERM": 1,
    "web STOP": 2,
    "sweep KILL": 2,
    "sweep TERM": 1,
    "sweep STOP": 2,
    "redis WIPED": 3,
    "agent KILL": 6,
    "agent and wrapper KILL": 5,
}
SUPERVISOR_BLOWS = ("up KILL", "up TERM", "up STOP")
POSTGRESQL_BLOWS = {"postgresql fast restart": 2, "postgresql immediate restart": 2}


def blows(random: Random, scale: Scale, postgresql: bool) -> list[Blow]:
    """When what is hit, in order."""
    kinds = BLOWS | (POSTGRESQL_BLOWS if postgresql else {})
    drawn = random.choices(list(kinds), weights=list(kinds.values()), k=scale.blows)
    drawn += random.sample(SUPERVISOR_BLOWS, scale.supervisor_blows)
    # The length of a freeze: from what nobody notices to beyond the lease.
    found = [
        Blow(random.uniform(1.5, scale.seconds), kind, random.random(), random.choice([0.3, 1.0, 3.0, 7.0, 9.0]))
        for kind in drawn
    ]
    return sorted(found, key=lambda blow: blow.at)


def loops(random: Random, scale: Scale) -> list[LoopPlan]:
    """The loops of a run: every kind in turn, so that none is missing however few there are."""
    kinds: list[Callable[[Random, str], tuple[Body, Orders]]] = [
        *(_slow, _delayed, _ends_by_signal, _fails_and_goes_on, _budget, _stands_still, _aborts, _endless),
        *(_too_many_failures, _plain, _unknown_cost, _deadline, _endless),
    ]
    found = []
    for number in range(scale.loops):
        kind = kinds[number % len(kinds)]
        name = f"{kind.__name__.strip('_')}-{number}"
        body, orders = kind(random, name)
        found.append(
            LoopPlan(
                name=name,
                agent=f"agent{random.randrange(len(scale.agents))}",
                at=random.uniform(0, scale.seconds * 0.6),
                body={"no_progress_threshold": 0, **body},
                orders={"sleep": round(random.uniform(0.05, 0.8), 2), "say": f"{name} {{run}}", **orders},
                stop_after=random.uniform(0.2, scale.seconds * 0.5) if kind is _endless else None,
            )
        )
    return found


def _plain(random: Random, name: str) -> tuple[Body, Orders]:
    return {"max_runs": random.randint(2, 5)}, {"cost": 0.01, "child": random.random() < 0.5}


def _slow(random: Random, name: str) -> tuple[Body, Orders]:
    return {"max_runs": 4}, {"sleep": round(random.uniform(2, 6), 2), "cost": 0.25, "child": True}


def _delayed(random: Random, name: str) -> tuple[Body, Orders]:
    return {"max_runs": random.randint(2, 4), "delay_seconds": random.randint(1, 2)}, {}


def _deadline(random: Random, name: str) -> tuple[Body, Orders]:
    limits = {"timeout_per_run": 10, "max_duration_seconds": random.randint(10, 13)}
    return {"max_runs": 100, "delay_seconds": random.randint(0, 2), **limits}, {"cost": 0.001}


def _budget(random: Random, name: str) -> tuple[Body, Orders]:
    return {"max_runs": 100, "max_cost_usd": round(random.uniform(0.2, 1.0), 2)}, {"cost": 0.17}


def _unknown_cost(random: Random, name: str) -> tuple[Body, Orders]:
    return {"max_runs": 3, "max_cost_usd": 0.01}, {"cost": None}


def _aborts(random: Random, name: str) -> tuple[Body, Orders]:
    return {"max_runs": 5, "on_failure": "abort"}, {"fail": [random.randint(1, 4)]}


def _fails_and_goes_on(random: Random, name: str) -> tuple[Body, Orders]:
    limits = {"on_failure": "continue", "max_consecutive_failures": 3}
    return {"max_runs": 5, **limits}, {"fail": random.sample(range(1, 6), 2), "cost": 0.05}


def _too_many_failures(random: Random, name: str) -> tuple[Body, Orders]:
    limits = {"on_failure": "continue", "max_consecutive_failures": 2}
    return {"max_runs": 9, **limits}, {"fail": [2, 4, 5]}


def _ends_by_signal(random: Random, name: str) -> tuple[Body, Orders]:
    last = random.randint(2, 4)
    return {"max_runs": 9, "stop_signal": f"DONE {last}"}, {"say": "it is DONE {run}"}


def _stands_still(random: Random, name: str) -> tuple[Body, Orders]:
    return {"max_runs": 9, "no_progress_threshold": 3}, {"say": ["a", "b", "b", "b", "c", "c", "c", "d", "d"]}


def _endless(random: Random, name: str) -> tuple[Body, Orders]:
    body = {"max_runs": 100, "delay_seconds": random.choice([0, 0, 1, 5])}
    return body, {"sleep": round(random.uniform(0.2, 2.0), 2)}
