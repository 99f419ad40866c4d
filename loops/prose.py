"""Turns what an agent wrote into HTML that can do nothing but be read: no raw HTML, no image, no link that stays on this site.

Two fences, one behind the other: the markdown reader makes no tag that is not in its list, and the sanitiser lets no other through.
"""

from __future__ import annotations

from functools import cache

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore

RENDERED = 20_000  # characters that are rendered; more would hold up a page that is refreshed with every run
_TAGS = {
    *("p", "br", "hr", "strong", "em", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "h4", "h5", "h6"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
_FIRST_HEADING = 4  # a response stands under an h3 of the page


def render(text: str) -> SafeString:
    """The text as HTML; of a longer one the first RENDERED characters."""
    html = _reader().render(text[:RENDERED])
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(clean)  # noqa: S308 (this is the sanitiser's output)


@cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    reader.disable(["image", "html_block", "html_inline"])
    reader.core.ruler.push("lower_headings", _lower_headings)
    return reader


def _lower_headings(state: StateCore) -> None:
    """Put the response's headings below those of the page, level by level, so that the outline has no gap."""
    headings = [token for token in state.tokens if token.type in {"heading_open", "heading_close"}]
    levels = sorted({token.tag for token in headings})
    for token in headings:
        token.tag = f"h{min(6, _FIRST_HEADING + levels.index(token.tag))}"
