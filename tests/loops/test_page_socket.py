"""The socket of the loops' pages over a real Redis: who gets in, what is sent, how little, and when it is closed."""

import asyncio
import json
import re
from contextlib import asynccontextmanager

import pytest
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.test import Client
from django.urls import path
from django.utils import timezone

from agents import hints, keys, life, owner
from agents.models import Audit, Share
from agents.sockets import Door
from agents.worker import run_folder
from loops import engine
from loops.page_socket import LoopsPageConsumer, sentence
from tests.conftest import caller, make_agent
from tests.ledger import OWNER, bad, claim, ok, play, start

pytestmark = pytest.mark.django_db(transaction=True)
application = Door(URLRouter([path("ws/agents/<str:name>/loops/", LoopsPageConsumer.as_asgi())]))
sync = database_sync_to_async
WHOLE = {"shown": [], "open": [], "newest": ""}


class Page:
    """A page in a browser: its socket, and what has come through it."""

    def __init__(self, line: WebsocketCommunicator) -> None:
        self.line = line
        self.seen: list[str] = []

    async def shows(self, **view) -> None:
        await self.line.send_to(json.dumps({**WHOLE, **view}))

    async def sees(self, pattern: str) -> str:
        """The first message, from now on, that has this in it."""
        while True:
            message = await self.line.receive_from(timeout=5)
            self.seen.append(message)
            if re.search(pattern, message, re.S):
                return message

    async def closed(self) -> int:
        """The code that the server closes with."""
        while True:
            event = await self.line.receive_output(timeout=15)
            if event["type"] == "websocket.close":
                return event["code"]
            self.seen.append(event["text"])


@sync
def cookie_of(user) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


async def line(cookie: str = "", address: str = "/ws/agents/falcon/loops/", **headers: str) -> WebsocketCommunicator:
    sent = {"host": "testserver", "origin": "http://testserver", "cookie": f"sessionid={cookie}", **headers}
    return WebsocketCommunicator(
        application, address, headers=[(name.encode(), value.encode()) for name, value in sent.items()]
    )


@asynccontextmanager
async def opened(user, address: str = "/ws/agents/falcon/loops/", cookie: str = ""):
    found = await line(cookie or await cookie_of(user), address)
    assert (await found.connect(timeout=5))[0]
    try:
        yield Page(found)
    finally:
        await found.disconnect()


@sync
def begin(cast, by=None, agent=None, **body):
    return start(caller(by or cast.alice), agent or cast.falcon, timezone.now(), **body)


@sync
def run(cast, *results):
    return play(cast.falcon, timezone.now(), *results)


# -- who gets in ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("who", "gets_in"), [("alice", True), ("bob", True), ("root", True), ("carol", False), ("dora", False)]
)
async def test_the_door_opens_for_whoever_may_see_the_page(cast, who, gets_in):
    found = await line(await cookie_of(getattr(cast, who)))
    assert (await found.connect(timeout=5))[0] is gets_in
    await found.disconnect()
    assert await sync(Audit.objects.filter(verdict="refused", through="socket").count)() == (0 if gets_in else 1)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://testserver.evil.example", "http://testserver:8001"]
)
async def test_another_site_cannot_use_the_persons_session(cast, origin):
    found = await line(await cookie_of(cast.alice), origin=origin)
    assert not (await found.connect(timeout=5))[0]


async def test_without_a_session_or_with_a_key_alone_nothing_opens(cast):
    assert not (await (await line("nonsense")).connect(timeout=5))[0]
    secret = await sync(lambda: keys.issue(cast.alice, name="test")[1])()
    assert not (await (await line(authorization=f"Bearer {secret}")).connect(timeout=5))[0]


async def test_an_unknown_agent_or_loop_has_no_page(cast):
    cookie = await cookie_of(cast.alice)
    foreign = await begin(cast, cast.carol, await sync(make_agent)(cast.carol, "kestrel"))
    for address in (
        "/ws/agents/nobody/loops/",
        "/ws/agents/falcon/loops/?loop=loop_nothere",
        f"/ws/agents/falcon/loops/?loop={foreign.pk}",
        f"/ws/agents/kestrel/loops/?loop={foreign.pk}",
    ):
        assert not (await (await line(cookie, address)).connect(timeout=5))[0], address


