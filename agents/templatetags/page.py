"""What every page is drawn with: icons from the sprite, and moments as relative words with the exact time beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

MINUTE, HOUR, DAY = 60, 3600, 86400


@register.simple_tag
def icon(name: str) -> SafeString:
    """A sign of the sprite. Hidden from screen readers: the word always stands beside it."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("icons.svg"), name)


@register.simple_tag(takes_context=True)
def moment(context: dict[str, Any], value: datetime | None) -> SafeString | str:
    """A point in time, relative to the page's `now`; the script keeps the words fresh and adds the reader's own zone."""
    if value is None:
        return ""
    return format_html(
        '<time class="ago" datetime="{}" title="{}">{}</time>', stamp(value), exact(value), ago(value, context["now"])
    )


@register.simple_tag
def exactly(value: datetime) -> SafeString:
    """A point in time in full; the script says it in the reader's own zone."""
    return format_html('<time class="exact" datetime="{}">{}</time>', stamp(value), exact(value))


@register.filter
def stamp(value: datetime) -> str:
    """ISO 8601 in UTC with a Z, as `datetime` attributes and the API have it."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@register.filter
def exact(value: datetime) -> str:
    """The whole date and time with its zone."""
    at = value.astimezone(UTC)
    return f"{at.day} {at:%b %Y}, {at:%H:%M:%S} UTC"


def ago(value: datetime, now: datetime) -> str:
    """How long before (or after) `now`, in the words a colleague would use; static/js/trinity.js has the same steps."""
    seconds = int((now - value).total_seconds())
    if abs(seconds) < 5:
        return "just now"
    if seconds < 0:
        return f"in {_amount(-seconds)}"
    if seconds < DAY:
        return f"{_amount(seconds)} ago"
    if seconds < 2 * DAY:
        return "yesterday"
    if seconds < 14 * DAY:
        return f"{seconds // DAY} days ago"
    at = value.astimezone(UTC)
    return f"{at.day} {at:%b %Y}"


def _amount(seconds: int) -> str:
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    return f"{seconds // HOUR} h"
