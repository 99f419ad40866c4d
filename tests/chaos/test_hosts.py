"""Two worker hosts against one PostgreSQL and one Redis: each has a data folder, and with it a host id, of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import django_rq
import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from agents import executions, queue
from agents.harness import process
from agents.models import Agent, Audit, Execution, Worker
from loops import engine
from loops.models import Loop
from tests.chaos.nursery import LEASE, Nursery, until
from tests.conftest import caller, make_agent, make_user
from tests.ledger import start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "postgresql",
        reason="SEVERAL HOSTS ARE NOT PROVEN HERE: they need DATABASE_URL and REDIS_URL",
    ),
]

NOTE = "import os, time; open('calls', 'a').write(os.environ['TRINITY_LOOP_ID'] + ' ' + os.environ['TRINITY_RUN'] + '\\n'); "
HELD = "exec(\"while not os.path.exists('go'): time.sleep(0.02)\"); "
SAY = "print('run', os.environ['TRINITY_RUN'], os.getcwd())"
SETTLE = 1.5  # seconds: a beat and a sweep, and a little


class Host:
    """A host: its processes, and what the agents that ran there have written down."""

    def __init__(self, parts: Nursery, agent: Agent) -> None:
        self.parts = parts
        self.workspace = parts.data / "workspaces" / f"{agent.name}-{agent.pk}"
        self.workspace.mkdir(parents=True, exist_ok=True)
        for name in ("calls", "go"):
            (self.workspace / name).unlink(missing_ok=True)

    @property
    def name(self) -> str:
        """As it is called on the ledger."""
        return (self.parts.data / "host_id").read_text()

    def calls(self, loop: Loop) -> list[str]:
        """The runs of the loop whose agent was called here."""
        file = self.workspace / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(loop.pk)]

    def let_go(self) -> None:
        """Let the agents that wait here end."""
        (self.workspace / "go").touch()


@pytest.fixture(scope="module")
def nurseries(django_db_setup, valkey):
    other = Path(tempfile.mkdtemp(prefix="trinity-test-host-"))
    database = str(connection.settings_dict["NAME"])
    try:
        with Nursery(database, Path(settings.TRINITY_DATA)) as one, Nursery(database, other) as two:
            yield one, two
    finally:
        shutil.rmtree(other)


@pytest.fixture
def hosts(nurseries, transactional_db):
    """Agent falcon with four slots, and hosts `one` and `two` that may run it; their sweeps run."""
    django_rq.get_queue(queue.QUEUE).empty()
    alice = make_user("alice")
    falcon = make_agent(
        alice, command=[sys.executable, "-c", "import sys; exec(sys.stdin.read())"], max_parallel_tasks=4
    )
    one, two = (Host(parts, falcon) for parts in nurseries)
    one.parts.sweep()
    two.parts.sweep()
    yield SimpleNamespace(one=one, two=two, alice=alice, falcon=falcon)
    for parts in nurseries:
        parts.end_all()
    process.end_leftovers(set(Execution.objects.values_list("id", flat=True)), 0)


def begin(hosts: SimpleNamespace, code: str, **body: object) -> Loop:
    limits = {"max_runs": 2, "no_progress_threshold": 0, **body}
    return start(caller(hosts.alice), hosts.falcon, timezone.now(), message=NOTE + code, **limits)


def ends(loop: Loop) -> tuple[str, str, int]:
    def over() -> bool:
        loop.refresh_from_db()
        return not loop.is_active

    until(over, 40, "it does not end")
    numbers = list(loop.runs.order_by("run_number").values_list("run_number", flat=True))
    assert numbers == list(range(1, loop.runs_completed + 1))
    trail = Counter(Audit.objects.filter(target=loop.pk).values_list("action", flat=True))
    assert (trail["loop.start"], trail["loop.end"]) == (1, 1)
    return loop.status, loop.stop_reason, loop.runs_completed


def turn_of(loop: Loop, run: int = 1) -> Execution:
    return loop.runs.get(run_number=run).execution


def lose(host: Host, *workers) -> None:
    """The whole host is gone: its sweep, its workers and the turns that they have started."""
    for worker in workers:
        worker.freeze()  # so that nobody notices the end of a turn before the worker is gone too
    owned = Execution.objects.filter(state="running", owner__startswith=f"{host.name}/").values_list("pk", flat=True)
    for pids in process.marked(set(owned)).values():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    host.parts.end_all()


def test_two_hosts_share_the_work_of_one_agent(hosts):
    for host in (hosts.one, hosts.two):
        host.parts.worker(slots=2)
    until(lambda: Worker.objects.count() == 2)
    loops = [begin(hosts, f"time.sleep(0.3); {SAY}", max_runs=3) for _ in range(4)]
    for loop in loops:
        assert ends(loop) == ("completed", "max_runs_reached", 3)
        assert sorted(hosts.one.calls(loop) + hosts.two.calls(loop)) == ["1", "2", "3"]
    assert hosts.one.name != hosts.two.name
    for host in (hosts.one, hosts.two):
        assert any(host.calls(loop) for loop in loops)
        assert Execution.objects.filter(response__contains=str(host.workspace)).count() == sum(
            len(host.calls(loop)) for loop in loops
        )


def test_a_dead_workers_turn_is_adopted_by_its_own_host_alone(hosts):
    first = hosts.one.parts.worker()
    loop = begin(hosts, HELD + SAY)
    until(lambda: hosts.one.calls(loop))
    hosts.two.parts.worker()
    until(lambda: Worker.objects.count() == 2)
    first.kill()
    heir = hosts.one.parts.worker()
    until(lambda: turn_of(loop).fence == 2, what="it is not adopted")
    assert turn_of(loop).owner.split("/")[0] == hosts.one.name and f"/{heir.pid}/" in turn_of(loop).owner
    time.sleep(LEASE + SETTLE)  # longer than the lease that it had when its worker died
    assert (turn_of(loop).fence, turn_of(loop).attempt) == (2, 1)
    hosts.one.let_go()
    hosts.two.let_go()
    assert ends(loop) == ("completed", "max_runs_reached", 2)
    assert hosts.one.calls(loop)[:1] == ["1"] and "1" not in hosts.two.calls(loop)


def test_the_turns_of_a_vanished_host_are_repeated_elsewhere_a_lease_later(hosts, capsys):
    lost = hosts.one.parts.worker()
    loops = [begin(hosts, HELD + SAY) for _ in range(3)]
    until(lambda: all(hosts.one.calls(loop) for loop in loops))
    hosts.two.parts.worker()
    hosts.two.let_go()
    until(lambda: Worker.objects.count() == 2)
    gone = time.monotonic()
    lose(hosts.one, lost)
    until(lambda: all(hosts.two.calls(loop) for loop in loops), what="they are not repeated")
    took = time.monotonic() - gone
    for loop in loops:
        assert ends(loop) == ("completed", "max_runs_reached", 2)
        assert (hosts.one.calls(loop), hosts.two.calls(loop)) == (["1"], ["1", "2"])
        assert turn_of(loop).attempt == 2 and turn_of(loop).response == f"run 1 {hosts.two.workspace}\n"
    with capsys.disabled():
        print(
            f"\nhosts: the turns of a vanished host were repeated {took:.1f} s after it was gone, with a lease of {LEASE} s"
        )
    assert LEASE - 1.5 < took < LEASE + 6


def test_a_turn_that_waits_again_after_its_host_vanished_can_be_stopped(hosts):
    lost = hosts.one.parts.worker()
    loop = begin(hosts, HELD + SAY)
    until(lambda: hosts.one.calls(loop))
    lose(hosts.one, lost)
    until(lambda: Execution.objects.get().state == "queued", what="it is not put back")
    assert engine.request_stop(caller(hosts.alice), loop.pk, timezone.now()) == "stopping"
    hosts.two.parts.worker()
    status, reason, _ = ends(loop)
    assert (status, reason) == ("stopped", "user_stopped")
    assert hosts.two.calls(loop) == []


def test_what_a_host_brings_after_it_was_given_up_is_kept_as_late(hosts):
    silent = hosts.one.parts.worker()
    loop = begin(hosts, HELD + SAY)
    until(lambda: hosts.one.calls(loop))
    silent.freeze()
    hosts.two.parts.worker()
    until(lambda: hosts.two.calls(loop), what="it is not repeated")
    silent.thaw()
    hosts.one.let_go()
    late = json.loads(until(lambda: turn_of(loop).late_result, what="it brings nothing"))
    assert late["response"] == f"run 1 {hosts.one.workspace}\n"
    loop.refresh_from_db()
    assert (loop.status, loop.runs_completed) == ("running", 0)
    silent.kill()
    hosts.two.let_go()
    assert ends(loop) == ("completed", "max_runs_reached", 2)
    assert turn_of(loop).response == f"run 1 {hosts.two.workspace}\n" and hosts.two.calls(loop) == ["1", "2"]


def test_a_turn_is_given_up_when_every_host_that_tried_it_has_vanished(hosts):
    loop = begin(hosts, HELD + SAY, on_failure="abort")
    for host, other in ((hosts.one, hosts.two), (hosts.two, hosts.one), (hosts.one, hosts.two)):
        tried = len(host.calls(loop))
        worker = host.parts.worker()
        until(lambda host=host, tried=tried: len(host.calls(loop)) > tried, 20, "it is not tried")
        lose(host, worker)
        other.parts.sweep()  # a sweep leaves the turns of its own host to that host
    assert ends(loop) == ("failed", "error", 1)
    assert "was lost" in loop.error and turn_of(loop).attempt == settings.TRINITY_MAX_ATTEMPTS == 3
    assert executions.held_by("") == []
