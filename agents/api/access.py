"""Routes of who may do what: shares, call permissions, keys, and the audit trail."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import access, grants
from agents.access import Caller, Verdict
from agents.api import answers, doors
from agents.api.inputs import (
    DEFAULT_ROWS,
    Field,
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
from agents.models import Agent, Audit, Key
from agents.rest import body_of, caller_of

SHARES = {"users": texts("usernames", size=150, required=True)}
PERMISSIONS = {"agents": texts("agent names", size=63, required=True)}
NEW_KEY = {
    "name": Field(grants.key_name, text(grants.MOST_NAME, least=1).schema, required=True),
    "agent": text(63, least=1),
}
TRAIL = {"limit": limit(), "cursor": matching(r"[0-9]{1,18}", "a cursor from the Link header of an earlier answer")}


# -- shares and call permissions --------------------------------------------------------------------
class SharesView(APIView):
    @operation("list_shares", "Who shares the agent.", tag="access", answers={200: answers.Users})
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_manage(request, name, "agent.read")
        return Response({"users": grants.shares_of(agent)})

    @operation(
        "replace_shares",
        "Share the agent with exactly these platform users.",
        tag="access",
        body=body_schema(SHARES),
        answers={200: answers.Users},
    )
    def put(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "shares.change")
        wanted = read_body(body_of(request), SHARES)["users"]
        return Response({"users": grants.set_shares(caller, agent, wanted)})


class PermissionsView(APIView):
    @operation("list_permissions", "The agents that this agent may call.", tag="access", answers={200: answers.Agents})
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_manage(request, name, "agent.read")
        return Response({"agents": list(grants.permissions_of(agent).values_list("name", flat=True))})

    @operation(
        "replace_permissions",
        "Let the agent call exactly these agents; nothing follows for the other direction.",
        tag="access",
        body=body_schema(PERMISSIONS),
        answers={200: answers.Agents},
    )
    def put(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "permissions.change")
        wanted = read_body(body_of(request), PERMISSIONS)["agents"]
        return Response({"agents": grants.set_permissions(caller, agent, wanted)})


# -- keys -----------------------------------------------------------------------------------------
def _person(request: Request, action: str, target: str) -> Caller:
    """The caller, who has to be a platform user: agents and clients manage no keys."""
    caller = caller_of(request)
    access.demand(access.hold_keys(caller), caller, action, target, "Key")
    return caller


class KeysView(APIView):
    @operation(
        "list_keys", "The caller's keys.", tag="access", refuses=(403,), answers={200: answers.KeyAnswer(many=True)}
    )
    def get(self, request: Request) -> Response:
        caller = _person(request, "key.read", "")
        return Response(answers.KeyAnswer(grants.keys_of_person(caller.user), many=True).data)

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
        key, secret = grants.create_key(caller, name=given["name"], agent=agent)
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
        caller = caller_of(request)
        found = Key.objects.select_related("agent").filter(pk=key_id, revoked_at=None).first()
        key = doors.admitted(found, access.end_key(caller, found), caller, "key.delete", str(key_id), "Key")
        grants.end_key(caller, key, timezone.now())
        return Response(status=204)


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
