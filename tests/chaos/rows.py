"""Prints what an installation's database says in the end, as JSON: `python -m tests.chaos.rows` in the environment of `up`."""

from __future__ import annotations

import json
import sys

import django

if __name__ == "__main__":
    django.setup()

    from agents.models import Audit, Execution
    from loops.models import Loop, LoopEvent, LoopRun

    executions = Execution.objects.order_by("id")
    found = {
        "loops": list(Loop.objects.order_by("id").values()),
        "runs": list(LoopRun.objects.order_by("loop_id", "run_number").values()),
        "events": list(LoopEvent.objects.order_by("loop_id", "version").values("loop_id", "version", "type", "data")),
        "executions": list(executions.defer("message").values()),
        "audit": list(Audit.objects.order_by("id").values("action", "target", "verdict", "reason", "actor")),
    }
    json.dump(found, sys.stdout, default=str)
