"""Django admin of people, agents, access and the ledger: open to admins, quick, and never a second way to write."""

from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth import authenticate
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agents import audit, keys
from agents.admin.lists import MOST_COUNTED, BoundedPaginator
from agents.models import Agent, Audit, CallPermission, Execution, FailedSignIn, Key, Reminder, Share, User, Worker
from loops.models import Loop
from tests.conftest import PASSWORD, caller, make_agent, make_user
from tests.ledger import bad, claim, play, start

MODELS = list(apps.get_app_config("agents").get_models())


@pytest.fixture
def site(client, cast):
    """A browser in which root has signed in."""
    client.force_login(cast.root)
    return client


def url(model: type, page: str = "changelist", *args: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def queries_of(site, address: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as seen:
        assert site.get(address).status_code == 200
    return len(seen)


def act(site, model: type, action: str, *rows: object, **more: str):
    chosen = [row.pk for row in rows]
    answer = site.post(url(model), {"action": action, "_selected_action": chosen, **more}, follow=True)
    return [str(message) for message in answer.context["messages"]]


def add_rows(count: int, mark: str) -> None:
    """That many more rows of every model, each pointing to others of its own."""
    now = timezone.now()
    for number in range(count):
        name = f"{mark}{number}"
        person = make_user(name)
        agent, other = make_agent(person, name), make_agent(person, f"{name}-other")
        Share.objects.create(agent=agent, user=make_user(f"{name}-guest"))
        CallPermission.objects.create(caller=agent, target=other)
        keys.issue(person, name=name, agent=agent)
        start(caller(person), agent, now)
        play(agent, now, bad())
        Worker.objects.create(owner=name, slots=1, seen_at=now)
        FailedSignIn.objects.create(digest=name, at=now)
        turn = Execution.objects.filter(agent=agent).first()
        past = {"status": "fired", "fire_at": now, "fired_at": now, "execution": turn}
        Reminder.objects.create(agent=agent, set_by=name, message="x", **past)


# -- what is there, and for whom ------------------------------------------------------------------
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_model_is_registered_and_its_list_and_rows_open(site, now, model):
    assert admin.site.is_registered(model)
    add_rows(1, "x")
    assert site.get(url(model)).status_code == 200
    row = model._default_manager.first()
    assert row is not None, "a model without a row here is not tested"
    assert site.get(url(model, "change", row.pk)).status_code == 200
    assert site.get(url(model), {"q": "x"}).status_code == 200


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_queries_of_a_list_do_not_grow_with_its_rows(site, model):
    add_rows(1, "x")
    queries_of(site, url(model))
    few = queries_of(site, url(model))
    add_rows(8, "y")
    assert queries_of(site, url(model)) == few <= 8


@pytest.mark.parametrize("person", ["alice", "bob", "carol", "dora", None])
def test_nobody_but_staff_comes_in(client, cast, person):
    if person:
        client.force_login(getattr(cast, person))
    for model in MODELS:
        for page in (url(model), url(model, "add")):
            answer = client.get(page)
            assert answer.status_code == 302
            assert answer["Location"].startswith(reverse("admin:login"))


def test_staff_without_rights_see_nothing_and_do_nothing(client, cast):
    User.objects.filter(pk=cast.bob.pk).update(is_staff=True)
    client.force_login(cast.bob)
    key, _ = keys.issue(cast.alice, name="ci")
    for model in MODELS:
        assert client.get(url(model)).status_code == 403
    client.post(url(Agent), {"action": "stop_agents", "_selected_action": [cast.falcon.pk]})
    client.post(url(Key), {"action": "revoke", "_selected_action": [key.pk]})
    cast.falcon.refresh_from_db()
    key.refresh_from_db()
    assert (cast.falcon.status, key.revoked_at) == ("running", None)


@pytest.mark.parametrize(
    "model", [Execution, Reminder, Audit, Worker, Key, FailedSignIn], ids=lambda model: model.__name__
)
def test_history_can_be_read_and_nothing_else(site, model):
    add_rows(1, "x")
    row = model.objects.first()
    assert site.get(url(model, "add")).status_code == 403
    assert site.get(url(model, "delete", row.pk)).status_code == 403
    assert site.post(url(model, "change", row.pk), {"state": "success", "reason": "x", "slots": 9}).status_code == 403
    assert b"delete_selected" not in site.get(url(model)).content
    act(site, model, "delete_selected", row, post="yes")
    assert model.objects.filter(pk=row.pk).exists()


def test_a_count_stops_where_nobody_pages_any_more(db):
    Worker.objects.bulk_create(
        Worker(owner=f"w{number}", slots=1, seen_at=timezone.now()) for number in range(MOST_COUNTED + 5)
    )
    assert BoundedPaginator(Worker.objects.order_by("owner"), 50).count == MOST_COUNTED
    assert BoundedPaginator(Worker.objects.filter(owner="w7").order_by("owner"), 50).count == 1


def test_the_trail_is_filtered_by_its_words(site):
    audit.allowed("alice", "mcp", "loop.stop", "loop_1")
    audit.refused("carol", "rest", "loop.start", "falcon", "no")
    shown = site.get(url(Audit), {"through": "mcp", "action": "loop.stop"}).context["cl"].result_list
    assert [row.actor for row in shown] == ["alice"]


# -- people ---------------------------------------------------------------------------------------
def test_people_of_both_kinds_are_made_and_can_sign_in(site):
    for kind in User.Kind.values:
        form = {"username": f"new-{kind}", "kind": kind, "password1": PASSWORD, "password2": PASSWORD}
        site.post(url(User, "add"), {**form, "usable_password": "true"})
        assert authenticate(username=f"new-{kind}", password=PASSWORD).kind == kind


def test_people_are_disabled_and_never_deleted(site, cast):
    assert site.get(url(User, "delete", cast.carol.pk)).status_code == 403
    form = {"username": "carol", "kind": "platform", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    assert site.post(url(User, "change", cast.carol.pk), form).status_code == 302
    cast.carol.refresh_from_db()
    assert not cast.carol.is_active
    act(site, User, "delete_selected", cast.carol, post="yes")
    assert User.objects.filter(username="carol").exists()


# -- agents ---------------------------------------------------------------------------------------
def agent_form(agent: Agent | None = None, **fields: object) -> dict[str, object]:
    form: dict[str, object] = {
        **{"harness": "command", "command": '["true"]', "output": "text", "environment": "{}", "status": "running"},
        **{"timeout_seconds": 300, "max_parallel_tasks": 2, "autonomy": "on", "display_name": "", "description": ""},
    }
    return {**form, **fields}


def trail_of(agent: str) -> list[tuple[str, str, str]]:
    rows = Audit.objects.filter(action="agent.change", target=agent).order_by("pk")
    return list(rows.values_list("actor", "through", "reason"))


def test_an_agent_is_made_by_the_same_verb_as_everywhere(site, cast):
    form = agent_form(name="heron", owner=cast.alice.pk, environment='{"TOKEN": "x"}', command='["say", "two words"]')
    assert site.post(url(Agent, "add"), form).status_code == 302
    heron = Agent.objects.get(name="heron")
    assert (heron.command, heron.environment, heron.owner) == (["say", "two words"], {"TOKEN": "x"}, cast.alice)
    assert heron.status == "running" and heron.workspace.is_dir()
    assert trail_of("heron") == [("root", "page", "created")]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "a b", "must be 1 to 63 letters"),
        ("name", "falcon", "exists already"),
        ("command", "[]", "required"),
        ("command", '"true"', "must be a list of 1 to 200"),
        ("command", '["a", 1]', "must be a list of 1 to 200"),
        ("harness", "nonsense", "must be"),
        ("timeout_seconds", 59, "from 60 to 7,200"),
        ("max_parallel_tasks", 33, "from 1 to 32"),
        ("environment", '{"TRINITY_API_KEY": "x"}', "not TRINITY_ first"),
        ("environment", '{"A": 1}', "object of texts"),
        ("environment", "[]", None),
        ("environment", "[1]", "object of texts"),
    ],
)
def test_the_form_refuses_what_the_api_refuses_in_the_same_words(site, cast, field, value, said):
    form = agent_form(**{"name": "heron", "owner": cast.alice.pk, field: value})
    answer = site.post(url(Agent, "add"), form)
    if said is None:
        assert answer.status_code == 302
        return
    errors = answer.context["adminform"].form.errors
    assert list(errors) == [field]
    assert said in str(errors[field])
    assert Agent.objects.count() == 1


