"""Rows of who works and who may ask: people, agents, shares, keys, failed sign-ins, the trail, the ledger and reminders.

Only `agents.executions` changes an Execution's state; only `agents.life` changes an Agent's life.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone

from agents.ids import new_id

NAME_RULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def check_name(name: str) -> None:
    """Refuse an agent name that could not stand in a URL, an environment variable or a folder."""
    if not NAME_RULE.fullmatch(name):
        raise ValidationError("must be 1 to 63 letters, digits, - or _, and begin with a letter or digit")


class User(AbstractUser):
    """A person. `client` = external: sees chats that they belong to, and nothing of loops."""

    class Kind(models.TextChoices):
        PLATFORM = "platform", "Platform user"
        CLIENT = "client", "External client"

    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.PLATFORM)


class AgentQuerySet(models.QuerySet["Agent"]):
    def living(self) -> AgentQuerySet:
        return self.filter(deleted_at=None)

    def visible_to(self, user: User) -> AgentQuerySet:
        """Agents that this person owns or that are shared with them; all for an admin, none for a client."""
        if not user.is_active or user.kind == User.Kind.CLIENT:
            return self.none()
        if user.is_superuser:
            return self.living()
        return self.living().filter(Q(owner=user) | Q(pk__in=Share.objects.filter(user=user).values("agent")))


class Agent(models.Model):
    """Something that can do one turn of work. Its row is the mutex of its executions and loops (architecture 2)."""

    class Status(models.TextChoices):
        RUNNING = "running"
        STOPPED = "stopped"

    class Output(models.TextChoices):
        TEXT = "text"
        JSON = "json"

    name = models.CharField(max_length=63, validators=[check_name])
    display_name = models.CharField(max_length=100, blank=True)
    description = models.TextField(blank=True)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="agents")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.RUNNING)
    harness = models.CharField(max_length=20, default="command")
    command = models.JSONField(default=list, help_text="The agent's program and its arguments, as a list; no shell.")
    output = models.CharField(max_length=5, choices=Output.choices, default=Output.TEXT)
    environment = models.JSONField(default=dict, blank=True, help_text="Variables the agent's process is given.")
    model = models.CharField(max_length=200, blank=True)
    timeout_seconds = models.PositiveIntegerField(default=3600)
    max_parallel_tasks = models.PositiveIntegerField(default=3)
    autonomy = models.BooleanField(default=True)
    keep_background = models.BooleanField(default=False, help_text="Leave running what a turn left in the background.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    deleted_at = models.DateTimeField(null=True, editable=False)

    objects = AgentQuerySet.as_manager()

    # Beside the row where agents.sql.lock_agent has read it
    slots_taken: int
    somebody_waits: bool

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(deleted_at=None), name="agent_name_unique_while_living"
            ),
            models.CheckConstraint(condition=Q(timeout_seconds__range=(60, 7200)), name="agent_timeout_60_to_7200"),
            models.CheckConstraint(condition=Q(max_parallel_tasks__range=(1, 32)), name="agent_parallel_1_to_32"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        return self.display_name or self.name

    @property
    def workspace(self) -> Path:
        """The agent's own folder on this host; a later agent of the same name gets another one."""
        return settings.TRINITY_DATA / "workspaces" / f"{self.name}-{self.pk}"


class Share(models.Model):
    """A person who may run, watch and stop loops on an agent of somebody else."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="shares")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="shares")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "user"], name="share_once")]


class CallPermission(models.Model):
    """`caller` may call `target`; nothing follows for the other direction."""

    caller = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="may_call")
    target = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="callable_by")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["caller", "target"], name="call_permission_once")]


class Key(models.Model):
    """A bearer key of a person, or of one agent (then `agent` is set). Only its hash is kept."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="keys")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, null=True, blank=True, related_name="keys")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)
    once = models.CharField(max_length=32, blank=True, editable=False, help_text="The form that made it, sent once.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "once"], condition=~Q(once=""), name="key_of_a_form_once")
        ]

    def __str__(self) -> str:
        return self.name


class FailedSignIn(models.Model):
    """One wrong password for one name from one address, kept as long as it counts. Only `agents.signing_in` writes it."""

    digest = models.CharField(max_length=64, help_text="Of address and name; neither can be read from it.")
    at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = [models.Index(fields=["digest", "at"], name="failed_sign_in_of")]
        verbose_name = "failed sign-in"


