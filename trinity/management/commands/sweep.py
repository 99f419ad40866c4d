"""`manage.py sweep`: the loop that looks for what is due, lost or late."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from agents.sweep import run_sweep


class Command(BaseCommand):
    help = "Wakes what is due, rings lost bells, and ends what is left over. Any number of them may run."
    requires_system_checks: list[str] = []  # they load every page's code, which the sweep never needs

    def handle(self, **options: Any) -> None:
        run_sweep()
