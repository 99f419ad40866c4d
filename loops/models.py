"""Rows of a loop, its runs and its events. Only `loops.engine` writes them."""

from __future__ import annotations

import functools
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agents.ids import new_id
from agents.models import Agent, Execution, User
from loops.core.words import ACTIVE, LoopStatus, OnFailure, RunStatus, StopReason, WaitingFor


def _choices(words: type[StrEnum]) -> list[tuple[str, str]]:
    return [(word.value, word.value) for word in words]


class LoopQuerySet(models.QuerySet["Loop"]):
    def active(self) -> LoopQuerySet:
        return self.filter(status__in=ACTIVE)


class Loop(models.Model):
    """One task, run again and again on one agent. The counters are what the core decides on; they equal the sums of the runs."""

    class Kind(models.TextChoices):
        MESSAGE = "message"
        GOAL = "goal"

    id = models.CharField(primary_key=True, max_length=40, default=functools.partial(new_id, "loop"), editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="loops")
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.MESSAGE)
    status = models.CharField(max_length=25, choices=_choices(LoopStatus), default=LoopStatus.QUEUED)
    stop_reason = models.CharField(max_length=30, choices=_choices(StopReason), blank=True)
    waiting_for = models.CharField(max_length=15, choices=_choices(WaitingFor), blank=True)
    version = models.PositiveIntegerField(default=1)

    # Who
    starter = models.ForeignKey(
        User,
        on_delete=models.SET_NULL,
        null=True,
        related_name="loops",
        help_text="The person, or the owner of the agent that started it.",
    )
    starter_agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="started_loops")
    started_by = models.CharField(max_length=160, help_text="A username, or agent:NAME.")
    depth = models.PositiveIntegerField(default=0)

    # The limits, as stored
    message = models.TextField()
    max_runs = models.PositiveIntegerField()
    stop_signal = models.CharField(max_length=200, blank=True)
    delay_seconds = models.PositiveIntegerField(default=0)
    timeout_per_run = models.PositiveIntegerField(null=True)
    max_duration_seconds = models.PositiveIntegerField(null=True)
    max_cost_usd = models.DecimalField(max_digits=18, decimal_places=6, null=True)
    no_progress_threshold = models.PositiveIntegerField(default=3)
    on_failure = models.CharField(max_length=10, choices=_choices(OnFailure), default=OnFailure.ABORT)
    max_consecutive_failures = models.PositiveIntegerField(default=3)
    model = models.CharField(max_length=200, blank=True)
    allowed_tools = models.JSONField(null=True)

    # What happened so far
    runs_completed = models.PositiveIntegerField(default=0)
    failed_runs = models.PositiveIntegerField(default=0)
    failure_streak = models.PositiveIntegerField(default=0)
    same_replies = models.PositiveIntegerField(default=0)
    fingerprint = models.CharField(max_length=64, blank=True)
    spend = models.DecimalField(max_digits=18, decimal_places=6, default=Decimal(0))
    unknown_cost_runs = models.PositiveIntegerField(default=0)
    carry = models.TextField(
        blank=True, help_text="The end of the last successful response, for {{previous_response}}."
    )
    last_success = models.ForeignKey(Execution, on_delete=models.SET_NULL, null=True, related_name="+")
    error = models.TextField(blank=True)
    stop_excerpt = models.TextField(blank=True)
    stop_run = models.PositiveIntegerField(null=True)
    stop_requested_at = models.DateTimeField(null=True)
    stopped_by = models.CharField(max_length=160, blank=True)

    # The clock
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    wake_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)

    objects = LoopQuerySet.as_manager()

    # Beside the row where loops.sql.loop_of_turn has read it
    run_id: int
    run_number: int
    run_status: str

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=ACTIVE, completed_at=None)
                | (~Q(status__in=ACTIVE) & Q(completed_at__isnull=False)),
                name="loop_over_means_completed_at",
            ),
            models.CheckConstraint(condition=Q(max_runs__range=(1, 100)), name="loop_max_runs_1_to_100"),
            models.CheckConstraint(condition=Q(runs_completed__lte=models.F("max_runs")), name="loop_runs_within_max"),
        ]
        indexes = [
            models.Index(fields=["agent", "-id"], name="loop_history"),
            models.Index(fields=["agent", "status", "-id"], name="loop_by_status"),
            models.Index(fields=["starter", "created_at"], name="loop_start_rate"),
            models.Index(fields=["agent"], condition=Q(status__in=ACTIVE), name="loop_active_of_agent"),
            models.Index(fields=["starter"], condition=Q(status__in=ACTIVE), name="loop_active_of_starter"),
            models.Index(fields=["wake_at"], condition=Q(wake_at__isnull=False), name="loop_due"),
            models.Index(
                fields=["deadline_at"], condition=Q(status__in=ACTIVE, deadline_at__isnull=False), name="loop_deadlines"
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    def elapsed_seconds(self, now: datetime) -> int | None:
        """Whole seconds since the first run began, to the end or to `now`; None before."""
        if self.started_at is None:
            return None
        return max(0, int(((self.completed_at or now) - self.started_at).total_seconds()))


class LoopRun(models.Model):
    """One iteration. `waiting` until its turn is claimed; a run that never began leaves no row."""

    loop = models.ForeignKey(Loop, on_delete=models.CASCADE, related_name="runs")
    run_number = models.PositiveIntegerField()
    execution = models.OneToOneField(Execution, on_delete=models.PROTECT, related_name="loop_run")
    status = models.CharField(max_length=10, choices=_choices(RunStatus), default=RunStatus.WAITING)
    response_preview = models.CharField(max_length=500, blank=True)
    cost = models.DecimalField(max_digits=18, decimal_places=6, null=True)
    duration_ms = models.PositiveBigIntegerField(null=True)
    error = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["loop", "run_number"], name="run_number_once"),
            models.UniqueConstraint(
                fields=["loop"], condition=Q(status__in=["waiting", "running"]), name="one_live_run_per_loop"
            ),
            models.CheckConstraint(
                condition=Q(status__in=["waiting", "running"], completed_at=None)
                | Q(status__in=["completed", "failed"], completed_at__isnull=False),
                name="run_finished_means_completed_at",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.loop_id} run {self.run_number}"


class LoopEvent(models.Model):
    """What happened to a loop, in order, for sockets: a hint says that there are new ones, this says which. Kept for a day."""

    loop = models.ForeignKey(Loop, on_delete=models.CASCADE, related_name="events")
    version = models.PositiveIntegerField()
    type = models.CharField(max_length=30)
    data = models.JSONField()
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["loop", "version"], name="event_version_once")]


class StartKey(models.Model):
    """An `Idempotency-Key` that a caller started a loop with; kept for 24 hours."""

    caller = models.CharField(max_length=160)  # agents.access.Caller.identity
    key = models.CharField(max_length=255)
    body_digest = models.CharField(max_length=64)
    loop = models.ForeignKey(Loop, on_delete=models.CASCADE)
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["caller", "key"], name="start_key_once")]
