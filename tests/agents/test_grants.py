"""What lets somebody in, given and taken: once each, with a line on the trail and a word to whoever forms verdicts."""

from datetime import timedelta

import pytest

from agents import access, grants, hints, keys
from agents.access import Verdict
from agents.models import Audit, CallPermission, Key, Share
from agents.refusals import Refused
from tests.conftest import caller, make_agent


@pytest.fixture
def said(monkeypatch):
    """The hints that are said, in order."""
    found = []
    monkeypatch.setattr(hints, "publish", found.append)
    return found


def trail() -> list[tuple[str, str, str, str]]:
    return list(Audit.objects.order_by("pk").values_list("actor", "action", "target", "reason"))


def errors_of(verb, *args) -> dict[str, list[str]]:
    with pytest.raises(Refused) as refused:
        verb(*args)
    assert refused.value.status == 400
    return refused.value.errors


# -- shares ---------------------------------------------------------------------------------------
def test_a_share_is_added_once_and_removed_once_and_each_is_written_once(cast):
    me = caller(cast.alice)
    assert [grants.share(me, cast.falcon, "carol") for _ in range(2)] == [True, False]
    assert grants.shares_of(cast.falcon) == ["bob", "carol"]
    assert [grants.unshare(me, cast.falcon, "carol") for _ in range(2)] == [True, False]
    assert grants.shares_of(cast.falcon) == ["bob"]
    assert trail() == [
        ("alice", "shares.change", "falcon", "added carol"),
        ("alice", "shares.change", "falcon", "removed carol"),
    ]


@pytest.mark.parametrize("name", ["dora", "nobody", "", "Bob", "a\0b", "\ud800", "x" * 500])
def test_who_is_no_platform_user_is_refused_in_the_words_of_the_list(cast, name):
    me = caller(cast.alice)
    assert errors_of(grants.share, me, cast.falcon, name) == errors_of(grants.set_shares, me, cast.falcon, [name])
    assert grants.shares_of(cast.falcon) == ["bob"] and not trail()


def test_a_person_who_became_a_client_can_still_be_removed(cast):
    Share.objects.create(agent=cast.falcon, user=cast.dora)
    assert grants.unshare(caller(cast.alice), cast.falcon, "dora")
    assert not grants.unshare(caller(cast.alice), cast.falcon, "nobody")


# -- permissions ------------------------------------------------------------------------------------
def test_a_permission_is_added_and_removed_once_in_one_direction(cast):
    heron, me = make_agent(cast.alice, "heron"), caller(cast.alice)
    assert [grants.permit(me, cast.falcon, "heron") for _ in range(2)] == [True, False]
    assert list(grants.permissions_of(cast.falcon)) == [heron] and not grants.permissions_of(heron)
    assert [grants.forbid(me, cast.falcon, "heron") for _ in range(2)] == [True, False]
    assert [reason for *_, reason in trail()] == ["added heron", "removed heron"]


def test_only_agents_that_the_caller_may_use_are_permitted_but_any_is_taken_back(cast):
    magpie, me = make_agent(cast.carol, "magpie"), caller(cast.alice)
    foreign = errors_of(grants.permit, me, cast.falcon, "magpie")
    assert foreign == {"agents": ["magpie is not an agent that you may use"]}
    assert str(foreign).replace("magpie", "no-such") == str(errors_of(grants.permit, me, cast.falcon, "no-such"))
    CallPermission.objects.create(caller=cast.falcon, target=magpie)
    assert grants.forbid(me, cast.falcon, "magpie") and not CallPermission.objects.exists()


# -- keys -------------------------------------------------------------------------------------------
def test_one_form_makes_one_key_and_another_persons_form_is_another(cast):
    me = caller(cast.alice, "page")
    key, secret = grants.create_key(me, name="laptop", once="f1")
    with pytest.raises(Refused) as refused:
        grants.create_key(me, name="laptop", once="f1")
    assert refused.value.status == 409 and keys.look_up(secret, "rest").user == cast.alice
    grants.create_key(caller(cast.bob, "page"), name="laptop", once="f1")
    for _ in range(2):
        grants.create_key(me, name="from a script")
    assert Key.objects.count() == 4 and Audit.objects.filter(action="key.create").count() == 4
    assert secret not in str(list(Key.objects.values())) + str(trail())
    assert Audit.objects.filter(target=str(key.pk), through="page").exists()


def test_a_key_ends_once(cast, now):
    key, secret = keys.issue(cast.alice, name="x")
    assert [grants.end_key(caller(cast.root), key, now) for _ in range(2)] == [True, False]
    assert keys.look_up(secret, "rest") is None
    assert trail() == [("root", "key.delete", str(key.pk), "")]


