"""How many requests somebody may send in a minute: counted in Redis for all web processes, here alone while it is away."""

from __future__ import annotations

import logging
from functools import cache

import redis
from django.conf import settings

log = logging.getLogger(__name__)

WINDOW = 60  # seconds
_own: dict[str, int] = {}  # of the window that is now, where Redis does not answer


@cache
def _redis() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5)


def wait(who: str, most: int, now: float) -> int:
    """Count a request of `who`; the seconds until the next minute where it is one too many, else 0."""
    window, into = divmod(int(now), WINDOW)
    key = f"trinity:rate:{window}:{who}"
    return WINDOW - into if _count(key) > most else 0


def _count(key: str) -> int:
    try:
        with _redis().pipeline() as pipeline:
            pipeline.incr(key)
            pipeline.expire(key, WINDOW * 2)
            return int(pipeline.execute()[0])
    except redis.RedisError as away:
        log.warning("requests are counted in this process alone: %s", away)
    if len(_own) > 10_000 or (_own and next(iter(_own)).split(":")[2] != key.split(":")[2]):
        _own.clear()
    _own[key] = _own.get(key, 0) + 1
    return _own[key]
