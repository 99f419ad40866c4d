"""The admin of agents: a form and actions over the verbs of `agents.life`, which alone write."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.utils import timezone

from agents import life
from agents.admin.lists import FastAdmin, caller_of
from agents.models import Agent, User
from agents.refusals import Refused

VARIABLE = re.compile(r"(?!TRINITY_)[A-Za-z_][A-Za-z0-9_]*")


class AgentForm(forms.ModelForm):
    """An agent's settings, checked by `agents.life` as everywhere else."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for field in self.fields.values():
            field.show_hidden_initial = (
                False  # what has changed is told from the row, not from what the form sends back
            )

    def clean_owner(self) -> User:
        owner: User = self.cleaned_data["owner"]
        if owner.kind == User.Kind.CLIENT:
            raise ValidationError("An external client cannot own agents.")
        return owner

    def clean_environment(self) -> dict[str, str]:
        found = self.cleaned_data["environment"] or {}
        if not isinstance(found, dict) or not all(_is_variable(name, value) for name, value in found.items()):
            raise ValidationError(
                "Must be an object of texts; names have letters, digits and _, and not TRINITY_ first."
            )
        return found

    def clean(self) -> dict[str, Any]:
        given = {name: self.cleaned_data.get(name) for name in ("name", *life.FIELDS) if name in self.changed_data}
        try:
            self.cleaned_data |= life.parse(given, creating=self.instance.pk is None)
        except Refused as refused:
            for name, sentences in refused.errors.items():
                if name not in self.errors:
                    self.add_error(name, sentences)
        wanted = self.cleaned_data.get("name")
        if wanted and Agent.objects.living().filter(name=wanted).exists():
            self.add_error("name", "An agent of this name exists already.")
        return self.cleaned_data


def _is_variable(name: str, value: Any) -> bool:
    return bool(VARIABLE.fullmatch(name)) and isinstance(value, str) and not re.search(r"[\0\ud800-\udfff]", value)


@admin.register(Agent)
class AgentAdmin(FastAdmin):
    form = AgentForm
    list_display = (
        "name",
        "display_name",
        "owner",
        "status",
        "harness",
        "max_parallel_tasks",
        "created_at",
        "deleted_at",
    )
    list_select_related = ("owner",)
    list_filter = ("status", ("deleted_at", admin.EmptyFieldListFilter))
    search_fields = ("name__istartswith", "owner__username__istartswith")
    raw_id_fields = ("owner",)
    deferred = ("description", "command", "environment")
    actions = ("start_agents", "stop_agents")
    settings_of = (
        *("name", "owner", "display_name", "description", "harness", "command", "output", "environment", "model"),
        *("timeout_seconds", "max_parallel_tasks", "autonomy", "keep_background"),
    )

    def get_fields(self, request: HttpRequest, obj: Agent | None = None) -> tuple[str, ...]:
        if obj is None:
            return self.settings_of
        return (*self.settings_of, "status", "workspace", "created_at", "deleted_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> tuple[str, ...]:
        return ("name", "owner", "workspace", "created_at", "deleted_at") if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        return _lives(obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        return _lives(obj) and super().has_delete_permission(request, obj)

    def changeform_view(self, request: HttpRequest, *args: Any, **options: Any) -> Any:
        try:
            return super().changeform_view(request, *args, **options)
        except Refused as refused:  # somebody was faster: the name is taken, or the agent gone
            self.message_user(request, refused.detail, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Agent, form: Any, change: bool) -> None:
        by, given = caller_of(request), form.cleaned_data
        if not change:
            made = life.create(obj.owner, {name: given[name] for name in self.settings_of if name != "owner"}, by)
            obj.pk, obj._state.adding = made.pk, False
            return
        fields = {name: given[name] for name in form.changed_data if name != "status"}
        if fields:
            life.change(obj, fields, by)
        if "status" in form.changed_data:
            verb = life.start if given["status"] == Agent.Status.RUNNING else life.stop
            verb(obj, by, timezone.now())

    # -- deleting, which keeps the rows: nothing that points to an agent goes with it ---------------
    def get_deleted_objects(self, objs: Iterable[Agent], request: HttpRequest) -> tuple[Any, Any, Any, Any]:
        said = [f"{agent}: its turns and loops end, its history stays" for agent in objs]
        return said, {"agents": len(said)}, set(), []

    def delete_model(self, request: HttpRequest, obj: Agent) -> None:
        life.delete(obj, caller_of(request), timezone.now())

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        for agent in queryset.filter(deleted_at=None):
            self.delete_model(request, agent)

    @admin.action(description="Start selected agents", permissions=["change"])
    def start_agents(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        self._set_all(request, queryset, life.start, "started")

    @admin.action(description="Stop selected agents (turns in flight finish)", permissions=["change"])
    def stop_agents(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        self._set_all(request, queryset, life.stop, "stopped")

    def _set_all(self, request: HttpRequest, queryset: QuerySet[Agent], verb: Any, said: str) -> None:
        living = list(queryset.filter(deleted_at=None))
        for agent in living:
            verb(agent, caller_of(request), timezone.now())
        self.message_user(request, f"{len(living)} of {len(queryset)} agents {said}.")


def _lives(agent: Agent | None) -> bool:
    return agent is None or agent.deleted_at is None
