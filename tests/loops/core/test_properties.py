"""Any history at all: whatever an agent answers and whenever people press Stop, the core decides as product.md 3.6 reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loops.core.decide import Decision, Finish, StartRun, Wait, decide
from loops.core.facts import CARRY, Facts, Outcome, after, fingerprint, tail
from loops.core.prompt import render
from loops.core.spec import FIELDS, REQUIRED, Invalid, MessageSpec, parse
from loops.core.words import OnFailure

BEGIN = datetime(2026, 12, 1, 14, 0, tzinfo=UTC)
DONE = "[[DONE]]"
MOST_STEPS = 40
# Time is no measure on a shared machine; the number of examples bounds the work.
BOUNDED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# -- one loop, driven as the engine drives it --------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Step:
    """What happens around one run: how it ends, what the clock does, and when somebody presses Stop."""

    succeeds: bool
    says: str
    cost: Decimal | None
    cut_off: bool
    queued_for: int
    lasts: int
    wakes_late_by: int
    stop: str


@dataclass(slots=True)
class History:
    """The raw past of one loop; nothing in it is counted."""

    limits: MessageSpec
    runs: list[Outcome] = field(default_factory=list)
    started_at: datetime | None = None
    stop_pressed: bool = False
    ended_with_a_stop_pending: list[Outcome] = field(default_factory=list)
    now: datetime = BEGIN


@dataclass(frozen=True, slots=True)
class Look:
    """One decision: what the core said, and what the raw past looked like then."""

    decided: Decision
    expected: tuple[object, ...]


def drive(limits: MessageSpec, steps: list[Step]) -> tuple[History, Facts, list[Look]]:
    """Let a loop live until it ends; its steps come round again when they are used up."""
    past, facts, looks = History(limits), Facts(), []

    def look(seen: Facts, just_ended: bool) -> Decision:
        verdict = decide(limits, seen, past.now)
        looks.append(Look(verdict, oracle(past, just_ended)))
        return verdict

    verdict = look(facts, just_ended=False)
    for number in range(MOST_STEPS):
        step = steps[number % len(steps)]
        if isinstance(verdict, Wait):
            if step.stop == "in the delay":
                past.stop_pressed = True
            else:
                past.now = verdict.until + timedelta(seconds=step.wakes_late_by)
            facts = replace(facts, stop_requested=past.stop_pressed)
            verdict = look(facts, just_ended=False)
        if isinstance(verdict, Finish):
            return past, facts, looks
        assert isinstance(verdict, StartRun)
        past.now += timedelta(seconds=step.queued_for)
        if step.stop == "in the queue":
            past.stop_pressed = True
            facts = replace(facts, stop_requested=True)
            verdict = look(facts, just_ended=False)
            continue
        past.started_at = past.started_at or past.now
        past.now += timedelta(seconds=step.lasts)
        past.stop_pressed = past.stop_pressed or step.stop == "in the run"
        ended = Outcome(
            verdict.number, step.succeeds, step.says, cost=step.cost, cut_off=step.cut_off and not step.succeeds
        )
        past.runs.append(ended)
        if past.stop_pressed:
            past.ended_with_a_stop_pending.append(ended)
        counted = after(replace(facts, started_at=past.started_at, stop_requested=past.stop_pressed), ended)
        verdict = look(counted, just_ended=True)
        if isinstance(verdict, Finish) and not verdict.tolerated:
            counted = replace(counted, failed_runs=facts.failed_runs)
        facts = replace(counted, last=None)
    raise AssertionError("the loop did not end")


# -- the oracle: product.md 3.6, read off the raw past ------------------------------------------------
def oracle(past: History, just_ended: bool) -> tuple[object, ...]:
    """("status", "reason"), or ("wait", until), or ("run", number)."""
    limits, runs = past.limits, past.runs
    last = runs[-1] if just_ended else None
    succeeded, failed = last is not None and last.succeeded, last is not None and not last.succeeded
    replies = [" ".join(run.response.split()) for run in runs if run.succeeded]
    same = limits.no_progress_threshold
    cap = limits.max_consecutive_failures
    ends_at = None
    if past.started_at and limits.max_duration_seconds:
        ends_at = past.started_at + timedelta(seconds=limits.max_duration_seconds)
    due = past.now + timedelta(seconds=limits.delay_seconds)
    late = ends_at is not None and past.now >= ends_at
    paid = sum((run.cost for run in runs if run.cost is not None), Decimal(0))
    well = "completed_with_errors" if any(not run.succeeded for run in runs) else "completed"
    abort = limits.on_failure is OnFailure.ABORT
    order = [
        (failed and last.cut_off and past.stop_pressed, ("stopped", "user_stopped")),
        (
            succeeded and limits.stop_signal and last.response.count(limits.stop_signal) > 0,
            (well, "stop_signal_matched"),
        ),
        (
            succeeded and same and replies[-same:] == [replies[-1]] * same and not past.stop_pressed and not late,
            ("stopped", "no_progress"),
        ),
        (failed and abort, ("failed", "error")),
        (
            failed and not abort and len(runs) >= cap and not any(run.succeeded for run in runs[-cap:]),
            ("failed", "max_consecutive_failures"),
        ),
        (len(runs) == limits.max_runs, (well, "max_runs_reached")),
        (past.stop_pressed, ("stopped", "user_stopped")),
        (late, ("stopped", "deadline_exceeded")),
        (limits.max_cost_usd is not None and paid >= limits.max_cost_usd, ("stopped", "budget_exhausted")),
        (just_ended and limits.delay_seconds, ("wait", min(moment for moment in (due, ends_at) if moment))),
        (True, ("run", len(runs) + 1)),
    ]
    return next(verdict for speaks, verdict in order if speaks)


def told(verdict: Decision) -> tuple[object, ...]:
    """A decision in the oracle's words."""
    match verdict:
        case Finish(status=status, reason=reason):
            return status.value, reason.value
        case Wait(until=until):
            return "wait", until
        case StartRun(number=number):
            return "run", number


