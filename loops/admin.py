"""Django admin of loops: their whole history, read-only, and a Stop that asks the engine like every other door."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from agents.admin.lists import HistoryAdmin, caller_of
from loops import engine
from loops.core.words import ACTIVE
from loops.models import Loop, LoopEvent, LoopRun, StartKey


class RunInline(admin.TabularInline):
    """The runs of a loop, at most 100."""

    model = LoopRun
    ordering = ("run_number",)
    fields = ("run_number", "status", "turn", "cost", "duration_ms", "started_at", "completed_at", "error")
    readonly_fields = fields
    can_delete = False
    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description="execution")
    def turn(self, run: LoopRun) -> str:
        return execution_link(run.execution_id)


def execution_link(execution_id: str) -> str:
    """A link to the execution's page of the admin, without reading its row."""
    return format_html(
        '<a href="{}">{}</a>', reverse("admin:agents_execution_change", args=[execution_id]), execution_id
    )


@admin.register(Loop)
class LoopAdmin(HistoryAdmin):
    list_display = (
        "id",
        "agent",
        "status",
        "stop_reason",
        "waiting_for",
        "runs_of",
        "spend",
        "started_by",
        "created_at",
    )
    list_select_related = ("agent",)
    list_filter = ("status", "stop_reason", "waiting_for", "kind", "created_at")
    search_fields = ("=id", "=started_by", "agent__name__istartswith")
    deferred = ("message", "carry", "error", "stop_excerpt", "allowed_tools")
    inlines = (RunInline,)
    actions = ("stop_loops",)

    @admin.display(description="runs")
    def runs_of(self, loop: Loop) -> str:
        failed = f", {loop.failed_runs} failed" if loop.failed_runs else ""
        return f"{loop.runs_completed} of {loop.max_runs}{failed}"

    def has_stop_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("loops.change_loop")

    @admin.action(description="Stop selected loops", permissions=["stop"])
    def stop_loops(self, request: HttpRequest, queryset: QuerySet[Loop]) -> None:
        by, now = caller_of(request), timezone.now()
        ids = list(queryset.values_list("pk", flat=True))
        answers = Counter(engine.request_stop(by, loop_id, now) for loop_id in ids)
        ended = Loop.objects.filter(pk__in=ids).exclude(status__in=ACTIVE).count() - answers["already_done"]
        said = [
            (ended, "stopped"),
            (answers["stopping"] - ended, "will stop when the run in flight has finished"),
            (answers["already_done"], "had ended before"),
        ]
        self.message_user(
            request, "; ".join(f"{count} {what}" for count, what in said if count) + ".", messages.SUCCESS
        )


@admin.register(LoopRun)
class LoopRunAdmin(HistoryAdmin):
    list_display = ("id", "loop_id", "run_number", "status", "cost", "duration_ms", "started_at", "completed_at")
    list_filter = ("status", "started_at")
    search_fields = ("=loop__id", "=execution__id")
    deferred = ("error",)


@admin.register(LoopEvent)
class LoopEventAdmin(HistoryAdmin):
    list_display = ("id", "loop_id", "version", "type", "created_at")
    search_fields = ("=loop__id",)
    deferred = ("data",)


@admin.register(StartKey)
class StartKeyAdmin(HistoryAdmin):
    list_display = ("id", "caller", "key", "loop_id", "created_at")
    search_fields = ("=caller", "=key", "=loop__id")
