"""The platform dialect of loops: start, list, read, stop, and who may."""

from datetime import timedelta

import pytest

from agents.models import Audit, CallPermission, Share
from loops.models import Loop
from tests.conftest import caller, make_agent
from tests.ledger import bad, claim, ok, play, start
from tests.rest import Rest, agent_key, person

LOOPS = "/api/agents/falcon/loops"
BODY = {"message": "Process item {{run}}", "max_runs": 3}
STATUS_FIELDS = {
    "loop_id", "kind", "agent_name", "status", "stop_reason", "waiting_for", "error", "message", "max_runs", "stop_signal",
    "delay_seconds", "timeout_per_run", "max_duration_seconds", "max_cost_usd", "no_progress_threshold", "on_failure",
    "max_consecutive_failures", "model", "allowed_tools", "runs_completed", "failed_runs", "total_cost", "unknown_cost_runs",
    "last_response", "stop_run", "stop_excerpt", "stop_requested_at", "stopped_by", "started_by", "created_at", "started_at",
    "completed_at", "next_run_at", "elapsed_seconds", "version", "record",
}  # fmt: skip
RUN_FIELDS = {
    "run_number", "execution_id", "status", "response_preview", "cost", "duration_ms", "error", "started_at", "completed_at",
}  # fmt: skip


def status(rest, loop):
    answer = rest.get(f"/api/loops/{loop.pk}")
    assert answer.status_code == 200, answer.content
    return answer.json()


# -- starting ---------------------------------------------------------------------------------------
def test_a_start_is_answered_with_the_id_at_once(cast):
    answer = person(cast.bob).post(LOOPS, BODY)
    assert answer.status_code == 202
    loop = Loop.objects.get()
    assert answer.json() == {
        "loop_id": loop.pk,
        "status": "queued",
        "agent_name": "falcon",
        "max_runs": 3,
        "on_failure": "abort",
    }
    assert loop.started_by == "bob"
    assert Audit.objects.get(action="loop.start").through == "rest"


def test_limits_are_echoed_as_stored(cast):
    sent = {
        "message": "m",
        "max_runs": 100,
        "stop_signal": " [[DONE]]\n",
        "delay_seconds": 3600,
        "timeout_per_run": 10,
        "max_duration_seconds": 604800,
        "max_cost_usd": 0.1234567,
        "no_progress_threshold": 0,
        "on_failure": "continue",
        "max_consecutive_failures": 100,
        "model": "small",
        "allowed_tools": [],
    }
    alice = person(cast.alice)
    alice.post(LOOPS, sent)
    said = status(alice, Loop.objects.get())
    assert {name: said[name] for name in sent} == {**sent, "stop_signal": "[[DONE]]", "max_cost_usd": 0.123457}


@pytest.mark.parametrize(
    "optional",
    ["stop_signal", "delay_seconds", "timeout_per_run", "max_duration_seconds", "max_cost_usd", "no_progress_threshold",
     "on_failure", "max_consecutive_failures", "model", "allowed_tools"],
)  # fmt: skip
def test_null_in_an_optional_field_is_its_default_and_turns_no_guard_off(cast, optional):
    alice = person(cast.alice)
    assert alice.post(LOOPS, {**BODY, optional: None}).status_code == 202
    said = status(alice, Loop.objects.get())
    defaults = {"delay_seconds": 0, "no_progress_threshold": 3, "on_failure": "abort", "max_consecutive_failures": 3}
    assert said[optional] == defaults.get(optional)