def test_a_client_owns_no_agent_and_shares_none(site, cast):
    answer = site.post(url(Agent, "add"), agent_form(name="heron", owner=cast.dora.pk))
    assert "owner" in answer.context["adminform"].form.errors
    answer = site.post(url(Share, "add"), {"agent": cast.falcon.pk, "user": cast.dora.pk})
    assert "user" in answer.context["adminform"].form.errors
    assert not Share.objects.filter(user=cast.dora).exists()


def test_a_change_writes_what_was_changed_and_says_so_on_the_trail(site, cast):
    Agent.objects.filter(pk=cast.falcon.pk).update(model="before", timeout_seconds=600)
    form = agent_form(model="after", timeout_seconds=600, max_parallel_tasks=3, command='["true"]')
    assert site.post(url(Agent, "change", cast.falcon.pk), form).status_code == 302
    cast.falcon.refresh_from_db()
    assert (cast.falcon.model, cast.falcon.command, cast.falcon.name) == ("after", ["true"], "falcon")
    assert trail_of("falcon") == [("root", "page", "changed command, model")]


def test_a_form_that_changes_nothing_writes_nothing(site, cast):
    make_agent(cast.alice, "heron", command=["true"], timeout_seconds=300, max_parallel_tasks=2)
    site.post(url(Agent, "change", Agent.objects.get(name="heron").pk), agent_form())
    assert trail_of("heron") == []


