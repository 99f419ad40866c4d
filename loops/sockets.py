"""What every socket of ours has in common."""

from channels.generic.websocket import AsyncWebsocketConsumer


class UnknownSocket(AsyncWebsocketConsumer):
    """An address that does not exist: refused before it opens, where the router would raise."""

    async def connect(self) -> None:
        await self.close()
