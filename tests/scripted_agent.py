#!/usr/bin/env python3
"""A small agent for our own tests: it carries out one step of the plan that its message holds.

The message ends with one line of JSON, a list of steps; run N takes step N, and the last one for every run after it. A step is an
object whose entries are carried out in this order:

    print   [line, ...]     said on stderr at once, as an agent that shows its work
    sleep   seconds
    append  [file, text]    into the working folder
    wait    file            until it exists there, at most 60 s
    fail    text            said on stderr, exit 1; with a cost: said in a result object
    cost    number          the answer is a result object with this cost
    say     text            the answer; `{run}` in it is the run number
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from typing import Any


def step_of(message: str, run: int) -> dict[str, Any]:
    """The step for this run; without a plan, an answer that says so."""
    last = message.strip().rpartition("\n")[2]
    try:
        plan = json.loads(last)
    except ValueError:
        return {"say": "there is no plan in the message"}
    return plan[min(run, len(plan)) - 1]


def carry_out(step: dict[str, Any], run: int) -> int:
    """Do it; the exit code."""
    for line in step.get("print", []):
        print(line, file=sys.stderr, flush=True)
    time.sleep(step.get("sleep", 0))
    if "append" in step:
        name, text = step["append"]
        with open(name, "a") as file:
            file.write(text)
    if "wait" in step:
        wait_for(pathlib.Path(step["wait"]))
    failed = "fail" in step
    answer = step["fail"] if failed else step.get("say", "done").replace("{run}", str(run))
    if "cost" in step:
        print(json.dumps({"result": answer, "is_error": failed, "total_cost_usd": step["cost"]}))
    else:
        print(answer, file=sys.stderr if failed else sys.stdout)
    return 1 if failed else 0


def wait_for(file: pathlib.Path) -> None:
    until = time.monotonic() + 60
    while not file.exists():
        if time.monotonic() > until:
            sys.exit(f"{file} did not come")
        time.sleep(0.05)


if __name__ == "__main__":
    number = int(os.environ.get("TRINITY_RUN", "1"))
    sys.exit(carry_out(step_of(sys.stdin.read(), number), number))
