"""Which executions a page holds: filters from an address, runs of a loop folded under it, pages by the last id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from urllib.parse import urlencode

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Left

from agents.ids import may_be_id
from agents.models import NAME_RULE, Execution

PAGE = 50
OPENING = 160  # characters of the message that a row shows
MOST_FOLDED = 400  # runs below the loops of one page, the newest first
_SUFFIX = 6  # of an id: as many signs as people call it by
STATES = tuple(Execution.State.values)
TRIGGERS = {
    **{"loop": "Loop run", "manual": "Task", "chat": "Chat", "mcp": "MCP call"},
    **{"agent": "Asked by an agent", "reminder": "Reminder", "judge": "Judge of a loop"},
}


@dataclass(frozen=True, slots=True)
class Query:
    """What the list's address asks for; empty = any. `q`: an id of an execution or loop, or the end of one."""

    agent: str = ""
    status: str = ""
    triggered_by: str = ""
    loop: str = ""
    q: str = ""
    before: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Query:
        """From the address; what could be no such value is no filter, but a search that fits nothing finds nothing."""
        found = {name: fields.get(name, "").replace("\0", "").strip()[:64] for name in cls.__slots__}
        return cls(
            agent=found["agent"] if NAME_RULE.fullmatch(found["agent"]) else "",
            status=found["status"] if found["status"] in STATES else "",
            triggered_by=found["triggered_by"] if found["triggered_by"] in TRIGGERS else "",
            loop=found["loop"] if may_be_id(found["loop"]) else "",
            q=found["q"],
            before=found["before"] if may_be_id(found["before"]) else "",
        )

    @property
    def is_filtered(self) -> bool:
        return any(value for name, value in asdict(self).items() if name != "before")

    @property
    def folds(self) -> bool:
        """Are the runs of a loop one row? Not where single ones are asked for."""
        return not (self.status or self.loop or self.q)

    def address(self, **changes: str) -> str:
        """The query string with these changes, without what is empty."""
        return "?" + urlencode({name: value for name, value in {**asdict(self), **changes}.items() if value})


@dataclass(frozen=True, slots=True)
class Row:
    """An execution as a list shows it; where it stands for the runs of a loop, `count` of them, the newest in `runs`."""

    execution: Execution
    count: int = 0
    runs: tuple[Execution, ...] = ()

    @property
    def trigger(self) -> str:
        """What asked for it, in words."""
        return TRIGGERS.get(self.execution.triggered_by, "")

    @property
    def name(self) -> str:
        """The first line of its message."""
        lines = (line.strip() for line in str(vars(self.execution)["opening"]).splitlines())
        return next(filter(None, lines), "")


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Row]
    older: str  # the id before which the next page begins; empty at the end


def page(rows: QuerySet[Execution], query: Query) -> Page:
    """The rows of this page, newest first; three queries, whose cost does not grow with the pages before it."""
    wanted = rows.filter(_wanted(query))
    if query.folds:
        newer = Execution.objects.filter(
            loop_id=OuterRef("loop_id"), triggered_by=OuterRef("triggered_by"), pk__gt=OuterRef("pk")
        )
        wanted = wanted.filter(Q(loop_id="") | ~Exists(newer))
    if query.before:
        wanted = wanted.filter(pk__lt=query.before)
    found = list(_light(wanted).order_by("-pk")[: PAGE + 1])
    shown = found[:PAGE]
    older = shown[-1].pk if len(found) > PAGE else ""
    if not query.folds:
        return Page([Row(execution) for execution in shown], older)
    return Page(_folded(shown), older)


def _wanted(query: Query) -> Q:
    exact = {"agent__name": query.agent, "state": query.status, "triggered_by": query.triggered_by}
    wanted = Q(**{column: value for column, value in {**exact, "loop_id": query.loop}.items() if value})
    if query.q and not may_be_id(query.q):
        return Q(pk__in=[])
    if query.q:
        named = Q(pk=query.q) | Q(loop_id=query.q)
        if len(query.q) >= _SUFFIX:
            named |= Q(pk__endswith=query.q) | Q(loop_id__endswith=query.q)
        wanted &= named
    return wanted


def _light(rows: QuerySet[Execution]) -> QuerySet[Execution]:
    """Without the long texts, but with the `opening` of the message."""
    heavy = ("message", "response", "error", "late_result", "usage", "allowed_tools")
    return rows.select_related("agent").annotate(opening=Left("message", OPENING)).defer(*heavy)


def _folded(shown: list[Execution]) -> list[Row]:
    """The rows, those of loops with how many runs they stand for and the newest of these."""
    ids = {execution.loop_id for execution in shown if execution.loop_id}
    if not ids:
        return [Row(execution) for execution in shown]
    of_loops = Execution.objects.filter(loop_id__in=ids)
    counted = of_loops.order_by().values_list("loop_id", "triggered_by").annotate(Count("pk"))
    counts = {(loop_id, trigger): count for loop_id, trigger, count in counted}
    runs: dict[tuple[str, str], list[Execution]] = {}
    for run in _light(of_loops).order_by("-pk")[:MOST_FOLDED]:
        runs.setdefault((run.loop_id, run.triggered_by), []).append(run)
    return [
        Row(execution, counts.get(key, 0), tuple(runs.get(key, ()))) if execution.loop_id else Row(execution)
        for execution in shown
        for key in [(execution.loop_id, execution.triggered_by)]
    ]
