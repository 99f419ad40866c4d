"""Describes the REST API: the decorator every route carries, the OpenAPI document made of them, and the page that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api.inputs import Field, Json

PROBLEMS = {
    400: "Invalid input; `errors` names the fields.",
    401: "No credential, or not a valid one.",
    403: "No access.",
    404: "Not found.",
    409: "Not possible as things are now.",
    411: "The body came in chunks.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many; try again after `Retry-After` seconds.",
    502: "The agent's turn failed.",
}


PROBLEM: Json = {
    "type": "object",
    "description": "A refusal. Further facts may stand beside these two.",
    "properties": {
        "detail": {"type": "string", "description": "One sentence."},
        "errors": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    },
    "required": ["detail", "errors"],
}
_PROBLEM_REF: Json = {"$ref": "#/components/schemas/Problem"}


class KeyScheme(OpenApiAuthenticationExtension):
    target_class = "agents.rest.KeyAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> Json:
        return {"type": "http", "scheme": "bearer", "description": "A key of a person or of an agent."}


def operation(
    name: str,
    summary: str,
    *,
    tag: str,
    answers: Mapping[int, Any],
    body: Json | None = None,
    form: bool = False,
    query: Mapping[str, Field] | None = None,
    headers: Mapping[str, Json] | None = None,
    refuses: Iterable[int] = (403, 404),
    anonymous: bool = False,
) -> Callable[..., Any]:
    """Describe one method of a view: `answers` by status, and `refuses` beside those that follow from the rest."""
    problems = {
        *refuses,
        *([] if anonymous else [401]),
        *([400, 411, 413, 415] if body else []),
        *([400] if query else []),
    }
    media = ["application/json", "application/x-www-form-urlencoded"] if form else ["application/json"]
    return extend_schema(
        operation_id=name,
        summary=summary,
        tags=[tag],
        auth=[] if anonymous else None,
        request=dict.fromkeys(media, body) if body else None,
        parameters=[
            *(OpenApiParameter(key, field.schema, OpenApiParameter.QUERY) for key, field in (query or {}).items()),
            *(OpenApiParameter(key, schema, OpenApiParameter.HEADER) for key, schema in (headers or {}).items()),
            *_answer_headers(problems, paged="cursor" in (query or {}), good=min(answers)),
        ],
        responses={
            **answers,
            **{code: OpenApiResponse(_PROBLEM_REF, PROBLEMS[code]) for code in sorted(problems)},
        },
    )


def _answer_headers(problems: set[int], *, paged: bool, good: int) -> list[OpenApiParameter]:
    found = []
    if paged:
        said = 'The next page, as `<URL>; rel="next"`; absent on the last one.'
        found.append(_answer_header("Link", OpenApiTypes.STR, good, said))
    if 401 in problems:
        found.append(_answer_header("WWW-Authenticate", OpenApiTypes.STR, 401, "`Bearer`"))
    if 429 in problems:
        found.append(_answer_header("Retry-After", OpenApiTypes.INT, 429, "Seconds."))
    return found


def _answer_header(name: str, type: Any, code: int, said: str) -> OpenApiParameter:
    return OpenApiParameter(name, type, OpenApiParameter.HEADER, description=said, response=[code])


def complete(result: Json, **_: Any) -> Json:
    """Our last hand (its hook): the refusal's schema, no notes to itself, a body with required fields is required."""
    _drop_notes(result)
    result["components"]["schemas"]["Problem"] = PROBLEM
    for methods in result["paths"].values():
        for described in methods.values():
            content = described.get("requestBody", {}).get("content", {})
            if any("required" in media["schema"] for media in content.values()):
                described["requestBody"]["required"] = True
    return result


def _drop_notes(part: Any) -> None:
    if isinstance(part, dict):
        part.pop("x-spec-enum-id", None)
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _drop_notes(inner)


# -- the document and its page --------------------------------------------------------------------
@cache
def document() -> Json:
    """The whole description; made once, as it depends on the code alone."""
    generator = SchemaGenerator()
    return dict(generator.get_schema(request=None, public=True))


class Schema(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation(
        "get_schema", "This description.", tag="system", anonymous=True, refuses=(), answers={200: OpenApiTypes.OBJECT}
    )
    def get(self, request: Request) -> Response:
        return Response(document())


class Docs(SpectacularSwaggerSplitView):
    """The description as a page to try things on; all its parts are our own files."""

    url_name = "api-schema"
    template_name = "api/docs.html"
