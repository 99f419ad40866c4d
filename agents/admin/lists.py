"""What the lists of the admin have in common: they stay fast however long the history is, and history is only read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from agents.access import Caller

MOST_COUNTED = 10_000


def caller_of(request: HttpRequest) -> Caller:
    """The person who is signed in to the admin."""
    return Caller(user=request.user, through="page")  # type: ignore[arg-type]  # the admin lets only users in


class BoundedPaginator(Paginator):  # Django's are not generic at run time
    """Counts no further than anybody pages: a whole count of a long history is the slowest thing on its list."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        return rows.order_by()[:MOST_COUNTED].count() if isinstance(rows, QuerySet) else len(rows)


class FastAdmin(admin.ModelAdmin):
    """A list whose queries do not grow with the table."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    ordering = ("-pk",)
    deferred: tuple[str, ...] = ()  # long texts that the list does not show

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.deferred)


class HistoryAdmin(FastAdmin):
    """Rows that only the product writes: nobody adds, changes or deletes them by hand."""

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def by_word(field: str, words: Iterable[str]) -> type[admin.SimpleListFilter]:
    """A filter on a column of few words; Django's own would look through the table to find them."""

    class ByWord(admin.SimpleListFilter):
        title = field
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(word, word) for word in words]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{field: self.value()}) if self.value() else queryset

    return ByWord
