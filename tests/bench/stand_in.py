"""A worker process whose agents are stand-ins: real bells, slots, leases, ledger and engine, but no process per turn.

`python -m tests.bench.stand_in inline|bell|gate SLOTS`. inline: an agent does nothing and its slot goes on with the next run.
bell: the same, but the slot is given back, so that every run is claimed by its bell. gate: an agent writes a line with its
execution's id into BENCH_CALLS and then waits, like an agent that waits for its model, until the pipe BENCH_GATE is closed.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    import django

    django.setup()

    from agents.executions import Turn
    from agents.harness.contract import Result
    from agents.models import Worker
    from agents.worker import Beat, BellWorker, Desk

    done = Result(succeeded=True, response="ok", duration_ms=1)

    class Inline(Desk):
        def _carry_out(self, turn: Turn, turns: int) -> Turn | None:
            return self._finish(turn, done, turns)

    class Bell(Inline):
        def _may_keep_slot(self, turns: int) -> bool:
            return False

    class Gate(Inline):
        def _carry_out(self, turn: Turn, turns: int) -> Turn | None:
            call = os.open(os.environ["BENCH_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(call, f"{turn.execution.pk}\n".encode())
            os.close(call)
            with open(os.environ["BENCH_GATE"], "rb") as gate:
                gate.read()
            return super()._carry_out(turn, turns)

    kind, slots = sys.argv[1], int(sys.argv[2])
    desk = {"inline": Inline, "bell": Bell, "gate": Gate}[kind](slots)
    Beat(desk).start()
    print("ready", flush=True)
    try:
        BellWorker(desk).work(logging_level="WARNING")
    finally:
        desk.leave()
        Worker.objects.filter(owner=desk.owner).delete()


if __name__ == "__main__":
    main()
