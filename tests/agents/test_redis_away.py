"""Redis is away: nothing is lost, nothing fails, and health says so."""

import asyncio
import time

import pytest
import redis
from django.conf import settings

from agents import health, hints, queue
from agents.models import Execution, Worker
from loops.models import Loop
from tests.conftest import caller
from tests.ledger import ok, play, start


@pytest.fixture
def away(monkeypatch):
    """Every connection that the product opens leads nowhere."""
    monkeypatch.setitem(settings.RQ_QUEUES["turns"], "URL", "unix:///nowhere/redis.sock")
    monkeypatch.setattr("django_rq.settings.QUEUES", settings.RQ_QUEUES)


def test_a_bell_that_cannot_ring_says_so_and_raises_nothing(away, caplog):
    assert queue.ring("exec_x") is False and queue.bells_waiting() == 0 and not queue.answers()
    assert "exec_x" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_loop_can_be_started_and_run_without_redis(away, cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=2)
    play(cast.falcon, now, ok("a"), ok("b"))
    assert Loop.objects.get(pk=loop.pk).status == "completed" and Execution.objects.count() == 2


def test_health_names_the_part_that_is_down(away, db, now):
    Worker.objects.create(owner="a/b/1/1", slots=1, seen_at=now)
    whole, parts = health.report()
    assert not whole and parts == {"status": "down", "database": "ok", "redis": "down", "workers": 1}


def test_health_wants_a_worker_that_was_heard_lately(db, now):
    assert health.report() == (False, {"status": "down", "database": "ok", "redis": "ok", "workers": 0})
    Worker.objects.create(owner="a/b/1/1", slots=1, seen_at=now)
    assert health.report() == (True, {"status": "ok", "database": "ok", "redis": "ok", "workers": 1})


def test_a_hint_that_cannot_be_sent_fails_nothing(caplog, monkeypatch):
    class Nowhere:
        async def group_send(self, group, message):
            raise redis.ConnectionError("nowhere")

    monkeypatch.setattr(hints, "get_channel_layer", Nowhere)
    publisher = hints._Publisher()
    publisher.send({"what": "beat"})
    limit = time.monotonic() + 5
    while publisher.pending and time.monotonic() < limit:
        time.sleep(0.01)
    assert publisher.pending == 0 and "hints are lost: nowhere" in caplog.text


def test_hints_do_not_pile_up_where_redis_hangs(monkeypatch):
    class Hanging:
        async def group_send(self, group, message):
            await asyncio.sleep(60)

    monkeypatch.setattr(hints, "get_channel_layer", Hanging)
    publisher = hints._Publisher()
    for _ in range(hints.MOST_PENDING + 500):
        publisher.send({"what": "beat"})
    assert publisher.pending == hints.MOST_PENDING
