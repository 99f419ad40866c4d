"""Routes of who is there: a token for a password, the caller, the ways to sign in, and the installation's health."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import audit, health, keys, signing_in
from agents.access import Caller
from agents.api import answers
from agents.api.inputs import body_schema, read_body, text
from agents.api.openapi import operation
from agents.refusals import Refused
from agents.rest import THROUGH, FormParser, StrictJSONParser, body_of, caller_of

TOKEN_LASTS = timedelta(hours=24)
CREDENTIALS = {"username": text(150, least=1, required=True), "password": text(1000, least=1, required=True)}


class Anonymous(APIView):
    """A route for which nobody has to sign in."""

    authentication_classes = ()
    permission_classes = (AllowAny,)


class TokenView(Anonymous):
    parser_classes = (StrictJSONParser, FormParser)

    @operation(
        "create_token",
        "A bearer key for a day, for a username and password.",
        tag="people",
        anonymous=True,
        body=body_schema(CREDENTIALS),
        form=True,
        refuses=(401, 429),
        answers={200: answers.Token},
    )
    def post(self, request: Request) -> Response:
        given = read_body(body_of(request), CREDENTIALS)
        user = signing_in.person_of(request._request, given["username"], given["password"], THROUGH)
        if user is None:
            raise Refused(401, signing_in.WRONG)
        with transaction.atomic():
            key, secret = keys.issue(user, name="signed in", expires_at=timezone.now() + TOKEN_LASTS)
            audit.allowed(user.username, THROUGH, "key.create", str(key.pk), "signed in")
        return Response({"access_token": secret, "token_type": "bearer"})


class MeView(APIView):
    @operation("get_me", "The caller.", tag="people", refuses=(), answers={200: answers.Me})
    def get(self, request: Request) -> Response:
        return Response(answers.Me(_me(caller_of(request))).data)


def _me(caller: Caller) -> dict[str, Any]:
    user = caller.user
    return {
        "username": user.username,
        "name": user.get_full_name() or user.username,
        "email": user.email,
        "role": "admin" if caller.is_admin else "client" if caller.is_client else "user",
        "agent": caller.agent.name if caller.agent else None,
    }


class AuthModeView(Anonymous):
    @operation(
        "get_auth_mode", "How to sign in.", tag="people", anonymous=True, refuses=(), answers={200: answers.SignInModes}
    )
    def get(self, request: Request) -> Response:
        return Response({"modes": ["password", "key"]})


class HealthView(Anonymous):
    @operation(
        "get_health",
        "Whether database, Redis and workers answer.",
        tag="system",
        anonymous=True,
        refuses=(),
        answers={200: answers.Health, 503: answers.Health},
    )
    def get(self, request: Request) -> Response:
        whole, parts = health.report()
        return Response(parts, status=200 if whole else 503)
