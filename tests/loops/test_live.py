"""A loop as fragments: rendered once per version, newer ones on top, and nothing of another agent's."""

import re
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread

import pytest
from django.test.signals import template_rendered

from agents import keys, owner
from agents.models import Execution
from agents.worker import run_folder
from loops import engine, listing, live
from loops.charts import strip
from loops.last_line import LONGEST, last_line
from loops.live import Kept, Watch, news, rows_of
from loops.models import Loop
from tests.conftest import caller, make_agent
from tests.ledger import bad, claim, ok, play, start


def begin(cast, now, **body) -> Loop:
    return start(caller(cast.alice), cast.falcon, now, **body)


def row_of(loop: Loop) -> live.Row:
    return rows_of(loop.agent, listing.named(loop.agent, [loop.pk]))[0]


@contextmanager
def drawn():
    """The names of the templates that are rendered meanwhile."""
    names: list[str] = []

    def note(template, **_):
        names.append(template.name)

    template_rendered.connect(note)
    try:
        yield names
    finally:
        template_rendered.disconnect(note)


# -- rows -----------------------------------------------------------------------------------------
def test_a_version_is_rendered_once_for_all_who_watch(cast, now):
    row = row_of(begin(cast, now))
    with drawn() as names:
        seen = {live.article(row, viewer, now) for viewer in ("bob", "carol", "eve", "bob")}
    assert len(seen) == 1 and names.count("loops/_loop.html") == 1


def test_a_new_version_is_rendered_anew(cast, now):
    loop = begin(cast, now)
    first = live.article(row_of(loop), "bob", now)
    claim(cast.falcon, now)
    second = live.article(row_of(loop), "bob", now)
    versions = [int(re.search(r'data-version="(\d+)"', html)[1]) for html in (first, second)]
    assert versions[1] > versions[0] and 'data-status="running"' in second


def test_only_the_person_who_stopped_it_reads_you(cast, now):
    loop = begin(cast, now)
    engine.request_stop(caller(cast.bob), loop.pk, now)
    row = row_of(loop)
    assert "Stopped by you" in live.article(row, "bob", now)
    assert "Stopped by bob" in live.article(row, "alice", now)
    assert "Stopped by bob" in live.article(row, "carol", now)


def test_the_words_of_an_active_row_follow_the_clock(cast, now):
    loop = begin(cast, now)
    claim(cast.falcon, now)
    row = row_of(loop)
    assert "started <time" in live.article(row, "", now)
    later = live.article(row, "", now + timedelta(minutes=2))
    assert "2 min ago" in later


def test_a_closed_row_has_an_empty_body_and_an_opened_one_all_of_it(cast, now):
    row = row_of(begin(cast, now))
    assert "data-unloaded hidden></div>" in live.article(row, "", now)
    assert "As stored" in live.article(row, "", now, opened=True)


def test_the_name_of_a_loop_is_the_first_line_that_says_something(cast, now):
    assert row_of(begin(cast, now, message="\n\n  Fix it  \nthen more")).name == "Fix it"
    assert row_of(begin(cast, now, message="x" * 500)).name == "x" * 120 + "…"


def test_a_waiting_loop_knows_its_place_in_the_line(cast, now):
    kestrel = make_agent(cast.alice, "kestrel", max_parallel_tasks=1)
    first, second, third = (start(caller(cast.alice), kestrel, now) for _ in range(3))
    claim(kestrel, now)
    assert [row_of(loop).facts.place for loop in (first, second, third)] == [None, 1, 2]


# -- strip ----------------------------------------------------------------------------------------
def test_the_strip_has_a_tick_per_allowed_run():
    html = strip(("ran", "bad", "hit", "now"), 6)
    assert re.findall(r'class="(ran|bad|hit|now|left)"', html) == ["ran", "bad", "hit", "now", "left"]
    assert html.count("M") == 6 and 'viewBox="0 0 197 14"' in html


def test_the_longest_strip_stays_small():
    html = strip(("ran",) * 63, 100)
    assert 'viewBox="0 0 997 14"' in html and len(html) < 3_000


def test_a_failed_run_and_a_match_are_told_apart_in_the_strip(cast, now):
    loop = begin(cast, now, stop_signal="END", on_failure="continue")
    play(cast.falcon, now, bad(), ok("END"))
    assert row_of(loop).ticks == ("bad", "hit")


# -- news -----------------------------------------------------------------------------------------
def watching(cast, **more) -> Watch:
    return Watch(cast.falcon, "alice", **more)


def test_only_what_is_shown_and_marked_is_sent(cast, now):
    first, second, third = (begin(cast, now) for _ in range(3))
    html, rows = news(watching(cast, shown={first.pk, second.pk}), {second.pk, third.pk}, now)
    assert [row.loop.pk for row in rows] == [second.pk]
    assert html.startswith('<article hx-swap-oob="morph" class="loop"') and html.count("hx-swap-oob") == 1


def test_everything_is_sent_when_everything_may_have_changed(cast, now):
    loops = {begin(cast, now).pk for _ in range(3)}
    _, rows = news(watching(cast, shown=loops), None, now)
    assert {row.loop.pk for row in rows} == loops


