"""The route of what was said with an agent: its chats as one conversation, the newest last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models.functions import Left
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import answers, doors
from agents.api.inputs import DEFAULT_ROWS, Json, cursor, limit, next_page, read_query
from agents.api.openapi import operation
from agents.models import Execution

MOST_SHOWN = 4_000  # characters of one message: a page of the longest ones is still an answer and no download
QUERY = {"limit": limit(), "cursor": cursor()}


class ChatMessage(serializers.Serializer[Any]):
    timestamp = answers.Time(allow_null=False)
    role = serializers.ChoiceField(
        choices=["user", "assistant", "error"], help_text="`error`: the turn gave no answer, and why."
    )
    by = serializers.CharField(help_text="A username, or agent:NAME.")
    content = serializers.CharField(
        help_text=f"The first {MOST_SHOWN:,} characters, `…` behind them where it is longer."
    )
    execution_id = serializers.CharField(help_text="The turn, which has the whole of it.")


class ChatHistoryView(APIView):
    @operation(
        "list_chat_history",
        "What was said in the agent's latest chats, newest last; `limit` counts turns, the next page goes back in time.",
        tag="executions",
        query=QUERY,
        answers={200: ChatMessage(many=True)},
    )
    def get(self, request: Request, name: str) -> Response:
        _, agent = doors.to_use(request, name, "execution.read")
        query = read_query(request, QUERY)
        rows = Execution.objects.filter(agent=agent, triggered_by=Execution.Trigger.CHAT)
        if "cursor" in query:
            rows = rows.filter(pk__lt=query["cursor"])
        size = query.get("limit", DEFAULT_ROWS)
        found = list(
            rows.annotate(asked=Left("message", MOST_SHOWN + 1), answered=Left("response", MOST_SHOWN + 1))
            .defer("message", "response", "late_result", "usage", "variables")
            .order_by("-pk")[: size + 1]
        )
        said = [message for turn in reversed(found[:size]) for message in _said(turn, agent.name)]
        return Response(
            ChatMessage(said, many=True).data, headers=next_page(request, found, size, lambda row: str(row.pk))
        )


def _said(turn: Any, agent: str) -> Iterator[Json]:
    """A turn as a conversation has it: the message, and once it is over its answer or why there is none."""
    yield _message(turn, turn.created_at, "user", turn.requested_by, turn.asked)
    if turn.state == Execution.State.SUCCESS:
        yield _message(turn, turn.finished_at, "assistant", f"agent:{agent}", turn.answered)
    elif turn.is_over:
        yield _message(turn, turn.finished_at, "error", f"agent:{agent}", turn.error or f"The turn was {turn.state}.")


def _message(turn: Execution, timestamp: Any, role: str, by: str, text: str) -> Json:
    content = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return {"timestamp": timestamp, "role": role, "by": by, "content": content, "execution_id": turn.pk}
