"""The agents' pages: who signs in, what the list shows, and who starts and stops."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from agents.models import Audit, Execution, Share
from agents.pages import figures_of
from tests.conftest import PASSWORD, caller, make_agent, make_user
from tests.ledger import bad, claim, ok, play, start


def signed_in(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


# -- signing in and out ---------------------------------------------------------------------------
def test_who_is_not_signed_in_is_asked_to_and_comes_back(db):
    answer = Client().get("/agents/falcon/loops/?status=active")
    assert answer.status_code == 302
    assert answer["Location"] == "/login/?next=/agents/falcon/loops/%3Fstatus%3Dactive"


def test_signing_in_takes_the_page_form_and_leads_where_one_wanted_to_go(cast):
    client = Client(enforce_csrf_checks=True)
    client.get("/login/")
    fields = {"username": "alice", "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"].value}
    answer = client.post("/login/", {**fields, "next": "/agents/falcon/loops/"})
    assert (answer.status_code, answer["Location"]) == (302, "/agents/falcon/loops/")
    assert client.get("/").status_code == 200


def test_a_wrong_password_is_said_and_the_name_stays(cast):
    answer = Client().post("/login/", {"username": "alice", "password": "nonsense"})
    html = answer.content.decode()
    assert answer.status_code == 200 and 'value="alice"' in html and 'role="alert"' in html
    assert "nonsense" not in html


def test_signing_in_never_leads_to_another_site(cast):
    fields = {"username": "alice", "password": PASSWORD, "next": "https://evil.example/"}
    assert Client().post("/login/", fields)["Location"] == "/"


def test_signing_out_needs_a_post_and_ends_the_session(cast):
    client = signed_in(cast.alice)
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/").status_code == 302


def test_a_fragment_asked_for_without_a_session_sends_the_whole_page_to_the_login(db):
    here = "http://testserver/agents/falcon/loops/?q=x"
    headers = {"HX-Request": "true", "HX-Current-URL": here}
    answer = Client().post("/agents/falcon/loops/state/", headers=headers)
    assert answer.status_code == 401 and not answer.content
    assert answer["HX-Redirect"] == "/login/?next=/agents/falcon/loops/%3Fq%3Dx"


def test_the_way_back_after_login_is_never_another_site(db):
    headers = {"HX-Request": "true", "HX-Current-URL": "https://evil.example/x"}
    assert Client().post("/agents/falcon/loops/state/", headers=headers)["HX-Redirect"] == "/login/?next=/"


# -- the list -------------------------------------------------------------------------------------
def test_the_list_shows_own_and_shared_agents_and_no_others(cast):
    make_agent(cast.carol, "kestrel")
    make_agent(cast.carol, "open")
    Share.objects.create(agent=cast.carol.agents.get(name="open"), user=cast.alice)
    html = signed_in(cast.alice).get("/").content.decode()
    assert 'id="agent-falcon"' in html and 'id="agent-open"' in html and "Shared by carol" in html
    assert "kestrel" not in html


def test_an_empty_list_teaches_what_an_agent_is(cast):
    html = signed_in(cast.carol).get("/agents/").content.decode()
    assert "No agents yet" in html and "createagent NAME --owner carol" in html


def test_a_client_sees_no_agent_and_no_word_of_one(cast):
    html = signed_in(cast.dora).get("/").content.decode()
    assert "falcon" not in html and "createagent" not in html


def test_links_lead_only_to_what_exists_and_admin_only_for_admins(cast):
    assert "/admin/" in signed_in(cast.root).get("/").content.decode()
    html = signed_in(cast.alice).get("/").content.decode()
    assert "/admin/" not in html and 'href="/workspace' not in html and 'href="#"' not in html


def test_spend_today_counts_failed_turns_and_tells_unknown_from_nothing(cast, now):
    me = caller(cast.alice)
    start(me, cast.falcon, now, max_runs=4, on_failure="continue", no_progress_threshold=0)
    play(cast.falcon, now, ok(cost="0.25"), bad(cost="0.5"), ok(), ok("x", cost="0.05"))
    found = figures_of([cast.falcon.pk], now + timedelta(seconds=9))[cast.falcon.pk]
    assert (found.spent, found.unknown_costs, found.spend_is_unknown) == (Decimal("0.8"), 1, False)
    assert "$0.80" in signed_in(cast.alice).get("/").content.decode()


def test_spend_that_nobody_reported_is_not_zero(cast, now):
    start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok())
    html = signed_in(cast.alice).get("/").content.decode()
    assert "not reported" in html and "$0.00" not in html


def test_yesterdays_spend_is_not_todays(cast, now):
    start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok(cost="3"))
    Execution.objects.update(finished_at=now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(seconds=1))
    assert figures_of([cast.falcon.pk], now)[cast.falcon.pk].spend is None


def test_active_waiting_and_slots_are_counted(cast, now):
    kestrel = make_agent(cast.alice, "kestrel", max_parallel_tasks=1)
    start(caller(cast.alice), kestrel, now)
    claim(kestrel, now)
    start(caller(cast.alice), kestrel, now)
    found = figures_of([kestrel.pk], now)[kestrel.pk]
    assert (found.loops, found.waiting, found.slots) == (2, 1, 1)
    assert found.last_activity is not None


def test_the_list_costs_the_same_for_one_agent_and_for_ten(cast, now, django_assert_num_queries):
    client = signed_in(cast.alice)
    start(caller(cast.alice), cast.falcon, now)
    with django_assert_num_queries(6):
        client.get("/")
    for number in range(9):
        agent = make_agent(cast.alice, f"agent-{number}")
        start(caller(cast.alice), agent, now)
    with django_assert_num_queries(6):
        client.get("/")


# -- start and stop -------------------------------------------------------------------------------
def test_the_owner_stops_and_starts_the_agent_and_comes_back(cast):
    client = signed_in(cast.alice)
    answer = client.post("/agents/falcon/stop/", headers={"Referer": "http://testserver/agents/falcon/loops/?q=1"})
    cast.falcon.refresh_from_db()
    assert cast.falcon.status == "stopped" and answer["Location"] == "/agents/falcon/loops/?q=1"
    assert "takes no further run" in client.get("/").content.decode()
    client.post("/agents/falcon/start/")
    cast.falcon.refresh_from_db()
    assert cast.falcon.status == "running"
    assert list(Audit.objects.values_list("through", "action", "verdict")) == [("page", "agent.change", "allowed")] * 2


@pytest.mark.parametrize(("who", "status"), [("bob", 403), ("carol", 403), ("dora", 404)])
def test_nobody_else_does_and_is_not_told_whose_it_is(cast, who, status):
    answer = signed_in(getattr(cast, who)).post("/agents/falcon/stop/")
    cast.falcon.refresh_from_db()
    assert answer.status_code == status and cast.falcon.status == "running"
    assert "falcon" not in answer.content.decode() and "alice" not in answer.content.decode()
    assert Audit.objects.get().verdict == "refused"


def test_an_unknown_agent_is_not_found_whatever_its_name(cast):
    client = signed_in(cast.alice)
    assert client.post("/agents/nobody/stop/").status_code == 404
    assert client.get("/agents/%00/loops/").status_code == 404
    assert client.get("/agents/a%20b/").status_code == 404


def test_stopping_by_a_link_is_impossible(cast):
    assert signed_in(cast.alice).get("/agents/falcon/stop/").status_code == 405


def test_the_agents_own_address_leads_to_its_loops(cast):
    assert signed_in(cast.alice).get("/agents/falcon/")["Location"] == "/agents/falcon/loops/"


# -- the frame of every page ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path", ["/", "/login/", "/agents/falcon/loops/", "/agents/falcon/loops/new/", "/agents/falcon/access/", "/keys/"]
)
def test_no_page_has_inline_code_or_a_foreign_address(cast, path):
    client = Client() if path == "/login/" else signed_in(cast.alice)
    answer = client.get(path)
    html = answer.content.decode()
    assert " style=" not in html and "<style" not in html and "onclick" not in html and "hx-on" not in html
    assert "<script>" not in html and html.count("<script") == html.count("<script src=")
    assert "http://" not in html.replace("http://www.w3.org", "") and "https://" not in html
    assert "unsafe" not in answer["Content-Security-Policy"]


def test_a_page_of_a_person_is_not_kept_by_anybody_else(cast):
    answer = signed_in(cast.alice).get("/")
    assert "private" in answer["Cache-Control"] and "HX-Request" in answer["Vary"]


def test_a_page_that_is_not_there_says_so_in_our_own_words(cast):
    answer = signed_in(cast.alice).get("/nothing/here/")
    assert answer.status_code == 404 and "Go to your agents" in answer.content.decode()


def test_a_form_that_is_not_ours_is_refused(cast):
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.alice)
    answer = client.post("/agents/falcon/stop/")
    assert answer.status_code == 403 and "Try that again" in answer.content.decode()
    cast.falcon.refresh_from_db()
    assert cast.falcon.status == "running"


def test_a_disabled_person_is_signed_out(cast):
    client = signed_in(cast.bob)
    cast.bob.is_active = False
    cast.bob.save()
    assert client.get("/").status_code == 302


def test_a_person_without_a_name_of_their_own_is_called_by_the_username(cast):
    eve = make_user("eve", first_name="Eve", last_name="Adams")
    assert "Eve Adams" in signed_in(eve).get("/").content.decode()
    assert '<a class="who" href="/keys/" title="Your keys">alice</a>' in signed_in(cast.alice).get("/").content.decode()


def test_times_carry_their_exact_moment(cast):
    start(caller(cast.alice), cast.falcon, timezone.now(), max_runs=1)
    play(cast.falcon, timezone.now(), ok())
    html = signed_in(cast.alice).get("/").content.decode()
    assert '<time class="ago" datetime="' in html and " UTC" in html
