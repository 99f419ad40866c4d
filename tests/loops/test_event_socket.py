"""`/ws/events` over a real Redis: who gets in, what is heard and in which order, and when it is closed."""

import asyncio
import json
from datetime import timedelta

import pytest
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.db import OperationalError
from django.urls import path
from django.utils import timezone

from agents import hints, keys
from agents.models import Audit, Key, Share
from agents.sockets import Door
from loops import engine, event_reader
from loops.event_socket import EventsConsumer
from tests.conftest import caller, make_agent
from tests.ledger import bad, ok, play, start

pytestmark = pytest.mark.django_db(transaction=True)
application = Door(URLRouter([path("ws/events", EventsConsumer.as_asgi())]))
sync = database_sync_to_async


@sync
def key_of(user, agent=None) -> str:
    return keys.issue(user, name="test", agent=agent)[1]


def socket(key: str | None = None, query: str = "", headers: dict | None = None) -> WebsocketCommunicator:
    sent = {"host": "testserver", **(headers or {})}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    return WebsocketCommunicator(
        application, f"/ws/events{query}", headers=[(name.encode(), value.encode()) for name, value in sent.items()]
    )


async def opened(key: str, query: str = "") -> WebsocketCommunicator:
    found = socket(key, query)
    assert (await found.connect(timeout=5))[0]
    return found


async def heard(found: WebsocketCommunicator, last: str = "loop_completed") -> list[dict]:
    events = []
    while not events or events[-1]["type"] != last:
        events.append(json.loads(await found.receive_from(timeout=5)))
    return events


@sync
def run(agent, *results, **body):
    loop = start(caller(agent.owner), agent, timezone.now(), **body)
    play(agent, timezone.now(), *results, step=timedelta(0))
    return loop.pk


