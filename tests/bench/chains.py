"""Twenty chains at once: which share of the raw rate the engine reaches, and how evenly the loops are served."""

from __future__ import annotations

import json
import os
import signal
from statistics import median

from django.db import connection

from loops.models import Loop
from tests.bench import cast
from tests.bench.figures import Figures
from tests.bench.stage import Child, children, until

CHAINS = 20


def measure(figures: Figures, *, rounds: int, steps: int) -> None:
    """Raw and engine in turns, each with the same processes and threads; medians of the rounds."""
    sqlite = connection.vendor == "sqlite"
    workers = 4 if sqlite else 2
    threads = CHAINS // workers
    raws = [Child(f"raw-{number}", ["-m", "tests.bench.raw", str(threads)]) for number in range(workers)]
    desks = [
        Child(f"chains-{number}", ["-m", "tests.bench.stand_in", "inline", str(threads)]) for number in range(workers)
    ]
    with children(*raws, *desks):
        for child in (*raws, *desks):
            child.hear()
        _engine(desks, 5)
        found = [(_raw(raws, steps), *_engine(desks, steps)) for _ in range(rounds)]
        locked = sum(child.said().count("database is locked") for child in desks)
    raw_rate = median(rate for rate, _, _ in found)
    rate = median(rate for _, rate, _ in found)
    share = median(engine / raw for raw, engine, _ in found)
    figures.head(f"{CHAINS} chains of {steps} runs on {workers} workers x {threads} slots, {rounds} rounds")
    figures.line("raw", f"{raw_rate:,.0f} steps/s")
    figures.line("engine, all runs in the finishing transaction", f"{rate:,.0f} steps/s")
    figures.goal("chains20_share_of_raw", "share of raw", share, "" if sqlite else ">= 0.2")
    figures.goal(
        "fairness", "slowest / fastest loop", median(fair for _, _, fair in found), "<= 3" if sqlite else "<= 1.3"
    )
    if sqlite:
        figures.line("'database is locked' in the workers' logs", str(locked), "0" if locked == 0 else "0  MISSED")


def _raw(processes: list[Child], steps: int) -> float:
    """Steps per second of all processes and threads together."""
    for child in processes:
        child.say(str(steps))
    spans = [json.loads(child.hear()) for child in processes]
    return CHAINS * steps / (max(last for _, last in spans) - min(first for first, _ in spans))


def _engine(desks: list[Child], steps: int) -> tuple[float, float]:
    """Steps per second from the first run's beginning to the last loop's end, and the slowest / the fastest loop's time to its end.

    The workers are halted while the loops are started, so that all of them set out together.
    """
    for desk in desks:
        os.kill(desk.pid, signal.SIGSTOP)
    started = [cast.start(cast.agent(f"chain-{number}"), steps).pk for number in range(CHAINS)]
    for desk in desks:
        os.kill(desk.pid, signal.SIGCONT)
    ours = Loop.objects.filter(pk__in=started)
    until(lambda: not ours.active().exists(), "the chains", every=0.05)
    spans = list(ours.values_list("started_at", "completed_at"))
    begin = min(started_at for started_at, _ in spans)
    seconds = [(end - begin).total_seconds() for _, end in spans]
    return CHAINS * steps / max(seconds), max(seconds) / min(seconds)
