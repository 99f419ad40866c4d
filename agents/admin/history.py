"""The admin of what was done: executions, reminders, the audit trail, failed sign-ins, workers. Read-only."""

from __future__ import annotations

from django.contrib import admin

from agents.admin.lists import HistoryAdmin, by_word
from agents.models import Audit, Execution, FailedSignIn, Reminder, Worker
from agents.trail import ACTIONS, THROUGH


@admin.register(Execution)
class ExecutionAdmin(HistoryAdmin):
    list_display = (
        "id",
        "agent",
        "state",
        "triggered_by",
        "requested_by",
        "loop_id",
        "cost",
        "duration_ms",
        "created_at",
    )
    list_select_related = ("agent",)
    list_filter = ("state", "triggered_by", "created_at")
    search_fields = ("=id", "=loop_id", "agent__name__istartswith")
    deferred = ("message", "response", "error", "late_result", "variables", "usage", "allowed_tools")


@admin.register(Reminder)
class ReminderAdmin(HistoryAdmin):
    list_display = ("id", "agent", "status", "fire_at", "set_by", "execution", "created_at")
    list_select_related = ("agent", "execution")
    list_filter = ("status", "fire_at")
    search_fields = ("=id", "agent__name__istartswith")
    deferred = ("message", "allowed_tools")
    exclude = ("idempotency_key", "body_digest")


@admin.register(Audit)
class AuditAdmin(HistoryAdmin):
    list_display = ("timestamp", "actor", "through", "action", "target", "verdict", "reason")
    list_filter = ("verdict", by_word("through", THROUGH), by_word("action", ACTIONS), "timestamp")
    search_fields = ("=target", "=actor")


@admin.register(FailedSignIn)
class FailedSignInAdmin(HistoryAdmin):
    list_display = ("at", "digest")
    search_fields = ("=digest",)


@admin.register(Worker)
class WorkerAdmin(HistoryAdmin):
    list_display = ("owner", "slots", "busy", "seen_at")
    ordering = ("-seen_at",)
