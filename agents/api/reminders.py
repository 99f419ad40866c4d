"""Routes of an agent's reminders: set, list, cancel. For the agent itself, its owner and admins."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import access, refusals, reminders
from agents.access import Caller
from agents.api import doors, idempotency
from agents.api.answers import OrNull, Time, words
from agents.api.inputs import Field, Json, body_schema, one_of, read_body, read_query
from agents.api.openapi import operation
from agents.api.turns import TASK
from agents.models import Agent, Reminder
from agents.reminders import MAX_DELAY_SECONDS, MIN_DELAY_SECONDS, NewReminder
from agents.rest import body_of, caller_of


def _seconds(value: Any) -> int:
    """The bounds are `agents.reminders`' to check, which has words of its own for them."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number from {MIN_DELAY_SECONDS} to {MAX_DELAY_SECONDS:,}")
    return value


def _moment(value: Any) -> datetime:
    said = "must be an ISO 8601 time with its offset, like 2026-01-31T09:30:00Z"
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as bad:
        raise ValueError(said) from bad
    if moment.utcoffset() is None:
        raise ValueError(said)
    return moment


FIELDS: dict[str, Field] = {
    **TASK,
    "delay_seconds": Field(
        _seconds,
        {
            "type": "integer",
            "minimum": MIN_DELAY_SECONDS,
            "maximum": MAX_DELAY_SECONDS,
            "description": "Seconds from now. Give this or fire_at.",
        },
    ),
    "fire_at": Field(
        _moment,
        {
            "type": "string",
            "format": "date-time",
            "description": "When, with its offset; a minute to 30 days ahead. Give this or delay_seconds.",
        },
    ),
}
QUERY = {"status": one_of("pending", "all")}


class ReminderAnswer(serializers.Serializer[Any]):
    id = serializers.CharField(source="pk")
    agent_name = serializers.CharField(source="agent.name")
    status = words(Reminder.Status)
    message = serializers.CharField()
    fire_at = Time(allow_null=False)
    autonomy_hold = serializers.SerializerMethodField()
    model = OrNull()
    timeout_seconds = serializers.IntegerField(allow_null=True)
    allowed_tools = serializers.ListField(child=serializers.CharField(), allow_null=True)
    set_by = serializers.CharField(help_text="A username, or agent:NAME.")
    execution_id = serializers.CharField(allow_null=True, help_text="The turn that it has become.")
    created_at = Time(allow_null=False)
    fired_at = Time()
    cancelled_at = Time()
    cancelled_by = OrNull(help_text="Null on a cancelled one: its agent was deleted.")

    @extend_schema_field({"type": "boolean", "description": "Held until the agent's autonomy is on again."})
    def get_autonomy_hold(self, row: Reminder) -> bool:
        return row.status == Reminder.Status.PENDING and not row.agent.autonomy


def parse(body: Json) -> NewReminder:
    """The reminder that these fields ask for. Raises Refused naming each bad, missing or unknown one."""
    return NewReminder(**read_body(body, FIELDS))


def _agent(request: Request, name: str, action: str) -> tuple[Caller, Agent]:
    """The caller and an agent whose reminders are theirs to see and change."""
    caller, agent = caller_of(request), access.agent_named(name)
    return caller, doors.admitted(agent, access.remind_agent(caller, agent), caller, action, name, "Agent")


class RemindersView(APIView):
    @operation(
        "set_reminder",
        "One turn of the agent, once, later.",
        tag="reminders",
        body=body_schema(FIELDS),
        headers={idempotency.HEADER: idempotency.SCHEMA},
        refuses=(403, 404, 409, 429),
        answers={201: ReminderAnswer},
    )
    def post(self, request: Request, name: str) -> Response:
        caller, agent = _agent(request, name, "reminder.create")
        new, key = parse(body_of(request)), idempotency.of(request)
        row = reminders.set_reminder(caller, agent, new, timezone.now(), idempotency_key=key)
        return Response(ReminderAnswer(row).data, status=201)

    @operation(
        "list_reminders",
        "The agent's pending reminders, soonest first; or all, with the latest that are over.",
        tag="reminders",
        query=QUERY,
        answers={200: ReminderAnswer(many=True)},
    )
    def get(self, request: Request, name: str) -> Response:
        _, agent = _agent(request, name, "reminder.list")
        everything = read_query(request, QUERY).get("status") == "all"
        return Response(ReminderAnswer(reminders.listed(agent, everything=everything), many=True).data)


class CancelReminderView(APIView):
    @operation(
        "cancel_reminder",
        "Take a reminder back before it fires.",
        tag="reminders",
        refuses=(403, 404, 409),
        answers={200: ReminderAnswer},
    )
    def post(self, request: Request, name: str, reminder_id: str) -> Response:
        caller, agent = _agent(request, name, "reminder.cancel")
        reminder = reminders.named(agent, reminder_id)
        if reminder is None:
            raise refusals.unknown("Reminder")
        return Response(ReminderAnswer(reminders.cancel_reminder(caller, reminder, timezone.now())).data)
