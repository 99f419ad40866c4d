"""Addresses of the agents' pages."""

from django.urls import path

from agents import access_pages, audit_page, pages

urlpatterns = [
    path("", pages.agents_list, name="page-home"),
    path("login/", pages.LogIn.as_view(), name="page-login"),
    path("logout/", pages.LogOut.as_view(), name="page-logout"),
    path("agents/", pages.agents_list, name="page-agents"),
    path("agents/<slug:name>/", pages.agent_page, name="page-agent"),
    path("agents/<slug:name>/start/", pages.agent_start, name="page-agent-start"),
    path("agents/<slug:name>/stop/", pages.agent_stop, name="page-agent-stop"),
    path("agents/<slug:name>/access/", access_pages.access_tab, name="page-access"),
    path("keys/", access_pages.own_keys, name="page-keys"),
    path("audit/", audit_page.audit_page, name="page-audit"),
]
