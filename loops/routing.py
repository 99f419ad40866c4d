"""The sockets' addresses."""

from channels.routing import URLRouter
from django.urls import path, re_path

from agents.sockets import Door
from loops.event_socket import EventsConsumer
from loops.page_socket import LoopsPageConsumer
from loops.sockets import UnknownSocket

sockets = Door(
    URLRouter(
        [
            path("ws/events", EventsConsumer.as_asgi()),
            path("ws/agents/<str:name>/loops/", LoopsPageConsumer.as_asgi()),
            re_path(r"", UnknownSocket.as_asgi()),
        ]
    )
)
