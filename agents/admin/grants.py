"""The admin of who is let in: shares, call permissions and keys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from agents import audit, hints, keys
from agents.admin.lists import FastAdmin, HistoryAdmin, caller_of
from agents.models import CallPermission, Key, Share, User


class GrantAdmin(FastAdmin):
    """Rows that let somebody in: made and deleted, never changed, each with its line on the trail."""

    action = ""

    def said(self, row: Any) -> tuple[str, str]:
        """The agent whose access it is, and whom the row lets in."""
        raise NotImplementedError

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self._written(request, obj, "added")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self._written(request, obj, "removed")
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def _written(self, request: HttpRequest, row: Any, verb: str) -> None:
        by, (agent, who) = caller_of(request), self.said(row)
        audit.allowed(by.name, by.through, self.action, agent, f"{verb} {who}")
        hints.say_access_changed()


class ShareForm(forms.ModelForm):
    """A share, which an external client cannot have."""

    def clean_user(self) -> User:
        user: User = self.cleaned_data["user"]
        if user.kind == User.Kind.CLIENT:
            raise ValidationError("An external client is invited to conversations; agents are not shared with clients.")
        return user


@admin.register(Share)
class ShareAdmin(GrantAdmin):
    action = "shares.change"
    form = ShareForm
    list_display = ("agent", "user")
    list_select_related = ("agent", "user")
    search_fields = ("agent__name__istartswith", "user__username__istartswith")
    raw_id_fields = ("agent", "user")

    def said(self, row: Share) -> tuple[str, str]:
        return row.agent.name, row.user.username


@admin.register(CallPermission)
class CallPermissionAdmin(GrantAdmin):
    action = "permissions.change"
    list_display = ("caller", "target")
    list_select_related = ("caller", "target")
    search_fields = ("caller__name__istartswith", "target__name__istartswith")
    raw_id_fields = ("caller", "target")

    def said(self, row: CallPermission) -> tuple[str, str]:
        return row.caller.name, row.target.name


@admin.register(Key)
class KeyAdmin(HistoryAdmin):
    """Keys are made where their secret can be shown once; here they are seen and revoked."""

    list_display = ("name", "user", "agent", "created_at", "last_used_at", "expires_at", "revoked_at")
    list_select_related = ("user", "agent")
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    search_fields = ("name__istartswith", "user__username__istartswith", "agent__name__istartswith")
    fields = ("name", "user", "agent", "created_at", "last_used_at", "expires_at", "revoked_at")
    actions = ("revoke",)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agents.change_key")

    @admin.action(description="Revoke selected keys", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Key]) -> None:
        by, now = caller_of(request), timezone.now()
        ended = [key for key in queryset if keys.revoke(key, now)]
        for key in ended:
            audit.allowed(by.name, by.through, "key.delete", str(key.pk))
        hints.say_access_changed()
        self.message_user(request, f"{len(ended)} of {len(queryset)} keys revoked; the others were before.")
