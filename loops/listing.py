"""Which loops a page of the list holds: filter, search, and pages by the last id. Reads rows light enough for a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Left

from agents.models import Agent
from loops.core.words import LoopStatus, RunStatus, StopReason
from loops.models import Loop, LoopQuerySet, LoopRun

PAGE = 25
OPENING = 300  # characters of the message that a list reads
STATUSES = {"": "All", "active": "Active", "attention": "Needs a look"}
_ENDED_BADLY = (LoopStatus.FAILED, LoopStatus.COMPLETED_WITH_ERRORS, LoopStatus.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Query:
    """What the list's address asks for: `status` one of STATUSES, `search` an id or words of the message, `before` a loop id."""

    status: str = ""
    search: str = ""
    before: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Query:
        """From the address; an unknown status is no filter."""
        status = fields.get("status", "")
        search = fields.get("q", "").replace("\0", "").strip()[:200]
        return cls(status if status in STATUSES else "", search, fields.get("before", "").replace("\0", "")[:40])

    @property
    def is_whole(self) -> bool:
        """Is it the newest page of everything, where a new loop belongs on top?"""
        return not (self.status or self.search or self.before)

    def address(self, **changes: str) -> str:
        """The query string with these changes, without what is empty."""
        fields = {"status": self.status, "q": self.search, "before": self.before, **changes}
        return "?" + urlencode({name: value for name, value in fields.items() if value})


@dataclass(frozen=True, slots=True)
class Page:
    loops: list[Loop]
    older: str  # the id before which the next page begins; empty at the end


def page(agent: Agent, query: Query) -> Page:
    """The loops of this page, newest first; its cost does not grow with the pages before it."""
    rows = light(Loop.objects.filter(agent=agent).filter(_wanted(query)))
    if query.before:
        rows = rows.filter(pk__lt=query.before)
    found = list(rows.order_by("-pk")[: PAGE + 1])
    return Page(found[:PAGE], found[PAGE - 1].pk if len(found) > PAGE else "")


def newer(agent: Agent, newest: str) -> list[Loop]:
    """Loops made after the loop `newest`, newest first."""
    return list(light(Loop.objects.filter(agent=agent, pk__gt=newest)).order_by("-pk")[:PAGE])


def named(agent: Agent, ids: Iterable[str]) -> list[Loop]:
    """These loops of the agent, newest first; ids of others are left out."""
    return list(light(Loop.objects.filter(agent=agent, pk__in=list(ids))).order_by("-pk"))


def light(loops: LoopQuerySet) -> LoopQuerySet:
    """Rows without the whole message but with its `opening`, and with the `last_error` of a run."""
    failed = LoopRun.objects.filter(loop=OuterRef("pk"), status=RunStatus.FAILED).order_by("-run_number")
    return loops.defer("message").annotate(
        opening=Left("message", OPENING), last_error=Subquery(failed.values("error")[:1])
    )


def opening_of(loop: Loop) -> str:
    """The begin of the message of a light row."""
    return str(vars(loop)["opening"])


def last_error_of(loop: Loop) -> str:
    """The error of a light row's last failed run; empty where none failed."""
    return vars(loop)["last_error"] or ""


def _wanted(query: Query) -> Q:
    wanted = Q()
    if query.status == "active":
        wanted &= Q(status__in=[LoopStatus.QUEUED, LoopStatus.RUNNING])
    if query.status == "attention":
        by_guardrail = Q(status=LoopStatus.STOPPED) & ~Q(stop_reason=StopReason.USER_STOPPED)
        wanted &= Q(status__in=_ENDED_BADLY) | by_guardrail
    if query.search:
        wanted &= Q(pk=query.search) | Q(pk__endswith=query.search) | Q(message__icontains=query.search)
    return wanted
