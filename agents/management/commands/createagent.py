"""Makes an agent that runs a program of its owner's choice; whether that program can be started shows in its first run."""

from __future__ import annotations

import re
import shlex
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agents import life
from agents.access import Caller
from agents.management.commands._shared import WritingCommand, person_named, refusal
from agents.models import User
from agents.refusals import Refused

OPTIONS = {
    "name": "NAME",
    "command": "--command",
    "output": "--output",
    "timeout_seconds": "--timeout",
    "max_parallel_tasks": "--parallel",
}


class Command(WritingCommand):
    help = "Make a running agent with the `command` harness: message on stdin, answer on stdout."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--owner", metavar="USERNAME", required=True)
        parser.add_argument(
            "--command", metavar="'CMD ARGS'", required=True, help="split as a shell would; no shell runs"
        )
        parser.add_argument("--output", metavar="text|json", help="what the program prints (default text)")
        parser.add_argument("--timeout", metavar="S", help="the longest that one turn may take, in seconds")
        parser.add_argument("--parallel", metavar="N", help="how many turns it may take at once")

    def handle(self, *args: Any, owner: str, **options: Any) -> None:
        person = _owner(owner)
        body = {
            "name": options["name"],
            "command": _words(options["command"]),
            "output": options["output"],
            "timeout_seconds": _number(options["timeout"]),
            "max_parallel_tasks": _number(options["parallel"]),
        }
        try:
            agent = life.create(person, life.parse(body, creating=True), Caller(user=person, through="command"))
        except Refused as refused:
            raise refusal(refused, OPTIONS) from refused
        self.stdout.write(
            f"Made the agent {agent.name}, running, owned by {person.username}. It works in {agent.workspace}."
        )


def _owner(username: str) -> User:
    person = person_named(username, "--owner")
    if person.kind == User.Kind.CLIENT:
        raise CommandError(f"--owner: {username} is an external client, who cannot own agents.")
    if not person.is_active:
        raise CommandError(f"--owner: {username} is disabled, so the agent could do nothing.")
    return person


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as problem:
        raise CommandError(f"--command cannot be split into words: {problem}.") from problem


def _number(text: str | int | None) -> str | int | None:
    """The number that was typed; anything else as it is, for `life.parse` to refuse in its own words."""
    return int(text) if isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,9}", text) else text
