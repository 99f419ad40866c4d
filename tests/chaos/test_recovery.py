"""How fast it goes on after a blow, with the product's own limits (a lease of 10 s): measured on real installations, and printed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.chaos import attack, services
from tests.chaos.product import Product, running, until

AGENT = [sys.executable, "-I", "-S", str(Path(__file__).with_name("agent.py"))]
LOOPS = 24

pytestmark = pytest.mark.chaos


@pytest.fixture(params=["sqlite", "postgresql"])
def product(request) -> Iterator[Product]:
    if request.param == "postgresql" and (lacking := services.missing()):
        pytest.skip(f"NOT PROVEN ON POSTGRESQL: this machine has no {lacking}")
    with running(request.param, lease=10, workers=4, slots=25) as found:
        found.wait_until_ready()
        attack.make_agents(found, (32, 32), AGENT)
        yield found
        for loop_id in _column(found, "SELECT id FROM loops_loop WHERE status IN ('queued', 'running')"):
            found.call("POST", f"/api/loops/{loop_id}/stop")


@pytest.fixture
def say(capsys) -> Callable[[str], None]:
    def out(text: str) -> None:
        with capsys.disabled():
            print(text)

    return out


def _column(product: Product, query: str) -> list[Any]:
    """The first column of a query to the product's database."""
    if product.postgresql is not None:
        with psycopg.connect(product.postgresql.url, autocommit=True) as connection:
            return [row[0] for row in connection.execute(query).fetchall()]
    connection = sqlite3.connect(f"file:{product.data}/trinity.sqlite3?mode=ro", uri=True)
    try:
        return [row[0] for row in connection.execute(query)]
    finally:
        connection.close()


def _start(product: Product, sleep: float, **body: Any) -> None:
    orders = json.dumps({"sleep": sleep, "say": "run {run}", "cost": 0.01})
    message = "run {{run}}\nprevious {{previous_response}}\n" + orders
    for number in range(LOOPS):
        product.call("POST", f"/api/agents/agent{number % 2}/loops", {"message": message, "max_runs": 100, **body})


def _running(product: Product, owner: str = "") -> list[str]:
    """The turns in flight, of all or of this owner."""
    of_owner = f" AND owner = '{owner}'" if owner else ""
    return _column(product, f"SELECT id FROM agents_execution WHERE state = 'running'{of_owner}")


def _busiest(product: Product) -> tuple[str, int]:
    """The worker that holds the most turns: its name on the ledger, and its pid."""
    holders = _column(product, "SELECT owner FROM agents_execution WHERE state = 'running'")
    owner = max(set(holders), key=holders.count)
    return owner, int(owner.split("/")[2])


def _seconds_until(claim: Callable[[], object], since: float, what: str) -> float:
    until(claim, 40, what)
    return time.monotonic() - since


def test_the_turns_of_a_killed_worker_are_adopted_within_four_seconds(product, say):
    _start(product, sleep=25)
    until(lambda: len(_running(product)) == LOOPS, 30, "not all turns are in flight")
    owner, pid = _busiest(product)
    count, killed = len(_running(product, owner)), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    took = _seconds_until(lambda: not _running(product, owner), killed, "they are not adopted")
    say(f"\nrecovery, {_kind(product)}: {count} turns of a killed worker adopted after {took:.1f} s (at most 4)")
    assert took <= 4
    assert len(_running(product)) == LOOPS and len(product.calls()) == LOOPS


def test_the_turns_of_a_frozen_worker_are_adopted_within_twelve_seconds(product, say):
    _start(product, sleep=40)
    until(lambda: len(_running(product)) == LOOPS, 30, "not all turns are in flight")
    owner, pid = _busiest(product)
    count, frozen = len(_running(product, owner)), time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    took = _seconds_until(lambda: not _running(product, owner), frozen, "they are not adopted")
    os.kill(pid, signal.SIGCONT)
    say(f"\nrecovery, {_kind(product)}: {count} turns of a frozen worker adopted after {took:.1f} s (at most 12)")
    assert took <= 12
    assert len(_running(product)) == LOOPS and len(product.calls()) == LOOPS


def test_all_loops_move_again_within_twelve_seconds_after_redis_is_wiped(product, say):
    _start(product, sleep=0.2, delay_seconds=1, no_progress_threshold=0)  # each run needs a bell of its own
    until(lambda: len({call["loop"] for call in product.calls() if call["run"] == 2}) == LOOPS, 40, "they do not run")
    killer = attack.Killer(product, attack.Record([]))
    began, since = time.monotonic(), time.time()
    assert killer.wipe_redis(pause=0.5)

    def moved() -> bool:
        return (
            len({call["loop"] for call in product.calls() if call["at"] > since + 2 and call["what"] == "begin"})
            == LOOPS
        )

    took = _seconds_until(moved, began, "they do not move")
    say(
        f"\nrecovery, {_kind(product)}: {LOOPS} loops move again {took:.1f} s after Redis was killed and wiped (at most 12)"
    )
    assert took <= 12


def _kind(product: Product) -> str:
    return "postgresql" if product.postgresql else "sqlite"
