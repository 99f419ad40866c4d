"""Who opens a socket: a bearer key, or a browser's session from our own origin. Everything else is refused before it opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from channels.auth import AuthMiddlewareStack
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from agents import keys
from agents.access import Caller
from agents.models import User

Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

SESSION_ENDED = 4401
NOT_ALLOWED = 4403


class Door:
    """Puts the Caller into `scope["caller"]`, None where there is none. A token in the URL is no credential, whatever else is sent."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.with_session = AuthMiddlewareStack(self._by_session)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if b"token=" in scope.get("query_string", b""):
            return await self.app({**scope, "caller": None}, receive, send)
        if scheme.lower() == "bearer":
            caller = await database_sync_to_async(keys.look_up)(secret.strip(), "socket")
            return await self.app({**scope, "caller": caller}, receive, send)
        if not same_origin(headers):
            return await self.app({**scope, "caller": None}, receive, send)
        return await self.with_session(scope, receive, send)

    async def _by_session(self, scope: Scope, receive: Any, send: Any) -> None:
        user = scope["user"]
        caller = Caller(user=await _plain(user), through="socket") if user.is_authenticated else None
        await self.app({**scope, "caller": caller}, receive, send)


@database_sync_to_async
def _plain(user: Any) -> User:
    """The person behind Channels' lazy user."""
    return User.objects.get(pk=user.pk)


def same_origin(headers: dict[bytes, bytes]) -> bool:
    """Does the page that opens the socket come from the address that it asks? A browser always says where it comes from."""
    origin = urlsplit(headers.get(b"origin", b"").decode("latin-1"))
    asked = headers.get(b"host", b"").decode("latin-1")
    if not origin.hostname or origin.scheme not in {"http", "https"}:
        return False
    return origin.netloc.lower() in {asked.lower(), urlsplit(settings.TRINITY_BASE_URL).netloc.lower()}


def still_signed_in(caller: Caller, session: Any) -> bool:
    """Is the credential that opened the socket still good: the key not revoked, the session not ended, the person active?"""
    if session is not None and caller.key_id is None and caller.execution is None:
        request = HttpRequest()
        request.session = session.__class__(session.session_key)
        return bool(get_user(request).is_authenticated)
    return keys.is_alive(caller)
