"""Speaks to the REST API in tests as somebody with a bearer key."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from agents import keys
from agents.models import Agent, User


class Rest:
    """A caller. Bodies are sent as JSON; `raw` sends these bytes as they are."""

    def __init__(self, secret: str | None = None) -> None:
        self.secret = secret
        self.client = Client(headers={"Authorization": f"Bearer {secret}"} if secret else {})

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(path, query)

    def send(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Any:
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.generic(method, path, data, "application/json", headers=named)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.send("POST", path, body, **more)

    def put(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.send("PUT", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.send("PATCH", path, body, **more)

    def delete(self, path: str) -> Any:
        return self.client.delete(path)


def person(user: User) -> Rest:
    """This person, with a key of their own."""
    return Rest(keys.issue(user, name="test")[1])


def agent_key(agent: Agent) -> Rest:
    """This agent, with a key bound to it."""
    return Rest(keys.issue(agent.owner, name="test", agent=agent)[1])
