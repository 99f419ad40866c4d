"""What the commands that write have in common: the words for a bad option, and for a database that cannot be used."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError

from agents.models import User
from agents.refusals import Refused


class WritingCommand(BaseCommand):
    """A command that needs the database and nothing else: no server, no Redis, no page of the product."""

    requires_system_checks = []  # they would load every page and protocol; `up` makes them

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run; a database that is away or was never set up is one line on stderr."""
        try:
            return super().execute(*args, **options)
        except (OperationalError, ProgrammingError) as problem:
            raise CommandError(
                f"The database cannot be used: {problem}. `manage.py up` sets it up, and so does `manage.py migrate`."
            ) from problem


def person_named(username: str, option: str) -> User:
    """The person whom an option names. Raises CommandError where there is none."""
    person = User.objects.filter(username=username).first()
    if person is None:
        raise CommandError(f"{option}: there is no user named {username}.")
    return person


def refusal(refused: Refused, options: dict[str, str]) -> CommandError:
    """A refusal in the words of a command line: each field by the option that sets it."""
    lines = [f"{options.get(field, field)} {said}." for field, all_said in refused.errors.items() for said in all_said]
    return CommandError("\n".join(lines) or refused.detail)
