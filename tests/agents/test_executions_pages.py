"""The executions' pages: what is listed and folded, what one shows, its live output, and Stop."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from agents import executions, keys, owner, reminders
from agents.executions import NewTurn
from agents.harness import masking
from agents.live_output import MOST_AT_ONCE, Places, read
from agents.models import Audit, Execution
from agents.reminders import NewReminder
from agents.worker import run_folder
from tests.conftest import caller
from tests.ledger import claim, ok, play, start

ALL, OF_AGENT = "/executions/", "/agents/falcon/executions/"


def seen(user, path: str, **query: str) -> str:
    client = Client()
    client.force_login(user)
    answer = client.get(path, query)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def task(cast, now, message="count the sheep", trigger="manual"):
    turn = NewTurn(agent_id=cast.falcon.pk, triggered_by=trigger, requested_by="alice", message=message)
    return executions.submit(turn, now)


def running(cast, now):
    task(cast, now)
    execution = claim(cast.falcon, now, f"{owner.host()}/boot/1/1").execution
    run_folder(execution.pk, execution.attempt).mkdir(parents=True)
    return execution


def say(execution, text: str | bytes, name: str = "out"):
    with open(run_folder(execution.pk, execution.attempt) / name, "ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


# -- lists ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", [ALL, OF_AGENT])
def test_the_runs_of_a_loop_are_one_row_with_their_count(cast, now, path):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=3)
    play(cast.falcon, now, ok(), ok(), ok())
    other = task(cast, now)
    html = seen(cast.alice, path)
    assert html.count('data-trigger="loop"') == 1 and "3 turns, this is the newest" in html
    assert f"/agents/falcon/loops/{loop.pk}/" in html and f'id="execution-{other.pk}"' in html


def test_single_runs_are_shown_where_they_are_asked_for(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=3)
    play(cast.falcon, now, ok(), ok(), ok())
    for query in ({"loop": loop.pk}, {"status": "success"}, {"q": loop.pk[-8:]}):
        assert seen(cast.alice, ALL, **query).count('data-trigger="loop"') == 3


def test_filters_and_the_search_by_id_find_what_they_say(cast, now):
    first, second = task(cast, now), task(cast, now, trigger="chat")
    for query in ({"triggered_by": "chat"}, {"q": second.pk}, {"q": second.pk[-6:]}):
        html = seen(cast.alice, ALL, **query)
        assert f'id="execution-{second.pk}"' in html and f'id="execution-{first.pk}"' not in html
    for query in ({"q": "a b"}, {"q": "x\0y"}, {"agent": "egret"}, {"q": "zzzzzz"}):
        assert "No execution fits" in seen(cast.alice, ALL, **query)


def test_long_lists_come_in_pages_that_cost_the_same(cast, now, django_assert_max_num_queries):
    made = [task(cast, now).pk for _ in range(60)]
    with django_assert_max_num_queries(18):
        first = seen(cast.alice, ALL)
    assert f"before={made[10]}" in first and f'id="execution-{made[9]}"' not in first
    assert f'id="execution-{made[9]}"' in seen(cast.alice, ALL, before=made[10])


def test_a_stranger_and_a_client_see_nothing_of_it(cast, now):
    execution = task(cast, now)
    for who in (cast.carol, cast.dora):
        assert execution.pk not in seen(who, ALL)


def test_pending_reminders_stand_above_for_owner_and_admin_alone(cast, now):
    reminders.set_reminder(caller(cast.alice), cast.falcon, NewReminder("feed the cat", delay_seconds=600), now)
    for who, shown in ((cast.alice, True), (cast.root, True), (cast.bob, False)):
        html = seen(who, OF_AGENT)
        assert ("feed the cat" in html) is shown and ('class="trigger t-reminder"' in html) is shown


# -- one execution --------------------------------------------------------------------------------
def test_the_page_shows_facts_message_and_response_and_runs_no_markup_of_it(cast, now):
    task(cast, now, message="<script>alert(1)</script>")
    play(cast.falcon, now, ok("**bold** <img src=x onerror=alert(1)> ![](http://elsewhere/x.png)"))
    execution = Execution.objects.get()
    html = seen(cast.bob, f"/executions/{execution.pk}/")
    assert "<strong>bold</strong>" in html and "<img" not in html and "<script>alert" not in html
    assert "Asked by" in html and execution.pk in html
    text = seen(cast.bob, f"/executions/{execution.pk}/response/")
    assert text.startswith("**bold**")


def test_a_stranger_gets_no_page_and_ends_nothing_and_the_refusal_is_written(cast, now):
    execution = running(cast, now)
    client = Client()
    client.force_login(cast.carol)
    for part in ("", "output/", "message/", "response/"):
        answer = client.get(f"/executions/{execution.pk}/{part}")
        assert answer.status_code == 403 and b"falcon" not in answer.content and b"sheep" not in answer.content
    assert client.post(f"/executions/{execution.pk}/cancel/").status_code == 403
    execution.refresh_from_db()
    assert execution.cancelled_by == "" and Audit.objects.filter(action="execution.cancel", verdict="refused").exists()


def test_ending_it_twice_is_said_and_done_once(cast, now):
    execution = task(cast, now)
    client = Client()
    client.force_login(cast.bob)
    answers = [client.post(f"/executions/{execution.pk}/cancel/", follow=True).content.decode() for _ in range(2)]
    assert "it never began" in answers[0] and "over already" in answers[1]
    execution.refresh_from_db()
    assert (execution.state, execution.cancelled_by) == ("cancelled", "bob")


# -- live output ----------------------------------------------------------------------------------
def test_what_is_printed_arrives_once_line_by_line_and_goes_on_where_it_was(cast, now):
    execution = running(cast, now)
    say(execution, "one\ntwo\nhalf")
    first = read(execution, Places())
    say(execution, " done\nthree\n")
    say(execution, "oops\n", "err")
    second = read(execution, Places.of(str(first.places)))
    assert [line.text for line in first.lines] == ["one", "two"]
    assert [(line.text, line.is_error) for line in second.lines] == [
        ("half done", False),
        ("three", False),
        ("oops", True),
    ]
    assert read(execution, second.places).lines == []


def test_the_page_asks_for_more_from_where_it_is_and_is_told_when_the_state_changes(cast, now):
    execution = running(cast, now)
    say(execution, "one <b>\n")
    html = seen(cast.alice, f"/executions/{execution.pk}/")
    assert "<li>one &lt;b&gt;</li>" in html and "state=running&amp;at=8.0.8" in html
    say(execution, "two\n")
    news = seen(cast.alice, f"/executions/{execution.pk}/output/", state="running", at="8.0.8")
    assert "<li>two</li>" in news and "one" not in news
    stale = seen(cast.alice, f"/executions/{execution.pk}/output/", state="queued", at="nonsense")
    assert 'hx-trigger="load"' in stale and "<li>" not in stale


def test_a_flood_is_cut_to_its_newest_part_and_said(cast, now):
    execution = running(cast, now)
    say(execution, "".join(f"line {number}\n" for number in range(50_000)))
    output = read(execution, Places())
    assert output.lines[-1].text == "line 49999" and output.skipped > 0
    assert sum(len(line.text) for line in output.lines) <= MOST_AT_ONCE


def test_a_page_that_shows_much_begins_anew(cast, now):
    execution = running(cast, now)
    say(execution, "last\n")
    output = read(execution, Places(out=5, shown=10**6))
    assert output.anew and [line.text for line in output.lines] == ["last"]


@pytest.mark.parametrize("cut", [1, 20, 60, 100, 113])
def test_the_turns_key_is_masked_also_where_two_looks_cut_it(cast, now, cut):
    execution = running(cast, now)
    secret = keys.turn_key(execution.pk, execution.attempt)
    say(execution, f"key {secret[:cut]}\n")
    first = read(execution, Places())
    say(execution, f"{secret[cut:]} end\n")
    second = read(execution, first.places)
    said = "".join(line.text for line in (*first.lines, *second.lines))
    proof = secret.rpartition(".")[2]
    assert not any(proof[at : at + masking.PIECE] in said for at in range(len(proof) - masking.PIECE + 1))
    assert "[masked]" in said and said.endswith("end")


def test_nothing_is_read_of_a_turn_on_another_host(cast, now):
    execution = running(cast, now)
    say(execution, "secret sheep 7\n")
    Execution.objects.filter(pk=execution.pk).update(owner="elsewhere/boot/1/1")
    html = seen(cast.alice, f"/executions/{execution.pk}/")
    assert "runs on another host" in html and "sheep 7" not in html


def test_a_spool_that_is_gone_or_has_begun_anew_is_no_error(cast, now):
    execution = running(cast, now)
    assert read(execution, Places(out=500, err=7)).lines == []
    assert timezone.now() - now < timedelta(minutes=1)
