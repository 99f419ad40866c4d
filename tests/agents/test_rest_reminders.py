"""Reminders over REST: set, list and cancel, by whom, and how a refusal reads."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agents import executions, keys, life, reminders
from agents.models import Audit, CallPermission, Execution, Reminder
from tests.conftest import caller, make_agent
from tests.ledger import OWNER, claim, ok, start
from tests.rest import Rest, agent_key, person

PATH = "/api/agents/falcon/reminders"
BODY = {"message": "look again", "delay_seconds": 3600}
FIELDS = {
    "id", "agent_name", "status", "message", "fire_at", "autonomy_hold", "model", "timeout_seconds", "allowed_tools", "set_by",
    "execution_id", "created_at", "fired_at", "cancelled_at", "cancelled_by",
}  # fmt: skip


def cancel(rest, reminder_id):
    return rest.post(f"{PATH}/{reminder_id}/cancel")


# -- the life of one --------------------------------------------------------------------------------
def test_a_reminder_is_set_listed_fired_and_told_as_such(cast):
    falcon = agent_key(cast.falcon)
    answer = falcon.post(PATH, BODY)
    made = answer.json()
    assert answer.status_code == 201 and set(made) == FIELDS
    assert (made["status"], made["set_by"], made["autonomy_hold"]) == ("pending", "agent:falcon", False)
    assert made["fire_at"].endswith("Z") and made["id"].startswith("rem_")
    assert [made["model"], made["timeout_seconds"], made["allowed_tools"], made["execution_id"]] == [None] * 4
    assert falcon.get(PATH).json() == [made]
    reminders.fire_due(timezone.now() + timedelta(hours=1))
    assert falcon.get(PATH).json() == []
    fired = falcon.get(PATH, status="all").json()[0]
    assert (fired["status"], fired["execution_id"]) == ("fired", Execution.objects.get().pk)
    assert fired["fired_at"].endswith("Z")
    row = falcon.get("/api/executions", triggered_by="reminder").json()
    assert [turn["execution_id"] for turn in row] == [fired["execution_id"]]


def test_what_was_sent_is_told_as_stored(cast):
    sent = {"message": "m", "fire_at": _in(hours=2), "model": "small", "timeout_seconds": 10, "allowed_tools": []}
    made = person(cast.alice).post(PATH, sent).json()
    assert {name: made[name] for name in sent} == sent and made["set_by"] == "alice"


def _in(**time):
    return (timezone.now() + timedelta(**time)).isoformat().replace("+00:00", "Z")


def test_null_is_not_sent(cast):
    nothing = dict.fromkeys(("fire_at", "model", "timeout_seconds", "allowed_tools"))
    assert person(cast.alice).post(PATH, {**BODY, **nothing}).status_code == 201


def test_cancelling_twice_is_one_cancelling(cast):
    falcon = agent_key(cast.falcon)
    made = falcon.post(PATH, BODY).json()
    for _ in range(2):
        answer = cancel(falcon, made["id"])
        assert answer.status_code == 200
        assert (answer.json()["status"], answer.json()["cancelled_by"]) == ("cancelled", "agent:falcon")
    assert falcon.get(PATH).json() == [] and len(falcon.get(PATH, status="all").json()) == 1


def test_what_has_fired_is_not_cancelled(cast):
    falcon = agent_key(cast.falcon)
    made = falcon.post(PATH, BODY).json()
    reminders.fire_due(timezone.now() + timedelta(hours=1))
    answer = cancel(falcon, made["id"])
    assert answer.status_code == 409 and "fired" in answer.json()["detail"]


def test_a_held_reminder_says_so(cast):
    falcon = agent_key(cast.falcon)
    life.change(cast.falcon, {"autonomy": False}, caller(cast.alice))
    assert falcon.post(PATH, BODY).json()["autonomy_hold"] is True
    assert falcon.get(PATH).json()[0]["autonomy_hold"] is True
    life.change(cast.falcon, {"autonomy": True}, caller(cast.alice))
    assert falcon.get(PATH).json()[0]["autonomy_hold"] is False


# -- refusals ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "named", "error"),
    [
        ({**BODY, "delay_seconds": 59}, {"delay_seconds"}, ("reminder_fire_too_soon", "min_delay_seconds", 60)),
        ({**BODY, "delay_seconds": 2_592_001}, {"delay_seconds"}, ("reminder_fire_too_far", "max_delay_seconds", 2_592_000)),
        ({"message": "x", "fire_at": "2001-01-01T00:00:00Z"}, {"fire_at"}, ("reminder_fire_too_soon", "min_delay_seconds", 60)),
        ({"message": "x", "fire_at": "2999-01-01T00:00:00Z"}, {"fire_at"}, ("reminder_fire_too_far", "max_delay_seconds", 2_592_000)),
        ({"message": "x"}, {"delay_seconds", "fire_at"}, None),
        ({**BODY, "fire_at": "2999-01-01T00:00:00Z"}, {"delay_seconds", "fire_at"}, None),
        ({"message": "x", "fire_at": "soon"}, {"fire_at"}, None),
        ({"message": "x", "fire_at": "2999-01-01T00:00:00"}, {"fire_at"}, None),
        ({"message": "x", "fire_at": "2999-01-01"}, {"fire_at"}, None),
        ({"message": "x", "fire_at": 32503680000}, {"fire_at"}, None),
        ({"message": "x", "fire_at": ["2999-01-01T00:00:00Z"]}, {"fire_at"}, None),
        ({**BODY, "delay_seconds": "3600"}, {"delay_seconds"}, None),
        ({**BODY, "delay_seconds": 3600.0}, {"delay_seconds"}, None),
        ({**BODY, "delay_seconds": True}, {"delay_seconds"}, None),
        ({"delay_seconds": 60}, {"message"}, None),
        ({**BODY, "message": " \n"}, {"message"}, None),
        ({**BODY, "message": "x" * 100_001}, {"message"}, None),
        ({**BODY, "message": "a\0b"}, {"message"}, None),
        ({**BODY, "timeout_seconds": 9}, {"timeout_seconds"}, None),
        ({**BODY, "allowed_tools": ["a,b"]}, {"allowed_tools"}, None),
        ({**BODY, "agent_name": "heron", "every": 60}, {"agent_name", "every"}, None),
        (
            {**BODY, "timeout_seconds": 3601}, {"timeout_seconds"},
            ("reminder_timeout_exceeds_agent_cap", "agent_cap_seconds", 3600),
        ),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_bad_input_is_refused_by_field_and_leaves_no_reminder(cast, body, named, error):
    answer = person(cast.alice).post(PATH, body)
    said = answer.json()
    assert answer.status_code == 400 and set(said["errors"]) == named
    if error:
        assert (said["error"], said[error[1]]) == (error[0], error[2])
    assert not Reminder.objects.exists()


def test_too_many_is_429_with_the_time_to_wait(cast):
    falcon = agent_key(cast.falcon)
    codes = [falcon.post(PATH, BODY).status_code for _ in range(25)]
    answer = falcon.post(PATH, BODY)
    assert codes == [201] * 25 and answer.status_code == 429
    assert (answer.json()["error"], answer.json()["max_pending"]) == ("reminder_pending_cap_reached", 25)
    assert 3500 < int(answer["Retry-After"]) <= 3600


@pytest.mark.parametrize("query", [{"status": "fired"}, {"status": ""}, {"state": "all"}])
def test_a_filter_that_is_none_is_refused(cast, query):
    assert person(cast.alice).get(PATH, **query).status_code == 400
    assert person(cast.alice).get(PATH, status="pending").status_code == 200


def test_an_idempotency_key_sets_one_reminder(cast):
    falcon = agent_key(cast.falcon)
    first, again = (falcon.post(PATH, BODY, Idempotency_Key="k") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201) and first.json() == again.json()
    assert falcon.post(PATH, {**BODY, "message": "other"}, Idempotency_Key="k").status_code == 409
    refused = falcon.post(PATH, BODY, Idempotency_Key="k" * 256)
    assert refused.status_code == 400 and set(refused.json()["errors"]) == {"Idempotency-Key"}
    assert falcon.post(PATH, BODY, Idempotency_Key="k" * 255).status_code == 201
    assert Reminder.objects.count() == 2


# -- who may ----------------------------------------------------------------------------------------
def _codes(rest, reminder_id, path=PATH):
    asked = (rest.get(path), rest.post(path, {"not": "valid"}), rest.post(f"{path}/{reminder_id}/cancel"))
    return [answer.status_code for answer in asked]


def test_only_the_agent_itself_its_owner_and_admins_come_near(cast):
    heron = make_agent(cast.alice, "heron")
    CallPermission.objects.create(caller=heron, target=cast.falcon)
    made = agent_key(cast.falcon).post(PATH, BODY).json()["id"]
    for who in (person(cast.bob), person(cast.carol), agent_key(heron)):
        assert _codes(who, made) == [403] * 3
    assert _codes(person(cast.dora), made) == [404] * 3
    assert _codes(Rest(), made) == [401] * 3
    assert _codes(person(cast.alice), made, "/api/agents/nobody/reminders") == [404] * 3
    assert Reminder.objects.get().status == "pending"
    for who in (person(cast.alice), person(cast.root), agent_key(cast.falcon)):
        assert _codes(who, made) == [200, 400, 200]


def test_a_refusal_tells_nothing_and_is_on_the_trail(cast):
    answer = person(cast.carol).post(PATH, {**BODY, "message": "zebra"})
    assert not any(word in answer.content.decode() for word in ("falcon", "alice", "zebra"))
    row = Audit.objects.get(verdict="refused")
    assert (row.actor, row.action, row.target, row.through) == ("carol", "reminder.create", "falcon", "rest")


def test_a_removed_share_or_permission_opens_nothing(cast):
    cast.falcon.shares.all().delete()
    assert person(cast.bob).get(PATH).status_code == 403


def test_another_agents_reminder_is_unknown(cast):
    heron = make_agent(cast.alice, "heron")
    made = agent_key(heron).post("/api/agents/heron/reminders", BODY).json()["id"]
    for name in (made, "rem_nothere", "x" * 100):
        assert cancel(agent_key(cast.falcon), name).status_code == 404
    assert Reminder.objects.get().status == "pending"


def test_a_turns_own_key_sets_a_reminder_of_a_new_chain_while_the_turn_runs(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    own = Rest(keys.turn_key(turn.execution.pk, turn.attempt))
    assert own.post(PATH, BODY).status_code == 201
    executions.finish(turn, ok(), OWNER, now, keep_slot=False)
    assert own.get(PATH).status_code == 401
    reminders.fire_due(timezone.now() + timedelta(hours=1))
    assert Execution.objects.get(triggered_by="reminder").depth == 0


def test_the_list_of_a_deleted_agent_is_gone_with_it(cast):
    person(cast.alice).post(PATH, BODY)
    assert person(cast.alice).delete("/api/agents/falcon").status_code == 204
    assert person(cast.alice).get(PATH).status_code == 404
    make_agent(cast.alice, "falcon")
    assert person(cast.alice).get(PATH, status="all").json() == []
