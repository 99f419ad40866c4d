"""The RQ worker with slots: answers bells, runs each claimed turn in a thread, keeps the leases, adopts what others left."""

from __future__ import annotations

import logging
import os
import queue as queues
import shutil
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import django_rq
import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.utils import timezone
from rq import SimpleWorker
from rq.exceptions import StopRequested
from rq.job import Job
from rq.queue import Queue

from agents import executions, hints, keys, owner, queue
from agents.db import released
from agents.executions import LOST, Turn
from agents.harness import process, registry
from agents.harness.contract import Order, Result
from agents.harness.environment import clean_environment
from agents.models import Worker
from agents.slots import Slots

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
FAIR_TURNS = 8  # a full worker hands its slot back after so many turns while bells wait

# A turn and the fence that a slot runs it under: one that was lost may come back to the same process under another fence.
Hold = tuple[str, int]


def answer(execution_id: str) -> None:
    """What a bell names as its job. Only BellWorker answers bells; any other RQ worker would fail here, and lose nothing."""
    raise RuntimeError(f"the bell of {execution_id} reached a worker without slots")


class Desk:
    """The turns of this process: one thread each, which waits for its process' end without holding a database connection."""

    def __init__(self, slots: int) -> None:
        self.owner = owner.me()
        self.slots = slots
        self.free = Slots(slots)
        self.leaving = threading.Event()
        self.gone = threading.Event()  # the main thread has heard it
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="slot")
        self._held: set[Hold] = set()  # what a slot of this process is busy with
        self._missed: set[Hold] = set()  # what the ledger gives to this process and no slot held at the last look
        self._inboxes: dict[Hold, queues.SimpleQueue[bool]] = {}
        self._processes: dict[Hold, process.Process] = {}
        self._ending: set[Hold] = set()
        self._over: deque[tuple[Order, process.Process | None]] = deque()  # closed turns, to be cleared up
        self._watcher = process.Watcher(on_output=self._on_output)
        self._watcher.start()

    # -- slots ------------------------------------------------------------------------------------
    def answer(self, execution_id: str) -> None:
        """Answer a bell in a thread; the caller has acquired a slot of `free`, which is given back at the end."""
        self._pool.submit(self._hold_slot, self._claim, execution_id)

    def _hold_slot(self, begin: Callable[..., Turn | None], *args: Any) -> None:
        """Run what `begin` returns, and what follows it, until nothing follows."""
        try:
            turn, turns = begin(*args), 0
            while turn is not None and not self.leaving.is_set():
                turns += 1
                with self._holding(turn):
                    turn = self._carry_out(turn, turns)
        except Exception:
            log.exception("a slot failed; what it held is taken up again")
        finally:
            self.free.release()

    @contextmanager
    def _holding(self, turn: Turn) -> Iterator[None]:
        hold = (turn.execution.pk, turn.fence)
        self._held.add(hold)
        try:
            yield
        finally:
            self._held.discard(hold)

    @property
    def busy(self) -> int:
        return len(self._held)

    # -- one turn ---------------------------------------------------------------------------------
    def _claim(self, execution_id: str) -> Turn | None:
        try:
            with released():
                return executions.claim(execution_id, self.owner, timezone.now())
        except DatabaseError as problem:
            log.warning("no claim for %s, the sweep will ring again: %s", execution_id, problem)
            return None

    def _carry_out(self, turn: Turn, turns: int) -> Turn | None:
        """Start a claimed turn and see it through; the turn that this slot runs next."""
        order = order_of(turn)
        try:
            started = process.start(order, registry.harness(turn.agent.harness).argv(order))
        except process.CannotStart as reason:
            return self._finish(turn, Result(succeeded=False, error=str(reason)), turns)
        return self._see_through(turn, order, started, turns)

    def _see_through(self, turn: Turn, order: Order, running: process.Process, turns: int) -> Turn | None:
        """Wait for the end of a turn's process, then collect and close it; the turn that this slot runs next."""
        inbox: queues.SimpleQueue[bool] = queues.SimpleQueue()
        hold = (turn.execution.pk, turn.fence)
        self._inboxes[hold] = inbox
        self._processes[hold] = running
        try:
            self._watcher.watch(running, lambda _: inbox.put(True))
            if self.leaving.is_set() or not inbox.get():
                self._watcher.forget(running)
                return None  # this process leaves; the turn goes on and is adopted
        finally:
            self._inboxes.pop(hold, None)
            self._processes.pop(hold, None)
            self._ending.discard(hold)
        return self._collect(turn, order, running, turns)

    def _collect(self, turn: Turn, order: Order, wrapper: process.Process | None, turns: int) -> Turn | None:
        """Close a turn whose process is over. Without a recorded end it has vanished, and is repeated."""
        result = registry.harness(turn.agent.harness).collect(order)
        if result is None:
            return self._repeat(turn, order, wrapper)
        following = self._finish(turn, result, turns)
        self._over.append((order, wrapper))
        return following

    def _repeat(self, turn: Turn, order: Order, wrapper: process.Process | None) -> Turn | None:
        """Another attempt at a turn whose process vanished, once nothing of the last one is left; or its end as lost."""
        with released():
            if not executions.holds(turn):
                return None  # its new owner may have another attempt running, which carries the same mark
        process.end(order.execution_id, wrapper, order.grace_seconds)  # the agent may outlive its wrapper
        if turn.attempt >= settings.TRINITY_MAX_ATTEMPTS:
            return self._finish(turn, Result(succeeded=False, error=LOST.format(attempts=turn.attempt)), 1)
        return self._begin_again(turn)

    def _begin_again(self, turn: Turn) -> Turn | None:
        if turn.execution.cancelled_by:
            return self._finish(turn, Result(succeeded=False), 1)
        with released():
            return executions.begin_again(turn)  # the slot's loop carries it out

    def _finish(self, turn: Turn, result: Result, turns: int) -> Turn | None:
        """Close the turn, again and again while the database is away: its end is on disk and must not be lost."""
        pause = 0.1
        while True:
            try:
                with released():
                    return executions.finish(
                        turn, result, self.owner, timezone.now(), keep_slot=self._may_keep_slot(turns)
                    )
            except DatabaseError as problem:
                log.warning("cannot close %s yet: %s", turn.execution.pk, problem)
            if self.leaving.wait(pause):
                return None
            pause = min(pause * 2, 5.0)

    def _may_keep_slot(self, turns: int) -> bool:
        if self.leaving.is_set():
            return False
        full = self.busy >= self.slots
        return not (full and turns % FAIR_TURNS == 0 and queue.bells_waiting())

    # -- adoption ---------------------------------------------------------------------------------
    def adopt_abandoned(self, now: datetime) -> None:
        """Take over turns of this host whose owner is dead or late, up to the free slots."""
        for execution_id, holder, fence, lease_until in executions.adoptable(owner.host(), self.owner):
            if (lease_until <= now or owner.is_dead(holder)) and not self._take(execution_id, fence, holder, now):
                return

    def take_up_missed(self, now: datetime) -> None:
        """Take up turns that the ledger gives to this process but that no slot holds, now and at the look before.

        They come from a commit whose answer was lost with the database connection, or from a slot that failed.
        """
        missed = set(executions.held_by(self.owner)) - self._held
        for execution_id, fence in missed & self._missed:
            self._take(execution_id, fence, self.owner, now)
        self._missed = missed

    def _take(self, execution_id: str, fence: int, holder: str, now: datetime) -> bool:
        """Raise the fence of a turn and give it to a slot; False where no slot is free."""
        if not self.free.take():
            return False
        turn = None
        try:
            turn = executions.adopt(execution_id, fence, self.owner, now)
        finally:
            if turn is None:  # somebody was faster, or the database is away
                self.free.release()
        if turn is None:
            return True
        log.info("adopted %s", execution_id)
        self._pool.submit(self._hold_slot, self._resume, turn, owner.same_boot(holder))
        return True

    def _resume(self, turn: Turn, same_boot: bool) -> Turn | None:
        """Go on where the last owner left off: watch it, collect it, or start it."""
        with self._holding(turn):
            order = order_of(turn)
            taken, wrapper = process.take_over(order.folder, same_boot)
            if taken is process.Taken.NEVER_STARTED:
                return self._begin_again(turn)
            if taken is process.Taken.RUNNING and wrapper is not None:
                return self._see_through(turn, order, wrapper, 1)
            return self._collect(turn, order, wrapper, 1)

    # -- the beat's part --------------------------------------------------------------------------
    def end_cancelled(self) -> None:
        """End the processes of turns that somebody has cancelled; each once, in a thread, as the grace takes time."""
        cancelled = set(executions.cancelled_of(self.owner))
        for hold, running in tuple(self._processes.items()) if cancelled else ():
            if hold[0] not in cancelled or hold in self._ending:
                continue
            self._ending.add(hold)
            threading.Thread(
                target=process.end, args=(hold[0], running, settings.TRINITY_GRACE_SECONDS), daemon=True
            ).start()

    def clear_up(self) -> None:
        """End what finished turns left running and remove their folders: one look at all processes for all of them.

        Not those whose result was refused: their new owner may still run them, or not have collected them yet.
        """
        seen = list(self._over)
        if not seen:
            return
        closed = executions.over_among([order.execution_id for order, _ in seen])
        for _ in seen:
            self._over.popleft()
        over = [(order, wrapper) for order, wrapper in seen if order.execution_id in closed]
        threading.Thread(target=clear_up, args=(over,), daemon=True).start()

    def leave(self) -> None:
        """Let every slot go, without waiting for a turn."""
        self.gone.set()
        self.leaving.set()
        for inbox in list(self._inboxes.values()):
            inbox.put(False)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._watcher.stop()
        with released():
            executions.let_go(self.owner, timezone.now())

    def _on_output(self, running: process.Process, size: int) -> None:
        hints.publish({"what": "output", "id": running.folder.parent.name, "size": size})


