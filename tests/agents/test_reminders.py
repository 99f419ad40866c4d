"""Reminders as a domain: when one may fire, how many there may be, and that any number of sweeps fires each once."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import django_rq
import pytest
from django.db import IntegrityError, connection, transaction

from agents import access, executions, life, queue, reminders, sweep
from agents.access import Verdict
from agents.models import Agent, Audit, CallPermission, Execution, Reminder
from agents.refusals import Refused
from agents.reminders import NewReminder, fire_time
from tests.conftest import caller, make_agent
from tests.ledger import claim, ok, play

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MONTH = 30 * 86_400


@pytest.fixture
def bells(valkey):
    found = django_rq.get_queue(queue.QUEUE)
    found.empty()
    yield found
    found.empty()


def remind(cast, now, message="look", by=None, agent=None, key=None, **fields):
    agent = agent or cast.falcon
    by = by or caller(agent.owner, agent=agent)
    new = NewReminder(message, **(fields or {"delay_seconds": 60}))
    return reminders.set_reminder(by, agent, new, now, idempotency_key=key)


# -- when it may fire -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("new", "ahead"),
    [
        ({"delay_seconds": 60}, 60),
        ({"delay_seconds": MONTH}, MONTH),
        ({"fire_at": AT + timedelta(seconds=60)}, 60),
        ({"fire_at": AT + timedelta(days=30)}, MONTH),
        ({"fire_at": datetime(2026, 3, 1, 15, tzinfo=timezone(timedelta(hours=2)))}, 3600),
    ],
)
def test_it_fires_between_a_minute_and_thirty_days_from_now(new, ahead):
    found = fire_time(NewReminder("x", **new), AT)
    assert found == AT + timedelta(seconds=ahead) and found.tzinfo is UTC


@pytest.mark.parametrize(
    ("new", "error", "fact"),
    [
        ({"delay_seconds": 59}, "reminder_fire_too_soon", ("min_delay_seconds", 60)),
        ({"delay_seconds": 0}, "reminder_fire_too_soon", ("min_delay_seconds", 60)),
        ({"delay_seconds": -(10**30)}, "reminder_fire_too_soon", ("min_delay_seconds", 60)),
        (
            {"fire_at": AT + timedelta(seconds=59, milliseconds=999)},
            "reminder_fire_too_soon",
            ("min_delay_seconds", 60),
        ),
        ({"fire_at": datetime.min.replace(tzinfo=UTC)}, "reminder_fire_too_soon", ("min_delay_seconds", 60)),
        ({"delay_seconds": MONTH + 1}, "reminder_fire_too_far", ("max_delay_seconds", MONTH)),
        ({"delay_seconds": 10**400}, "reminder_fire_too_far", ("max_delay_seconds", MONTH)),
        ({"fire_at": AT + timedelta(days=30, microseconds=1)}, "reminder_fire_too_far", ("max_delay_seconds", MONTH)),
        (
            {"fire_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=23)))},
            "reminder_fire_too_far",
            ("max_delay_seconds", MONTH),
        ),
    ],
)
def test_sooner_or_later_is_refused_with_the_bound(new, error, fact):
    with pytest.raises(Refused) as refused:
        fire_time(NewReminder("x", **new), AT)
    assert refused.value.status == 400 and set(refused.value.errors) == set(new)
    assert refused.value.facts == {"error": error, fact[0]: fact[1]}


@pytest.mark.parametrize("new", [{}, {"delay_seconds": 60, "fire_at": AT + timedelta(hours=1)}])
def test_no_time_or_two_are_refused(new):
    with pytest.raises(Refused) as refused:
        fire_time(NewReminder("x", **new), AT)
    assert set(refused.value.errors) == {"delay_seconds", "fire_at"} and refused.value.facts == {}


# -- who may ----------------------------------------------------------------------------------------
def test_reminders_are_for_the_agent_itself_its_owner_and_admins(cast):
    heron = make_agent(cast.alice, "heron")
    CallPermission.objects.create(caller=heron, target=cast.falcon)
    expected = {
        caller(cast.alice): Verdict.ALLOWED,
        caller(cast.root): Verdict.ALLOWED,
        caller(cast.alice, agent=cast.falcon): Verdict.ALLOWED,
        caller(cast.bob): Verdict.FORBIDDEN,
        caller(cast.carol): Verdict.FORBIDDEN,
        caller(cast.alice, agent=heron): Verdict.FORBIDDEN,
        caller(cast.dora): Verdict.UNKNOWN,
    }
    assert {one: access.remind_agent(one, cast.falcon) for one in expected} == expected
    assert {access.remind_agent(one, None) for one in expected} == {Verdict.UNKNOWN}


def test_a_deleted_agent_is_reminded_of_nothing_more(cast, now):
    agent = caller(cast.alice, agent=cast.falcon)
    Agent.objects.filter(pk=cast.falcon.pk).update(deleted_at=now)
    cast.falcon.refresh_from_db()
    assert access.remind_agent(agent, cast.falcon) is Verdict.UNKNOWN
    with pytest.raises(Refused) as refused:  # it was deleted after the verdict
        remind(cast, now, by=agent)
    assert refused.value.status == 404 and not Reminder.objects.exists()


# -- setting ----------------------------------------------------------------------------------------
def test_what_was_set_is_kept_and_on_the_trail_without_its_words(cast, now):
    row = remind(cast, now, "zebra", delay_seconds=90, model="small", timeout_seconds=3600, allowed_tools=[])
    row.refresh_from_db()
    assert (row.message, row.model, row.timeout_seconds, row.allowed_tools) == ("zebra", "small", 3600, [])
    assert (row.status, row.set_by, row.fire_at) == ("pending", "agent:falcon", now + timedelta(seconds=90))
    assert row.pk.startswith("rem_") and remind(cast, now).allowed_tools is None
    trail = Audit.objects.get(action="reminder.create", target=row.pk)
    assert (trail.actor, trail.through, trail.verdict) == ("agent:falcon", "rest", "allowed")
    assert "zebra" not in trail.reason


def test_a_timeout_above_the_agents_is_refused_with_both_figures(cast, now):
    with pytest.raises(Refused) as refused:
        remind(cast, now, delay_seconds=60, timeout_seconds=3601)
    assert set(refused.value.errors) == {"timeout_seconds"}
    assert refused.value.facts == {
        "error": "reminder_timeout_exceeds_agent_cap",
        "agent_cap_seconds": 3600,
        "requested_seconds": 3601,
    }
    assert Audit.objects.get(action="reminder.create").verdict == "refused"


def test_at_most_25_are_pending_and_the_26th_is_told_when_one_goes(cast, now):
    rows = [remind(cast, now, delay_seconds=60 + number) for number in range(25)]
    with pytest.raises(Refused) as refused:
        remind(cast, now + timedelta(seconds=10))
    assert (refused.value.status, refused.value.retry_after) == (429, 50)
    assert refused.value.facts == {"error": "reminder_pending_cap_reached", "max_pending": 25}
    remind(cast, now, agent=make_agent(cast.alice, "heron"))  # the limit is each agent's own
    reminders.cancel_reminder(caller(cast.alice), rows[7], now)
    assert remind(cast, now).status == "pending"


def test_at_most_100_are_set_in_a_rolling_day_cancelled_ones_counted(cast, now):
    begin = now - timedelta(hours=24)
    past = {"agent": cast.falcon, "set_by": "alice", "message": "x", "fire_at": now, "status": "cancelled"}
    Reminder.objects.bulk_create(
        Reminder(**past, cancelled_at=now, created_at=begin + timedelta(seconds=1 + number)) for number in range(100)
    )
    with pytest.raises(Refused) as refused:
        remind(cast, now)
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    assert refused.value.facts == {"error": "reminder_daily_cap_reached", "max_per_day": 100}
    assert remind(cast, now + timedelta(seconds=1)).status == "pending"


@pytest.mark.django_db(transaction=True)
def test_two_at_once_do_not_pass_the_same_limit(cast, now):
    for _ in range(24):
        remind(cast, now)
    barrier, outcomes = threading.Barrier(2), []

    def try_one():
        barrier.wait(5)
        try:
            outcomes.append(remind(cast, now).status)
        except Refused as refused:
            outcomes.append(refused.status)
        finally:
            connection.close()

    threads = [threading.Thread(target=try_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes, key=str) == [429, "pending"] and Reminder.objects.count() == 25


# -- the same request twice -------------------------------------------------------------------------
def test_the_same_key_and_body_set_one_reminder(cast, now):
    first = remind(cast, now, key="k", delay_seconds=60)
    again = remind(cast, now + timedelta(seconds=30), key="k", delay_seconds=60)
    assert first.pk == again.pk and again.fire_at == now + timedelta(seconds=60)
    assert remind(cast, now, key="k2", delay_seconds=60).pk != first.pk
    assert remind(cast, now).pk != remind(cast, now).pk  # no key, no link


def test_a_retry_is_answered_even_when_its_time_is_too_near_by_now(cast, now):
    moment = now + timedelta(seconds=60)
    first = remind(cast, now, key="k", fire_at=moment)
    assert remind(cast, now + timedelta(seconds=59), key="k", fire_at=moment).pk == first.pk


@pytest.mark.parametrize("change", [{"message": "other"}, {"delay_seconds": 61}, {"delay_seconds": 60, "model": "m"}])
def test_the_same_key_with_another_body_is_refused(cast, now, change):
    remind(cast, now, key="k", delay_seconds=60)
    with pytest.raises(Refused) as refused:
        remind(cast, now, key="k", **{"delay_seconds": 60, **change})
    assert refused.value.status == 409 and Reminder.objects.count() == 1


def test_a_key_belongs_to_its_caller_and_is_kept_for_24_hours(cast, now):
    first = remind(cast, now, key="k")
    assert remind(cast, now, key="k", by=caller(cast.alice)).pk != first.pk
    day = timedelta(hours=24)
    assert remind(cast, now + day - timedelta(seconds=1), key="k").pk == first.pk
    assert remind(cast, now + day, key="k").pk != first.pk
    heron = make_agent(cast.alice, "heron")
    with pytest.raises(Refused) as refused:
        remind(cast, now, key="k", by=caller(cast.alice), agent=heron)
    assert refused.value.status == 409


def test_the_database_itself_takes_a_key_once(cast, now):
    remind(cast, now, key="k")
    row = {"agent": cast.falcon, "message": "x", "fire_at": now}
    with pytest.raises(IntegrityError), transaction.atomic():
        Reminder.objects.create(**row, set_by="agent:falcon", idempotency_key="k")


@pytest.mark.parametrize("bad", [{"fired_at": AT}, {"cancelled_at": AT}, {"status": "fired"}, {"status": "cancelled"}])
def test_the_database_takes_no_status_without_its_time(cast, bad):
    with pytest.raises(IntegrityError), transaction.atomic():
        Reminder.objects.create(agent=cast.falcon, set_by="alice", message="x", fire_at=AT, **bad)


# -- listing and cancelling -------------------------------------------------------------------------
def test_a_list_has_the_pending_ones_soonest_first_and_all_on_demand(cast, now):
    late, soon = remind(cast, now, delay_seconds=120), remind(cast, now, delay_seconds=60)
    gone = remind(cast, now, delay_seconds=90)
    reminders.cancel_reminder(caller(cast.alice), gone, now)
    remind(cast, now, agent=make_agent(cast.alice, "heron"))
    assert [row.pk for row in reminders.listed(cast.falcon, everything=False)] == [soon.pk, late.pk]
    assert [row.pk for row in reminders.listed(cast.falcon, everything=True)] == [soon.pk, gone.pk, late.pk]


def test_a_long_history_is_cut_but_what_is_pending_stays(cast, now, django_assert_num_queries):
    held = remind(cast, now)
    past = {"agent": cast.falcon, "set_by": "alice", "message": "x", "status": "cancelled", "cancelled_at": now}
    Reminder.objects.bulk_create(Reminder(**past, fire_at=now + timedelta(days=1, seconds=n)) for n in range(300))
    with django_assert_num_queries(2):
        rows = reminders.listed(cast.falcon, everything=True)
    assert len(rows) == 176 and rows[0].pk == held.pk and rows[-1].fire_at == now + timedelta(days=1, seconds=299)


def test_a_cancelled_one_stays_as_it_was_cancelled_first(cast, now):
    row = remind(cast, now)
    reminders.cancel_reminder(caller(cast.alice), row, now)
    again = reminders.cancel_reminder(caller(cast.alice, agent=cast.falcon), row, now + timedelta(seconds=9))
    assert (again.status, again.cancelled_by, again.cancelled_at) == ("cancelled", "alice", now)
    assert Audit.objects.filter(action="reminder.cancel").count() == 1
    reminders.fire_due(now + timedelta(days=1))
    assert not Execution.objects.exists()


def test_a_fired_one_cannot_be_cancelled(cast, now):
    row = remind(cast, now)
    reminders.fire_due(now + timedelta(seconds=60))
    with pytest.raises(Refused) as refused:
        reminders.cancel_reminder(caller(cast.alice), row, now)
    assert refused.value.status == 409
    assert Audit.objects.get(action="reminder.cancel").verdict == "refused"


def test_a_reminder_is_known_to_its_agent_alone(cast, now):
    row = remind(cast, now)
    assert reminders.named(cast.falcon, row.pk) == row
    for agent, name in ((make_agent(cast.alice, "heron"), row.pk), (cast.falcon, "rem_x"), (cast.falcon, "a\0b")):
        assert reminders.named(agent, name) is None


# -- firing -----------------------------------------------------------------------------------------
def test_it_fires_at_its_time_and_not_before_as_a_turn_of_a_new_chain(cast, now):
    row = remind(cast, now, "look again", delay_seconds=60, model="small", timeout_seconds=30, allowed_tools=["Read"])
    reminders.fire_due(now + timedelta(seconds=59, microseconds=999_999))
    assert not Execution.objects.exists()
    due = now + timedelta(seconds=60)
    reminders.fire_due(due)
    turn = Execution.objects.get()
    row.refresh_from_db()
    assert (row.status, row.execution_id, row.fired_at) == ("fired", turn.pk, due)
    assert (turn.triggered_by, turn.requested_by, turn.depth, turn.loop_id) == ("reminder", "agent:falcon", 0, "")
    assert (turn.message, turn.model, turn.timeout_seconds) == ("look again", "small", 30)
    assert (turn.agent_id, turn.state, turn.allowed_tools) == (cast.falcon.pk, "queued", ["Read"])
    trail = Audit.objects.get(action="execution.start")
    assert (trail.actor, trail.through, trail.target) == ("agent:falcon", "engine", turn.pk)


def test_a_second_sweep_fires_nothing_more(cast, now):
    remind(cast, now)
    due = now + timedelta(seconds=60)
    reminders.fire_due(due)
    reminders.fire_due(due)
    assert Execution.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_many_sweeps_at_once_fire_each_reminder_once(cast, now, bells):
    rows = [
        remind(cast, now, agent=agent) for agent in (cast.falcon, make_agent(cast.carol, "magpie")) for _ in range(5)
    ]
    barrier, failures = threading.Barrier(4), []

    def sweep_at_once():
        barrier.wait(5)
        try:
            reminders.fire_due(now + timedelta(seconds=60))
        except Exception as failure:
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=sweep_at_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failures
    assert Execution.objects.count() == len(rows) == Reminder.objects.filter(status="fired").count()
    assert set(bells.job_ids) == set(Execution.objects.values_list("pk", flat=True))


def test_it_is_held_while_the_agents_autonomy_is_off_however_late(cast, now):
    row = remind(cast, now)
    life.change(cast.falcon, {"autonomy": False}, caller(cast.alice))
    reminders.fire_due(now + timedelta(days=40))
    row.refresh_from_db()
    assert row.status == "pending" and not Execution.objects.exists()
    life.change(cast.falcon, {"autonomy": True}, caller(cast.alice))
    reminders.fire_due(now + timedelta(days=41))
    assert Execution.objects.get().triggered_by == "reminder"


def test_a_stopped_agents_turn_waits_in_the_line_until_it_runs_again(cast, now):
    remind(cast, now)
    life.stop(cast.falcon, caller(cast.alice), now)
    due = now + timedelta(seconds=60)
    reminders.fire_due(due)
    assert claim(cast.falcon, due) is None
    life.start(cast.falcon, caller(cast.alice), due)
    play(cast.falcon, due, ok("done"))
    assert Execution.objects.get().state == "success"


def test_a_deleted_agents_reminders_are_cancelled_and_never_fire(cast, now):
    row = remind(cast, now)
    life.delete(cast.falcon, caller(cast.alice), now)
    reminders.fire_due(now + timedelta(hours=1))
    assert not Execution.objects.exists()
    reminders.cancel_of_deleted(now + timedelta(hours=1))
    row.refresh_from_db()
    assert (row.status, row.cancelled_by) == ("cancelled", "")
    later = make_agent(cast.alice, "falcon")
    assert reminders.listed(later, everything=True) == []


def test_a_reminder_that_is_cancelled_while_it_fires_has_no_turn(cast, now, monkeypatch):
    """The sweep has seen it due; then somebody cancels it, before the sweep takes it."""
    row = remind(cast, now)
    locked = reminders.sql.lock_agent

    def cancelled_meanwhile(agent_id):
        reminders.cancel_reminder(caller(cast.alice), row, now)
        return locked(agent_id)

    monkeypatch.setattr(reminders.sql, "lock_agent", cancelled_meanwhile)
    reminders.fire_due(now + timedelta(seconds=60))
    assert Reminder.objects.get().status == "cancelled" and not Execution.objects.exists()


@pytest.mark.django_db(transaction=True)  # a sweep gives its connection back
def test_the_sweep_does_it(cast, now, bells):
    remind(cast, now)
    gone = remind(cast, now, agent=make_agent(cast.alice, "heron"))
    life.delete(gone.agent, caller(cast.alice), now)
    sweep.sweep_once(now + timedelta(seconds=60), slow=False)
    assert list(Reminder.objects.order_by("pk").values_list("status", flat=True)) == ["fired", "cancelled"]


def test_a_fired_turn_can_be_cut_off_like_any_other(cast, now):
    remind(cast, now)
    reminders.fire_due(now + timedelta(seconds=60))
    assert executions.cancel(Execution.objects.get().pk, "alice", now) == "cancelled"
    assert Reminder.objects.get().status == "fired"
