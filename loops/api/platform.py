"""The platform dialect: where a wire name of `/api/…/loops` meets a verb of the engine. Decides nothing."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import refusals
from agents.access import Caller
from agents.api import doors, idempotency
from agents.api.inputs import DEFAULT_ROWS, cursor, limit, next_page, one_of, read_query
from agents.api.openapi import operation
from agents.ids import may_be_id
from agents.rest import body_of, caller_of
from loops import engine
from loops.api import status
from loops.api.fields import START
from loops.core.spec import Invalid, MessageSpec, parse
from loops.core.words import LoopStatus
from loops.models import Loop

LIST = {
    "status": one_of(*(word.value for word in LoopStatus)),
    "include": one_of("runs"),
    "limit": limit(),
    "cursor": cursor(),
}


def _spec(body: dict[str, Any]) -> MessageSpec:
    try:
        return parse(body)
    except Invalid as bad:
        raise refusals.invalid(bad.errors, **bad.facts) from bad


class LoopsView(APIView):
    @operation(
        "start_loop",
        "Start a loop; it runs on the server.",
        tag="loops",
        body=START,
        headers={idempotency.HEADER: idempotency.SCHEMA},
        refuses=(403, 404, 409, 429),
        answers={202: status.Started},
    )
    def post(self, request: Request, name: str) -> Response:
        caller, agent = doors.to_use(request, name, "loop.start")
        spec, key = _spec(body_of(request)), idempotency.of(request)
        loop = engine.create_loop(caller, agent, spec, timezone.now(), idempotency_key=key)
        return Response(status.Started(loop).data, status=202)

    @operation(
        "list_loops",
        "An agent's loops, newest first.",
        tag="loops",
        query=LIST,
        answers={200: status.LoopInList(many=True)},
    )
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_use(request, name, "loop.list")
        query = read_query(request, LIST)
        runs = "include" in query
        rows = status.rows(runs=runs).filter(agent=agent)
        if "status" in query:
            rows = rows.filter(status=query["status"])
        if "cursor" in query:
            rows = rows.filter(pk__lt=query["cursor"])
        size = query.get("limit", DEFAULT_ROWS)
        found = list(rows.order_by("-pk")[: size + 1])
        kind = status.LoopAnswer if runs else status.ListedLoop
        page = kind(found[:size], many=True, context={"now": timezone.now()}).data
        return Response(page, headers=next_page(request, found, size, lambda loop: loop.pk))


def _loop(request: Request, loop_id: str, action: str, *, runs: bool = False) -> tuple[Caller, Loop]:
    """The caller and a loop that they may follow."""
    caller = caller_of(request)
    loop = status.rows(runs=runs).filter(pk=loop_id).first() if may_be_id(loop_id) else None
    return caller, doors.admitted(loop, engine.may_follow(caller, loop), caller, action, loop_id, "Loop")


class LoopView(APIView):
    @operation("get_loop", "A loop's status object.", tag="loops", answers={200: status.LoopAnswer})
    def get(self, request: Request, loop_id: str) -> Response:
        _, loop = _loop(request, loop_id, "loop.read", runs=True)
        return Response(status.status_object(loop, timezone.now()))


class RunView(APIView):
    @operation("get_run", "One run with its full response.", tag="loops", answers={200: status.RunDetail})
    def get(self, request: Request, loop_id: str, run_number: int) -> Response:
        _, loop = _loop(request, loop_id, "loop.read")
        run = status.begun_runs().select_related("execution").filter(loop=loop, run_number=run_number).first()
        if run is None:
            raise refusals.unknown("Run")
        return Response(status.RunDetail(run).data)


class StopLoopView(APIView):
    @operation(
        "stop_loop",
        "Ask a loop to end; the run in flight finishes.",
        tag="loops",
        answers={200: status.Stopping},
    )
    def post(self, request: Request, loop_id: str) -> Response:
        caller, loop = _loop(request, loop_id, "loop.stop")
        return Response({"loop_id": loop.pk, "status": engine.request_stop(caller, loop.pk, timezone.now())})