@pytest.mark.parametrize(
    "change",
    [
        {"max_runs": 0}, {"max_runs": 101}, {"max_runs": 1.0}, {"max_runs": True}, {"max_runs": None}, {"max_runs": "3"},
        {"message": ""}, {"message": " \t"}, {"message": "x" * 100_001}, {"message": "a\0"}, {"message": "\udc00"},
        {"stop_signal": "x" * 201}, {"delay_seconds": -1}, {"timeout_per_run": 9}, {"max_duration_seconds": 0},
        {"no_progress_threshold": 1}, {"max_cost_usd": 0}, {"max_cost_usd": "NaN"}, {"on_failure": "retry"},
        {"on_failure": ["abort"]}, {"max_consecutive_failures": 0}, {"allowed_tools": "Read"}, {"allowed_tools": ["a,b"]},
        {"model": 5}, {"max_iterations": 5}, {"stopSignal": "x", "maxCost": 1}, {"max_runs": {}, "delay_seconds": []},
    ],
    ids=lambda change: "-".join(f"{name}={str(value)[:12]!r}" for name, value in change.items()),
)  # fmt: skip
def test_bad_input_is_refused_naming_every_field_and_leaves_no_loop(cast, change):
    answer = person(cast.alice).post(LOOPS, {**BODY, **change})
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == set(change)
    assert answer.json()["detail"].startswith(next(iter(answer.json()["errors"])))
    assert not Loop.objects.exists()


def test_nothing_at_all_names_what_is_required(cast):
    answer = person(cast.alice).post(LOOPS)
    assert answer.status_code == 400 and set(answer.json()["errors"]) == {"message", "max_runs"}


def test_a_timeout_above_the_agents_is_refused_with_both_figures(cast):
    answer = person(cast.alice).post(LOOPS, {**BODY, "timeout_per_run": 3601})
    said = answer.json()
    assert answer.status_code == 400 and set(said["errors"]) == {"timeout_per_run"}
    assert said["error"] == "loop_timeout_exceeds_agent_cap"
    assert (said["agent_cap_seconds"], said["requested_seconds"]) == (3600, 3601)
    assert person(cast.alice).post(LOOPS, {**BODY, "max_duration_seconds": 3599}).status_code == 400


def test_an_agent_that_does_not_run_starts_no_loop(cast):
    alice = person(cast.alice)
    alice.post("/api/agents/falcon/stop")
    answer = alice.post(LOOPS, BODY)
    assert answer.status_code == 409 and "not running" in answer.json()["detail"]


def test_too_many_active_loops_are_429_with_retry_after(cast, settings):
    settings.TRINITY_MAX_ACTIVE_PER_AGENT = 1
    alice = person(cast.alice)
    assert alice.post(LOOPS, BODY).status_code == 202
    answer = alice.post(LOOPS, BODY)
    assert answer.status_code == 429 and int(answer["Retry-After"]) >= 1
    assert Loop.objects.count() == 1


def test_the_same_idempotency_key_starts_one_loop(cast):
    alice = person(cast.alice)
    first, again = (alice.post(LOOPS, BODY, Idempotency_Key="k-1") for _ in range(2))
    assert first.status_code == again.status_code == 202 and first.json()["loop_id"] == again.json()["loop_id"]
    assert alice.post(LOOPS, {**BODY, "max_runs": 2}, Idempotency_Key="k-1").status_code == 409
    assert person(cast.bob).post(LOOPS, BODY, Idempotency_Key="k-1").json()["loop_id"] != first.json()["loop_id"]
    for key in ("", "x" * 256, "a\tb"):
        answer = alice.post(LOOPS, BODY, Idempotency_Key=key)
        assert answer.status_code == 400 and set(answer.json()["errors"]) == {"Idempotency-Key"}
    assert Loop.objects.count() == 2


# -- reading ----------------------------------------------------------------------------------------
def test_a_new_loop_says_what_it_is_and_that_nothing_happened_yet(cast):
    alice = person(cast.alice)
    alice.post(LOOPS, BODY)
    said = status(alice, Loop.objects.get())
    assert set(said) == STATUS_FIELDS | {"runs"}
    assert said["runs"] == []
    unset = {name for name, value in said.items() if value is None}
    assert unset == STATUS_FIELDS - {
        "loop_id", "kind", "agent_name", "status", "message", "max_runs", "delay_seconds", "no_progress_threshold",
        "on_failure", "max_consecutive_failures", "runs_completed", "failed_runs", "unknown_cost_runs", "started_by",
        "created_at", "version",
    }  # fmt: skip
    assert (said["kind"], said["status"], said["started_by"], said["message"]) == (
        "message",
        "queued",
        "alice",
        BODY["message"],
    )


