"""A thousand turns in flight: what the engine and the wrappers need beyond the agents' own memory, and that each is called once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.utils import timezone

from agents.models import Execution
from loops.models import Loop
from tests.bench import cast
from tests.bench.figures import Figures
from tests.bench.gate import Gate
from tests.bench.stage import Child, children, memory_mb, until

WORKERS = 4
PER_AGENT = 20


def measure(figures: Figures, *, turns: int) -> None:
    """Once with agents that wait inside the worker, once with processes of their own."""
    slots = turns // WORKERS
    inside = _Run.of("inside", turns, lambda gate: _stand_ins(slots, gate))
    own = _Run.of("own", turns, lambda gate: [_worker(slots), Child("own-sweep", ["manage.py", "sweep"])])
    figures.head(f"{turns} turns in flight on {WORKERS} workers x {slots} slots")
    figures.goal("memory_per_turn_mb", "in process: per waiting turn", inside.per_turn, "<= 0.25", "MB", 3)
    figures.goal("inflight_engine_mb", "in process: the engine", inside.engine, "<= 300", "MB", 0)
    figures.line("own processes: the engine", f"{own.engine:.0f} MB")
    figures.line("own processes: the wrappers", f"{own.wrappers:.0f} MB", "<= 500")
    figures.line("own processes: a wrapper", f"{own.wrappers / turns:.3f} MB", "<= 0.4")
    figures.goal("double_starts", "turns that were called twice", inside.doubled + own.doubled, "= 0", digits=0)
    ended = f"{inside.finished} + {own.finished}"
    figures.line("of them in process, own processes", f"{inside.doubled}, {own.doubled}")
    figures.line("loops that ended after all their runs", ended, f"{turns} + {turns}")
    if connection.vendor == "postgresql":
        most = max(inside.connections, own.connections)
        figures.line("database connections, all workers together", str(most), f"<= {WORKERS * 8}, by pool")


def _stand_ins(slots: int, gate: Gate) -> list[Child]:
    paths = {
        "BENCH_GATE": str(gate.path),
        "BENCH_CALLS": str(gate.log),
        # No process that could be adopted: one whose worker is late would be called again, as it should be.
        "TRINITY_LEASE_SECONDS": "120",
    }
    started = [
        Child(f"inside-{n}", ["-m", "tests.bench.stand_in", "gate", str(slots)], **paths) for n in range(WORKERS)
    ]
    for child in started:
        child.hear()
    return started


def _worker(slots: int) -> Child:
    return Child("own", ["manage.py", "worker", "--workers", str(WORKERS)], TRINITY_SLOTS=str(slots))


@dataclass(slots=True)
class _Run:
    """What was seen of one run: MB of the engine's and of the wrappers' processes with all turns in flight, and how it ended."""

    engine: float
    per_turn: float
    wrappers: float
    connections: int
    doubled: int
    finished: int

    @classmethod
    def of(cls, name: str, turns: int, workers: Callable[[Gate], list[Child]]) -> _Run:
        gate = Gate(settings.TRINITY_DATA / f"gate-{name}")
        agents = [cast.agent(f"{name}-{n}", gate.command, slots=PER_AGENT) for n in range(turns // PER_AGENT)]
        began = timezone.now()
        with children(*workers(gate)) as started:
            cast.wait_for_workers(WORKERS, began)
            idle = memory_mb(_family(started))
            for agent in agents * PER_AGENT:
                cast.start(agent, 2)
            until(lambda: len(gate.calls) >= turns, "all turns in flight", every=0.2)
            engine, wrappers = memory_mb(_family(started)), memory_mb(_wrappers())
            connections = _connections()
            gate.open()
            ours = Loop.objects.filter(agent__in=agents)
            until(lambda: not ours.active().exists(), "all loops' ends", every=0.2)
            calls = gate.calls
            finished = ours.filter(status="completed", runs_completed=2).count()
        doubled = sum(times - 1 for times in calls.values())
        return cls(engine, (engine - idle) / turns, wrappers, connections, doubled, finished)


def _family(started: tuple[Child, ...]) -> list[int]:
    """The workers and what they forked, without the turns, which are in sessions of their own."""
    found = [child.pid for child in started]
    sessions = {os.getsid(pid) for pid in found}
    for pid in _pids():
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if parent in found and os.getsid(pid) in sessions:
                found.append(pid)
    return list(dict.fromkeys(found))


def _wrappers() -> list[int]:
    """The wrappers' processes of all running turns: the shell and its `timeout`."""
    running = {
        f"TRINITY_EXECUTION_ID={pk}" for pk in Execution.objects.filter(state="running").values_list("pk", flat=True)
    }
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name in {"sh", "timeout"} and running & set(Path(f"/proc/{pid}/environ").read_text().split("\0")):
                found.append(pid)
    return found


def _pids() -> list[int]:
    return sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _connections() -> int:
    """Connections to the database but our own."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])