def clear_up(over: list[tuple[Order, process.Process | None]]) -> None:
    """End what these turns left running, unless their agent may keep it, and remove their run folders."""
    ended = [(order, wrapper) for order, wrapper in over if not order.keep_background]
    wrappers = [wrapper for _, wrapper in ended if wrapper is not None]
    process.end_leftovers({order.execution_id for order, _ in ended}, settings.TRINITY_GRACE_SECONDS, wrappers)
    for order, _ in over:
        shutil.rmtree(order.folder.parent, ignore_errors=True)


def order_of(turn: Turn) -> Order:
    """What the harness is asked for this turn (interface.md 2)."""
    execution, agent = turn.execution, turn.agent
    key = keys.turn_key(execution.pk, turn.attempt)
    model = execution.model or agent.model
    limit = min(execution.timeout_seconds or agent.timeout_seconds, agent.timeout_seconds)
    variables = {
        "TRINITY_AGENT": agent.name,
        "TRINITY_EXECUTION_ID": execution.pk,
        "TRINITY_TRIGGERED_BY": execution.triggered_by,
        "TRINITY_API_URL": settings.TRINITY_BASE_URL,
        "TRINITY_MCP_URL": f"{settings.TRINITY_BASE_URL}/mcp",
        "TRINITY_API_KEY": key,
        **execution.variables,
    }
    if execution.loop_id:
        variables["TRINITY_LOOP_ID"] = execution.loop_id
    if model:
        variables["TRINITY_MODEL"] = model
    if execution.session_id:
        variables["TRINITY_SESSION_ID"] = execution.session_id
    if execution.allowed_tools is not None:
        variables["TRINITY_ALLOWED_TOOLS"] = ",".join(execution.allowed_tools)
    return Order(
        execution_id=execution.pk,
        folder=run_folder(execution.pk, turn.attempt),
        workspace=agent.workspace,
        command=tuple(agent.command),
        message=execution.message,
        output=agent.output,
        environment={**clean_environment(os.environ), **agent.environment, **variables},
        timeout_seconds=limit,
        grace_seconds=settings.TRINITY_GRACE_SECONDS,
        secrets=(key,),
        keep_background=agent.keep_background,
    )


