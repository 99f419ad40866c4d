"""Who may what, through what: every caller takes every way of the tables of who may, and each verdict is the one of this table."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from http.cookies import SimpleCookie
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import Client
from django.utils import timezone

from agents import keys, reminders
from agents.api import turns
from agents.models import Audit, CallPermission, Execution, Key, Share, Worker
from agents.policy import Guard, Rule, rules
from loops.routing import sockets
from tests import mcp_caller
from tests.conftest import PASSWORD, caller, make_agent, make_user
from tests.ledger import OWNER, ok, play, start
from trinity import checks

SECRET = "zebra-cargo-19"
JOB = {"message": SECRET, "max_runs": 3}
TRANSPORTS = ("page", "rest", "mcp", "socket")

# The cast. All is about alice's agent falcon and the loops on it: each caller's own where they began one, else alice's.
CALLERS = (
    *("owner", "admin", "shared", "stranger", "initiator", "initiator-elsewhere", "client"),  # people
    # Agents: falcon itself, its turn that runs; who may call it; its owner's other one; a foreign one; one that it may call
    # but not the other way round; one whose permission was taken back after it had begun a loop.
    *("itself", "turn", "permitted", "sibling", "foreign", "callee", "revoked"),
    *("ended-turn", "revoked-key", "disabled", "nobody"),
)

# One sign per caller, in their order, people | agents | without a credential that counts:
#   o  done, and it holds what it is about        e  answered or done without it: nothing of falcon is seen or changed
#   1  no credential (401; a socket that is refused for it)       L  to the login page
#   3  403       4  404       as a tool says it:  n  agent not found or not accessible       p  permission denied
#   l  loop not found or not accessible           r  reminders are an agent's own            m  reminder not found …
# None: there is no such way.
DEAD, OUT = "1111", "LLLLLLL LLLL"  # OUT: a bearer key opens no page
USE, FOLLOW, MANAGE = "ooo3334", "ooo3o34", "oo33334"
REST_USE, REST_MANAGE = f"{USE} ooo3333 {DEAD}", f"{MANAGE} 3333333 {DEAD}"
ALL = "ooooooo ooooooo oooo"
TOOL_USE = f"ooonnnn ooopppp {DEAD}"
TOOL_FOLLOW = f"ooololl ooollll {DEAD}"


def row(page: str | None = None, rest: str | None = None, mcp: str | None = None, socket: str | None = None):
    return {"page": page, "rest": rest, "mcp": mcp, "socket": socket}


MATRIX = {
    ("health.read", Guard.ANYBODY): row(rest=ALL),
    ("schema.read", Guard.ANYBODY): row(rest=ALL),
    ("static.read", Guard.ANYBODY): row(page=ALL),
    ("sign-in", Guard.ANYBODY): row(page=ALL, rest=ALL),
    ("sign-out", Guard.ANYBODY): row(page=ALL),
    ("caller.read", Guard.SIGNED_IN): row(rest=f"ooooooo ooooooo {DEAD}"),
    ("tools.list", Guard.SIGNED_IN): row(mcp=f"ooooooo ooooooo {DEAD}"),
    ("admin", Guard.ADMIN): row(page="LoLLLLL" + OUT),
    ("audit.read", Guard.ADMIN): row(page="4o44444" + OUT, rest=f"3o33333 3333333 {DEAD}"),
    ("agent.change", Guard.ADMIN): row(rest=f"3o33333 3333333 {DEAD}"),
    ("agent.list", Guard.VISIBLE): row(
        page="oooeeee" + OUT, rest=f"oooeeee oooeeee {DEAD}", mcp=f"oooeeee oooeeee {DEAD}"
    ),
    ("agent.read", Guard.USE_AGENT): row(page=USE + OUT, rest=REST_USE),
    ("agent.read", Guard.MANAGE_AGENT): row(page=MANAGE + OUT, rest=REST_MANAGE),
    ("agent.change", Guard.MANAGE_AGENT): row(page=MANAGE + OUT, rest=REST_MANAGE),
    ("shares.change", Guard.MANAGE_AGENT): row(page=MANAGE + OUT, rest=REST_MANAGE),
    ("permissions.change", Guard.MANAGE_AGENT): row(page=MANAGE + OUT, rest=REST_MANAGE),
    ("key.read", Guard.HOLD_KEYS): row(page="oeeeee3" + OUT, rest=f"oeeeee3 3333333 {DEAD}"),
    ("key.create", Guard.HOLD_KEYS): row(page="oooooo3" + OUT, rest=f"oooooo3 3333333 {DEAD}"),
    ("key.create", Guard.MANAGE_AGENT): row(page=MANAGE + OUT, rest=f"oo33333 3333333 {DEAD}"),
    ("key.delete", Guard.END_KEY): row(page="o444443" + OUT, rest=f"oo33333 3333333 {DEAD}"),
    ("key.delete", Guard.MANAGE_AGENT): row(page=MANAGE + OUT),
    ("execution.start", Guard.USE_AGENT): row(rest=REST_USE, mcp=TOOL_USE),
    ("execution.list", Guard.VISIBLE): row(page="oooeeee" + OUT, rest=f"oooeeee oooeeee {DEAD}"),
    ("execution.read", Guard.USE_AGENT): row(page=USE + OUT, rest=REST_USE),
    ("execution.read", Guard.FOLLOW_EXECUTION): row(page=USE + OUT, rest=REST_USE),
    ("execution.cancel", Guard.FOLLOW_EXECUTION): row(page=USE + OUT, rest=REST_USE),
    ("reminder.create", Guard.REMIND_AGENT): row(rest=f"{MANAGE} oo33333 {DEAD}"),
    ("reminder.list", Guard.REMIND_AGENT): row(rest=f"{MANAGE} oo33333 {DEAD}"),
    ("reminder.cancel", Guard.REMIND_AGENT): row(rest=f"{MANAGE} oo33333 {DEAD}"),
    ("reminder.create", Guard.AN_AGENT): row(mcp=f"rrrrrrr ooeeeee {DEAD}"),
    ("reminder.list", Guard.AN_AGENT): row(mcp=f"rrrrrrr ooeeeee {DEAD}"),
    ("reminder.cancel", Guard.AN_AGENT): row(mcp=f"rrrrrrr oommmmm {DEAD}"),
    ("loop.start", Guard.USE_AGENT): row(page=USE + OUT, rest=REST_USE, mcp=TOOL_USE),
    ("loop.list", Guard.USE_AGENT): row(page=USE + OUT, rest=REST_USE, mcp=TOOL_USE),
    ("loop.list", Guard.VISIBLE): row(mcp=f"oooeoee ooeeeee {DEAD}"),
    ("loop.read", Guard.FOLLOW_LOOP): row(page=FOLLOW + OUT, rest=f"{FOLLOW} ooo3333 {DEAD}", mcp=TOOL_FOLLOW),
    ("loop.stop", Guard.FOLLOW_LOOP): row(page=FOLLOW + OUT, rest=f"{FOLLOW} ooo3333 {DEAD}", mcp=TOOL_FOLLOW),
    ("events.listen", Guard.VISIBLE): row(socket=f"oooooo3 ooooooo {DEAD}"),
    ("events.listen", Guard.USE_AGENT): row(socket=f"ooo3333 ooo3333 {DEAD}"),
    # A page's socket is for a page, so it takes no key.
    ("events.listen", Guard.FOLLOW_LOOP): row(socket=f"ooo3o33 1111111 {DEAD}"),
    ("nothing", Guard.NOBODY): row(rest=f"4444444 4444444 {DEAD}", socket="1111111 1111111 1111"),
}
PAGE_SOCKET = "ws/agents/<str:name>/loops/"
EXCEPTIONS = {  # ways that differ from the others of their row, and why
    ("SOCKET", PAGE_SOCKET, ""): f"ooo3333 1111111 {DEAD}",  # a page's socket again
    ("PATCH", "api/agents/<str:name>", "command"): f"3o33334 3333333 {DEAD}",  # a client knows of no agent
}


def expected(rule: Rule) -> dict[str, str]:
    """The sign of each caller for this way."""
    signs = EXCEPTIONS.get((rule.how, rule.where, rule.field)) or MATRIX[rule.action, rule.guard][rule.transport]
    assert signs is not None, f"{rule} is not offered"
    return dict(zip(CALLERS, signs.replace(" ", ""), strict=True))


# -- no hole --------------------------------------------------------------------------------------
def test_the_matrix_has_no_hole_and_no_idle_row(capsys):
    offered = {(rule.action, rule.guard, rule.transport) for rule in checks.RULES}
    rows = {(rule.action, rule.guard) for rule in checks.RULES}
    assert set(MATRIX) == rows
    said = {(*key, transport) for key, by_transport in MATRIX.items() for transport in by_transport}
    assert said == {(*key, transport) for key, transport in product(rows, TRANSPORTS)}
    assert {(*key, way) for key, cells in MATRIX.items() for way, signs in cells.items() if signs} == offered
    signs = Counter(sign for rule in checks.RULES for sign in expected(rule).values())
    ways = len(checks.RULES)
    assert sum(signs.values()) == ways * len(CALLERS)
    with capsys.disabled():
        print(
            f"\nverdict matrix: {len(rows)} actions x {len(TRANSPORTS)} transports x {len(CALLERS)} callers = "
            f"{len(said) * len(CALLERS)} combinations ({len(offered) * len(CALLERS)} offered, 0 holes); "
            f"{ways} ways x {len(CALLERS)} callers = {ways * len(CALLERS)} verdicts taken"
        )


def test_every_way_has_a_rule_and_every_rule_a_way():
    assert checks.holes(checks.ways()) == [] and checks.every_way_has_a_rule() == []
    assert len(set(checks.RULES)) == len(checks.RULES)


@pytest.mark.parametrize(
    "way", [("GET", "api/new"), ("PUT", "api/agents"), ("ANY", "new/"), ("TOOL", "new"), ("SOCKET", "ws/new")]
)
def test_a_way_without_a_rule_is_named_and_stops_the_start(way, monkeypatch):
    found = [*checks.ways(), way]
    assert [said for said in checks.holes(found) if "has no rule" in said and way[1] in said] == checks.holes(found)
    assert len(checks.holes(found)) == 1
    monkeypatch.setattr(checks, "ways", lambda: found)
    assert [error.id for error in checks.every_way_has_a_rule()] == ["trinity.E001"]
    with pytest.raises(ImproperlyConfigured, match=way[1]):
        checks.demand_a_rule_for_every_way()


@pytest.mark.parametrize("way", ["GET api/gone", "POST gone/", "TOOL gone", "SOCKET ws/gone", "PUT health"])
def test_a_rule_without_a_way_is_named(way):
    idle = rules({("gone", Guard.ANYBODY): (way,)})
    (said,) = checks.holes(checks.ways(), [*checks.RULES, *idle])
    assert way.split()[1] in said and "no such way" in said


# -- the cast -------------------------------------------------------------------------------------
@dataclass
class Who:
    """A caller: `actor` as the trail has it, "" where there is none; `person` with a session; `secret` their key."""

    actor: str
    secret: str | None
    loop: Any
    person: Any = None


@pytest.fixture
def house(cast, now):
    """The cast of CALLERS, with what each way is about."""
    cast.falcon.max_parallel_tasks = 8
    cast.falcon.save()
    cast.erin, cast.frank = make_user("erin"), make_user("frank")
    others = {name: make_agent(cast.carol, name) for name in ("heron", "magpie", "kestrel", "ibis")}
    others["egret"] = make_agent(cast.alice, "egret")
    Share.objects.create(agent=cast.falcon, user=cast.erin)
    for name in ("heron", "ibis"):
        CallPermission.objects.create(caller=others[name], target=cast.falcon)
    CallPermission.objects.create(caller=cast.falcon, target=others["kestrel"])
    began = {}
    for who in (caller(cast.alice), caller(cast.erin), caller(cast.carol, agent=others["ibis"])):
        began[who.name] = start(who, cast.falcon, now, **JOB)
        play(cast.falcon, now, ok(SECRET))
    Share.objects.filter(user=cast.erin).delete()
    CallPermission.objects.filter(caller=others["ibis"]).delete()
    first, second = Execution.objects.filter(loop_id=began["alice"].pk).order_by("pk")
    assert (first.state, second.state) == ("success", "running")
    Worker.objects.create(owner=OWNER, slots=1, seen_at=now)
    keyed = keys.issue(cast.alice, name=SECRET, agent=cast.falcon)[0]
    reminder = reminders.set_reminder(
        caller(cast.alice), cast.falcon, reminders.NewReminder(message=SECRET, delay_seconds=600), now
    )
    cache.clear()  # of counted sign-ins
    return SimpleNamespace(
        **vars(cast), others=others, began=began, over=first, turn=second, key=keyed, reminder=reminder
    )


def who_is(house, name: str) -> Who:
    people = {
        **{"owner": house.alice, "admin": house.root, "shared": house.bob, "stranger": house.carol},
        **{"initiator": house.erin, "initiator-elsewhere": house.erin, "client": house.dora, "disabled": house.frank},
    }
    agents = {
        **{"itself": house.falcon, "permitted": house.others["heron"], "sibling": house.others["egret"]},
        **{"foreign": house.others["magpie"], "callee": house.others["kestrel"], "revoked": house.others["ibis"]},
    }
    theirs = {"initiator": "erin", "revoked": "agent:ibis"}
    loop = house.began[theirs.get(name, "alice")]
    if name in people:
        person = people[name]
        secret = keys.issue(person, name="test")[1]
        if name == "disabled":
            type(person).objects.filter(pk=person.pk).update(is_active=False)
        return Who("" if name == "disabled" else person.username, secret, loop, person)
    if name in agents:
        return Who(
            f"agent:{agents[name].name}", keys.issue(agents[name].owner, name="test", agent=agents[name])[1], loop
        )
    match name:
        case "turn":
            return Who("agent:falcon", keys.turn_key(house.turn.pk, house.turn.attempt), loop)
        case "ended-turn":
            return Who("", keys.turn_key(house.over.pk, house.over.attempt), loop)
        case "revoked-key":
            key, secret = keys.issue(house.alice, name="test")
            keys.revoke(key, timezone.now())
            return Who("", secret, loop)
    return Who("", None, loop)


# -- how each way is taken --------------------------------------------------------------------------
def address(rule: Rule, house, who: Who) -> str:
    """The way's address, about falcon and the caller's loop."""
    named = {
        **{
            "<str:name>": "falcon",
            "<slug:name>": "falcon",
            "<str:loop_id>": who.loop.pk,
            "<slug:loop_id>": who.loop.pk,
        },
        **{"<int:run_number>": "1", "<int:number>": "1", "<int:key_id>": str(house.key.pk)},
        **{
            "<str:execution_id>": house.turn.pk,
            "<slug:execution_id>": house.turn.pk,
            "<str:reminder_id>": house.reminder.pk,
        },
    }
    where = {"static/": "static/css/app.css", r"^api(?:/[\s\S]*)?$": "api/nothing/of/that/name"}.get(
        rule.where, rule.where
    )
    for mark, value in named.items():
        where = where.replace(mark, value)
    assert "<" not in where, f"no value for a part of {where}"
    query = {"loop": f"?loop={who.loop.pk}", "agent": "?agent=falcon"} if rule.how != "TOOL" else {}
    return f"/{where}{query.get(rule.field, '') if rule.how == 'SOCKET' or rule.where.endswith('state/') else ''}"


COMMAND = ["/bin/true"]
BODIES: dict[tuple[str, str, str], dict[str, Any]] = {
    ("POST", "api/token", ""): {"username": "alice", "password": PASSWORD},
    ("POST", "login/", ""): {"username": "alice", "password": PASSWORD},
    ("POST", "api/agents", ""): {"name": "falcon-2", "command": COMMAND},
    ("PATCH", "api/agents/<str:name>", ""): {"description": "new"},
    ("PATCH", "api/agents/<str:name>", "command"): {"command": COMMAND},
    ("PUT", "api/agents/<str:name>/timeout", ""): {"timeout_seconds": 600},
    ("PUT", "api/agents/<str:name>/shares", ""): {"users": ["carol"]},
    ("PUT", "api/agents/<str:name>/permissions", ""): {"agents": []},
    ("POST", "api/agents/<str:name>/task", ""): {"message": SECRET},
    ("POST", "api/agents/<str:name>/chat", ""): {"message": SECRET},
    ("POST", "api/agents/<str:name>/reminders", ""): {"message": SECRET, "delay_seconds": 600},
    ("POST", "api/agents/<str:name>/loops", ""): JOB,
    ("POST", "api/keys", ""): {"name": "new"},
    ("POST", "api/keys", "agent"): {"name": "new", "agent": "falcon"},
    ("POST", "agents/<slug:name>/loops/new/", ""): JOB,
    ("POST", "agents/<slug:name>/loops/outlook/", ""): JOB,
    ("TOOL", "run_agent_loop", ""): {**JOB, "agent_name": "falcon"},
    ("TOOL", "list_loops", "agent_name"): {"agent_name": "falcon"},
    ("TOOL", "chat_with_agent", ""): {"agent_name": "falcon", "message": SECRET},
    ("TOOL", "set_reminder", ""): {"message": SECRET, "delay_seconds": 600},
}
FORMS = {
    **{"share": {"user": "carol"}, "unshare": {"user": "bob"}, "permit": {"agent": "egret"}},
    **{"forbid": {"agent": "kestrel"}, "create-key": {"name": "new", "days": "30", "once": "1"}},
}


def body(rule: Rule, house, who: Who) -> dict[str, Any]:
    if rule.field.startswith("do="):
        verb = rule.field.removeprefix("do=")
        return {"do": verb, **FORMS.get(verb, {"key": house.key.pk})}
    if rule.how == "TOOL" and rule.guard is Guard.FOLLOW_LOOP:
        return {"loop_id": who.loop.pk}
    if rule.where == "cancel_reminder":
        return {"reminder_id": house.reminder.pk}
    return BODIES.get((rule.how, rule.where, rule.field), {})


# -- what it has come to ----------------------------------------------------------------------------
def is_about_it(rule: Rule, house, who: Who, said: str) -> bool:
    """Does the answer hold what the way is about, or has it changed it?"""
    match rule.action:
        case "agent.list":
            return '"falcon"' in said or "/agents/falcon/" in said
        case "execution.list":
            return house.turn.pk in said
        case "loop.list":
            return who.loop.pk in said or "state/" in rule.where
        case "key.read":
            return SECRET in said
        case "key.delete":
            return Key.objects.get(pk=house.key.pk).revoked_at is not None
        case "reminder.list":
            return house.reminder.pk in said
        case "reminder.create":
            return '"falcon"' in said
    return True


def refused_rows(who: Who, through: str) -> list[str]:
    """The actions of the refusals on the trail, oldest first; all are the caller's."""
    rows = list(Audit.objects.filter(verdict="refused").order_by("pk"))
    assert all((row.actor, row.through) == (who.actor, through) and row.reason for row in rows), list(map(vars, rows))
    assert not any(SECRET in f"{row.reason}{row.target}" for row in rows)
    return [row.action for row in rows]


