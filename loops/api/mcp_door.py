"""The door to `/mcp` in the ASGI application: checks host, key and method before anything is read, and serves each request alone.

A request holds all it needs, so any web process answers it. A key in the address is no credential.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from agents import keys, rates
from agents.access import Caller
from agents.hints import runs_here
from agents.rest import MOST_BYTES
from loops.api.mcp import caller_now, server
from loops.api.mcp_threads import in_thread

log = logging.getLogger(__name__)

PATH = "/mcp"
Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class McpDoor:
    """Takes `/mcp` for the MCP server and hands every other path to the application behind it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.serving = _Serving()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            return await self.app(scope, receive, send)
        if not _host_is_ours(scope["headers"]):
            return await _refuse(send, HTTPStatus.MISDIRECTED_REQUEST, "This server does not go by that name.")
        if not _origin_is_ours(scope["headers"]):
            return await _refuse(send, HTTPStatus.FORBIDDEN, "Pages of other servers may not ask this one.")
        caller = await _caller(scope["headers"])
        if caller is None:
            said = "Show a valid key: send Authorization: Bearer KEY."
            return await _refuse(send, HTTPStatus.UNAUTHORIZED, said, (b"www-authenticate", b"Bearer"))
        if scope["method"] != "POST":
            said = "Send each message by POST; there is no stream to open and no session to end."
            return await _refuse(send, HTTPStatus.METHOD_NOT_ALLOWED, said, (b"allow", b"POST"))
        if seconds := await in_thread(
            rates.wait, f"mcp:{caller.identity}", settings.TRINITY_MCP_PER_MINUTE, time.time()
        ):
            said = f"Request was throttled. Expected available in {seconds} second{'s' * (seconds != 1)}."
            return await _refuse(send, HTTPStatus.TOO_MANY_REQUESTS, said, (b"retry-after", str(seconds).encode()))
        manager = await self.serving.manager()
        known = caller_now.set(caller)
        try:
            await manager.handle_request(scope, receive, send)
        finally:
            caller_now.reset(known)


# -- who asks, from where -------------------------------------------------------------------------
def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _host_is_ours(headers: Headers) -> bool:
    hosts = _values(headers, b"host")
    return len(hosts) == 1 and _is_allowed(split_domain_port(hosts[0])[0])


def _origin_is_ours(headers: Headers) -> bool:
    """A browser says which page asks; a program says nothing. So a page that has got to this address by a trick stays outside."""
    for origin in _values(headers, b"origin"):
        try:
            host = urlsplit(origin).hostname or ""
        except ValueError:
            return False
        if not _is_allowed(f"[{host}]" if ":" in host else host):
            return False
    return True


def _is_allowed(domain: str) -> bool:
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


async def _caller(headers: Headers) -> Caller | None:
    shown = _values(headers, b"authorization")
    if len(shown) != 1:
        return None
    scheme, _, secret = shown[0].partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        return None
    return await in_thread(keys.look_up, secret.strip(), "mcp")


async def _refuse(send: Any, status: HTTPStatus, said: str, *headers: tuple[bytes, bytes]) -> None:
    """Answer in the API's words, and say so in the log as Django does for its own."""
    log.warning("%s: %s", status.phrase, PATH)
    body = json.dumps({"detail": said, "errors": {}}).encode()
    length = str(len(body)).encode()
    known = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": int(status), "headers": known})
    await send({"type": "http.response.body", "body": body})


# -- serving --------------------------------------------------------------------------------------
class _Serving:
    """The library's manager of the event loop that runs now.

    The web server sends no start-up event, so the first request opens it; one task opens and closes it, as its scope demands.
    """

    def __init__(self) -> None:
        self._open: _Open | None = None

    async def manager(self) -> StreamableHTTPSessionManager:
        if self._open is None or not runs_here(self._open.task):
            self._open = _Open()
        found = self._open
        await asyncio.wait([found.task, found.ready], return_when=asyncio.FIRST_COMPLETED)
        if found.task.done():
            found.task.result()  # it says why there is no manager
        return found.manager


class _Open:
    """One manager, kept open for as long as its event loop runs."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.manager = StreamableHTTPSessionManager(
            server,
            json_response=True,
            stateless=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # see _host_is_ours
            max_request_body_size=MOST_BYTES,
        )
        self.ready: asyncio.Future[None] = loop.create_future()
        self.task = loop.create_task(self._keep())

    async def _keep(self) -> None:
        async with self.manager.run():
            self.ready.set_result(None)
            await asyncio.Event().wait()
