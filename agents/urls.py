"""Addresses of the half that knows no loops: its REST API and its pages."""

from django.urls import include, path

from agents.api import access, agents, chat_history, default_key, monitoring, people, reminders, turns
from agents.api.openapi import Docs, Schema

urlpatterns = [
    path("health", people.HealthView.as_view()),
    path("api/schema", Schema.as_view(), name="api-schema"),
    path("api/docs", Docs.as_view(), name="api-docs"),
    path("api/token", people.TokenView.as_view()),
    path("api/auth/mode", people.AuthModeView.as_view()),
    path("api/users/me", people.MeView.as_view()),
    path("api/agents", agents.AgentsView.as_view()),
    path("api/agents/<str:name>", agents.AgentView.as_view()),
    path("api/agents/<str:name>/start", agents.StartView.as_view()),
    path("api/agents/<str:name>/stop", agents.StopView.as_view()),
    path("api/agents/<str:name>/timeout", agents.TimeoutView.as_view()),
    path("api/agents/<str:name>/task", turns.TaskView.as_view()),
    path("api/agents/<str:name>/chat", turns.ChatView.as_view()),
    path("api/agents/<str:name>/chat/history", chat_history.ChatHistoryView.as_view()),
    path("api/agents/<str:name>/executions", turns.AgentExecutionsView.as_view()),
    path("api/agents/<str:name>/shares", access.SharesView.as_view()),
    path("api/agents/<str:name>/permissions", access.PermissionsView.as_view()),
    path("api/agents/<str:name>/reminders", reminders.RemindersView.as_view()),
    path("api/agents/<str:name>/reminders/<str:reminder_id>/cancel", reminders.CancelReminderView.as_view()),
    path("api/executions", turns.ExecutionsView.as_view()),
    path("api/executions/<str:execution_id>", turns.ExecutionView.as_view()),
    path("api/executions/<str:execution_id>/cancel", turns.CancelView.as_view()),
    path("api/keys", access.KeysView.as_view()),
    path("api/keys/<int:key_id>", access.KeyView.as_view()),
    path("api/mcp/keys/ensure-default", default_key.DefaultKeyView.as_view()),
    path("api/monitoring/status", monitoring.FleetView.as_view()),
    path("api/monitoring/agents/<str:name>", monitoring.AgentHealthView.as_view()),
    path("api/audit", access.AuditView.as_view()),
    path("", include("agents.page_urls")),
]
