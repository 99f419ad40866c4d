"""How turns end: exit codes, signals, the limit; with real processes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest

from agents.harness import process
from tests.agents.harness.conftest import Stage, is_there, living, said, until


@pytest.mark.parametrize("code", [1, 3, 124, 125, 126, 127, 200, 255])
def test_an_exit_code_is_recorded_and_fails_the_turn(stage, code):
    order = stage.sh(f"echo why >&2; exit {code}")
    result = stage.run(order)
    assert process.exit_record(order.folder).rc == code
    assert (result.succeeded, result.error, result.timed_out) == (False, "why", False)


def test_an_exit_code_alone_is_said(stage):
    assert stage.run(stage.sh("exit 7")).error == "exit code 7"


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "PIPE", "HUP"])
def test_a_killed_agent_names_the_signal(stage, name):
    result = stage.run(stage.sh(f"echo so far; kill -{name} $$"))
    number = getattr(signal, f"SIG{name}").value
    assert result.error.startswith(f"ended by SIG{name} (signal {number})")
    assert "so far" in result.error
    assert not result.timed_out


def test_the_record_is_on_the_boot_clock(stage):
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    order = stage.order("sleep", "0.3")
    result = stage.run(order)
    record = process.exit_record(order.folder)
    assert before - 0.02 <= record.began <= record.ended <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert 290 <= result.duration_ms < 2000


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b" " * 64,
        b"0 1.00 2.0",
        b"0 1.00 2.00 60",
        b"\n",
        b"x 1.00 2.00 60\n",
        b"0 1.00 60\n",
        b"0  1.00 2.00 60\n",
    ],
)
def test_only_a_complete_line_is_a_record(tmp_path, record):
    (tmp_path / "exit").write_bytes(record)
    assert process.exit_record(tmp_path) is None


def test_a_record_may_be_followed_by_what_kept_its_place(tmp_path):
    (tmp_path / "exit").write_bytes(b"137 12.34 56.78 60\n" + b" " * 48)
    record = process.exit_record(tmp_path)
    assert (record.rc, record.duration_ms, record.limit) == (137, 44_440, 60)


def test_while_it_runs_there_is_no_record(stage):
    order = stage.sh("echo begun; sleep 0.3")
    running = stage.start(order)
    until(lambda: said(order))
    assert (order.folder / "exit").exists()
    assert process.exit_record(order.folder) is None
    stage.wait(running)
    assert process.exit_record(order.folder).rc == 0


# -- the limit ------------------------------------------------------------------------------------
def test_a_polite_agent_ends_at_its_limit(stage):
    order = stage.sh("echo thinking; sleep 30", timeout_seconds=1)
    began = time.monotonic()
    result = stage.run(order)
    assert 0.95 <= time.monotonic() - began < 2
    assert result.timed_out
    assert result.error == "timed out after 1 s\nthinking"


def test_an_agent_that_answers_the_limit_with_success_has_timed_out(stage):
    order = stage.sh("trap 'echo late; exit 0' TERM; while :; do sleep 0.05; done", timeout_seconds=1)
    result = stage.run(order)
    assert not result.succeeded
    assert result.error.startswith("timed out after 1 s")
    assert said(order) == "late\n"


FAMILY = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def child(begin):
    pid = os.fork()
    if pid == 0:
        begin()
        while True:
            signal.pause()
    return pid

def bare():
    os.setpgid(0, 0)
    os.execve("/bin/sleep", ["sleep", "600"], {})

print(os.getpid(), child(lambda: None), child(os.setsid), child(bare), flush=True)
while True:
    signal.pause()
"""


def test_at_the_limit_everything_goes_with_nobody_watching(stage):
    """All deaf to TERM: an agent, its child, one in a new session, one in a new group with a cleared environment."""
    order = stage.python(FAMILY, timeout_seconds=1)
    worker, wrapper = stage.worker(order)
    worker.kill()
    worker.wait()
    began = time.monotonic()
    pids = [int(pid) for pid in until(lambda: said(order).split())]
    assert len(pids) == 4
    assert all(is_there(pid) for pid in pids)
    until(lambda: process.exit_record(order.folder))
    assert (
        time.monotonic() - began < 1 + 2 * 1 + 10
    )  # the limit and two times the grace, on a machine that is busy otherwise
    until(lambda: not [pid for pid in (*pids, wrapper) if is_there(pid)], timeout=1)
    result = stage.collect(order)
    assert (result.timed_out, result.error.split("\n")[0]) == (True, "timed out after 1 s")


@pytest.mark.parametrize("end", ["exit 124", "exit 137", "kill -9 $$"])
def test_before_the_limit_it_was_not_the_limit(stage, end):
    result = stage.run(stage.sh(f"{end}", timeout_seconds=5))
    assert not result.timed_out
    assert "timed out" not in result.error


def test_the_limit_it_was_started_with_counts_even_if_the_order_says_another_by_now(stage):
    order = stage.sh("sleep 30", timeout_seconds=1)
    stage.wait(stage.start(order))
    assert stage.collect(replace(order, timeout_seconds=600)).error == "timed out after 1 s"


def test_an_agent_that_stops_its_whole_group_is_ended_all_the_same(stage):
    """The `timeout` that is to enforce the limit is stopped as well; the watcher lets it go on."""
    order = stage.sh("echo stopping; kill -STOP 0; sleep 60", timeout_seconds=1)
    began = time.monotonic()
    result = stage.run(order)
    assert result.timed_out
    assert time.monotonic() - began < 5
    assert not living(order)


def test_an_agent_that_signals_its_own_group_does_not_lose_its_record(stage):
    result = stage.run(stage.sh("echo oops >&2; kill -TERM 0; sleep 5"))
    assert result.error == "ended by SIGTERM (signal 15)\noops"


# -- what is left behind --------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["", "setsid "], ids=["same session", "new session"])
def test_a_child_that_keeps_stdout_open_does_not_hold_the_turn(stage, how):
    order = stage.sh(f"{how}sleep 30 & echo answered")
    began = time.monotonic()
    assert stage.run(order).response == "answered\n"
    assert time.monotonic() - began < 2
    assert len(living(order)) == 1
    assert process.end_leftovers({order.execution_id}, 1) == 1
    assert not living(order)


def test_a_killed_wrapper_leaves_no_record_and_perhaps_an_agent(stage):
    order = stage.sh("echo begun; sleep 30")
    running = stage.start(order)
    until(lambda: said(order))
    os.kill(running.pid, signal.SIGKILL)
    stage.wait(running)
    assert process.exit_record(order.folder) is None
    assert living(order)
    process.end(order.execution_id, running, grace=1)
    assert not living(order)


def test_many_turns_at_once_each_end_for_themselves(stage: Stage):
    orders = [stage.sh(f"sleep 0.{n % 5}; echo {n}; exit {n % 2}") for n in range(40)]
    running = [stage.start(order) for order in orders]
    for one in running:
        stage.wait(one)
    for n, order in enumerate(orders):
        result = stage.collect(order)
        assert (result.response or result.error).strip() == str(n)
        assert result.succeeded is (n % 2 == 0)
