"""The routes that a command-line client of the field needs beside ours: chat history, health, and a key for MCP."""

import contextlib
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from agents import executions, grants
from agents.api import chat_history, default_key, monitoring
from agents.api.monitoring import Load, health_of
from agents.executions import NewTurn
from agents.models import Agent, Audit, CallPermission, Key, Worker
from tests.conftest import caller, make_agent
from tests.ledger import OWNER, bad, claim, ok, play, start
from tests.rest import Rest, agent_key, person

HISTORY = "/api/agents/falcon/chat/history"
FLEET = "/api/monitoring/status"
ONE = "/api/monitoring/agents/falcon"
KEY = "/api/mcp/keys/ensure-default"


def ask(agent, message, now, *, by="alice", trigger="chat"):
    """A turn that waits in the agent's line."""
    return executions.submit(NewTurn(agent_id=agent.pk, triggered_by=trigger, requested_by=by, message=message), now)


def chat(agent, message, result, now, **more):
    """A turn that has been asked for and has ended like this."""
    turn = ask(agent, message, now, **more)
    play(agent, now, result)
    return turn


def brief(answer):
    assert answer.status_code == 200, answer.content
    return [(line["role"], line["by"], line["content"]) for line in answer.json()]


# -- chat history -----------------------------------------------------------------------------------
def test_the_history_is_a_conversation_with_the_newest_last(cast, now):
    first = chat(cast.falcon, "hello", ok("hi there"), now)
    chat(cast.falcon, "and now?", bad("the disk is full"), now, by="bob")
    ask(cast.falcon, "still there?", now)
    answer = person(cast.bob).get(HISTORY)
    assert brief(answer) == [
        ("user", "alice", "hello"),
        ("assistant", "agent:falcon", "hi there"),
        ("user", "bob", "and now?"),
        ("error", "agent:falcon", "the disk is full"),
        ("user", "alice", "still there?"),
    ]
    told = answer.json()
    assert list(told[0]) == ["timestamp", "role", "by", "content", "execution_id"]
    assert [line["execution_id"] for line in told[:2]] == [first.pk] * 2
    assert told[0]["timestamp"] <= told[1]["timestamp"] and told[0]["timestamp"].endswith("Z")


def test_a_chat_that_was_cut_off_says_so(cast, now):
    turn = ask(cast.falcon, "hello", now)
    executions.cancel(turn.pk, "bob", now)
    assert brief(person(cast.alice).get(HISTORY))[1] == ("error", "agent:falcon", "Cancelled by bob before it began.")


def test_no_chat_is_an_empty_list_and_other_turns_are_no_chats(cast, now):
    assert brief(person(cast.alice).get(HISTORY)) == []
    chat(cast.falcon, "a task", ok(), now, trigger="manual")
    start(caller(cast.alice), cast.falcon, now)
    chat(make_agent(cast.alice, "heron"), "with another agent", ok(), now)
    assert brief(person(cast.alice).get(HISTORY)) == []


@pytest.mark.parametrize(("size", "shown"), [(4_000, "x" * 4_000), (4_001, "x" * 4_000 + "…")])
def test_a_long_message_is_cut_where_it_exceeds_the_bound(cast, now, size, shown):
    assert chat_history.MOST_SHOWN == 4_000
    chat(cast.falcon, "x" * size, ok("x" * size), now)
    assert [content for _, _, content in brief(person(cast.alice).get(HISTORY))] == [shown, shown]


def test_pages_go_back_in_time_and_leave_no_turn_out(cast, now):
    alice, seen = person(cast.alice), []
    for number in range(5):
        chat(cast.falcon, f"message {number}", ok(f"answer {number}"), now)
    answer = alice.get(HISTORY, limit=2)
    while True:
        seen = [content for _, _, content in brief(answer)] + seen
        if "Link" not in answer:
            break
        answer = alice.get(answer["Link"].partition(">")[0].lstrip("<"))
    assert seen == [f"{what} {number}" for number in range(5) for what in ("message", "answer")]


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 201}, {"cursor": "-"}, {"tail": 5}])
def test_a_history_that_cannot_be_asked_for_is_refused_by_name(cast, query):
    answer = person(cast.alice).get(HISTORY, **query)
    assert answer.status_code == 400 and set(answer.json()["errors"]) == set(query)


