"""The MCP server, asked by the official client through our ASGI application: its tools, and who may do what with them."""

import asyncio
from datetime import timedelta

import pytest
from django.utils import timezone

from agents import access, executions, keys, life, reminders
from agents.api import turns
from agents.models import Agent, Audit, CallPermission, Execution, Reminder
from loops import engine
from loops.api import mcp_loops
from loops.api.fields import START
from loops.core.words import LoopStatus
from loops.models import Loop
from tests.conftest import caller, make_agent, make_user
from tests.ledger import OWNER, bad, claim, ok, play, start
from tests.mcp_caller import Mcp, agent_key, call, person
from tests.rest import person as rest_person

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "zebra-cargo-19"
JOB = {"message": SECRET, "max_runs": 3}
OWN = {"agent_name": "falcon", **JOB}


@pytest.fixture
def house(cast):
    """Beside falcon, which bob shares: alice's heron and ibis, carol's magpie. falcon may call heron."""
    cast.heron, cast.ibis = make_agent(cast.alice, "heron"), make_agent(cast.alice, "ibis")
    cast.magpie = make_agent(cast.carol, "magpie")
    CallPermission.objects.create(caller=cast.falcon, target=cast.heron)
    return cast


def failure(answer):
    assert answer["success"] is False and set(answer) == {"success", "error"}, answer
    return answer["error"]


def turn_key(agent, now):
    """The key of a turn of this agent that runs; the turn too."""
    turn = claim(agent, now)
    return Mcp(keys.turn_key(turn.execution.pk, turn.attempt)), turn


# -- what there is ----------------------------------------------------------------------------------
def test_the_tools_are_told_with_every_argument(cast):
    tools = person(cast.alice).tools()
    assert {name: (list(tool.input_schema["properties"]), tool.input_schema.get("required", [])) for name, tool in tools.items()} == {
        "run_agent_loop": ([*START["properties"], "agent_name", "idempotency_key"], ["message", "max_runs"]),
        "get_loop_status": (["loop_id"], ["loop_id"]),
        "stop_loop": (["loop_id"], ["loop_id"]),
        "list_loops": (["agent_name", "status", "limit"], []),
        "list_agents": ([], []),
        "chat_with_agent": (["agent_name", "message"], ["message"]),
        "set_reminder": (["message", "model", "timeout_seconds", "allowed_tools", "delay_seconds", "fire_at"], ["message"]),
        "list_reminders": (["status"], []),
        "cancel_reminder": (["reminder_id"], ["reminder_id"]),
    }  # fmt: skip


def test_every_tool_and_argument_is_described_and_nothing_else_is_taken(cast):
    for tool in person(cast.alice).tools().values():
        assert len(tool.description) > 30 and tool.title and tool.input_schema["additionalProperties"] is False
        for name, field in tool.input_schema["properties"].items():
            assert field["description"], (tool.name, name)


def test_the_bounds_of_a_start_are_those_of_rest(cast):
    told = person(cast.alice).tools()["run_agent_loop"].input_schema["properties"]
    for name, field in START["properties"].items():
        assert {key: value for key, value in told[name].items() if key != "description"} == {
            key: value for key, value in field.items() if key != "description"
        }


def test_a_tool_says_whether_it_changes_or_ends_anything(cast):
    told = {name: tool.annotations for name, tool in person(cast.alice).tools().items()}
    reads = {"get_loop_status", "list_loops", "list_agents", "list_reminders"}
    assert {name for name, hints in told.items() if hints.read_only_hint} == reads
    assert {name for name, hints in told.items() if hints.destructive_hint} == {"stop_loop", "cancel_reminder"}
    assert {name for name, hints in told.items() if hints.idempotent_hint} == {*reads, "stop_loop", "cancel_reminder"}


