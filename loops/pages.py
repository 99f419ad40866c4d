"""The pages of an agent's loops: list, start, one loop, one run, stop. Thin: verdicts by access, changes by the engine, HTML by live."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, cast

from django.contrib import messages
from django.db.models.functions import Left, Length
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from agents import access
from agents.access import Caller
from agents.models import Agent, Execution
from agents.pages import back, head_facts, is_fragment, page
from agents.refusals import Refused, unknown
from loops import body, engine, listing, live, prose, words
from loops.core.spec import Invalid
from loops.forms import LoopForm, outlook
from loops.listing import STATUSES, Query
from loops.live import Row, Watch
from loops.models import Loop
from loops.patterns import PATTERNS


# -- the list -------------------------------------------------------------------------------------
@page
def loops_tab(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """An agent's loops, newest first."""
    agent, now = _agent(caller, name, "loop.list"), timezone.now()
    query, opened = Query.of(request.GET.dict()), request.GET.get("open", "")
    found = listing.page(agent, query)
    rows = live.rows_of(agent, found.loops)
    facts = {
        **_head(agent, caller, now),
        "query": query,
        "loops": [live.article(row, caller.name, now, opened=row.loop.pk == opened) for row in rows],
        "any": bool(rows) or Loop.objects.filter(agent=agent).exists(),
        "choices": _choices(query),
        "older": found.older,
        "older_address": query.address(before=found.older),
        "newest_address": query.address(before="") if query.status or query.search else "?",
    }
    return render(request, "loops/tab.html", facts)


def _choices(query: Query) -> list[dict[str, Any]]:
    return [
        {
            "label": label,
            "address": query.address(status=status, before="") if (status or query.search) else "?",
            "chosen": status == query.status,
        }
        for status, label in STATUSES.items()
    ]


