"""The MCP tools of loops: start, read, stop, list. The same verdicts and verbs as the platform dialect's routes."""

from __future__ import annotations

from django.db.models import Q
from django.utils import timezone

from agents import access, refusals
from agents.access import Caller
from agents.api import doors, idempotency
from agents.api.inputs import DEFAULT_ROWS, MOST_ROWS, Json, object_schema, one_of, or_null, read_body, whole
from agents.ids import may_be_id
from agents.refusals import Refused
from loops import engine
from loops.api import status
from loops.api.fields import START
from loops.api.mcp_threads import in_thread
from loops.api.mcp_tools import Tool, agent_of, any_text, schema_of, told
from loops.core.spec import Invalid, MessageSpec, parse
from loops.core.words import LoopStatus
from loops.models import Loop

AGENT = told(any_text(), "Name of the agent. Left out: the agent that your key is bound to.")
KEY = told(idempotency.FIELD, "A text of your choice: the same one starts the same loop only once, for 24 hours.")
LOOP = {"loop_id": told(any_text(required=True), "As run_agent_loop or list_loops gave it.")}
LIST = {
    "agent_name": told(
        any_text(),
        "Loops of this agent. Left out: of the agent that your key is bound to; with a person's key, every loop that they may see.",
    ),
    "status": told(one_of(*(word.value for word in LoopStatus)), "Only loops with this status."),
    "limit": told(whole(1, MOST_ROWS), f"How many at most, newest first; {DEFAULT_ROWS} where left out."),
}
_HELP = {
    "max_runs": "How many runs at most.",
    "delay_seconds": "Pause between the end of a run and the beginning of the next.",
    "on_failure": "What a failed run does: `abort` ends the loop, `continue` goes on with the next run.",
    "model": "The model to ask the agent for. Null: the agent's own.",
}


# -- run_agent_loop -------------------------------------------------------------------------------
def _start_schema() -> Json:
    """The fields of a start as REST has them, with the agent and the idempotency key beside them."""
    told_fields = {name: {"description": _HELP.get(name, ""), **field} for name, field in START["properties"].items()}
    own = {"agent_name": or_null(AGENT.schema), "idempotency_key": or_null(KEY.schema)}
    return object_schema({**told_fields, **own}, START["required"])


def _start(caller: Caller, arguments: Json) -> Json:
    agent = agent_of(caller, arguments, "loop.start")
    fields = {name: value for name, value in arguments.items() if name not in {"agent_name", "idempotency_key"}}
    spec = _spec(fields)
    key = read_body({"idempotency_key": arguments.get("idempotency_key")}, {"idempotency_key": KEY})
    loop = engine.create_loop(caller, agent, spec, timezone.now(), idempotency_key=key.get("idempotency_key"))
    return dict(status.Started(loop).data)


def _spec(fields: Json) -> MessageSpec:
    try:
        return parse(fields)
    except Invalid as bad:
        raise refusals.invalid(bad.errors, **bad.facts) from bad


# -- get_loop_status, stop_loop -------------------------------------------------------------------
def _followed(caller: Caller, arguments: Json, action: str, *, runs: bool = False) -> Loop:
    """The loop that the call names, where the caller may follow it; one sentence for foreign, unknown and malformed."""
    loop_id = arguments.get("loop_id")
    if not isinstance(loop_id, str):
        raise refusals.invalid({"loop_id": ["must be text" if "loop_id" in arguments else "is required"]})
    loop = status.rows(runs=runs).filter(pk=loop_id).first() if may_be_id(loop_id) else None
    try:
        loop = doors.admitted(loop, engine.may_follow(caller, loop), caller, action, loop_id, "Loop")
    except Refused as refused:
        raise Refused(refused.status, f"Loop '{loop_id}' not found or not accessible") from refused
    read_body(arguments, LOOP)
    return loop


def _read(caller: Caller, arguments: Json) -> Json:
    return status.status_object(_followed(caller, arguments, "loop.read", runs=True), timezone.now())


def _stop(caller: Caller, arguments: Json) -> Json:
    loop = _followed(caller, arguments, "loop.stop")
    return {"loop_id": loop.pk, "status": engine.request_stop(caller, loop.pk, timezone.now())}


# -- list_loops -----------------------------------------------------------------------------------
def visible(caller: Caller) -> Q:
    """The loops that a person may follow: `engine.may_follow` as a condition."""
    if caller.is_client:
        return Q(pk__in=[])
    if caller.is_admin:
        return Q()
    own = Q(agent__in=access.visible_agents(caller)) | Q(agent__owner=caller.user)
    return own | Q(starter=caller.user, starter_agent=None, agent__deleted_at=None)


def _list(caller: Caller, arguments: Json) -> Json:
    if caller.agent is None and arguments.get("agent_name") is None:
        which = visible(caller)
    else:
        which = Q(agent=agent_of(caller, arguments, "loop.list"))
    asked = read_body(arguments, LIST)
    rows = status.rows().filter(which)
    if "status" in asked:
        rows = rows.filter(status=asked["status"])
    found = rows.order_by("-pk")[: asked.get("limit", DEFAULT_ROWS)]
    return {"loops": status.ListedLoop(found, many=True, context={"now": timezone.now()}).data}


TOOLS = (
    Tool(
        "run_agent_loop",
        "Run a loop",
        "Has an agent do the same task again and again on the server, one run strictly after another, until max_runs, the stop "
        "signal, a limit or a failure ends it. Answers at once with a loop_id; the loop goes on after your own turn has ended, "
        "and whatever you would leave running or waiting in your turn does not. {{run}} in the message becomes the number of "
        "the run, {{previous_response}} the end of the last successful answer. Follow it with get_loop_status, end it with "
        "stop_loop. For one single look later use set_reminder.",
        _start_schema(),
        lambda caller, arguments: in_thread(_start, caller, arguments),
    ),
    Tool(
        "get_loop_status",
        "Status of a loop",
        "How a loop stands: status, why it ended, runs so far with their beginnings of responses, the last response whole, "
        "cost, time and the limits it was started with.",
        schema_of(LOOP),
        lambda caller, arguments: in_thread(_read, caller, arguments),
        reads_only=True,
    ),
    Tool(
        "stop_loop",
        "Stop a loop",
        "Asks a loop to end. A run in flight finishes and is kept; between runs it ends at once. Answers `stopping`, or "
        "`already_done` where it was over.",
        schema_of(LOOP),
        lambda caller, arguments: in_thread(_stop, caller, arguments),
        ends_work=True,
        repeatable=True,
    ),
    Tool(
        "list_loops",
        "Loops",
        "Loops with their status and limits, newest first; without their runs, which get_loop_status has.",
        schema_of(LIST),
        lambda caller, arguments: in_thread(_list, caller, arguments),
        reads_only=True,
    ),
)
