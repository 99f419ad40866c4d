"""The pages of who is let in: an agent's Access tab, and a person's own keys. Verdicts by access, changes by grants."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from agents import access, grants, refusals
from agents.access import Caller, Verdict
from agents.models import Agent, Key
from agents.pages import head_facts, managed, page
from agents.refusals import Refused

SUGGESTED = 200  # agents that the form for a permission offers to choose from
PAGE = 50  # keys
COOKIE = "made-key"
COOKIE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Typed:
    """What a form was sent with, to be shown again where it is refused: values and sentences by input."""

    verb: str = ""
    values: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def elsewhere(self) -> dict[str, str]:
        """The sentences that do not stand at their input but above the form for a key."""
        return {name: said for name, said in self.errors.items() if name not in ("user", "agent")}


# -- the Access tab ---------------------------------------------------------------------------------
@page
def access_tab(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """Who may use the agent, whom it may call, and its keys; each form of it is sent here and says in `do` what it wants."""
    if request.method == "POST":
        return _carried_out(request, caller, managed(caller, name, _ACTIONS.get(_verb(request), "agent.change")))
    return _show_access(request, caller, managed(caller, name, "agent.read"), Typed())


def _verb(request: HttpRequest) -> str:
    return request.POST.get("do", "")


def _carried_out(request: HttpRequest, caller: Caller, agent: Agent) -> HttpResponse:
    here = reverse("page-access", args=[agent.name])
    try:
        match _verb(request):
            case "create-key":
                return _made(request, caller, agent, here, "#agent-keys")
            case "revoke-key":
                said = _revoked(request, caller, grants.keys_of_agent(agent))
            case verb if verb in _VERBS:
                said = _VERBS[verb](caller, agent, _value(request, "user" if "share" in verb else "agent"))
            case _:
                raise refusals.invalid({"do": ["is not one of the forms of this page"]})
    except Refused as refused:
        return _show_access(request, caller, agent, _refused(request, refused), _status(refused))
    messages.success(request, said)
    return redirect(here)


def _share(caller: Caller, agent: Agent, username: str) -> str:
    added = grants.share(caller, agent, username)
    return f"{username} may use {agent.title} now." if added else f"{username} may use {agent.title} already."


def _unshare(caller: Caller, agent: Agent, username: str) -> str:
    grants.unshare(caller, agent, username)
    return f"{agent.title} is no longer shared with {username}."


def _permit(caller: Caller, agent: Agent, name: str) -> str:
    added = grants.permit(caller, agent, name)
    return f"{agent.title} may call {name} now." if added else f"{agent.title} may call {name} already."


def _forbid(caller: Caller, agent: Agent, name: str) -> str:
    grants.forbid(caller, agent, name)
    return f"{agent.title} may no longer call {name}."


_VERBS: dict[str, Callable[[Caller, Agent, str], str]] = {
    **{"share": _share, "unshare": _unshare},
    **{"permit": _permit, "forbid": _forbid},
}
_ACTIONS = {
    **{"share": "shares.change", "unshare": "shares.change"},
    **{"permit": "permissions.change", "forbid": "permissions.change"},
    **{"create-key": "key.create", "revoke-key": "key.delete"},
}


def _show_access(request: HttpRequest, caller: Caller, agent: Agent, typed: Typed, status: int = 200) -> HttpResponse:
    now = timezone.now()
    permitted = list(grants.permissions_of(agent))
    offered = access.visible_agents(caller).exclude(pk__in=[agent.pk, *(target.pk for target in permitted)])
    facts = {
        **head_facts(agent, caller, now),
        "crumbs": [(agent.title, reverse("page-agent", args=[agent.name])), ("Access", "")],
        "nav": "agents",
        "shares": list(agent.shares.select_related("user").order_by("user__username")),
        "permitted": permitted,
        "offered": list(offered.order_by("name").values_list("name", flat=True)[:SUGGESTED]),
        **_keys_facts(request, caller, grants.keys_of_agent(agent), typed, now),
    }
    return _with_secret(request, "agents/access.html", facts, status)


# -- a person's own keys ------------------------------------------------------------------------------
@page
def own_keys(request: HttpRequest, caller: Caller) -> HttpResponse:
    """The caller's keys: all that they have made, also those that are bound to an agent."""
    if request.method == "POST":
        access.demand(access.hold_keys(caller), caller, _ACTIONS.get(_verb(request), "key.read"), "", "Key")
        return _own_carried_out(request, caller)
    access.demand(access.hold_keys(caller), caller, "key.read", "", "Key")
    return _show_own(request, caller, Typed())


def _own_carried_out(request: HttpRequest, caller: Caller) -> HttpResponse:
    try:
        match _verb(request):
            case "create-key":
                return _made(request, caller, None, reverse("page-keys"))
            case "revoke-key":
                messages.success(request, _revoked(request, caller, grants.keys_of_person(caller.user)))
                return redirect("page-keys")
            case _:
                raise refusals.invalid({"do": ["is not one of the forms of this page"]})
    except Refused as refused:
        return _show_own(request, caller, _refused(request, refused), _status(refused))


