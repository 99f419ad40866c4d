"""The first lines of every route: who asks, what for, and may they? 404 and 403 come before any validation."""

from __future__ import annotations

from typing import Any, TypeVar

from django.http import Http404
from rest_framework.request import Request
from rest_framework.views import APIView

from agents import access, refusals
from agents.access import Caller, Verdict
from agents.models import Agent
from agents.rest import caller_of

Thing = TypeVar("Thing")


def admitted(thing: Thing | None, verdict: Verdict, caller: Caller, action: str, target: str, what: str) -> Thing:
    """The thing, where the verdict allows it. Raises Refused, which is on the trail as `action` on `target`."""
    access.demand(verdict, caller, action, target, what)
    if thing is None:
        raise refusals.unknown(what)
    return thing


def to_use(request: Request, name: str, action: str) -> tuple[Caller, Agent]:
    """The caller and an agent that they may give work to."""
    caller, agent = caller_of(request), access.agent_named(name)
    return caller, admitted(agent, access.use_agent(caller, agent), caller, action, name, "Agent")


def to_manage(request: Request, name: str, action: str) -> tuple[Caller, Agent]:
    """The caller and an agent that they own or administer."""
    caller, agent = caller_of(request), access.agent_named(name)
    return caller, admitted(agent, access.manage_agent(caller, agent), caller, action, name, "Agent")


class NoSuchAddress(APIView):
    """What `/api/` does not have: 404 in the API's own words, never a page and never a redirect."""

    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise Http404
