"""`/ws/agents/{name}/loops/`: keeps the loops' pages fresh with HTML fragments. Hears hints, looks, sends; changes nothing.

The page says what it shows. A hint marks what to look at again; what is marked is sent at most every 50 ms, so a burst is one look.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error as DatabaseError
from django.utils import timezone

from agents import access, audit
from agents.access import Caller, Verdict
from agents.hints import Hint, hub
from agents.sockets import NOT_ALLOWED, SESSION_ENDED, still_signed_in
from loops import engine, live, words
from loops.event_reader import Event, reader
from loops.live import Row, Watch
from loops.sockets import keep_serving

JOIN_SECONDS = 0.05  # between two refreshes of one socket
CHECK_SECONDS = 8.0  # between two looks whether the person may still see this
BEAT_SECONDS = 10.0  # the page takes longer silence than two of these for a dead line
SPEAK_SECONDS = 2.0  # turning points within this are spoken together
MOST_BYTES = 100_000  # of what a page may say


class LoopsPageConsumer(AsyncWebsocketConsumer):
    """One page of one person. With `?loop=ID` it shows that loop alone, to whoever may follow it."""

    async def connect(self) -> None:
        caller: Caller | None = self.scope["caller"]
        if caller is None or self.scope.get("session") is None:
            return await self.close()
        self.caller = caller
        only = parse_qs(self.scope["query_string"].decode("latin-1")).get("loop", [None])[-1]
        if not await database_sync_to_async(self._admit)(self.scope["url_route"]["kwargs"]["name"], only):
            return await self.close()
        self.changed: set[str] = set()
        self.talking: set[str] = set()
        self.events: list[Event] = []
        self.everything = self.agent_changed = self.doubt = False
        self.in_flight: dict[str, tuple[str, int]] = {}  # execution -> loop and run number, of the opened rows
        self.own: set[str] = set()  # loops that this person has started
        self.woken = asyncio.Event()
        await reader.listen(self._hear_event)
        hub.watch(self._hear)
        await self.accept()
        self.task = asyncio.create_task(keep_serving(self, self._serve))

    def _admit(self, name: str, only: str | None) -> bool:
        """May this person see the page? A refusal goes on the trail, as the page's own would."""
        self.only = engine.loop_named(only) if only is not None else None
        found = access.agent_named(name) if only is None else self.only.agent if self.only else None
        if found is not None and found.name == name:
            self.agent = found
            if self._verdict() is Verdict.ALLOWED:
                self.watch = Watch(found, self.caller.name, {self.only.pk} if self.only else set())
                return True
        audit.refused(self.caller.name, "socket", "events.listen", only or name, "No access.")
        return False

    def _verdict(self) -> Verdict:
        return engine.may_follow(self.caller, self.only) if self.only else access.use_agent(self.caller, self.agent)

    # -- hearing --------------------------------------------------------------------------------
    def _hear(self, hint: Hint) -> None:
        """Mark what to look at again."""
        match hint["what"]:
            case "loop" if hint["agent"] == self.agent.pk:
                self.changed.add(hint["id"])
            case "agent" if hint["agent"] == self.agent.pk:
                self.agent_changed = self.doubt = True
            case "output" if hint["id"] in self.in_flight:
                self.talking.add(hint["id"])
            case "access":
                self.doubt = True
            case "everything":
                self.everything = self.doubt = True
            case _:
                return
        self.woken.set()

    def _hear_event(self, events: list[Event]) -> None:
        ours = [event for event in events if event.agent_id == self.agent.pk]
        if ours:
            self.events += ours
            self.woken.set()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """What the page shows: `{"shown": [id], "open": [id], "newest": id or null, "state": whether to send all of it}`."""
        if text_data is None or len(text_data) > MOST_BYTES:
            return
        try:
            view = json.loads(text_data)
        except (ValueError, RecursionError):
            return
        before = self.watch.opened
        self.watch.look(view)
        if self.only:
            self.watch.shown, self.watch.opened, self.watch.newest = (
                {self.only.pk},
                self.watch.opened & {self.only.pk},
                None,
            )
        self.changed |= self.watch.opened - before
        self.everything |= isinstance(view, dict) and view.get("state") is True
        self.woken.set()

    # -- sending --------------------------------------------------------------------------------
    async def _serve(self) -> None:
        """Look and send for as long as the socket is open and the person may see it."""
        clock = asyncio.get_running_loop().time
        checked = beaten = spoken = clock()
        while True:
            await self._wait(SPEAK_SECONDS if self.events else min(CHECK_SECONDS, BEAT_SECONDS))
            if self.doubt or clock() - checked > CHECK_SECONDS:
                self.doubt = True  # until it has been looked at
                if (code := await database_sync_to_async(self._standing)()) is not None:
                    return await self.close(code)
                self.doubt, checked = False, clock()
            speaks = bool(self.events) and clock() - spoken >= SPEAK_SECONDS
            if html := await self._look(speaks):
                await self.send(html)
                spoken = clock() if speaks else spoken
            if clock() - beaten >= BEAT_SECONDS - 1:
                beaten = clock()
                await self.send("beat")
            await asyncio.sleep(JOIN_SECONDS)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), seconds)
        self.woken.clear()

    def _standing(self) -> int | None:
        """The code to close with; None while the socket may stay open."""
        if not still_signed_in(self.caller, self.scope.get("session")):
            return SESSION_ENDED
        self.agent.refresh_from_db()
        if self._verdict() is not Verdict.ALLOWED:
            return NOT_ALLOWED
        self.watch.agent = self.agent
        return None

    async def _look(self, speaks: bool) -> str:
        """Take what is marked and make fragments of it."""
        changed: set[str] | None = None if self.everything else self.changed
        head = self.everything or self.agent_changed or bool(self.changed)
        talking, self.talking, self.changed = self.talking, set(), set()
        self.everything = self.agent_changed = False
        events: list[Event] = []
        if speaks:
            events, self.events = self.events, []
        if changed == set() and not (head or talking or events):
            return ""
        try:
            return await database_sync_to_async(self._draw)(changed, head, talking, events, timezone.now())
        except DatabaseError:
            self.everything = self.agent_changed = True  # what was marked is taken: draw all of it next time
            self.events = events + self.events
            self.woken.set()
            raise

    def _draw(self, changed: set[str] | None, head: bool, talking: set[str], events: list[Event], now: datetime) -> str:
        html, rows = live.news(self.watch, changed, now)
        self._follow_output(rows)
        parts = [html] if html else []
        parts += [live.now_part(self.agent, *self.in_flight[turn], turn) for turn in talking if turn in self.in_flight]
        if head:
            parts.append(live.agent_parts(self.agent, self.caller, now, of_list=self.only is None))
        if sentences := self._sentences(events, rows):
            parts.append(live.spoken(sentences))
        return "".join(parts)

    def _follow_output(self, rows: list[Row]) -> None:
        """Remember whose output the opened rows show."""
        seen = {row.loop.pk for row in rows}
        kept = {turn: of for turn, of in self.in_flight.items() if of[0] not in seen and of[0] in self.watch.opened}
        opened = [row for row in rows if row.running and row.loop.pk in self.watch.opened]
        self.in_flight = {**kept, **{row.running: (row.loop.pk, row.facts.next_run) for row in opened}}

    def _sentences(self, events: list[Event], rows: list[Row]) -> list[str]:
        """The turning points among the events, for loops that the page shows."""
        self.own |= {row.loop.pk for row in rows if row.loop.started_by == self.caller.name}
        shown = self.watch.shown | {row.loop.pk for row in rows}
        told = [(event.loop_id, json.loads(event.text)) for event in events if event.loop_id in shown]
        said = (sentence(event, self.caller.name) for loop_id, event in told if not self._is_known(loop_id, event))
        return [one for one in said if one]

    def _is_known(self, loop_id: str, event: dict[str, Any]) -> bool:
        """Has the page answered this itself, as its own person did it?"""
        return event["type"] == "loop_started" and loop_id in self.own

    async def disconnect(self, code: int) -> None:
        if hasattr(self, "task"):
            hub.forget(self._hear)
            reader.leave(self._hear_event)
            self.task.cancel()


def sentence(event: dict[str, Any], viewer: str) -> str:
    """What is said aloud of an event: started, a run failed, a stop accepted, ended. Nothing of the rest."""
    name = f"Loop {event['loop_id'][-6:]}"
    match event["type"]:
        case "loop_started":
            return f"{name} started."
        case "loop_run_failed":
            return f"{name}: run {event['run_number']} failed."
        case "loop_stop_requested" if event["stopped_by"] != viewer:  # who pressed it has been answered
            return f"{name}: stop accepted."
        case "loop_completed":
            facts = words.LoopFacts(status=event["status"], stop_reason=event["stop_reason"])
            return f"{name} ended: {words.status_words(facts, viewer).text}, {words.reason_words(facts.stop_reason)}."
    return ""
