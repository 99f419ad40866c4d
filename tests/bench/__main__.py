"""`python -m tests.bench [--quick] [--json FILE]`: what one iteration costs beside the least that it could cost.

Everything runs in one process mix and in turns (raw, engine, process, raw, …), so that noise of a shared machine hits all alike. Read the
ratios; the milliseconds are this machine's on this day. SQLite in a folder that is thrown away, or what DATABASE_URL names.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, at most a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    data = tempfile.mkdtemp(prefix="trinity-bench-")
    os.environ["TRINITY_DATA"] = data
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")
    try:
        figures = measure(rounds=3 if options.quick else 5, steps=100 if options.quick else 200)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def measure(rounds: int, steps: int) -> dict[str, float]:
    """Run the rounds and print the table; the figures by their names."""
    import django

    django.setup()
    from django.db import connection

    from tests.bench import measures

    with measures.stage():
        rows: dict[str, list[list[float]]] = {name: [] for name in measures.ALL}
        for _ in range(rounds):
            for name, run in measures.ALL.items():
                rows[name].append(run(steps))
    p50 = {name: median(median(times) for times in found) for name, found in rows.items()}
    raw = p50["raw"]
    print(
        f"{connection.vendor}, {rounds} rounds of {steps} steps, load {os.getloadavg()[0]:.1f}; medians of the rounds' medians"
    )
    print(f"{'':34}{'p50 ms':>9}{'p99 ms':>9}{'x raw':>8}")
    for name, what in measures.WORDS.items():
        p99 = median(sorted(times)[int(len(times) * 0.99) - 1] for times in rows[name])
        print(f"{what:34}{p50[name] * 1e3:9.2f}{p99 * 1e3:9.2f}{p50[name] / raw:8.1f}")
    return {
        "raw_ms": round(raw * 1e3, 3),
        "gap_inline_x_raw": round(p50["inline"] / raw, 2),
        "gap_process_ms": round(p50["process"] * 1e3, 2),
        "process_alone_ms": round(p50["alone"] * 1e3, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