def tolerated(past: History, reason: object) -> int:
    """How many failures the loop went on after, or would have: all but the one that ended it (product.md 3.5)."""
    if past.limits.on_failure is OnFailure.ABORT:
        return 0
    failures = [run for run in past.runs if not run.succeeded]
    ended_it = reason == "max_consecutive_failures" or any(run.cut_off for run in past.ended_with_a_stop_pending)
    return len(failures) - ended_it


STEPS = st.lists(
    st.builds(
        Step,
        succeeds=st.booleans(),
        says=st.sampled_from(["", "A", " A\n", "B", "A A", "A  A", f"ok {DONE}"]),
        cost=st.sampled_from([None, Decimal(0), Decimal("0.1"), Decimal("0.7"), Decimal("0.000001")]),
        cut_off=st.booleans(),
        queued_for=st.sampled_from([0, 0, 1, 86_400]),
        lasts=st.sampled_from([0, 1, 7, 30, -2]),
        wakes_late_by=st.sampled_from([0, 0, 3, 3600]),
        stop=st.sampled_from(["", "", "", "", "in the run", "in the queue", "in the delay"]),
    ),
    min_size=1,
    max_size=7,
)
LIMITS = st.builds(
    MessageSpec,
    message=st.just("x"),
    max_runs=st.integers(1, 9),
    stop_signal=st.sampled_from([None, None, DONE]),
    delay_seconds=st.sampled_from([0, 0, 5, 40]),
    max_duration_seconds=st.sampled_from([None, 7, 30, 60]),
    max_cost_usd=st.sampled_from([None, Decimal("0.1"), Decimal("0.8"), Decimal("1.4")]),
    no_progress_threshold=st.sampled_from([0, 2, 3]),
    on_failure=st.sampled_from(OnFailure),
    max_consecutive_failures=st.integers(1, 4),
)


@settings(BOUNDED, max_examples=150)
@given(limits=LIMITS, steps=STEPS)
def test_every_decision_of_every_history_is_the_one_of_the_rules(limits, steps):
    past, facts, looks = drive(limits, steps)
    for one in looks:
        assert told(one.decided) == one.expected

    finish = looks[-1].decided
    assert isinstance(finish, Finish)
    assert [run.run_number for run in past.runs] == list(range(1, len(past.runs) + 1))
    assert facts.runs_completed == len(past.runs) <= limits.max_runs
    assert facts.spend == sum((run.cost for run in past.runs if run.cost is not None), Decimal(0))
    assert facts.unknown_cost_runs == [run.cost for run in past.runs].count(None)
    assert facts.failed_runs == tolerated(past, finish.reason.value)
    successes = [run.response for run in past.runs if run.succeeded]
    assert facts.carry == (successes[-1] if successes else "")


