"""Routes of single turns: give an agent a task, talk to it, and read, filter and cancel what is on the ledger."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import access, audit, executions, refusals
from agents.access import Caller
from agents.api import answers, doors
from agents.api.inputs import (
    DEFAULT_ROWS,
    Field,
    Json,
    body_schema,
    cursor,
    limit,
    matching,
    next_page,
    one_of,
    read_body,
    read_query,
    text,
    texts,
    whole,
)
from agents.api.openapi import operation
from agents.db import released
from agents.executions import NewTurn
from agents.models import Agent, Execution
from agents.rest import body_of, caller_of

CHAT_WAITS = 55.0  # seconds: clients give a POST 60
_LOOKS = (0.05, 0.5)  # seconds between two looks at a turn that is waited for: the first, and at most

MESSAGE = text(100_000, least=1, required=True)
TASK = {
    "message": MESSAGE,
    "model": text(200),
    "timeout_seconds": whole(10, 7200),
    "allowed_tools": texts("tool names", without=","),
}
CHAT = {"message": MESSAGE}

FILTERS: dict[str, Field] = {
    "status": one_of(*Execution.State.values),
    "triggered_by": one_of(*Execution.Trigger.values),
    "loop_id": matching(r"[A-Za-z0-9_-]{1,40}", "the id of a loop"),
    "search": matching(r"[^\u0000]{1,200}", "text of 1 to 200 characters"),
    "limit": limit(),
    "cursor": cursor(),
}
ALL_FILTERS = {"agent": matching(r"[A-Za-z0-9_-]{1,63}", "the name of an agent"), **FILTERS}


# -- asking for a turn ----------------------------------------------------------------------------
def submit(caller: Caller, agent: Agent, given: Json, trigger: str) -> Execution:
    """Put a turn in the agent's line. Raises Refused where the agent does not run or allows less time."""
    _check_against_agent(agent, given.get("timeout_seconds"))
    turn = NewTurn(
        agent_id=agent.pk,
        triggered_by=Execution.Trigger.AGENT if caller.agent else trigger,
        requested_by=caller.name,
        depth=_depth(caller),
        message=given["message"],
        model=given.get("model", ""),
        timeout_seconds=given.get("timeout_seconds"),
        allowed_tools=given.get("allowed_tools"),
    )
    with transaction.atomic():
        execution = executions.submit(turn, timezone.now())
        audit.allowed(caller.name, caller.through, "execution.start", execution.pk)
    return execution


def _depth(caller: Caller) -> int:
    """How deep a turn lies that was asked for from inside another; refused where a loop would be, so that no chain is endless."""
    depth = caller.execution.depth + 1 if caller.execution else 0
    if depth > settings.TRINITY_MAX_LOOP_DEPTH:
        raise refusals.conflict(
            f"Turns asked for from inside turns may be {settings.TRINITY_MAX_LOOP_DEPTH} deep at most."
        )
    return depth


def _check_against_agent(agent: Agent, timeout_seconds: int | None) -> None:
    if timeout_seconds is not None and timeout_seconds > agent.timeout_seconds:
        raise refusals.invalid(
            {"timeout_seconds": [f"must be at most {agent.timeout_seconds:,}, the agent's own limit"]},
            error="loop_timeout_exceeds_agent_cap",
            agent_cap_seconds=agent.timeout_seconds,
            requested_seconds=timeout_seconds,
        )
    if agent.status != Agent.Status.RUNNING:
        raise refusals.conflict("The agent is not running. Start it first.")


