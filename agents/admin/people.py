"""The admin of people."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from agents import hints
from agents.admin.lists import BoundedPaginator
from agents.models import User
from agents.signing_in import BoundedSignIn


class AdminSignIn(BoundedSignIn, AdminAuthenticationForm):
    """The admin's own sign-in, with the same limit on wrong passwords."""


@admin.register(User)
class PersonAdmin(DjangoUserAdmin):
    """People are disabled, never deleted: rows name them, and a later person of that name would inherit what they did."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_display = ("username", "kind", "email", "is_active", "is_staff", "is_superuser", "last_login")
    list_filter = ("kind", "is_active", "is_superuser")
    search_fields = ("username__istartswith", "email__istartswith")
    fieldsets = (
        (None, {"fields": ("username", "password", "kind")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("username", "kind", "password1", "password2")}),)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        hints.say_access_changed()

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        answer = super().user_change_password(request, id, form_url)
        if request.method == "POST":
            hints.say_access_changed()  # it has ended the person's other sessions
        return answer
