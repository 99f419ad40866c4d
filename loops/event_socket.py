"""`/ws/events`: what happens to loops, as JSON, to whoever may see it at that moment (interface.md 6)."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from agents import access, audit
from agents.access import Caller, Verdict
from agents.hints import Hint, hub
from agents.models import Agent
from agents.sockets import NOT_ALLOWED, SESSION_ENDED, still_signed_in
from loops.event_reader import Event, reader
from loops.sockets import keep_serving

CHECK_SECONDS = 5.0  # between two looks whether the listener may still hear


class EventsConsumer(AsyncWebsocketConsumer):
    """Refuses before it opens, then only speaks; what a listener says is ignored."""

    async def connect(self) -> None:
        caller: Caller | None = self.scope["caller"]
        names = parse_qs(self.scope["query_string"].decode("latin-1")).get("agent", [])
        if caller is None:
            return await self.close()
        self.caller = caller
        if not await database_sync_to_async(self._admit)(names[-1] if names else None):
            return await self.close()
        self.waiting: list[Event] = []
        self.woken = asyncio.Event()
        self.stale = False
        await reader.listen(self._hear)
        hub.watch(self._mark)
        await self.accept()
        self.task = asyncio.create_task(keep_serving(self, self._serve))

    def _admit(self, name: str | None) -> bool:
        """May this caller listen, to this agent or at all? A refusal goes on the trail."""
        self.only: Agent | None = access.agent_named(name) if name is not None else None
        verdict = access.use_agent(self.caller, self.only) if name is not None else Verdict.ALLOWED
        if verdict is Verdict.ALLOWED and not self.caller.is_client:
            self.agents = self._visible()
            return True
        target = self.only.name if self.only is not None else (name or "")
        audit.refused(self.caller.name, "socket", "events.listen", target, "No access.")
        return False

    def _visible(self) -> set[int]:
        agents = set(access.visible_agents(self.caller).values_list("pk", flat=True))
        return agents & {self.only.pk} if self.only is not None else agents

    def _hear(self, events: list[Event]) -> None:
        self.waiting.extend(events)
        self.woken.set()

    def _mark(self, hint: Hint) -> None:
        if hint["what"] in {"access", "agent"}:
            self.stale = True
            self.woken.set()

    async def _serve(self) -> None:
        """Send what may be heard as it comes; look again what that is when rights change, and every few seconds."""
        clock = asyncio.get_running_loop().time
        checked = clock()
        while True:
            try:
                await asyncio.wait_for(self.woken.wait(), 0 if self.stale else CHECK_SECONDS)
            except TimeoutError:
                self.stale = True
            self.woken.clear()
            if self.stale or clock() - checked > CHECK_SECONDS:
                self.stale = True  # until it has been looked at
                if (code := await database_sync_to_async(self._standing)()) is not None:
                    return await self.close(code)
                self.stale, checked = False, clock()
            events, self.waiting = self.waiting, []
            for event in events:
                if event.agent_id in self.agents:
                    await self.send(event.text)

    def _standing(self) -> int | None:
        """Look again at what may be heard; the code to close with, None while the socket may stay open."""
        if not still_signed_in(self.caller, self.scope.get("session")):
            return SESSION_ENDED
        self.agents = self._visible()
        return NOT_ALLOWED if self.only is not None and not self.agents else None

    async def receive(self, text_data: str | None = None, bytes_data: Any = None) -> None:
        """Ignore what a listener says."""

    async def disconnect(self, code: int) -> None:
        if hasattr(self, "task"):
            hub.forget(self._mark)
            reader.leave(self._hear)
            self.task.cancel()
