"""A loop as HTML: the row, its opened body, and the fragments that a page is kept fresh with. Reads; decides and changes nothing.

A row is rendered once per version of its loop, and then handed to everybody who watches (architecture 3). What depends on the clock
or on who looks is part of the key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from agents.access import Caller
from agents.models import Agent, Execution
from agents.pages import head_facts
from loops import body, charts, listing, words
from loops.core.words import RunStatus, WaitingFor
from loops.last_line import last_line
from loops.models import Loop, LoopRun
from loops.words import LoopFacts

FRESH_SECONDS = 5  # how old the clock of an active loop's row may be; one that is over changes by the minute
STILL_SECONDS = 60
NAME = 120  # characters of the message's first line that name a loop
MOST_SPOKEN = 3  # turning points that are spoken one by one

KEPT_CHARACTERS = 16 << 20  # of rendered fragments in one web process


class Kept:
    """Texts by key, of `most` characters together; what is used again stays."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._items: OrderedDict[Hashable, str] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], str]) -> str:
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
                return self._items[key]
        made = make()
        with self._lock:
            self._size += len(made) - len(self._items.pop(key, ""))
            self._items[key] = made
            while self._size > self._most:
                self._size -= len(self._items.popitem(last=False)[1])
        return made


_html = Kept(KEPT_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Row:
    """A loop with what its row shows of its runs; `running` = the execution of the run in flight."""

    loop: Loop
    facts: LoopFacts
    ticks: tuple[str, ...]
    opening: str
    running: str = ""

    @property
    def short(self) -> str:
        """The end of the id, by which people call a loop."""
        return self.loop.pk[-6:]

    @property
    def name(self) -> str:
        """The first line of the message."""
        line = next((line.strip() for line in self.opening.splitlines() if line.strip()), "")
        return line if len(line) <= NAME else line[:NAME].rstrip() + "…"


# -- reading --------------------------------------------------------------------------------------
def rows_of(agent: Agent, loops: Iterable[Loop]) -> list[Row]:
    """The rows of these loops of one agent (from `listing`), with two more queries however many there are."""
    loops = list(loops)
    runs: dict[str, list[LoopRun]] = {loop.pk: [] for loop in loops}
    columns = ("loop_id", "run_number", "status", "started_at", "execution_id")
    for run in LoopRun.objects.filter(loop__in=runs).only(*columns).order_by("run_number"):
        runs[run.loop_id].append(run)
    line = _line(agent) if any(loop.waiting_for == WaitingFor.CAPACITY for loop in loops) else []
    return [_row(agent, loop, runs[loop.pk], line) for loop in loops]


def _line(agent: Agent) -> list[str]:
    """The turns that wait for a slot of the agent, first come first."""
    waiting = Execution.objects.filter(agent=agent, state=Execution.State.QUEUED).order_by("pk")
    return list(waiting.values_list("pk", flat=True)[:200])


def _row(agent: Agent, loop: Loop, runs: list[LoopRun], line: list[str]) -> Row:
    loop.agent = agent  # known already: saves a query per row
    live = next((run for run in runs if run.status == RunStatus.RUNNING), None)
    waiting = next((run for run in runs if run.status == RunStatus.WAITING), None)
    facts = LoopFacts.of(
        loop,
        live,
        agent_timeout=agent.timeout_seconds,
        failed_numbers=[run.run_number for run in runs if run.status == RunStatus.FAILED],
        last_error=listing.last_error_of(loop),
        place=line.index(waiting.execution_id) + 1 if waiting and waiting.execution_id in line else None,
        slots=agent.max_parallel_tasks,
    )
    ticks = tuple(_tick(loop, run) for run in runs if run.status != RunStatus.WAITING)
    return Row(loop, facts, ticks, listing.opening_of(loop), live.execution_id if live else "")


def _tick(loop: Loop, run: LoopRun) -> str:
    if run.status == RunStatus.FAILED:
        return "bad"
    if run.status == RunStatus.RUNNING:
        return "now"
    return "hit" if run.run_number == loop.stop_run else "ran"


# -- drawing --------------------------------------------------------------------------------------
def article(row: Row, viewer: str, now: datetime, *, opened: bool = False) -> SafeString:
    """The whole `#loop-ID`: its head and, when opened, its body. `viewer` is the username of who looks."""
    loop = row.loop
    known = viewer if viewer in {loop.started_by, loop.stopped_by} else ""
    step = FRESH_SECONDS if loop.is_active else STILL_SECONDS
    key = (loop.pk, loop.version, known, opened, int(now.timestamp()) // step, row.facts.place)
    return mark_safe(_html.get(key, lambda: _draw(row, known, now, opened)))  # noqa: S308 (a template's output)


def _draw(row: Row, viewer: str, now: datetime, opened: bool) -> str:
    facts = {
        "row": row,
        "loop": row.loop,
        "agent": row.loop.agent,
        "status": words.status_words(row.facts, viewer),
        "reason": words.reason_words(row.loop.stop_reason),
        "proof": words.proof(row.facts, now, viewer),
        "counter": words.counter(row.facts).split(" · "),
        "cost": body.cost(row.loop),
        "strip": charts.strip(row.ticks, row.loop.max_runs),
        "opened": opened,
        "body": body.of(row, now) if opened else None,
        "viewer": viewer,
        "now": now,
    }
    return render_to_string("loops/_loop.html", facts)


def loop_body(row: Row, viewer: str, now: datetime) -> str:
    """The opened body alone."""
    facts = {"row": row, "loop": row.loop, "agent": row.loop.agent, "viewer": viewer, "now": now}
    return render_to_string("loops/_body.html", {**facts, "body": body.of(row, now)})


# -- keeping a page fresh -------------------------------------------------------------------------
MOST_WATCHED = 500  # loops of one page


@dataclass(slots=True)
class Watch:
    """What one page shows: the loops that may still change, those that are open, and the newest one where new ones belong on top."""

    agent: Agent
    viewer: str
    shown: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    newest: str | None = None

    def look(self, view: object) -> None:
        """Take over what the page's script says it shows; what cannot be read is as nothing."""
        fields = view if isinstance(view, dict) else {}
        self.opened = _ids(fields.get("open"))
        self.shown = _ids(fields.get("shown")) | self.opened
        newest = fields.get("newest")
        self.newest = newest if isinstance(newest, str) and "\0" not in newest else None


def _ids(value: object) -> set[str]:
    found = value if isinstance(value, list) else []
    return {entry for entry in found[:MOST_WATCHED] if isinstance(entry, str) and "\0" not in entry}


def news(watch: Watch, changed: Collection[str] | None, now: datetime) -> tuple[str, list[Row]]:
    """Fragments for what has changed, None = look at everything, and the rows in them. New loops are watched from then on."""
    wanted = watch.shown if changed is None else watch.shown & set(changed)
    rows = rows_of(watch.agent, listing.named(watch.agent, wanted)) if wanted else []
    parts = [_oob(article(row, watch.viewer, now, opened=row.loop.pk in watch.opened), "morph") for row in rows]
    newest = watch.newest
    if newest is not None and (changed is None or any(loop_id > newest for loop_id in changed)):
        added = rows_of(watch.agent, listing.newer(watch.agent, newest))
        parts = [on_top(row, watch.viewer, now) for row in reversed(added)] + parts
        watch.shown |= {row.loop.pk for row in added}
        watch.newest = max([newest, *(row.loop.pk for row in added)])
        rows += added
    return "".join(parts), rows


def _oob(html: str, swap: str) -> str:
    """The fragment with htmx's order where to put it; kept out of the cache, as the page itself has no use for it."""
    tag, _, rest = html.lstrip().partition(" ")
    return f'{tag} hx-swap-oob="{swap}" {rest}'


def on_top(row: Row, viewer: str, now: datetime) -> str:
    """A row for the top of the list."""
    return f'<li hx-swap-oob="afterbegin:#loops">{article(row, viewer, now)}</li>'


def now_part(agent: Agent, loop_id: str, number: int, execution_id: str) -> str:
    """The line of an opened row that says what the run in flight has printed last."""
    line = last_line(execution_id)
    html = render_to_string(
        "loops/_now.html", {"agent": agent, "loop": {"pk": loop_id}, "line": line, "number": number}
    )
    return _oob(html, "morph")


def spoken(sentences: list[str]) -> str:
    """Turning points for the page's one polite voice; of a burst the first ones and how many more."""
    more = len(sentences) - MOST_SPOKEN
    shown = sentences[:MOST_SPOKEN] + ([f"{more} more changes."] if more > 0 else [])
    return format_html(
        '<div id="announcer" class="only-read" role="status" hx-swap-oob="morph">{}</div>', " ".join(shown)
    )


# -- the head of an agent's page --------------------------------------------------------------------
def agent_parts(agent: Agent, caller: Caller, now: datetime, *, of_list: bool) -> str:
    """The parts of the head that change with the agent's work; the list has one more."""
    facts = head_facts(agent, caller, now)
    names = (*_HEAD_PARTS, "_run_loop") if of_list else _HEAD_PARTS
    return "".join(_oob(render_to_string(f"loops/{name}.html", facts), "morph") for name in names)


_HEAD_PARTS = ("_life", "_life_button", "_agent_facts", "_active")