async def test_who_started_a_loop_follows_it_alone_after_the_share_is_gone(cast):
    loop, other = await begin(cast, cast.bob), await begin(cast)
    await sync(Share.objects.all().delete)()
    async with opened(cast.bob, f"/ws/agents/falcon/loops/?loop={loop.pk}") as page:
        await page.shows(shown=[loop.pk, other.pk], open=[other.pk], state=True)
        html = await page.sees("article")
        assert loop.pk in html and other.pk not in html


# -- what is sent -----------------------------------------------------------------------------------
async def test_a_page_that_asks_gets_everything_it_shows(cast):
    loop = await begin(cast)
    async with opened(cast.alice) as page:
        await page.shows(shown=[loop.pk], open=[loop.pk], newest=loop.pk, state=True)
        html = await page.sees("article")
        for part in ("loops-active", "agent-facts", "agent-life", "run-loop-box", "As stored"):
            assert part in html


async def test_each_run_arrives_and_versions_never_fall(cast):
    loop = await begin(cast, max_runs=3, no_progress_threshold=0)
    async with opened(cast.alice) as page:
        await page.shows(shown=[loop.pk], newest=loop.pk)
        await run(cast, ok(), ok(), ok())
        await page.sees('data-status="completed"')
        versions = [int(version) for message in page.seen for version in re.findall(r'data-version="(\d+)"', message)]
        assert versions == sorted(versions)


async def test_a_new_loop_comes_on_top_and_the_count_with_it(cast):
    async with opened(cast.alice) as page:
        await page.shows()
        loop = await begin(cast)
        html = await page.sees("afterbegin:#loops")
        assert loop.pk in html and re.search(r'id="loops-active">1<', html)


async def test_a_filtered_page_gets_the_count_but_no_new_row(cast):
    async with opened(cast.alice) as page:
        await page.shows(newest=None)
        await begin(cast)
        assert "article" not in await page.sees('id="loops-active">1<')


async def test_an_opened_row_comes_with_its_body_and_a_closed_one_without(cast):
    loop = await begin(cast, max_runs=9, no_progress_threshold=0)
    async with opened(cast.alice) as page:
        await page.shows(shown=[loop.pk], newest=loop.pk)
        await run(cast, ok())
        assert "data-unloaded" in await page.sees("article")
        await page.shows(shown=[loop.pk], open=[loop.pk], newest=loop.pk)
        assert f'id="run-{loop.pk}-1"' in await page.sees("As stored")


async def test_a_burst_of_hints_is_a_handful_of_messages(cast):
    loop = await begin(cast)
    async with opened(cast.alice) as page:
        await page.shows(shown=[loop.pk], newest=loop.pk, state=True)
        await page.sees("article")
        for version in range(300):
            hints.publish({"what": "loop", "id": loop.pk, "agent": cast.falcon.pk, "version": version})
        await asyncio.sleep(0.5)
        count = 0
        while not await page.line.receive_nothing(timeout=0.3):
            await page.line.receive_from()
            count += 1
        assert 1 <= count <= 12


async def test_what_other_agents_do_is_not_heard(cast):
    kestrel = await sync(make_agent)(cast.carol, "kestrel")
    async with opened(cast.alice) as page:
        await page.shows()
        await begin(cast, cast.carol, kestrel)
        assert await page.line.receive_nothing(timeout=0.5)


async def test_the_output_of_an_opened_run_is_followed(cast):
    loop = await begin(cast)
    turn = (await sync(claim)(cast.falcon, timezone.now(), f"{owner.host()}/boot/1/1")).execution
    folder = run_folder(turn.pk, turn.attempt)
    folder.mkdir(parents=True)
    async with opened(cast.alice) as page:
        await page.shows(shown=[loop.pk], open=[loop.pk], newest=loop.pk)
        assert "has printed nothing yet" in await page.sees("As stored")
        (folder / "out").write_text("half way\n")
        hints.publish({"what": "output", "id": turn.pk, "size": 9})
        assert "article" not in await page.sees("<code>half way</code>")


async def test_the_page_is_told_when_the_agent_stops(cast):
    async with opened(cast.bob) as page:
        await page.shows()
        await sync(life.stop)(cast.falcon, caller(cast.alice), timezone.now())
        html = await page.sees("run-loop-box")
        assert "Start the agent first" in html and "Stop agent" not in html