def audited(rule: Rule, sign: str) -> list[str]:
    """What a verdict of this sign leaves on the trail."""
    return [rule.action] if sign in "34nplr" and rule.guard is not Guard.NOBODY else []


def ways_of(*transports: str) -> list[Rule]:
    return [rule for rule in checks.RULES if rule.transport in transports]


# -- pages and REST ---------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("transport", ["page", "rest"])
@pytest.mark.parametrize("name", CALLERS)
def test_each_caller_by_page_and_rest(house, name, transport, monkeypatch):
    monkeypatch.setattr(turns, "CHAT_WAITS", 0.01)
    who, wrong = who_is(house, name), []
    client = http_client(who, transport)
    signed_in = client.cookies.copy()
    # A chat gives its connection back while it waits, so it is in no transaction; nothing that comes after minds it.
    for rule in sorted(ways_of(transport), key=lambda rule: rule.where.endswith("/chat")):
        Audit.objects.all().delete()
        client.cookies = SimpleCookie(signed_in)
        if rule.where.endswith("/chat"):
            found = taken(rule, house, who, client)
        else:
            with transaction.atomic():
                found = taken(rule, house, who, client)
                transaction.set_rollback(True)
        wanted = (expected(rule)[name], audited(rule, expected(rule)[name]))
        if found != wanted:
            wrong.append(f"{rule.how} {rule.where} {rule.field}: {found}, not {wanted}")
    assert wrong == []


