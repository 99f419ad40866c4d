"""The edge of the REST API: who calls, what a body may be, and how a refusal is worded. Knows no route."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, cast

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, QueryDict
from rest_framework import exceptions, status
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from agents import keys, refusals
from agents.access import Caller
from agents.models import User
from agents.refusals import Refused

if TYPE_CHECKING:
    from rest_framework.views import APIView  # it imports this module

THROUGH = "rest"
MOST_BYTES = 2 * 1024 * 1024  # of a body: the longest message, every sign of it escaped, fits


# -- who calls ------------------------------------------------------------------------------------
class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer KEY`. A bad one is refused, whatever session there is beside it."""

    def authenticate(self, request: Request) -> tuple[User, Caller] | None:
        header = get_authorization_header(request).split()
        if not header:
            return None
        if len(header) != 2 or header[0].lower() != b"bearer":
            raise exceptions.AuthenticationFailed("The Authorization header must be: Bearer KEY.")
        caller = keys.look_up(header[1].decode("latin-1"), THROUGH)
        if caller is None:
            raise exceptions.AuthenticationFailed("The key is not valid.")
        return caller.user, caller

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class SignedIn(BasePermission):
    """Whoever has shown a key or a session."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return request.user is not None


def caller_of(request: Request) -> Caller:
    """Who asks: the key's caller, or the person of the session."""
    if isinstance(request.auth, Caller):
        return request.auth
    return Caller(user=cast(User, request.user), through=THROUGH)


# -- what comes in --------------------------------------------------------------------------------
class StrictJSONParser(BaseParser):
    """JSON as the standard has it: UTF-8, no NaN or Infinity, no name twice. Nothing at all reads as `{}`."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = _read_bounded(stream)
        if not raw.strip():
            return {}
        try:
            return json.loads(raw.decode(), parse_constant=_no_constant, object_pairs_hook=_object)
        except (ValueError, RecursionError) as problem:
            raise exceptions.ParseError(f"The body is not valid JSON: {_reason(problem)}.") from problem


class FormParser(BaseParser):
    """A form as a browser or curl sends it."""

    media_type = "application/x-www-form-urlencoded"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return QueryDict(_read_bounded(stream), encoding="utf-8").dict()


def _read_bounded(stream: IO[bytes]) -> bytes:
    raw = stream.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise Refused(status.HTTP_413_REQUEST_ENTITY_TOO_LARGE, f"The body must have at most {MOST_BYTES:,} bytes.")
    return raw


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    if any("\ud800" <= sign <= "\udfff" for name in found if not name.isascii() for sign in name):
        raise ValueError("a name has broken characters")
    return found


def _reason(problem: Exception) -> str:
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(problem).rstrip(".")


def body_of(request: Request) -> dict[str, Any]:
    """The fields of the body. Read it after the verdict on the caller, since a bad body is refused here."""
    if "HTTP_TRANSFER_ENCODING" in request.META and not request.META.get("CONTENT_LENGTH"):
        # The framework takes a body without a length for none at all: better said than read as `{}`.
        raise Refused(status.HTTP_411_LENGTH_REQUIRED, "Send the body with a Content-Length, not in chunks.")
    body = request.data
    if not isinstance(body, dict):
        raise Refused(400, "The body must be a JSON object.")
    return body


class AlwaysJson(DefaultContentNegotiation):
    """Answers are JSON whatever `Accept` says: a client with odd headers gets its answer, not a 406."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


# -- what goes out in place of an answer -----------------------------------------------------------
def answer_problem(problem: Exception, context: dict[str, Any]) -> Response | None:
    """Word a refusal: `{"detail": sentence, "errors": {field: [sentence]}, …facts}`. None = our own fault, a 500."""
    refused = _as_refused(problem)
    if refused is None:
        return None
    body = {"detail": refused.detail, "errors": refused.errors, **refused.facts}
    return Response(body, status=refused.status, headers=_headers(problem, refused))


def _as_refused(problem: Exception) -> Refused | None:
    match problem:
        case Refused():
            return problem
        case exceptions.APIException():
            return Refused(problem.status_code, _sentence(problem))
        case Http404():
            return refusals.unknown("This address was")
        case PermissionDenied():
            return refusals.forbidden()
        case RequestDataTooBig():
            return Refused(status.HTTP_413_REQUEST_ENTITY_TOO_LARGE, "The body is too large.")
        case SuspiciousOperation():
            return Refused(400, "The request cannot be read.")
    return None


def _sentence(problem: exceptions.APIException) -> str:
    if isinstance(problem, exceptions.NotAuthenticated):
        return "Sign in first: send Authorization: Bearer KEY."
    if isinstance(problem, exceptions.UnsupportedMediaType):
        return "Send the body as JSON, with Content-Type: application/json."
    return str(problem.detail)


def _headers(problem: Exception, refused: Refused) -> dict[str, str]:
    headers: dict[str, str] = {}
    if refused.status == status.HTTP_401_UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    retry_after = refused.retry_after
    if isinstance(problem, exceptions.Throttled):
        retry_after = max(1, round(getattr(problem, "wait", None) or 0))
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return headers