def test_a_loop_under_way_shows_its_runs_from_their_beginning(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    alice = person(cast.alice)
    play(cast.falcon, now, ok("r" * 600, cost="0.25"))
    said = status(alice, loop)
    first, second = said["runs"]
    assert set(first) == RUN_FIELDS
    assert (first["run_number"], first["status"], first["cost"], first["error"]) == (1, "completed", 0.25, None)
    assert len(first["response_preview"]) == 500 and first["completed_at"].endswith("Z")
    assert (second["run_number"], second["status"], second["completed_at"]) == (2, "running", None)
    assert (said["status"], said["runs_completed"], said["total_cost"]) == ("running", 1, 0.25)
    assert said["last_response"] == "r" * 600 and said["elapsed_seconds"] >= 0


def test_a_run_that_waits_is_not_told_of(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, delay_seconds=600)
    play(cast.falcon, now, ok())
    said = status(person(cast.alice), loop)
    assert [run["run_number"] for run in said["runs"]] == [1]
    assert said["waiting_for"] == "delay"
    assert said["next_run_at"] == (now + timedelta(seconds=601)).isoformat().replace("+00:00", "Z")


def test_money_is_a_number_or_null_where_no_run_reported_any(cast, now):
    alice = person(cast.alice)
    silent = start(caller(cast.alice), cast.falcon, now, max_runs=2)
    play(cast.falcon, now, ok("a"), ok("b"))
    said = status(alice, silent)
    assert (said["total_cost"], said["unknown_cost_runs"]) == (None, 2)
    free = start(caller(cast.alice), cast.falcon, now, max_runs=2)
    play(cast.falcon, now, ok("a", cost="0"), ok("b"))
    said = status(alice, free)
    assert (said["total_cost"], said["unknown_cost_runs"], said["runs"][0]["cost"], said["runs"][1]["cost"]) == (
        0,
        1,
        0,
        None,
    )
    tiny = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok("a", cost="0.000001"))
    assert status(alice, tiny)["total_cost"] == 0.000001


def test_an_end_by_the_signal_shows_its_proof(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, stop_signal="[[DONE]]")
    play(cast.falcon, now, ok("no"), ok("yes [[DONE]]"))
    said = status(person(cast.alice), loop)
    assert (said["status"], said["stop_reason"], said["stop_run"]) == ("completed", "stop_signal_matched", 2)
    assert "[[DONE]]" in said["stop_excerpt"] and said["completed_at"] and said["error"] is None


def test_a_failed_loop_says_the_error_of_its_run(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    play(cast.falcon, now, bad("the disk is full"))
    said = status(person(cast.alice), loop)
    assert (said["status"], said["stop_reason"], said["failed_runs"], said["last_response"]) == (
        "failed",
        "error",
        0,
        None,
    )
    assert "the disk is full" in said["error"] and said["runs"][0]["error"] == "the disk is full"


def test_one_run_comes_with_its_whole_response_and_message(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, message="item {{run}}")
    play(cast.falcon, now, ok("r" * 5000))
    alice = person(cast.alice)
    run = alice.get(f"/api/loops/{loop.pk}/runs/1").json()
    assert set(run) == RUN_FIELDS | {"loop_id", "message", "response", "response_truncated"}
    assert (run["response"], run["message"], run["response_truncated"]) == ("r" * 5000, "item 1", False)
    assert alice.get(f"/api/loops/{loop.pk}/runs/2").json()["status"] == "running"
    for number in (0, 3):
        assert alice.get(f"/api/loops/{loop.pk}/runs/{number}").status_code == 404


def test_reading_takes_as_many_queries_after_fifty_runs_as_after_one(cast, now, django_assert_num_queries):
    alice = person(cast.alice)
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=100, no_progress_threshold=0)
    play(cast.falcon, now, ok())
    status(alice, loop)  # notes the use of the key
    with django_assert_num_queries(3):  # key, loop, runs
        status(alice, loop)
    _more_runs(loop, 50)
    with django_assert_num_queries(3):
        assert len(status(alice, loop)["runs"]) == 52


