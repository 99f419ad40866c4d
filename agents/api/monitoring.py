"""Routes of how things stand: the installation with the agents that the caller may use, and one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Min, QuerySet
from django.db.models.functions import Left
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import access, health
from agents.api import answers, doors
from agents.api.inputs import Json
from agents.api.openapi import operation
from agents.models import Agent, Execution
from agents.rest import caller_of

State = Execution.State

STOPPED, DOWN, FAILING, BUSY, HEALTHY = HEALTH = ("stopped", "down", "failing", "busy", "healthy")


@dataclass(frozen=True, slots=True)
class Load:
    """An agent's turns that are not over. `since`: when the one that waits longest was asked for."""

    running: int = 0
    waiting: int = 0
    since: Any = None


def health_of(agent: Agent, *, whole: bool, load: Load, last: str | None) -> str:
    """An agent's health in one word; the worst comes first. `last`: how its last turn ended, None where there was none."""
    if agent.status == Agent.Status.STOPPED:
        return STOPPED
    if not whole:
        return DOWN
    if last == State.FAILED:
        return FAILING
    return BUSY if load.running >= agent.max_parallel_tasks else HEALTHY


def _loads(agents: QuerySet[Agent]) -> dict[int, Load]:
    """What these agents have in hand, by their ids; two queries, each on an index of its own."""
    unfinished = Execution.objects.filter(agent__in=agents.order_by().values("pk")).order_by()
    running = dict(unfinished.filter(state=State.RUNNING).values_list("agent").annotate(Count("pk")))
    rows = unfinished.filter(state=State.QUEUED).values_list("agent").annotate(Count("pk"), Min("created_at"))
    waiting = {agent_id: (count, since) for agent_id, count, since in rows}
    return {
        agent_id: Load(running.get(agent_id, 0), *waiting.get(agent_id, (0, None)))
        for agent_id in running.keys() | waiting.keys()
    }


# -- the installation -----------------------------------------------------------------------------
class AgentLoad(serializers.Serializer[Any]):
    name = serializers.CharField()
    status = answers.words(Agent.Status)
    turns_running = serializers.IntegerField()
    turns_waiting = serializers.IntegerField()


class FleetHealth(answers.Health):
    """The parts of the installation as `/health` has them, and the agents that the caller may use."""

    agents_running = serializers.IntegerField()
    agents_stopped = serializers.IntegerField()
    turns_running = serializers.IntegerField()
    turns_waiting = serializers.IntegerField()
    agents = AgentLoad(many=True)


class FleetView(APIView):
    @operation(
        "get_fleet_health",
        "Whether the parts of the installation answer, and what the caller's agents have in hand.",
        tag="system",
        refuses=(),
        answers={200: FleetHealth},
    )
    def get(self, request: Request) -> Response:
        visible = access.visible_agents(caller_of(request))
        _, parts = health.report()
        loads = _loads(visible)
        return Response(FleetHealth({**parts, **_fleet(list(visible.order_by("name")), loads)}).data)


def _fleet(agents: list[Agent], loads: dict[int, Load]) -> Json:
    """The agents one by one and summed up."""
    lines = [
        {"name": agent.name, "status": agent.status, "turns_running": load.running, "turns_waiting": load.waiting}
        for agent in agents
        for load in [loads.get(agent.pk, Load())]
    ]
    running = sum(agent.status == Agent.Status.RUNNING for agent in agents)
    return {
        "agents_running": running,
        "agents_stopped": len(agents) - running,
        "turns_running": sum(line["turns_running"] for line in lines),
        "turns_waiting": sum(line["turns_waiting"] for line in lines),
        "agents": lines,
    }


# -- one agent ------------------------------------------------------------------------------------
class AgentHealth(serializers.Serializer[Any]):
    agent_name = serializers.CharField()
    health = serializers.ChoiceField(
        choices=HEALTH,
        help_text="`down`: a part of the installation does not answer. `failing`: its last turn failed. `busy`: no slot is free.",
    )
    status = answers.words(Agent.Status)
    turns_running = serializers.IntegerField()
    max_parallel_tasks = serializers.IntegerField()
    turns_waiting = serializers.IntegerField()
    waiting_since = answers.Time(help_text="When the turn that waits longest was asked for.")
    last_turn_at = answers.Time(help_text="When the last turn that is over ended.")
    last_turn_status = answers.WordOrNull(
        choices=[State.SUCCESS.value, State.FAILED.value, State.CANCELLED.value], allow_null=True
    )
    last_error = answers.OrNull(help_text="The beginning of that turn's error.")


class AgentHealthView(APIView):
    @operation(
        "get_agent_health",
        "An agent's health in one word, and what it is told by.",
        tag="agents",
        answers={200: AgentHealth},
    )
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_use(request, name, "agent.read")
        whole, _ = health.report()
        load = _loads(Agent.objects.filter(pk=agent.pk)).get(agent.pk, Load())
        return Response(AgentHealth(_facts(agent, load, _last_turn(agent), whole=whole)).data)


def _last_turn(agent: Agent) -> Json:
    """Of the newest turn that is over: state, end, and its error's beginning. Empty where there was none."""
    over = Execution.objects.filter(agent=agent, finished_at__isnull=False).order_by("-pk")
    last = over.annotate(said=Left("error", answers.PREVIEW)).values("state", "finished_at", "said").first()
    return dict(last or {})


def _facts(agent: Agent, load: Load, last: Json, *, whole: bool) -> Json:
    return {
        "agent_name": agent.name,
        "health": health_of(agent, whole=whole, load=load, last=last.get("state")),
        "status": agent.status,
        "turns_running": load.running,
        "max_parallel_tasks": agent.max_parallel_tasks,
        "turns_waiting": load.waiting,
        "waiting_since": load.since,
        "last_turn_at": last.get("finished_at"),
        "last_turn_status": last.get("state"),
        "last_error": last.get("said"),
    }
