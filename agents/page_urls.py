"""Addresses of the agents' pages."""

from django.urls import path

from agents import access_pages, audit_page, executions_pages, pages

urlpatterns = [
    path("", pages.agents_list, name="page-home"),
    path("login/", pages.LogIn.as_view(), name="page-login"),
    path("logout/", pages.LogOut.as_view(), name="page-logout"),
    path("agents/", pages.agents_list, name="page-agents"),
    path("agents/<slug:name>/", pages.agent_page, name="page-agent"),
    path("agents/<slug:name>/start/", pages.agent_start, name="page-agent-start"),
    path("agents/<slug:name>/stop/", pages.agent_stop, name="page-agent-stop"),
    path("agents/<slug:name>/access/", access_pages.access_tab, name="page-access"),
    path("agents/<slug:name>/executions/", executions_pages.agent_executions, name="page-agent-executions"),
    path("executions/", executions_pages.executions_list, name="page-executions"),
    path("executions/<slug:execution_id>/", executions_pages.execution_page, name="page-execution"),
    path("executions/<slug:execution_id>/output/", executions_pages.execution_output, name="page-execution-output"),
    path(
        "executions/<slug:execution_id>/message/",
        executions_pages.execution_text,
        {"part": "message"},
        name="page-execution-message",
    ),
    path(
        "executions/<slug:execution_id>/response/",
        executions_pages.execution_text,
        {"part": "response"},
        name="page-execution-response",
    ),
    path("executions/<slug:execution_id>/cancel/", executions_pages.execution_cancel, name="page-execution-cancel"),
    path("keys/", access_pages.own_keys, name="page-keys"),
    path("audit/", audit_page.audit_page, name="page-audit"),
]
