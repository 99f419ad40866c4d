"""Single turns over REST: tasks, chats, and the ledger as everybody may see it."""

import threading

import pytest
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.utils import timezone

from agents import executions
from agents.api import turns
from agents.models import Audit, CallPermission, Execution, Share
from tests.conftest import caller, make_agent
from tests.ledger import OWNER, bad, claim, ok, play, start
from tests.rest import Rest, agent_key, person

TASK = "/api/agents/falcon/task"
CHAT = "/api/agents/falcon/chat"  # gives its connection back, so tests of it cannot be inside a transaction


def ids(answer):
    assert answer.status_code == 200, answer.content
    return [row["execution_id"] for row in answer.json()]


# -- tasks ------------------------------------------------------------------------------------------
def test_a_task_is_put_in_the_agents_line(cast):
    body = {"message": "look", "model": "small", "timeout_seconds": 10, "allowed_tools": []}
    answer = person(cast.bob).post(TASK, body)
    assert answer.status_code == 202
    turn = Execution.objects.get()
    assert answer.json() == {"execution_id": turn.pk, "status": "queued"}
    assert (turn.message, turn.model, turn.timeout_seconds, turn.allowed_tools) == ("look", "small", 10, [])
    assert (turn.triggered_by, turn.requested_by, turn.loop_id) == ("manual", "bob", "")
    assert Audit.objects.get(action="execution.start").target == turn.pk


def test_what_is_not_sent_is_the_agents_own(cast):
    person(cast.alice).post(TASK, {"message": "look", "allowed_tools": None})
    turn = Execution.objects.get()
    assert (turn.model, turn.timeout_seconds, turn.allowed_tools) == ("", None, None)


def test_a_task_of_an_agent_is_told_apart(cast):
    heron = make_agent(cast.alice, "heron")
    assert agent_key(heron).post(TASK, {"message": "look"}).status_code == 403
    CallPermission.objects.create(caller=heron, target=cast.falcon)
    assert agent_key(heron).post(TASK, {"message": "look"}).status_code == 202
    turn = Execution.objects.get()
    assert (turn.triggered_by, turn.requested_by) == ("agent", "agent:heron")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, {"message"}),
        ({"message": None}, {"message"}),
        ({"message": " \n"}, {"message"}),
        ({"message": "x" * 100_001}, {"message"}),
        ({"message": "a\0b"}, {"message"}),
        ({"message": "\ud800"}, {"message"}),
        ({"message": "x", "timeout_seconds": 9}, {"timeout_seconds"}),
        ({"message": "x", "timeout_seconds": 7201}, {"timeout_seconds"}),
        ({"message": "x", "timeout_seconds": 10.0}, {"timeout_seconds"}),
        ({"message": "x", "allowed_tools": "Read"}, {"allowed_tools"}),
        ({"message": "x", "allowed_tools": ["a,b"]}, {"allowed_tools"}),
        ({"message": "x", "allowed_tools": [" "]}, {"allowed_tools"}),
        ({"message": "x", "max_runs": 5, "loop": True}, {"max_runs", "loop"}),
    ],
)
def test_bad_tasks_are_refused_by_field(cast, body, named):
    answer = person(cast.alice).post(TASK, body)
    assert answer.status_code == 400 and set(answer.json()["errors"]) == named
    assert not Execution.objects.exists()


def test_a_task_longer_than_the_agent_allows_is_told_the_limit(cast):
    answer = person(cast.alice).post(TASK, {"message": "x", "timeout_seconds": 3601})
    assert answer.status_code == 400
    said = answer.json()
    assert (said["agent_cap_seconds"], said["requested_seconds"]) == (3600, 3601)
    assert person(cast.alice).post(TASK, {"message": "x", "timeout_seconds": 3600}).status_code == 202


@pytest.mark.django_db(transaction=True)
def test_an_agent_that_does_not_run_takes_no_work(cast):
    alice = person(cast.alice)
    alice.post("/api/agents/falcon/stop")
    for path in (TASK, CHAT):
        answer = alice.post(path, {"message": "x"})
        assert answer.status_code == 409 and "not running" in answer.json()["detail"]
    assert not Execution.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_strangers_and_clients_give_no_work(cast):
    for path in (TASK, CHAT):
        assert person(cast.carol).post(path, {"message": "x"}).status_code == 403
        assert person(cast.dora).post(path, {"message": "x"}).status_code == 404
    assert not Execution.objects.exists()
    assert Audit.objects.filter(action="execution.start", verdict="refused").count() == 4


