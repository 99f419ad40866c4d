"""Makes a platform user or an external client; administrators are made by Django's own `createsuperuser`."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import IntegrityError, transaction

from agents.management.commands._shared import WritingCommand
from agents.models import User


class Command(WritingCommand):
    help = "Make a platform user, or an external client who sees their chats and nothing else."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--password", required=True)
        parser.add_argument("--client", action="store_true", help="an external client")

    def handle(self, *args: Any, username: str, password: str, client: bool, **options: Any) -> None:
        kind = User.Kind.CLIENT if client else User.Kind.PLATFORM
        _check(User(username=username, kind=kind), password)
        try:
            with transaction.atomic():
                User.objects.create_user(username, password=password, kind=kind)
        except IntegrityError as taken:
            raise CommandError(f"USERNAME: a user named {username} exists already.") from taken
        self.stdout.write(f"Made the {kind.label.lower()} {username}.")


def _check(person: User, password: str) -> None:
    """The rules of the rows and of the settings. Raises CommandError naming each option that breaks one."""
    wrong: list[str] = []
    try:
        person.full_clean(exclude=["password"])
    except ValidationError as refused:
        wrong += [f"USERNAME: {said}" for sentences in refused.message_dict.values() for said in sentences]
    try:
        password.encode()
        validate_password(password, person)
    except UnicodeEncodeError:
        wrong.append("--password: must be text in the encoding of this terminal.")
    except ValidationError as refused:
        wrong += [f"--password: {said}" for said in refused.messages]
    if wrong:
        raise CommandError("\n".join(wrong))
