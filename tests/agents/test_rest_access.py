"""Shares, call permissions, keys and the audit trail over REST."""

import pytest

from agents.models import Audit, CallPermission, Key, Share
from tests.conftest import caller, make_agent, make_user
from tests.ledger import start
from tests.rest import Rest, agent_key, person

SHARES = "/api/agents/falcon/shares"
PERMISSIONS = "/api/agents/falcon/permissions"


# -- shares -----------------------------------------------------------------------------------------
def test_the_owner_replaces_the_shares(cast):
    alice = person(cast.alice)
    assert alice.get(SHARES).json() == {"users": ["bob"]}
    for users in (["carol", "bob"], ["carol"], [], ["bob"]):
        answer = alice.put(SHARES, {"users": users})
        assert answer.status_code == 200 and answer.json() == {"users": users}
        assert alice.get(SHARES).json() == {"users": sorted(users)}
        assert person(cast.carol).get("/api/agents/falcon").status_code == (200 if "carol" in users else 403)
    assert Audit.objects.filter(action="shares.change", target="falcon", actor="alice").count() == 4


def test_a_name_said_twice_counts_once(cast):
    assert person(cast.alice).put(SHARES, {"users": ["carol", "carol"]}).json() == {"users": ["carol"]}
    assert Share.objects.get().user == cast.carol


@pytest.mark.parametrize("users", [["nobody"], ["dora"], ["bob", "dora"], ["a\0"], [5], "bob", None, ["x" * 151], [""]])
def test_who_is_no_platform_user_cannot_share(cast, users):
    answer = person(cast.alice).put(SHARES, {"users": users})
    assert answer.status_code == 400 and set(answer.json()["errors"]) == {"users"}
    assert Share.objects.get().user == cast.bob


def test_a_client_reads_like_an_unknown_user(cast):
    alice = person(cast.alice)
    client = alice.put(SHARES, {"users": ["dora"]}).content.decode()
    assert client.replace("dora", "nobody") == alice.put(SHARES, {"users": ["nobody"]}).content.decode()


def test_only_owner_and_admin_see_and_change_shares_and_permissions(cast):
    for who in (person(cast.bob), person(cast.carol), agent_key(cast.falcon)):
        for path, body in ((SHARES, {"users": ["carol"]}), (PERMISSIONS, {"agents": []})):
            assert who.get(path).status_code == who.put(path, body).status_code == 403
    assert person(cast.dora).put(SHARES, {"users": []}).status_code == 404
    assert person(cast.root).put(SHARES, {"users": ["carol"]}).status_code == 200
    refused = set(Audit.objects.filter(verdict="refused").values_list("action", flat=True))
    assert refused == {"agent.read", "shares.change", "permissions.change"}


# -- permissions ------------------------------------------------------------------------------------
def test_a_permission_opens_one_direction(cast):
    heron = make_agent(cast.alice, "heron")
    alice = person(cast.alice)
    assert alice.put(PERMISSIONS, {"agents": ["heron"]}).json() == {"agents": ["heron"]}
    assert alice.get(PERMISSIONS).json() == {"agents": ["heron"]}
    assert agent_key(cast.falcon).get("/api/agents/heron").status_code == 200
    assert agent_key(heron).get("/api/agents/falcon").status_code == 403
    assert alice.put(PERMISSIONS, {"agents": []}).json() == {"agents": []}
    assert agent_key(cast.falcon).get("/api/agents/heron").status_code == 403
    assert not CallPermission.objects.exists()


def test_a_foreign_agent_reads_exactly_like_an_unknown_one(cast):
    make_agent(cast.carol, "magpie")
    alice = person(cast.alice)
    foreign, unknown = (alice.put(PERMISSIONS, {"agents": [name]}) for name in ("magpie", "no-such"))
    assert foreign.status_code == unknown.status_code == 400 and set(foreign.json()["errors"]) == {"agents"}
    assert foreign.content.decode().replace("magpie", "no-such") == unknown.content.decode()
    assert person(cast.root).put(PERMISSIONS, {"agents": ["magpie"]}).status_code == 200


def test_a_deleted_agent_is_in_no_permission(cast):
    heron, alice = make_agent(cast.alice, "heron"), person(cast.alice)
    alice.put(PERMISSIONS, {"agents": ["heron"]})
    alice.delete(f"/api/agents/{heron.name}")
    assert alice.get(PERMISSIONS).json() == {"agents": []}


