"""What the platform dialect says of a loop and its runs: the status object, its schema, and the rows that it is made of."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import F, Prefetch, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agents.api.answers import Money, OrNull, Time, words
from loops.core.words import LoopStatus, OnFailure, RunStatus, StopReason, WaitingFor
from loops.models import Loop, LoopRun

RUN_WORDS = [RunStatus.RUNNING, RunStatus.COMPLETED, RunStatus.FAILED]


def rows(*, runs: bool = False) -> QuerySet[Loop]:
    """Loops with all that a status object needs, by one query; with `runs` by two, however many loops there are."""
    loops = Loop.objects.select_related("agent").annotate(last_response=F("last_success__response"))
    return loops.prefetch_related(Prefetch("runs", begun_runs(), to_attr="begun")) if runs else loops


def begun_runs() -> QuerySet[LoopRun]:
    """Runs from their beginning on, in order; one that waits is not told of."""
    return LoopRun.objects.exclude(status=RunStatus.WAITING).order_by("run_number")


class RunAnswer(serializers.Serializer[Any]):
    run_number = serializers.IntegerField()
    execution_id = serializers.CharField()
    status = words(RUN_WORDS)
    response_preview = serializers.CharField(help_text="The first 500 characters.")
    cost = Money()
    duration_ms = serializers.IntegerField(allow_null=True)
    error = OrNull()
    started_at = Time()
    completed_at = Time()


class RunDetail(RunAnswer):
    loop_id = serializers.CharField()
    message = serializers.CharField(source="execution.message", help_text="As the agent got it.")
    response = serializers.CharField(source="execution.response")
    response_truncated = serializers.BooleanField(
        source="execution.response_truncated", help_text="The response was longer; this is its end."
    )


class ListedLoop(serializers.Serializer[Any]):
    """A loop as lists tell it; `context["now"]` is the time of the answer."""

    loop_id = serializers.CharField(source="pk")
    kind = words(Loop.Kind)
    agent_name = serializers.CharField(source="agent.name")
    status = words(LoopStatus)
    stop_reason = words(StopReason, allow_null=True)
    waiting_for = words(WaitingFor, allow_null=True)
    error = OrNull()
    message = serializers.CharField()
    max_runs = serializers.IntegerField()
    stop_signal = OrNull()
    delay_seconds = serializers.IntegerField()
    timeout_per_run = serializers.IntegerField(allow_null=True)
    max_duration_seconds = serializers.IntegerField(allow_null=True)
    max_cost_usd = Money()
    no_progress_threshold = serializers.IntegerField()
    on_failure = words(OnFailure)
    max_consecutive_failures = serializers.IntegerField()
    model = OrNull()
    allowed_tools = serializers.ListField(child=serializers.CharField(), allow_null=True)
    runs_completed = serializers.IntegerField(help_text="Finished runs, failed ones included.")
    failed_runs = serializers.IntegerField(help_text="Tolerated failures.")
    total_cost = serializers.SerializerMethodField()
    unknown_cost_runs = serializers.IntegerField()
    last_response = serializers.CharField(allow_null=True, help_text="Of the last successful run, whole.")
    stop_run = serializers.IntegerField(allow_null=True)
    stop_excerpt = OrNull()
    stop_requested_at = Time()
    stopped_by = OrNull()
    started_by = serializers.CharField(help_text="A username, or agent:NAME.")
    created_at = Time(allow_null=False)
    started_at = Time()
    completed_at = Time()
    next_run_at = Time(source="wake_at")
    elapsed_seconds = serializers.SerializerMethodField()
    version = serializers.IntegerField()
    record = serializers.SerializerMethodField()

    @extend_schema_field({"type": ["number", "null"], "description": "Null: no finished run has reported a cost."})
    def get_total_cost(self, loop: Loop) -> float | None:
        return float(loop.spend) if loop.runs_completed > loop.unknown_cost_runs else None

    @extend_schema_field({"type": ["integer", "null"], "minimum": 0})
    def get_elapsed_seconds(self, loop: Loop) -> int | None:
        return loop.elapsed_seconds(self.context["now"])

    @extend_schema_field({"type": "null", "description": "Message loops have none."})
    def get_record(self, loop: Loop) -> None:
        return None


class LoopAnswer(ListedLoop):
    """A loop with its runs."""

    runs = RunAnswer(source="begun", many=True)


class LoopInList(ListedLoop):
    """The schema of a list's item."""

    runs = RunAnswer(source="begun", many=True, required=False, help_text="With `include=runs` only.")


class Started(serializers.Serializer[Any]):
    loop_id = serializers.CharField(source="pk")
    status = words(LoopStatus)
    agent_name = serializers.CharField(source="agent.name")
    max_runs = serializers.IntegerField()
    on_failure = words(OnFailure)


class Stopping(serializers.Serializer[Any]):
    loop_id = serializers.CharField()
    status = serializers.ChoiceField(choices=["stopping", "already_done"])


def status_object(loop: Loop, now: datetime) -> dict[str, Any]:
    """The status object of one loop out of `rows(runs=True)`."""
    return dict(LoopAnswer(loop, context={"now": now}).data)
