"""The edge of the REST API: credentials, bodies, and the one shape of every refusal."""

import pytest
from django.test import Client

from agents import keys
from agents.models import Audit
from tests.conftest import PASSWORD, make_agent
from tests.rest import Rest, agent_key, person

TASK = "/api/agents/falcon/task"
GUARDED = [
    ("GET", "/api/agents"),
    ("POST", "/api/agents"),
    ("GET", "/api/agents/falcon"),
    ("DELETE", "/api/agents/falcon"),
    ("POST", "/api/agents/falcon/task"),
    ("GET", "/api/agents/no-such/loops"),
    ("POST", "/api/agents/falcon/loops"),
    ("GET", "/api/loops/loop_nothere"),
    ("POST", "/api/loops/loop_nothere/stop"),
    ("GET", "/api/executions"),
    ("GET", "/api/keys"),
    ("GET", "/api/audit"),
    ("GET", "/api/users/me"),
    ("GET", "/api/there/is/nothing"),
]


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "header", [None, "Bearer trinity_forged", "Bearer", "Basic YTpi", "Bearer a b", "Bearer \xff\xfe", "Token x"]
)
def test_no_valid_credential_is_401_before_anything_else(cast, method, path, header):
    answer = Client(headers={"Authorization": header} if header else {}).generic(method, path, b"{nonsense")
    assert answer.status_code == 401 and answer["WWW-Authenticate"] == "Bearer"
    assert set(answer.json()) == {"detail", "errors"} and "Location" not in answer


def test_a_turn_key_with_an_absurd_attempt_is_no_credential(cast):
    assert Rest(f"{keys.TURN}exec_1.{'9' * 5000}.proof").get("/api/agents").status_code == 401


def test_a_bad_key_decides_even_beside_a_good_session(cast):
    browser = Client()
    browser.force_login(cast.alice)
    assert browser.get("/api/agents").status_code == 200
    assert browser.get("/api/agents", headers={"Authorization": "Bearer forged"}).status_code == 401


def test_a_session_needs_the_csrf_token_to_change_anything(cast):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(cast.alice)
    refused = browser.post("/api/agents/falcon/stop", b"", "application/json")
    assert refused.status_code == 403 and set(refused.json()) == {"detail", "errors"}
    cast.falcon.refresh_from_db()
    assert cast.falcon.status == "running"


def test_a_key_of_a_disabled_person_is_dead(cast):
    alice = person(cast.alice)
    cast.alice.is_active = False
    cast.alice.save()
    assert alice.get("/api/agents").status_code == 401


BROKEN = {
    "not JSON": b"{nonsense",
    "not UTF-8": b'{"message": "\xff"}',
    "NaN": b'{"message": "x", "max_runs": 1, "max_cost_usd": NaN}',
    "Infinity": b'{"message": "x", "max_runs": 1, "max_cost_usd": -Infinity}',
    "a name twice": b'{"message": "x", "max_runs": 1, "max_runs": 100}',
    "a name with a lone surrogate": b'{"\\ud800": 1}',
    "too deep": b"[" * 100_000,
    "a number of 5,000 digits": b'{"max_runs": ' + b"9" * 5000 + b"}",
    "a list": b"[]",
    "text": b'"message"',
    "null": b"null",
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_a_body_that_is_no_strict_json_object_is_400(cast, raw):
    answer = person(cast.alice).post("/api/agents/falcon/loops", raw=raw)
    assert answer.status_code == 400 and answer.json()["detail"]


def test_an_infinite_number_in_disguise_is_refused_by_its_field(cast):
    answer = person(cast.alice).post(
        "/api/agents/falcon/loops", raw=b'{"message": "x", "max_runs": 1, "max_cost_usd": 1e400}'
    )
    assert answer.status_code == 400 and set(answer.json()["errors"]) == {"max_cost_usd"}


def test_a_body_of_more_than_two_mebibytes_is_413(cast):
    answer = person(cast.alice).post("/api/agents/falcon/task", {"message": "x" * (2 * 1024 * 1024)})
    assert answer.status_code == 413 and answer.json()["detail"]


def test_a_body_in_chunks_is_411_instead_of_being_overlooked(cast):
    alice = person(cast.alice)
    answer = alice.client.post(
        TASK, b"", "application/json", headers={"Transfer-Encoding": "chunked"}, CONTENT_LENGTH=""
    )
    assert answer.status_code == 411 and "Content-Length" in answer.json()["detail"]


def test_a_body_that_is_not_json_is_415(cast):
    alice = person(cast.alice)
    answer = alice.client.post("/api/agents/falcon/task", {"message": "x"}, "application/x-www-form-urlencoded")
    assert answer.status_code == 415 and "application/json" in answer.json()["detail"]


def test_actions_take_an_empty_body_of_type_json(cast):
    alice = person(cast.alice)
    for action in ("stop", "start"):
        answer = alice.post(f"/api/agents/falcon/{action}", raw=b"")
        assert answer.status_code == 200 and answer.json()["name"] == "falcon"


def test_the_verdict_comes_before_the_body_is_looked_at(cast):
    for who, status in ((cast.carol, 403), (cast.dora, 404)):
        assert person(who).post("/api/agents/falcon/loops", raw=b"{nonsense").status_code == status
    assert person(cast.carol).post("/api/agents/no-such/loops", raw=b"{nonsense").status_code == 404


def test_what_accept_says_changes_nothing(cast):
    answer = person(cast.alice).client.get("/api/agents?format=xml", headers={"Accept": "text/html;q=1, */xml"})
    assert answer.status_code == 200 and answer["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "path", ["/api/agents/", "/api/agents/falcon/", "/api/nothing", "/api/a%0ab", "/api/", "/api", "/api/loops"]
)
def test_an_unknown_address_is_404_in_json_and_never_a_redirect(cast, path):
    for method in ("GET", "POST"):
        answer = person(cast.alice).send(method, path)
        assert answer.status_code == 404 and set(answer.json()) == {"detail", "errors"}


def test_a_wrong_method_is_405_and_names_the_right_ones(cast):
    answer = person(cast.alice).send("PUT", "/api/agents/falcon/loops", {})
    assert answer.status_code == 405 and answer["Allow"].startswith("GET, POST")
    assert person(cast.alice).send("OPTIONS", "/api/agents").status_code == 405


@pytest.mark.parametrize("sign", ["%00", "a%00b", "%ff%fe", "%ed%a0%80", "%0a", "é", "x" * 3000])
def test_odd_signs_in_paths_are_simply_unknown(cast, sign):
    root = person(cast.root)
    for path in (
        f"/api/agents/{sign}",
        f"/api/agents/{sign}/loops",
        f"/api/loops/{sign}",
        f"/api/loops/{sign}/runs/1",
        f"/api/executions/{sign}",
        f"/api/keys/{sign}",
    ):
        assert root.get(path).status_code == 404, path
    assert root.post(f"/api/loops/{sign}/stop").status_code == 404
    assert not any("\0" in target for target in Audit.objects.values_list("target", flat=True))


def test_numbers_beyond_the_database_in_paths_are_unknown(cast):
    root = person(cast.root)
    for number in ("0", "9" * 30, "9" * 5000):
        assert root.delete(f"/api/keys/{number}").status_code == 404
        assert root.get(f"/api/loops/loop_nothere/runs/{number}").status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": -5},
        {"limit": "abc"},
        {"limit": ""},
        {"limit": "٣"},
        {"status": "bogus"},
        {"status": ""},
        {"status": "running\0"},
        {"cursor": "\0"},
        {"cursor": "'; --"},
        {"statsu": "running"},
        {"limit": ["1", "2"]},
    ],
)
def test_query_values_that_make_no_sense_are_400_and_named(cast, query):
    alice = person(cast.alice)
    for path in ("/api/agents/falcon/loops", "/api/agents/falcon/executions", "/api/executions"):
        answer = alice.get(path, **query)
        assert answer.status_code == 400 and set(answer.json()["errors"]) == set(query), path


