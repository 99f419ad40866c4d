"""The agent of the chaos runs: writes down each call before and after its work, in one write each, and does as its message says.

The message is `run N`, `previous TEXT` and a line of JSON: `sleep` seconds, `fail` run numbers, `cost` dollars or null, `say` a text
for `{run}` or a list of one text per run, `child` to leave a process behind, `barrier` how many must have begun before it goes on.
"""

import json
import os
import subprocess
import sys
import time


def write_down(what: str, **facts: object) -> None:
    """One line in calls.log, in one write, so that lines of many agents never mix and a kill never halves one."""
    with open("/proc/self/stat") as stat:
        start = int(stat.read().rpartition(")")[2].split()[19])
    line = {
        "what": what,
        "execution": os.environ["TRINITY_EXECUTION_ID"],
        "loop": os.environ["TRINITY_LOOP_ID"],
        "run": int(os.environ["TRINITY_RUN"]),
        "pid": os.getpid(),
        "start": start,
        "at": time.time(),
        **facts,
    }
    log = os.open("calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, json.dumps(line).encode() + b"\n")
    os.close(log)


def wait_for_others(count: int) -> None:
    """Go on when so many have begun; only if each has a slot of its own can that come true."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with open("calls.log") as log:
            if sum('"begin"' in line for line in log) >= count:
                return
        time.sleep(0.1)
    sys.exit("the others did not begin")


def main() -> None:
    first, previous, plan = sys.stdin.read().split("\n")
    orders = json.loads(plan)
    run = int(os.environ["TRINITY_RUN"])
    write_down("begin", said=first, previous=previous.removeprefix("previous "))
    if orders.get("child"):
        subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if orders.get("barrier"):
        wait_for_others(orders["barrier"])
    time.sleep(orders["sleep"])
    write_down("end")
    if run in orders.get("fail", []):
        sys.exit("it was to fail")
    say = orders["say"]
    answer = say.replace("{run}", str(run)) if isinstance(say, str) else say[run - 1]
    cost = orders.get("cost")
    print(json.dumps({"result": answer} if cost is None else {"result": answer, "total_cost_usd": cost}))


if __name__ == "__main__":
    main()
