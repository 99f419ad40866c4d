"""The sweep's duties, one by one: lost bells, vanished hosts, orphans, left folders; and that one failing spares the others."""

import os
import subprocess
import sys
from datetime import timedelta

import django_rq
import pytest
from django.conf import settings

from agents import executions, owner, queue, sweep, worker
from agents.executions import NewTurn
from agents.harness import process
from agents.models import Execution, Worker
from tests.ledger import OWNER, ok


@pytest.fixture
def turn(cast, now):
    new = NewTurn(agent_id=cast.falcon.pk, triggered_by="manual", requested_by="alice", message="x")
    return executions.submit(new, now)


@pytest.fixture
def bells(valkey):
    found = django_rq.get_queue(queue.QUEUE)
    found.empty()
    yield found
    found.empty()


def test_a_young_turn_is_not_rung_for_again_and_an_old_one_is(turn, bells, now):
    sweep.ring_lost_bells(now + timedelta(seconds=1))
    assert bells.count == 0
    sweep.ring_lost_bells(now + timedelta(seconds=3))
    assert bells.job_ids == [turn.pk]


def test_no_more_bells_are_rung_than_can_be_answered(turn, bells, now, monkeypatch):
    monkeypatch.setattr(sweep, "MOST_BELLS", 1)
    for _ in range(3):
        sweep.ring_lost_bells(now + timedelta(seconds=3))
    assert bells.count == 1


def test_turns_of_a_host_without_a_living_worker_are_put_back(turn, now):
    executions.claim(turn.pk, "elsewhere/boot/1/1", now)
    Worker.objects.create(owner="elsewhere/boot/1/1", slots=1, seen_at=now)
    sweep.reclaim_lost(now + timedelta(seconds=9))
    assert Execution.objects.get().state == "running"
    sweep.reclaim_lost(now + timedelta(seconds=11))
    assert Execution.objects.get().state == "queued"


def test_turns_of_this_host_are_left_to_its_workers_however_late(turn, now):
    executions.claim(turn.pk, f"{owner.host()}/boot/1/1", now)
    sweep.reclaim_lost(now + timedelta(days=1))
    assert Execution.objects.get().state == "running"


def test_workers_that_were_not_heard_for_long_are_forgotten(db, now):
    Worker.objects.create(owner="a/b/1/1", slots=1, seen_at=now - timedelta(seconds=61))
    Worker.objects.create(owner="a/b/2/2", slots=1, seen_at=now)
    sweep.forget_dead_workers(now)
    assert Worker.objects.get().owner == "a/b/2/2"


def test_processes_of_turns_that_are_over_are_ended_and_of_others_spared(turn, cast, now):
    def marked(execution_id):
        mark = {**os.environ, "TRINITY_EXECUTION_ID": execution_id}
        return subprocess.Popen(["sleep", "60"], env=mark, start_new_session=True)

    held = executions.claim(turn.pk, OWNER, now)
    child, stranger = marked(turn.pk), marked("exec_of_another_installation")
    try:
        sweep.end_orphans(now)
        assert child.poll() is None
        executions.finish(held, ok(), OWNER, now)
        sweep.end_orphans(now)
        assert child.poll() is None  # its worker is still at it
        sweep.end_orphans(now + timedelta(seconds=11))
        assert child.wait(5) == -15 and stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_what_an_agent_may_keep_running_is_spared(turn, cast, now):
    cast.falcon.keep_background = True
    cast.falcon.save()
    executions.finish(executions.claim(turn.pk, OWNER, now), ok(), OWNER, now)
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, "TRINITY_EXECUTION_ID": turn.pk})
    try:
        sweep.end_orphans(now + timedelta(minutes=1))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_folders_of_turns_that_are_over_are_removed(turn, now):
    held = executions.claim(turn.pk, OWNER, now)
    folder = worker.run_folder(turn.pk, 1)
    folder.mkdir(parents=True)
    sweep.clear_run_folders(now + timedelta(minutes=1))
    assert folder.exists()
    executions.finish(held, ok(), OWNER, now)
    sweep.clear_run_folders(now)
    assert folder.exists()
    sweep.clear_run_folders(now + timedelta(minutes=1))
    assert not folder.parent.exists()


def test_output_that_nobody_watches_is_bounded_once_the_worker_is_dead(turn, now):
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    held_by = f"{owner.host()}/{process.boot_id()}/{dead.pid}/{process.start_time(dead.pid)}"
    dead.wait()
    executions.claim(turn.pk, held_by, now)
    folder = worker.run_folder(turn.pk, 1)
    folder.mkdir(parents=True)
    with (folder / "out").open("wb") as out:
        out.write(b"x" * (40 << 20))
    sweep.bound_unwatched(now)
    assert (folder / "out").stat().st_blocks * 512 <= 33 << 20 and (folder / "out").stat().st_size == 40 << 20


@pytest.mark.django_db(transaction=True)
def test_a_duty_that_fails_does_not_keep_the_others_from_theirs(turn, bells, now, monkeypatch, caplog):
    def broken(now):
        raise OSError("out of order")

    monkeypatch.setattr(sweep, "FAST", (broken, *sweep.FAST))
    sweep.sweep_once(now + timedelta(seconds=3), slow=False)
    assert bells.count == 1 and "out of order" in caplog.text


def test_an_idle_sweep_writes_nothing(db, now, django_assert_max_num_queries):
    with django_assert_max_num_queries(12) as found:
        sweep.sweep_once(now, slow=False)
    assert not [query for query in found.captured_queries if not query["sql"].startswith("SELECT")]
    assert settings.SWEEP_DUTIES
