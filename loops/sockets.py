"""What every socket of ours has in common."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error as DatabaseError

log = logging.getLogger(__name__)

FAULT = 1011


async def keep_serving(socket: AsyncWebsocketConsumer, serve: Callable[[], Awaitable[None]]) -> None:
    """Serve an open socket until it is closed: again after a hiccup of the database, and never deaf behind an open line."""
    while True:
        try:
            return await serve()
        except DatabaseError as away:
            log.warning("a socket cannot look yet: %s", away)
            await asyncio.sleep(1)
        except Exception:
            log.exception("a socket failed and is closed")
            return await socket.close(FAULT)


class UnknownSocket(AsyncWebsocketConsumer):
    """An address that does not exist: refused before it opens, where the router would raise."""

    async def connect(self) -> None:
        await self.close()