# -- loops ------------------------------------------------------------------------------------------
def test_a_loop_is_started_read_and_stopped(cast, now):
    alice = person(cast.alice)
    started = alice.tool("run_agent_loop", **OWN)
    loop = Loop.objects.get()
    assert started == {
        "success": True,
        "loop_id": loop.pk,
        "status": "queued",
        "agent_name": "falcon",
        "max_runs": 3,
        "on_failure": "abort",
    }
    assert loop.started_by == "alice" and Audit.objects.get(action="loop.start").through == "mcp"
    play(cast.falcon, timezone.now(), ok("one", cost="0.25"))
    assert alice.tool("stop_loop", loop_id=loop.pk) == {"success": True, "loop_id": loop.pk, "status": "stopping"}
    executions.finish(_running(), ok("two"), OWNER, timezone.now())
    ended = alice.tool("get_loop_status", loop_id=loop.pk)
    assert (ended["status"], ended["stop_reason"], ended["stopped_by"]) == ("stopped", "user_stopped", "alice")
    assert [run["response_preview"] for run in ended["runs"]] == ["one", "two"] and ended["total_cost"] == 0.25
    assert alice.tool("stop_loop", loop_id=loop.pk)["status"] == "already_done"


def _running():
    row = Execution.objects.select_related("agent").get(state="running")
    return executions.Turn(row, row.agent, row.fence, row.attempt)


def test_the_status_is_the_object_of_rest(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, stop_signal="[[DONE]]", allowed_tools=[], max_cost_usd=1.5)
    play(cast.falcon, now, ok("é 💡 \u2028"))
    told = person(cast.alice).tool("get_loop_status", loop_id=loop.pk)
    rest = rest_person(cast.alice).get(f"/api/loops/{loop.pk}").json()
    assert told == {"success": True, **rest, "elapsed_seconds": told["elapsed_seconds"]}
    assert told["last_response"] == "é 💡 \u2028" and told["allowed_tools"] == []