def _more_runs(loop, count):
    """Finished runs as the engine would have left them, without playing each one."""
    from agents.models import Execution
    from loops.models import LoopRun

    first = loop.runs.order_by("run_number").first()
    turns = [
        Execution(agent_id=loop.agent_id, state="success", triggered_by="loop", requested_by="alice", message="m",
                  loop_id=loop.pk, finished_at=first.completed_at)
        for _ in range(count)
    ]  # fmt: skip
    Execution.objects.bulk_create(turns)
    LoopRun.objects.bulk_create(
        LoopRun(loop=loop, run_number=50 + place, execution=turn, status="completed", completed_at=first.completed_at)
        for place, turn in enumerate(turns)
    )


# -- listing ----------------------------------------------------------------------------------------
def test_the_list_is_newest_first_filtered_and_without_runs(cast, now):
    done = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok("r"))
    going = start(caller(cast.alice), cast.falcon, now)
    heron = make_agent(cast.alice, "heron")
    start(caller(cast.alice), heron, now)
    alice = person(cast.alice)
    rows = alice.get(LOOPS).json()
    assert [row["loop_id"] for row in rows] == [going.pk, done.pk]
    assert all(set(row) == STATUS_FIELDS for row in rows)
    assert rows[1]["last_response"] == "r"
    for word, expected in (("completed", [done.pk]), ("queued", [going.pk]), ("interrupted", [])):
        assert [row["loop_id"] for row in alice.get(LOOPS, status=word).json()] == expected
    whole = alice.get(LOOPS, include="runs").json()
    assert [len(row["runs"]) for row in whole] == [0, 1]
    assert whole[1] == status(alice, done)
    assert alice.get(LOOPS, include="everything").status_code == 400


def test_pages_follow_each_other(cast, now):
    loops = [start(caller(cast.alice), cast.falcon, now).pk for _ in range(5)]
    alice, seen, url = person(cast.alice), [], f"{LOOPS}?limit=2&status=queued"
    for expected in (2, 2, 1):
        answer = alice.client.get(url)
        assert len(answer.json()) == expected
        seen += [row["loop_id"] for row in answer.json()]
        url = answer.headers.get("Link", "")[1:].partition(">")[0]
        start(caller(cast.alice), cast.falcon, now)
    assert seen == loops[::-1] and not url


def test_listing_takes_one_query_more_with_runs_and_none_more_for_more_loops(cast, now, django_assert_num_queries):
    alice = person(cast.alice)
    alice.get(LOOPS)
    for loops, runs in ((1, 1), (19, 50)):
        for _ in range(loops):
            loop = start(caller(cast.alice), cast.falcon, now, max_runs=1)
            play(cast.falcon, now, ok())
            _more_runs(loop, runs)
        with django_assert_num_queries(3):  # key, agent, loops
            alice.get(LOOPS, limit=200)
        with django_assert_num_queries(4):  # and the runs of all of them
            rows = alice.get(LOOPS, limit=200, include="runs").json()
    assert len(rows) == 20 and len(rows[0]["runs"]) == 51


