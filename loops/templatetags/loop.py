"""How a loop's words are drawn: statuses, sentences in parts, money and durations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.templatetags.page import exact, icon, stamp
from loops import body, prose, words
from loops.core.prompt import PREVIOUS, RUN
from loops.words import Part, Words
from loops.words.status import who

register = template.Library()

register.filter("money", words.money)
register.filter("duration", words.duration_words)
register.filter("seconds", words.seconds_words)
register.filter("who", who)

register.filter("prose", prose.render)

_CLOCK = re.compile(r"\d\d:\d\d(:\d\d)?")


@register.filter
def parts(said: Sequence[Part]) -> SafeString:
    """A sentence: the matched signal marked, errors in their colour, moments as <time> so that the script keeps them true."""
    return format_html_join("", "{}", ((_part(part),) for part in said))


def _part(part: Part) -> SafeString | str:
    if part.role == "mark":
        return format_html("<mark>{}</mark>", part.text)
    if part.role == "bad":
        return format_html('<span class="bad">{}</span>', part.text)
    if part.role == "time" and part.at is not None:
        if _CLOCK.fullmatch(part.text):
            return _clock(part.at, part.text)
        return _span("span" if part.text.endswith(" ago") else "left", part.at, part.text)
    return part.text


@register.simple_tag
def status(said: Words) -> SafeString:
    """Icon, word and tone of a status."""
    live = " live" if said.live else ""
    return format_html(
        '<span class="status {}{}">{}<span>{}</span></span>', said.tone, live, icon(said.icon), parts(said.parts)
    )


@register.simple_tag
def run_status(run_status: str) -> SafeString:
    """The status of one run."""
    return status(body.run_words(run_status))


def _clock(moment: datetime, text: str) -> SafeString:
    """A time of day; the script puts it into the reader's zone."""
    return format_html('<time class="clock" datetime="{}" title="{}">{} UTC</time>', stamp(moment), exact(moment), text)


def _span(kind: str, moment: datetime, text: str) -> SafeString:
    return format_html('<time class="{}" datetime="{}" title="{}">{}</time>', kind, stamp(moment), exact(moment), text)


@register.simple_tag(takes_context=True)
def lasting(context: dict[str, Any], began: datetime | None) -> SafeString | str:
    """How long something has been going on."""
    if began is None:
        return ""
    return _span("since", began, words.seconds_words(int((context["now"] - began).total_seconds())))


@register.filter
def slots(template: str) -> SafeString:
    """A message template with its placeholders marked."""
    pieces = re.split(f"({re.escape(RUN)}|{re.escape(PREVIOUS)})", template)
    marked = '<mark class="slot">{}</mark>'
    return format_html_join(
        "", "{}", ((format_html(marked, piece) if piece in {RUN, PREVIOUS} else piece,) for piece in pieces)
    )


@register.simple_tag
def clock(moment: datetime) -> SafeString:
    """A time of day to the second."""
    return _clock(moment, f"{moment.astimezone(UTC):%H:%M:%S}")


@register.filter
def number(value: Decimal | int) -> str:
    """A plain number for an attribute."""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


PREVIEWED = 2_000  # characters of the template that the preview shows
SAMPLE = "(the end of run 1’s reply)"


@register.filter
def preview(template: str, run_number: int) -> SafeString:
    """The message of a run before there is one, with what is filled in marked."""
    fills = {RUN: str(run_number), PREVIOUS: "(empty)" if run_number == 1 else SAMPLE}
    pieces = re.split(f"({re.escape(RUN)}|{re.escape(PREVIOUS)})", template[:PREVIEWED])
    marked = '<mark class="slot">{}</mark>'
    shown = format_html_join(
        "", "{}", ((format_html(marked, fills[piece]) if piece in fills else piece,) for piece in pieces)
    )
    return format_html("{}…", shown) if len(template) > PREVIEWED else shown
