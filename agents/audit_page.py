"""The page of the audit trail, for admins; nobody else learns that it is there."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from agents import access, trail
from agents.access import Caller, Verdict
from agents.pages import page


@page
def audit_page(request: HttpRequest, caller: Caller) -> HttpResponse:
    """The trail, newest first; the filters are in the address."""
    verdict = Verdict.ALLOWED if caller.is_admin else Verdict.UNKNOWN
    access.demand(verdict, caller, "audit.read", "", "Page")
    query = trail.Query.of(request.GET.dict())
    found = trail.page(query)
    links = trail.links(found.rows)
    facts = {
        **{"nav": "audit", "now": timezone.now(), "query": query},
        "rows": [
            {
                "row": row,
                "loop_agent": links.loops.get(row.target, ""),
                "target_agent": links.agent_of_target(row),
                "actor_agent": links.agent_of_actor(row),
            }
            for row in found.rows
        ],
        "selects": [
            ("action", "Action", _choices(query.action, trail.ACTIONS)),
            ("through", "Through", _choices(query.through, trail.THROUGH)),
            ("verdict", "Verdict", _choices(query.verdict, trail.VERDICTS)),
        ],
        "older": found.older,
        "older_address": query.address(before=found.older),
        "newest_address": query.address(before=""),
    }
    return render(request, "agents/audit.html", facts)


def _choices(chosen: str, words: tuple[str, ...]) -> list[tuple[str, bool]]:
    """The words with the chosen one marked; one from the address that is none of them stands there too."""
    known = words if not chosen or chosen in words else (*words, chosen)
    return [(word, word == chosen) for word in known]