BOUNDS = {
    "max_runs": ([1, 100], [0, 101, 1.0, "1", True, None]),
    "message": (["x"], ["", " \n", "x" * 100_001, "a\0b", 5, None]),
    "stop_signal": (["x" * 200, " ", None], ["x" * 201, 1]),
    "delay_seconds": ([0, 3600, None], [-1, 3601]),
    "timeout_per_run": ([10, 3600], [9, 3601, 7201]),
    "max_duration_seconds": ([3600, 604_800], [0, 3599, 604_801]),
    "max_cost_usd": ([0.000001, 1], [0, -1, "1", True]),
    "no_progress_threshold": ([0, 2], [1, -1]),
    "on_failure": (["continue"], ["retry", ["abort"]]),
    "max_consecutive_failures": ([1, 100], [0, 101]),
    "model": (["m" * 200], ["m" * 201, 5]),
    "allowed_tools": ([[], ["Read"], None], ["Read", ["a,b"], [""]]),
    "idempotency_key": (["k" * 255, None], ["", "k" * 256, "a\nb", 5]),
    "max_iterations": ([], [5]),
    "stopSignal": ([], [None]),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_the_limits_hold_and_a_refusal_names_the_argument(cast, name):
    good, beyond = BOUNDS[name]
    calls = [("run_agent_loop", {**OWN, name: value}) for value in [*good, *beyond]]
    answers = person(cast.alice).together(*calls)
    assert [answer["success"] for answer in answers] == [True] * len(good) + [False] * len(beyond), answers
    assert all(failure(answer).startswith(f"{name} ") for answer in answers[len(good) :])
    assert Loop.objects.count() == len(good)
    refusals = Audit.objects.filter(action="loop.start", verdict="refused")
    assert not any(SECRET in row.reason for row in refusals)


def test_all_that_is_wrong_is_named_at_once(cast):
    alice = person(cast.alice)
    said = failure(alice.tool("run_agent_loop", agent_name="falcon", max_runs=0, delay_seconds=-1, every=5))
    assert all(f"{name} " in said for name in ("message", "max_runs", "delay_seconds", "every"))
    assert failure(alice.tool("get_loop_status")) == "loop_id is required."
    assert failure(alice.tool("stop_loop", loop_id=5)) == "loop_id must be text."
    assert failure(alice.tool("list_agents", name="x")).startswith("name ")


def test_an_agent_that_does_not_run_starts_no_loop(cast, now):
    life.stop(cast.falcon, caller(cast.alice), now)
    assert "not running" in failure(person(cast.alice).tool("run_agent_loop", **OWN))


def test_too_many_loops_are_refused_with_the_time_to_wait(cast, settings):
    settings.TRINITY_MAX_ACTIVE_PER_AGENT = 1
    alice = person(cast.alice)
    assert alice.tool("run_agent_loop", **OWN)["success"] is True
    said = failure(alice.tool("run_agent_loop", **OWN))
    assert "1 active loops" in said and said.endswith("Try again after 30 s.")
    assert Loop.objects.count() == 1


def test_the_same_idempotency_key_starts_one_loop_whichever_way_it_comes(cast):
    alice = person(cast.alice)
    first, again = alice.together(*[("run_agent_loop", {**OWN, "idempotency_key": "k"})] * 2)
    assert first == again and first["success"] is True
    over_rest = rest_person(cast.alice).post("/api/agents/falcon/loops", JOB, Idempotency_Key="k")
    assert over_rest.json()["loop_id"] == first["loop_id"]
    said = failure(alice.tool("run_agent_loop", **{**OWN, "max_runs": 2, "idempotency_key": "k"}))
    assert said.startswith("This idempotency_key was used before")
    assert person(cast.bob).tool("run_agent_loop", **OWN, idempotency_key="k")["loop_id"] != first["loop_id"]
    assert Loop.objects.count() == 2


def test_a_loop_from_inside_a_turn_is_one_deeper(cast, now, settings):
    settings.TRINITY_MAX_LOOP_DEPTH = 1
    start(caller(cast.alice), cast.falcon, now)
    inside, _ = turn_key(cast.falcon, now)
    started = inside.tool("run_agent_loop", **JOB)
    assert Loop.objects.get(pk=started["loop_id"]).depth == 1
    Execution.objects.filter(state="running").update(depth=1)
    assert "deep" in failure(inside.tool("run_agent_loop", **JOB))


# -- who may ----------------------------------------------------------------------------------------
def test_owner_admin_and_shared_start_loops_and_nobody_else(house):
    for who, name in ((house.alice, "alice"), (house.root, "root"), (house.bob, "bob")):
        started = person(who).tool("run_agent_loop", **OWN)
        assert Loop.objects.get(pk=started["loop_id"]).started_by == name
    for who in (house.carol, house.dora):
        for target in ("falcon", "nobody", "", "a b", "fal\0con", "x" * 70):
            said = failure(person(who).tool("run_agent_loop", **{**OWN, "agent_name": target}))
            assert said == f"Agent '{target}' not found or not accessible"
    assert Loop.objects.count() == 3


@pytest.mark.parametrize(
    ("tool", "more", "action"),
    [
        ("run_agent_loop", JOB, "loop.start"),
        ("list_loops", {}, "loop.list"),
        ("chat_with_agent", {"message": SECRET}, "execution.start"),
    ],
)
def test_a_foreign_agent_reads_like_an_unknown_one_before_any_validation(house, tool, more, action):
    for target in ("falcon", "nobody"):
        for who in (house.carol, house.dora):
            said = failure(person(who).tool(tool, agent_name=target, **more, nonsense=1))
            assert said == f"Agent '{target}' not found or not accessible"
    for target in ("ibis", "magpie", "nobody"):
        said = failure(agent_key(house.falcon).tool(tool, agent_name=target, **more, nonsense=1))
        assert said == f"Permission denied: Agent 'falcon' is not permitted to communicate with '{target}'."
    rows = Audit.objects.filter(verdict="refused", action=action, through="mcp")
    assert {(row.actor, row.target) for row in rows} == {
        *((who, target) for who in ("carol", "dora") for target in ("falcon", "nobody")),
        *(("agent:falcon", target) for target in ("ibis", "magpie", "nobody")),
    }
    assert all(row.reason and SECRET not in row.reason for row in rows) and not Execution.objects.exists()


def test_a_persons_key_has_to_name_an_agent(cast):
    for tool, more in (("run_agent_loop", JOB), ("chat_with_agent", {"message": "hi"})):
        for named in ({}, {"agent_name": None}):
            said = failure(person(cast.alice).tool(tool, **more, **named))
            assert said == "agent_name is required with a key that is not bound to an agent."
    assert (
        failure(person(cast.alice).tool("run_agent_loop", **JOB, agent_name=["falcon"])) == "agent_name must be text."
    )


def test_an_agent_loops_itself_and_what_it_may_call_in_that_direction_only(house):
    falcon = agent_key(house.falcon)
    assert falcon.tool("run_agent_loop", **JOB)["agent_name"] == "falcon"
    assert falcon.tool("run_agent_loop", **JOB, agent_name="heron")["agent_name"] == "heron"
    assert {loop.started_by for loop in Loop.objects.all()} == {"agent:falcon"}
    said = failure(agent_key(house.heron).tool("run_agent_loop", **OWN))
    assert said == "Permission denied: Agent 'heron' is not permitted to communicate with 'falcon'."
    names = {agent["name"] for agent in falcon.tool("list_agents")["agents"]}
    assert names == {"falcon", "heron"}


def test_a_foreign_unknown_or_malformed_loop_reads_the_same(house, now):
    loop = start(caller(house.alice), house.ibis, now)
    for who in (person(house.carol), person(house.dora), person(house.bob), agent_key(house.falcon)):
        for tool in ("get_loop_status", "stop_loop"):
            for asked in (loop.pk, "loop_nothere", "", "a/b", "x\0", "é" * 300):
                said = failure(who.tool(tool, loop_id=asked, nonsense=1))
                assert said == f"Loop '{asked}' not found or not accessible"
    loop.refresh_from_db()
    assert loop.stop_requested_at is None
    stops = Audit.objects.filter(action="loop.stop", target=loop.pk, verdict="refused")
    assert {row.actor for row in stops} == {"carol", "dora", "bob", "agent:falcon"}
    assert failure(person(house.alice).tool("get_loop_status", loop_id=loop.pk, nonsense=1)).startswith("nonsense ")


def test_an_agent_loses_its_loops_with_the_permission_and_a_person_does_not_with_the_share(house):
    agent, bob = agent_key(house.falcon), person(house.bob)
    called = agent.tool("run_agent_loop", **JOB, agent_name="heron")["loop_id"]
    shared = bob.tool("run_agent_loop", **OWN)["loop_id"]
    assert agent.tool("get_loop_status", loop_id=called)["success"] is True
    CallPermission.objects.all().delete()
    house.falcon.shares.all().delete()
    for tool in ("get_loop_status", "stop_loop"):
        assert failure(agent.tool(tool, loop_id=called)) == f"Loop '{called}' not found or not accessible"
    assert bob.tool("get_loop_status", loop_id=shared)["success"] is True
    assert bob.tool("stop_loop", loop_id=shared)["status"] == "stopping"
    assert failure(bob.tool("run_agent_loop", **OWN)) == "Agent 'falcon' not found or not accessible"
    assert Loop.objects.get(pk=called).stop_requested_at is None


def test_the_key_of_a_turn_is_its_agents_and_dies_with_the_turn(house, now):
    start(caller(house.alice), house.falcon, now)
    inside, turn = turn_key(house.falcon, now)
    assert inside.tool("list_loops")["loops"][0]["agent_name"] == "falcon"
    assert failure(inside.tool("run_agent_loop", **JOB, agent_name="ibis")).startswith("Permission denied")
    executions.finish(turn, ok(), OWNER, now, keep_slot=False)
    with pytest.raises(ExceptionGroup):
        inside.tool("list_loops")


# -- lists ------------------------------------------------------------------------------------------
@pytest.fixture
def loops(house, now):
    """A loop of bob's on falcon, whose share is gone since; one each of heron and magpie; one of a deleted agent of alice's."""
    house.gone = make_agent(house.alice, "gone")
    house.loops = {
        "shared": start(caller(house.bob), house.falcon, now).pk,
        "called": start(caller(house.alice, agent=house.falcon), house.heron, now).pk,
        "magpie": start(caller(house.carol), house.magpie, now).pk,
        "gone": start(caller(house.bob), house.gone, now).pk,
    }
    house.falcon.shares.all().delete()
    life.delete(house.gone, caller(house.alice), now)
    return house


def listed(who, **asked):
    answer = who.tool("list_loops", **asked)
    assert answer["success"] is True, answer
    return [loop["loop_id"] for loop in answer["loops"]]


def test_without_a_name_a_person_sees_all_they_may_and_an_agent_its_own(loops):
    found = {
        "root": listed(person(loops.root)),
        "alice": listed(person(loops.alice)),
        "bob": listed(person(loops.bob)),
        "carol": listed(person(loops.carol)),
        "dora": listed(person(loops.dora)),
        "falcon": listed(agent_key(loops.falcon)),
        "heron": listed(agent_key(loops.heron)),
    }
    expected = {
        "root": ["gone", "magpie", "called", "shared"],
        "alice": ["gone", "called", "shared"],
        "bob": ["shared"],
        "carol": ["magpie"],
        "dora": [],
        "falcon": ["shared"],
        "heron": ["called"],
    }
    assert found == {who: [loops.loops[name] for name in names] for who, names in expected.items()}


def test_what_a_person_is_shown_is_what_they_may_follow(loops):
    for name in ("alice", "bob", "carol", "dora", "root"):
        one = caller(getattr(loops, name))
        shown = set(Loop.objects.filter(mcp_loops.visible(one)))
        assert shown == {loop for loop in Loop.objects.all() if engine.may_follow(one, loop) is access.Verdict.ALLOWED}


def test_a_list_has_one_agents_loops_filtered_and_bounded(loops, now):
    alice = person(loops.alice)
    more = [start(caller(loops.alice), loops.heron, now).pk for _ in range(2)]
    assert listed(alice, agent_name="heron") == [*reversed(more), loops.loops["called"]]
    assert listed(alice, agent_name="heron", limit=1) == more[-1:]
    assert listed(alice, status="failed") == [loops.loops["gone"]]
    assert listed(alice, status="running", limit=200) == []
    for wrong in (
        {"limit": 0},
        {"limit": 201},
        {"limit": "5"},
        {"status": "active"},
        {"status": []},
        {"agent": "heron"},
    ):
        assert failure(alice.tool("list_loops", **wrong)).startswith(f"{next(iter(wrong))} ")


def test_the_items_are_those_of_rest(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    told = person(cast.alice).tool("list_loops", agent_name="falcon")["loops"]
    assert told == rest_person(cast.alice).get("/api/agents/falcon/loops").json()
    assert {told[0]["status"]} <= set(LoopStatus)


def test_the_queries_of_a_list_do_not_grow(cast, now, django_assert_max_num_queries):
    for _ in range(5):
        start(caller(cast.alice), cast.falcon, now)
    with django_assert_max_num_queries(3):
        assert len(mcp_loops._list(caller(cast.alice), {})["loops"]) == 5


def test_agents_are_told_as_rest_tells_them(house):
    for who in ("alice", "bob", "carol", "dora", "root"):
        user = getattr(house, who)
        assert person(user).tool("list_agents")["agents"] == rest_person(user).get("/api/agents").json()


# -- chat -------------------------------------------------------------------------------------------
def chat_that_ends_with(agent, who, result, **arguments):
    """The answer to a chat whose turn a worker ends while it waits."""

    async def question(client):
        asked = asyncio.create_task(call(client, "chat_with_agent", {"message": "hello", **arguments}))
        loop = asyncio.get_running_loop()
        while not await loop.run_in_executor(None, _end, agent, result):
            assert not asked.done(), asked.result()
        return await asked

    return who.ask(question)


def _end(agent, result):
    """Play the worker; False where there is no turn yet."""
    turn = claim(agent, timezone.now())
    if turn is not None:
        executions.finish(turn, result, OWNER, timezone.now(), keep_slot=False)
    return turn is not None


def test_a_chat_waits_for_the_response(cast):
    answer = chat_that_ends_with(cast.falcon, person(cast.bob), ok("hi there", cost="0.25"), agent_name="falcon")
    turn = Execution.objects.get()
    assert answer == {"success": True, "response": "hi there", "execution_id": turn.pk, "cost": 0.25}
    assert (turn.triggered_by, turn.requested_by, turn.message) == ("mcp", "bob", "hello")
    assert Audit.objects.get(action="execution.start").through == "mcp"


def test_a_chat_of_an_agent_is_told_apart(house):
    answer = chat_that_ends_with(house.heron, agent_key(house.falcon), ok("hi"), agent_name="heron")
    assert answer["response"] == "hi"
    turn = Execution.objects.get()
    assert (turn.triggered_by, turn.requested_by) == ("agent", "agent:falcon")


def test_a_chat_whose_turn_fails_says_why(cast):
    answer = chat_that_ends_with(cast.falcon, person(cast.alice), bad("the disk is full"), agent_name="falcon")
    assert failure(answer) == "the disk is full"


def test_a_chat_that_takes_too_long_is_a_receipt(cast, monkeypatch):
    monkeypatch.setattr(turns, "CHAT_WAITS", 0.1)
    answer = person(cast.alice).tool("chat_with_agent", agent_name="falcon", message="x")
    assert answer == {"success": True, "execution_id": Execution.objects.get().pk, "status": "queued"}


@pytest.mark.parametrize("wrong", [{"message": ""}, {"message": "x", "model": "m"}, {"message": None}, {}])
def test_a_chat_takes_a_message_and_nothing_else(cast, wrong):
    failure(person(cast.alice).tool("chat_with_agent", agent_name="falcon", **wrong))
    assert not Execution.objects.exists()


def test_chats_that_wait_hold_up_nobody(cast, monkeypatch):
    """More of them than there are threads, and a call that comes after them is answered before them."""
    monkeypatch.setattr(turns, "CHAT_WAITS", 1.5)
    order = []

    async def question(client):
        async def noted(name, arguments):
            await call(client, name, arguments)
            order.append(name)

        chats = [noted("chat_with_agent", {"agent_name": "falcon", "message": "x"}) for _ in range(12)]
        await asyncio.gather(*chats, noted("list_agents", {}))

    person(cast.alice).ask(question)
    assert order == ["list_agents", *["chat_with_agent"] * 12]


# -- reminders --------------------------------------------------------------------------------------
def test_a_reminder_is_set_listed_and_cancelled_as_over_rest(cast):
    falcon = agent_key(cast.falcon)
    made = falcon.tool("set_reminder", message="look again", delay_seconds=3600, allowed_tools=[])
    assert set(made) == {"success", "reminder"} and made["reminder"]["status"] == "pending"
    over_rest = rest_person(cast.alice).get("/api/agents/falcon/reminders").json()
    assert falcon.tool("list_reminders") == {"success": True, "reminders": over_rest}
    assert over_rest == [made["reminder"]]
    reminder_id = made["reminder"]["id"]
    for _ in range(2):
        assert falcon.tool("cancel_reminder", reminder_id=reminder_id)["reminder"]["status"] == "cancelled"
    assert falcon.tool("list_reminders", status="pending")["reminders"] == []
    assert len(falcon.tool("list_reminders", status="all")["reminders"]) == 1
    assert {row.through for row in Audit.objects.filter(action__startswith="reminder.")} == {"mcp"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"delay_seconds": 59}, "delay_seconds must be at least 60 seconds"),
        ({"delay_seconds": 2_592_001}, "delay_seconds must be at most 2,592,000 seconds"),
        ({"fire_at": "2001-01-01T00:00:00Z"}, "fire_at must be at least 60 seconds"),
        ({"fire_at": "soon"}, "fire_at must be an ISO 8601 time"),
        ({}, "delay_seconds must be given"),
        ({"delay_seconds": 60, "fire_at": "2999-01-01T00:00:00Z"}, "delay_seconds must be given"),
        ({"delay_seconds": 60, "agent_name": "heron"}, "agent_name is not a field"),
        ({"delay_seconds": 60, "message": ""}, "message must be"),
        ({"delay_seconds": 60, "timeout_seconds": 3601}, "timeout_seconds must be at most 3,600"),
    ],
)
def test_a_bad_reminder_is_refused_by_its_argument(cast, wrong, named):
    said = failure(agent_key(cast.falcon).tool("set_reminder", **{"message": "x", **wrong}))
    assert said.startswith(named), said
    assert not Reminder.objects.exists()


