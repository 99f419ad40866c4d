"""The only mouth to RQ besides the worker: rings the bell for a turn, once what it rings for is committed.

A bell carries an execution id and nothing else. One too many is harmless, a lost one costs a sweep, so a Redis that is away is
logged and never fails the work.
"""

from __future__ import annotations

import logging
from functools import partial

import django_rq
import redis
from django.db import transaction

log = logging.getLogger(__name__)

QUEUE = "turns"
ANSWER = "agents.worker.answer"


def ring_after_commit(execution_id: str) -> None:
    """Ring for this turn when the transaction is committed; not at all when it is rolled back."""
    transaction.on_commit(partial(ring, execution_id), robust=True)


def ring(execution_id: str) -> bool:
    """Ring now; False where Redis is away."""
    try:
        django_rq.get_queue(QUEUE, commit_mode="auto").enqueue_call(
            ANSWER, args=(execution_id,), job_id=execution_id, result_ttl=0, failure_ttl=60
        )
    except redis.RedisError as away:
        log.warning("no bell for %s, the sweep will find it: %s", execution_id, away)
        return False
    return True


def bells_waiting() -> int:
    """How many bells nobody has answered yet; 0 where Redis is away."""
    try:
        return int(django_rq.get_queue(QUEUE, commit_mode="auto").count)
    except redis.RedisError:
        return 0


def answers() -> bool:
    """Does Redis answer?"""
    try:
        return bool(django_rq.get_connection(QUEUE).ping())
    except redis.RedisError:
        return False
