"""`python -m tests.bench [--quick] [--json FILE]`: what the engine costs beside the least that it could cost, as ratios of one run.

Everything runs on loopback, on a SQLite file or on a new database of the server that DATABASE_URL names, with a Valkey of its
own or the empty database that REDIS_URL names; all of it is removed at the end. Read the ratios: the milliseconds are this
machine's on this day. --quick takes at most a minute and leaves out what does not fit into it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from tests.bench import stage
from tests.bench.figures import Figures

PARTS = ("gaps", "chains", "inflight", "fanout", "recovery", "pages")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, at most a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone; may be given again")
    options = parser.parse_args()
    figures = Figures()
    try:
        with stage.environment():
            measure(figures, set(options.only or PARTS), quick=options.quick)
    except stage.Failed as reason:
        sys.exit(f"error: {reason}")
    finally:
        if options.json:
            options.json.write_text(json.dumps(figures.kept, indent=1) + "\n")


def measure(figures: Figures, parts: set[str], *, quick: bool) -> None:
    """Run these parts, the quick form of each where it has one."""
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    os.environ["BENCH_REDIS"] = settings.REDIS_URL  # for Celery, which knows no settings of ours
    from tests.bench import chains, fanout, gaps, inflight, pages, recovery

    began = time.monotonic()
    with stage.services() as redis:
        print(
            f"{connection.vendor}, Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        if "gaps" in parts:
            gaps.measure(figures, rounds=4 if quick else 15, steps=40 if quick else 60)
        if "chains" in parts:
            chains.measure(figures, rounds=1 if quick else 3, steps=30 if quick else 50)
        if "fanout" in parts:
            fanout.measure(figures, seconds=2 if quick else 20)
        if "recovery" in parts:
            recovery.measure_worker(figures)
            if not quick:
                recovery.measure_redis(figures, redis)
        if "inflight" in parts and not quick:
            inflight.measure(figures, turns=1000)
        if "pages" in parts and not quick:
            pages.measure(figures, loops=100_000, runs_each=10)
    print(f"\n{time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
