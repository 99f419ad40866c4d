"""What a loop is called on a page: every row of product.md 5, the proof beside it, figures, and the summary before a start."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from loops.core.facts import excerpt
from loops.core.spec import MessageSpec
from loops.core.words import LoopStatus, OnFailure, StopReason
from loops.models import Loop, LoopRun
from loops.words import (
    LoopFacts,
    Part,
    counter,
    duration_words,
    longest_seconds,
    money,
    not_limited,
    plain,
    proof,
    reason_words,
    reckoning,
    seconds_words,
    status_words,
    summary,
    worst_case,
)

NOW = datetime(2026, 12, 1, 14, 32, 8, tzinfo=UTC)
DONE = "[[DONE]]"


def ago(**span: int) -> datetime:
    return NOW - timedelta(**span)


def loop(status: str, **facts: object) -> LoopFacts:
    return LoopFacts(status=status, **{"max_runs": 20, **facts})


def running(**facts: object) -> LoopFacts:
    return loop("running", **{"runs_completed": 6, **facts})


def said(facts: LoopFacts, viewer: str = "mira") -> str:
    return plain(proof(facts, NOW, viewer))


# -- status words ---------------------------------------------------------------------------------
WAKES = datetime(2026, 12, 1, 14, 42, 10, tzinfo=UTC)
STATUS = [
    (loop("queued"), "Queued", "active", "queued", False),
    (loop("queued", waiting_for="capacity"), "Waiting for a free slot", "active", "waiting", False),
    (running(waiting_for="capacity"), "Waiting for a free slot", "active", "waiting", False),
    (running(waiting_for="delay", wake_at=WAKES), "Waiting until 14:42:10", "active", "waiting", False),
    (running(waiting_for="delay"), "Waiting", "active", "waiting", False),
    (loop("queued", waiting_for="agent"), "Waiting for the agent", "active", "waiting", False),
    (running(waiting_for="conversation"), "Waiting for the chat", "active", "waiting", False),
    (running(), "Running", "active", "running", True),
    (running(stop_requested_at=NOW), "Finishing run 7, then stopping", "active", "running", False),
    (loop("completed", stop_reason="max_runs_reached"), "Done", "ok", "done", False),
    (loop("completed", stop_reason="stop_signal_matched"), "Done", "ok", "done", False),
    (loop("completed", stop_reason="goal_met"), "Done — goal met", "ok", "done", False),
    (loop("completed_with_errors", stop_reason="max_runs_reached"), "Done, with errors", "warn", "done-errors", False),
    (loop("stopped", stop_reason="user_stopped", stopped_by="mira"), "Stopped by you", "warn", "stopped", False),
    (loop("stopped", stop_reason="user_stopped", stopped_by="tomas"), "Stopped by tomas", "warn", "stopped", False),
    (
        loop("stopped", stop_reason="user_stopped", stopped_by="agent:falcon"),
        "Stopped by agent falcon",
        "warn",
        "stopped",
        False,
    ),
    (loop("stopped", stop_reason="user_stopped"), "Stopped", "warn", "stopped", False),
    (loop("stopped"), "Stopped", "warn", "stopped", False),
    (loop("stopped", stop_reason="budget_exhausted"), "Stopped — cost budget reached", "warn", "stopped", False),
    (loop("stopped", stop_reason="deadline_exceeded"), "Stopped — time limit reached", "warn", "stopped", False),
    (loop("stopped", stop_reason="no_progress"), "Stopped — it stopped making progress", "warn", "stopped", False),
    (
        loop("stopped", stop_reason="max_runs_reached", kind="goal"),
        "Stopped — ran out of rounds",
        "warn",
        "stopped",
        False,
    ),
    (
        loop("stopped", stop_reason="stalled", kind="goal"),
        "Stopped — nothing changed on disk",
        "warn",
        "stopped",
        False,
    ),
    (loop("stopped", stop_reason="needs_person", kind="goal"), "Stopped — it needs a person", "warn", "stopped", False),
    (loop("stopped", stop_reason="approval_required"), "Stopped — approval_required", "warn", "stopped", False),
    (loop("failed", stop_reason="error"), "Failed", "danger", "failed", False),
    (
        loop("failed", stop_reason="max_consecutive_failures"),
        "Failed — too many errors in a row",
        "danger",
        "failed",
        False,
    ),
    (loop("interrupted"), "Interrupted", "warn", "interrupted", False),
    (loop("half_open", stop_reason="user_stopped"), "half_open", "", "alert", False),
]


@pytest.mark.parametrize(("facts", "text", "tone", "icon", "live"), STATUS, ids=[row[1] for row in STATUS])
def test_every_status_has_its_words(facts, text, tone, icon, live):
    words = status_words(facts, "mira")
    assert (words.text, words.tone, words.icon, words.live) == (text, tone, icon, live)


def test_every_status_that_the_core_knows_has_words_of_its_own():
    texts = {status_words(loop(status), "mira").text for status in LoopStatus}
    assert len(texts) == len(LoopStatus)
    assert not texts & {status.value for status in LoopStatus}


def test_nobody_reads_stopped_by_you_but_the_person_who_pressed_it():
    facts = loop("stopped", stop_reason="user_stopped", stopped_by="mira")
    assert [status_words(facts, name).text for name in ("mira", "tomas", "Mira", "")] == [
        "Stopped by you",
        "Stopped by mira",
        "Stopped by mira",
        "Stopped by mira",
    ]


def test_an_agent_that_stops_a_loop_is_not_the_person_of_that_name():
    facts = loop("stopped", stop_reason="user_stopped", stopped_by="agent:mira")
    assert status_words(facts, "mira").text == "Stopped by agent mira"


@pytest.mark.parametrize(
    ("ends_by", "shown"),
    [("14:45:00.000000", "14:45"), ("14:45:00.000001", "14:46"), ("14:45:59", "14:46"), ("23:59:30", "00:00")],
)
def test_a_stop_that_is_pending_names_the_minute_by_which_the_run_is_over(ends_by, shown):
    end = datetime.fromisoformat(f"2026-12-01T{ends_by}+00:00")
    words = status_words(running(stop_requested_at=NOW, run_ends_by=end), "mira")
    assert words.text == f"Finishing run 7, then stopping (by {shown} at the latest)"
    assert next(part.at for part in words.parts if part.role == "time") >= end


def test_a_stop_that_is_pending_while_a_loop_waits_does_not_claim_a_run_in_flight():
    words = status_words(running(stop_requested_at=NOW, waiting_for="capacity"), "mira")
    assert words.text == "Waiting for a free slot"


def test_a_clock_time_is_shown_in_the_zone_asked_for_and_keeps_its_moment():
    nepal = timezone(timedelta(hours=5, minutes=45))
    words = status_words(running(waiting_for="delay", wake_at=WAKES), "mira", nepal)
    assert words.text == "Waiting until 20:27:10"
    assert words.parts[1] == Part("20:27:10", "time", WAKES)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("max_runs_reached", "reached max runs"),
        ("stop_signal_matched", "stop signal matched"),
        ("user_stopped", "stopped by user"),
        ("deadline_exceeded", "deadline exceeded"),
        ("budget_exhausted", "budget exhausted"),
        ("no_progress", "no progress"),
        ("error", "error"),
        ("max_consecutive_failures", "too many consecutive failures"),
        ("goal_met", "goal met"),
        ("stalled", "nothing changed on disk"),
        ("needs_person", "needs a person"),
        ("approval_required", "approval_required"),
        ("", ""),
    ],
)
def test_every_reason_has_the_operators_words(reason, words):
    assert reason_words(reason) == words


def test_no_reason_of_the_core_is_shown_raw_where_a_word_could_be():
    assert all("_" not in reason_words(reason) for reason in StopReason)


@pytest.mark.parametrize(
    ("facts", "tab", "rail"),
    [
        (loop("queued"), "Run 0 / 20", "Run 0 of 20"),
        (running(failed_runs=1), "Run 7 / 20 · 1 failed", "Run 7 of 20 · 1 failed"),
        (running(waiting_for="delay"), "Run 6 / 20", "Run 6 of 20"),
        (loop("completed", runs_completed=20), "Run 20 / 20", "Run 20 of 20"),
        (loop("half_open", runs_completed=2), "Run 2 / 20", "Run 2 of 20"),
    ],
)
def test_the_counter_counts_the_run_in_flight(facts, tab, rail):
    assert (counter(facts), counter(facts, " of ")) == (tab, rail)


# -- proof ----------------------------------------------------------------------------------------
TWO_HOURS = {"started_at": ago(hours=2, seconds=130), "completed_at": NOW, "max_duration_seconds": 7200}
PROOF = [
    (loop("queued"), "Run 1 is about to begin."),
    (loop("queued", place=1), "First in line. Run 1 is about to begin."),
    (loop("queued", waiting_for="capacity"), "All slots are taken. Run 1 begins when one is free."),
    (
        running(waiting_for="capacity", place=1, slots=2),
        "First in line. Both slots are taken. Run 7 begins when one is free.",
    ),
    (
        running(waiting_for="capacity", place=3, slots=1),
        "Number 3 in line. The only slot is taken. Run 7 begins when one is free.",
    ),
    (running(waiting_for="capacity", slots=5), "All 5 slots are taken. Run 7 begins when one is free."),
    (running(waiting_for="delay", wake_at=NOW + timedelta(seconds=112)), "Run 7 begins in 1 min 52 s."),
    (running(waiting_for="delay", wake_at=NOW + timedelta(seconds=1.2)), "Run 7 begins in 2 s."),
    (running(waiting_for="delay", wake_at=ago(seconds=3)), "Run 7 begins in 0 s."),
    (running(waiting_for="delay"), "Run 7 is about to begin."),
    (
        running(waiting_for="delay", wake_at=WAKES, deadline_at=WAKES),
        "The time limit is reached in 10 min 2 s, before run 7.",
    ),
    (
        running(waiting_for="delay", wake_at=WAKES, deadline_at=WAKES + timedelta(seconds=1)),
        "Run 7 begins in 10 min 2 s.",
    ),
    (running(waiting_for="agent"), "Run 7 begins when the agent runs again."),
    (
        running(waiting_for="agent", deadline_at=WAKES),
        "Run 7 begins when the agent runs again. The time limit goes on counting.",
    ),
    (running(waiting_for="conversation"), "Run 7 begins when the chat is free."),
    (running(), "Run 7 is running."),
    (running(run_started_at=ago(seconds=72)), "Run 7 started 1 min 12 s ago."),
    (
        running(run_started_at=ago(seconds=72), stop_signal=DONE),
        "Run 7 started 1 min 12 s ago. [[DONE]] not seen in 6 replies.",
    ),
    (running(stop_signal=DONE, failed_runs=5), "Run 7 is running. [[DONE]] not seen in 1 reply."),
    (running(stop_signal=DONE, failed_runs=6), "Run 7 is running."),
    (
        running(failed_runs=1, failure_streak=1, last_error="exit code 1:\n locked"),
        "Run 7 is running. Run 6 failed: exit code 1: locked",
    ),
    (running(failed_runs=1, last_error="long ago"), "Run 7 is running."),
    (
        running(stop_requested_at=ago(seconds=20), stopped_by="mira"),
        "Stop asked for by you 20 s ago. Run 7 is kept.",
    ),
    (
        running(stop_requested_at=ago(seconds=20), stopped_by="agent:falcon"),
        "Stop asked for by agent falcon 20 s ago. Run 7 is kept.",
    ),
    (loop("completed", stop_reason="max_runs_reached", runs_completed=20), "Reached 20 of 20 runs."),
    (loop("completed", stop_reason="max_runs_reached", runs_completed=1, max_runs=1), "Reached 1 of 1 run."),
    (
        loop(
            "completed_with_errors",
            stop_reason="max_runs_reached",
            runs_completed=40,
            max_runs=40,
            failed_runs=3,
            failed_numbers=(11, 12, 31),
            last_error="timed out after 300 s",
        ),
        "Reached 40 of 40 runs. Runs 11, 12 and 31 failed; last: timed out after 300 s.",
    ),
    (
        loop(
            "completed_with_errors",
            stop_reason="max_runs_reached",
            runs_completed=20,
            failed_runs=1,
            failed_numbers=(4,),
        ),
        "Reached 20 of 20 runs. Run 4 failed.",
    ),
    (
        loop("completed_with_errors", stop_reason="max_runs_reached", runs_completed=20, failed_runs=9),
        "Reached 20 of 20 runs. 9 runs failed.",
    ),
    (
        loop(
            "completed_with_errors",
            stop_reason="max_runs_reached",
            runs_completed=20,
            failed_runs=9,
            failed_numbers=tuple(range(1, 10)),
        ),
        "Reached 20 of 20 runs. Runs 1, 2, 3, 4, 5, 6 and 3 more failed.",
    ),
    (
        loop("completed", stop_reason="stop_signal_matched", runs_completed=3, stop_run=3, stop_signal=DONE),
        "Stop signal found in run 3.",
    ),
    (
        loop("stopped", stop_reason="user_stopped", runs_completed=5, max_runs=10, completed_at=ago(hours=12)),
        "After run 5 of 10, 12 h ago.",
    ),
    (loop("stopped", stop_reason="user_stopped", completed_at=ago(seconds=5)), "Before run 1 began, 5 s ago."),
    (
        loop(
            "stopped", stop_reason="budget_exhausted", runs_completed=9, spend=Decimal("1.07"), max_cost_usd=Decimal(1)
        ),
        "Spent $1.07 of $1.00 by the end of run 9, 7 % over: a budget is checked between runs. Run 10 was not started.",
    ),
    (
        loop(
            "stopped",
            stop_reason="budget_exhausted",
            runs_completed=1,
            spend=Decimal("5.11"),
            max_cost_usd=Decimal("0.5"),
        ),
        "Spent $5.11 of $0.50 by the end of run 1, 922 % over: a budget is checked between runs. Run 2 was not started.",
    ),
    (
        loop(
            "stopped",
            stop_reason="budget_exhausted",
            runs_completed=2,
            spend=Decimal("0.8"),
            max_cost_usd=Decimal("0.80"),
        ),
        "Spent $0.80 of $0.80 by the end of run 2. Run 3 was not started.",
    ),
    (
        loop(
            "stopped",
            stop_reason="budget_exhausted",
            runs_completed=2,
            spend=Decimal("1.009"),
            max_cost_usd=Decimal(1),
            unknown_cost_runs=1,
        ),
        "Spent $1.009 of $1.00 by the end of run 2, less than 1 % over: a budget is checked between runs. "
        "Run 3 was not started. 1 run reported no cost.",
    ),
    (
        loop("stopped", stop_reason="deadline_exceeded", runs_completed=9, **TWO_HOURS),
        "2 h 2 min of 2 h elapsed by the end of run 9. Run 10 was not started.",
    ),
    (
        loop("stopped", stop_reason="no_progress", runs_completed=9, same_replies=3, last_reply="x"),
        "Runs 7 to 9 gave the same reply.",
    ),
    (
        loop("stopped", stop_reason="no_progress", runs_completed=2, same_replies=2, last_reply=" "),
        "Runs 1 and 2 gave the same empty reply.",
    ),
    (
        loop("stopped", stop_reason="no_progress", runs_completed=9, same_replies=3, failed_runs=1, last_reply="x"),
        "The last 3 replies were the same, up to run 9.",
    ),
    (
        loop("failed", stop_reason="error", runs_completed=2, max_runs=15, error="Run 2: exit code 128"),
        "Run 2 failed: exit code 128",
    ),
    (
        loop("failed", stop_reason="error", runs_completed=2, max_runs=15, error="the agent was deleted"),
        "After run 2 of 15: the agent was deleted",
    ),
    (loop("failed", stop_reason="error", error="the agent was deleted"), "Before run 1 began: the agent was deleted"),
    (loop("failed", stop_reason="error", runs_completed=1), "After run 1 of 20: no error was given"),
    (
        loop("failed", stop_reason="max_consecutive_failures", runs_completed=6, failure_streak=3, error="Run 6: bad"),
        "Runs 4 to 6 failed one after another; last: bad",
    ),
    (
        loop("failed", stop_reason="max_consecutive_failures", runs_completed=1, failure_streak=1, error="Run 1: bad"),
        "Run 1 failed: bad",
    ),
    (loop("interrupted", runs_completed=3), "After run 3 of 20."),
    (
        loop("completed", stop_reason="goal_met", runs_completed=3, detail="All 214 pass."),
        "After run 3 of 20. All 214 pass.",
    ),
    (loop("stopped", stop_reason="needs_person", runs_completed=1, detail="No key."), "After run 1 of 20. No key."),
    (
        loop("stopped", stop_reason="max_runs_reached", kind="goal", runs_completed=20, detail="Tests fail."),
        "Reached 20 of 20 runs. Tests fail.",
    ),
    (loop("half_open", runs_completed=3), "After run 3 of 20."),
]


@pytest.mark.parametrize(("facts", "sentence"), PROOF, ids=[row[1][:50] for row in PROOF])
def test_the_proof_stands_beside_the_word(facts, sentence):
    assert said(facts) == sentence


@pytest.mark.parametrize(
    "response",
    [
        "all 214 checks pass. [[DONE]]",
        "I will not write [[DONE]] yet",
        "x" * 300 + "[[DONE]]" + "y" * 300 + "[[DONE]]",
        "[[DONE]]",
    ],
)
def test_the_matched_signal_is_marked_in_its_excerpt(response):
    shown = excerpt(response, DONE)
    facts = loop("completed", stop_reason="stop_signal_matched", stop_run=3, stop_signal=DONE, stop_excerpt=shown)
    parts = proof(facts, NOW)
    assert plain(parts) == f"Stop signal found in run 3: “{shown}”"
    assert [part.text for part in parts if part.role == "mark"] == [DONE]


def test_a_signal_found_after_failures_names_both():
    facts = loop(
        "completed_with_errors",
        stop_reason="stop_signal_matched",
        stop_run=3,
        stop_signal=DONE,
        stop_excerpt=f"ok {DONE}",
        failed_runs=2,
        failed_numbers=(1, 2),
    )
    assert said(facts) == "Stop signal found in run 3: “ok [[DONE]]” Runs 1 and 2 failed."


def test_what_went_wrong_and_every_moment_can_be_told_from_plain_text():
    failed = loop("failed", stop_reason="error", runs_completed=2, error="Run 2: exit code 128")
    assert Part("exit code 128", "bad") in proof(failed, NOW)
    began = ago(seconds=72)
    assert Part("1 min 12 s ago", "time", began) in proof(running(run_started_at=began), NOW)


def test_a_long_error_is_cut_so_that_it_stays_beside_the_word():
    (_, error) = proof(loop("failed", stop_reason="error", runs_completed=1, error="Run 1: " + "e" * 5000), NOW)
    assert error.text == "e" * 300 + "…"
    (_, error) = proof(loop("failed", stop_reason="error", runs_completed=1, error="Run 1: " + "e" * 300), NOW)
    assert error.text == "e" * 300


def test_a_proof_never_says_that_an_unknown_cost_is_nothing():
    facts = replace(running(), spend=Decimal(0), unknown_cost_runs=6, max_cost_usd=Decimal(1))
    assert "$0.00" not in said(facts)


# -- from rows --------------------------------------------------------------------------------------
def test_the_facts_of_a_row_and_its_run_in_flight_are_taken_over_as_they_are():
    row = Loop(
        message="x",
        max_runs=20,
        status=LoopStatus.RUNNING,
        runs_completed=6,
        spend=Decimal("0.76"),
        stop_signal=DONE,
        carry="the last reply",
        timeout_per_run=600,
    )
    run = LoopRun(run_number=7, status="running", started_at=ago(seconds=72))
    facts = LoopFacts.of(row, run, agent_timeout=900, failed_numbers=[4], last_error="bad", place=1, slots=2)
    assert facts == running(
        spend=Decimal("0.76"),
        stop_signal=DONE,
        last_reply="the last reply",
        run_started_at=run.started_at,
        run_ends_by=run.started_at + timedelta(seconds=600),
        failed_numbers=(4,),
        last_error="bad",
        place=1,
        slots=2,
    )
    assert said(facts) == "Run 7 started 1 min 12 s ago. [[DONE]] not seen in 6 replies."


@pytest.mark.parametrize(
    ("own", "agents", "seconds"), [(600, 900, 600), (600, 300, 300), (None, 900, 900), (None, None, None)]
)
def test_a_run_ends_by_the_smaller_of_the_two_timeouts(own, agents, seconds):
    row = Loop(message="x", max_runs=20, status=LoopStatus.RUNNING, timeout_per_run=own)
    facts = LoopFacts.of(row, LoopRun(run_number=1, started_at=NOW), agent_timeout=agents)
    assert facts.run_ends_by == (None if seconds is None else NOW + timedelta(seconds=seconds))


def test_a_run_that_has_not_begun_ends_by_no_time():
    row = Loop(message="x", max_runs=20, timeout_per_run=600)
    assert LoopFacts.of(row, LoopRun(run_number=1), agent_timeout=900).run_ends_by is None
    assert LoopFacts.of(row) == loop("queued")


# -- figures --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "not reported"),
        (Decimal(0), "$0.00"),
        (Decimal("0.000000"), "$0.00"),
        (Decimal("0.00004"), "$0.00004"),
        (Decimal("0.000040"), "$0.00004"),
        (Decimal("1E-6"), "$0.000001"),
        (Decimal("0.5"), "$0.50"),
        (Decimal("2"), "$2.00"),
        (Decimal("12.3456"), "$12.3456"),
        (Decimal("1234.5"), "$1,234.50"),
        (Decimal("1E+9"), "$1,000,000,000.00"),
        (Decimal("999999999.999999"), "$999,999,999.999999"),
    ],
)
def test_money_is_readable_dollars_with_all_its_digits(amount, text):
    assert money(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (1, "1 s"),
        (45, "45 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (200, "3 min 20 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (3659, "1 h"),
        (7500, "2 h 5 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 day"),
        (90_000, "1 day 1 h"),
        (604_800, "7 days"),
    ],
)
def test_a_span_is_told_in_its_two_greatest_units(seconds, text):
    assert seconds_words(seconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "not reported"),
        (0, "0 ms"),
        (850, "850 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (12_345, "12.3 s"),
        (59_999, "59.9 s"),
        (60_000, "1 min"),
        (139_999, "2 min 19 s"),
    ],
)
def test_a_duration_is_cut_and_never_rounded_up(milliseconds, text):
    assert duration_words(milliseconds) == text


# -- before a start -------------------------------------------------------------------------------
def spec(**limits: object) -> MessageSpec:
    return MessageSpec(message="x", **{"max_runs": 20, **limits})


EQUAL = "3 replies in a row are the same, before 20 runs are done (a threshold of 0 lets a poll repeat itself)"
POLL = {
    "max_runs": 30,
    "stop_signal": DONE,
    "delay_seconds": 120,
    "no_progress_threshold": 0,
    "on_failure": OnFailure.CONTINUE,
}
SUMMARY = [
    (spec(), [EQUAL, "A run fails", "20 runs are done"]),
    (spec(**POLL), ["A reply contains [[DONE]]", "3 runs fail one after another", "30 runs are done"]),
    (spec(no_progress_threshold=20), ["20 replies in a row are the same", "A run fails", "20 runs are done"]),
    (spec(no_progress_threshold=21), ["A run fails", "20 runs are done"]),
    (spec(max_runs=1), ["A run fails", "1 run is done"]),
    (spec(on_failure=OnFailure.CONTINUE, max_consecutive_failures=1), [EQUAL, "A run fails", "20 runs are done"]),
    (
        spec(on_failure=OnFailure.CONTINUE, max_consecutive_failures=20),
        [EQUAL, "20 runs fail one after another", "20 runs are done"],
    ),
    (spec(on_failure=OnFailure.CONTINUE, max_consecutive_failures=21), [EQUAL, "20 runs are done"]),
    (
        spec(max_duration_seconds=7200, max_cost_usd=Decimal(2)),
        [
            EQUAL,
            "A run fails",
            "20 runs are done",
            "2 h have passed, counted from the first dispatch; a run then in flight may take 15 min more",
            "Its runs have cost $2.00, checked between runs; a run that reports no cost adds nothing",
        ],
    ),
]


@pytest.mark.parametrize(("limits", "lines"), SUMMARY)
def test_the_summary_says_what_will_end_the_loop(limits, lines):
    assert summary(limits, 900) == lines


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (spec(), "Nothing limits its time or its cost."),
        (spec(**POLL), "Equal replies do not end it. Nothing limits its time or its cost."),
        (spec(max_duration_seconds=7200), "Nothing limits its cost."),
        (spec(max_cost_usd=Decimal(1)), "Nothing limits its time."),
        (spec(max_duration_seconds=7200, max_cost_usd=Decimal(1)), ""),
        (
            spec(max_runs=2, max_duration_seconds=7200, on_failure=OnFailure.CONTINUE, max_cost_usd=Decimal(1)),
            "Equal replies do not end it. Failed runs do not end it.",
        ),
    ],
)
def test_what_does_not_limit_the_loop_is_said_too(limits, text):
    assert not_limited(limits) == text


WORST = [
    (
        spec(),
        600,
        "At most 20 runs, at most 3 h 20 min, no cost ceiling",
        "20 × 10 min, not counting waits for a free slot.",
    ),
    (
        spec(**POLL),
        900,
        "At most 30 runs, at most 8 h 28 min, no cost ceiling",
        "30 × 15 min + 29 × 2 min delay, not counting waits for a free slot.",
    ),
    (
        spec(max_runs=1, delay_seconds=3600, timeout_per_run=10),
        900,
        "At most 1 run, at most 10 s, no cost ceiling",
        "1 × 10 s, not counting waits for a free slot.",
    ),
    (
        spec(max_duration_seconds=7200, max_cost_usd=Decimal("0.5")),
        900,
        "At most 20 runs, at most 2 h 15 min, at most $0.50 plus one run’s cost",
        "2 h from the first dispatch + the last run’s 15 min.",
    ),
    (
        spec(max_duration_seconds=604_800),
        600,
        "At most 20 runs, at most 3 h 20 min, no cost ceiling",
        "20 × 10 min, not counting waits for a free slot.",
    ),
    (
        spec(max_runs=100, delay_seconds=3600, timeout_per_run=7200),
        7200,
        "At most 100 runs, at most 12 days 11 h, no cost ceiling",
        "100 × 2 h + 99 × 1 h delay, not counting waits for a free slot.",
    ),
]


@pytest.mark.parametrize(("limits", "agent_timeout", "worst", "how"), WORST, ids=[row[2] for row in WORST])
def test_the_worst_case_is_worked_out_from_every_limit(limits, agent_timeout, worst, how):
    assert worst_case(limits, agent_timeout) == worst
    assert reckoning(limits, agent_timeout) == how


def test_a_run_is_never_given_more_than_the_agent_allows():
    assert longest_seconds(spec(max_runs=2, timeout_per_run=900), 300) == 600


@pytest.mark.parametrize(
    ("timeout", "runs", "shown"),
    [(59, 1, "59 s"), (61, 60, "1 h 1 min"), (3661, 1, "1 h 2 min"), (7199, 1, "2 h"), (7199, 12, "1 day")],
)
def test_an_upper_bound_is_rounded_up(timeout, runs, shown):
    assert f"at most {shown}," in worst_case(spec(max_runs=runs, timeout_per_run=timeout), 7200)
