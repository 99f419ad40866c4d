"""What has to be done before the product can run: reach both servers, bring the tables up to date, show something on the first start.

It runs in a child of `up`, which thereby keeps neither a database connection nor a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connection

from trinity import redis_server

PATIENCE = 5  # seconds for a server that somebody else runs
EMBEDDED_PATIENCE = 30.0  # seconds: after a crash it may have a long log to read
_MIGRATING = 0x7472696E697479  # the advisory lock's number, any that nobody else uses


class NotReady(Exception):
    """A server that is needed does not answer; the message names the variable to look at."""


def take(demo: bool) -> None:
    """Do all of it; raises NotReady."""
    embedded = settings.REDIS_EMBEDDED_SOCKET
    if embedded is None:
        _reach_redis()
    _reach_database()
    with _alone():
        call_command("migrate", verbosity=0, interactive=False, skip_checks=True)
        if embedded is not None:
            _await_redis(embedded)
        if demo and not get_user_model().objects.exists():
            call_command("seed")


def _reach_redis() -> None:
    try:
        redis_server.ping(settings.REDIS_URL, timeout=PATIENCE)
    except (redis.RedisError, ValueError) as reason:
        raise NotReady(f"REDIS_URL: the Redis server does not answer: {reason}") from reason


def _await_redis(address: Path) -> None:
    try:
        redis_server.wait_until_ready(address, EMBEDDED_PATIENCE)
    except redis_server.CannotServe as reason:
        raise NotReady(
            f"{reason} (its files hold only hints: {settings.TRINITY_DATA}/redis may be deleted)"
        ) from reason


def _reach_database() -> None:
    """Connect once by the driver itself, as the pool would wait much longer before it says why."""
    if connection.vendor != "postgresql":
        return _reach_file()
    import psycopg  # here, as nobody with SQLite needs it

    try:
        psycopg.connect(**{**connection.get_connection_params(), "connect_timeout": PATIENCE}).close()
    except psycopg.Error as reason:
        raise NotReady(f"DATABASE_URL: the database does not answer: {' '.join(str(reason).split())}") from reason


def _reach_file() -> None:
    try:
        Path(connection.settings_dict["NAME"]).touch(mode=0o600)  # its log files take the mode over
        connection.ensure_connection()
    except (DatabaseError, OSError) as reason:
        raise NotReady(
            f"TRINITY_DATA: the database file in {settings.TRINITY_DATA} cannot be used: {reason}"
        ) from reason


@contextmanager
def _alone() -> Iterator[None]:
    """Keep others, who start on the same PostgreSQL from other hosts, from migrating and seeding at the same time."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_MIGRATING])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_MIGRATING])
