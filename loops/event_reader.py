"""Reads new events of loops once for all listeners of a web process, in the order in which they happened.

A hint only says that a loop has new events; they are read from the ledger by version. So the events of one loop come in order and each
once, whatever order the hints came in, and a hint that was lost costs a second, not an event.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from channels.db import database_sync_to_async
from django.db import Error as DatabaseError
from django.db.models import Q
from django.utils import timezone

from agents.hints import EVERYTHING, Hint, hub, runs_here
from loops.models import LoopEvent

log = logging.getLogger(__name__)

JOIN_SECONDS = 0.02  # hints that come within this are read together
MOST_REMEMBERED = 10_000  # loops
OVERLAP = timedelta(seconds=15)  # how far back a look at everything goes: longer than any transaction may last


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it is sent; `agent_id` for who may hear it."""

    loop_id: str
    agent_id: int
    version: int
    text: str


Listener = Callable[[list[Event]], None]


class EventReader:
    """Tells each listener of every event that is committed after it began to listen."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._marked: set[str] = set()
        self._everything = False
        self._woken = asyncio.Event()
        self._seen: dict[str, tuple[int, datetime]] = {}
        self._since = timezone.now()
        self._task: asyncio.Task[None] | None = None

    async def listen(self, listener: Listener) -> None:
        """Begin to tell this listener; returns once nothing said from now on can be missed."""
        self._listeners.add(listener)
        if not runs_here(self._task):
            self._seen, self._since, self._woken = {}, timezone.now(), asyncio.Event()
            hub.watch(self._mark)
            self._task = asyncio.get_running_loop().create_task(self._read())
        await hub.ready()

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            hub.forget(self._mark)
            self._task.cancel()
            self._task = None

    def _mark(self, hint: Hint) -> None:
        if hint["what"] == "loop":
            self._marked.add(hint["id"])
        elif hint["what"] == EVERYTHING["what"]:
            self._everything = True
        else:
            return
        self._woken.set()

    async def _read(self) -> None:
        while True:
            await self._woken.wait()
            await asyncio.sleep(JOIN_SECONDS)
            self._woken.clear()
            marked, self._marked = self._marked, set()
            loops, self._everything = (None if self._everything else marked), False
            try:
                events = await database_sync_to_async(self._news)(loops)
            except DatabaseError as away:
                log.warning("events cannot be read yet: %s", away)
                self._marked |= marked
                self._everything |= loops is None
                self._woken.set()
                await asyncio.sleep(1)
                continue
            if events:
                for listener in tuple(self._listeners):
                    listener(events)

    def _news(self, loops: set[str] | None) -> list[Event]:
        """Events not yet told, oldest first within a loop; of these loops, or of all that happened lately."""
        rows = LoopEvent.objects.filter(created_at__gt=self._since)
        if loops is None:
            rows = rows.filter(created_at__gte=timezone.now() - OVERLAP)
        else:
            rows = rows.filter(reduce(or_, (Q(loop=one, version__gt=self._told(one)) for one in loops), Q(pk=None)))
        found = []
        for row in rows.select_related("loop__agent").only(*_COLUMNS).order_by("loop_id", "version"):
            if row.version > self._told(row.loop_id):
                self._seen.pop(
                    row.loop_id, None
                )  # in again at the end: what was least lately told of is forgotten first
                self._seen[row.loop_id] = (row.version, row.created_at)
                found.append(Event(row.loop_id, row.loop.agent_id, row.version, _wire(row)))
        while len(self._seen) > MOST_REMEMBERED:
            _, told_at = self._seen.pop(next(iter(self._seen)))
            self._since = max(
                self._since, told_at
            )  # so that a loop that was forgotten is not told of from its beginning
        return found

    def _told(self, loop_id: str) -> int:
        """The version up to which a loop has been told of."""
        return self._seen[loop_id][0] if loop_id in self._seen else 0


_COLUMNS = ("loop_id", "version", "type", "data", "created_at", "loop__agent__name")


def _wire(row: LoopEvent) -> str:
    head = {"type": row.type, "loop_id": row.loop_id, "agent_name": row.loop.agent.name}
    return json.dumps({**head, **row.data, "version": row.version, "timestamp": _stamp(row.created_at)})


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


reader = EventReader()
