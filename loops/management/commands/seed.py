"""Makes what a first visitor finds: an administrator, the librarian, and three loops of its, all started like any other."""

from __future__ import annotations

import secrets
import sys
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agents import life
from agents.access import Caller
from agents.management.commands._shared import WritingCommand
from agents.models import Agent, User
from loops import engine
from loops.core import spec
from loops.demo import librarian
from loops.models import Loop

ADMIN, LIBRARIAN = "admin", "librarian"

DRAIN = {
    "message": (
        "Take the next file of backlog.md, measure it, write what you found into report.md and tick it off.\n"
        f"Answer {librarian.DONE} when the backlog is empty."
    ),
    "max_runs": 100,
    "stop_signal": librarian.DONE,
    "delay_seconds": 3,
    "timeout_per_run": 60,
    "max_duration_seconds": 900,
    "max_cost_usd": 0.25,
    "on_failure": "continue",
}
COUNT = {"message": "List page {{run}} of the longest files.", "max_runs": 3, "timeout_per_run": 60}
FAIL = {"message": "Measure drafts/missing.py", "max_runs": 5, "timeout_per_run": 60}


class Command(WritingCommand):
    help = "Make demo agents and loops, and an administrator where there is none. Doing it again changes nothing."

    def handle(self, *args: Any, **options: Any) -> str:
        """What to tell the person: the login of an administrator that was made now, else nothing."""
        with transaction.atomic():
            admin, login = User.objects.filter(is_superuser=True).order_by("pk").first(), ""
            if admin is None:
                admin, login = self._make_admin()
            if admin is not None and not Agent.objects.filter(name=LIBRARIAN).exists():  # nor one that was deleted
                made = make_demo(admin, timezone.now())
                self.stdout.write(f"Made the agent {LIBRARIAN} with {len(made)} loops.")
        return login

    def _make_admin(self) -> tuple[User | None, str]:
        if User.objects.filter(username=ADMIN).exists():
            self.stderr.write(f"The name {ADMIN} is taken by somebody who is no administrator: use createsuperuser.")
            return None, ""
        password = secrets.token_urlsafe(12)
        return User.objects.create_superuser(ADMIN, password=password), f"{ADMIN} / {password}"


def make_demo(owner: User, now: datetime) -> list[Loop]:
    """The librarian with its loops: one that drains its backlog, one that counts to three, one that fails."""
    caller = Caller(user=owner, through="command")
    agent = life.create(owner, life.parse(_librarian(), creating=True), caller)
    life.change(agent, {"description": _description(agent)}, caller)
    return [engine.create_loop(caller, agent, spec.parse(limits), now) for limits in (FAIL, COUNT, DRAIN)]


def _librarian() -> dict[str, Any]:
    shelves = [str(settings.BASE_DIR / room) for room in ("agents", "loops", "workspace", "trinity")]
    return {
        "name": LIBRARIAN,
        "display_name": "Librarian",
        "command": [sys.executable, str(librarian.__file__), *shelves],
        "output": "json",
        "timeout_seconds": 300,
    }


def _description(agent: Agent) -> str:
    return (
        "A small program that comes with this product, no AI: it shows what a loop is. Each turn it measures one Python file "
        f"of the product itself and writes what it found into {agent.workspace / librarian.REPORT}. "
        "Messages it knows: `List page 1 of the longest files`, `Measure agents/models.py`, `Start over` (empties its backlog's "
        "ticks); anything else is the next file. It waits a second per turn so that there is something to watch, and its price "
        "is made up."
    )
