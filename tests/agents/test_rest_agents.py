"""Agents over REST: who sees, makes, changes, starts, stops and deletes them, and what a refusal says."""

import pytest

from agents import life
from agents.api import agents as api
from agents.models import Agent, Audit, CallPermission, Execution
from tests.conftest import caller, make_agent
from tests.ledger import start
from tests.rest import agent_key, person

FIELDS = {
    "name", "display_name", "description", "owner", "status", "harness", "command", "output", "model", "timeout_seconds",
    "max_parallel_tasks", "autonomy", "keep_background", "workspace", "created_at",
}  # fmt: skip


def names(rest):
    return [agent["name"] for agent in rest.get("/api/agents").json()]


# -- reading ----------------------------------------------------------------------------------------
def test_everyone_lists_only_the_agents_they_may_use(cast):
    heron, magpie = make_agent(cast.alice, "heron"), make_agent(cast.carol, "magpie")
    CallPermission.objects.create(caller=cast.falcon, target=heron)
    assert names(person(cast.alice)) == ["falcon", "heron"]
    assert names(person(cast.bob)) == ["falcon"]
    assert names(person(cast.carol)) == ["magpie"]
    assert names(person(cast.dora)) == []
    assert names(person(cast.root)) == ["falcon", "heron", "magpie"]
    assert names(agent_key(cast.falcon)) == ["falcon", "heron"]
    assert names(agent_key(heron)) == ["heron"]
    life.delete(magpie, caller(cast.carol), magpie.created_at)
    assert names(person(cast.carol)) == []


def test_an_agent_is_told_with_all_its_fields(cast):
    agent = person(cast.bob).get("/api/agents/falcon").json()
    assert set(agent) == FIELDS
    assert (agent["owner"], agent["status"], agent["model"], agent["autonomy"]) == ("alice", "running", None, True)
    assert agent["created_at"].endswith("Z")
    assert agent["workspace"] == str(cast.falcon.workspace)


def test_listing_takes_as_many_queries_for_twenty_agents_as_for_one(cast, django_assert_num_queries):
    alice = person(cast.alice)
    names(alice)  # notes the use of the key
    with django_assert_num_queries(2):
        names(alice)
    for number in range(20):
        make_agent(cast.alice, f"heron-{number}")
    with django_assert_num_queries(2):
        assert len(names(alice)) == 21


def test_a_stranger_reads_nothing_and_the_refusal_names_nobody(cast):
    answer = person(cast.carol).get("/api/agents/falcon")
    assert answer.status_code == 403
    assert "falcon" not in answer.content.decode() and "alice" not in answer.content.decode()
    row = Audit.objects.get(actor="carol")
    assert (row.action, row.target, row.verdict, row.through) == ("agent.read", "falcon", "refused", "rest")
    assert person(cast.dora).get("/api/agents/falcon").status_code == 404
    assert person(cast.carol).get("/api/agents/no-such").status_code == 404


# -- making -----------------------------------------------------------------------------------------
def test_an_admin_makes_an_agent_that_runs_at_once(cast):
    body = {"name": "kite", "command": ["/bin/cat", "-"], "output": "json", "timeout_seconds": 60, "model": None}
    answer = person(cast.root).post("/api/agents", body)
    assert answer.status_code == 201 and set(answer.json()) == FIELDS
    made = answer.json()
    assert (made["owner"], made["status"], made["command"], made["output"]) == (
        "root",
        "running",
        body["command"],
        "json",
    )
    assert Agent.objects.get(name="kite").workspace.is_dir()
    assert person(cast.root).post("/api/agents", body).status_code == 409


@pytest.mark.parametrize(
    "body", [{"name": "kite", "command": ["/bin/cat"]}, {"name": "kite"}, {"harness": "command"}, {}]
)
def test_a_platform_user_is_told_that_the_command_harness_is_for_admins(cast, body):
    answer = person(cast.alice).post("/api/agents", body)
    assert answer.status_code == 403
    assert "Only an admin" in answer.json()["detail"] and set(answer.json()["errors"]) == {"command"}
    assert Agent.objects.count() == 1
    assert Audit.objects.get(actor="alice").verdict == "refused"


def test_a_harness_that_is_not_set_up_is_named(cast):
    answer = person(cast.alice).post("/api/agents", {"name": "kite", "harness": "native"})
    assert answer.status_code == 400 and "harness" in answer.json()["errors"]


def test_agents_and_clients_make_no_agents(cast):
    for who in (agent_key(cast.falcon), agent_key(make_agent(cast.root, "kite")), person(cast.dora)):
        answer = who.post("/api/agents", {"name": "owl", "command": ["/bin/cat"]})
        assert answer.status_code == 403, answer.json()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "no way"}, {"name"}),
        ({"name": "x" * 64}, {"name"}),
        ({"name": None}, {"name"}),
        ({"command": "cat"}, {"command"}),
        ({"command": []}, {"command"}),
        ({"command": ["a\0"]}, {"command"}),
        ({"timeout_seconds": 59}, {"timeout_seconds"}),
        ({"timeout_seconds": 7201, "max_parallel_tasks": 33}, {"timeout_seconds", "max_parallel_tasks"}),
        ({"timeout_seconds": True}, {"timeout_seconds"}),
        ({"max_parallel_tasks": "3"}, {"max_parallel_tasks"}),
        ({"autonomy": 1}, {"autonomy"}),
        ({"output": "xml"}, {"output"}),
        ({"owner": "carol", "status": "stopped"}, {"owner", "status"}),
    ],
)
def test_bad_fields_are_refused_by_name(cast, change, named):
    answer = person(cast.root).post("/api/agents", {"name": "kite", "command": ["/bin/cat"], **change})
    assert answer.status_code == 400 and set(answer.json()["errors"]) == named
    assert not Agent.objects.filter(name="kite").exists()


