"""The cast and the stage of all tests: alice owns, bob shares, carol is a stranger, dora a client, root an admin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.utils import timezone

from agents.access import Caller
from agents.models import Agent, Share, User
from trinity import redis_server

PASSWORD = "a long enough passphrase 7"
SCRIPTED = Path(__file__).parent / "scripted_agent.py"


@pytest.fixture(scope="session", autouse=True)
def valkey() -> Iterator[None]:
    """A real Valkey for the whole run, unless REDIS_URL names one."""
    if settings.REDIS_EMBEDDED_SOCKET is None:
        yield
        return
    server = redis_server.start(settings.REDIS_EMBEDDED_SOCKET, Path(settings.TRINITY_DATA) / "redis")
    try:
        redis_server.wait_until_ready(settings.REDIS_EMBEDDED_SOCKET, timeout=10)
        yield
    finally:
        server.terminate()
        server.wait(10)
        redis_server.tidy_up(settings.REDIS_EMBEDDED_SOCKET)


@pytest.fixture
def now():
    """The clock of a test, read once."""
    return timezone.now()


def make_user(name: str, **fields: object) -> User:
    return User.objects.create_user(name, password=PASSWORD, **fields)


def make_agent(owner: User, name: str = "falcon", **fields: object) -> Agent:
    agent = Agent.objects.create(
        owner=owner, name=name, command=fields.pop("command", [sys.executable, str(SCRIPTED)]), **fields
    )
    return agent


@pytest.fixture
def cast(db) -> SimpleNamespace:
    """The people, and alice's agent falcon, which bob shares."""
    people = {name: make_user(name) for name in ("alice", "bob", "carol")}
    people["dora"] = make_user("dora", kind=User.Kind.CLIENT)
    people["root"] = User.objects.create_superuser("root", password=PASSWORD)
    falcon = make_agent(people["alice"])
    Share.objects.create(agent=falcon, user=people["bob"])
    return SimpleNamespace(**people, falcon=falcon)


def caller(user: User, through: str = "rest", agent: Agent | None = None) -> Caller:
    return Caller(user=user, through=through, agent=agent)