def test_the_26th_reminder_is_refused_with_the_time_to_wait(cast, now):
    new = reminders.NewReminder("x", delay_seconds=60)
    for _ in range(25):
        reminders.set_reminder(caller(cast.alice, agent=cast.falcon), cast.falcon, new, now)
    said = failure(agent_key(cast.falcon).tool("set_reminder", message="x", delay_seconds=60))
    assert "25 pending reminders" in said and "Try again after" in said


def test_reminders_are_for_agents_alone_and_each_has_its_own(house):
    made = agent_key(house.falcon).tool("set_reminder", message="x", delay_seconds=60)["reminder"]["id"]
    calls = {
        "set_reminder": {"message": "x", "delay_seconds": 60},
        "list_reminders": {},
        "cancel_reminder": {"reminder_id": made},
    }
    for who in (house.alice, house.root, house.dora):
        for tool, arguments in calls.items():
            assert "bound to an agent" in failure(person(who).tool(tool, **arguments))
    assert Audit.objects.filter(verdict="refused", action__startswith="reminder.").count() == 9
    heron = agent_key(house.heron)
    assert heron.tool("list_reminders")["reminders"] == []
    for asked in (made, "rem_nothere", "x\0"):
        said = failure(heron.tool("cancel_reminder", reminder_id=asked))
        assert said == f"Reminder '{asked}' not found or not accessible"
    assert Reminder.objects.get().status == "pending"