@require_POST
@page
def state(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """Fragments for everything a page shows, as its script lists it: the way round a socket that is down. Changes nothing."""
    now, only = timezone.now(), request.GET.get("loop", "")
    agent = _loop(caller, name, only).agent if only else _agent(caller, name, "loop.list")
    watch = Watch(agent, caller.name)
    watch.look(_json(request.POST.get("view", "")))
    if only:
        watch.shown, watch.opened, watch.newest = {only}, watch.opened & {only}, None
    html, _ = live.news(watch, None, now)
    return HttpResponse(html + live.agent_parts(agent, caller, now, of_list=not only))


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# -- one loop, one run ------------------------------------------------------------------------------
@page
def loop_page(request: HttpRequest, caller: Caller, name: str, loop_id: str) -> HttpResponse:
    """One loop, opened, on an address of its own."""
    row, now = _row(_loop(caller, name, loop_id)), timezone.now()
    facts = {
        **_head(row.loop.agent, caller, now, (f"Loop {row.short}", "")),
        "row": row,
        "status": words.status_words(row.facts, caller.name),
        "html": live.article(row, caller.name, now, opened=True),
    }
    return render(request, "loops/loop.html", facts)


@page
def loop_body(request: HttpRequest, caller: Caller, name: str, loop_id: str) -> HttpResponse:
    """What a row shows when it is opened."""
    return HttpResponse(live.loop_body(_row(_loop(caller, name, loop_id)), caller.name, timezone.now()))


@page
def loop_message(request: HttpRequest, caller: Caller, name: str, loop_id: str) -> HttpResponse:
    """The whole message template as text."""
    return _text(_loop(caller, name, loop_id).message)


@page
def run_page(request: HttpRequest, caller: Caller, name: str, loop_id: str, number: int) -> HttpResponse:
    """One run in full."""
    row, now = _row(_loop(caller, name, loop_id)), timezone.now()
    run = _begun_runs(row.loop).filter(run_number=number).first()
    if run is None:
        raise unknown("Run")
    turn = Execution.objects.annotate(
        said=Left("response", prose.RENDERED), size=Length("response"), asked=Left("message", prose.RENDERED)
    )
    execution = turn.defer("response", "message").get(pk=run.execution_id)
    here = reverse("page-loop", args=[name, loop_id])
    numbers = set(_begun_runs(row.loop).values_list("run_number", flat=True))
    facts = {
        **_head(row.loop.agent, caller, now, (f"Loop {row.short}", here), (f"Run {number}", "")),
        **{"row": row, "run": run, "execution": execution, "message": execution.asked},
        "message_is_cut": len(execution.asked) == prose.RENDERED,
        "html": live.article(row, caller.name, now),
        "response": body.Response(number, prose.render(execution.said), execution.said, execution.size)
        if run.completed_at and not run.error
        else None,
        "before": number - 1 if number - 1 in numbers else None,
        "after": number + 1 if number + 1 in numbers else None,
    }
    return render(request, "loops/run.html", facts)


@page
def run_response(request: HttpRequest, caller: Caller, name: str, loop_id: str, number: int) -> HttpResponse:
    """The whole response of a run as text."""
    run = _begun_runs(_loop(caller, name, loop_id)).filter(run_number=number).select_related("execution").first()
    if run is None:
        raise unknown("Run")
    return _text(run.execution.response)


def _begun_runs(loop: Loop):
    return loop.runs.filter(started_at__isnull=False)


def _text(text: str) -> HttpResponse:
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


# -- starting -------------------------------------------------------------------------------------
@page
def loop_new(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """The start form: empty, as a pattern, filled in with an earlier loop's limits, or as it was sent."""
    agent, now = _agent(caller, name, "loop.start"), timezone.now()
    if request.method == "POST" and (pattern := request.GET.get("pattern")):
        return _form_page(request, caller, agent, LoopForm.typed(request.POST).shaped(pattern), now)
    if request.method == "POST":
        return _start(request, caller, agent, now)
    if earlier := request.GET.get("from", ""):
        form = LoopForm.again(_loop(caller, name, earlier))
    else:
        form = LoopForm.new(request.GET.get("pattern", ""))
    return _form_page(request, caller, agent, form, now)


def _start(request: HttpRequest, caller: Caller, agent: Agent, now: datetime) -> HttpResponse:
    form = LoopForm.typed(request.POST)
    try:
        loop = engine.create_loop(caller, agent, form.spec(), now, idempotency_key=_once(form))
    except Invalid as invalid:
        return _form_page(request, caller, agent, form.refused(invalid.errors), now, 422)
    except Refused as refusal:
        status = 422 if refusal.errors else refusal.status
        return _form_page(request, caller, agent, form.refused(refusal.errors, refusal.detail), now, status)
    return _started(request, caller, agent, loop, now)


def _once(form: LoopForm) -> str:
    """One loop for the same form sent twice; another one where it was changed in between."""
    digest = hashlib.sha256(json.dumps(form.body(), sort_keys=True, default=str).encode()).hexdigest()
    return f"page-{form.once}-{digest[:32]}"


def _started(request: HttpRequest, caller: Caller, agent: Agent, loop: Loop, now: datetime) -> HttpResponse:
    """The list with the new row on top; where the script asks, and the list is there, only the row."""
    address = reverse("page-loops", args=[agent.name])
    if not is_fragment(request):
        messages.success(request, f"Started loop {loop.pk}.")
        return redirect(f"{address}?open={loop.pk}#loop-{loop.pk}")
    if "grows" not in request.POST:
        messages.success(request, f"Started loop {loop.pk}.")
        return HttpResponse(headers={"HX-Redirect": f"{address}?open={loop.pk}"})
    row = _row(loop)
    html = live.on_top(row, caller.name, now) + live.agent_parts(agent, caller, now, of_list=True)
    return HttpResponse(
        render_to_string("loops/_started.html", {"loop": loop}) + html + live.spoken([f"Loop {row.short} started."]),
        headers={"HX-Trigger-After-Swap": json.dumps({"loop-started": {"id": loop.pk}})},
    )


def _form_page(
    request: HttpRequest, caller: Caller, agent: Agent, form: LoopForm, now: datetime, status: int = 200
) -> HttpResponse:
    facts = {
        **_head(agent, caller, now, ("Run Loop", "")),
        **{
            "form": form,
            "outlook": outlook(form, agent),
            "patterns": PATTERNS,
            "inline": is_fragment(request) and "whole" not in request.POST,
        },
    }
    template = "loops/_form.html" if is_fragment(request) else "loops/form.html"
    return render(request, template, facts, status=status)


@require_POST
@page
def loop_outlook(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """What will end the loop as the form stands, and the message of its first run."""
    agent = _agent(caller, name, "loop.start")
    return render(
        request, "loops/_outlook.html", {"agent": agent, "outlook": outlook(LoopForm.typed(request.POST), agent)}
    )


# -- stopping -------------------------------------------------------------------------------------
@require_POST
@page
def loop_stop(request: HttpRequest, caller: Caller, name: str, loop_id: str) -> HttpResponse:
    """Ask a loop to end; the answer shows at once what that means for it."""
    now = timezone.now()
    loop = _loop(caller, name, loop_id, "loop.stop")
    engine.request_stop(caller, loop.pk, now)
    row = _row(loop)
    said = f"Loop {row.short}: {words.status_words(row.facts, caller.name).text}."
    if not is_fragment(request):
        messages.success(request, said)
        return back(request)
    watch = Watch(row.loop.agent, caller.name, {loop.pk}, set(request.POST.getlist("opened")))
    html, _ = live.news(watch, None, now)
    return HttpResponse(html + live.spoken([said]))


# -- what the views share ---------------------------------------------------------------------------
def _agent(caller: Caller, name: str, action: str) -> Agent:
    """The agent that the caller may use. Raises Refused."""
    agent = access.agent_named(name)
    access.demand(access.use_agent(caller, agent), caller, action, name, "Agent")
    return cast(Agent, agent)


def _loop(caller: Caller, name: str, loop_id: str, action: str = "loop.read") -> Loop:
    """The loop that the caller may follow, on the agent of the address. Raises Refused."""
    loop = engine.loop_named(loop_id)
    if loop is not None and loop.agent.name != name:
        loop = None
    access.demand(engine.may_follow(caller, loop), caller, action, loop_id, "Loop")
    return cast(Loop, loop)


def _row(loop: Loop) -> Row:
    """The loop as it is now, with its runs."""
    return live.rows_of(loop.agent, listing.named(loop.agent, [loop.pk]))[0]


def _head(agent: Agent, caller: Caller, now: datetime, *crumbs: tuple[str, str]) -> dict[str, Any]:
    """What every page of an agent shows on top."""
    here = [("Loops", reverse("page-loops", args=[agent.name])), *crumbs] if crumbs else [(agent.title, "")]
    trail = [(agent.title, reverse("page-loops", args=[agent.name])), *here] if crumbs else []
    return {**head_facts(agent, caller, now), "crumbs": trail, "nav": "agents", "now": now}