def run_folder(execution_id: str, attempt: int) -> Path:
    """Where one attempt of a turn keeps its files on this host."""
    return runs_folder() / execution_id / str(attempt)


def runs_folder() -> Path:
    """Where the turns of this host have their folders, by execution id."""
    return Path(settings.TRINITY_DATA) / "runs"


class Beat(threading.Thread):
    """Once a second: keep the leases, adopt, end what was cancelled, and say that this worker is alive."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(name="beat", daemon=True)
        self.desk = desk

    def run(self) -> None:
        ticks = 0
        every = max(1, settings.TRINITY_LEASE_SECONDS // 3)
        while not self.desk.leaving.is_set():
            try:
                with released():
                    self._tick(timezone.now(), ticks % every == 0)
            except DatabaseError as problem:
                log.warning("the beat missed: %s", problem)
            except Exception:
                log.exception("the beat failed")
            ticks += 1
            self.desk.leaving.wait(BEAT_SECONDS)
        while not self.desk.gone.wait(BEAT_SECONDS):  # what a handler raises may be lost where Python cannot pass it on
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _tick(self, now: datetime, renewing: bool) -> None:
        if renewing:
            executions.renew(self.desk.owner, now)
            Worker.objects.update_or_create(
                owner=self.desk.owner, defaults={"slots": self.desk.slots, "busy": self.desk.busy, "seen_at": now}
            )
            self.desk.take_up_missed(now)
        self.desk.adopt_abandoned(now)
        self.desk.end_cancelled()
        self.desk.clear_up()


class BellWorker(SimpleWorker):
    """RQ's dequeue and nothing else of it: a bell is answered by deleting its job and claiming from the ledger."""

    max_connection_wait_time = 2

    def __init__(self, desk: Desk, **options: Any) -> None:
        super().__init__([django_rq.get_queue(queue.QUEUE)], worker_ttl=40, **options)
        self.desk = desk

    def procline(self, message: str) -> None:
        """Leave the command line as it is: operators and supervisors look for it."""

    def _install_signal_handlers(self) -> None:
        """Leave the signals to `run_worker`, which knows what to do with them between two of these."""

    def dequeue_job_and_maintain_ttl(self, timeout: int | None, max_idle_time: int | None = None) -> Any:
        """A slot first, a bell second: nothing waits in this process' memory.

        Where the slot was taken for an adoption meanwhile, the bell goes back to the others.
        """
        while True:
            self.desk.free.listen()
            found, kept = None, False
            try:
                found = super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
            finally:
                kept = self.desk.free.heard()
                if kept and found is None:
                    self.desk.free.release()
            if kept or found is None:
                return found
            self._forget(*found)
            queue.ring(found[0].id)

    def execute_job(self, job: Job, queue: Queue) -> None:
        try:
            self._forget(job, queue)
        finally:
            self.desk.answer(job.id)  # gives the slot back too, whatever has become of Redis

    def _forget(self, job: Job, queue: Queue) -> None:
        with self.connection.pipeline() as pipeline:
            pipeline.lrem(queue.intermediate_queue_key, 1, job.id)
            pipeline.delete(job.key)
            pipeline.execute()