def http_client(who: Who, transport: str) -> Client:
    if transport == "page" and who.person is not None:
        client = Client()
        client.force_login(who.person)
        return client
    return Client(headers={"Authorization": f"Bearer {who.secret}"} if who.secret else {})


def taken(rule: Rule, house, who: Who, client: Client) -> tuple[str, list[str]]:
    """The sign that the way was answered with, and the refusals on the trail."""
    given, path = body(rule, house, who), address(rule, house, who)
    method = "GET" if rule.how == "ANY" else rule.how
    kind = {} if rule.transport == "page" else {"content_type": "application/json"}
    answer = client.generic(method, path) if method == "GET" else getattr(client, method.lower())(path, given, **kind)
    said = answer.getvalue().decode()
    return http_sign(rule, house, who, answer, said), refused_rows(who, rule.transport)


def http_sign(rule: Rule, house, who: Who, answer, said: str) -> str:
    code = answer.status_code
    if code in (301, 302):
        return "L" if "login/?next=" in answer["Location"] else "o" if is_about_it(rule, house, who, said) else "e"
    if code < 300:
        return "o" if is_about_it(rule, house, who, said) else "e"
    if code not in (401, 403, 404):
        return f"{code}: {said[:200]}"
    shown = [word for word in (SECRET, "alice", "falcon") if word in said.lower()]
    own = {"alice"} if who.actor == "alice" else set()
    return f"{code} tells {shown}" if set(shown) - own else str(code)[-1]