def test_a_new_loop_comes_on_top_where_the_list_is_whole(cast, now):
    watch = watching(cast, newest=begin(cast, now).pk)
    added = [begin(cast, now).pk, begin(cast, now).pk]
    html, _ = news(watch, set(added), now)
    on_top = r'<li hx-swap-oob="afterbegin:#loops">\s*<article class="loop"\s+id="loop-(\w+)"'
    assert re.findall(on_top, html) == added
    assert watch.shown == set(added) and watch.newest == added[1]
    assert 'hx-swap-oob="morph"' in news(watch, set(added), now)[0]


def test_a_filtered_list_does_not_grow(cast, now):
    assert news(watching(cast, newest=None), {begin(cast, now).pk}, now) == ("", [])


def test_an_empty_list_grows_from_nothing(cast, now):
    loop = begin(cast, now)
    assert loop.pk in news(watching(cast, newest=""), {loop.pk}, now)[0]


def test_no_loop_of_another_agent_is_sent_whatever_the_page_asks_for(cast, now):
    foreign = start(caller(cast.carol), make_agent(cast.carol, "kestrel"), now)
    watch = watching(cast, shown={foreign.pk}, opened={foreign.pk}, newest="")
    assert news(watch, None, now) == ("", [])


def test_an_opened_row_is_sent_with_its_body(cast, now):
    loop = begin(cast, now)
    html, _ = news(watching(cast, shown={loop.pk}, opened={loop.pk}), {loop.pk}, now)
    assert "As stored" in html


@pytest.mark.parametrize(
    "view", [None, [], "x", {"shown": "abc", "open": [1, {}, "a\0"], "newest": 5}, {"newest": "\0"}]
)
def test_a_page_that_says_nonsense_shows_nothing(cast, view):
    watch = watching(cast)
    watch.look(view)
    assert (watch.shown, watch.opened, watch.newest) == (set(), set(), None)


def test_one_page_can_ask_only_for_so_many(cast):
    watch = watching(cast)
    watch.look({"shown": [str(number) for number in range(10_000)]})
    assert len(watch.shown) == live.MOST_WATCHED


def test_a_burst_of_turning_points_is_one_sentence_more():
    assert live.spoken(["a.", "b."]).endswith(">a. b.</div>")
    assert live.spoken(["a.", "b.", "c.", "d.", "e."]).endswith(">a. b. c. 2 more changes.</div>")
    assert "&lt;b&gt;" in live.spoken(["<b>"])


def test_the_store_keeps_the_last_results_and_no_more():
    kept, made = Kept(6), []

    def value(text: str) -> str:
        return kept.get(text, lambda: made.append(text) or text)

    asked = ["aaa", "bbb", "aaa", "ccc", "aaa", "bbb"]
    assert [value(text) for text in asked] == asked
    assert made == ["aaa", "bbb", "ccc", "bbb"]
    assert value("longer than all that is kept") and value("a") == "a"


def test_the_store_is_safe_between_threads():
    kept = Kept(100)
    seen: list[str] = []

    def use() -> None:
        seen.extend(kept.get(number % 70, lambda number=number: f"{number % 70:02}") for number in range(700))

    threads = [Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 2800 and set(seen) == {f"{number:02}" for number in range(70)}


# -- the last line ------------------------------------------------------------------------------------
@pytest.fixture
def turn(cast, now) -> Execution:
    """A running turn of this host, with its run folder."""
    begin(cast, now)
    found = claim(cast.falcon, now, f"{owner.host()}/boot/1/1").execution
    run_folder(found.pk, found.attempt).mkdir(parents=True)
    return found


def says(turn: Execution, name: str, data: bytes) -> None:
    with open(run_folder(turn.pk, turn.attempt) / name, "ab") as spool:
        spool.write(data)


def test_the_last_line_is_what_was_printed_last(turn):
    assert last_line(turn.pk) == ""
    says(turn, "err", b"first\nsecond\n\n")
    assert last_line(turn.pk) == "second"
    says(turn, "out", b"on stdout")
    assert last_line(turn.pk) == "on stdout"


def test_the_last_line_holds_no_key(turn):
    says(turn, "out", b"my key is " + keys.turn_key(turn.pk, turn.attempt).encode() + b"\n")
    assert last_line(turn.pk) == "my key is [masked]"


def test_the_last_line_is_proper_text_whatever_was_printed(turn):
    says(turn, "out", b"\xff\xfe\x00 \x1b[31mred\x1b[0m 10%\r 50%\r\xf0\x9f\x98\x80 90%")
    assert last_line(turn.pk) == "😀 90%"
    says(turn, "out", b"\n\xffbroken\x00\x1b[2Jend" + b"x" * 10_000)
    assert len(last_line(turn.pk)) == LONGEST and "\x00" not in last_line(turn.pk)


def test_the_last_line_of_a_turn_elsewhere_or_over_is_nothing(turn):
    says(turn, "out", b"hello")
    Execution.objects.filter(pk=turn.pk).update(owner="otherhost/boot/1/1")
    assert last_line(turn.pk) == ""
    assert last_line("exec_nothere") == ""


def test_an_opened_row_shows_the_last_line_of_its_run(cast, turn, now):
    says(turn, "out", b"$ pytest -x <b>\n")
    loop = Loop.objects.get()
    assert "<code>$ pytest -x &lt;b&gt;</code>" in live.article(row_of(loop), "", now, opened=True)
    part = live.now_part(cast.falcon, loop.pk, 1, turn.pk)
    assert part.startswith(f'<p hx-swap-oob="morph" class="now-line" id="loop-{loop.pk}-now"')
