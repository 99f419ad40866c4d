"""The MCP tools of agents: who there is, a chat with one of them, and an agent's own reminders."""

from __future__ import annotations

import asyncio
import time

from django.utils import timezone

from agents import access, audit, reminders
from agents.access import Caller
from agents.api import answers, turns
from agents.api.inputs import Json, read_body
from agents.api.reminders import FIELDS, QUERY, ReminderAnswer, parse
from agents.models import Agent, Execution, Reminder
from agents.refusals import Refused
from loops.api.mcp_threads import in_thread
from loops.api.mcp_tools import Tool, agent_of, any_text, schema_of, told

_LOOKS = (0.05, 0.5)  # seconds between two looks at a turn that is waited for: the first, and at most

CHAT = {
    "agent_name": told(any_text(), "Name of the agent. Left out: the agent that your key is bound to."),
    "message": told(turns.MESSAGE, "What to say to it."),
}
REMINDER = {
    **FIELDS,
    "message": told(FIELDS["message"], "What you are to do then; you will know nothing but this."),
    "model": told(FIELDS["model"], "The model to ask for. Null: your own."),
    "timeout_seconds": told(FIELDS["timeout_seconds"], "How long that turn may take. Null: your own limit."),
    "allowed_tools": told(FIELDS["allowed_tools"], "Null: unrestricted. An empty list: no tools at all."),
}
REMINDERS = {"status": told(QUERY["status"], "`pending` where left out; `all` has those that are over too.")}
CANCEL = {"reminder_id": told(any_text(required=True), "As set_reminder or list_reminders gave it.")}

FOR_AGENTS = "Reminders are an agent's own: call this with a key that is bound to an agent."
HELD = "Your autonomy is off: the reminder is held and fires once it is on again."


# -- list_agents ----------------------------------------------------------------------------------
def _agents(caller: Caller, arguments: Json) -> Json:
    read_body(arguments, {})
    found = access.visible_agents(caller).select_related("owner").order_by("name")
    return {"agents": answers.AgentAnswer(found, many=True).data}


# -- chat_with_agent ------------------------------------------------------------------------------
async def _chat(caller: Caller, arguments: Json) -> Json:
    """The agent's response, or a receipt where the turn takes longer than a client waits for an answer."""
    execution = await in_thread(_ask, caller, arguments)
    pause, most = _LOOKS
    end = time.monotonic() + turns.CHAT_WAITS
    while not execution.is_over and (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, most)
        execution = await in_thread(_look, execution.pk)
    if not execution.is_over:
        return dict(answers.Receipt(execution).data)
    if execution.state != Execution.State.SUCCESS:
        raise Refused(502, execution.error or "The agent's turn failed.")
    return dict(answers.ChatAnswer(execution).data)


def _look(execution_id: str) -> Execution:
    return Execution.objects.get(pk=execution_id)


def _ask(caller: Caller, arguments: Json) -> Execution:
    agent = agent_of(caller, arguments, "execution.start")
    return turns.submit(caller, agent, read_body(arguments, CHAT), Execution.Trigger.MCP)


# -- reminders ------------------------------------------------------------------------------------
def _self(caller: Caller, action: str) -> Agent:
    """The agent that calls; people set reminders of their agents on the REST API and the page."""
    if caller.agent is None:
        audit.refused(caller.name, caller.through, action, "", FOR_AGENTS)
        raise Refused(403, FOR_AGENTS)
    return caller.agent


def _set(caller: Caller, arguments: Json) -> Json:
    agent = _self(caller, "reminder.create")
    said = _told(reminders.set_reminder(caller, agent, parse(arguments), timezone.now()))
    return {**said, "warning": HELD} if said["reminder"]["autonomy_hold"] else said


def _told(row: Reminder) -> Json:
    return {"reminder": dict(ReminderAnswer(row).data)}


def _reminders(caller: Caller, arguments: Json) -> Json:
    agent = _self(caller, "reminder.list")
    everything = read_body(arguments, REMINDERS).get("status") == "all"
    return {"reminders": ReminderAnswer(reminders.listed(agent, everything=everything), many=True).data}


def _cancel(caller: Caller, arguments: Json) -> Json:
    agent = _self(caller, "reminder.cancel")
    reminder_id = read_body(arguments, CANCEL)["reminder_id"]
    reminder = reminders.named(agent, reminder_id)
    if reminder is None:
        raise Refused(404, f"Reminder '{reminder_id}' not found or not accessible")
    return _told(reminders.cancel_reminder(caller, reminder, timezone.now()))


TOOLS = (
    Tool(
        "list_agents",
        "Agents",
        "The agents that you may give work to, each with its status and limits. Only a running one takes work.",
        schema_of({}),
        lambda caller, arguments: in_thread(_agents, caller, arguments),
        reads_only=True,
    ),
    Tool(
        "chat_with_agent",
        "Chat with an agent",
        f"One turn of an agent, waited for up to {turns.CHAT_WAITS:.0f} s: its response, or, where it takes longer, the "
        "execution_id under which the turn goes on. For work of many turns use run_agent_loop.",
        schema_of(CHAT),
        _chat,
    ),
    Tool(
        "set_reminder",
        "Set a reminder",
        "One turn of yourself later, from a minute to 30 days ahead, once. It fires on the server after your turn has ended, "
        "where a sleep or a timer of your own would have ended with it. Give exactly one of delay_seconds and fire_at. For "
        "work that repeats use run_agent_loop.",
        schema_of(REMINDER),
        lambda caller, arguments: in_thread(_set, caller, arguments),
    ),
    Tool(
        "list_reminders",
        "Reminders",
        "Your own reminders, soonest first.",
        schema_of(REMINDERS),
        lambda caller, arguments: in_thread(_reminders, caller, arguments),
        reads_only=True,
    ),
    Tool(
        "cancel_reminder",
        "Cancel a reminder",
        "Takes one of your reminders back before it fires.",
        schema_of(CANCEL),
        lambda caller, arguments: in_thread(_cancel, caller, arguments),
        ends_work=True,
        repeatable=True,
    ),
)
