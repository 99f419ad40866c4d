"""Deletes what is old of the audit trail, and says how much; the trail says so too."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from agents import trail
from agents.management.commands._shared import WritingCommand

LEAST_DAYS, MOST_DAYS = 30, 36_500


class Command(WritingCommand):
    help = f"Delete the rows of the audit trail that are older than --days days, at least {LEAST_DAYS}."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", metavar="N", type=_days, required=True, help="how many days of the trail to keep")

    def handle(self, *args: Any, days: int, **options: Any) -> None:
        pruned = trail.prune("pruneaudit", "command", timezone.now() - timedelta(days=days))
        self.stdout.write(f"{pruned:,} row{'s' * (pruned != 1)} older than {days:,} days deleted from the audit trail.")


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and LEAST_DAYS <= int(text) <= MOST_DAYS):
        raise argparse.ArgumentTypeError(f"must be a whole number from {LEAST_DAYS} to {MOST_DAYS:,}")
    return int(text)
