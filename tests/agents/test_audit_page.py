"""The page of the audit trail, and what is kept of it."""

import re
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents import audit, trail
from agents.models import Audit
from tests.conftest import caller, make_agent
from tests.ledger import start

AUDIT = "/audit/"


@pytest.fixture
def admin(cast) -> Client:
    client = Client()
    client.force_login(cast.root)
    return client


def rows_in(html: str) -> list[int]:
    return [int(number) for number in re.findall(r'<tr id="audit-(\d+)"', html)]


def shown(admin: Client, **query: str) -> list[tuple[str, str]]:
    html = admin.get(AUDIT, query).content.decode()
    found = Audit.objects.in_bulk(rows_in(html))
    return [(found[pk].actor, found[pk].action) for pk in rows_in(html)]


# -- who comes in -----------------------------------------------------------------------------------
@pytest.mark.parametrize("who", ["alice", "bob", "carol", "dora"])
def test_nobody_but_an_admin_learns_that_the_page_is_there(cast, who):
    client = Client()
    client.force_login(getattr(cast, who))
    answer = client.get(AUDIT)
    assert answer.status_code == 404 and "Page not found." in answer.content.decode()
    assert AUDIT not in client.get("/").content.decode()
    row = Audit.objects.get()
    assert (row.actor, row.through, row.action, row.verdict) == (who, "page", "audit.read", "refused")


def test_who_is_not_signed_in_is_sent_to_the_login(db):
    assert Client().get(AUDIT)["Location"] == f"/login/?next={AUDIT}"


def test_an_admin_finds_it_in_the_navigation_and_reading_it_writes_nothing(admin):
    assert f'href="{AUDIT}"' in admin.get("/").content.decode()
    html = admin.get(AUDIT).content.decode()
    assert f'href="{AUDIT}" aria-current="page"' in html and "Nothing on the trail yet" in html
    assert not Audit.objects.exists()


# -- rows ---------------------------------------------------------------------------------------------
def test_rows_are_newest_first_with_everything_that_they_say(admin):
    audit.allowed("alice", "mcp", "loop.stop", "loop_1", "stopping")
    audit.refused("<b>carol</b>", "rest", "loop.start", "falcon", "You do not have access to this.")
    html = admin.get(AUDIT).content.decode()
    newest, oldest = Audit.objects.order_by("-pk")
    assert rows_in(html) == [newest.pk, oldest.pk]
    for word in ("alice", "mcp", "loop.stop", "stopping", "Allowed", "Refused", "You do not have access to this."):
        assert word in html
    assert "&lt;b&gt;carol" in html and "<b>carol" not in html
    assert re.search(r'<time class="exact" datetime="[^"]+Z">\d+ \w+ \d{4}, [\d:]+ UTC</time>', html)


