"""Makes a bearer key and prints it, this once: alone on stdout, so that a script can take it from there."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from agents import access, audit, keys
from agents.access import Caller, Verdict
from agents.management.commands._shared import WritingCommand, person_named
from agents.models import Agent, Key, User


class Command(WritingCommand):
    help = "Make a bearer key of a person, or with --agent of one agent, and print it. It is shown this once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--agent", metavar="NAME", help="bind the key to this agent")
        parser.add_argument("--name", metavar="LABEL", default="made by createkey", help="what lists call the key")

    def handle(self, *args: Any, username: str, agent: str | None, name: str, **options: Any) -> None:
        person = person_named(username, "USERNAME")
        bound = None if agent is None else _agent_of(person, agent)
        _check_label(name)
        with transaction.atomic():
            key, secret = keys.issue(person, name=name, agent=bound)
            audit.allowed(person.username, "command", "key.create", str(key.pk))
        self.stdout.write(secret)


def _agent_of(person: User, name: str) -> Agent:
    """The agent to bind the key to: one that the person may manage, as everywhere else."""
    agent = access.agent_named(name)
    if agent is None:
        raise CommandError(f"--agent: there is no agent named {name}.")
    if access.manage_agent(Caller(user=person, through="command"), agent) is not Verdict.ALLOWED:
        raise CommandError(f"--agent: {person.username} neither owns {name} nor is an administrator.")
    return agent


def _check_label(name: str) -> None:
    try:
        name.encode()
        Key._meta.get_field("name").clean(name, None)
    except UnicodeEncodeError as broken:
        raise CommandError("--name: must be text in the encoding of this terminal.") from broken
    except ValidationError as refused:
        raise CommandError(f"--name: {' '.join(refused.messages)}") from refused
