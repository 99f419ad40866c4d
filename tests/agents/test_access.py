"""Every verdict of agents.access in one table: who may do what with whose agent."""

import pytest

from agents import access
from agents.access import Caller, Verdict
from agents.models import Audit, CallPermission, Execution
from agents.refusals import Refused
from loops import engine
from tests.conftest import caller, make_agent
from tests.ledger import start

YES, NO, HIDDEN = Verdict.ALLOWED, Verdict.FORBIDDEN, Verdict.UNKNOWN

# who: use the agent, manage it, follow a loop on it that somebody else started
TABLE = {
    "owner": (YES, YES, YES),
    "admin": (YES, YES, YES),
    "shared": (YES, NO, YES),
    "stranger": (NO, NO, NO),
    "client": (HIDDEN, HIDDEN, HIDDEN),
    "the agent itself": (YES, NO, YES),
    "an agent that may call it": (YES, NO, YES),
    "an agent that it may call": (NO, NO, NO),
    "another agent of its owner": (NO, NO, NO),
    "a turn of the agent itself": (YES, NO, YES),
}


@pytest.fixture
def who(cast):
    """Each kind of caller by its name in the table."""
    friend, servant, sibling = (make_agent(cast.alice, name) for name in ("friend", "servant", "sibling"))
    CallPermission.objects.create(caller=friend, target=cast.falcon)
    CallPermission.objects.create(caller=cast.falcon, target=servant)
    people = {"owner": cast.alice, "admin": cast.root, "shared": cast.bob, "stranger": cast.carol, "client": cast.dora}
    agents = {
        "the agent itself": cast.falcon,
        "an agent that may call it": friend,
        "an agent that it may call": servant,
        "another agent of its owner": sibling,
    }
    turn = Execution(agent=cast.falcon, triggered_by="loop", requested_by="alice", message="x")
    return {
        **{name: caller(person) for name, person in people.items()},
        **{name: caller(cast.alice, agent=agent) for name, agent in agents.items()},
        "a turn of the agent itself": Caller(user=cast.alice, through="rest", agent=cast.falcon, execution=turn),
    }


@pytest.mark.parametrize("name", TABLE)
def test_the_verdict_is_the_tables(cast, who, name):
    use, manage, follow = TABLE[name]
    assert access.use_agent(who[name], cast.falcon) is use
    assert access.manage_agent(who[name], cast.falcon) is manage
    assert access.follow_loop(who[name], cast.falcon, cast.root.pk, started_by_agent=False) is follow


def test_nobody_knows_an_agent_that_is_not_there(cast, who):
    assert {access.use_agent(one, None) for one in who.values()} == {HIDDEN}


def test_who_started_a_loop_may_follow_it_after_losing_the_share(cast, now):
    loop = start(caller(cast.bob), cast.falcon, now)
    cast.falcon.shares.all().delete()
    loop = engine.loop_named(loop.pk)
    assert engine.may_follow(caller(cast.bob), loop) is YES
    assert access.use_agent(caller(cast.bob), cast.falcon) is NO
    assert engine.may_follow(caller(cast.carol), loop) is NO


def test_an_agent_loses_its_loops_with_its_permission(cast, now):
    friend = make_agent(cast.carol, "friend")
    CallPermission.objects.create(caller=friend, target=cast.falcon)
    began = caller(cast.carol, agent=friend)
    loop = engine.loop_named(start(began, cast.falcon, now).pk)
    assert engine.may_follow(began, loop) is YES
    CallPermission.objects.all().delete()
    assert engine.may_follow(began, loop) is NO
    assert engine.may_follow(caller(cast.carol), loop) is NO  # the agent's owner did not start it either


def test_the_history_of_a_deleted_agent_stays_with_owner_and_admin(cast, now):
    loop = start(caller(cast.bob), cast.falcon, now)
    cast.falcon.deleted_at = now
    cast.falcon.save()
    loop = engine.loop_named(loop.pk)
    verdicts = [engine.may_follow(caller(one), loop) for one in (cast.alice, cast.root, cast.bob, cast.carol)]
    assert verdicts == [YES, YES, NO, NO]
    assert access.use_agent(caller(cast.alice), cast.falcon) is HIDDEN


def test_visible_agents_are_those_that_may_be_used(cast, who):
    for name, one in who.items():
        assert access.visible_agents(one).filter(pk=cast.falcon.pk).exists() is (TABLE[name][0] is YES), name


def test_a_refusal_is_raised_and_on_the_trail_without_the_agents_name_in_its_words(cast):
    with pytest.raises(Refused) as refused:
        access.demand(NO, caller(cast.carol), "loop.start", "falcon", "Agent")
    assert refused.value.status == 403 and "falcon" not in refused.value.detail
    row = Audit.objects.get()
    assert (row.actor, row.action, row.target, row.verdict) == ("carol", "loop.start", "falcon", "refused")
    with pytest.raises(Refused) as hidden:
        access.demand(HIDDEN, caller(cast.carol), "loop.read", "loop_x", "Loop")
    assert hidden.value.status == 404
    access.demand(YES, caller(cast.carol), "loop.read", "loop_x", "Loop")
    assert Audit.objects.count() == 2


def test_the_trail_cannot_be_rewritten(cast):
    row = Audit.objects.create(actor="a", through="rest", action="loop.start", target="t", verdict="allowed")
    row.reason = "other"
    with pytest.raises(TypeError):
        row.save()
    with pytest.raises(TypeError):
        Audit.objects.update(reason="other")
