"""The Access tab of an agent and a person's own keys, as plain forms."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agents import keys
from agents.access_pages import COOKIE
from agents.models import Audit, CallPermission, Key, Share
from tests.conftest import make_agent, make_user

TAB = "/agents/falcon/access/"
KEYS = "/keys/"


def signed_in(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def send(client: Client, path: str, do: str, **fields: object) -> tuple[int, str]:
    """Send a form and follow it; the status of its answer, and the page that one sees."""
    answer = client.post(path, {"do": do, **fields})
    seen = client.get(answer["Location"]) if answer.status_code == 302 else answer
    return answer.status_code, seen.content.decode()


def secret_in(html: str) -> str | None:
    found = re.search(r'<code id="secret">(.+?)</code>', html)
    return found and found[1]


def trail() -> list[tuple[str, ...]]:
    return list(Audit.objects.order_by("pk").values_list("actor", "through", "action", "target", "verdict"))


# -- who comes in -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("who", "status"), [("alice", 200), ("root", 200), ("bob", 403), ("carol", 403), ("dora", 404)]
)
def test_the_tab_is_for_owner_and_admin(cast, who, status):
    client = signed_in(getattr(cast, who))
    answer = client.get(TAB)
    assert answer.status_code == status
    if status != 200:
        assert not any(name in answer.content.decode() for name in ("falcon", "alice"))
        assert trail() == [(who, "page", "agent.read", "falcon", "refused")]


@pytest.mark.parametrize(
    ("do", "action"),
    [
        ("share", "shares.change"),
        ("unshare", "shares.change"),
        ("permit", "permissions.change"),
        ("forbid", "permissions.change"),
        ("create-key", "key.create"),
        ("revoke-key", "key.delete"),
        ("nonsense", "agent.change"),
    ],
)
def test_nobody_else_changes_anything_and_the_refusal_is_written(cast, do, action):
    key, _ = keys.issue(cast.alice, name="x", agent=cast.falcon)
    for who, status in (("bob", 403), ("carol", 403), ("dora", 404)):
        fields = {"user": "bob", "agent": "falcon", "name": "x", "key": key.pk}
        assert send(signed_in(getattr(cast, who)), TAB, do, **fields)[0] == status
    key.refresh_from_db()
    assert key.revoked_at is None and Key.objects.count() == Share.objects.count() == 1
    assert trail() == [(who, "page", action, "falcon", "refused") for who in ("bob", "carol", "dora")]


def test_the_tab_of_an_agent_that_is_not_there_is_not_found(cast, now):
    make_agent(cast.alice, "gone", deleted_at=now)
    for name in ("gone", "no-such"):
        assert signed_in(cast.alice).get(f"/agents/{name}/access/").status_code == 404


def test_who_is_not_signed_in_is_sent_to_the_login(db):
    for path in (TAB, KEYS):
        assert Client().get(path)["Location"] == f"/login/?next={path}"
        assert Client().post(path, {"do": "create-key"})["Location"].startswith("/login/")


def test_only_who_manages_the_agent_is_shown_the_tab(cast):
    shown = {name: TAB in signed_in(getattr(cast, name)).get("/agents/falcon/loops/").content.decode()
             for name in ("alice", "bob", "root")}  # fmt: skip
    assert shown == {"alice": True, "bob": False, "root": True}
    html = signed_in(cast.alice).get(TAB).content.decode()
    assert f'href="{TAB}" aria-current="page"' in html and html.count("aria-current") == 3


def test_a_form_of_another_site_changes_nothing(cast):
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.alice)
    assert client.post(TAB, {"do": "unshare", "user": "bob"}).status_code == 403
    assert Share.objects.filter(user=cast.bob).exists()


def test_a_form_that_the_page_does_not_have_is_refused_on_the_page(cast):
    for do in ("nonsense", ""):
        status, html = send(signed_in(cast.alice), TAB, do)
        assert status == 422 and "is not one of the forms of this page" in html


# -- shares -----------------------------------------------------------------------------------------
def test_a_share_is_added_said_written_and_removed(cast):
    client = signed_in(cast.alice)
    status, html = send(client, TAB, "share", user=" carol ")
    assert status == 302 and "carol may use falcon now." in html and 'value="carol"' in html
    assert signed_in(cast.carol).get("/agents/falcon/loops/").status_code == 200
    status, html = send(client, TAB, "unshare", user="carol")
    assert status == 302 and "falcon is no longer shared with carol." in html and 'value="carol"' not in html
    assert signed_in(cast.carol).get("/agents/falcon/loops/").status_code == 403
    assert trail()[:2] == [("alice", "page", "shares.change", "falcon", "allowed")] * 2


def test_a_form_sent_twice_shares_once(cast):
    client = signed_in(cast.alice)
    for said in ("carol may use falcon now.", "carol may use falcon already."):
        assert said in send(client, TAB, "share", user="carol")[1]
    for _ in range(2):
        assert send(client, TAB, "unshare", user="carol")[0] == 302
    assert len(trail()) == 2


@pytest.mark.parametrize("name", ["dora", "nobody", "<b>x</b>"])
def test_a_client_and_an_unknown_user_are_refused_in_the_words_of_the_api(cast, name):
    status, html = send(signed_in(cast.alice), TAB, "share", user=name)
    said = name.replace("<", "&lt;").replace(">", "&gt;")
    assert status == 422 and f"{said} is not a platform user." in html
    assert f'value="{said}"' in html and 'aria-invalid="true"' in html and 'id="share-error"' in html
    assert Share.objects.get().user == cast.bob and not trail()


# -- permissions ------------------------------------------------------------------------------------
def test_a_permission_is_added_and_removed(cast):
    make_agent(cast.alice, "heron")
    client = signed_in(cast.alice)
    status, html = send(client, TAB, "permit", agent="heron")
    assert status == 302 and "falcon may call heron now." in html and 'name="agent"\n' in html
    assert '<option value="heron">' not in html
    assert "falcon may call heron already." in send(client, TAB, "permit", agent="heron")[1]
    status, html = send(client, TAB, "forbid", agent="heron")
    assert status == 302 and "falcon may no longer call heron." in html and '<option value="heron">' in html
    assert not CallPermission.objects.exists()
    assert trail() == [("alice", "page", "permissions.change", "falcon", "allowed")] * 2


def test_a_foreign_agent_is_neither_offered_nor_permitted_and_reads_like_an_unknown_one(cast):
    make_agent(cast.carol, "magpie")
    client = signed_in(cast.alice)
    assert "magpie" not in client.get(TAB).content.decode()
    for name in ("magpie", "no-such"):
        status, html = send(client, TAB, "permit", agent=name)
        assert status == 422 and f"{name} is not an agent that you may use." in html
    assert not CallPermission.objects.exists() and not trail()


# -- keys of the agent ------------------------------------------------------------------------------
def test_a_key_of_the_agent_is_shown_once_and_works(cast):
    client = signed_in(cast.alice)
    answer = client.post(TAB, {"do": "create-key", "name": "nightly", "days": "30", "once": "f1"})
    assert answer.status_code == 302 and answer["Location"] == f"{TAB}#agent-keys"
    cookie = answer.cookies[COOKIE]
    assert cookie["httponly"] and cookie["samesite"] == "Strict" and cookie["path"] == TAB
    first = client.get(TAB)
    secret = secret_in(first.content.decode())
    assert "no-store" in first["Cache-Control"] and 'data-copy="#secret"' in first.content.decode()
    caller = keys.look_up(secret, "rest")
    assert caller.agent == cast.falcon and caller.user == cast.alice
    again = client.get(TAB).content.decode()
    assert secret not in again and "nightly" in again and "by alice" in again
    key = Key.objects.get()
    assert timedelta(days=29.9) < key.expires_at - key.created_at <= timedelta(days=30, seconds=1)
    assert trail() == [("alice", "page", "key.create", str(key.pk), "allowed")]
    assert secret not in str(list(Key.objects.values()))


def test_a_key_form_sent_twice_makes_one_key_and_says_so(cast):
    client = signed_in(cast.alice)
    form = {"do": "create-key", "name": "nightly", "once": "f1"}
    assert client.post(TAB, form).status_code == 302
    status, html = send(client, TAB, **form)
    assert status == 409 and "This key was made already" in html and Key.objects.count() == 1


def test_two_forms_have_two_names_of_their_own(cast):
    client = signed_in(cast.alice)
    found = [re.search(r'name="once" value="(\w{32})"', client.get(TAB).content.decode())[1] for _ in range(2)]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "must be text of 1 to 100 characters."),
        ({"name": "x" * 101}, "must be text of 1 to 100 characters."),
        ({"name": "a\0b"}, "must not contain NUL"),
        ({"name": "x", "days": "0"}, "from 1 to 3,650"),
        ({"name": "x", "days": "3651"}, "from 1 to 3,650"),
        ({"name": "x", "days": "soon"}, "from 1 to 3,650"),
    ],
)
@pytest.mark.parametrize("path", [TAB, KEYS])
def test_a_bad_key_is_refused_and_what_was_typed_stays(cast, path, fields, said):
    status, html = send(signed_in(cast.alice), path, "create-key", **fields)
    assert status == 422 and said in html and "No key was made" in html and secret_in(html) is None
    assert f'value="{fields.get("days", "")}"' in html
    assert not Key.objects.exists() and not trail()


@pytest.mark.parametrize(("name", "days"), [("x", "1"), ("x" * 100, "3650"), ("x", "")])
def test_the_bounds_themselves_are_allowed(cast, name, days):
    assert send(signed_in(cast.alice), KEYS, "create-key", name=name, days=days)[0] == 302
    assert (Key.objects.get().expires_at is None) == (days == "")


def test_the_owner_ends_every_key_of_the_agent_also_one_that_an_admin_made(cast):
    key, secret = keys.issue(cast.root, name="admins", agent=cast.falcon)
    other, _ = keys.issue(cast.alice, name="other")
    client = signed_in(cast.alice)
    status, html = send(client, TAB, "revoke-key", key=key.pk)
    assert status == 302 and "The key admins is revoked" in html and keys.look_up(secret, "rest") is None
    status, html = send(client, TAB, "revoke-key", key=key.pk)
    assert status == 302 and "That key was revoked before." in html
    for number in (other.pk, 999_999, "x", "9" * 19, ""):
        status, html = send(client, TAB, "revoke-key", key=number)
        assert status == 404 and "Key not found." in html
    other.refresh_from_db()
    assert other.revoked_at is None and [row[4] for row in trail()] == ["allowed"] + ["refused"] * 5


def test_use_and_expiry_of_keys_are_said(cast, now):
    keys.issue(cast.alice, name="a", agent=cast.falcon, expires_at=now - timedelta(days=1))
    keys.issue(cast.alice, name="b", agent=cast.falcon, expires_at=now - timedelta(days=8))
    _, secret = keys.issue(cast.alice, name="c", agent=cast.falcon)
    keys.look_up(secret, "rest")
    html = signed_in(cast.alice).get(TAB).content.decode()
    assert 'id="key-' in html and ">expired</span>" in html and html.count("by alice") == 2
    assert '<time class="ago"' in html and 'class="unset">never</td>' in html


# -- own keys -----------------------------------------------------------------------------------------
def test_a_person_makes_sees_and_ends_their_own_keys(cast):
    client = signed_in(cast.bob)
    assert 'href="/keys/"' in client.get("/").content.decode()
    _, html = send(client, KEYS, "create-key", name="laptop", once="f1")
    secret = secret_in(html)
    assert keys.look_up(secret, "rest").user == cast.bob and keys.look_up(secret, "rest").agent is None
    assert secret_in(client.get(KEYS).content.decode()) is None
    key = Key.objects.get()
    assert "is revoked" in send(client, KEYS, "revoke-key", key=key.pk)[1]
    assert keys.look_up(secret, "rest") is None and 'id="no-keys"' in client.get(KEYS).content.decode()
    assert [row[2] for row in trail()] == ["key.create", "key.delete"]


def test_nobody_sees_or_ends_the_keys_of_others_not_even_an_admin_on_this_page(cast):
    key, secret = keys.issue(cast.alice, name="alices laptop")
    for who in (cast.bob, cast.root):
        client = signed_in(who)
        assert "alices laptop" not in client.get(KEYS).content.decode()
        foreign, unknown = send(client, KEYS, "revoke-key", key=key.pk), send(client, KEYS, "revoke-key", key=99_999)
        assert foreign[0] == unknown[0] == 404
        assert "Key not found." in foreign[1] and "revoked before" not in foreign[1]
    assert keys.look_up(secret, "rest") is not None and [row[2] for row in trail()] == ["key.delete"] * 4


def test_a_revoked_key_of_somebody_else_reads_like_none(cast, now):
    key, _ = keys.issue(cast.alice, name="gone")
    keys.revoke(key, now)
    assert send(signed_in(cast.bob), KEYS, "revoke-key", key=key.pk)[0] == 404
    assert "revoked before" in send(signed_in(cast.alice), KEYS, "revoke-key", key=key.pk)[1]


def test_the_secret_is_shown_to_nobody_but_its_maker_and_on_no_other_page(cast):
    made = signed_in(cast.alice).post(KEYS, {"do": "create-key", "name": "x"}).cookies[COOKIE].value
    bob, alice = signed_in(cast.bob), signed_in(cast.alice)
    for client, path, value in ((bob, KEYS, made), (alice, TAB, made), (alice, KEYS, made[:-1] + "!")):
        client.cookies[COOKIE] = value
        answer = client.get(path)
        assert secret_in(answer.content.decode()) is None and answer.cookies[COOKIE].value == ""


def test_a_client_manages_no_keys_and_is_not_led_there(cast):
    client = signed_in(cast.dora)
    assert client.get(KEYS).status_code == 403 and send(client, KEYS, "create-key", name="x")[0] == 403
    assert 'href="/keys/"' not in client.get("/").content.decode() and not Key.objects.exists()
    assert [row[2] for row in trail()] == ["key.read", "key.create"]


def test_long_lists_of_keys_come_in_pages(cast):
    for number in range(51):
        keys.issue(cast.alice, name=f"key-{number:02}")
    client = signed_in(cast.alice)
    first = client.get(KEYS).content.decode()
    assert "key-01" in first and "key-00" not in first
    second = client.get(KEYS + re.search(r'href="(\?before=\d+)"', first)[1]).content.decode()
    assert "key-00" in second and "key-01" not in second and 'rel="next"' not in second
    for odd in ("x", "9" * 19, "-1"):
        assert "key-50" in client.get(KEYS, {"before": odd}).content.decode()


# -- cost -----------------------------------------------------------------------------------------------
def test_the_pages_cost_the_same_however_much_is_on_them(cast):
    client = signed_in(cast.alice)

    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert client.get(path).status_code == 200
        return len(seen)

    def fill(mark: str, count: int) -> None:
        for number in range(count):
            Share.objects.create(agent=cast.falcon, user=make_user(f"{mark}{number}"))
            CallPermission.objects.create(caller=cast.falcon, target=make_agent(cast.alice, f"{mark}{number}"))
            keys.issue(cast.root, name="x", agent=cast.falcon)
            keys.issue(cast.alice, name="x", agent=cast.falcon)

    fill("a", 1)
    few = [queries(path) for path in (TAB, KEYS)]
    fill("b", 8)
    assert [queries(path) for path in (TAB, KEYS)] == few
    assert few[0] <= 12 and few[1] <= 4
