"""The route by which a command-line client gets a key for MCP beside its session: one per person, told once."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents import access, grants
from agents.access import Caller
from agents.api.openapi import operation
from agents.models import User
from agents.rest import caller_of

NAME = "MCP (made by a client)"


class DefaultKey(serializers.Serializer[Any]):
    api_key = serializers.CharField(
        allow_null=True, help_text="Null: the caller has this key already, and no secret is told twice."
    )


class DefaultKeyView(APIView):
    @operation(
        "ensure_default_key",
        "Make the caller's key for MCP clients, unless there is one that still opens.",
        tag="access",
        refuses=(403,),
        answers={200: DefaultKey, 201: DefaultKey},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        access.demand(access.hold_keys(caller), caller, "key.create", "", "Key")
        secret = _make_unless_there(caller)
        return Response({"api_key": secret}, status=200 if secret is None else 201)


def _make_unless_there(caller: Caller) -> str | None:
    """The new key's secret; None where a key of that name still opens. The person's row keeps two calls from making two."""
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=caller.user.pk)
        opens = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
        if grants.keys_of_person(caller.user).filter(opens, agent=None, name=NAME).exists():
            return None
        return grants.create_key(caller, name=NAME)[1]
