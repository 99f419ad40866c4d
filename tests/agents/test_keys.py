"""Bearer keys: shown once, kept as a hash, dead when revoked, expired, or when their turn is over."""

from datetime import timedelta

import pytest

from agents import executions, keys
from agents.models import Execution, Key
from tests.conftest import caller
from tests.ledger import OWNER, claim, ok, start


def test_a_key_is_kept_as_a_hash_alone(cast):
    key, secret = keys.issue(cast.alice, name="laptop")
    assert secret.startswith("trinity_") and len(secret) > 40
    assert secret not in str(Key.objects.values().get()) and key.digest == keys.digest(secret)


def test_a_key_speaks_for_its_person_or_its_agent(cast):
    person = keys.look_up(keys.issue(cast.alice, name="a")[1], "rest")
    agent = keys.look_up(keys.issue(cast.alice, name="b", agent=cast.falcon)[1], "mcp")
    assert (person.name, person.is_person, person.through) == ("alice", True, "rest")
    assert (agent.name, agent.is_person, agent.through) == ("agent:falcon", False, "mcp")


@pytest.mark.parametrize(
    "secret", ["", "trinity_", "trinity_wrong", "trinity_turn_", "trinity_turn_x.1.y", "trinity_turn_x.²", "\0"]
)
def test_what_is_no_key_opens_nothing(cast, secret):
    assert keys.look_up(secret, "rest") is None


def test_a_revoked_key_is_dead_and_revoking_twice_says_so(cast, now):
    key, secret = keys.issue(cast.alice, name="a")
    assert keys.revoke(key, now) and not keys.revoke(key, now)
    assert keys.look_up(secret, "rest") is None


def test_a_key_dies_with_its_time_its_person_and_its_agent(cast, now):
    expired = keys.issue(cast.alice, name="a", expires_at=now - timedelta(seconds=1))[1]
    of_agent = keys.issue(cast.alice, name="b", agent=cast.falcon)[1]
    of_bob = keys.issue(cast.bob, name="c", expires_at=now + timedelta(hours=1))[1]
    assert keys.look_up(expired, "rest") is None and keys.look_up(of_bob, "rest")
    cast.falcon.deleted_at = now
    cast.falcon.save()
    cast.bob.is_active = False
    cast.bob.save()
    assert keys.look_up(of_agent, "rest") is None and keys.look_up(of_bob, "rest") is None


def test_an_agents_key_dies_with_the_rights_of_who_gave_it(cast):
    of_owner = keys.issue(cast.alice, name="a", agent=cast.falcon)[1]
    of_admin = keys.issue(cast.root, name="b", agent=cast.falcon)[1]
    found = keys.look_up(of_admin, "rest")
    assert found.user == cast.alice and keys.look_up(of_owner, "rest")
    cast.falcon.owner = cast.carol
    cast.falcon.save()
    assert keys.look_up(of_owner, "rest") is None and keys.look_up(of_admin, "rest").user == cast.carol


def test_an_open_line_asks_the_same_of_its_key_as_the_door_did(cast, now):
    key, secret = keys.issue(cast.alice, name="a", agent=cast.falcon, expires_at=now + timedelta(hours=1))
    found = keys.look_up(secret, "socket")
    assert keys.is_alive(found)
    Key.objects.filter(pk=key.pk).update(expires_at=now - timedelta(seconds=1))
    assert not keys.is_alive(found) and keys.look_up(secret, "socket") is None


def test_its_last_use_is_noted_once_a_minute(cast, django_assert_num_queries):
    secret = keys.issue(cast.alice, name="a")[1]
    with django_assert_num_queries(2):
        keys.look_up(secret, "rest")
    with django_assert_num_queries(1):
        keys.look_up(secret, "rest")
    assert Key.objects.get().last_used_at


def test_a_turns_key_lives_exactly_as_long_as_its_attempt(cast, now):
    start(caller(cast.alice), cast.falcon, now)
    turn = claim(cast.falcon, now)
    secret = keys.turn_key(turn.execution.pk, 1)
    found = keys.look_up(secret, "rest")
    assert found.name == "agent:falcon" and found.execution.pk == turn.execution.pk
    assert keys.look_up(keys.turn_key(turn.execution.pk, 2), "rest") is None
    assert keys.look_up(secret[:-1] + ("0" if secret[-1] != "0" else "1"), "rest") is None
    executions.finish(turn, ok(), OWNER, now)
    assert keys.look_up(secret, "rest") is None
    assert secret not in str(list(Execution.objects.values()))