# -- keys -------------------------------------------------------------------------------------------
def test_a_key_is_shown_once_works_and_is_dead_at_once(cast):
    alice = person(cast.alice)
    answer = alice.post("/api/keys", {"name": "laptop"})
    assert answer.status_code == 201
    made = answer.json()
    assert set(made) == {"id", "name", "agent", "key", "created_at"} and made["agent"] is None
    assert Rest(made["key"]).get("/api/users/me").json()["username"] == "alice"
    listed = alice.get("/api/keys")
    assert made["key"] not in listed.content.decode()
    assert next(row for row in listed.json() if row["id"] == made["id"])["name"] == "laptop"
    assert alice.delete(f"/api/keys/{made['id']}").status_code == 204
    assert Rest(made["key"]).get("/api/users/me").status_code == 401
    assert made["id"] not in [row["id"] for row in alice.get("/api/keys").json()]
    assert alice.delete(f"/api/keys/{made['id']}").status_code == 404
    trail = Audit.objects.filter(target=str(made["id"])).order_by("pk").values_list("action", "verdict")
    assert list(trail) == [("key.create", "allowed"), ("key.delete", "allowed"), ("key.delete", "refused")]
    assert not Key.objects.filter(digest=made["key"]).exists()


def test_a_key_of_an_agent_is_for_who_manages_it(cast):
    body = {"name": "x", "agent": "falcon"}
    made = person(cast.alice).post("/api/keys", body).json()
    assert made["agent"] == "falcon" and Rest(made["key"]).get("/api/users/me").json()["agent"] == "falcon"
    for who in (cast.bob, cast.carol):
        assert person(who).post("/api/keys", body).status_code == 403
    assert person(cast.alice).post("/api/keys", {"name": "x", "agent": "no-such"}).status_code == 404
    assert person(cast.root).post("/api/keys", body).status_code == 201


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, {"name"}),
        ({"name": " "}, {"name"}),
        ({"name": "x" * 101}, {"name"}),
        ({"name": "x", "agent": 5}, {"agent"}),
        ({"name": "x", "expires": "never"}, {"expires"}),
    ],
)
def test_bad_keys_are_refused_by_field(cast, body, named):
    answer = person(cast.alice).post("/api/keys", body)
    assert answer.status_code == 400 and set(answer.json()["errors"]) == named


def test_foreign_keys_are_neither_listed_nor_ended(cast):
    made = person(cast.alice).post("/api/keys", {"name": "mine"}).json()
    carol = person(cast.carol)
    assert made["id"] not in [row["id"] for row in carol.get("/api/keys").json()]
    assert carol.delete(f"/api/keys/{made['id']}").status_code == 403
    assert Rest(made["key"]).get("/api/users/me").status_code == 200
    assert person(cast.root).delete(f"/api/keys/{made['id']}").status_code == 204


def test_agents_and_clients_manage_no_keys(cast):
    for who in (agent_key(cast.falcon), person(cast.dora)):
        assert who.get("/api/keys").status_code == 403
        assert who.post("/api/keys", {"name": "x"}).status_code == 403
        assert who.delete(f"/api/keys/{Key.objects.first().pk}").status_code == 403


# -- the trail --------------------------------------------------------------------------------------
def test_the_trail_is_for_admins_newest_first(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    person(cast.carol).get("/api/agents/falcon/loops")
    rows = person(cast.root).get("/api/audit").json()
    assert [row["action"] for row in rows] == ["loop.list", "loop.start"]
    assert set(rows[0]) == {"id", "timestamp", "actor", "through", "action", "target", "verdict", "reason"}
    assert (rows[0]["actor"], rows[0]["target"], rows[0]["verdict"]) == ("carol", "falcon", "refused")
    assert rows[0]["timestamp"].endswith("Z") and rows[0]["reason"]
    for who in (person(cast.alice), person(cast.dora), agent_key(make_agent(cast.root, "kite"))):
        assert who.get("/api/audit").status_code == 403


def test_the_trail_comes_in_pages(cast):
    carol = person(make_user("zoe"))
    for _ in range(5):
        carol.get("/api/agents/falcon")
    root = person(cast.root)
    first = root.get("/api/audit", limit=3)
    second = root.client.get(first["Link"][1:].partition(">")[0])
    both = [row["id"] for row in first.json() + second.json()]
    assert len(both) == 5 and both == sorted(both, reverse=True) and "Link" not in second
    for bad in ({"limit": 0}, {"limit": 201}, {"cursor": "x"}, {"cursor": "9" * 19}):
        assert root.get("/api/audit", **bad).status_code == 400


def test_no_secret_is_on_the_trail(cast):
    made = person(cast.alice).post("/api/keys", {"name": "laptop"}).json()
    person(cast.alice).post("/api/agents/falcon/loops", {"message": "zebra-cargo", "max_runs": 1})
    trail = person(cast.root).get("/api/audit", limit=200).content.decode()
    assert made["key"] not in trail and "zebra-cargo" not in trail
