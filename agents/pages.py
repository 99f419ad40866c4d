"""The agents' pages: sign in and out, the list, start and stop; and what every page does at its edge. Decides no access itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import wraps
from typing import Any, cast
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.db.models import Count, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from agents import access, hints, life
from agents.access import Caller, Verdict
from agents.models import Agent, Execution
from agents.refusals import Refused
from agents.signing_in import BoundedSignIn

View = Callable[..., HttpResponse]
THROUGH = "page"
TITLES = {403: "No access", 404: "Not found", 409: "Not now", 429: "Too many at once"}
_ACTIVE = ("queued", "running")  # of a loop; the room above has the words


# -- the edge of every page -----------------------------------------------------------------------
def page(view: View) -> View:
    """A page for a signed-in person. The view gets the Caller; a refusal is shown with its status and its sentence."""

    @wraps(view)
    def shown(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if not request.user.is_authenticated:
            return to_login(request)
        try:
            response = view(request, Caller(user=request.user, through=THROUGH), *args, **kwargs)
        except Refused as refusal:
            response = _refused(request, refusal)
        patch_cache_control(response, private=True, no_cache=True)
        patch_vary_headers(response, ["HX-Request", "Cookie"])
        return response

    return shown


def is_fragment(request: HttpRequest) -> bool:
    """Does the page's script ask, which puts the answer into a part of the page?"""
    return request.headers.get("HX-Request") == "true"


def to_login(request: HttpRequest) -> HttpResponse:
    """To the login page and back. A login page never lands inside another page: the script is told to leave as a whole."""
    if is_fragment(request):
        there = redirect_to_login(_own_path(request, request.headers.get("HX-Current-URL", "")))
        return HttpResponse(status=401, headers={"HX-Redirect": there.url})
    if request.method == "GET":
        return redirect_to_login(request.get_full_path())
    return redirect_to_login(_own_path(request, request.headers.get("Referer", "")))


def _own_path(request: HttpRequest, url: str) -> str:
    """The path of an address of ours, else the start page."""
    if not url_has_allowed_host_and_scheme(url, {request.get_host()}):
        return reverse("page-home")
    parts = urlsplit(url)
    return "/" + parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")


def _refused(request: HttpRequest, refusal: Refused) -> HttpResponse:
    if is_fragment(request):  # the script shows it beside what was pressed; the page, and what is typed in it, stays
        return HttpResponse(refusal.detail, status=refusal.status, content_type="text/plain; charset=utf-8")
    facts = {"title": TITLES.get(refusal.status, "Not done"), "detail": refusal.detail}
    return render(request, "problem.html", facts, status=refusal.status)


# -- signing in and out ---------------------------------------------------------------------------
class LogIn(LoginView):
    template_name = "agents/login.html"
    authentication_form = BoundedSignIn
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """The page again; 429 where too many passwords were wrong."""
        response = super().form_invalid(form)
        if isinstance(form, BoundedSignIn) and form.refused:
            response.status_code = form.refused.status
            response.headers["Retry-After"] = str(form.refused.retry_after)
        return response


class LogOut(LogoutView):
    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        """End the session, and its sockets with it."""
        response = super().post(request, *args, **kwargs)
        hints.say_access_changed()
        return response


# -- the list -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Figures:
    """What an agent is doing now and has spent today. `spend` None = nothing that was reported."""

    loops: int = 0
    waiting: int = 0
    slots: int = 0
    spend: Decimal | None = None
    unknown_costs: int = 0
    last_activity: datetime | None = None

    @property
    def spend_is_unknown(self) -> bool:
        """Has something run today, and none of it said what it cost?"""
        return self.spend is None and self.unknown_costs > 0

    @property
    def spent(self) -> Decimal:
        """The sum of what was reported; zero where nothing ran."""
        return self.spend or Decimal(0)


@page
def agents_list(request: HttpRequest, caller: Caller) -> HttpResponse:
    """Every agent that the caller may use; as many queries for a hundred agents as for one."""
    now = timezone.now()
    agents = list(access.visible_agents(caller).select_related("owner").order_by("name"))
    figures = figures_of([agent.pk for agent in agents], now)
    rows = [(agent, figures[agent.pk]) for agent in agents]
    facts = {"rows": rows, "now": now, "nav": "agents", "active": any(found.loops for _, found in rows)}
    return render(request, "agents/list.html", facts)