def test_a_row_leads_to_its_loop_and_its_agents_where_they_are_still_there(admin, cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    make_agent(cast.alice, "gone", deleted_at=now)
    make_agent(cast.alice, "12")
    audit.allowed("agent:falcon", "mcp", "loop.stop", "loop_gone")
    audit.allowed("agent:gone", "mcp", "agent.change", "gone")
    audit.allowed("alice", "page", "key.create", "12")
    audit.allowed("alice", "page", "agent.change", "12")
    links = re.findall(r'<td class="[^"]*"><a href="([^"]+)">([^<]+)</a>', admin.get(AUDIT).content.decode())
    assert links == [
        ("/agents/12/", "12"),
        ("/agents/falcon/", "agent:falcon"),
        (f"/agents/falcon/loops/{loop.pk}/", loop.pk),
    ]
    for address, _ in links:
        assert admin.get(address, follow=True).status_code == 200


def test_the_loop_of_a_deleted_agent_is_still_led_to(admin, cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    cast.falcon.deleted_at = now
    cast.falcon.save()
    assert f"/agents/falcon/loops/{loop.pk}/" in admin.get(AUDIT).content.decode()
    assert admin.get(f"/agents/falcon/loops/{loop.pk}/").status_code == 200


# -- filters ------------------------------------------------------------------------------------------
def test_each_filter_is_exact_and_they_add_up(admin):
    audit.allowed("alice", "mcp", "loop.stop", "loop_1")
    audit.allowed("alice", "rest", "loop.start", "loop_1")
    audit.refused("alicia", "rest", "loop.start", "falcon", "no")
    assert shown(admin, actor="alice") == [("alice", "loop.start"), ("alice", "loop.stop")]
    assert shown(admin, actor=" alice ", through="rest") == [("alice", "loop.start")]
    assert shown(admin, action="loop.start", verdict="refused") == [("alicia", "loop.start")]
    assert shown(admin, target="loop_1", action="loop.stop") == [("alice", "loop.stop")]
    assert len(shown(admin, actor="", action="", verdict="", through="", target="")) == 3


@pytest.mark.parametrize("name", ["actor", "action", "verdict", "through", "target"])
def test_a_misspelt_filter_finds_nothing_and_stays_in_sight(admin, name):
    audit.allowed("alice", "mcp", "loop.stop", "loop_1")
    html = admin.get(AUDIT, {name: "alicf"}).content.decode()
    assert not rows_in(html) and "No row fits" in html and 'value="alicf"' in html


@pytest.mark.parametrize("value", ["\0", "x" * 1000, "'; --", "\N{SNOWMAN}"])
def test_odd_filters_are_answered(admin, value):
    for name in ("actor", "action", "verdict", "through", "target", "before"):
        assert admin.get(AUDIT, {name: value}).status_code == 200


def test_every_action_and_way_that_the_code_writes_can_be_chosen():
    from pathlib import Path

    from django.conf import settings

    written = set()
    for room in ("agents", "loops", "workspace", "trinity"):
        for file in (Path(settings.BASE_DIR) / room).rglob("*.py"):
            if file.name not in {"trail.py", "policy.py"} and "migrations" not in file.parts:  # which write no row
                kinds = "loop|agent|shares|permissions|key|events|audit"
                written |= set(re.findall(rf'"((?:{kinds})\.[a-z]+)"', file.read_text()))
    fields_of_answers = {"agent.name", "loop.id"}
    assert written - fields_of_answers <= set(trail.ACTIONS)


# -- pages ----------------------------------------------------------------------------------------------
def test_pages_go_back_without_gap_or_double_also_while_rows_come(admin):
    for number in range(trail.PAGE + 3):
        audit.allowed("alice", "rest", "loop.start", f"loop_{number}")
        audit.allowed("bob", "rest", "loop.start", f"loop_{number}")
    first = admin.get(AUDIT, {"actor": "alice"}).content.decode()
    older = re.search(r'href="(\?[^"]+)" rel="next"', first)[1].replace("&amp;", "&")
    audit.allowed("alice", "rest", "loop.start", "loop_new")
    second = admin.get(AUDIT + older).content.decode()
    both = rows_in(first) + rows_in(second)
    wanted = Audit.objects.filter(actor="alice").exclude(target="loop_new").order_by("-pk")
    assert both == list(wanted.values_list("pk", flat=True)) and len(rows_in(first)) == trail.PAGE
    assert 'rel="next"' not in second and 'href="?actor=alice"' in second


def test_exactly_one_page_has_no_second(admin):
    for _ in range(trail.PAGE):
        audit.allowed("alice", "rest", "loop.start", "x")
    html = admin.get(AUDIT).content.decode()
    assert len(rows_in(html)) == trail.PAGE and 'rel="next"' not in html


def test_the_page_costs_the_same_for_one_row_and_for_many(admin, cast, now):
    def queries(**query: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert admin.get(AUDIT, query).status_code == 200
        return len(seen)

    start(caller(cast.alice), cast.falcon, now)
    few = queries()
    for number in range(60):
        agent = make_agent(cast.alice, f"a{number}")
        audit.allowed(f"agent:{agent.name}", "rest", "loop.start", start(caller(cast.alice), agent, now).pk)
    assert queries() == queries(actor="alice", before="9" * 18) == few <= 5


@pytest.mark.parametrize("name", ["actor", "action", "verdict", "through", "target"])
def test_each_filter_has_an_index_in_the_order_of_the_page(db, name):
    plan = trail._before("5").filter(**{name: "x"})[:50].explain()
    if connection.vendor == "sqlite":
        assert f"audit_by_{name}" in plan and "TEMP B-TREE" not in plan
    assert f"audit_by_{name}" in {index.name for index in Audit._meta.indexes}


# -- retention --------------------------------------------------------------------------------------------
def prune(days: str) -> str:
    out = StringIO()
    call_command("pruneaudit", "--days", days, stdout=out)
    return out.getvalue()


def age(days: float, target: str) -> None:
    Audit(
        timestamp=timezone.now() - timedelta(days=days),
        **{"actor": "alice", "through": "rest", "action": "loop.start", "target": target, "verdict": "allowed"},
    ).save()


def test_what_is_older_goes_the_rest_stays_and_the_trail_says_so(db):
    for days, target in ((400, "a"), (30.001, "b"), (29.999, "c"), (0, "d")):
        age(days, target)
    assert prune("30") == "2 rows older than 30 days deleted from the audit trail.\n"
    assert list(Audit.objects.order_by("pk").values_list("target", flat=True)) == ["c", "d", "audit"]
    row = Audit.objects.latest("pk")
    assert (row.actor, row.through, row.action, row.verdict) == ("pruneaudit", "command", "audit.prune", "allowed")
    assert row.reason.startswith("2 rows before ")


def test_a_second_prune_deletes_nothing_and_is_on_the_trail_too(db):
    age(31, "a")
    assert prune("30").startswith("1 row older") and prune("30").startswith("0 rows older")
    assert Audit.objects.filter(action="audit.prune").count() == 2


def test_more_than_one_batch_goes(db, monkeypatch):
    monkeypatch.setattr(trail, "_BATCH", 3)
    for number in range(8):
        age(40, str(number))
    assert prune("30").startswith("8 rows") and Audit.objects.count() == 1


@pytest.mark.parametrize("days", ["29", "0", "-1", "36501", "1.5", "all", "", "٣٠"])
def test_days_that_would_delete_too_much_or_are_none_are_refused(db, days):
    age(1000, "a")
    with pytest.raises(CommandError, match="from 30 to 36,500"):
        prune(days)
    assert Audit.objects.count() == 1


def test_days_must_be_said(db):
    with pytest.raises(CommandError, match="--days"):
        call_command("pruneaudit")