# -- MCP --------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", CALLERS)
def test_each_caller_by_mcp(house, name, monkeypatch):
    monkeypatch.setattr(turns, "CHAT_WAITS", 0.01)
    who, ways = who_is(house, name), ways_of("mcp")
    if not who.actor:
        assert {expected(rule)[name] for rule in ways} == {"1"}
        codes = asyncio.run(asked_plainly(who, ways))
        assert codes == [401] * len(ways) and refused_rows(who, "mcp") == []
        return
    listed, answers = mcp_caller.Mcp(who.secret).ask(lambda client: asked(client, house, who, ways))
    tools = [rule for rule in ways if rule.how == "TOOL"]
    assert {tool.name for tool in listed.tools} == {rule.where for rule in tools}
    found = {rule: tool_sign(rule, house, who, answer) for rule, answer in zip(tools, answers, strict=True)}
    assert found == {rule: expected(rule)[name] for rule in tools}
    assert refused_rows(who, "mcp") == [action for rule in tools for action in audited(rule, found[rule])]


async def asked(client, house, who: Who, ways: list[Rule]):
    """The tools that are listed, and each one's answer, one after another."""
    tools = [rule for rule in ways if rule.how == "TOOL"]
    return await client.list_tools(), [
        await mcp_caller.call(client, rule.where, body(rule, house, who)) for rule in tools
    ]


