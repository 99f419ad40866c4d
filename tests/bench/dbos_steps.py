"""DBOS beside us: the steps of one workflow, each of them checkpointed, on the same database. Needs the extra `bench`.

As a program (`python -m tests.bench.dbos_steps`) it answers each line with a count by the seconds between so many steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise

from tests.bench.raw import Lane
from tests.bench.stage import Child, children


def is_here() -> bool:
    return find_spec("dbos") is not None


@contextmanager
def lane() -> Iterator[Lane]:
    with children(Child("dbos", ["-W", "ignore", "-m", "tests.bench.dbos_steps"])) as (worker,):
        worker.hear()
        yield lambda count: json.loads(worker.ask(str(count)))


def main() -> None:
    from dbos import DBOS

    url = os.environ.get("DATABASE_URL", "").replace("postgresql://", "postgresql+psycopg://", 1)
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url or f"sqlite:///{os.environ['TRINITY_DATA']}/dbos.sqlite",
            "executor_id": "bench",
            "application_version": "1",
            "log_level": "ERROR",
            "console_log_level": "ERROR",
        }
    )

    @DBOS.step()
    def step() -> float:
        return time.perf_counter()

    @DBOS.workflow()
    def chain(count: int) -> list[float]:
        return [step() for _ in range(count)]

    DBOS.launch()
    chain(5)
    print("ready", flush=True)
    for line in sys.stdin:
        began = chain(int(line) + 1)
        print(json.dumps([later - earlier for earlier, later in pairwise(began)]), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
