"""What a request may say: one table per body or query, of which both the check and its OpenAPI schema are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework.request import Request

from agents import refusals

Json = dict[str, Any]
Errors = dict[str, list[str]]

NO_NUL = r"^[^\u0000]*$"
NOT_BLANK = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
_BROKEN = re.compile("[\0\ud800-\udfff]")
MOST_ROWS, DEFAULT_ROWS = 200, 50


@dataclass(frozen=True, slots=True)
class Field:
    """One value: `check` returns it as it is stored, or raises ValueError with what it must be; `schema` says the same."""

    check: Callable[[Any], Any]
    schema: Json
    required: bool = False


# -- values ---------------------------------------------------------------------------------------
def text(most: int, *, least: int = 0, required: bool = False) -> Field:
    """Text of so many characters; not blank where one at least is asked for."""
    said = (
        f"must be text of {least} to {most:,} characters" if least else f"must be text of at most {most:,} characters"
    )

    def check(value: Any) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise ValueError(said)
        if least and not value.strip():
            raise ValueError("must not be blank")
        return _sound(value)

    pattern = NOT_BLANK if least else NO_NUL
    return Field(check, {"type": "string", "minLength": least, "maxLength": most, "pattern": pattern}, required)


def _sound(value: str) -> str:
    if _BROKEN.search(value):
        raise ValueError("must not contain NUL or broken characters")
    return value


def whole(least: int, most: int, *, required: bool = False) -> Field:
    """A JSON integer within bounds: no boolean, fraction, or number in a string."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least:,} to {most:,}")
        return value

    return Field(check, {"type": "integer", "minimum": least, "maximum": most}, required)


def texts(what: str, *, most: int = 200, size: int = 200, without: str = "", required: bool = False) -> Field:
    """A list of non-empty texts."""
    said = f"must be a list of at most {most:,} {what} (text of 1 to {size:,} characters"
    said += f" without {without!r})" if without else ")"

    def check(value: Any) -> list[str]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError(said)
        for word in value:
            if not isinstance(word, str) or not 1 <= len(word) <= size or not word.strip():
                raise ValueError(said)
            if without and without in word:
                raise ValueError(said)
            _sound(word)
        return value

    pattern = NOT_BLANK.replace("[^", f"[^{without}") if without else NOT_BLANK
    item = {"type": "string", "minLength": 1, "maxLength": size, "pattern": pattern}
    return Field(check, {"type": "array", "maxItems": most, "items": item}, required)


# -- bodies ---------------------------------------------------------------------------------------
def read_body(body: Mapping[str, Any], fields: Mapping[str, Field]) -> Json:
    """The body's fields, checked; null in an optional one = not sent. Raises Refused naming each bad, missing or unknown one."""
    errors: Errors = {name: ["is not a field of this request"] for name in body if name not in fields}
    found: Json = {}
    for name, field in fields.items():
        if name not in body and field.required:
            errors[name] = ["is required"]
        if name not in body or (body[name] is None and not field.required):
            continue
        try:
            found[name] = field.check(body[name])
        except ValueError as refused:
            errors[name] = [str(refused)]
    if errors:
        raise refusals.invalid(errors)
    return found


def body_schema(fields: Mapping[str, Field]) -> Json:
    """The JSON schema of such a body."""
    return object_schema(
        {name: field.schema if field.required else or_null(field.schema) for name, field in fields.items()},
        [name for name, field in fields.items() if field.required],
    )


def object_schema(properties: Mapping[str, Json], required: list[str]) -> Json:
    """An object of exactly these properties."""
    schema: Json = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def or_null(schema: Json) -> Json:
    """The same or null."""
    widened = {**schema, "type": [schema["type"], "null"]}
    return {**widened, "enum": [*schema["enum"], None]} if "enum" in schema else widened


# -- queries --------------------------------------------------------------------------------------
def limit() -> Field:
    """How many rows a page has."""

    def check(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,3}", value) or not 1 <= int(value) <= MOST_ROWS:
            raise ValueError(f"must be a whole number from 1 to {MOST_ROWS}")
        return int(value)

    return Field(check, {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": DEFAULT_ROWS})


def one_of(*words: str) -> Field:
    """One of these words."""

    def check(value: str) -> str:
        if value not in words:
            raise ValueError(
                f"must be {' or '.join(words)}" if len(words) < 3 else f"must be one of {', '.join(words)}"
            )
        return value

    return Field(check, {"type": "string", "enum": list(words)})


def matching(pattern: str, said: str) -> Field:
    """Text of this form."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {said}")
        return value

    return Field(check, {"type": "string", "pattern": f"^{pattern}$"})


def cursor() -> Field:
    """Where a page begins: from the `Link` header of the page before."""
    return matching(r"[A-Za-z0-9_]{1,40}", "a cursor from the Link header of an earlier answer")


def read_query(request: Request, fields: Mapping[str, Field]) -> Json:
    """The query's values, checked. Raises Refused: a filter that is misspelt, or said twice, must not vanish."""
    errors: Errors = {}
    found: Json = {}
    for name, values in request.query_params.lists():
        if name not in fields:
            errors[name] = [f"is not one of {', '.join(fields)}"]
        elif len(values) > 1:
            errors[name] = ["must be given once"]
        else:
            try:
                found[name] = fields[name].check(values[0])
            except ValueError as refused:
                errors[name] = [str(refused)]
    if errors:
        raise refusals.invalid(errors)
    return found


def next_page(request: Request, rows: list[Any], size: int, last: Callable[[Any], str]) -> dict[str, str]:
    """The `Link` header of an answer; `rows` may hold one more than `size`, which says that there is a next page."""
    if len(rows) <= size:
        return {}
    query = request.query_params.copy()
    query["cursor"] = last(rows[size - 1])
    return {"Link": f'<{request.build_absolute_uri(request.path)}?{query.urlencode()}>; rel="next"'}