def run_worker(slots: int) -> None:
    """Be one worker process until SIGTERM or SIGINT; then leave at once, waiting for no turn, which all go on.

    While Redis is away no bell is heard, but what this process holds goes on, and it adopts what others left.
    """
    desk = Desk(slots)

    def leave(signum: int, frame: FrameType | None) -> None:
        desk.leaving.set()
        if not desk.gone.is_set():  # a second signal must not break off the leaving itself
            raise StopRequested

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    _notice_signals(desk)
    Beat(desk).start()
    try:
        while not desk.leaving.is_set():
            _answer_bells(desk)
    except StopRequested:
        pass  # where RQ has not caught it
    finally:
        desk.leave()
        with released():
            Worker.objects.filter(owner=desk.owner).delete()


def _notice_signals(desk: Desk) -> None:
    """Set `leaving` for a signal that another thread was given: it does not wake the main thread, which may wait for a bell."""
    heard, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.detach(), warn_on_full_buffer=False)

    def listen() -> None:
        while heard.recv(1):
            desk.leaving.set()  # the beat then wakes the main thread

    threading.Thread(target=listen, name="signals", daemon=True).start()


def _answer_bells(desk: Desk) -> None:
    """Answer bells until RQ gives up, which it does at many a hiccup of Redis."""
    try:
        BellWorker(desk).work(logging_level="WARNING")
    except redis.RedisError as away:
        log.warning("no bells are heard: %s", away)
    desk.leaving.wait(1.0)


def living_hosts(now: datetime, within_seconds: float) -> set[str]:
    """Hosts of which a worker has been heard lately."""
    rows = Worker.objects.filter(seen_at__gt=now - timedelta(seconds=within_seconds))
    return {row.partition("/")[0] for row in rows.values_list("owner", flat=True)}