@settings(BOUNDED, max_examples=60)
@given(limits=LIMITS, steps=STEPS)
def test_a_delay_stands_once_between_two_runs_and_never_reaches_past_the_deadline(limits, steps):
    past, _, looks = drive(limits, steps)
    decisions = [one.decided for one in looks]
    for before, verdict in zip([None, *decisions], decisions, strict=False):
        if isinstance(verdict, Wait):
            assert isinstance(before, StartRun)
            if limits.max_duration_seconds and past.started_at:
                assert verdict.until <= past.started_at + timedelta(seconds=limits.max_duration_seconds)
    assert sum(isinstance(verdict, Finish) for verdict in decisions) == 1


# -- text -------------------------------------------------------------------------------------------
PIECES = ["{", "}", "run", "previous_response", "{{run}}", "{{previous_response}}", " ", "👩‍👧", "$&", "\\1"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


def filled(template: str, number: int, previous: str) -> Iterator[str]:
    """The template read from left to right, one placeholder at a time."""
    while template:
        for placeholder, value in (("{{run}}", str(number)), ("{{previous_response}}", previous)):
            if template.startswith(placeholder):
                yield value
                template = template[len(placeholder) :]
                break
        else:
            yield template[0]
            template = template[1:]


@settings(BOUNDED, max_examples=100)
@given(template=TEXT, number=st.integers(1, 100), previous=TEXT)
def test_a_message_is_its_template_read_once_from_left_to_right(template, number, previous):
    assert render(template, number, previous) == "".join(filled(template, number, previous))


@settings(BOUNDED, max_examples=60)
@given(text=st.text(max_size=20), times=st.integers(0, 300))
def test_what_is_carried_is_the_end_of_the_response(text, times):
    response = text * times
    kept = tail(response)
    assert response.endswith(kept)
    assert len(kept) == min(len(response), CARRY)
    assert kept.encode().decode() == kept


BLANKS = st.text(st.sampled_from(" \t\n\r\f\v\x1c\x85\xa0\u2028\u3000AB"), max_size=8)


@settings(BOUNDED, max_examples=100)
@given(one=BLANKS, other=BLANKS)
def test_two_replies_are_equal_where_only_their_blanks_differ(one, other):
    assert (fingerprint(one) == fingerprint(other)) is (one.split() == other.split())


# -- input ------------------------------------------------------------------------------------------
NUMBERS = st.sampled_from([0, 1, 2, 10, 60, 101, -1, 10**400, 0.0, 0.5, 1e-9, 2.0, float("inf"), float("nan")])
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["", " ", "abort", "10", "a\0", "\ud800", DONE])
JSON = SCALARS | st.lists(SCALARS, max_size=2) | st.just({"a": 1})


def parsed(body: dict[str, object]) -> MessageSpec | Invalid:
    try:
        return parse(body)
    except Invalid as refusal:
        return refusal


@settings(BOUNDED, max_examples=100)
@given(body=st.dictionaries(st.sampled_from([*FIELDS, "other", "max\ud800"]), JSON, max_size=6))
def test_any_json_is_either_a_spec_or_a_refusal_that_names_its_fields(body):
    found = parsed({"message": "x", "max_runs": 3, **body})
    if isinstance(found, Invalid):
        assert found.errors
        assert found.errors.keys() <= {name.replace("\ud800", "?") for name in body}
        assert all(sentences and all(sentences) for sentences in found.errors.values())
    else:
        assert body.keys() <= FIELDS.keys()
        assert not any(body.get(name, "sent") is None for name in REQUIRED)
        assert type(found.max_runs) is int
        assert 1 <= found.max_runs <= 100
        assert found.max_cost_usd is None or 0 < found.max_cost_usd <= 10**9
