"""The door to `/mcp`: who is let in, which requests, and that nothing is read or said before that is clear."""

import asyncio
import json
import time
from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from agents import executions, keys, rates
from agents.models import Agent, Key, User
from agents.rest import MOST_BYTES
from loops.api import mcp_door
from tests.conftest import caller
from tests.ledger import OWNER, claim, ok, start
from tests.mcp_caller import http, person
from trinity.asgi import application

pytestmark = pytest.mark.django_db(transaction=True)

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}


def ask(secret=None, body=LIST, *, method="POST", path="/mcp", **headers):
    """One plain HTTP request."""

    async def once():
        async with http(secret) as way:
            named = {**ACCEPT, "content-type": "application/json"}
            named |= {name.replace("_", "-"): value for name, value in headers.items()}
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return await way.request(method, path, content=content, headers=named)

    return asyncio.run(once())


@pytest.fixture
def key(cast):
    return keys.issue(cast.alice, name="test")[1]


# -- keys -------------------------------------------------------------------------------------------
def unread(**headers):
    """The status of a request whose body must not be asked for; its further answers must end there."""
    sent = []

    async def receive():
        raise AssertionError("the body was read")

    async def send(message):
        sent.append(message)

    found = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": found}
    asyncio.run(application(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer trinity_wrong", "Bearer trinity_turn_exec_1.1.00", "Bearer \xe9", "Basic YTpi", "trinity_x"],
)  # fmt: skip
def test_no_key_or_a_wrong_one_is_401_before_anything_is_read(db, header):
    status, headers, body = unread(**({"authorization": header} if header is not None else {}))
    assert (status, headers[b"www-authenticate"]) == (401, b"Bearer")
    assert b"run_agent_loop" not in body and json.loads(body)["errors"] == {}


def test_a_key_that_was_good_is_401_once_it_is_revoked_expired_or_its_person_is_gone(cast, key):
    assert ask(key).status_code == 200
    now = timezone.now()
    for change, back in (
        ({"revoked_at": now}, {"revoked_at": None}),
        ({"expires_at": now - timedelta(seconds=1)}, {"expires_at": now + timedelta(hours=1)}),
    ):
        Key.objects.update(**change)
        assert ask(key).status_code == 401
        Key.objects.update(**back)
        assert ask(key).status_code == 200
    User.objects.filter(pk=cast.alice.pk).update(is_active=False)
    assert ask(key).status_code == 401


def test_a_turns_key_is_good_for_as_long_as_the_turn(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    secret = keys.turn_key(turn.execution.pk, turn.attempt)
    assert ask(secret).status_code == 200
    executions.finish(turn, ok(), OWNER, now, keep_slot=False)
    assert ask(secret).status_code == 401


def test_a_deleted_agents_key_is_dead(cast, now):
    secret = keys.issue(cast.alice, name="test", agent=cast.falcon)[1]
    Agent.objects.filter(pk=cast.falcon.pk).update(deleted_at=now)
    assert ask(secret).status_code == 401


def test_a_key_in_the_address_is_no_credential_and_two_keys_are_none(key):
    assert ask(path=f"/mcp?token={key}").status_code == 401
    assert ask(key, path="/mcp?token=x").status_code == 200
    two = [(b"host", b"localhost"), *[(b"authorization", f"Bearer {key}".encode())] * 2]
    assert asyncio.run(mcp_door._caller(two)) is None
    assert asyncio.run(mcp_door._caller(two[:2])).user.username == "alice"


def test_the_session_of_a_browser_does_not_count(cast, client):
    client.force_login(cast.root)
    assert ask(cookie=f"sessionid={client.cookies['sessionid'].value}").status_code == 401


# -- requests ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS"])
def test_only_post_is_answered(key, method):
    answer = ask(key, method=method)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert ask(method=method).status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:8000", 200), ("127.0.0.1:1", 200), ("[::1]:8000", 200),
        ("evil.example", 421), ("localhost.evil.example", 421), ("localhost:x", 421), ("", 421), ("local host", 421),
    ],
)  # fmt: skip
def test_only_the_servers_own_names_are_answered(key, host, status):
    assert ask(key, host=host).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200), ("http://[::1]:9", 200), ("http://evil.example", 403), ("null", 403), ("", 403),
        ("http://localhost.evil.example", 403), ("http://[", 403), ("localhost", 403),
    ],
)  # fmt: skip
def test_only_the_servers_own_pages_are_answered(key, origin, status):
    assert ask(key, origin=origin).status_code == status


def test_a_name_of_the_settings_is_answered(key, settings):
    settings.ALLOWED_HOSTS = [".example.org"]
    assert ask(key, host="loops.example.org", origin="https://loops.example.org").status_code == 200
    assert ask(key, host="localhost").status_code == 421


def test_a_body_has_its_limit(key):
    def padded(size):
        text = json.dumps(LIST)
        return (text + " " * (size - len(text))).encode()

    assert ask(key, padded(MOST_BYTES)).status_code == 200
    assert ask(key, padded(MOST_BYTES + 1)).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"\xff",
        b'{"a": 1}',
        b'{"a":' * 5000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}',
    ],
)
def test_what_is_no_message_is_told_so(key, body):
    for version in ({}, {"mcp_protocol_version": "2026-07-28"}):
        assert ask(key, body, **version).status_code == 400


