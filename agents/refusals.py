"""The one exception by which a request is refused, with what the edge needs to word it for REST, MCP, a form or a socket."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A request that is not carried out. `status` is the HTTP code; `detail` one sentence; nothing was written."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: dict[str, list[str]] | None = None,
        retry_after: int | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors or {}
        self.retry_after = retry_after
        self.facts = facts


def invalid(errors: dict[str, list[str]], **facts: Any) -> Refused:
    """400: fields that break a rule."""
    name, sentences = next(iter(errors.items()))
    return Refused(400, f"{name} {sentences[0]}.", errors=errors, **facts)


def unknown(what: str) -> Refused:
    """404: there is no such thing, as far as the caller may know."""
    return Refused(404, f"{what} not found.")


def forbidden() -> Refused:
    """403: known, but not the caller's to use. Names neither agent nor owner (product.md 2)."""
    return Refused(403, "You do not have access to this.")


def conflict(detail: str, **facts: Any) -> Refused:
    """409: the state of things does not allow it now."""
    return Refused(409, detail, **facts)


def too_many(detail: str, retry_after: int, **facts: Any) -> Refused:
    """429: a limit on how much at once or how fast; try again after so many seconds."""
    return Refused(429, detail, retry_after=retry_after, **facts)