def test_who_may_end_a_key(cast):
    own, _ = keys.issue(cast.bob, name="bobs own")
    of_agent, _ = keys.issue(cast.root, name="of falcon", agent=cast.falcon)
    may = {
        name: [access.end_key(caller(getattr(cast, name)), key) is Verdict.ALLOWED for key in (own, of_agent)]
        for name in ("alice", "bob", "carol", "dora", "root")
    }
    assert may == {
        "alice": [False, True],
        "bob": [True, False],
        "carol": [False, False],
        "dora": [False, False],
        "root": [True, True],
    }
    assert access.end_key(caller(cast.alice, agent=cast.falcon), of_agent) is Verdict.FORBIDDEN
    assert access.end_key(caller(cast.alice), None) is Verdict.UNKNOWN
    assert access.end_key(caller(cast.dora), None) is Verdict.FORBIDDEN


@pytest.mark.parametrize(("typed", "days"), [("", None), (" ", None), ("1", 1), (" 30 ", 30), ("3650", 3650)])
def test_days_of_a_key_as_typed(typed, days):
    assert grants.key_days(typed) == days


@pytest.mark.parametrize("typed", ["0", "-1", "3651", "1.5", "1e2", "soon", "٣", "9999999"])
def test_days_that_are_none_are_refused(typed):
    with pytest.raises(ValueError, match=r"from 1 to 3,650"):
        grants.key_days(typed)


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\0", "\ud800", 5, None])
def test_names_that_no_key_can_have(name):
    with pytest.raises(ValueError, match="must"):
        grants.key_name(name)


def test_names_that_a_key_can_have():
    assert [len(grants.key_name(name)) for name in ("x", "x" * 100)] == [1, 100]


def test_a_key_that_has_expired_stays_in_sight_for_a_week(cast, now):
    for name, days in {"living": 1, "lately": -7 + 1, "long ago": -7}.items():
        keys.issue(cast.alice, name=name, expires_at=now + timedelta(days=days))
    keys.issue(cast.alice, name="for ever")
    told = grants.still_told(grants.keys_of_person(cast.alice), now)
    assert [key.name for key in told] == ["for ever", "lately", "living"]


# -- who is told --------------------------------------------------------------------------------------
def test_every_change_says_after_commit_that_access_changed(cast, now, said, django_capture_on_commit_callbacks):
    make_agent(cast.alice, "heron")
    me, key = caller(cast.alice), keys.issue(cast.alice, name="x")[0]
    changes = [
        lambda: grants.share(me, cast.falcon, "carol"),
        lambda: grants.unshare(me, cast.falcon, "carol"),
        lambda: grants.set_shares(me, cast.falcon, ["bob"]),
        lambda: grants.permit(me, cast.falcon, "heron"),
        lambda: grants.forbid(me, cast.falcon, "heron"),
        lambda: grants.set_permissions(me, cast.falcon, []),
        lambda: grants.end_key(me, key, now),
    ]
    for change in changes:
        with django_capture_on_commit_callbacks(execute=True):
            change()
            assert said == []
        assert said == [{"what": "access"}]
        said.clear()


def test_what_changes_nothing_says_nothing(cast, now, said, django_capture_on_commit_callbacks):
    me, key = caller(cast.alice), keys.issue(cast.alice, name="x")[0]
    keys.revoke(key, now)
    with django_capture_on_commit_callbacks(execute=True):
        grants.share(me, cast.falcon, "bob")
        grants.unshare(me, cast.falcon, "carol")
        grants.forbid(me, cast.falcon, "heron")
        grants.end_key(me, key, now)
    assert said == [] and trail() == []


@pytest.mark.parametrize("what", ["share", "unshare", "permit", "disable", "password"])
def test_the_admins_changes_of_access_are_said_after_commit(
    client, cast, said, what, django_capture_on_commit_callbacks
):
    client.force_login(cast.root)
    heron = make_agent(cast.alice, "heron")
    share = Share.objects.get(user=cast.bob)
    dates = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    phrase = "another long phrase 8"
    path, form = {
        "share": ("share/add/", {"agent": heron.pk, "user": cast.carol.pk}),
        "unshare": (f"share/{share.pk}/delete/", {"post": "yes"}),
        "permit": ("callpermission/add/", {"caller": heron.pk, "target": cast.falcon.pk}),
        "disable": (f"user/{cast.bob.pk}/change/", {"username": "bob", "kind": "platform", **dates}),
        "password": (f"user/{cast.bob.pk}/password/", {"password1": phrase, "password2": phrase}),
    }[what]
    with django_capture_on_commit_callbacks(execute=True):
        assert client.post(f"/admin/agents/{path}", form).status_code == 302
    assert {"what": "access"} in said