def call(name, arguments):
    return {**LIST, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


# The library ends a request's own little server at once; a notification's handler, which there is none, never began.
@pytest.mark.filterwarnings("ignore:coroutine 'JSONRPCDispatcher._spawn:RuntimeWarning")
def test_an_older_client_speaks_plain_json(key):
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    told = ask(key, {**LIST, "method": "initialize", "params": greeting}).json()["result"]
    assert told["protocolVersion"] == "2025-06-18" and told["serverInfo"]["name"] == "trinity-loops"
    assert "run_agent_loop" in told["instructions"] and set(told["capabilities"]) == {"tools"}
    assert ask(key, {"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    answer = ask(key, call("list_agents", {}), mcp_protocol_version="2025-06-18").json()["result"]
    assert answer["structuredContent"]["agents"][0]["name"] == "falcon"
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]


def test_a_tool_that_is_not_there_and_arguments_that_are_no_object_are_errors_of_the_protocol(key):
    for wrong in (call("delete_everything", {}), call("list_agents", ["x"]), call("list_agents", "x"), call(5, {})):
        assert ask(key, wrong).json()["error"]["code"] == -32602


def test_no_arguments_at_all_are_none(key):
    body = {**LIST, "method": "tools/call", "params": {"name": "list_loops"}}
    assert ask(key, body).json()["result"]["structuredContent"] == {"success": True, "loops": []}


def test_numbers_that_are_none_are_refused_by_their_argument(key):
    body = json.dumps(
        call("run_agent_loop", {"agent_name": "falcon", "message": "x", "max_runs": 1, "max_cost_usd": 0})
    )
    for number in ("NaN", "Infinity", "-Infinity", "1e999"):
        said = ask(key, body.replace('"max_cost_usd": 0', f'"max_cost_usd": {number}').encode()).json()
        assert said["result"]["structuredContent"]["error"].startswith("max_cost_usd must be a number")


def test_what_no_text_can_carry_is_replaced_in_the_answer(key):
    """Older clients cannot send it; in the newest protocol it comes through."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = call("get_loop_status", {"loop_id": "a\ud800b"})
    body["params"]["_meta"] = meta
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "get_loop_status"}
    said = ask(key, body, **headers).json()["result"]["structuredContent"]
    assert said == {"success": False, "error": "Loop 'a?b' not found or not accessible"}


# -- around it --------------------------------------------------------------------------------------
def test_every_other_address_is_the_applications_behind(key):
    assert ask(key, path="/api/agents", method="GET").json()[0]["name"] == "falcon"
    assert ask(key, path="/mcp/").status_code == 404
    assert ask(key, path="/mcp/x").status_code == 404


def test_requests_at_once_share_one_manager_also_the_very_first(cast):
    answers = person(cast.alice).together(*[("list_agents", {})] * 20)
    assert all(answer["success"] for answer in answers)


def test_each_request_is_its_own_callers(cast):
    """Two people ask at once, again and again; nobody is ever answered as the other."""
    secrets = [keys.issue(user, name="test")[1] for user in (cast.alice, cast.carol)]

    async def both():
        async with http(secrets[0]) as alice, http(secrets[1]) as carol:
            body, headers = call("list_agents", {}), {**ACCEPT, "content-type": "application/json"}
            ways = [alice, carol] * 15
            answers = await asyncio.gather(*(way.post("/mcp", json=body, headers=headers) for way in ways))
            return [answer.json()["result"]["structuredContent"]["agents"] for answer in answers]

    found = asyncio.run(both())
    assert [len(agents) for agents in found] == [1, 0] * 15


def test_a_manager_that_cannot_open_is_an_error_and_no_endless_wait(key, monkeypatch):
    class Broken:
        def __init__(self, *_, **__):
            pass

        def run(self):
            raise OSError("out of order")

    monkeypatch.setattr(mcp_door, "StreamableHTTPSessionManager", Broken)
    with pytest.raises(OSError, match="out of order"):
        ask(key)


def test_refusals_are_in_the_log_without_the_key(cast, caplog):
    ask("trinity_not-a-key")
    assert "Unauthorized: /mcp" in caplog.text and "not-a-key" not in caplog.text


# -- how many ---------------------------------------------------------------------------------------
def test_too_many_requests_are_429_with_the_time_to_wait_and_others_are_answered(cast, key, settings):
    settings.TRINITY_MCP_PER_MINUTE = 2
    who = f"mcp:user:{cast.alice.pk}"
    rates._redis().delete(*(f"trinity:rate:{int(time.time()) // 60 + more}:{who}" for more in (0, 1)))
    while time.time() % 60 > 55:
        time.sleep(1)
    answers = [ask(key) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60 and "throttled" in answers[2].json()["detail"]
    settings.TRINITY_MCP_PER_MINUTE = 600
    assert ask(keys.issue(cast.bob, name="test")[1]).status_code == 200


def test_requests_are_counted_here_while_redis_is_away(settings, monkeypatch):
    monkeypatch.setattr(rates, "_own", {})
    away = redis.Redis(unix_socket_path="/nowhere/redis.sock")
    monkeypatch.setattr(rates, "_redis", lambda: away)
    assert [rates.wait("x", 2, 1_000.0) for _ in range(3)] == [0, 0, 20]
    assert rates.wait("x", 2, 1_020.0) == 0 and len(rates._own) == 1