def test_the_described_fields_are_those_that_can_be_set_with_their_bounds():
    assert set(api.FIELDS) == set(life.FIELDS)
    for name, schema in api.FIELDS.items():
        check = life.FIELDS[name]
        for good, bad in _edges(schema):
            check(good)
            with pytest.raises(ValueError, match="must"):
                check(bad)


def _edges(schema):
    """Pairs of a value just inside and one just outside of what the schema says."""
    match schema:
        case {"enum": [*words]}:
            return [(word, word + "x") for word in words]
        case {"type": "integer", "minimum": least, "maximum": most}:
            return [(least, least - 1), (most, most + 1), (most, float(most))]
        case {"type": "string", "maxLength": most}:
            return [("x" * most, "x" * (most + 1)), ("", "\0")]
        case {"type": "array", "minItems": least, "maxItems": most}:
            return [(["x"] * least, ["x"] * (least - 1)), (["x"] * most, ["x"] * (most + 1)), (["x"], [""])]
        case {"type": "boolean"}:
            return [(True, 1), (False, None)]
    raise AssertionError(schema)


# -- changing ---------------------------------------------------------------------------------------
def test_the_owner_changes_fields_but_not_the_command(cast):
    alice = person(cast.alice)
    answer = alice.patch("/api/agents/falcon", {"display_name": "Falcon ", "max_parallel_tasks": 5, "autonomy": False})
    assert answer.status_code == 200 and answer.json()["display_name"] == "Falcon"
    cast.falcon.refresh_from_db()
    assert (cast.falcon.max_parallel_tasks, cast.falcon.autonomy) == (5, False)
    before = list(cast.falcon.command)
    answer = alice.patch("/api/agents/falcon", {"command": ["/bin/sh"], "display_name": "x"})
    assert answer.status_code == 403 and "Only an admin" in answer.json()["detail"]
    cast.falcon.refresh_from_db()
    assert (cast.falcon.command, cast.falcon.display_name) == (before, "Falcon")
    assert person(cast.root).patch("/api/agents/falcon", {"command": ["/bin/sh"]}).json()["command"] == ["/bin/sh"]


def test_an_empty_change_changes_nothing(cast):
    rows = Audit.objects.count()
    assert person(cast.alice).patch("/api/agents/falcon", {"model": None}).status_code == 200
    assert Audit.objects.count() == rows


def test_a_name_cannot_be_changed(cast):
    answer = person(cast.root).patch("/api/agents/falcon", {"name": "kite"})
    assert answer.status_code == 400 and set(answer.json()["errors"]) == {"name"}


def test_the_timeout_is_set_within_its_bounds(cast):
    alice = person(cast.alice)
    answer = alice.put("/api/agents/falcon/timeout", {"timeout_seconds": 7200})
    assert answer.status_code == 200 and answer.json()["timeout_seconds"] == 7200
    for body in ({"timeout_seconds": 59}, {"timeout_seconds": 7201}, {"timeout_seconds": None}, {}, {"timeout": 60}):
        assert alice.put("/api/agents/falcon/timeout", body).status_code == 400


def test_stop_and_start_say_the_new_status_and_may_be_repeated(cast):
    alice = person(cast.alice)
    for action, status in (("stop", "stopped"), ("stop", "stopped"), ("start", "running"), ("start", "running")):
        answer = alice.post(f"/api/agents/falcon/{action}")
        assert answer.status_code == 200 and answer.json()["status"] == status


def test_only_owner_and_admin_manage_an_agent(cast):
    others = {"bob": person(cast.bob), "carol": person(cast.carol), "falcon itself": agent_key(cast.falcon)}
    calls = [
        ("PATCH", "", {"display_name": "x"}),
        ("POST", "/stop", None),
        ("POST", "/start", None),
        ("PUT", "/timeout", {"timeout_seconds": 60}),
        ("DELETE", "", None),
    ]
    for who, rest in others.items():
        for method, tail, body in calls:
            assert rest.send(method, f"/api/agents/falcon{tail}", body).status_code == 403, (who, method, tail)
    cast.falcon.refresh_from_db()
    assert (cast.falcon.status, cast.falcon.timeout_seconds, cast.falcon.deleted_at) == ("running", 3600, None)
    assert Audit.objects.filter(action="agent.change", verdict="refused").count() == len(others) * len(calls)


def test_a_deleted_agent_is_gone_and_its_name_is_free(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    root = person(cast.root)
    answer = root.delete("/api/agents/falcon")
    assert answer.status_code == 204 and not answer.content
    assert root.delete("/api/agents/falcon").status_code == 404
    assert root.get("/api/agents/falcon").status_code == 404
    assert Execution.objects.get().state == "cancelled"
    assert root.post("/api/agents", {"name": "falcon", "command": ["/bin/cat"]}).status_code == 201
    assert root.get("/api/agents/falcon/loops").json() == []
    ended = person(cast.alice).get(f"/api/loops/{loop.pk}").json()
    assert (ended["status"], ended["error"], ended["agent_name"]) == ("failed", "the agent was deleted", "falcon")
