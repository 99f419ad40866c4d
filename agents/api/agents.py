"""Routes of an agent and its life: list, make, read, change, start, stop, delete."""

from __future__ import annotations

from typing import Any, NoReturn

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import access, audit, life
from agents.access import Caller
from agents.api import answers, doors
from agents.api.inputs import Json, body_schema, object_schema, or_null, read_body, text, whole
from agents.api.openapi import operation
from agents.models import NAME_RULE, Agent, User
from agents.refusals import Refused
from agents.rest import body_of, caller_of

# The same bounds as agents.life.FIELDS; a test holds them together.
FIELDS: dict[str, Json] = {
    "display_name": text(100).schema,
    "description": text(10_000).schema,
    "harness": {"type": "string", "enum": ["command"]},
    "command": {
        "type": "array",
        "minItems": 1,
        "maxItems": 200,
        "items": {"type": "string", "minLength": 1, "pattern": text(1).schema["pattern"]},
        "description": "The agent's program and its arguments; no shell. Only admins set it.",
    },
    "output": {"type": "string", "enum": list(Agent.Output.values)},
    "model": text(200).schema,
    "timeout_seconds": whole(60, 7200).schema,
    "max_parallel_tasks": whole(1, 32).schema,
    "autonomy": {"type": "boolean"},
    "keep_background": {"type": "boolean"},
}
NAME: Json = {"type": "string", "pattern": f"^{NAME_RULE.pattern}$"}
_OPTIONAL = {name: or_null(schema) for name, schema in FIELDS.items()}
CREATE = object_schema({**_OPTIONAL, "name": NAME, "command": FIELDS["command"]}, ["name", "command"])
CHANGE = object_schema(_OPTIONAL, [])
TIMEOUT = {"timeout_seconds": whole(60, 7200, required=True)}

ADMINS_CHANGE = "Only an admin changes an agent's command, since it runs a program on the server."
ADMINS_CREATE = (
    "Only an admin creates agents of the command harness, since a command runs a program on the server; "
    "no other harness is set up here. An admin can make one that you own."
)


def _answer(agent: Agent, status: int = 200) -> Response:
    return Response(answers.AgentAnswer(agent).data, status=status)


class AgentsView(APIView):
    @operation(
        "list_agents",
        "The agents that the caller may use.",
        tag="agents",
        refuses=(),
        answers={200: answers.AgentAnswer(many=True)},
    )
    def get(self, request: Request) -> Response:
        agents = access.visible_agents(caller_of(request)).select_related("owner").order_by("name")
        return Response(answers.AgentAnswer(agents, many=True).data)

    @operation(
        "create_agent",
        "A new agent, running.",
        tag="agents",
        body=CREATE,
        refuses=(403, 409),
        answers={201: answers.AgentAnswer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        body = body_of(request)
        _demand_creator(caller, body)
        agent = life.create(caller.user, life.parse(body, creating=True), caller)
        return _answer(agent, 201)


def _demand_creator(caller: Caller, body: dict[str, Any]) -> None:
    """Platform users make agents; whatever has the `command` harness, which is the default, is for admins."""
    name = str(body.get("name"))
    if not caller.is_person or caller.user.kind != User.Kind.PLATFORM:
        access.demand(access.Verdict.FORBIDDEN, caller, "agent.change", name, "Agent")
    if not caller.is_admin and body.get("harness") in (None, "command"):
        _refuse(caller, name, ADMINS_CREATE)


def _refuse(caller: Caller, target: str, said: str) -> NoReturn:
    audit.refused(caller.name, caller.through, "agent.change", target, said)
    raise Refused(403, said, errors={"command": ["is for admins to set"]})


class AgentView(APIView):
    @operation("get_agent", "One agent.", tag="agents", answers={200: answers.AgentAnswer})
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_use(request, name, "agent.read")
        return _answer(agent)

    @operation(
        "change_agent",
        "Change these fields; a turn that runs keeps what it began with.",
        tag="agents",
        body=CHANGE,
        answers={200: answers.AgentAnswer},
    )
    def patch(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "agent.change")
        body = body_of(request)
        if body.get("command") is not None and not caller.is_admin:
            _refuse(caller, agent.name, ADMINS_CHANGE)
        fields = life.parse(body, creating=False)
        return _answer(life.change(agent, fields, caller) if fields else agent)

    @operation("delete_agent", "End its turns and loops and free its name.", tag="agents", answers={204: None})
    def delete(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "agent.change")
        life.delete(agent, caller, timezone.now())
        return Response(status=204)


class StartView(APIView):
    @operation("start_agent", "Let it take turns again.", tag="agents", answers={200: answers.AgentAnswer})
    def post(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "agent.change")
        return _answer(life.start(agent, caller, timezone.now()))


class StopView(APIView):
    @operation(
        "stop_agent",
        "Let it take no further turn; those in flight finish.",
        tag="agents",
        answers={200: answers.AgentAnswer},
    )
    def post(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "agent.change")
        return _answer(life.stop(agent, caller, timezone.now()))


class TimeoutView(APIView):
    @operation(
        "set_agent_timeout",
        "How long one turn may take; holds from the next one on.",
        tag="agents",
        body=body_schema(TIMEOUT),
        answers={200: answers.AgentAnswer},
    )
    def put(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_manage(request, name, "agent.change")
        fields = read_body(body_of(request), TIMEOUT)
        return _answer(life.change(agent, fields, caller))