def test_stopping_an_agent_in_the_form_holds_its_loops_and_starting_lets_them_go_on(site, cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    Agent.objects.filter(pk=cast.falcon.pk).update(command=["true"], timeout_seconds=300, max_parallel_tasks=2)
    site.post(url(Agent, "change", cast.falcon.pk), agent_form(status="stopped"))
    assert Loop.objects.get(pk=loop.pk).waiting_for == "agent" and claim(cast.falcon, now) is None
    site.post(url(Agent, "change", cast.falcon.pk), agent_form(status="running"))
    assert Loop.objects.get(pk=loop.pk).waiting_for == ""
    assert trail_of("falcon") == [("root", "page", "stopped"), ("root", "page", "started")]


def test_agents_are_started_and_stopped_from_the_list_deleted_ones_not(site, cast, now):
    gone = make_agent(cast.alice, "gone", deleted_at=now, status="stopped")
    assert act(site, Agent, "stop_agents", cast.falcon, gone) == ["1 of 2 agents stopped."]
    assert act(site, Agent, "start_agents", gone) == ["0 of 1 agents started."]
    assert set(Agent.objects.values_list("name", "status")) == {("falcon", "stopped"), ("gone", "stopped")}


@pytest.mark.parametrize("way", ["page", "list"])
def test_deleting_an_agent_ends_its_loops_and_keeps_their_history(site, cast, now, way):
    loop = start(caller(cast.alice), cast.falcon, now)
    if way == "page":
        assert b"its history stays" in site.get(url(Agent, "delete", cast.falcon.pk)).content
        site.post(url(Agent, "delete", cast.falcon.pk), {"post": "yes"})
    else:
        act(site, Agent, "delete_selected", cast.falcon, post="yes")
    cast.falcon.refresh_from_db()
    loop.refresh_from_db()
    assert cast.falcon.deleted_at is not None
    assert (loop.status, loop.error) == ("failed", "the agent was deleted")
    assert trail_of("falcon") == [("root", "page", "deleted")]


def test_a_deleted_agent_is_only_read(site, cast, now):
    Agent.objects.filter(pk=cast.falcon.pk).update(deleted_at=now)
    assert site.get(url(Agent, "change", cast.falcon.pk)).status_code == 200
    assert site.post(url(Agent, "change", cast.falcon.pk), agent_form()).status_code == 403
    assert site.get(url(Agent, "delete", cast.falcon.pk)).status_code == 403


# -- access ---------------------------------------------------------------------------------------
def test_shares_and_permissions_come_and_go_with_a_line_on_the_trail_each(site, cast):
    heron = make_agent(cast.alice, "heron")
    site.post(url(Share, "add"), {"agent": heron.pk, "user": cast.carol.pk})
    site.post(url(CallPermission, "add"), {"caller": heron.pk, "target": cast.falcon.pk})
    site.post(url(Share, "delete", Share.objects.get(agent=heron).pk), {"post": "yes"})
    act(site, CallPermission, "delete_selected", CallPermission.objects.get(), post="yes")
    assert not Share.objects.filter(agent=heron).exists() and not CallPermission.objects.exists()
    rows = Audit.objects.filter(target="heron", actor="root", through="page").order_by("pk")
    assert list(rows.values_list("action", "reason")) == [
        ("shares.change", "added carol"),
        ("permissions.change", "added falcon"),
        ("shares.change", "removed carol"),
        ("permissions.change", "removed falcon"),
    ]


def test_a_key_shows_no_digest_and_is_revoked_once(site, cast):
    key, secret = keys.issue(cast.alice, name="ci", agent=cast.falcon)
    for page in (url(Key), url(Key, "change", key.pk)):
        assert key.digest not in site.get(page).content.decode()
    assert act(site, Key, "revoke", key) == ["1 of 1 keys revoked; the others were before."]
    assert act(site, Key, "revoke", key) == ["0 of 1 keys revoked; the others were before."]
    assert keys.look_up(secret, "rest") is None
    assert Audit.objects.filter(action="key.delete", target=str(key.pk), actor="root").count() == 1


def test_executions_are_found_by_id_by_loop_and_by_agent(site, cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    play(cast.falcon, now + timedelta(seconds=1), bad())
    execution = Execution.objects.get()
    for words in (execution.pk, loop.pk, "falc"):
        assert list(site.get(url(Execution), {"q": words}).context["cl"].result_list) == [execution]
    assert not site.get(url(Execution), {"q": "alco"}).context["cl"].result_list
