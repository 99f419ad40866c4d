"""The ledger's verbs, each once, twice and by the wrong owner."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from agents import executions
from agents.executions import NewTurn
from agents.ids import new_id
from agents.models import Execution
from tests.conftest import make_agent
from tests.ledger import OWNER, ok

OTHER = "host/boot/2/2"


@pytest.fixture
def line(cast, now):
    """Three turns in falcon's line, oldest first."""
    new = NewTurn(agent_id=cast.falcon.pk, triggered_by="manual", requested_by="alice", message="x")
    return [executions.submit(new, now).pk for _ in range(3)]


def state(execution_id: str) -> str:
    return Execution.objects.get(pk=execution_id).state


def test_ids_rise_and_cannot_be_guessed():
    ids = [new_id("exec") for _ in range(1000)]
    assert ids == sorted(ids) and len({one[-16:] for one in ids}) == 1000


def test_a_bell_gives_the_head_of_the_line_whoever_rang(line, now):
    assert executions.claim(line[2], OWNER, now).execution.pk == line[0]
    assert executions.claim(line[0], OWNER, now).execution.pk == line[1]


def test_a_bell_for_nothing_is_harmless(line, now):
    assert executions.claim("exec_unknown", OWNER, now) is None
    for _ in range(3):
        executions.claim(line[0], OWNER, now)
    assert executions.claim(line[0], OWNER, now) is None


def test_no_claim_above_the_agents_slots(cast, line, now):
    cast.falcon.max_parallel_tasks = 2
    cast.falcon.save()
    claimed = [executions.claim(line[0], OWNER, now) for _ in range(3)]
    assert [turn is not None for turn in claimed] == [True, True, False]
    following = executions.finish(claimed[0], ok(), OWNER, now)
    assert following.execution.pk == line[2]


def test_a_slot_that_ends_takes_the_head_of_its_agents_line(line, now):
    turn = executions.claim(line[0], OWNER, now)
    for expected in line[1:]:
        turn = executions.finish(turn, ok(), OWNER, now)
        assert turn.execution.pk == expected
    assert executions.finish(turn, ok(), OWNER, now) is None


def test_a_lease_is_pushed_out_by_its_owner_alone(line, now):
    turn = executions.claim(line[0], OWNER, now)
    assert executions.renew(OTHER, now + timedelta(hours=1)) == 0
    assert executions.renew(OWNER, now + timedelta(hours=1)) == 1
    assert Execution.objects.get(pk=turn.execution.pk).lease_until > now + timedelta(hours=1)


def test_of_two_that_adopt_one_gets_the_turn(line, now):
    turn = executions.claim(line[0], OWNER, now)
    assert executions.adopt(turn.execution.pk, turn.fence, OTHER, now).fence == turn.fence + 1
    assert executions.adopt(turn.execution.pk, turn.fence, "host/boot/3/3", now) is None
    assert executions.begin_again(turn) is None
    assert executions.held_by(OWNER) == []


def test_only_turns_of_this_host_are_adoptable(line, now):
    executions.claim(line[0], OWNER, now)
    executions.claim(line[0], "elsewhere/boot/1/1", now)
    assert [row[0] for row in executions.adoptable("host", OTHER)] == [line[0]]
    assert executions.adoptable("host", OWNER) == []


def test_leaving_ends_the_leases_at_once(line, now):
    executions.claim(line[0], OWNER, now)
    assert executions.let_go(OWNER, now) == 1
    assert executions.adoptable("host", OTHER)[0][3] == now


def test_another_attempt_is_counted_under_the_same_fence(line, now):
    turn = executions.claim(line[0], OWNER, now)
    again = executions.begin_again(turn)
    assert (again.attempt, again.fence) == (2, turn.fence)


def test_a_cancelled_turn_in_the_line_never_begins(line, now):
    assert executions.cancel(line[0], "bob", now) == "cancelled"
    assert executions.cancel(line[0], "bob", now) is None
    assert executions.claim(line[0], OWNER, now).execution.pk == line[1]
    assert Execution.objects.get(pk=line[0]).error == "Cancelled by bob before it began."


def test_a_cancelled_turn_in_flight_is_closed_as_cancelled_and_keeps_its_cost(line, now):
    turn = executions.claim(line[0], OWNER, now)
    assert executions.cancel(line[0], "bob", now) == executions.cancel(line[0], "carol", now) == "cancelling"
    assert executions.cancelled_of(OWNER) == [line[0]]
    executions.finish(turn, ok("late", "0.5"), OWNER, now)
    row = Execution.objects.get(pk=line[0])
    assert (row.state, row.error, float(row.cost)) == ("cancelled", "Cancelled by bob.", 0.5)


def test_lost_bells_are_found_up_to_the_free_slots(cast, line, now):
    assert executions.unheard(now, 100) == []
    later = now + timedelta(seconds=3)
    assert executions.unheard(later, 100) == line
    assert executions.unheard(later, 1) == line[:1]
    cast.falcon.max_parallel_tasks = 2
    cast.falcon.save()
    executions.claim(line[0], OWNER, now)
    assert executions.unheard(later, 100) == [line[1]]
    cast.falcon.status = "stopped"
    cast.falcon.save()
    assert executions.unheard(later, 100) == []


def test_a_long_line_hides_no_lost_bell_of_another_agent(cast, line, now):
    zeta = make_agent(cast.alice, "zeta")
    for agent, many in ((cast.falcon, 50), (zeta, 1)):
        for _ in range(many):
            executions.submit(NewTurn(agent_id=agent.pk, triggered_by="manual", requested_by="a", message="x"), now)
    found = executions.unheard(now + timedelta(seconds=3), 100)
    assert found[:3] == line and len(found) == 4


@pytest.mark.parametrize("broken", [{"state": "success"}, {"state": "running"}, {"finished_at": "now"}])
def test_the_database_refuses_rows_that_contradict_themselves(line, now, broken):
    values = {name: now if value == "now" else value for name, value in broken.items()}
    with pytest.raises(IntegrityError), transaction.atomic():
        Execution.objects.filter(pk=line[0]).update(**values)


def test_what_is_rolled_back_rings_nobody(cast, now, django_capture_on_commit_callbacks):
    new = NewTurn(agent_id=cast.falcon.pk, triggered_by="manual", requested_by="alice", message="x")
    with django_capture_on_commit_callbacks() as callbacks:
        with transaction.atomic():
            executions.submit(new, now)
            transaction.set_rollback(True)
        assert callbacks == []
        executions.submit(new, now)
    assert len(callbacks) == 1
