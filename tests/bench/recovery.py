"""How long it takes after a crash: a worker killed with turns in flight, and a Redis that loses everything."""

from __future__ import annotations

import os
import signal
import time

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from agents.models import Execution
from loops.models import Loop
from tests.bench import cast
from tests.bench.figures import Figures
from tests.bench.gate import Gate
from tests.bench.stage import Child, Redis, children, until

TURNS = 20
SLOTS = 25


def _worker(name: str) -> Child:
    return Child(name, ["manage.py", "worker", "--workers", "2"], TRINITY_SLOTS=str(SLOTS))


def measure_worker(figures: Figures) -> None:
    """SIGKILL one of two workers with agents' processes in flight, until another one holds all of its turns."""
    gate = Gate(settings.TRINITY_DATA / "gate-recovery")
    agents = [cast.agent(f"recovery-{n}", gate.command, slots=20) for n in range(2)]
    began = timezone.now()
    with children(_worker("recovery-worker")):
        cast.wait_for_workers(2, began)
        loops = [cast.start(agents[n % 2], 2) for n in range(TURNS)]
        until(lambda: len(gate.calls) == TURNS, "all turns in flight")
        victim = Execution.objects.filter(state="running").order_by("pk").values_list("owner", flat=True)[0]
        orphans = list(Execution.objects.filter(state="running", owner=victim).values_list("pk", flat=True))
        killed = time.monotonic()
        os.kill(int(victim.split("/")[2]), signal.SIGKILL)
        left = Execution.objects.filter(pk__in=orphans, owner=victim)
        until(lambda: not left.exists(), "the adoption")
        took = time.monotonic() - killed
        gate.open()
        ours = Loop.objects.filter(pk__in=[loop.pk for loop in loops])
        until(lambda: not ours.active().exists(), "the loops' ends")
        good = ours.filter(status="completed", runs_completed=2).count()
        calls = gate.calls
    figures.head(f"SIGKILL of a worker with {len(orphans)} of {TURNS} turns")
    figures.goal("recover_worker_s", "until all of them are adopted", took, "<= 4", "s")
    figures.line(
        "loops that ended well; calls of their agents", f"{good}; {sum(calls.values())}", f"{TURNS}; {2 * TURNS}"
    )


def measure_redis(figures: Figures, redis: Redis) -> None:
    """Kill Redis with all that is in it, until every loop has moved on; half of them wait between runs, half go on at once."""
    agents = [cast.agent(f"wipe-{n}", ("sleep", "0.3"), slots=10) for n in range(2)]
    parts = (_worker("wipe-worker"), Child("wipe-sweep", ["manage.py", "sweep"]))
    with children(*parts):
        loops = [cast.start(agents[n % 2], 100, delay_seconds=n % 2) for n in range(TURNS)]
        ours = Loop.objects.filter(pk__in=[loop.pk for loop in loops])
        until(lambda: not ours.filter(runs_completed__lt=2).exists(), "two runs of each loop")
        redis.wipe()
        began = time.monotonic()
        seen = dict(ours.values_list("pk", "runs_completed"))
        until(lambda: all(done > seen[pk] + 1 for pk, done in ours.values_list("pk", "runs_completed")), "the loops")
        took = time.monotonic() - began
        cast.stop_all(ours)
        until(lambda: not ours.active().exists(), "the loops' stop")
        uneven = ours.exclude(runs_completed=F("last_success__loop_run__run_number")).count()
    figures.head(f"Redis killed and wiped under {TURNS} loops")
    figures.goal("recover_redis_s", "until every loop has finished two more runs", took, "<= 12", "s")
    figures.line("loops with a gap in their runs", str(uneven), "0" if uneven == 0 else "0  MISSED")