class TaskView(APIView):
    @operation(
        "start_task",
        "One turn of the agent; do not wait for it.",
        tag="executions",
        body=body_schema(TASK),
        refuses=(403, 404, 409),
        answers={202: answers.Receipt},
    )
    def post(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_use(request, name, "execution.start")
        given = read_body(body_of(request), TASK)
        return Response(answers.Receipt(submit(caller, agent, given, Execution.Trigger.MANUAL)).data, status=202)


class ChatView(APIView):
    @operation(
        "chat",
        "One turn of the agent; its response, or a receipt where it takes longer than 55 s.",
        tag="executions",
        body=body_schema(CHAT),
        refuses=(403, 404, 409, 502),
        answers={200: answers.ChatAnswer, 202: answers.Receipt},
    )
    def post(self, request: Request, name: str) -> Response:
        with released():
            caller, agent = doors.to_use(request, name, "execution.start")
            given = read_body(body_of(request), CHAT)
            execution = submit(caller, agent, given, Execution.Trigger.CHAT)
        execution = _wait_until_over(execution, CHAT_WAITS)
        if not execution.is_over:
            return Response(answers.Receipt(execution).data, status=202)
        if execution.state != Execution.State.SUCCESS:
            said = execution.error or "The agent's turn failed."
            raise refusals.Refused(502, said, execution_id=execution.pk, cost=_number(execution))
        return Response(answers.ChatAnswer(execution).data)


def _number(execution: Execution) -> float | None:
    return None if execution.cost is None else float(execution.cost)


def _wait_until_over(execution: Execution, seconds: float) -> Execution:
    """The execution once it has ended, or as it is after so long. Looks at it now and then: a hint may be lost, a row not."""
    pause, most = _LOOKS
    end = time.monotonic() + seconds
    while True:
        with released():
            over = Execution.objects.filter(pk=execution.pk, finished_at__isnull=False).first()
        left = end - time.monotonic()
        if over is not None or left <= 0:
            return over or execution
        time.sleep(min(pause, left))
        pause = min(2 * pause, most)


# -- reading the ledger ---------------------------------------------------------------------------
def _page(request: Request, rows: QuerySet[Execution], query: Json) -> Response:
    """One page of these executions, newest first, without their long texts."""
    exact = {"status": "state", "triggered_by": "triggered_by", "loop_id": "loop_id", "agent": "agent__name"}
    rows = rows.filter(**{column: query[name] for name, column in exact.items() if name in query})
    if "search" in query:
        rows = rows.filter(Q(message__icontains=query["search"]) | Q(pk=query["search"]))
    if "cursor" in query:
        rows = rows.filter(pk__lt=query["cursor"])
    size = query.get("limit", DEFAULT_ROWS)
    found = list(
        rows.select_related("agent")
        .annotate(message_preview=Left("message", answers.PREVIEW), response_preview=Left("response", answers.PREVIEW))
        .defer("message", "response", "late_result", "usage", "variables")
        .order_by("-pk")[: size + 1]
    )
    page = answers.ExecutionRow(found[:size], many=True).data
    return Response(page, headers=next_page(request, found, size, lambda row: row.pk))


class ExecutionsView(APIView):
    @operation(
        "list_executions",
        "What the caller may see of all agents' executions, newest first.",
        tag="executions",
        query=ALL_FILTERS,
        refuses=(),
        answers={200: answers.ExecutionRow(many=True)},
    )
    def get(self, request: Request) -> Response:
        query = read_query(request, ALL_FILTERS)
        return _page(request, access.visible_executions(caller_of(request)), query)


class AgentExecutionsView(APIView):
    @operation(
        "list_agent_executions",
        "An agent's executions, newest first.",
        tag="executions",
        query=FILTERS,
        answers={200: answers.ExecutionRow(many=True)},
    )
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_use(request, name, "execution.read")
        return _page(request, Execution.objects.filter(agent=agent), read_query(request, FILTERS))


def _execution(request: Request, execution_id: str, action: str) -> tuple[Caller, Execution]:
    caller, execution = caller_of(request), executions.named(execution_id)
    verdict = access.follow_execution(caller, execution)
    return caller, doors.admitted(execution, verdict, caller, action, execution_id, "Execution")


class ExecutionView(APIView):
    @operation("get_execution", "One execution.", tag="executions", answers={200: answers.ExecutionAnswer})
    def get(self, request: Request, execution_id: str) -> Response:
        _, execution = _execution(request, execution_id, "execution.read")
        return Response(answers.ExecutionAnswer(execution).data)


class CancelView(APIView):
    @operation(
        "cancel_execution",
        "Cut a turn off. A run of a loop fails by it.",
        tag="executions",
        answers={200: answers.Cancelled, 202: answers.Cancelled},
    )
    def post(self, request: Request, execution_id: str) -> Response:
        caller, execution = _execution(request, execution_id, "execution.cancel")
        with transaction.atomic():
            status = executions.cancel(execution.pk, caller.name, timezone.now()) or "already_done"
            audit.allowed(caller.name, caller.through, "execution.cancel", execution.pk, status)
        said: dict[str, Any] = {"execution_id": execution.pk, "status": status}
        return Response(said, status=202 if status == "cancelling" else 200)