def test_the_history_is_for_who_may_use_the_agent(cast, now):
    chat(cast.falcon, "a secret", ok(), now)
    heron = make_agent(cast.carol, "heron")
    assert person(cast.carol).get(HISTORY).status_code == 403
    assert agent_key(heron).get(HISTORY).status_code == 403
    assert person(cast.dora).get(HISTORY).status_code == 404
    assert Rest().get(HISTORY).status_code == 401
    assert {row.action for row in Audit.objects.filter(verdict="refused")} == {"execution.read"}
    CallPermission.objects.create(caller=heron, target=cast.falcon)
    assert len(brief(agent_key(heron).get(HISTORY))) == 2


def test_a_history_takes_as_many_queries_for_thirty_turns_as_for_one(cast, now, django_assert_num_queries):
    alice = person(cast.alice)
    chat(cast.falcon, "m", ok(), now)
    alice.get(HISTORY)  # notes the use of the key
    with django_assert_num_queries(3):
        alice.get(HISTORY)
    for _ in range(30):
        chat(cast.falcon, "m", ok(), now)
    with django_assert_num_queries(3):
        assert len(alice.get(HISTORY).json()) == 62


# -- health -----------------------------------------------------------------------------------------
@pytest.fixture
def worker(db):
    """A worker that is heard, as there is no installation without one."""
    return Worker.objects.create(owner=OWNER, slots=1, seen_at=timezone.now())


def test_the_fleet_is_told_by_the_agents_that_the_caller_may_use(cast, now, worker):
    make_agent(cast.alice, "heron", status="stopped")
    for message in ("first", "second", "third"):
        ask(cast.falcon, message, now)
    claim(cast.falcon, now)
    assert person(cast.alice).get(FLEET).json() == {
        **{"status": "ok", "database": "ok", "redis": "ok", "workers": 1},
        **{"agents_running": 1, "agents_stopped": 1, "turns_running": 1, "turns_waiting": 2},
        "agents": [
            {"name": "falcon", "status": "running", "turns_running": 1, "turns_waiting": 2},
            {"name": "heron", "status": "stopped", "turns_running": 0, "turns_waiting": 0},
        ],
    }
    for stranger in (person(cast.carol), person(cast.dora)):
        told = stranger.get(FLEET).json()
        assert (told["agents"], told["agents_running"], told["turns_running"]) == ([], 0, 0)
    assert Rest().get(FLEET).status_code == 401


def test_a_fleet_without_workers_is_down_and_the_answer_is_none_the_less_an_answer(cast):
    answer = person(cast.alice).get(FLEET)
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["workers"]) == ("down", 0)


def test_the_fleet_takes_as_many_queries_for_twenty_agents_as_for_one(cast, now, worker, django_assert_num_queries):
    alice = person(cast.alice)
    alice.get(FLEET)  # notes the use of the key
    with django_assert_num_queries(5):
        alice.get(FLEET)
    for number in range(20):
        chat(make_agent(cast.alice, f"heron-{number}"), "m", ok(), now)
    with django_assert_num_queries(5):
        assert len(alice.get(FLEET).json()["agents"]) == 21


def test_an_agent_tells_what_it_has_in_hand_and_how_its_last_turn_ended(cast, now, worker):
    then = now - timedelta(minutes=3)
    chat(cast.falcon, "m", bad("x" * 600), then)
    ask(cast.falcon, "first", then)
    claim(cast.falcon, now)
    ask(cast.falcon, "second", then)
    ask(cast.falcon, "third", now)
    told = person(cast.bob).get(ONE).json()
    assert told.pop("last_turn_at").endswith("Z")
    assert told.pop("waiting_since")[:19] == then.isoformat()[:19]
    assert told == {
        **{"agent_name": "falcon", "health": "failing", "status": "running"},
        **{"turns_running": 1, "max_parallel_tasks": 3, "turns_waiting": 2},
        **{"last_turn_status": "failed", "last_error": "x" * 500},
    }


def test_an_agent_that_has_done_nothing_yet_is_healthy(cast, worker):
    told = person(cast.alice).get(ONE).json()
    assert (told["health"], told["turns_running"], told["turns_waiting"]) == ("healthy", 0, 0)
    assert {told[name] for name in ("waiting_since", "last_turn_at", "last_turn_status", "last_error")} == {None}


