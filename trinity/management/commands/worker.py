"""`manage.py worker`: one worker process, or several that share what they have loaded."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections
from django.utils.module_loading import import_string

from agents.worker import run_worker
from trinity.child import Part
from trinity.options import whole_number
from trinity.supervisor import Supervisor

SECONDS_TO_LEAVE = 5.0


class Command(BaseCommand):
    help = "Runs agents' turns: TRINITY_SLOTS at once in each worker process."
    requires_system_checks: list[str] = []  # they load every page's code, which a worker never needs

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--workers", type=whole_number(1, 64), default=1, help="processes (%(default)s)")

    def handle(self, *, workers: int, **options: Any) -> None:
        run = partial(run_worker, settings.TRINITY_SLOTS)
        if workers == 1:
            run()
            return
        self._load()
        supervisor = Supervisor()
        for number in range(1, workers + 1):
            supervisor.start(Part(f"worker {number}", run, patience=SECONDS_TO_LEAVE))
        sys.exit(supervisor.run())

    def _load(self) -> None:
        """Before the fork: load what every worker will need, and have nothing open that cannot be shared."""
        for path in (*settings.EXECUTION_OBSERVERS.values(), *settings.AGENT_OBSERVERS):
            import_string(path)
        connections.close_all()
        gc.freeze()
