"""What one iteration costs beside the raw minimum: all ways in turns, round by round, so that noise hits them alike."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from tests.bench import bell, celery_steps, dbos_steps, inline, process, raw
from tests.bench.figures import Figures, quantile

LANES = {  # name: (how to enter it, steps per round as a share of the raw ones, words)
    "raw": (raw.lane, 1.0, "raw: one commit + one Redis round trip"),
    "inline": (inline.lane, 1.0, "engine: finished to next claimed, one commit"),
    "bell": (bell.lane, 0.6, "engine: by the bell, through Redis and a worker"),
    "dbos": (dbos_steps.lane, 1.0, "DBOS: steps of one workflow"),
    "celery": (celery_steps.lane, 1.0, "Celery: one row and the next task"),
    "process": (process.lane, 0.6, "process harness: a run of `true`"),
    "harness": (process.harness_lane, 0.6, "  of it the harness, without the ledger"),
    "system": (process.system_lane, 0.6, "  of it the operating system's: `true` alone"),
}


def measure(figures: Figures, *, rounds: int, steps: int) -> None:
    """Run the rounds; a lane's figure is the median over rounds of its median there beside that of the raw steps."""
    absent = [name for name, here in (("dbos", dbos_steps.is_here()), ("celery", celery_steps.is_here())) if not here]
    found = _rounds({name: lane for name, lane in LANES.items() if name not in absent}, rounds, steps)
    p50 = {name: median(median(times) for times in those) for name, those in found.items()}
    against_raw = {
        name: median(median(times) / median(base) for times, base in zip(those, found["raw"], strict=True))
        for name, those in found.items()
    }
    figures.head(f"Gap between two runs of one chain: {rounds} rounds of up to {steps} steps")
    for name, those in found.items():
        times = [seconds for round_ in those for seconds in round_]
        tail = quantile(times, 0.99) / quantile(times, 0.5)
        figures.line(LANES[name][2], f"{p50[name] * 1e3:.2f} ms  {against_raw[name]:.1f} x raw", f"p99/p50 {tail:.1f}")
    for name in absent:
        figures.line(f"{name} is left out", "not installed", "pip install -e '.[bench]'")
    _goals(figures, p50, against_raw)


def _rounds(lanes: dict, rounds: int, steps: int) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {name: [] for name in lanes}
    with ExitStack() as stack:
        run = {name: stack.enter_context(enter()) for name, (enter, _, _) in lanes.items()}
        for name, (_, share, _) in lanes.items():
            run[name](max(5, int(steps * share * 0.3)))  # warm: statements prepared, modules loaded
        for _ in range(rounds):
            for name, (_, share, _) in lanes.items():
                found[name].append(run[name](int(steps * share)))
    return found


def _goals(figures: Figures, p50: dict[str, float], against_raw: dict[str, float]) -> None:
    from django.db import connection

    sqlite = connection.vendor == "sqlite"
    figures.goal("gap_inline_x_raw", "engine beside raw", against_raw["inline"], "" if sqlite else "<= 5", "x")
    figures.goal("gap_bell_x_raw", "by the bell beside raw", against_raw["bell"], "" if sqlite else "<= 16", "x")
    if sqlite:
        bound = "" if p50["bell"] <= 0.008 else "MISSED"
        figures.line("by the bell on SQLite", f"{p50['bell'] * 1e3:.2f} ms", f"<= 8 ms  {bound}".rstrip())
    figures.goal("gap_process_ms", "a run of the process harness", p50["process"] * 1e3, "<= 8", "ms")
    if "dbos" in p50:
        figures.goal("dbos_x_raw", "DBOS beside raw", against_raw["dbos"], unit="x")
        figures.line("engine / DBOS", f"{p50['inline'] / p50['dbos']:.2f}", "< 1")
    if "celery" in p50:
        figures.goal("celery_x_raw", "Celery beside raw", against_raw["celery"], unit="x")
        figures.line("engine / Celery", f"{p50['inline'] / p50['celery']:.2f}", "<= 1.2")
