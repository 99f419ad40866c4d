"""Signing in with a wrong password: so many times, per name and address, whichever web process is asked."""

from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.db import connection
from django.test import Client, RequestFactory
from django.utils import timezone

from agents import signing_in
from agents.models import Audit, FailedSignIn
from agents.refusals import Refused
from tests.conftest import PASSWORD

WRONG = {"username": "alice", "password": "wrong"}
RIGHT = {"username": "alice", "password": PASSWORD}


def fail(times: int, path: str = "/login/", address: str = "127.0.0.1", **fields: str) -> list[int]:
    client = Client(REMOTE_ADDR=address)
    return [client.post(path, {**WRONG, **fields}).status_code for _ in range(times)]


def age_all(seconds: float) -> None:
    for failure in FailedSignIn.objects.all():
        failure.at -= timedelta(seconds=seconds)
        failure.save()


def test_ten_wrong_passwords_are_answered_and_the_eleventh_is_429(cast):
    assert fail(10) == [200] * 10
    answer = Client().post("/login/", WRONG)
    html = answer.content.decode()
    assert answer.status_code == 429 and 590 <= int(answer["Retry-After"]) <= 600
    assert f"Request was throttled. Expected available in {answer['Retry-After']} seconds." in html
    assert 'role="alert"' in html and 'value="alice"' in html and "wrong" not in html


def test_the_right_password_is_not_looked_at_while_the_limit_is_used_up(cast):
    fail(10)
    client = Client()
    assert client.post("/login/", RIGHT).status_code == 429
    assert client.get("/").status_code == 302
    assert FailedSignIn.objects.count() == 10


def test_being_refused_does_not_make_the_wait_longer(cast):
    fail(10)
    age_all(500)
    fail(3)
    age_all(100)
    assert Client().post("/login/", RIGHT).status_code == 302


def test_the_words_are_those_of_the_api(cast):
    fail(10)
    api = Client().post("/api/token", WRONG, "application/json")
    page = Client().post("/login/", WRONG)
    assert api.status_code == page.status_code == 429
    assert api.json()["detail"].replace(api["Retry-After"], page["Retry-After"]) in page.content.decode()


def test_nine_failures_and_a_right_password_leave_one_failure_to_make(cast):
    fail(9)
    assert Client().post("/login/", RIGHT).status_code == 302
    assert fail(2) == [200, 429]


def test_any_number_of_right_passwords_counts_for_nothing(cast):
    assert [Client().post("/login/", RIGHT).status_code for _ in range(12)] == [302] * 12
    assert not FailedSignIn.objects.exists()


def test_other_names_and_other_addresses_are_counted_by_themselves(cast):
    fail(10)
    assert fail(1, username="bob") == [200]
    assert fail(1, address="10.0.0.9") == [200]
    assert fail(1) == [429]


def test_a_name_that_nobody_has_is_counted_alike(db):
    assert fail(11, username="nobody") == [200] * 10 + [429]


def test_a_failure_counts_for_ten_minutes_to_the_second(cast, now):
    who = signing_in.digest("127.0.0.1", "alice")
    for number in range(10):
        signing_in.attempt(who, now + timedelta(seconds=number))
    with pytest.raises(Refused) as refused:
        signing_in.attempt(who, now + timedelta(seconds=599.5))
    assert refused.value.retry_after == 1 and refused.value.detail.endswith("in 1 second.")
    signing_in.attempt(who, now + timedelta(seconds=600))
    with pytest.raises(Refused):
        signing_in.attempt(who, now + timedelta(seconds=600.5))


def test_the_limit_is_a_setting(cast, settings):
    settings.TRINITY_SIGN_IN_FAILURES, settings.TRINITY_SIGN_IN_SECONDS = 1, 30
    assert fail(2) == [200, 429]
    assert 1 <= int(Client().post("/login/", WRONG)["Retry-After"]) <= 30


def test_failures_that_count_no_more_are_not_kept(cast):
    fail(3, username="bob")
    age_all(601)
    fail(1)
    assert FailedSignIn.objects.count() == 1


def test_neither_name_nor_password_nor_address_is_kept(cast):
    fail(1)
    kept = str(list(FailedSignIn.objects.values()))
    assert not any(word in kept for word in ("alice", "wrong", "127.0.0.1"))