@pytest.mark.parametrize(
    ("fields", "whole", "running", "last", "word"),
    [
        ({}, True, 2, "success", "healthy"),
        ({}, True, 0, None, "healthy"),
        ({}, True, 0, "cancelled", "healthy"),
        ({}, True, 3, "success", "busy"),
        ({"max_parallel_tasks": 1}, True, 1, None, "busy"),
        ({"max_parallel_tasks": 1}, True, 2, None, "busy"),  # the limit was lowered meanwhile
        ({}, True, 3, "failed", "failing"),
        ({}, False, 3, "failed", "down"),
        ({"status": "stopped"}, False, 3, "failed", "stopped"),
    ],
)
def test_the_worst_that_is_known_of_an_agent_is_its_health(fields, whole, running, last, word):
    assert health_of(Agent(**fields), whole=whole, load=Load(running=running), last=last) == word
    assert word in monitoring.HEALTH


def test_an_agents_health_is_for_who_may_use_it(cast):
    assert person(cast.carol).get(ONE).status_code == 403
    assert agent_key(make_agent(cast.alice, "heron")).get(ONE).status_code == 403
    assert person(cast.dora).get(ONE).status_code == 404
    assert person(cast.root).get("/api/monitoring/agents/no-such").status_code == 404
    assert Rest().get(ONE).status_code == 401
    assert {row.action for row in Audit.objects.filter(verdict="refused")} == {"agent.read"}


def test_an_agents_health_takes_as_many_queries_after_thirty_turns_as_after_one(
    cast, now, worker, django_assert_num_queries
):
    alice = person(cast.alice)
    chat(cast.falcon, "m", ok(), now)
    alice.get(ONE)  # notes the use of the key
    with django_assert_num_queries(6):
        alice.get(ONE)
    for _ in range(30):
        chat(cast.falcon, "m", ok(), now)
    with django_assert_num_queries(6):
        assert alice.get(ONE).json()["last_turn_status"] == "success"


# -- the key for MCP --------------------------------------------------------------------------------
def test_the_key_is_made_once_told_once_and_is_the_callers(cast):
    alice = person(cast.alice)
    made = alice.post(KEY)
    assert made.status_code == 201 and set(made.json()) == {"api_key"}
    assert Rest(made.json()["api_key"]).get("/api/users/me").json()["username"] == "alice"
    again = alice.post(KEY)
    assert (again.status_code, again.json()) == (200, {"api_key": None})
    key = Key.objects.get(name=default_key.NAME)
    assert (key.user, key.agent, key.expires_at) == (cast.alice, None, None)
    assert Audit.objects.get(action="key.create").target == str(key.pk)
    assert person(cast.bob).post(KEY).status_code == 201


@pytest.mark.parametrize("field", ["revoked_at", "expires_at"])
def test_a_key_that_opens_no_longer_is_made_anew(cast, field):
    alice = person(cast.alice)
    first = alice.post(KEY).json()["api_key"]
    Key.objects.filter(name=default_key.NAME).update(**{field: timezone.now()})
    second = alice.post(KEY)
    assert second.status_code == 201 and second.json()["api_key"] != first


def test_agents_clients_and_strangers_are_given_no_key(cast):
    assert agent_key(cast.falcon).post(KEY).status_code == 403
    assert person(cast.dora).post(KEY).status_code == 403
    assert Rest().post(KEY).status_code == 401
    assert not Key.objects.filter(name=default_key.NAME).exists()
    assert Audit.objects.filter(action="key.create", verdict="refused").count() == 2


@pytest.mark.django_db(transaction=True)
def test_calls_at_the_same_moment_make_one_key(cast, monkeypatch):
    found, inside, create_key = [], threading.Barrier(2), grants.create_key

    def create_key_once_another_call_would_too(*args, **more):
        with contextlib.suppress(threading.BrokenBarrierError):
            inside.wait(0.5)
        return create_key(*args, **more)

    def call(rest):
        found.append(rest.post(KEY).status_code)
        connection.close()

    monkeypatch.setattr(grants, "create_key", create_key_once_another_call_would_too)
    callers = [threading.Thread(target=call, args=[person(cast.alice)]) for _ in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(30)
    assert sorted(found) == [200, 200, 200, 201]
    assert Key.objects.filter(name=default_key.NAME).count() == 1
