"""Speaks to the MCP server in tests as somebody with a bearer key: the official client against our ASGI application, in process.

Each call has an event loop of its own, so the tests themselves are plain functions and use the database as they like.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from agents import keys
from agents.models import Agent, User
from trinity.asgi import application

URL = "http://localhost/mcp"
Json = dict[str, Any]


class Mcp:
    """A caller with this key."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def tool(self, name: str, /, **arguments: Any) -> Json:
        """A tool's answer, whose two forms are checked to be the same."""
        return self.ask(lambda client: call(client, name, arguments))

    def tools(self) -> dict[str, Any]:
        """What the server lists, by name."""
        return {tool.name: tool for tool in self.ask(lambda client: client.list_tools()).tools}

    def together(self, *calls: tuple[str, Json]) -> list[Json]:
        """Several calls at once; their answers in the same order."""

        async def question(client: Client) -> list[Json]:
            return list(await asyncio.gather(*(call(client, name, arguments) for name, arguments in calls)))

        return self.ask(question)

    def ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        return asyncio.run(self._ask(question))

    async def _ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        async with http(self.secret) as way, Client(streamable_http_client(URL, http_client=way)) as client:
            return await question(client)


def http(secret: str | None) -> httpx2.AsyncClient:
    """Plain HTTP to our application."""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=application), headers=headers, base_url="http://localhost"
    )


async def call(client: Client, name: str, arguments: Json) -> Json:
    result = await client.call_tool(name, arguments)
    answer: Json = json.loads(result.content[0].text)
    assert result.structured_content == answer and result.is_error is not answer["success"]
    return answer


def person(user: User) -> Mcp:
    """This person, with a key of their own."""
    return Mcp(keys.issue(user, name="test")[1])


def agent_key(agent: Agent) -> Mcp:
    """This agent, with a key bound to it."""
    return Mcp(keys.issue(agent.owner, name="test", agent=agent)[1])