async def test_after_a_gap_everything_is_looked_at_again(cast):
    loop = await begin(cast)
    async with opened(cast.alice) as page:
        await page.shows(shown=[loop.pk], newest=loop.pk)
        hints.publish(hints.EVERYTHING)
        await page.sees(f'id="loop-{loop.pk}"')


@pytest.mark.parametrize("nonsense", ["{", "[]", "[" * 90_000, "null", '{"shown": {"a": 1}}', '"x"', "9" * 200_000])
async def test_nonsense_from_a_page_does_not_shut_the_line(cast, nonsense):
    async with opened(cast.alice) as page:
        await page.line.send_to(nonsense)
        await page.line.send_input({"type": "websocket.receive", "bytes": b"\x00"})
        await page.shows(state=True)
        await page.sees("agent-facts")


# -- what is said aloud -------------------------------------------------------------------------------
async def test_turning_points_are_said_once_and_nothing_else_is(cast):
    loop = await begin(cast, max_runs=4, on_failure="continue", no_progress_threshold=0)
    async with opened(cast.bob) as page:
        await page.shows(shown=[loop.pk], newest=loop.pk)
        await run(cast, ok(), bad(), ok(), ok())
        html = await page.sees(" ended: ")
        said = re.findall(r'id="announcer"[^>]*>([^<]*)<', "".join(page.seen))
        name = f"Loop {loop.pk[-6:]}"
        assert " ".join(said) == f"{name}: run 2 failed. {name} ended: Done, with errors, reached max runs."
        assert 'role="status"' in html


def test_who_pressed_stop_is_not_told_of_it_again():
    event = {"type": "loop_stop_requested", "loop_id": "loop_abcdef", "stopped_by": "bob"}
    assert sentence(event, "bob") == "" and sentence(event, "alice") == "Loop abcdef: stop accepted."
    assert sentence({"type": "loop_waiting", "loop_id": "loop_abcdef"}, "alice") == ""


# -- when it is closed ----------------------------------------------------------------------------------
async def test_a_share_that_is_removed_closes_the_line(cast):
    async with opened(cast.bob) as page:
        await page.shows()

        @sync
        def remove() -> None:
            Share.objects.all().delete()
            hints.say_access_changed()

        await remove()
        assert await page.closed() == 4403


async def test_signing_out_closes_this_session_and_no_other(cast):
    here, there = await cookie_of(cast.alice), await cookie_of(cast.alice)
    async with opened(cast.alice, cookie=here) as page, opened(cast.alice, cookie=there) as other:

        @sync
        def sign_out() -> None:
            client = Client()
            client.cookies[settings.SESSION_COOKIE_NAME] = here
            assert client.post("/logout/").status_code == 302

        await sign_out()
        assert await page.closed() == 4401
        await other.shows(state=True)
        await other.sees("agent-facts")


async def test_a_person_who_is_disabled_without_a_word_is_out_within_seconds(cast):
    async with opened(cast.bob) as page:
        cast.bob.is_active = False
        await sync(cast.bob.save)()
        assert await page.closed() == 4401


async def test_a_deleted_agent_closes_the_list(cast):
    async with opened(cast.alice) as page:
        await page.shows()
        await sync(life.delete)(cast.falcon, caller(cast.alice), timezone.now())
        assert await page.closed() == 4403


async def test_nothing_is_sent_once_access_is_gone(cast):
    loop = await begin(cast)
    async with opened(cast.bob) as page:
        await page.shows(shown=[loop.pk], newest=loop.pk)

        @sync
        def remove_and_work() -> None:
            Share.objects.all().delete()
            hints.say_access_changed()
            claim(cast.falcon, timezone.now(), OWNER)
            engine.request_stop(caller(cast.alice), loop.pk, timezone.now())

        await remove_and_work()
        assert await page.closed() == 4403
        assert not any("article" in message for message in page.seen)


async def test_a_silent_line_is_shown_to_be_alive(cast):
    async with opened(cast.alice) as page:
        await page.shows()
        while (message := await page.line.receive_from(timeout=15)) != "beat":
            assert message.startswith("<")