@pytest.mark.parametrize("fields", [{"username": ""}, {"password": ""}, {"username": "a\0b"}])
def test_a_form_that_is_not_filled_in_is_no_attempt(db, fields):
    assert fail(1, **fields) == [200] and not FailedSignIn.objects.exists()


def test_the_admins_own_sign_in_has_the_same_limit_and_the_same_count(cast):
    admin = Client()
    assert fail(5) == [200] * 5
    assert fail(5, "/admin/login/") == [200] * 5
    assert fail(1) == [429]
    answer = admin.post("/admin/login/", RIGHT)
    assert "Request was throttled." in answer.content.decode() and admin.get("/").status_code == 302
    assert admin.post("/admin/login/", {"username": "root", "password": PASSWORD}).status_code == 302


@pytest.mark.parametrize(
    ("proxies", "header", "address"),
    [
        (0, "6.6.6.6", "10.0.0.1"),
        (1, "", "10.0.0.1"),
        (1, "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        (2, "6.6.6.6, 1.2.3.4, 10.0.0.7", "1.2.3.4"),
        (2, "1.2.3.4", "1.2.3.4"),
    ],
)
def test_the_address_is_what_our_own_proxies_have_seen_and_nothing_that_a_caller_adds(
    settings, proxies, header, address
):
    settings.TRINITY_PROXIES = proxies
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", headers={"X-Forwarded-For": header} if header else {})
    assert signing_in.address_of(request) == address


def test_another_forwarded_address_each_time_does_not_get_round_the_limit(cast):
    statuses = [
        Client().post("/login/", WRONG, headers={"X-Forwarded-For": f"6.6.6.{number}"}).status_code
        for number in range(11)
    ]
    assert statuses[-1] == 429


def test_redis_away_neither_locks_out_nor_lifts_the_limit(cast, settings, monkeypatch):
    monkeypatch.setitem(settings.RQ_QUEUES["turns"], "URL", "unix:///nowhere/redis.sock")
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": ["unix:///nowhere/redis.sock"]},
        }
    }
    assert fail(9) == [200] * 9
    assert Client().post("/login/", RIGHT).status_code == 302
    assert fail(2) == [200, 429]


@pytest.mark.django_db(transaction=True)
def test_attempts_of_the_same_moment_do_not_pass_the_limit_together(cast):
    who, now, together = signing_in.digest("127.0.0.1", "alice"), timezone.now(), Barrier(8)
    for _ in range(6):
        signing_in.attempt(who, now)
    refused = []

    def attempt() -> None:
        try:
            together.wait(10)
            signing_in.attempt(who, now)
        except Refused as refusal:
            refused.append(refusal.status)
        finally:
            connection.close()

    threads = [Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert FailedSignIn.objects.count() == 14 - len(refused) <= 10 and set(refused) == {429}


def test_page_and_api_count_together(cast):
    assert fail(5) == [200] * 5
    api = [Client().post("/api/token", WRONG, "application/json").status_code for _ in range(6)]
    assert api == [401] * 5 + [429] and fail(1) == [429]


def test_a_right_password_for_a_token_counts_for_nothing(cast):
    assert Client().post("/api/token", RIGHT, "application/json").status_code == 200
    assert not FailedSignIn.objects.exists()


def test_every_sign_in_and_every_wrong_password_is_on_the_trail(cast):
    fail(1)
    Client().post("/api/token", WRONG, "application/json")
    Client().post("/login/", RIGHT)
    rows = Audit.objects.order_by("pk").values_list("actor", "through", "action", "verdict")
    assert list(rows) == [
        ("alice", "page", "sign-in", "refused"),
        ("alice", "rest", "sign-in", "refused"),
        ("alice", "page", "sign-in", "allowed"),
    ]


def test_a_password_typed_as_a_name_is_not_on_the_trail(cast):
    fail(1, username=PASSWORD)
    assert PASSWORD not in str(list(Audit.objects.values())) and Audit.objects.get().actor == signing_in.NOBODY


def test_throttled_guesses_cannot_fill_the_trail(cast):
    fail(30)
    assert Audit.objects.count() == 10


def test_a_disabled_person_cannot_sign_in_by_page_or_api(cast):
    cast.alice.is_active = False
    cast.alice.save()
    assert Client().post("/login/", RIGHT).status_code == 200
    assert Client().post("/api/token", RIGHT, "application/json").status_code == 401
