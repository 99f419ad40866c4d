"""`manage.py up`: everything that a person needs on one machine, until Ctrl-C."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from trinity import data_folder, redis_server
from trinity.installation import Installation, notice
from trinity.options import whole_number

BACKLOG = 512  # connections that wait while the web server is started again


class CannotListen(Exception):
    """The address is taken, or is not one of this machine; the reason in one sentence."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises CannotListen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as reason:
        if reason.errno == errno.EADDRINUSE:
            raise CannotListen(f"port {port} on {host} is already in use: choose another one with --port") from reason
        raise CannotListen(f"cannot listen on {host}, port {port}: {reason.strerror}") from reason
    return listener


class Command(BaseCommand):
    help = (
        "Runs the whole product on this machine: web, workers, sweep, and an embedded Valkey unless REDIS_URL is set."
    )
    requires_system_checks: list[str] = []  # they load every page's code, which this process never needs

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default=settings.TRINITY_HOST, help="address to listen on (%(default)s)")
        parser.add_argument(
            "--port",
            type=whole_number(0, 65535),
            default=settings.TRINITY_PORT,
            help="0 takes a free one (%(default)s)",
        )
        parser.add_argument("--workers", type=whole_number(1, 64), default=4, help="worker processes (%(default)s)")
        parser.add_argument("--no-demo", action="store_true", help="begin with an empty database")

    def handle(self, *, host: str, port: int, workers: int, no_demo: bool, **options: Any) -> None:
        try:
            lock = data_folder.take(settings.TRINITY_DATA, on_wait=self._tell_of_waiting)
            installation = Installation(host, listen(host, port), lock, workers, demo=not no_demo)
            code = installation.run()
        except CannotListen as problem:
            data_folder.leave_unused(settings.TRINITY_DATA)
            sys.exit(f"error: {problem}")
        except (data_folder.FolderInUse, redis_server.CannotServe) as problem:
            sys.exit(f"error: {problem}")
        sys.exit(code)

    def _tell_of_waiting(self) -> None:
        notice(f"waiting for what is left of an earlier start on {settings.TRINITY_DATA}")
