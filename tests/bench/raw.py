"""The raw minimum: one row committed and one Redis round trip per step, by the plain drivers.

As a program (`python -m tests.bench.raw THREADS`) it answers each line with a count by taking so many steps in every thread.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import redis

from tests.bench import plain

Lane = Callable[[int], list[float]]  # takes so many steps and returns the seconds of each


def steps(count: int) -> list[float]:
    """The seconds of each step."""
    found = []
    with redis.Redis.from_url(os.environ["BENCH_REDIS"]) as client:
        client.ping()
        for number in range(count):
            began = time.perf_counter()
            plain.execute(plain.ADD_STEP, "raw", "", number, began)
            client.ping()
            found.append(time.perf_counter() - began)
    return found


@contextmanager
def lane() -> Iterator[Lane]:
    plain.execute(plain.MAKE_STEPS)
    yield steps
    plain.close()


def _span(count: int) -> tuple[float, float]:
    began = time.monotonic()
    steps(count)
    return began, time.monotonic()


def main() -> None:
    threads = int(sys.argv[1])
    plain.execute(plain.MAKE_STEPS)
    with ThreadPoolExecutor(threads) as pool:
        print("ready", flush=True)
        for line in sys.stdin:
            spans = list(pool.map(_span, [int(line)] * threads))
            print(json.dumps([min(first for first, _ in spans), max(last for _, last in spans)]), flush=True)


if __name__ == "__main__":
    main()
