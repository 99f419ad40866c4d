"""Carries a plan out: people start and stop loops while blows fall on the product. Records what was hit, judges nothing."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.plans import Blow, LoopPlan
from tests.chaos.product import Product, until

CALM_SECONDS = 60  # after the last blow every loop has to end within these


@dataclass(slots=True)
class Follow:
    """What a person knows of the loop they started: its id, and what a stop was answered after how many tries."""

    plan: LoopPlan
    loop_id: str = ""
    stop_answer: str = ""
    stop_tries: int = 0


@dataclass(slots=True)
class Record:
    """What has happened, beyond what the product says of itself."""

    follows: list[Follow]
    kills: Counter[str] = field(default_factory=Counter)
    killed_alone: dict[str, float] = field(default_factory=dict)  # execution -> when
    vanished: dict[str, list[float]] = field(default_factory=dict)  # execution -> when, each time
    troubles: list[str] = field(default_factory=list)  # what must not have happened while it ran
    seconds: dict[str, float] = field(default_factory=dict)


# -- people ---------------------------------------------------------------------------------------
def _person(product: Product, follow: Follow, began: float, troubles: list[str]) -> None:
    """Start a loop at its time, and stop it at its time."""
    plan = follow.plan
    try:
        _sleep_until(began + plan.at)
        path = f"/api/agents/{plan.agent}/loops"
        answer, _ = product.call("POST", path, plan.request, **{"Idempotency-Key": plan.name})
        follow.loop_id = answer["loop_id"]
        if plan.stop_after is not None:
            time.sleep(plan.stop_after)
            answer, follow.stop_tries = product.call("POST", f"/api/loops/{follow.loop_id}/stop")
            follow.stop_answer = answer["status"]
    except Exception as problem:
        troubles.append(f"{plan.name}: {problem!r}")


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def make_agents(product: Product, parallel: tuple[int, ...], program: list[str]) -> None:
    """One agent for each number of parallel turns."""
    for number, most in enumerate(parallel):
        body = {"name": f"agent{number}", "command": program, "output": "json", "max_parallel_tasks": most}
        product.call("POST", "/api/agents", body)


# -- blows ----------------------------------------------------------------------------------------
class Killer:
    """Lets blows fall in their order, from the thread that started the product."""

    def __init__(self, product: Product, record: Record) -> None:
        self.product, self.record = product, record
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def run(self, blows: list[Blow], began: float) -> None:
        """Let them fall; at the end everything that was frozen goes on and the product is up."""
        for blow in blows:
            self._pass_time_until(began + blow.at)
            self._see_that_it_is_up()
            hit = self._fall(blow)
            self.record.kills[blow.kind] += hit
            print(
                f"{blow.at:5.1f} s, came at {time.monotonic() - began:5.1f} s: {blow.kind}{'' if hit else ', nobody there'}"
            )
        while self._later:
            self._pass_time_until(self._later[0][0])
        self._see_that_it_is_up()

    def _pass_time_until(self, moment: float) -> None:
        while self._later and self._later[0][0] <= moment:
            at, _, act = heapq.heappop(self._later)
            _sleep_until(at)
            act()
        _sleep_until(moment)

    def _until_ready(self, what: str) -> None:
        """Wait for every part; meanwhile what is frozen goes on at its time."""
        limit = time.monotonic() + 40
        while not self.product.ready():
            assert time.monotonic() < limit, what
            self._pass_time_until(time.monotonic() + 0.05)

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), act))

    def _see_that_it_is_up(self) -> None:
        """`up` never ends by itself; if it does, that is written down, and it is started again as an init system would."""
        assert self.product.process is not None
        code = self.product.process.poll()
        if code is not None:
            self.record.troubles.append(f"up ended by itself with {code}")
            self.product.start()

    def _fall(self, blow: Blow) -> bool:
        """Do it; False where there was nobody to hit."""
        target, _, how = blow.kind.rpartition(" ")
        match target, how:
            case "up", _:
                return self._hit_up(how, blow)
            case "redis", _:
                return self.wipe_redis(blow.lasts / 4)
            case "postgresql fast" | "postgresql immediate", _:
                return self._restart_postgresql(signal.SIGINT if "fast" in target else signal.SIGQUIT)
            case "agent", _:
                return self._kill_agent_alone(blow)
            case "agent and wrapper", _:
                return self._make_vanish(blow)
            case _:
                return self._hit(self.product.parts()[target], how, blow)

    def _hit(self, pids: list[int], how: str, blow: Blow) -> bool:
        if not pids:
            return False
        descriptor = _descriptor(pids[int(blow.pick * len(pids))])
        if descriptor is None:
            return False
        if how == "STOP":
            self._in(blow.lasts, lambda: _send(descriptor, signal.SIGCONT))
        return _send(descriptor, signal.Signals[f"SIG{how}"])

    def _hit_up(self, how: str, blow: Blow) -> bool:
        process = self.product.process
        assert process is not None
        if how == "STOP":
            return self._hit([process.pid], how, blow)
        process.send_signal(signal.Signals[f"SIG{how}"])
        code = process.wait(15)
        if how == "TERM" and code != 0:
            self.record.troubles.append(f"up left with {code} when it was asked to leave")
        time.sleep(blow.lasts / 8)
        self.product.start()
        self._until_ready("up is not ready again")
        return True

    def wipe_redis(self, pause: float) -> bool:
        """Kill it, and nothing of its data is left; `pause`: seconds until it is there again, if nobody else starts it."""
        if self.product.redis is not None:
            self.product.redis.stop()
            time.sleep(pause)
            self.product.redis.start()
            return True
        pids = self.product.parts()["redis"]
        for pid in pids:
            _kill_and_wait(pid)
        for file in (self.product.data / "redis").glob("appendonlydir"):  # before it is started again
            shutil.rmtree(file)
        return bool(pids)

    def _restart_postgresql(self, how: signal.Signals) -> bool:
        assert self.product.postgresql is not None
        self._until_ready("up is not ready before its database is restarted")
        self.product.postgresql.restart(how)
        return True

    # -- turns ------------------------------------------------------------------------------------
    def _at_work(self) -> list[dict[str, Any]]:
        """The calls that have begun and not ended, whose process is alive."""
        lines = self.product.calls()
        over = {(line["pid"], line["start"]) for line in lines if line["what"] == "end"}
        begun = [line for line in lines if line["what"] == "begin" and (line["pid"], line["start"]) not in over]
        return [line for line in begun if _start_of(line["pid"]) == line["start"]]

    def _frozen_at_work(self, pick: float) -> dict[str, Any] | None:
        """A call that is frozen in the middle of its work, so that how it ends is for the killer to say."""
        at_work = self._at_work()
        if not at_work:
            return None
        call = at_work[int(pick * len(at_work))]
        if not _freeze(call["pid"], call["start"]):
            return None
        if call not in self._at_work():  # it has ended its work meanwhile
            os.kill(call["pid"], signal.SIGCONT)
            return None
        return call

    def _kill_agent_alone(self, blow: Blow) -> bool:
        call = self._frozen_at_work(blow.pick)
        if call is None:
            return False
        self.record.killed_alone[call["execution"]] = time.time()
        os.kill(call["pid"], signal.SIGKILL)
        return True

    def _make_vanish(self, blow: Blow) -> bool:
        """Kill a turn's agent and its wrapper together, before an end is recorded."""
        call = self._frozen_at_work(blow.pick)
        if call is None:
            return False
        wrapper, folder = _wrapper_of(call["pid"])
        if not _freeze(wrapper, _start_of(wrapper)) or (folder / "exit").read_bytes().endswith(b"\n"):
            os.kill(call["pid"], signal.SIGCONT)
            return False
        self.record.vanished.setdefault(call["execution"], []).append(time.time())
        for pid in (wrapper, *self.product.marked().get(call["execution"], [])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True


def _descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _send(descriptor: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    return True


def _kill_and_wait(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: _state(pid) in ("", "Z"), 5, "a killed process lives")


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _state(pid: int) -> str:
    return (_stat(pid) or [""])[0]


def _start_of(pid: int) -> int | None:
    """When a living process started, in ticks after boot."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def _freeze(pid: int, start: int | None) -> bool:
    """Stop a process where it stands; False when it has ended."""
    if start is None or _start_of(pid) != start:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    limit = time.monotonic() + 2
    while _state(pid) not in ("T", "", "Z"):
        assert time.monotonic() < limit, "a process does not stop"
        time.sleep(0.005)
    return _state(pid) == "T"


def _wrapper_of(pid: int) -> tuple[int, Path]:
    """The leader of a turn's session, and the turn's run folder."""
    leader = os.getsid(pid)
    words = Path(f"/proc/{leader}/cmdline").read_bytes().split(b"\0")
    return leader, Path(words[2].decode())


# -- the whole ------------------------------------------------------------------------------------
def attack(product: Product, loops: list[LoopPlan], blows: list[Blow]) -> Record:
    """Carry the plan out, then wait until every loop has ended."""
    record = Record([Follow(plan) for plan in loops])
    began = time.monotonic()
    people = [
        threading.Thread(target=_person, args=(product, follow, began, record.troubles)) for follow in record.follows
    ]
    for person in people:
        person.start()
    try:
        Killer(product, record).run(blows, began)
    finally:
        for person in people:
            person.join(120)
    record.seconds["attack"] = time.monotonic() - began
    began = time.monotonic()
    active = {follow.loop_id for follow in record.follows if follow.loop_id}
    limit = time.monotonic() + CALM_SECONDS
    while active := {loop_id for loop_id in active if _is_active(product, loop_id)}:
        if time.monotonic() > limit:
            record.troubles.append(f"not ended {CALM_SECONDS} s after the last blow: {sorted(active)}")
            break
        time.sleep(0.25)
    record.seconds["calm"] = time.monotonic() - began
    return record


def _is_active(product: Product, loop_id: str) -> bool:
    return product.call("GET", f"/api/loops/{loop_id}")[0]["status"] in ("queued", "running")


def fill_every_slot(product: Product, program: list[str]) -> None:
    """Start as many turns at once as there are slots; they end well only if every slot can still be used."""
    count = product.workers * product.slots
    product.wait_until_ready()
    body = {"name": "everybody", "command": program, "output": "json", "max_parallel_tasks": min(count, 32)}
    product.call("POST", "/api/agents", body)
    orders = json.dumps({"sleep": 0, "say": "so did the others", "barrier": count})
    request = {"message": f"run 1\nprevious \n{orders}", "max_runs": 1}
    for _ in range(count):
        product.call("POST", "/api/agents/everybody/loops", request)


def wait_for_silence(product: Product, record: Record) -> None:
    """Wait until no process of a turn and no dead child is left: the sweep looks every ten seconds, at what is ten seconds old."""
    began = time.monotonic()
    for look, what, seconds in ((product.marked, "processes of turns", 30), (product.zombies, "zombies", 5)):
        limit = time.monotonic() + seconds
        while left := look():
            if time.monotonic() > limit:
                record.troubles.append(f"{what} are left: {left}")
                break
            time.sleep(0.25)
    record.seconds["silence"] = time.monotonic() - began