def test_a_held_reminder_comes_with_a_warning(cast, now):
    Agent.objects.filter(pk=cast.falcon.pk).update(autonomy=False)
    made = agent_key(cast.falcon).tool("set_reminder", message="x", delay_seconds=60)
    assert made["reminder"]["autonomy_hold"] is True and "autonomy is off" in made["warning"]


def test_a_fired_reminder_is_not_cancelled(cast, now):
    falcon = agent_key(cast.falcon)
    made = falcon.tool("set_reminder", message="x", delay_seconds=60)["reminder"]["id"]
    reminders.fire_due(timezone.now() + timedelta(seconds=60))
    assert "fired" in failure(falcon.tool("cancel_reminder", reminder_id=made))


def test_a_turn_sets_a_reminder_with_its_own_key(house, now):
    other = make_user("eve")
    start(caller(other, agent=house.falcon), house.falcon, now)
    inside, _ = turn_key(house.falcon, now)
    assert inside.tool("set_reminder", message="x", delay_seconds=60)["reminder"]["set_by"] == "agent:falcon"


# -- our own faults ---------------------------------------------------------------------------------
def test_a_fault_of_ours_is_logged_and_tells_the_caller_nothing_of_it(cast, monkeypatch, caplog):
    def broken(*_, **__):
        raise OSError("the disk of host seven is full")

    monkeypatch.setattr(engine, "create_loop", broken)
    said = failure(person(cast.alice).tool("run_agent_loop", **OWN))
    assert "seven" not in said and "failed" in said
    assert "the disk of host seven" in caplog.text and SECRET not in caplog.text
