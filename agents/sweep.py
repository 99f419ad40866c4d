"""The alarm clock: once a second looks for what is due, lost or left over. Any number of sweeps may run; each step is a compare-and-set."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from types import FrameType

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from agents import executions, hints, owner, queue, reminders, worker
from agents.db import released
from agents.harness import process
from agents.models import Execution, Worker

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
BELL_GRACE = timedelta(seconds=2)  # a bell younger than this may still be on its way
MOST_BELLS = 200
SLOW_EVERY = 10  # sweeps between two looks at the process table

Duty = Callable[[datetime], None]


def ring_lost_bells(now: datetime) -> None:
    """Ring for turns that wait although a slot is free, unless so many bells wait that the workers have enough to answer."""
    room = MOST_BELLS - queue.bells_waiting()
    if room > 0:
        for execution_id in executions.unheard(now - BELL_GRACE, room):
            queue.ring(execution_id)


def reclaim_lost(now: datetime) -> None:
    """Have the turns of vanished hosts repeated; this host's own are left to its workers, which can see their processes."""
    alive = worker.living_hosts(now, within_seconds=settings.TRINITY_LEASE_SECONDS) | {owner.host()}
    executions.reclaim_lost(alive, now)


def forget_dead_workers(now: datetime) -> None:
    """Drop the rows of workers that have not been heard for long."""
    Worker.objects.filter(seen_at__lt=now - timedelta(seconds=6 * settings.TRINITY_LEASE_SECONDS)).delete()


def end_orphans(now: datetime) -> None:
    """End processes on this host that carry the mark of a turn which is over (their worker died before it could)."""
    marked = process.marked(None)
    known = Execution.objects.filter(pk__in=list(marked))
    spared = known.filter(state=Execution.State.RUNNING) | known.filter(agent__keep_background=True)
    spared = spared | known.filter(finished_at__gt=now - timedelta(seconds=SLOW_EVERY))  # its worker is at it
    orphans = set(known.values_list("id", flat=True)) - set(spared.values_list("id", flat=True))
    if orphans:
        process.end_leftovers(orphans, settings.TRINITY_GRACE_SECONDS)


def clear_run_folders(now: datetime) -> None:
    """Remove the run folders on this host whose turn is over (their worker died before it could)."""
    runs = worker.runs_folder()
    found = {folder.name for folder in runs.iterdir()} if runs.is_dir() else set()
    live = Execution.objects.filter(pk__in=list(found)).exclude(finished_at__lt=now - timedelta(seconds=SLOW_EVERY))
    for name in found - set(live.values_list("id", flat=True)):
        shutil.rmtree(runs / name, ignore_errors=True)


def bound_unwatched(now: datetime) -> None:
    """Bound the output of this host's turns whose worker is dead, until another one watches them."""
    running = Execution.objects.filter(state=Execution.State.RUNNING, owner__startswith=f"{owner.host()}/")
    for execution_id, attempt, holder in running.values_list("id", "attempt", "owner"):
        if owner.is_dead(holder):
            process.bound_output(worker.run_folder(execution_id, attempt))


FAST: tuple[Duty, ...] = (
    ring_lost_bells,
    reclaim_lost,
    bound_unwatched,
    reminders.cancel_of_deleted,
    reminders.fire_due,
)
SLOW: tuple[Duty, ...] = (forget_dead_workers, end_orphans, clear_run_folders)


def sweep_once(now: datetime, *, slow: bool) -> None:
    """Every duty once. A duty that fails is logged and does not keep the others from theirs."""
    duties = [*FAST, *(import_string(path) for path in settings.SWEEP_DUTIES), *(SLOW if slow else ())]
    for duty in duties:
        try:
            with released():
                duty(now)
        except Exception:
            log.exception("the sweep's duty %s failed", getattr(duty, "__name__", duty))


def run_sweep() -> None:
    """Sweep until SIGTERM or SIGINT."""
    leaving = threading.Event()

    def leave(signum: int, frame: FrameType | None) -> None:
        leaving.set()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    count = 0
    while not leaving.is_set():
        hints.publish({"what": hints.BEAT})
        sweep_once(timezone.now(), slow=count % SLOW_EVERY == 0)
        count += 1
        leaving.wait(EVERY_SECONDS)