def _show_own(request: HttpRequest, caller: Caller, typed: Typed, status: int = 200) -> HttpResponse:
    now = timezone.now()
    facts = {"now": now, **_keys_facts(request, caller, grants.keys_of_person(caller.user), typed, now)}
    return _with_secret(request, "agents/keys.html", facts, status)


# -- keys, on both pages ------------------------------------------------------------------------------
def _made(request: HttpRequest, caller: Caller, agent: Agent | None, here: str, part: str = "") -> HttpResponse:
    """Make the key, and show its secret on the page that comes next: the browser carries it there, and nobody keeps it."""
    errors: dict[str, list[str]] = {}
    try:
        name = grants.key_name(_value(request, "name"))
    except ValueError as refused:
        errors["name"] = [str(refused)]
    try:
        days = grants.key_days(_value(request, "days"))
    except ValueError as refused:
        errors["days"] = [str(refused)]
    if errors:
        raise refusals.invalid(errors)
    expires_at = None if days is None else timezone.now() + timedelta(days=days)
    once = _value(request, "once")[:32]
    key, secret = grants.create_key(caller, name=name, agent=agent, expires_at=expires_at, once=once)
    answer = redirect(here + part)
    answer.set_signed_cookie(
        COOKIE,
        f"{key.pk}:{secret}",
        salt=_salt(caller, here),
        max_age=COOKIE_SECONDS,
        path=here,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )
    return answer


def _salt(caller: Caller, here: str) -> str:
    """Binds the cookie to the person and the page, so that none is shown that was made elsewhere."""
    return f"{COOKIE}:{caller.user.pk}:{here}"


def _revoked(request: HttpRequest, caller: Caller, among: QuerySet[Key]) -> str:
    """End the key that the form names; the sentence for the page."""
    given = _value(request, "key")
    number = int(given) if given.isascii() and given.isdigit() and len(given) <= 18 else 0
    key = Key.objects.select_related("agent").filter(pk=number).first()
    if key is None or not among.filter(pk=number).exists():
        return _not_here(caller, key, number)
    access.demand(access.end_key(caller, key), caller, "key.delete", str(key.pk), "Key")
    ended = grants.end_key(caller, key, timezone.now())
    return f"The key {key.name} is revoked: it opens nothing any more." if ended else "That key was revoked before."


def _not_here(caller: Caller, key: Key | None, number: int) -> str:
    """A key that is not on this page: one that was revoked before, or nobody's and somebody else's, which read alike."""
    if key is not None and key.revoked_at is not None and access.end_key(caller, key) is Verdict.ALLOWED:
        return "That key was revoked before."
    access.demand(Verdict.UNKNOWN, caller, "key.delete", str(number), "Key")
    return ""


def _keys_facts(
    request: HttpRequest, caller: Caller, rows: QuerySet[Key], typed: Typed, now: datetime
) -> dict[str, Any]:
    before = request.GET.get("before", "")
    if before.isascii() and before.isdigit() and len(before) <= 18:
        rows = rows.filter(pk__lt=int(before))
    else:
        before = ""
    found = list(grants.still_told(rows, now)[: PAGE + 1])
    return {
        "keys": found[:PAGE],
        "older": found[PAGE - 1].pk if len(found) > PAGE else None,
        "before": before,
        "typed": typed,
        "once": secrets.token_hex(16),
        "caller": caller,
    }


def _with_secret(request: HttpRequest, template: str, facts: dict[str, Any], status: int) -> HttpResponse:
    """The page; with the secret of the key that was just made, this once."""
    carried = request.get_signed_cookie(
        COOKIE, default="", salt=_salt(facts["caller"], request.path), max_age=COOKIE_SECONDS
    )
    number, _, secret = (carried or "").partition(":")
    made = next((key for key in facts["keys"] if str(key.pk) == number), None)
    answer = render(request, template, {**facts, "made": made, "secret": secret}, status=status)
    if COOKIE in request.COOKIES:
        answer.delete_cookie(COOKIE, path=request.path, samesite="Strict")
    answer["Cache-Control"] = "no-store"
    return answer


# -- what the forms share -----------------------------------------------------------------------------
def _value(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").strip()


def _refused(request: HttpRequest, refused: Refused) -> Typed:
    """The form as it was sent, with the API's words at its inputs."""
    inputs = {"users": "user", "agents": "agent"}
    errors = {inputs.get(name, name): f"{sentences[0]}." for name, sentences in refused.errors.items()}
    values = {name: _value(request, name) for name in ("user", "agent", "name", "days")}
    return Typed(_verb(request), values, errors or {"": refused.detail})


def _status(refused: Refused) -> int:
    return 422 if refused.errors else refused.status
