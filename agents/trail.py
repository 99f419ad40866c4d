"""Reads the audit trail: its words, filters from an address, pages by the last id, and what its targets lead to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db import transaction
from django.db.models import QuerySet

from agents import audit
from agents.ids import may_be_id
from agents.models import NAME_RULE, Agent, Audit

PAGE = 50
THROUGH = ("rest", "mcp", "page", "command", "socket", "engine")
VERDICTS = tuple(Audit.Verdict.values)
ACTIONS = (
    *("loop.start", "loop.list", "loop.read", "loop.stop", "loop.change", "loop.end"),
    *("execution.start", "execution.read", "execution.cancel", "agent.read", "agent.change", "shares.change"),
    *("permissions.change", "key.create", "key.read", "key.delete", "events.listen", "reminder.create"),
    *("reminder.list", "reminder.cancel", "audit.read", "audit.prune", "sign-in"),
)
_OF_OTHER_IDS = ("key.", "execution.", "reminder.", "audit.")  # whose allowed rows name something that has no page
_BATCH = 1000  # rows that one transaction deletes: nobody waits long for the database


@dataclass(frozen=True, slots=True)
class Query:
    """What the trail's address asks for: exact values, empty = any; `before` the id of a row."""

    actor: str = ""
    action: str = ""
    verdict: str = ""
    through: str = ""
    target: str = ""
    before: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Query:
        """From the address. A value that no row has is kept: it finds nothing, and is seen."""
        found = {name: fields.get(name, "").replace("\0", "").strip()[:160] for name in cls.__slots__}
        if not (found["before"].isascii() and found["before"].isdigit() and len(found["before"]) <= 18):
            found["before"] = ""
        return cls(**found)

    @property
    def filters(self) -> dict[str, str]:
        """The columns that are asked for."""
        return {name: value for name, value in asdict(self).items() if value and name != "before"}

    def address(self, **changes: str) -> str:
        """The query string with these changes, without what is empty."""
        return "?" + urlencode({name: value for name, value in {**asdict(self), **changes}.items() if value})


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Audit]
    older: str  # the id before which the next page begins; empty at the end


def page(query: Query) -> Page:
    """The rows of this page, newest first; its cost does not grow with the pages before it."""
    found = list(_before(query.before).filter(**query.filters)[: PAGE + 1])
    return Page(found[:PAGE], str(found[PAGE - 1].pk) if len(found) > PAGE else "")


def _before(row_id: str) -> QuerySet[Audit]:
    rows = Audit.objects.order_by("-pk")
    return rows.filter(pk__lt=int(row_id)) if row_id else rows


# -- what a row leads to ----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Links:
    """What the rows of a page name and is still there: loops by id with the agent that they are of, and agents by name."""

    loops: dict[str, str]
    agents: frozenset[str]

    def agent_of_target(self, row: Audit) -> str:
        """The agent that the row's target is; empty where it is something else."""
        is_other = row.action.startswith(_OF_OTHER_IDS) and row.target.isdigit()
        return row.target if row.target in self.agents and not is_other else ""

    def agent_of_actor(self, row: Audit) -> str:
        """The agent that did it; empty for a person."""
        name = row.actor.removeprefix("agent:")
        return name if name != row.actor and name in self.agents else ""


def links(rows: Iterable[Audit]) -> Links:
    """What these rows lead to, in two queries."""
    rows = list(rows)
    ids = {row.target for row in rows if row.target.startswith("loop_") and may_be_id(row.target)}
    names = {row.target for row in rows} | {row.actor.removeprefix("agent:") for row in rows}
    agents = Agent.objects.living().filter(name__in=[name for name in names if NAME_RULE.fullmatch(name)])
    loops = Agent.objects.filter(loops__in=ids).values_list("loops__pk", "name")
    return Links(dict(loops), frozenset(agents.values_list("name", flat=True)))


# -- retention --------------------------------------------------------------------------------------
def prune(actor: str, through: str, before: datetime) -> int:
    """Delete the rows older than `before`, and put that on the trail; the number of rows."""
    old = Audit.objects.filter(timestamp__lt=before)
    with transaction.atomic():  # said with the first of them, so that a prune that is cut off is on the trail too
        audit.allowed(actor, through, "audit.prune", "audit", f"{old.count()} rows before {before:%Y-%m-%d %H:%M} UTC")
        deleted = _delete_some(old)
    pruned = deleted
    while deleted:
        deleted = _delete_some(old)
        pruned += deleted
    return pruned


def _delete_some(rows: QuerySet[Audit]) -> int:
    return Audit.objects.filter(pk__in=rows.order_by("timestamp").values("pk")[:_BATCH]).delete()[0]
