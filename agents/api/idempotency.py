"""The `Idempotency-Key` of a request: its form, from the header or from a field. What it is good for, its verb says."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request

from agents import refusals
from agents.api.inputs import Field, Json

HEADER = "Idempotency-Key"
MOST = 255
SCHEMA: Json = {"type": "string", "minLength": 1, "maxLength": MOST}


def checked(value: Any) -> str:
    """The key as it is kept."""
    if not isinstance(value, str) or not 1 <= len(value) <= MOST or not value.isprintable():
        raise ValueError(f"must be 1 to {MOST} printable characters")
    return value


FIELD = Field(checked, SCHEMA)


def of(request: Request) -> str | None:
    """The header's key; None where it was not sent."""
    if (key := request.headers.get(HEADER)) is None:
        return None
    try:
        return checked(key)
    except ValueError as refused:
        raise refusals.invalid({HEADER: [str(refused)]}) from refused