def figures_of(agents: list[int], now: datetime) -> dict[int, Figures]:
    """The figures of these agents in three queries."""
    loops = {row["pk"]: row for row in _active_loops(agents)}
    today = {row["agent"]: row for row in _spent_today(agents, now)}
    lately = {row["pk"]: row for row in _turns(agents)}
    return {pk: _figures(loops.get(pk, {}), today.get(pk, {}), lately.get(pk, {})) for pk in agents}


def _figures(loops: dict, today: dict, lately: dict) -> Figures:
    return Figures(
        loops=loops.get("active", 0),
        waiting=loops.get("waiting", 0),
        slots=lately.get("slots", 0),
        spend=today.get("spend"),
        unknown_costs=today.get("unknown", 0),
        last_activity=lately.get("last"),
    )


def _active_loops(agents: list[int]):
    rows = Agent.objects.filter(pk__in=agents, loops__status__in=_ACTIVE).values("pk")
    return rows.annotate(active=Count("loops"), waiting=Count("loops", filter=~Q(loops__waiting_for="")))


def _spent_today(agents: list[int], now: datetime):
    """Of the turns that ended since midnight UTC. Ids are in order of time, so the index leaves the older history out."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    recent = f"exec_{int((midnight - timedelta(days=7)).timestamp() * 1_000_000):013x}"
    ended = Execution.objects.filter(
        agent__in=agents, id__gte=recent, finished_at__gte=midnight, started_at__isnull=False
    )
    return ended.values("agent").annotate(spend=Sum("cost"), unknown=Count("id", filter=Q(cost=None)))


def _turns(agents: list[int]):
    """Slots in use, and when the newest turn last moved: by two indexes, neither of which reads the history."""
    ours = Execution.objects.filter(agent=OuterRef("pk"))
    newest = (
        ours.order_by("-pk").annotate(moved=Coalesce("finished_at", "started_at", "created_at")).values("moved")[:1]
    )
    running = ours.filter(state="running").order_by().values("agent").annotate(many=Count("pk")).values("many")
    rows = Agent.objects.filter(pk__in=agents).annotate(last=Subquery(newest), slots=Coalesce(Subquery(running), 0))
    return rows.values("pk", "last", "slots")


@page
def agent_page(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """The agent's own address; its loops are all there is to see of it for now. Who may not see it does not learn that it is there."""
    agent = access.agent_named(name)
    access.demand(access.use_agent(caller, agent), caller, "agent.read", name, "Agent")
    return redirect("page-loops", name=name)


def head_facts(agent: Agent, caller: Caller, now: datetime) -> dict[str, Any]:
    """What the head of an agent's page shows."""
    manages = access.manage_agent(caller, agent) is Verdict.ALLOWED
    figures = figures_of([agent.pk], now)[agent.pk]
    return {"agent": agent, "viewer": caller.user, "figures": figures, "manages": manages, "now": now}


# -- start and stop -------------------------------------------------------------------------------
@require_POST
@page
def agent_start(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """Let the agent take turns again."""
    agent = managed(caller, name)
    life.start(agent, caller, timezone.now())
    messages.success(request, f"{agent.title} is running. What waited for it goes on.")
    return back(request)


@require_POST
@page
def agent_stop(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """Let the agent take no further turn."""
    agent = managed(caller, name)
    life.stop(agent, caller, timezone.now())
    messages.success(request, f"{agent.title} takes no further run. What is in flight finishes; its loops wait.")
    return back(request)


def managed(caller: Caller, name: str, action: str = "agent.change") -> Agent:
    """The agent of this name, which the caller owns or administers. Raises Refused."""
    agent = access.agent_named(name)
    access.demand(access.manage_agent(caller, agent), caller, action, name, "Agent")
    return cast(Agent, agent)


def back(request: HttpRequest) -> HttpResponse:
    """To the page that the form was on."""
    return redirect(_own_path(request, request.headers.get("Referer", "")))
