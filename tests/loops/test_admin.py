"""Django admin of loops: everything readable in few queries, nothing writable, and a Stop that asks the engine."""

from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission

from agents.models import Audit, User
from loops import engine
from loops.core import spec
from loops.models import Loop, LoopEvent, LoopRun, StartKey
from tests.agents.test_admin import act, queries_of, site, url
from tests.conftest import caller, make_agent
from tests.ledger import claim, ok, play, start

__all__ = ["site"]

MODELS = list(apps.get_app_config("loops").get_models())


def add_loops(cast, now, count: int, mark: str) -> None:
    """That many more loops, each on an agent of its own, with two runs, events and a start key."""
    for number in range(count):
        agent = make_agent(cast.alice, f"{mark}{number}")
        asked = spec.parse({"message": "work", "max_runs": 2})
        engine.create_loop(caller(cast.alice), agent, asked, now, idempotency_key=agent.name)
        play(agent, now, ok("one"), ok("two"))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_model_is_registered_and_only_read(site, cast, now, model):
    assert admin.site.is_registered(model)
    add_loops(cast, now, 1, "x")
    row = model._default_manager.first()
    assert row is not None, "a model without a row here is not tested"
    assert site.get(url(model)).status_code == 200
    assert site.get(url(model), {"q": "x"}).status_code == 200
    assert site.get(url(model, "change", row.pk)).status_code == 200
    assert site.post(url(model, "change", row.pk), {"status": "completed"}).status_code == 403
    assert site.get(url(model, "add")).status_code == 403
    assert site.get(url(model, "delete", row.pk)).status_code == 403
    act(site, model, "delete_selected", row, post="yes")
    assert model._default_manager.filter(pk=row.pk).exists()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_queries_of_a_list_do_not_grow_with_its_rows(site, cast, now, model):
    add_loops(cast, now, 1, "x")
    queries_of(site, url(model))
    few = queries_of(site, url(model))
    add_loops(cast, now, 8, "y")
    assert queries_of(site, url(model)) == few <= 8


def test_the_page_of_a_loop_shows_its_runs_in_queries_that_do_not_grow_with_them(site, cast, now):
    short = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok("only"))
    heron = make_agent(cast.alice, "heron")
    long = start(caller(cast.alice), heron, now, max_runs=9)
    play(heron, now, *(ok(f"answer {number}") for number in range(9)))
    queries_of(site, url(Loop, "change", short.pk))
    assert queries_of(site, url(Loop, "change", short.pk)) == queries_of(site, url(Loop, "change", long.pk))
    page = site.get(url(Loop, "change", long.pk)).content.decode()
    assert all(execution_id in page for execution_id in long.runs.values_list("execution_id", flat=True))


def test_the_stop_action_ends_a_waiting_loop_and_says_what_became_of_each(site, cast, now):
    waiting = start(caller(cast.alice), cast.falcon, now, delay_seconds=600)
    play(cast.falcon, now, ok())
    heron = make_agent(cast.alice, "heron")
    in_flight = start(caller(cast.alice), heron, now)
    claim(heron, now)
    over = start(caller(cast.alice), make_agent(cast.alice, "ibis"), now)
    engine.request_stop(caller(cast.alice), over.pk, now)

    said = act(site, Loop, "stop_loops", waiting, in_flight, over)
    assert said == ["1 stopped; 1 will stop when the run in flight has finished; 1 had ended before."]
    waiting.refresh_from_db()
    in_flight.refresh_from_db()
    over.refresh_from_db()
    assert (waiting.status, waiting.stop_reason, waiting.stopped_by) == ("stopped", "user_stopped", "root")
    assert (in_flight.status, in_flight.stopped_by) == ("running", "root")
    assert over.stopped_by == "alice"
    rows = Audit.objects.filter(action="loop.stop", actor="root", through="page", verdict="allowed")
    assert set(rows.values_list("target", flat=True)) == {waiting.pk, in_flight.pk, over.pk}


def test_stopping_twice_changes_nothing_more(site, cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    assert act(site, Loop, "stop_loops", loop) == ["1 stopped."]
    loop.refresh_from_db()
    version = loop.version
    assert act(site, Loop, "stop_loops", loop) == ["1 had ended before."]
    loop.refresh_from_db()
    assert loop.version == version


@pytest.mark.parametrize("person", ["alice", "bob", "carol", "dora"])
def test_a_person_who_is_no_staff_is_refused_even_on_a_loop_of_their_own(client, cast, now, person):
    loop = start(caller(cast.alice), cast.falcon, now)
    client.force_login(getattr(cast, person))
    for model in MODELS:
        assert client.get(url(model)).status_code == 302
    assert client.post(url(Loop), {"action": "stop_loops", "_selected_action": [loop.pk]}).status_code == 302
    loop.refresh_from_db()
    assert (loop.status, loop.stop_requested_at) == ("queued", None)


def test_staff_who_may_only_read_cannot_stop(client, cast, now):
    User.objects.filter(pk=cast.bob.pk).update(is_staff=True)
    cast.bob.user_permissions.add(Permission.objects.get(codename="view_loop"))
    loop = start(caller(cast.alice), cast.falcon, now)
    client.force_login(cast.bob)
    page = client.get(url(Loop))
    assert page.status_code == 200 and b"stop_loops" not in page.content
    client.post(url(Loop), {"action": "stop_loops", "_selected_action": [loop.pk]})
    loop.refresh_from_db()
    assert loop.stop_requested_at is None


def test_loops_are_filtered_by_state_and_found_by_id_agent_and_starter(site, cast, now):
    running = start(caller(cast.alice), cast.falcon, now + timedelta(seconds=1))
    add_loops(cast, now, 1, "heron")

    def shown(**query: str) -> list[Loop]:
        return list(site.get(url(Loop), query).context["cl"].result_list)

    assert shown(status__exact="queued") == [running]
    assert shown(q=running.pk) == shown(q="falc") == [running]
    assert len(shown(q="alice")) == 2 and shown(q="nobody") == []
    assert LoopRun.objects.count() == 3 and LoopEvent.objects.exists() and StartKey.objects.exists()
