"""Routes of who may do what: shares, call permissions, keys, and the audit trail."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import access, audit, hints, keys, refusals, sql
from agents.access import Caller, Verdict
from agents.api import answers, doors
from agents.api.inputs import (
    DEFAULT_ROWS,
    body_schema,
    limit,
    matching,
    next_page,
    read_body,
    read_query,
    text,
    texts,
)
from agents.api.openapi import operation
from agents.models import Agent, Audit, CallPermission, Key, Share, User
from agents.rest import body_of, caller_of

SHARES = {"users": texts("usernames", size=150, required=True)}
PERMISSIONS = {"agents": texts("agent names", size=63, required=True)}
NEW_KEY = {"name": text(100, least=1, required=True), "agent": text(63, least=1)}
TRAIL = {"limit": limit(), "cursor": matching(r"[0-9]{1,18}", "a cursor from the Link header of an earlier answer")}


# -- shares and call permissions --------------------------------------------------------------------
class SharesView(APIView):
    @operation("list_shares", "Who shares the agent.", tag="access", answers={200: answers.Users})
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_manage(request, name, "agent.read")
        return Response(
            {"users": list(agent.shares.order_by("user__username").values_list("user__username", flat=True))}
        )

    @operation(
        "replace_shares",
        "Share the agent with exactly these platform users.",
        tag="access",
        body=body_schema(SHARES),
        answers={200: answers.Users},
    )
    def put(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "shares.change")
        wanted = _once(read_body(body_of(request), SHARES)["users"])
        people = User.objects.filter(username__in=wanted, kind=User.Kind.PLATFORM)
        ids = dict(people.values_list("username", "pk"))
        _refuse_missing("users", wanted, ids, "is not a platform user")
        with transaction.atomic():
            sql.lock_agent(agent.pk)
            Share.objects.filter(agent=agent).exclude(user__in=ids.values()).delete()
            Share.objects.bulk_create((Share(agent=agent, user_id=id) for id in ids.values()), ignore_conflicts=True)
            _written(caller, agent, "shares.change", wanted)
        return Response({"users": wanted})


class PermissionsView(APIView):
    @operation("list_permissions", "The agents that this agent may call.", tag="access", answers={200: answers.Agents})
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_manage(request, name, "agent.read")
        targets = Agent.objects.living().filter(callable_by__caller=agent).order_by("name")
        return Response({"agents": list(targets.values_list("name", flat=True))})

    @operation(
        "replace_permissions",
        "Let the agent call exactly these agents; nothing follows for the other direction.",
        tag="access",
        body=body_schema(PERMISSIONS),
        answers={200: answers.Agents},
    )
    def put(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "permissions.change")
        wanted = _once(read_body(body_of(request), PERMISSIONS)["agents"])
        ids = dict(access.visible_agents(caller).filter(name__in=wanted).values_list("name", "pk"))
        _refuse_missing("agents", wanted, ids, "is not an agent that you may use")
        with transaction.atomic():
            sql.lock_agent(agent.pk)
            CallPermission.objects.filter(caller=agent).exclude(target__in=ids.values()).delete()
            rows = (CallPermission(caller=agent, target_id=id) for id in ids.values())
            CallPermission.objects.bulk_create(rows, ignore_conflicts=True)
            _written(caller, agent, "permissions.change", wanted)
        return Response({"agents": wanted})


def _once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _refuse_missing(field: str, wanted: list[str], found: dict[str, int], said: str) -> None:
    missing = [f"{name} {said}" for name in wanted if name not in found]
    if missing:
        raise refusals.invalid({field: missing})


def _written(caller: Caller, agent: Agent, action: str, names: list[str]) -> None:
    audit.allowed(caller.name, caller.through, action, agent.name, f"now {', '.join(names) or 'nobody'}")
    hints.say_access_changed()


# -- keys -----------------------------------------------------------------------------------------
def _person(request: Request, action: str, target: str) -> Caller:
    """The caller, who has to be a platform user: agents and clients manage no keys."""
    caller = caller_of(request)
    allowed = caller.is_person and not caller.is_client
    access.demand(Verdict.ALLOWED if allowed else Verdict.FORBIDDEN, caller, action, target, "Key")
    return caller


class KeysView(APIView):
    @operation(
        "list_keys", "The caller's keys.", tag="access", refuses=(403,), answers={200: answers.KeyAnswer(many=True)}
    )
    def get(self, request: Request) -> Response:
        caller = _person(request, "key.read", "")
        own = Key.objects.filter(user=caller.user, revoked_at=None).select_related("agent").order_by("-pk")
        return Response(answers.KeyAnswer(own, many=True).data)

    @operation(
        "create_key",
        "A key of the caller, or of one agent; its secret is in this answer and nowhere else.",
        tag="access",
        body=body_schema(NEW_KEY),
        answers={201: answers.NewKeyAnswer},
    )
    def post(self, request: Request) -> Response:
        caller = _person(request, "key.create", "")
        body = body_of(request)
        agent = _agent_of_key(caller, body.get("agent"))
        given = read_body(body, NEW_KEY)
        with transaction.atomic():
            key, secret = keys.issue(caller.user, name=given["name"], agent=agent)
            audit.allowed(caller.name, caller.through, "key.create", str(key.pk))
        return Response(answers.NewKeyAnswer(key, context={"secret": secret}).data, status=201)


def _agent_of_key(caller: Caller, name: object) -> Agent | None:
    """The agent that a key is asked for, which the caller has to manage; what is no name is left to the validation."""
    if not isinstance(name, str):
        return None
    agent = access.agent_named(name)
    access.demand(access.manage_agent(caller, agent), caller, "key.create", name, "Agent")
    return agent


class KeyView(APIView):
    @operation("delete_key", "End a key at once.", tag="access", answers={204: None})
    def delete(self, request: Request, key_id: int) -> Response:
        caller = _person(request, "key.delete", str(key_id))
        found = Key.objects.filter(pk=key_id, revoked_at=None).first()
        key = doors.admitted(found, _may_end(caller, found), caller, "key.delete", str(key_id), "Key")
        with transaction.atomic():
            if keys.revoke(key, timezone.now()):
                audit.allowed(caller.name, caller.through, "key.delete", str(key.pk))
                hints.say_access_changed()
        return Response(status=204)


def _may_end(caller: Caller, key: Key | None) -> Verdict:
    if key is None:
        return Verdict.UNKNOWN
    return Verdict.ALLOWED if caller.is_admin or key.user_id == caller.user.pk else Verdict.FORBIDDEN


# -- the trail ------------------------------------------------------------------------------------
class AuditView(APIView):
    @operation(
        "list_audit",
        "The audit trail, newest first; admins only.",
        tag="access",
        query=TRAIL,
        refuses=(403,),
        answers={200: answers.AuditRow(many=True)},
    )
    def get(self, request: Request) -> Response:
        caller = caller_of(request)
        access.demand(Verdict.ALLOWED if caller.is_admin else Verdict.FORBIDDEN, caller, "audit.read", "", "Trail")
        query = read_query(request, TRAIL)
        rows = Audit.objects.order_by("-pk")
        if "cursor" in query:
            rows = rows.filter(pk__lt=int(query["cursor"]))
        size = query.get("limit", DEFAULT_ROWS)
        found = list(rows[: size + 1])
        page = answers.AuditRow(found[:size], many=True).data
        return Response(page, headers=next_page(request, found, size, lambda row: str(row.pk)))
