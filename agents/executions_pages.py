"""The pages of executions: the list, an agent's own list with its pending reminders, one execution with its live output, and Stop."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.db import transaction
from django.db.models.functions import Left, Length
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from agents import access, audit, execution_list, executions, live_output, reminders
from agents.access import Caller, Verdict
from agents.execution_list import STATES, TRIGGERS, Query
from agents.live_output import Places
from agents.models import Agent, Execution
from agents.pages import head_facts, page

SHOWN = 20_000  # characters of a message or response on the page; all of it is one link away
State = Execution.State


# -- lists ----------------------------------------------------------------------------------------
@page
def executions_list(request: HttpRequest, caller: Caller) -> HttpResponse:
    """What the caller may see of all agents' executions."""
    query, now = Query.of(request.GET.dict()), timezone.now()
    facts = {"nav": "executions", "now": now, "viewer": caller.user, "of_agent": False}
    return _list(request, access.visible_executions(caller), query, facts)


@page
def agent_executions(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """The Executions tab of an agent; above the list what is to be done later."""
    agent, now = access.agent_named(name), timezone.now()
    access.demand(access.use_agent(caller, agent), caller, "execution.read", name, "Agent")
    agent = cast(Agent, agent)
    query = Query.of({**request.GET.dict(), "agent": ""})
    facts = {
        **head_facts(agent, caller, now),
        "crumbs": [(agent.title, reverse("page-agent", args=[agent.name])), ("Executions", "")],
        **{"nav": "agents", "here": "executions", "of_agent": True, "pending": _pending(caller, agent, query)},
    }
    return _list(request, Execution.objects.filter(agent=agent), query, facts)


def _pending(caller: Caller, agent: Agent, query: Query) -> list[Any]:
    """The reminders that are still to fire, for who may see them and where the newest page of everything is shown."""
    if query.before or query.is_filtered or access.remind_agent(caller, agent) is not Verdict.ALLOWED:
        return []
    return reminders.listed(agent, everything=False)


def _list(request: HttpRequest, rows: Any, query: Query, facts: dict[str, Any]) -> HttpResponse:
    found = execution_list.page(rows, query)
    return render(
        request,
        "executions/list.html",
        {
            **facts,
            **{"query": query, "rows": found.rows, "older": found.older, "newest_address": query.address(before="")},
            "older_address": query.address(before=found.older),
            "statuses": [(word, word.capitalize(), word == query.status) for word in STATES],
            "triggers": [(word, label, word == query.triggered_by) for word, label in TRIGGERS.items()],
        },
    )


# -- one execution --------------------------------------------------------------------------------
@page
def execution_page(request: HttpRequest, caller: Caller, execution_id: str) -> HttpResponse:
    """One turn: facts, what was asked, what it prints now, what it answered."""
    execution = _followed(caller, execution_id)
    texts = Execution.objects.annotate(
        asked=Left("message", SHOWN),
        said=Left("response", SHOWN),
        asked_size=Length("message"),
        said_size=Length("response"),
    )
    execution = texts.select_related("agent").defer("message", "response").get(pk=execution.pk)
    now = timezone.now()
    facts = {
        **{"nav": "executions", "now": now, "execution": execution, "agent": execution.agent, "most": SHOWN},
        **{"shown": vars(execution), "run": execution.variables.get("TRINITY_RUN", ""), "over": execution.is_over},
        "trigger": TRIGGERS.get(execution.triggered_by, execution.triggered_by),
        "tools": None if execution.allowed_tools is None else ", ".join(execution.allowed_tools) or "none",
        "limit": min(execution.timeout_seconds or execution.agent.timeout_seconds, execution.agent.timeout_seconds),
        "is_here": live_output.is_here(execution),
        **_output(execution, Places()),
    }
    return render(request, "executions/execution.html", facts)


@page
def execution_output(request: HttpRequest, caller: Caller, execution_id: str) -> HttpResponse:
    """What it has printed since the page looked last (`at`); where its `state` is another one, the order to draw the page anew."""
    execution = _followed(caller, execution_id)
    facts: dict[str, Any] = {"execution": execution, "changed": request.GET.get("state") != execution.state}
    return render(
        request,
        "executions/_output_news.html",
        {**facts, **_output(execution, Places.of(request.GET.get("at", "")))},
    )


def _output(execution: Execution, places: Places) -> dict[str, Any]:
    if execution.state != State.RUNNING or not live_output.is_here(execution):
        return {"output": None, "at": places}
    output = live_output.read(execution, places)
    return {"output": output, "at": output.places}


@page
def execution_text(request: HttpRequest, caller: Caller, execution_id: str, part: str) -> HttpResponse:
    """The whole message or response as text."""
    execution = _followed(caller, execution_id)
    text = execution.message if part == "message" else execution.response
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


@require_POST
@page
def execution_cancel(request: HttpRequest, caller: Caller, execution_id: str) -> HttpResponse:
    """Cut the turn off."""
    execution, now = _followed(caller, execution_id, "execution.cancel"), timezone.now()
    with transaction.atomic():
        status = executions.cancel(execution.pk, caller.name, now) or "already_done"
        audit.allowed(caller.name, caller.through, "execution.cancel", execution.pk, status)
    messages.success(request, _SAID[status])
    return redirect("page-execution", execution_id=execution.pk)


_SAID = {
    "cancelled": "It is taken out of the line: it never began.",
    "cancelling": "It is being ended, with everything it started.",
    "already_done": "It was over already.",
}


def _followed(caller: Caller, execution_id: str, action: str = "execution.read") -> Execution:
    """The execution that the caller may follow. Raises Refused."""
    execution = executions.named(execution_id)
    access.demand(access.follow_execution(caller, execution), caller, action, execution_id, "Execution")
    return cast(Execution, execution)