async def test_a_loop_is_told_in_order_with_its_versions(cast):
    listener = await opened(await key_of(cast.alice))
    loop_id = await run(cast.falcon, ok("secret answer"), bad("no disk"), max_runs=2, on_failure="continue")
    events = await heard(listener)
    runs = ["loop_run_started", "loop_run_completed", "loop_run_started", "loop_run_failed"]
    assert [event["type"] for event in events] == ["loop_started", *runs, "loop_completed"]
    assert [event["version"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert {event["loop_id"] for event in events} == {loop_id} and "secret answer" not in str(events)
    assert events[4]["error"] == "no disk" and events[5]["status"] == "completed_with_errors"
    await listener.disconnect()


async def test_a_doubled_or_old_hint_tells_nothing_twice(cast):
    listener = await opened(await key_of(cast.alice))
    loop_id = await run(cast.falcon, ok(), max_runs=1)
    await heard(listener)
    for version in (1, 9):
        hints.publish({"what": "loop", "id": loop_id, "agent": cast.falcon.pk, "version": version})
    hints.publish(hints.EVERYTHING)
    assert await listener.receive_nothing(timeout=0.5)
    await listener.disconnect()


async def test_a_lost_hint_costs_no_event(cast, monkeypatch):
    listener = await opened(await key_of(cast.alice))
    with monkeypatch.context() as silence:
        silence.setattr(hints, "publish", lambda hint: None)
        await run(cast.falcon, ok(), max_runs=1)
    hints.publish(hints.EVERYTHING)  # what the hub says after a gap
    assert len(await heard(listener)) == 4
    await listener.disconnect()


async def test_everybody_hears_only_what_they_may_see(cast):
    other = await sync(make_agent)(cast.carol, "magpie")
    listeners = {name: await opened(await key_of(getattr(cast, name))) for name in ("alice", "bob", "carol", "root")}
    await run(cast.falcon, ok(), max_runs=1)
    await run(other, ok(), max_runs=1)
    names = {"alice": ["falcon"], "bob": ["falcon"], "carol": ["magpie"], "root": ["falcon", "magpie"]}
    for who, listener in listeners.items():
        for name in names[who]:
            assert {event["agent_name"] for event in await heard(listener)} == {name}
        assert await listener.receive_nothing(timeout=0.2)
        await listener.disconnect()


async def test_a_client_a_stranger_and_a_bad_key_stay_outside(cast):
    carol = await key_of(cast.carol)
    assert not (await socket(await key_of(cast.dora)).connect())[0]
    assert not (await socket(carol, "?agent=falcon").connect())[0]
    assert not (await socket(carol, "?agent=nobody").connect())[0]
    assert not (await socket("trinity_wrong").connect())[0]
    assert not (await socket().connect())[0]
    refusals = Audit.objects.filter(action="events.listen", verdict="refused")
    assert await sync(lambda: set(refusals.values_list("actor", flat=True)))() == {"dora", "carol"}


async def test_a_token_in_the_address_is_no_credential_even_beside_a_good_key(cast):
    key = await key_of(cast.alice)
    assert not (await socket(None, f"?token={key}").connect())[0]
    assert not (await socket(key, f"?token={key}").connect())[0]


async def test_a_session_counts_only_from_the_own_origin(cast, client):
    await sync(client.force_login)(cast.alice)
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    own = socket(headers={"cookie": cookie, "origin": "http://testserver"})
    assert (await own.connect())[0]
    await own.disconnect()
    for origin in ("http://evil.example", "null", "http://testserver.evil.example", "http://testserver:81", ""):
        assert not (await socket(headers={"cookie": cookie, "origin": origin}).connect())[0], origin


async def test_a_removed_share_closes_the_socket_and_nothing_more_is_heard(cast):
    listener = await opened(await key_of(cast.bob), "?agent=falcon")
    await sync(Share.objects.all().delete)()
    hints.publish({"what": "access"})
    assert await closed(listener) == 4403


async def test_a_removed_share_silences_an_open_socket_at_once(cast):
    listener = await opened(await key_of(cast.bob))
    await sync(Share.objects.all().delete)()
    hints.publish({"what": "access"})
    await run(cast.falcon, ok(), max_runs=1)
    assert await listener.receive_nothing(timeout=0.5)
    await listener.disconnect()


async def test_a_dead_key_closes_its_socket_and_no_other(cast):
    dead, alive = await opened(await key_of(cast.alice)), await opened(await key_of(cast.alice))
    key = await sync(lambda: Key.objects.order_by("id").first())()
    await sync(keys.revoke)(key, timezone.now())
    hints.publish({"what": "access"})
    assert await closed(dead) == 4401
    await run(cast.falcon, ok(), max_runs=1)
    assert await heard(alive)
    await alive.disconnect()


async def test_the_end_of_the_session_closes_its_socket(cast, client):
    await sync(client.force_login)(cast.alice)
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    listener = socket(headers={"cookie": cookie, "origin": "http://testserver"})
    assert (await listener.connect())[0]
    await sync(client.logout)()
    hints.publish({"what": "access"})
    assert await closed(listener) == 4401


@pytest.mark.parametrize("by", ["key", "session"])
async def test_a_person_who_is_disabled_without_a_word_is_out_within_seconds(cast, client, by):
    if by == "key":
        listener = await opened(await key_of(cast.bob))
    else:
        await sync(client.force_login)(cast.bob)
        cookie = f"sessionid={client.cookies['sessionid'].value}"
        listener = socket(headers={"cookie": cookie, "origin": "http://testserver"})
        assert (await listener.connect())[0]
    cast.bob.is_active = False
    await sync(cast.bob.save)()
    assert await closed(listener) == 4401


async def test_a_loop_that_was_forgotten_is_not_told_of_again(cast, monkeypatch):
    monkeypatch.setattr(event_reader, "MOST_REMEMBERED", 1)
    heron = await sync(make_agent)(cast.alice, "heron")
    listener = await opened(await key_of(cast.alice))
    first = await run(cast.falcon, ok("a"), max_runs=5, delay_seconds=60)
    told = await heard(listener, "loop_waiting")
    other = await run(heron, ok(), max_runs=1)
    told += await heard(listener)
    hints.publish({"what": "loop", "id": first, "agent": cast.falcon.pk, "version": 9})
    await sync(engine.request_stop)(caller(cast.alice), first, timezone.now())
    while told[-1]["loop_id"] != first or told[-1]["type"] != "loop_completed":
        told.append(json.loads(await listener.receive_from(timeout=5)))
    for loop_id in (first, other):
        versions = [event["version"] for event in told if event["loop_id"] == loop_id]
        assert versions == sorted(set(versions))
    await listener.disconnect()


async def test_a_hiccup_of_the_database_leaves_no_deaf_socket(cast, monkeypatch):
    listener = await opened(await key_of(cast.alice))
    looks, standing = [], EventsConsumer._standing

    def hiccup(self):
        looks.append(1)
        if len(looks) == 1:
            raise OperationalError("gone for a moment")
        return standing(self)

    monkeypatch.setattr(EventsConsumer, "_standing", hiccup)
    hints.publish({"what": "access"})
    await run(cast.falcon, ok(), max_runs=1)
    assert len(await heard(listener)) == 4 and len(looks) >= 2
    await listener.disconnect()


async def test_what_a_listener_says_is_ignored(cast):
    listener = await opened(await key_of(cast.alice))
    await listener.send_to("{not json")
    await run(cast.falcon, ok(), max_runs=1)
    assert await heard(listener)
    await listener.disconnect()


async def test_a_stop_is_told_with_who_asked(cast):
    listener = await opened(await key_of(cast.alice))
    loop_id = await run(cast.falcon)
    await sync(engine.request_stop)(caller(cast.bob), loop_id, timezone.now())
    events = await heard(listener, "loop_stop_requested")
    assert [event["type"] for event in events] == ["loop_started", "loop_run_started", "loop_stop_requested"]
    assert events[-1]["stopped_by"] == "bob"
    await listener.disconnect()


async def closed(listener: WebsocketCommunicator) -> int:
    message = await listener.receive_output(timeout=8)
    assert message["type"] == "websocket.close", message
    await asyncio.sleep(0)
    return message["code"]