async def asked_plainly(who: Who, ways: list[Rule]) -> list[int]:
    async with mcp_caller.http(who.secret) as way:
        calls = [{"method": "tools/call", "params": {"name": rule.where, "arguments": {}}} for rule in ways]
        return [
            (await way.post("/mcp", json={"jsonrpc": "2.0", "id": 1, **call}, headers={"Accept": "*/*"})).status_code
            for call in calls
        ]


def tool_sign(rule: Rule, house, who: Who, answer: dict[str, Any]) -> str:
    """The sign of a tool's answer; a refusal's sentence is the exact one."""
    if answer["success"]:
        return "o" if is_about_it(rule, house, who, str(answer).replace("'", '"')) else "e"
    name = who.actor.removeprefix("agent:")
    sentences = {
        "Agent 'falcon' not found or not accessible": "n",
        f"Permission denied: Agent '{name}' is not permitted to communicate with 'falcon'.": "p",
        f"Loop '{who.loop.pk}' not found or not accessible": "l",
        f"Reminder '{house.reminder.pk}' not found or not accessible": "m",
        "Reminders are an agent's own: call this with a key that is bound to an agent.": "r",
    }
    return sentences.get(answer["error"], answer["error"])


# -- sockets ----------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", CALLERS)
async def test_each_caller_by_socket(house, name):
    who = await database_sync_to_async(who_is)(house, name)
    for rule in ways_of("socket"):
        await database_sync_to_async(Audit.objects.all().delete)()
        line = WebsocketCommunicator(sockets, address(rule, house, who), headers=await credential(rule, who))
        opened, _ = await line.connect(timeout=5)
        await line.disconnect()
        refusals = await database_sync_to_async(refused_rows)(who, "socket")
        sign = "o" if opened else "3" if refusals == [rule.action] else "1" if refusals == [] else str(refusals)
        assert (rule.where, rule.field, sign) == (rule.where, rule.field, expected(rule)[name])
        assert not opened or refusals == []


@database_sync_to_async
def credential(rule: Rule, who: Who) -> list[tuple[bytes, bytes]]:
    """A page's socket is opened with the page's session, every other one with a key."""
    headers = {"host": "testserver"}
    if rule.where == PAGE_SOCKET and who.person is not None:
        client = Client()
        client.force_login(who.person)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        headers |= {"origin": "http://testserver", "cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"}
    elif who.secret is not None:
        headers["authorization"] = f"Bearer {who.secret}"
    return [(name.encode(), value.encode()) for name, value in headers.items()]