class Execution(models.Model):
    """One turn of an agent, whatever asked for it: the ledger's row (architecture 2).

    `fence` rises with every claim and adoption, so a result is taken only from the last owner. `attempt` rises only when a
    process is started again under the same row. `owner` is `host/boot/pid/start` of the worker process that holds the lease.
    """

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCESS = "success"
        FAILED = "failed"
        CANCELLED = "cancelled"

    class Trigger(models.TextChoices):
        MANUAL = "manual"
        CHAT = "chat"
        LOOP = "loop"
        MCP = "mcp"
        AGENT = "agent"
        REMINDER = "reminder"
        JUDGE = "judge"

    id = models.CharField(primary_key=True, max_length=40, default=functools.partial(new_id, "exec"), editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="executions")
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    triggered_by = models.CharField(max_length=10, choices=Trigger.choices)
    requested_by = models.CharField(max_length=160, help_text="A username, or agent:NAME.")
    depth = models.PositiveIntegerField(default=0)

    # The order
    message = models.TextField()
    model = models.CharField(max_length=200, blank=True)
    timeout_seconds = models.PositiveIntegerField(null=True, help_text="Null: the agent's own, read at the claim.")
    allowed_tools = models.JSONField(null=True)
    session_id = models.CharField(max_length=200, blank=True)
    loop_id = models.CharField(max_length=40, blank=True)
    variables = models.JSONField(default=dict, help_text="Further TRINITY_* variables of its process.")

    # Who holds it
    fence = models.PositiveIntegerField(default=0)
    attempt = models.PositiveIntegerField(default=0)
    owner = models.CharField(max_length=160, blank=True)
    lease_until = models.DateTimeField(null=True)
    cancelled_by = models.CharField(max_length=160, blank=True)

    # How it went
    response = models.TextField(blank=True)
    response_truncated = models.BooleanField(default=False)
    error = models.TextField(blank=True)
    cost = models.DecimalField(max_digits=18, decimal_places=6, null=True)
    usage = models.JSONField(null=True, help_text="Token counts and turns, as the agent reported them.")
    reported_session = models.CharField(max_length=200, blank=True)
    reported_model = models.CharField(max_length=200, blank=True)
    duration_ms = models.PositiveBigIntegerField(null=True)
    late_result = models.TextField(blank=True, help_text="What a worker brought after it had lost the turn.")

    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], finished_at=None)
                | Q(state__in=["success", "failed", "cancelled"], finished_at__isnull=False),
                name="execution_finished_means_finished_at",
            ),
            models.CheckConstraint(
                condition=~Q(state="running") | Q(lease_until__isnull=False, started_at__isnull=False),
                name="execution_running_has_lease",
            ),
        ]
        indexes = [
            models.Index(fields=["agent", "id"], condition=Q(state="queued"), name="execution_line"),
            models.Index(fields=["agent"], condition=Q(state="running"), name="execution_slots"),
            models.Index(fields=["lease_until"], condition=Q(state="running"), name="execution_leases"),
            models.Index(fields=["agent", "-id"], name="execution_history"),
            models.Index(fields=["loop_id", "-id"], condition=~Q(loop_id=""), name="execution_of_loop"),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_over(self) -> bool:
        return self.finished_at is not None


class Reminder(models.Model):
    """One turn that an agent wants later: fired once by the sweep, through the ledger. Only `agents.reminders` writes it."""

    class Status(models.TextChoices):
        PENDING = "pending"
        FIRED = "fired"
        CANCELLED = "cancelled"

    id = models.CharField(primary_key=True, max_length=40, default=functools.partial(new_id, "rem"), editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="reminders")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    set_by = models.CharField(max_length=160, help_text="A username, or agent:NAME.")
    message = models.TextField()
    model = models.CharField(max_length=200, blank=True)
    timeout_seconds = models.PositiveIntegerField(null=True, help_text="Null: the agent's own, read at the claim.")
    allowed_tools = models.JSONField(null=True)
    fire_at = models.DateTimeField()
    execution = models.OneToOneField(Execution, on_delete=models.PROTECT, null=True, related_name="reminder")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    fired_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    cancelled_by = models.CharField(max_length=160, blank=True, help_text="Blank: its agent was deleted.")
    idempotency_key = models.CharField(max_length=255, blank=True)
    body_digest = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status="pending", fired_at=None, execution=None, cancelled_at=None)
                | Q(status="fired", fired_at__isnull=False, execution__isnull=False, cancelled_at=None)
                | Q(status="cancelled", fired_at=None, execution=None, cancelled_at__isnull=False),
                name="reminder_status_means_its_times",
            ),
            models.UniqueConstraint(
                fields=["set_by", "idempotency_key"], condition=~Q(idempotency_key=""), name="reminder_key_once"
            ),
        ]
        indexes = [
            models.Index(fields=["fire_at"], condition=Q(status="pending"), name="reminder_due"),
            models.Index(fields=["agent"], condition=Q(status="pending"), name="reminder_pending"),
            models.Index(fields=["agent", "-fire_at"], name="reminder_history"),
            models.Index(fields=["agent", "created_at"], name="reminder_rate"),
        ]

    def __str__(self) -> str:
        return self.id


class Worker(models.Model):
    """A worker process that says it is alive: what `/health` counts. Never consulted for who owns a turn."""

    owner = models.CharField(primary_key=True, max_length=160)
    slots = models.PositiveIntegerField()
    busy = models.PositiveIntegerField(default=0)
    seen_at = models.DateTimeField()


class AuditQuerySet(models.QuerySet["Audit"]):
    def update(self, **kwargs: Any) -> int:
        raise TypeError("audit rows are never changed")


class Audit(models.Model):
    """Who did what, through what, on what, and the verdict. Append-only; holds no message, key or password."""

    class Verdict(models.TextChoices):
        ALLOWED = "allowed"
        REFUSED = "refused"

    timestamp = models.DateTimeField(default=timezone.now, editable=False, db_index=True)
    actor = models.CharField(max_length=160)
    through = models.CharField(max_length=10)
    action = models.CharField(max_length=30)
    target = models.CharField(max_length=160)
    verdict = models.CharField(max_length=10, choices=Verdict.choices)
    reason = models.CharField(max_length=300, blank=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "audit trail"
        indexes = [  # one per filter of its page, in the page's order
            models.Index(fields=["actor", "-id"], name="audit_by_actor"),
            models.Index(fields=["action", "-id"], name="audit_by_action"),
            models.Index(fields=["target", "-id"], name="audit_by_target"),
            models.Index(fields=["through", "-id"], name="audit_by_through"),
            models.Index(fields=["verdict", "-id"], name="audit_by_verdict"),
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}: {self.verdict}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("audit rows are never changed")
        super().save(*args, **kwargs)
