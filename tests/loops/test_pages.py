"""The pages of an agent's loops without any script: list, filters, start, one loop, one run, stop, and who may see them."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from agents import life
from agents.models import Audit, Execution, Share
from loops import engine, listing
from loops.forms import INITIAL, LABELS
from loops.models import Loop
from tests.conftest import caller, make_agent
from tests.ledger import bad, claim, ok, play, start

TAB = "/agents/falcon/loops/"
NEW = TAB + "new/"
LIST_QUERIES = 8  # session, person, agent, loops, their runs, three of the agent's figures
BODY_QUERIES = 9  # session, person, loop, its row and runs; runs in full, template, last response, last line


@pytest.fixture
def alice(cast) -> Client:
    return signed_in(cast.alice)


def signed_in(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def begin(cast, now, **body) -> Loop:
    return start(caller(cast.alice), cast.falcon, now, **body)


def page(client: Client, path: str = TAB, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.content.decode()[:2000]
    return flat(answer)


def flat(answer) -> str:
    """The page with every run of white space as one blank, so that no test depends on how a template is laid out."""
    return re.sub(r"\s+", " ", answer.content.decode()).replace("> <", "><")


def rows(html: str) -> list[str]:
    return re.findall(r'<article class="loop[^"]*" id="loop-([^"]+)"', html)


def fields(**changed) -> dict:
    return {**INITIAL, "message": "work {{run}}", "tools": "all", "once": "a" * 32, **changed}


# -- the list -------------------------------------------------------------------------------------
def test_an_agent_without_loops_says_what_a_loop_is(alice):
    html = page(alice)
    assert "No loops on falcon yet" in html and "Run the first loop" in html


def test_loops_are_listed_newest_first_with_what_tests_and_styles_rely_on(cast, alice, now):
    first, second = begin(cast, now), begin(cast, now)
    html = page(alice)
    assert rows(html) == [second.pk, first.pk]
    assert f'id="loop-{first.pk}" data-status="queued" data-version="{first.version}"' in html
    for hook in ('id="run-loop"', 'id="connection" data-state=', 'id="announcer"', 'role="status"', 'name="stop"'):
        assert hook in html


def test_a_row_says_what_it_does_and_what_it_has_left(cast, alice, now):
    begin(cast, now, message="Fix the next test\nproperly", max_runs=20, stop_signal="[[DONE]]", max_cost_usd=2)
    play(cast.falcon, now, ok("one", "0.25"), ok("two", "0.51"))
    html = page(alice)
    assert "Fix the next test</a>" in html and "<b>Run 3 / 20</b>" in html
    assert "<b>$0.76</b> of $2.00" in html and "[[DONE]] not seen in 2 replies." in html
    assert html.count('<path class="ran"') == 1 and '<path class="now"' in html and '<path class="left"' in html


@pytest.mark.parametrize(
    ("body", "results", "words"),
    [
        ({"max_runs": 1}, [ok()], ["Done", "reached max runs", "Reached 1 of 1 run."]),
        ({"stop_signal": "END"}, [ok("it is END now")], ["Done", "stop signal matched", "<mark>END</mark>"]),
        ({}, [bad("no disk")], ["Failed", "error", '<span class="bad">no disk</span>']),
        ({"max_runs": 2, "on_failure": "continue"}, [bad(), ok()], ["Done, with errors", "1 failed"]),
        ({"no_progress_threshold": 2}, [ok("x"), ok("x")], ["Stopped — it stopped making progress", "no progress"]),
        ({"max_cost_usd": 1}, [ok(cost="1.07")], ["Stopped — cost budget reached", "7 % over"]),
    ],
    ids=["max_runs", "signal", "failed", "with_errors", "no_progress", "budget"],
)
def test_every_end_is_said_with_its_reason_and_its_proof(cast, alice, now, body, results, words):
    begin(cast, now, **body)
    play(cast.falcon, now, *results)
    html = page(alice)
    for said in words:
        assert said in html
    assert 'name="stop"' not in html and "Run again" in html


def test_unknown_cost_is_not_reported_and_never_zero(cast, alice, now):
    begin(cast, now, max_runs=1, max_cost_usd=3)
    play(cast.falcon, now, ok())
    html = page(alice)
    assert "not reported" in html and "$0.00" not in html


def test_a_message_cannot_break_out_of_the_page(cast, alice, now):
    begin(cast, now, message="<script>alert(1)</script>\"'><b>", stop_signal="<i>&")
    html = page(alice, f"{TAB}?open={Loop.objects.get().pk}")
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)" in html and "<i>&" not in html


def test_filters_and_search_are_in_the_address(cast, alice, now):
    active = begin(cast, now, message="watch the deploy")
    failed = begin(cast, now, message="rebase the branches")
    done = begin(cast, now, message="write the notes", max_runs=1)
    play(cast.falcon, now, ok(), bad(), ok())  # the first loop's first run, the second's, the third's
    claimed = {loop.pk: Loop.objects.get(pk=loop.pk).status for loop in (active, failed, done)}
    assert claimed == {active.pk: "running", failed.pk: "failed", done.pk: "completed"}
    assert rows(page(alice, TAB + "?status=active")) == [active.pk]
    assert rows(page(alice, TAB + "?status=attention")) == [failed.pk]
    assert rows(page(alice, TAB + "?q=DEPLOY")) == [active.pk]
    assert rows(page(alice, TAB + f"?q={done.pk}")) == [done.pk]
    assert rows(page(alice, TAB + f"?q={done.pk[-6:]}")) == [done.pk]
    assert len(rows(page(alice, TAB + "?status=nonsense"))) == 3


def test_a_search_that_finds_nothing_offers_the_way_out(cast, alice, now):
    begin(cast, now)
    html = page(alice, TAB + "?q=nothing%25_<b>")
    assert "No loop fits" in html and "nothing%_&lt;b&gt;" in html and f'href="{TAB}"' in html


def test_pages_are_cut_by_the_last_id_and_nothing_is_lost_between_them(cast, alice, now, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    made = [begin(cast, now).pk for _ in range(5)][::-1]
    seen, address = [], TAB
    while address:
        html = page(alice, address)
        seen.append(rows(html))
        older = re.search(r'href="(\?before=[^"]+)" rel="next"', html)
        address = TAB + older[1] if older else ""
        if len(seen) == 1:
            made = [begin(cast, now).pk, *made]  # one that comes in between shifts nothing
    assert seen == [made[1:3], made[3:5], made[5:]]


def test_an_address_with_nonsense_shows_a_page(cast, alice, now):
    begin(cast, now)
    for query in ("before=%00", "before=zzz", "q=%00", "open=nonsense", "status=%00&q=" + "x" * 5000):
        page(alice, f"{TAB}?{query}")


def test_the_list_costs_the_same_with_many_loops_and_runs(cast, alice, now, django_assert_num_queries):
    begin(cast, now, max_runs=1, no_progress_threshold=0)
    play(cast.falcon, now, ok())
    page(alice)
    with django_assert_num_queries(LIST_QUERIES):
        page(alice)
    for _ in range(7):
        begin(cast, now, max_runs=6, no_progress_threshold=0)
        play(cast.falcon, now, *[ok()] * 6)
    with django_assert_num_queries(LIST_QUERIES):
        page(alice)


def test_an_opened_loop_costs_the_same_with_many_runs(cast, alice, now, django_assert_num_queries):
    loop = begin(cast, now, max_runs=100, no_progress_threshold=0)
    play(cast.falcon, now, ok(), ok())
    with django_assert_num_queries(BODY_QUERIES):
        page(alice, f"{TAB}{loop.pk}/body/")
    turn = Execution.objects.get(state="running")
    play_on(turn, now, 30)
    with django_assert_num_queries(BODY_QUERIES):
        page(alice, f"{TAB}{loop.pk}/body/")


def play_on(execution: Execution, now, times: int) -> None:
    from agents import executions
    from agents.executions import Turn
    from tests.ledger import OWNER

    turn = Turn(execution, execution.agent, execution.fence, execution.attempt)
    for _ in range(times):
        turn = executions.finish(turn, ok(), OWNER, now)


# -- opened -----------------------------------------------------------------------------------------
def test_a_row_opens_without_script_and_keeps_the_filter(cast, alice, now):
    loop = begin(cast, now)
    html = page(alice, f"{TAB}?status=active&open={loop.pk}")
    assert 'aria-expanded="true"' in html and "As stored" in html
    opener = re.search(r'<form id="opener" method="get">(.*?)</form>', html, re.S)[1]
    assert 'name="status" value="active"' in opener


def test_an_opened_loop_shows_runs_newest_first_and_limits_used_and_left(cast, alice, now):
    loop = begin(
        cast, now, max_runs=10, max_cost_usd=2, max_duration_seconds=7200, on_failure="continue", stop_signal="END"
    )
    play(cast.falcon, now, ok("one", "0.5"), bad("no disk"), ok("three", "1.2"))
    html = page(alice, f"{TAB}{loop.pk}/")
    assert re.findall(rf'id="run-{loop.pk}-(\d+)"', html) == ["4", "3", "2", "1"]
    assert "<b>3</b> of 10 · 7 left" in html and "<b>$1.70</b> of $2.00 · $0.30 left" in html
    assert 'class="bar near" max="2.000000" value="1.700000" aria-label="Cost budget"' in html
    assert "1 run reported no cost; the budget cannot count it." in html
    assert "Ends by" in html and "no disk" in html and "Last response, run 3" in html


def test_a_limit_that_was_never_set_has_no_bar(cast, alice, now):
    loop = begin(cast, now, no_progress_threshold=0)
    html = page(alice, f"{TAB}{loop.pk}/")
    assert re.findall(r'<progress[^>]*aria-label="([^"]+)"', html) == ["Runs"]
    assert html.count("not set") == 2


def test_an_overrun_budget_is_said_and_its_bar_is_full(cast, alice, now):
    loop = begin(cast, now, max_cost_usd=1)
    play(cast.falcon, now, ok(cost="1.07"))
    html = page(alice, f"{TAB}{loop.pk}/")
    assert "of $1.00 · $0.07 over" in html
    assert 'class="bar over" max="1.000000" value="1.000000"' in html


def test_the_limits_are_shown_as_they_are_stored(cast, alice, now):
    loop = begin(cast, now, message="Do {{run}}", timeout_per_run=90, delay_seconds=5, model="opus", allowed_tools=[])
    html = page(alice, f"{TAB}{loop.pk}/")
    for said in ("1 min 30 s per run", "5 s between runs", "opus", "<dt>Tools</dt><dd>none</dd>", "abort", "by you"):
        assert said in html
    assert '<mark class="slot">{{run}}</mark>' in html
    assert "unrestricted" in page(alice, f"{TAB}{begin(cast, now).pk}/")


def test_the_last_response_is_markdown_that_can_do_nothing(cast, alice, now):
    loop = begin(cast, now, max_runs=1)
    play(cast.falcon, now, ok("# Title\n\n<img src=x onerror=alert(1)> [go](/logout/) **bold**"))
    html = page(alice, f"{TAB}{loop.pk}/")
    assert "<h4>Title</h4>" in html and "<strong>bold</strong>" in html and "<img" not in html
    assert 'href="/logout/"' not in html and "&lt;img src=x" in html


def test_a_huge_response_is_cut_and_can_be_read_whole(cast, alice, now):
    loop = begin(cast, now, max_runs=1)
    play(cast.falcon, now, ok("word " * 10_000))
    html = page(alice, f"{TAB}{loop.pk}/")
    assert len(html) < 90_000 and "The first 20,000 of 50,000 characters" in html
    answer = alice.get(f"{TAB}{loop.pk}/runs/1/response/")
    assert answer["Content-Type"].startswith("text/plain") and len(answer.content) == 50_000


def test_a_long_template_is_cut_and_can_be_read_whole(cast, alice, now):
    loop = begin(cast, now, message="line\n" * 5_000)
    assert "Open the whole template" in page(alice, f"{TAB}{loop.pk}/")
    assert len(alice.get(f"{TAB}{loop.pk}/message/").content) == 25_000


def test_one_run_is_shown_in_full(cast, alice, now):
    loop = begin(cast, now, message="Say {{run}}", max_runs=3, on_failure="continue")
    play(cast.falcon, now, ok("answer **one**", "0.5"), bad("no disk"))
    html = page(alice, f"{TAB}{loop.pk}/runs/1/")
    assert "answer <strong>one</strong>" in html and "Say 1" in html and "$0.50" in html
    assert f'href="{TAB}{loop.pk}/runs/2/"' in html
    assert "no disk" in page(alice, f"{TAB}{loop.pk}/runs/2/")
    assert "Arrives when the run ends" in page(alice, f"{TAB}{loop.pk}/runs/3/")


def test_a_run_that_never_began_is_not_there(cast, alice, now):
    loop = begin(cast, now)
    page(alice, f"{TAB}{loop.pk}/runs/1/", 404)
    page(alice, f"{TAB}{loop.pk}/runs/99/", 404)


# -- starting -------------------------------------------------------------------------------------
def test_the_form_has_every_field_of_the_api_by_its_name(alice):
    html = page(alice, NEW)
    for name in LABELS:
        assert f'name="{name}"' in html
    assert 'id="loop-form"' in html and 'id="start-loop"' in html and "At most 5 runs" in html


def test_a_start_without_script_puts_the_new_row_on_top(cast, alice, now):
    begin(cast, now)
    answer = alice.post(NEW, fields(max_runs="7", stop_signal="[[DONE]]"))
    loop = Loop.objects.order_by("-pk")[0]
    assert answer.status_code == 302 and answer["Location"] == f"{TAB}?open={loop.pk}#loop-{loop.pk}"
    assert (loop.message, loop.max_runs, loop.stop_signal, loop.starter) == ("work {{run}}", 7, "[[DONE]]", cast.alice)
    assert rows(page(alice))[0] == loop.pk
    assert Audit.objects.filter(through="page", action="loop.start", verdict="allowed", target=loop.pk).exists()


def test_a_refused_start_keeps_what_was_typed_and_says_why_in_the_apis_words(alice):
    answer = alice.post(NEW, fields(message="mine <b>", max_runs="0", timeout_per_run="soon"))
    html = flat(answer)
    assert answer.status_code == 422 and not Loop.objects.exists()
    assert "Not started: 2 fields need a change" in html and "mine &lt;b&gt;" in html and 'value="soon"' in html
    assert '<a href="#max_runs">Max runs must be a whole number from 1 to 100</a>' in html
    assert 'aria-invalid="true" aria-describedby="timeout_per_run-error timeout_per_run-hint"' in html
    assert re.search(r'id="loop-errors" role="alert" tabindex="-1" autofocus', html)


def test_a_timeout_above_the_agents_is_refused_beside_its_field(alice):
    answer = alice.post(NEW, fields(timeout_per_run="7200"))
    assert answer.status_code == 422
    assert "Must be at most 3,600, the agent&#x27;s own limit" in flat(answer)


def test_the_same_form_sent_twice_starts_one_loop(alice):
    first, second = alice.post(NEW, fields()), alice.post(NEW, fields())
    assert first["Location"] == second["Location"] and Loop.objects.count() == 1


def test_a_form_sent_again_with_another_value_starts_another_loop(alice):
    alice.post(NEW, fields())
    assert alice.post(NEW, fields(max_runs="6")).status_code == 302
    assert Loop.objects.count() == 2


def test_an_agent_that_is_stopped_takes_no_loop_and_says_why(cast, alice, now):
    life.stop(cast.falcon, caller(cast.alice), now)
    assert 'aria-disabled="true"' in page(alice) and "Start the agent first" in page(alice)
    answer = alice.post(NEW, fields(message="kept"))
    html = flat(answer)
    assert answer.status_code == 409 and "kept" in html and "Not started" in html and not Loop.objects.exists()


def test_too_many_loops_are_refused_with_the_limit(cast, alice, now, settings):
    settings.TRINITY_MAX_ACTIVE_PER_AGENT = 1
    begin(cast, now)
    answer = alice.post(NEW, fields())
    assert answer.status_code == 429 and "the most allowed" in flat(answer)


def test_run_again_and_patterns_fill_the_form_in(cast, alice, now):
    loop = begin(cast, now, message="again & again", max_runs=9)
    html = page(alice, f"{NEW}?from={loop.pk}")
    assert "again &amp; again" in html and 'name="max_runs" value="9"' in html
    assert 'name="no_progress_threshold" value="0"' in page(alice, NEW + "?pattern=poll")


def test_the_outlook_is_worked_out_as_one_types(alice):
    answer = alice.post(TAB + "outlook/", fields(max_runs="20", delay_seconds="60"), headers={"HX-Request": "true"})
    html = flat(answer)
    assert html.strip().startswith('<aside id="loop-outlook"') and "At most 20 runs" in html
    assert 'work <mark class="slot">1</mark>' in html and not Loop.objects.exists()


def test_with_the_script_the_form_opens_in_the_list_and_the_row_comes_back_alone(alice):
    script = {"HX-Request": "true"}
    panel = flat(alice.get(NEW, headers=script))
    assert panel.strip().startswith('<section class="section panel" id="run-panel"') and "hx-post" in panel
    answer = alice.post(NEW, fields(grows="1"), headers=script)
    html, loop = flat(answer), Loop.objects.get()
    assert '<li hx-swap-oob="afterbegin:#loops"><article' in html and rows(html) == [loop.pk]
    assert f"Loop {loop.pk[-6:]} started." in html
    assert alice.post(NEW, fields(max_runs="8"), headers=script)["HX-Redirect"].startswith(TAB + "?open=")


# -- stopping -------------------------------------------------------------------------------------
def test_stop_works_as_a_plain_form_and_says_what_it_means(cast, alice, now):
    loop = begin(cast, now)
    claim(cast.falcon, now)
    answer = alice.post(f"{TAB}{loop.pk}/stop/", {"stop": loop.pk}, headers={"Referer": f"http://testserver{TAB}"})
    assert answer.status_code == 302 and answer["Location"] == TAB
    html = page(alice)
    assert "Finishing run 1, then stopping" in html and "at the latest" in html and "Stopping…" in html
    assert 'name="stop"' not in html


def test_stop_before_the_first_run_ends_at_once_and_names_who(cast, alice, now):
    loop = begin(cast, now)
    alice.post(f"{TAB}{loop.pk}/stop/")
    assert "Stopped by you" in page(alice)
    assert "Stopped by alice" in page(signed_in(cast.bob))


def test_with_the_script_stop_answers_with_the_row_as_it_is_now(cast, alice, now):
    loop = begin(cast, now)
    claim(cast.falcon, now)
    answer = alice.post(f"{TAB}{loop.pk}/stop/", {"opened": [loop.pk]}, headers={"HX-Request": "true"})
    html = flat(answer)
    assert html.startswith('<article hx-swap-oob="morph"') and "Finishing run 1" in html and "As stored" in html
    assert 'id="announcer"' in html


def test_a_second_stop_changes_nothing(cast, alice, now):
    loop = begin(cast, now, max_runs=1)
    play(cast.falcon, now, ok())
    assert alice.post(f"{TAB}{loop.pk}/stop/").status_code == 302
    assert Loop.objects.get().status == "completed"


def test_neither_starting_nor_stopping_is_a_link(cast, alice, now):
    loop = begin(cast, now)
    assert alice.get(f"{TAB}{loop.pk}/stop/").status_code == 405
    assert alice.get(f"{TAB}outlook/").status_code == 405 and alice.get(f"{TAB}state/").status_code == 405


# -- who may ----------------------------------------------------------------------------------------
def paths(loop: Loop) -> list[str]:
    one = f"{TAB}{loop.pk}/"
    return [TAB, NEW, one, one + "body/", one + "message/", one + "runs/1/", one + "runs/1/response/"]


@pytest.mark.parametrize(("who", "status"), [("bob", 200), ("root", 200), ("carol", 403), ("dora", 404)])
def test_every_page_of_a_loop_gives_the_same_verdict(cast, now, who, status):
    loop = begin(cast, now, message="secret message")
    claim(cast.falcon, now)
    client = signed_in(getattr(cast, who))
    for path in paths(loop):
        answer = client.get(path)
        assert answer.status_code == status, path
        if status != 200:
            text = flat(answer)
            assert not any(word in text for word in ("falcon", "alice", "secret message")), path


@pytest.mark.parametrize(("who", "status"), [("carol", 403), ("dora", 404)])
def test_a_stranger_starts_and_stops_nothing(cast, now, who, status):
    loop = begin(cast, now)
    client = signed_in(getattr(cast, who))
    assert client.post(NEW, fields()).status_code == status
    assert client.post(f"{TAB}{loop.pk}/stop/").status_code == status
    assert client.post(f"{TAB}state/").status_code == status
    assert client.post(f"{TAB}outlook/", fields()).status_code == status
    assert Loop.objects.count() == 1 and Loop.objects.get().stop_requested_at is None
    assert Audit.objects.filter(verdict="refused", through="page").count() == 4


def test_a_loop_is_not_found_under_another_agents_name(cast, alice, now):
    make_agent(cast.alice, "kestrel")
    loop = begin(cast, now)
    page(alice, f"/agents/kestrel/loops/{loop.pk}/", 404)
    page(alice, f"{TAB}loop_nothere/", 404)


def test_who_started_a_loop_may_read_and_stop_it_after_the_share_is_gone(cast, now):
    loop = start(caller(cast.bob), cast.falcon, now)
    Share.objects.all().delete()
    bob = signed_in(cast.bob)
    page(bob, TAB, 403)
    page(bob, f"{TAB}{loop.pk}/")
    assert bob.post(f"{TAB}{loop.pk}/stop/").status_code == 302
    assert Loop.objects.get().status == "stopped"


def test_the_history_of_a_deleted_agent_stays_readable_for_its_owner(cast, alice, now):
    loop = begin(cast, now)
    life.delete(cast.falcon, caller(cast.alice), now)
    assert "the agent was deleted" in page(alice, f"{TAB}{loop.pk}/")
    page(alice, TAB, 404)
    page(signed_in(cast.bob), f"{TAB}{loop.pk}/", 403)


def test_a_poll_tells_only_of_loops_on_its_agent(cast, alice, now):
    mine, foreign = begin(cast, now), start(caller(cast.carol), make_agent(cast.carol, "kestrel"), now)
    view = f'{{"shown": ["{mine.pk}", "{foreign.pk}"], "open": ["{foreign.pk}"], "newest": ""}}'
    html = flat(alice.post(TAB + "state/", {"view": view}, headers={"HX-Request": "true"}))
    assert mine.pk in html and foreign.pk not in html


@pytest.mark.parametrize(
    "view", ["", "null", "[]", "{", '{"shown": 5, "open": {}, "newest": 7}', '{"shown": [1, null]}']
)
def test_a_poll_with_nonsense_is_answered_all_the_same(alice, view):
    answer = alice.post(TAB + "state/", {"view": view}, headers={"HX-Request": "true"})
    assert answer.status_code == 200 and 'id="agent-facts"' in flat(answer)


def test_a_refusal_comes_as_a_sentence_for_the_script_to_show_beside_what_was_pressed(cast, now):
    answer = signed_in(cast.carol).post(TAB + "state/", headers={"HX-Request": "true"})
    assert answer.status_code == 403 and answer["Content-Type"].startswith("text/plain")
    assert answer.content.decode() == "You do not have access to this." and "HX-Refresh" not in answer


def test_a_waiting_loop_says_until_when(cast, alice, now):
    begin(cast, now, delay_seconds=600, no_progress_threshold=0)
    play(cast.falcon, now, ok())
    html = page(alice)
    assert re.search(r"Waiting until <time class=\"clock\"[^>]*>\d\d:\d\d:\d\d UTC</time>", html)
    assert re.search(r"Run 2 begins in <time class=\"left\"", html)


def test_the_clock_of_a_row_moves_without_a_new_version(cast, alice, now):
    loop = begin(cast, now - timedelta(minutes=3))
    claim(cast.falcon, now - timedelta(minutes=3))
    assert "3 min ago" in page(alice)
    assert engine.loop_named(loop.pk).version == Loop.objects.get().version
    assert timezone.now() - now < timedelta(minutes=1)


def test_a_pattern_that_is_pressed_keeps_what_was_typed_and_starts_nothing(alice):
    html = flat(alice.post(NEW + "?pattern=poll", fields(message="my words"), headers={"HX-Request": "true"}))
    assert "my words" in html and 'name="delay_seconds" value="120"' in html and not Loop.objects.exists()


def test_a_refused_form_says_so_beside_the_button_too(alice):
    html = flat(alice.post(NEW, fields(max_runs="0")))
    foot = html[html.index('class="form-foot"') :]
    assert 'href="#loop-errors">Not started: 1 field needs a change</a>' in foot


def test_a_start_shows_the_id_in_full(alice):
    grown = flat(alice.post(NEW, {**fields(), "grows": "1"}, headers={"HX-Request": "true"}))
    first = Loop.objects.get()
    assert f'Started loop <code id="started-id">{first.pk}</code>' in grown
    alice.post(NEW, fields(once="b" * 32))
    second = Loop.objects.exclude(pk=first.pk).get()
    assert f"Started loop {second.pk}." in page(alice)


def test_an_opened_loop_can_be_copied_as_a_command_without_a_key(cast, alice, now):
    loop = begin(cast, now, message="it's on", max_runs=9)
    html = page(alice, f"{TAB}{loop.pk}/")
    assert "Copy as curl" in html and "$TRINITY_API_KEY" in html and "&quot;max_runs&quot;: 9" in html