# -- chats ------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_a_chat_that_takes_too_long_is_a_receipt(cast, monkeypatch):
    monkeypatch.setattr(turns, "CHAT_WAITS", 0.2)
    answer = person(cast.alice).post(CHAT, {"message": "x"})
    assert answer.status_code == 202
    assert answer.json() == {"execution_id": Execution.objects.get().pk, "status": "queued"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("body", [{}, {"message": ""}, {"message": "x", "model": "small"}])
def test_a_chat_takes_a_message_and_nothing_else(cast, body):
    assert person(cast.alice).post(CHAT, body).status_code == 400


def _chat_that_ends_with(cast, result):
    """The answer to a chat whose turn is ended while it waits."""
    asked, answers = threading.Event(), []

    def committed(**_):
        transaction.on_commit(asked.set)

    def ask():
        try:
            answers.append(alice.post(CHAT, {"message": "hello"}))
        finally:
            connection.close()

    alice = person(cast.alice)
    post_save.connect(committed, sender=Execution)
    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(10), "the chat asked for no turn"
    post_save.disconnect(committed, sender=Execution)
    executions.finish(claim(cast.falcon, timezone.now()), result, OWNER, timezone.now(), keep_slot=False)
    thread.join(10)
    return answers[0]


@pytest.mark.django_db(transaction=True)
def test_a_chat_waits_for_the_response(cast):
    answer = _chat_that_ends_with(cast, ok("hi there", cost="0.25"))
    turn = Execution.objects.get()
    assert answer.status_code == 200
    assert answer.json() == {"response": "hi there", "execution_id": turn.pk, "cost": 0.25}
    assert turn.triggered_by == "chat"


@pytest.mark.django_db(transaction=True)
def test_a_chat_whose_turn_fails_says_why(cast):
    answer = _chat_that_ends_with(cast, bad("the disk is full"))
    assert answer.status_code == 502
    said = answer.json()
    assert (said["detail"], said["errors"], said["cost"]) == ("the disk is full", {}, None)
    assert said["execution_id"] == Execution.objects.get().pk


# -- the ledger -------------------------------------------------------------------------------------
@pytest.fixture
def ledger(cast, now):
    """Three tasks of falcon, a loop run of heron (alice's too), a task of magpie (carol's)."""
    for message in ("first", "second needle", "third"):
        person(cast.alice).post(TASK, {"message": message})
    cast.heron, cast.magpie = make_agent(cast.alice, "heron"), make_agent(cast.carol, "magpie")
    cast.loop = start(caller(cast.alice), cast.heron, now, max_runs=1)
    person(cast.carol).post("/api/agents/magpie/task", {"message": "fourth"})
    return cast


def test_everyone_lists_what_they_may_read_newest_first(ledger):
    newest = list(Execution.objects.order_by("-pk").values_list("pk", flat=True))
    assert ids(person(ledger.root).get("/api/executions")) == newest
    assert ids(person(ledger.alice).get("/api/executions")) == newest[1:]
    assert ids(person(ledger.bob).get("/api/executions")) == newest[2:]
    assert ids(person(ledger.carol).get("/api/executions")) == newest[:1]
    assert ids(person(ledger.dora).get("/api/executions")) == []
    assert ids(agent_key(ledger.heron).get("/api/executions")) == newest[1:2]
    assert ids(person(ledger.bob).get("/api/agents/falcon/executions")) == newest[2:]


def test_filters_narrow_the_list(ledger):
    alice = person(ledger.alice)

    def count(**query):
        return len(ids(alice.get("/api/executions", **query)))

    assert count(agent="falcon") == 3 and count(agent="magpie") == 0 and count(agent="nobody") == 0
    assert count(triggered_by="loop") == count(loop_id=ledger.loop.pk) == 1
    assert count(triggered_by="manual", status="queued") == 3 and count(status="failed") == 0
    assert count(search="NEEDLE") == 1 and count(search="second%") == 0
    assert count(search=Execution.objects.filter(agent=ledger.falcon).first().pk) == 1


def test_pages_follow_each_other_without_gap_or_repeat(ledger):
    alice, seen, url, pages = person(ledger.alice), [], "/api/executions?limit=2&agent=falcon", 0
    there = list(Execution.objects.filter(agent=ledger.falcon).order_by("-pk").values_list("pk", flat=True))
    while url:
        answer = alice.client.get(url)
        seen += ids(answer)
        link = answer.headers.get("Link")
        assert link is None or link.endswith('; rel="next"')
        url, pages = link and link[1:].partition(">")[0], pages + 1
        alice.post(TASK, {"message": "a new one moves no page"})
    assert (seen, pages) == (there, 2)


def test_a_list_holds_beginnings_and_one_execution_the_whole(cast, now):
    person(cast.alice).post(TASK, {"message": "m" * 5000})
    play(cast.falcon, now, ok("r" * 5000, cost="0.000001"))
    row = person(cast.alice).get("/api/executions").json()[0]
    assert (len(row["message_preview"]), len(row["response_preview"])) == (500, 500)
    assert "message" not in row and "response" not in row
    whole = person(cast.alice).get(f"/api/executions/{row['execution_id']}").json()
    assert (len(whole["message"]), len(whole["response"])) == (5000, 5000)
    assert (whole["status"], whole["cost"], whole["duration_ms"], whole["error"]) == ("success", 0.000001, 5, None)
    assert (whole["loop_id"], whole["model"], whole["response_truncated"]) == (None, None, False)
    assert whole["started_at"].endswith("Z") and whole["completed_at"].endswith("Z")


def test_listing_takes_two_queries_however_long_it_is(cast, django_assert_num_queries):
    alice = person(cast.alice)
    for count in (1, 20):
        for _ in range(count):
            alice.post(TASK, {"message": "x"})
        with django_assert_num_queries(2):
            alice.get("/api/executions", limit=200)


def test_an_execution_follows_its_agents_verdict(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    turn = Execution.objects.get()
    for who, status in ((cast.alice, 200), (cast.bob, 200), (cast.root, 200), (cast.carol, 403), (cast.dora, 404)):
        answer = person(who).get(f"/api/executions/{turn.pk}")
        assert answer.status_code == status, who
        if status != 200:
            assert "falcon" not in answer.content.decode() and "work" not in answer.content.decode()
        assert person(who).get("/api/executions/exec_nothere").status_code == 404
    assert agent_key(cast.falcon).get(f"/api/executions/{turn.pk}").json()["loop_id"] == turn.loop_id
    assert person(cast.dora).get("/api/agents/falcon/executions").status_code == 404
    assert person(cast.carol).get("/api/agents/falcon/executions").status_code == 403


def test_a_share_that_is_gone_takes_the_executions_with_it(cast):
    bob = person(cast.bob)
    bob.post(TASK, {"message": "x"})
    Share.objects.all().delete()
    assert bob.get(f"/api/executions/{Execution.objects.get().pk}").status_code == 403
    assert ids(bob.get("/api/executions")) == []


def test_the_owner_keeps_the_executions_of_a_deleted_agent(cast):
    alice = person(cast.alice)
    alice.post(TASK, {"message": "x"})
    alice.delete("/api/agents/falcon")
    turn = Execution.objects.get()
    assert ids(alice.get("/api/executions")) == [turn.pk]
    assert alice.get(f"/api/executions/{turn.pk}").json()["status"] == "cancelled"
    assert person(cast.bob).get(f"/api/executions/{turn.pk}").status_code == 403
    assert ids(person(cast.bob).get("/api/executions")) == []


# -- cancelling -------------------------------------------------------------------------------------
def test_a_queued_turn_is_cancelled_at_once_and_a_running_one_soon(cast, now):
    alice = person(cast.alice)
    for _ in range(2):
        alice.post(TASK, {"message": "x"})
    running = claim(cast.falcon, now).execution
    queued = Execution.objects.get(state="queued")
    for turn, status, word in ((running, 202, "cancelling"), (queued, 200, "cancelled"), (queued, 200, "already_done")):
        answer = alice.post(f"/api/executions/{turn.pk}/cancel")
        assert (answer.status_code, answer.json()) == (status, {"execution_id": turn.pk, "status": word})
    assert Execution.objects.get(pk=running.pk).cancelled_by == "alice"
    assert set(Audit.objects.filter(action="execution.cancel").values_list("target", flat=True)) == {
        running.pk,
        queued.pk,
    }


def test_cancelling_a_run_fails_its_loop(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    answer = person(cast.bob).post(f"/api/executions/{Execution.objects.get().pk}/cancel")
    assert answer.json()["status"] == "cancelled"
    loop.refresh_from_db()
    assert (loop.status, loop.stop_reason) == ("failed", "error")


def test_who_may_not_read_a_turn_does_not_cancel_it(cast):
    person(cast.alice).post(TASK, {"message": "x"})
    turn = Execution.objects.get()
    for who, status in ((person(cast.carol), 403), (person(cast.dora), 404), (Rest(), 401)):
        assert who.post(f"/api/executions/{turn.pk}/cancel").status_code == status
    turn.refresh_from_db()
    assert (turn.state, turn.cancelled_by) == ("queued", "")
    assert Audit.objects.filter(action="execution.cancel", actor="carol", verdict="refused", target=turn.pk).exists()