def test_a_bad_filter_is_told_what_is_allowed(cast):
    answer = person(cast.alice).get("/api/agents/falcon/loops", status="bogus", limit="500", sort="name")
    assert "completed_with_errors" in answer.json()["errors"]["status"][0]
    assert "1 to 200" in answer.json()["errors"]["limit"][0]
    assert "cursor" in answer.json()["errors"]["sort"][0]


@pytest.mark.parametrize("search", ["\0", "", "x" * 201])
def test_a_search_that_no_database_takes_is_400(cast, search):
    assert person(cast.root).get("/api/executions", search=search).status_code == 400


# -- signing in -------------------------------------------------------------------------------------
@pytest.mark.parametrize("as_form", [True, False])
def test_a_password_gives_a_token_that_is_the_person(cast, as_form):
    given = {"username": "alice", "password": PASSWORD}
    kind = "application/x-www-form-urlencoded" if as_form else "application/json"
    body = f"username=alice&password={PASSWORD.replace(' ', '+')}" if as_form else given
    answer = Client().post("/api/token", body, kind)
    assert answer.status_code == 200 and answer.json()["token_type"] == "bearer"
    me = Rest(answer.json()["access_token"]).get("/api/users/me").json()
    assert me == {"username": "alice", "name": "alice", "email": "", "role": "user", "agent": None}
    key = cast.alice.keys.get()
    assert key.expires_at and Audit.objects.filter(action="key.create", target=str(key.pk)).exists()


def test_wrong_credentials_are_401_and_bad_ones_400(cast):
    nobody = Rest()
    for given in ({"username": "alice", "password": "wrong"}, {"username": "nobody", "password": PASSWORD}):
        answer = nobody.post("/api/token", given)
        assert answer.status_code == 401 and answer["WWW-Authenticate"] == "Bearer"
    for given, named in (
        ({}, {"username", "password"}),
        ({"username": "a\0", "password": "b"}, {"username"}),
        ({"username": "alice", "password": 5, "mfa": 1}, {"password", "mfa"}),
    ):
        answer = nobody.post("/api/token", given)
        assert answer.status_code == 400 and set(answer.json()["errors"]) == named


def test_guessing_a_password_is_slowed_down(cast):
    nobody = Rest()
    statuses = [nobody.post("/api/token", {"username": "alice", "password": "wrong"}).status_code for _ in range(11)]
    assert statuses == [401] * 10 + [429]
    answer = nobody.post("/api/token", {"username": "alice", "password": PASSWORD})
    assert answer.status_code == 429 and 1 <= int(answer["Retry-After"]) <= 600
    assert nobody.post("/api/token", {"username": "bob", "password": PASSWORD}).status_code == 200


def test_me_tells_persons_from_agents(cast):
    assert person(cast.root).get("/api/users/me").json()["role"] == "admin"
    assert person(cast.dora).get("/api/users/me").json()["role"] == "client"
    falcon = agent_key(make_agent(cast.root, "kite")).get("/api/users/me").json()
    assert (falcon["username"], falcon["role"], falcon["agent"]) == ("root", "user", "kite")


def test_ways_to_sign_in_and_health_need_no_credential(cast):
    assert Rest().get("/api/auth/mode").json() == {"modes": ["password", "key"]}
    answer = Rest().get("/health")
    assert answer.status_code == 503
    assert answer.json() == {"status": "down", "database": "ok", "redis": "ok", "workers": 0}
