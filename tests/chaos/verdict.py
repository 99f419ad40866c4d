"""Compares what the product says with the plan, the killer's record and the agents' own witness; every difference is a violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.chaos import oracle
from tests.chaos.attack import Follow, Record
from tests.chaos.product import BAD_LINES

Row = dict[str, Any]
Rows = dict[str, list[Row]]
MOST_ATTEMPTS = 3


def violations(record: Record, rows: Rows, calls: list[Row], log: str, parallel: dict[str, int]) -> list[str]:
    """Every one, in words."""
    return [
        *record.troubles,
        *_quiet_ledger(rows),
        *_loops_are_those_that_were_started(record, rows),
        *(
            said
            for follow in record.follows
            if follow.loop_id
            for said in Loop(follow, record, rows, calls).violations()
        ),
        *_never_more_at_once_than_allowed(record, calls, parallel),
        *(f"the log says: {line.strip()[:300]}" for line in log.splitlines() if BAD_LINES.search(line)),
    ]


def _quiet_ledger(rows: Rows) -> Iterator[str]:
    for turn in rows["executions"]:
        if turn["state"] in ("queued", "running") or turn["owner"] or turn["lease_until"]:
            yield f"{turn['id']} is still held: {turn['state']} by {turn['owner']!r} until {turn['lease_until']}"


def _loops_are_those_that_were_started(record: Record, rows: Rows) -> Iterator[str]:
    known = {follow.loop_id for follow in record.follows}
    if strangers := {loop["id"] for loop in rows["loops"]} - known:
        filled = {turn["loop_id"] for turn in rows["executions"] if turn["response"] == "so did the others"}
        for loop_id in sorted(strangers - filled):
            yield f"{loop_id} was started twice, or could not use its slot"
    if len(known) != len(record.follows):
        yield "two starts gave the same loop"


def _never_more_at_once_than_allowed(record: Record, calls: list[Row], parallel: dict[str, int]) -> Iterator[str]:
    """By the agents' own clocks; a call that was killed has ended when it was killed."""
    ended = {(line["pid"], line["start"]): line["at"] for line in calls if line["what"] == "end"}
    kills = {execution: [at] for execution, at in record.killed_alone.items()}
    for execution, times in record.vanished.items():
        kills.setdefault(execution, []).extend(times)
    steps: dict[str, list[tuple[float, int]]] = {}
    for line in (line for line in calls if line["what"] == "begin"):
        later = [at for at in kills.get(line["execution"], []) if at >= line["at"]]
        until = ended.get((line["pid"], line["start"]), min(later, default=None))
        if until is None:
            yield f"call {line['execution']} of {line['agent']} began and never ended"
            continue
        steps.setdefault(line["agent"], []).extend(((line["at"], 1), (until, -1)))
    for agent, changes in steps.items():
        level = most = 0
        for _, step in sorted(changes):
            level += step
            most = max(most, level)
        allowed = parallel[agent.rpartition("-")[0]]
        if most > allowed:
            yield f"{agent} had {most} turns at once, {allowed} are allowed"


