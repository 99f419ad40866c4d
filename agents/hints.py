"""The only mouth to the channel layer: says after commit that something changed, and tells whoever watches in this process.

A hint says what to look at again, never what is there: it may be lost, late or doubled and no page gets wrong by it.
All web processes are in one group with one channel each; handing it to the sockets of a process happens in its memory (a
group member per socket took 200 times as long at 300 watchers). A heartbeat each second makes silence noticeable, since the
layer does not say when it had to connect again: after a gap every watcher is told to look at everything.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from channels.layers import get_channel_layer
from django.db import transaction

log = logging.getLogger(__name__)

Hint = dict[str, Any]
GROUP = "hints"
BEAT = "beat"
EVERYTHING: Hint = {"what": "everything"}
SILENCE_SECONDS = 4.0
SEND_SECONDS = 2.0
MOST_PENDING = 1_000
COMPLAIN_SECONDS = 10.0


# -- speaking: from any thread of any process -------------------------------------------------------
class _Publisher:
    """One event loop in one thread for all hints of a process: a loop per hint would open a connection per hint."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.complained: float | None = None
        self.pending = 0  # a rough count: a hint more or less is none the worse
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="hints", daemon=True)
        self.thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Let what waits go out, then end the thread: the interpreter must not go down under a loop that runs."""
        if self.pid != os.getpid() or not self.thread.is_alive():
            return
        self.complained = float("inf")  # where it would be written may be gone by now
        limit = time.monotonic() + SEND_SECONDS
        while self.pending and time.monotonic() < limit:
            time.sleep(0.005)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(SEND_SECONDS)

    def send(self, hint: Hint) -> None:
        """Send it from the loop's thread; drop it where so many wait that Redis must be hanging."""
        if self.pending < MOST_PENDING:
            self.pending += 1
            asyncio.run_coroutine_threadsafe(self._send(hint), self.loop)

    async def _send(self, hint: Hint) -> None:
        try:
            await asyncio.wait_for(get_channel_layer().group_send(GROUP, {"type": "hint", **hint}), SEND_SECONDS)
        except Exception as away:  # whatever the layer's client raises, a lost hint must not fail the work
            self._complain(str(away) or type(away).__name__)
        finally:
            self.pending -= 1

    def _complain(self, why: str) -> None:
        """Say it once in a while: a Redis that is away loses many hints."""
        now = self.loop.time()
        if self.complained is None or now > self.complained + COMPLAIN_SECONDS:
            self.complained = now
            log.warning("hints are lost: %s", why)


_publisher: _Publisher | None = None
_lock = threading.Lock()


def publish(hint: Hint) -> None:
    """Say it now."""
    global _publisher
    with _lock:
        if _publisher is None or _publisher.pid != os.getpid():  # a forked child has the object, not its thread
            _publisher = _Publisher()
    _publisher.send(hint)


def say(what: str, id: str, *, agent: int, version: int = 0) -> None:
    """Say after commit that this loop, execution or agent changed. `agent` = the agent's row id, for who may hear of it."""
    transaction.on_commit(partial(publish, {"what": what, "id": id, "agent": agent, "version": version}), robust=True)


def say_access_changed() -> None:
    """Say after commit that shares, permissions, keys or sessions changed: verdicts are to be formed anew."""
    transaction.on_commit(partial(publish, {"what": "access"}), robust=True)


# -- hearing: in the event loop of a web process ----------------------------------------------------
class Hub:
    """The watchers of this process. `watch` takes a function that is called with each hint, in the event loop, and must not wait."""

    def __init__(self) -> None:
        self._watchers: set[Callable[[Hint], None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._hearing = asyncio.Event()

    async def ready(self, within_seconds: float = 2.0) -> bool:
        """Wait until hints are heard, so that nothing said after this is missed; False where Redis does not answer in time."""
        try:
            await asyncio.wait_for(self._hearing.wait(), within_seconds)
        except TimeoutError:
            return False
        return True

    def watch(self, watcher: Callable[[Hint], None]) -> None:
        self._watchers.add(watcher)
        if not runs_here(self._task):
            self._hearing = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._listen())

    def forget(self, watcher: Callable[[Hint], None]) -> None:
        self._watchers.discard(watcher)

    def tell(self, hint: Hint) -> None:
        for watcher in tuple(self._watchers):
            watcher(hint)

    async def _listen(self) -> None:
        """Hear the group for ever; after silence or a failure tell everybody to look at everything."""
        while self._watchers:
            try:
                await self._hear()
            except Exception as away:  # whatever the layer's client raises: listen again
                log.warning("hints are not heard: %s", away)
                await asyncio.sleep(1)
            self.tell(EVERYTHING)

    async def _hear(self) -> None:
        """Hear until nothing was said for longer than a heartbeat may take."""
        layer = get_channel_layer()
        channel = await layer.new_channel("hints")
        await layer.group_add(GROUP, channel)
        self._hearing.set()
        try:
            while self._watchers:
                hint = await asyncio.wait_for(layer.receive(channel), SILENCE_SECONDS)
                if hint["what"] != BEAT:
                    self.tell(hint)
        except TimeoutError:
            return
        finally:
            self._hearing.clear()
            await layer.group_discard(GROUP, channel)


def runs_here(task: asyncio.Task[None] | None) -> bool:
    """Is this task alive in the event loop that runs now?"""
    return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()


hub = Hub()