# -- stopping ---------------------------------------------------------------------------------------
def test_stop_is_answered_and_may_be_repeated(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    claim(cast.falcon, now)
    for _ in range(2):
        answer = person(cast.bob).post(f"/api/loops/{loop.pk}/stop")
        assert answer.status_code == 200 and answer.json() == {"loop_id": loop.pk, "status": "stopping"}
    said = status(person(cast.alice), loop)
    assert said["stopped_by"] == "bob" and said["stop_requested_at"].endswith("Z")


def test_stop_of_an_ended_loop_says_so(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now, max_runs=1)
    play(cast.falcon, now, ok())
    assert person(cast.alice).post(f"/api/loops/{loop.pk}/stop").json()["status"] == "already_done"


def test_stop_takes_any_body(cast, now):
    loop = start(caller(cast.alice), cast.falcon, now)
    assert person(cast.alice).post(f"/api/loops/{loop.pk}/stop", raw=b"{nonsense").status_code == 200


# -- who may ----------------------------------------------------------------------------------------
def verdicts(rest, agent, loop_id):
    calls = {
        "list": rest.get(f"/api/agents/{agent}/loops"),
        "start": rest.post(f"/api/agents/{agent}/loops", BODY),
        "read": rest.get(f"/api/loops/{loop_id}"),
        "run": rest.get(f"/api/loops/{loop_id}/runs/1"),
        "stop": rest.post(f"/api/loops/{loop_id}/stop"),
    }
    for answer in calls.values():
        if answer.status_code >= 400:
            said = answer.content.decode()
            assert answer.json()["detail"] and not any(name in said for name in ("falcon", "alice", BODY["message"]))
    return {name: answer.status_code for name, answer in calls.items()}


MAY = {"list": 200, "start": 202, "read": 200, "run": 200, "stop": 200}
REFUSED = dict.fromkeys(MAY, 403)
HIDDEN = dict.fromkeys(MAY, 404)


@pytest.fixture
def waiting(cast, now):
    """alice's loop on falcon with one finished run."""
    loop = start(caller(cast.alice), cast.falcon, now, delay_seconds=3600)
    play(cast.falcon, now, ok())
    return loop


@pytest.mark.parametrize("who", ["alice", "bob", "root"])
def test_owner_admin_and_shared_people_may_everything(cast, waiting, who):
    assert verdicts(person(getattr(cast, who)), "falcon", waiting.pk) == MAY


def test_a_stranger_is_refused_everything_and_nothing_happens(cast, waiting):
    assert verdicts(person(cast.carol), "falcon", waiting.pk) == REFUSED
    waiting.refresh_from_db()
    assert waiting.stop_requested_at is None and Loop.objects.count() == 1
    refused = Audit.objects.filter(actor="carol", verdict="refused").values_list("action", "target")
    assert set(refused) == {
        ("loop.list", "falcon"),
        ("loop.start", "falcon"),
        ("loop.read", waiting.pk),
        ("loop.stop", waiting.pk),
    }


def test_a_client_finds_nothing_even_where_there_is_a_share(cast, waiting):
    Share.objects.create(agent=cast.falcon, user=cast.dora)
    assert verdicts(person(cast.dora), "falcon", waiting.pk) == HIDDEN


def test_what_does_not_exist_is_404_for_everybody(cast):
    for rest in (person(cast.root), person(cast.carol), agent_key(cast.falcon)):
        assert verdicts(rest, "no-such", "loop_nothere0000000000") == HIDDEN
    assert set(verdicts(Rest(), "falcon", "loop_nothere0000000000").values()) == {401}


def test_who_started_it_may_read_and_stop_after_the_share_is_gone(cast, now):
    loop = start(caller(cast.bob), cast.falcon, now, delay_seconds=3600)
    play(cast.falcon, now, ok())
    Share.objects.all().delete()
    assert verdicts(person(cast.bob), "falcon", loop.pk) == {**MAY, "list": 403, "start": 403}


def test_an_agent_loops_itself_and_what_it_may_call_in_that_direction(cast, waiting, now):
    heron = make_agent(cast.alice, "heron")
    assert verdicts(agent_key(cast.falcon), "falcon", waiting.pk) == MAY
    assert verdicts(agent_key(heron), "falcon", waiting.pk) == REFUSED
    CallPermission.objects.create(caller=heron, target=cast.falcon)
    assert verdicts(agent_key(heron), "falcon", waiting.pk) == MAY
    assert Loop.objects.first().agent == cast.falcon
    CallPermission.objects.all().delete()
    mine = Loop.objects.get(started_by="agent:heron")
    assert agent_key(heron).get(f"/api/loops/{mine.pk}").status_code == 403