class Loop:
    """One loop, seen from every side."""

    def __init__(self, follow: Follow, record: Record, rows: Rows, calls: list[Row]) -> None:
        self.plan, self.follow, self.record = follow.plan, follow, record
        self.row = next((row for row in rows["loops"] if row["id"] == follow.loop_id), {})
        self.runs = [row for row in rows["runs"] if row["loop_id"] == follow.loop_id]
        self.events = [row for row in rows["events"] if row["loop_id"] == follow.loop_id]
        self.turns = {row["id"]: row for row in rows["executions"] if row["loop_id"] == follow.loop_id}
        self.audit = [row for row in rows["audit"] if row["target"] == follow.loop_id]
        self.begun = [line for line in calls if line["loop"] == follow.loop_id and line["what"] == "begin"]

    def violations(self) -> Iterator[str]:
        if not self.row:
            yield f"{self.plan.name}: {self.follow.loop_id} is not in the database"
            return
        checks = (self._end, self._runs, self._calls, self._money, self._events, self._stop, self._trail)
        for check in checks:
            for said in check():
                yield f"{self.plan.name} ({self.row['id']}): {said}"

    # -- what had to happen -------------------------------------------------------------------------
    def _lost(self, run: Row) -> bool:
        """Has its process vanished so often that the product may give it up?"""
        turn = self.turns[run["execution_id"]]
        return run["execution_id"] in self.record.vanished and turn["attempt"] >= MOST_ATTEMPTS

    def _succeeds(self, run: Row) -> bool:
        if run["execution_id"] in self.record.killed_alone or self.plan.fails(run["run_number"]):
            return False
        return not (self._lost(run) and "was lost" in run["error"])

    def _cost(self, run: Row) -> Decimal | None:
        cost = self.plan.orders.get("cost")
        return Decimal(str(cost)) if cost is not None and self._succeeds(run) else None

    def _places(self, type: str) -> list[int]:
        return [place for place, event in enumerate(self.events) if event["type"] == type]

    def _seen(self) -> list[oracle.Seen]:
        stop = min(self._places("loop_stop_requested"), default=len(self.events))
        ends = [
            place
            for place, event in enumerate(self.events)
            if event["type"] in ("loop_run_completed", "loop_run_failed")
        ]
        return [
            oracle.Seen(
                succeeded=self._succeeds(run),
                answer=self.plan.answer(run["run_number"]),
                cost=self._cost(run),
                ended_at=datetime.fromisoformat(run["completed_at"]),
                stop_pending=stop < place,
            )
            for run, place in zip(self.runs, ends, strict=False)
        ]

    # -- one side each ------------------------------------------------------------------------------
    def _end(self) -> Iterator[str]:
        row = self.row
        if row["completed_at"] is None or any(run["completed_at"] is None for run in self.runs):
            yield f"it has not ended: {row['status']}, waiting for {row['waiting_for']!r}"
            return
        began = row["started_at"] and datetime.fromisoformat(row["started_at"])
        stopped = row["stop_requested_at"] is not None
        ended = datetime.fromisoformat(row["completed_at"])
        due = oracle.expected(self.plan.body, self._seen(), began, ended, stopped)
        got = oracle.End(row["status"], row["stop_reason"], row["runs_completed"], row["failed_runs"])
        if due != got:
            yield f"it ended as {got}, the rules say {due}"
        if row["wake_at"] or row["waiting_for"]:
            yield "it has ended and still waits"

    def _runs(self) -> Iterator[str]:
        numbers = [run["run_number"] for run in self.runs]
        if numbers != list(range(1, self.row["runs_completed"] + 1)):
            yield f"its runs are {numbers}, completed {self.row['runs_completed']}"
        for run in self.runs:
            turn, number = self.turns[run["execution_id"]], run["run_number"]
            due = "completed" if self._succeeds(run) else "failed"
            if run["status"] != due or turn["state"] != {"completed": "success", "failed": "failed"}[due]:
                yield f"run {number} is {run['status']}, its turn {turn['state']}, it should be {due}: {run['error']!r}"
            elif due == "completed" and turn["response"] != self.plan.answer(number):
                yield f"run {number} answered {turn['response']!r}"
            elif run["execution_id"] in self.record.killed_alone and "SIGKILL" not in run["error"]:
                yield f"run {number} was killed and says {run['error']!r}"
        for one, two in zip(self.runs, self.runs[1:], strict=False):
            waited = datetime.fromisoformat(two["started_at"]) - datetime.fromisoformat(one["completed_at"])
            if waited.total_seconds() < self.plan.body.get("delay_seconds", 0):
                yield f"run {two['run_number']} began {waited} after the one before"

    def _calls(self) -> Iterator[str]:
        """Each call once, and once more for each time that process and wrapper vanished together; in the order of the runs."""
        made = Counter(line["execution"] for line in self.begun)
        due = Counter(
            {run["execution_id"]: 1 + len(self.record.vanished.get(run["execution_id"], [])) for run in self.runs}
        )
        for run in self.runs:
            if self._lost(run) and "was lost" in run["error"]:
                due[run["execution_id"]] -= 1
        if made != due:
            yield f"calls per turn are {dict(made)}, they should be {dict(due)}"
        order = [line["run"] for line in self.begun]
        if order != sorted(order):
            yield f"its runs were called in the order {order}"
        previous = ""
        numbers = {run["run_number"]: run for run in self.runs}
        for line in self.begun:
            before = numbers.get(line["run"] - 1)
            if before is not None and self._succeeds(before):
                previous = self.plan.answer(line["run"] - 1)
            if line["said"] != f"run {line['run']}" or line["previous"] != previous:
                yield f"run {line['run']} was told {line['said']!r} and {line['previous']!r} instead of {previous!r}"

    def _money(self) -> Iterator[str]:
        costs = [Decimal(run["cost"]) for run in self.runs if run["cost"] is not None]
        due = [cost for run in self.runs if (cost := self._cost(run)) is not None]
        if costs != due or Decimal(self.row["spend"]) != sum(due):
            yield f"it spent {self.row['spend']}, its runs {costs}, they should {due}"
        if self.row["unknown_cost_runs"] != len(self.runs) - len(due):
            yield f"{self.row['unknown_cost_runs']} runs are said to have an unknown cost"

    def _events(self) -> Iterator[str]:
        versions = [event["version"] for event in self.events]
        if versions != sorted(set(versions)) or (versions and versions[-1] > self.row["version"]):
            yield f"its events have the versions {versions}"
        types = [event["type"] for event in self.events]
        if types[:1] != ["loop_started"] or types[-1:] != ["loop_completed"] or types.count("loop_completed") != 1:
            yield f"its events are {types}"
        told = [
            (event["type"], event["data"]["run_number"])
            for event in self.events
            if event["type"].startswith("loop_run_")
        ]
        due: list[tuple[str, int]] = []
        for run in self.runs:
            end = "loop_run_completed" if run["status"] == "completed" else "loop_run_failed"
            due += [("loop_run_started", run["run_number"]), (end, run["run_number"])]
        if told != due:
            yield f"its events of runs are {told}"

    def _stop(self) -> Iterator[str]:
        asked, began = self._places("loop_stop_requested"), self._places("loop_run_started")
        if len(asked) > 1 or any(place > asked[0] for place in began if asked):
            yield "a run began after it was stopped, or it was stopped twice"
        if self.follow.stop_answer == "stopping" and not asked:
            yield "it was answered `stopping` and nothing of it is kept"
        if self.follow.stop_answer == "already_done" and asked and self.follow.stop_tries == 1:
            yield "it was answered `already_done` while it was active"

    def _trail(self) -> Iterator[str]:
        trail = [(row["action"], row["verdict"]) for row in self.audit]
        if trail.count(("loop.start", "allowed")) != 1 or trail.count(("loop.end", "allowed")) != 1:
            yield f"its trail is {trail}"
        for row in self.audit:
            if row["action"] == "loop.end" and row["reason"] != self.row["stop_reason"]:
                yield f"the trail says that it ended for {row['reason']}"
