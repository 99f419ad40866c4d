"""From an agent's end to the sockets: one web process, 1 and then 300 watchers, a steady stream of events and a burst of them."""

from __future__ import annotations

import http.client
import json
import socket
import time
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.utils import timezone

from agents import executions, keys, owner
from agents.db import released
from agents.executions import Turn
from agents.models import Agent
from loops.models import Loop, LoopEvent
from tests.bench import cast
from tests.bench.figures import Figures, quantile
from tests.bench.inline import DONE
from tests.bench.stage import Child, Failed, children, until

WATCHERS = 300
LOOPS = 25
EVENTS_PER_SECOND = 50  # two per finished run: it is completed, and the next one has started
BURST = 300


def measure(figures: Figures, *, seconds: float) -> None:
    """Steady with one watcher, steady with all of them, then the burst, after which each socket must know each loop's end."""
    port = _free_port()
    _agent()  # before the sockets, which look now and then only what they may hear
    key = keys.issue(cast.person(), name="bench")[1]
    web = Child("web", ["-m", "daphne", "-v", "0", "-b", "127.0.0.1", "-p", str(port), "trinity.asgi:application"])
    sweep = Child("sweep", ["manage.py", "sweep"])
    clients = Child("watchers", ["-m", "tests.bench.watchers", str(port)], BENCH_KEY=key)
    with children(web, sweep, clients):
        until(lambda: web.check() or _answers(port), "the web process", every=0.1)
        clients.ask("open 1")
        one = _steady(clients, seconds)
        clients.ask(f"open {WATCHERS}")
        many = _steady(clients, seconds)
        burst, settled, wrong = _burst(clients)
    figures.head(
        f"From an agent's end to {WATCHERS} sockets (/ws/events), {EVENTS_PER_SECOND} events/s for {seconds:g} s"
    )
    figures.line("1 watcher", _spread(one))
    figures.line(f"{WATCHERS} watchers", _spread(many))
    p50 = quantile(many, 0.5) / quantile(one, 0.5)
    figures.goal("fanout_p50_ratio", f"p50 at {WATCHERS} watchers / at 1", p50, "<= 3")
    figures.goal("fanout_p95_ms", f"p95 at {WATCHERS} watchers", quantile(many, 0.95) * 1e3, "<= 250", "ms", 0)
    figures.line(f"a burst of {BURST} events", f"{_spread(burst)}, settled in {settled:.1f} s")
    figures.goal("fanout_wrong_end_states", "sockets that do not know a loop's end", wrong, "= 0", digits=0)


def _spread(seconds: list[float]) -> str:
    return f"p50 {quantile(seconds, 0.5) * 1e3:.0f}  p95 {quantile(seconds, 0.95) * 1e3:.0f} ms"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        asking.request("GET", "/health")
        return asking.getresponse().status > 0
    except OSError:
        return False


def _claimed(runs: int) -> list[Turn]:
    return [cast.start_claimed(_agent(), runs, owner.me()) for _ in range(LOOPS)]


def _agent() -> Agent:
    return cast.agent("fan", slots=32)


def _finish(turn: Turn) -> Turn | None:
    with released():
        return executions.finish(turn, DONE, owner.me(), timezone.now())


def _steady(clients: Child, seconds: float) -> list[float]:
    """The seconds from each event's writing to each socket, over a while with a steady stream of them."""
    turns = _claimed(min(cast.MOST_RUNS, int(seconds * EVENTS_PER_SECOND / 2 / LOOPS) + 2))
    time.sleep(0.5)  # let the starts' own events pass
    clients.ask("clear")
    began, pause = time.monotonic(), 2 / EVENTS_PER_SECOND
    since = timezone.now()
    for number in range(int(seconds / pause)):
        time.sleep(max(0.0, began + number * pause - time.monotonic()))
        turns[number % LOOPS] = _finish(turns[number % LOOPS])
        if number % 50 == 0:
            executions.renew(owner.me(), timezone.now())
    loops = {turn.execution.loop_id for turn in turns if turn is not None}
    found, _, _ = _heard(clients, loops, since)
    while turns := [after for turn in turns if (after := _finish(turn)) is not None]:
        pass
    return found


def _burst(clients: Child) -> tuple[list[float], float, int]:
    """Loops that run to their ends as fast as the engine can: arrivals, seconds until all was heard, and wrong ends."""
    turns = _claimed(BURST // 2 // LOOPS)
    loops = {turn.execution.loop_id for turn in turns}
    time.sleep(0.5)
    clients.ask("clear")
    since = timezone.now()
    while turns := [after for turn in turns if (after := _finish(turn)) is not None]:
        pass
    return _heard(clients, loops, since)


def _heard(clients: Child, loops: set[str], since: datetime) -> tuple[list[float], float, int]:
    """Wait until every socket has heard every event written since then, at most 15 s, and see what came when."""
    rows = LoopEvent.objects.filter(loop__in=loops, created_at__gte=since)
    written = {
        f"{loop_id}:{version}": at.timestamp()
        for loop_id, version, at in rows.values_list("loop", "version", "created_at")
    }
    watchers = int(clients.ask("size"))
    began = time.monotonic()
    while int(clients.ask("count")) < len(written) * watchers and time.monotonic() - began < 15:
        time.sleep(0.05)
    settled = time.monotonic() - began
    file = Path(settings.TRINITY_DATA) / "arrivals.json"
    clients.ask(f"take {file}")
    came = json.loads(file.read_text())
    found = [
        moment - written[event] for event, moments in came["arrivals"].items() if event in written for moment in moments
    ]
    if not found:
        raise Failed("no event reached a socket")
    versions = dict(Loop.objects.filter(pk__in=loops).values_list("pk", "version"))
    wrong = sum(version != final for pk, final in versions.items() for version in came["last"].get(pk, [0] * watchers))
    return found, settled, wrong
