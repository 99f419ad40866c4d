"""What the API says of people, agents, executions, keys and the trail: each class writes the answer and its schema."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agents.models import Agent, Audit, Execution, Key

PREVIEW = 500


@extend_schema_field({"type": "number"})
class Money(serializers.Field[Any, Any, Any, Any]):
    """US dollars as a JSON number; null = not reported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_null": True, **options})

    def to_representation(self, value: Decimal) -> float:
        return float(value)


@extend_schema_field({"type": "object", "additionalProperties": True})
class Usage(serializers.JSONField):
    """Token counts and turns, as the agent reported them."""


class OrNull(serializers.CharField):
    """Text whose empty value is told as null."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_null": True, **options})

    def get_attribute(self, instance: Any) -> Any:
        return super().get_attribute(instance) or None


class Time(serializers.DateTimeField):
    """ISO 8601, UTC, `Z`; null = not yet."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_null": True, **options})


class WordOrNull(serializers.ChoiceField):
    """One of some words, or null where the row has none."""

    def get_attribute(self, instance: Any) -> Any:
        return super().get_attribute(instance) or None


def words(kind: Any, *, allow_null: bool = False, **options: Any) -> serializers.ChoiceField:
    """One of an enumeration's words."""
    choices = [word.value for word in kind]
    if allow_null:
        return WordOrNull(choices=choices, allow_null=True, **options)
    return serializers.ChoiceField(choices=choices, **options)


class AgentAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    display_name = serializers.CharField()
    description = serializers.CharField()
    owner = serializers.CharField(source="owner.username")
    status = words(Agent.Status)
    harness = serializers.CharField()
    command = serializers.ListField(child=serializers.CharField())
    output = words(Agent.Output)
    model = OrNull(help_text="Null: the harness' own.")
    timeout_seconds = serializers.IntegerField()
    max_parallel_tasks = serializers.IntegerField()
    autonomy = serializers.BooleanField()
    keep_background = serializers.BooleanField()
    workspace = serializers.CharField(help_text="The agent's folder on the server's host.")
    created_at = Time(allow_null=False)


class Receipt(serializers.Serializer[Any]):
    execution_id = serializers.CharField(source="pk")
    status = words(Execution.State, source="state")


class ChatAnswer(serializers.Serializer[Any]):
    response = serializers.CharField()
    execution_id = serializers.CharField(source="pk")
    cost = Money()


class Cancelled(serializers.Serializer[Any]):
    execution_id = serializers.CharField()
    status = serializers.ChoiceField(
        choices=["cancelled", "cancelling", "already_done"],
        help_text="`cancelling`: its process is being ended.",
    )


class _ExecutionFacts(serializers.Serializer[Any]):
    execution_id = serializers.CharField(source="pk")
    agent_name = serializers.CharField(source="agent.name")
    status = words(Execution.State, source="state")
    triggered_by = words(Execution.Trigger)
    requested_by = serializers.CharField()
    loop_id = OrNull()
    error = OrNull()
    cost = Money()
    duration_ms = serializers.IntegerField(allow_null=True)
    model = serializers.SerializerMethodField()
    response_truncated = serializers.BooleanField(help_text="The response was longer; this is its end.")
    created_at = Time(allow_null=False)
    started_at = Time()
    completed_at = Time(source="finished_at")

    @extend_schema_field({"type": ["string", "null"], "description": "What ran, else what was asked for."})
    def get_model(self, row: Execution) -> str | None:
        return row.reported_model or row.model or None


class ExecutionRow(_ExecutionFacts):
    """An execution in a list: message and response by their beginnings alone."""

    message_preview = serializers.CharField()
    response_preview = serializers.CharField()


class ExecutionAnswer(_ExecutionFacts):
    message = serializers.CharField()
    response = serializers.CharField()
    usage = Usage(allow_null=True)
    timeout_seconds = serializers.IntegerField(allow_null=True)
    allowed_tools = serializers.ListField(child=serializers.CharField(), allow_null=True)
    cancelled_by = OrNull()


class Token(serializers.Serializer[Any]):
    access_token = serializers.CharField()
    token_type = serializers.ChoiceField(choices=["bearer"])


class Me(serializers.Serializer[Any]):
    username = serializers.CharField()
    name = serializers.CharField()
    email = serializers.CharField()
    role = serializers.ChoiceField(choices=["admin", "user", "client"])
    agent = serializers.CharField(allow_null=True, help_text="The agent that the key is bound to.")


class SignInModes(serializers.Serializer[Any]):
    modes = serializers.ListField(child=serializers.ChoiceField(choices=["password", "key"]))


class Health(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=["ok", "down"])
    database = serializers.ChoiceField(choices=["ok", "down"])
    redis = serializers.ChoiceField(choices=["ok", "down"])
    workers = serializers.IntegerField()


class Users(serializers.Serializer[Any]):
    users = serializers.ListField(child=serializers.CharField())


class Agents(serializers.Serializer[Any]):
    agents = serializers.ListField(child=serializers.CharField())


class KeyAnswer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    agent = serializers.CharField(source="agent.name", default=None, allow_null=True)
    created_at = Time(allow_null=False)
    expires_at = Time()
    last_used_at = Time()


class NewKeyAnswer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    agent = serializers.CharField(source="agent.name", default=None, allow_null=True)
    key = serializers.SerializerMethodField()
    created_at = Time(allow_null=False)

    @extend_schema_field({"type": "string", "description": "The secret; shown this once."})
    def get_key(self, row: Key) -> str:
        return str(self.context["secret"])


class AuditRow(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    timestamp = Time(allow_null=False)
    actor = serializers.CharField()
    through = serializers.CharField()
    action = serializers.CharField()
    target = serializers.CharField()
    verdict = words(Audit.Verdict)
    reason = serializers.CharField()
