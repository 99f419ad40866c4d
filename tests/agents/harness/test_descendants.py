"""Ending turns and their left-overs; with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agents.harness import descendants, process, procfs
from tests.agents.harness.conftest import is_there, living, said, until

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


def test_cancelling_a_polite_agent_takes_a_moment_and_is_recorded(stage):
    order = stage.sh("echo begun; sleep 60")
    running = stage.start(order)
    until(lambda: said(order))
    began = time.monotonic()
    process.end(order.execution_id, running, grace=5)
    assert time.monotonic() - began < 1
    assert process.exit_record(order.folder).rc == 128 + signal.SIGTERM
    stage.wait(running)
    assert stage.collect(order).error == "ended by SIGTERM (signal 15)\nbegun"


def test_a_stopped_agent_is_ended(stage):
    order = stage.sh("echo $$; sleep 60")
    running = stage.start(order)
    pid = int(until(lambda: said(order)))
    os.kill(pid, signal.SIGSTOP)
    os.kill(running.pid, signal.SIGSTOP)
    began = time.monotonic()
    process.end(order.execution_id, running, grace=5)
    assert time.monotonic() - began < 1
    assert not is_there(pid)
    assert process.exit_record(order.folder) is not None


def test_a_deaf_agent_is_killed_after_the_grace(stage):
    order = stage.python(DEAF)
    running = stage.start(order)
    until(lambda: said(order))
    began = time.monotonic()
    process.end(order.execution_id, running, grace=0.5)
    assert 0.5 <= time.monotonic() - began < 2
    assert process.exit_record(order.folder).rc == 128 + signal.SIGKILL
    assert not stage.collect(order).timed_out


def test_cancelling_ends_what_has_left_the_session_or_dropped_its_environment(stage):
    order = stage.sh("setsid sleep 60 & env -i sleep 60 & echo $!; sleep 60")
    running = stage.start(order)
    bare = int(until(lambda: said(order)))
    until(lambda: procfs.read(bare, "environ") == b"")
    assert len(living(order)) == 5  # the wrapper, timeout, the agent and two of the sleeps
    process.end(order.execution_id, running, grace=2)
    assert not living(order)
    assert not is_there(bare)


def test_an_agent_that_keeps_forking_is_ended(stage):
    order = stage.python(
        "import os, time\nfor n in range(300):\n  os.fork() or (os.setsid(), time.sleep(60))\n  time.sleep(0.01)"
    )
    running = stage.start(order)
    until(lambda: len(living(order)) > 10)
    process.end(order.execution_id, running, grace=2)
    assert not living(order)


def test_ending_what_is_over_is_harmless(stage):
    order = stage.order("true")
    running = stage.start(order)
    stage.wait(running)
    process.end(order.execution_id, running, grace=1)
    process.end(order.execution_id, None, grace=1)
    assert stage.collect(order).succeeded


def test_another_turn_is_left_alone(stage):
    mine, other = stage.sh("echo begun; sleep 60"), stage.sh("echo begun; sleep 60")
    running, bystander = stage.start(mine), stage.start(other)
    until(lambda: said(mine) and said(other))
    process.end(mine.execution_id, running, grace=1)
    assert bystander.alive()
    assert len(living(other)) == 4 or len(living(other)) == 3
    assert process.end_leftovers({mine.execution_id}, 0) == 0
    process.end(other.execution_id, bystander, grace=1)


def test_an_id_that_begins_like_another_is_another(stage):
    order = stage.sh("echo begun; sleep 60")
    running = stage.start(order)
    until(lambda: said(order))
    assert process.end_leftovers({order.execution_id[:-1], order.execution_id + "0"}, 0) == 0
    assert running.alive()
    process.end(order.execution_id, running, grace=1)


def test_left_overs_of_many_turns_are_ended_together(stage):
    orders = [stage.sh("setsid sleep 60 & exit 0") for _ in range(5)] + [stage.order("true")]
    for order in orders:
        stage.run(order)
    until(lambda: sum(map(len, process.marked({order.execution_id for order in orders}).values())) == 5)
    assert process.end_leftovers({order.execution_id for order in orders}, 2) == 5
    assert process.marked({order.execution_id for order in orders}) == {}


def test_a_left_over_with_a_cleared_environment_is_found_by_its_wrapper(stage):
    order = stage.sh("env -i sleep 60 & echo $!")
    running = stage.start(order)
    stage.wait(running)
    bare = int(said(order))
    until(lambda: procfs.read(bare, "environ") == b"")
    assert process.end_leftovers({order.execution_id}, 1) == 0
    assert is_there(bare)
    assert process.end_leftovers({order.execution_id}, 1, [running]) == 1
    assert not is_there(bare)


def test_a_stranger_in_a_session_of_that_number_is_spared(stage):
    """A session whose leader is gone, as of a daemon, with a number that a wrapper of long ago had."""
    program = "import os, time; os.fork() or time.sleep(60)"
    leader = subprocess.Popen(["/usr/bin/env", "-i", "python3", "-c", program], start_new_session=True)
    leader.wait()
    member = until(lambda: [pid for pid in procfs.pids() if procfs.session(pid) == leader.pid])[0]
    folder = stage.base / "old"
    folder.mkdir()
    old = process.Process(leader.pid, 1, folder)
    try:
        for record in (None, "0 1.00 2.00 60\n"):
            if record:
                (folder / "exit").write_text(record)
            process.end("exec_of_long_ago", old, grace=0)
            assert process.end_leftovers({"exec_of_long_ago"}, 0, [old]) == 0
            assert is_there(member)
    finally:
        os.kill(member, signal.SIGKILL)


def test_a_stranger_that_has_become_leader_of_that_session_is_spared(stage):
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        old = process.Process(stranger.pid, 1, stage.base)
        process.end("exec_of_long_ago", old, grace=0)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_signal_reaches_only_the_very_process():
    child = subprocess.Popen(["sleep", "60"])
    try:
        began = process.start_time(child.pid)
        descendants._signal((child.pid, began - 1), signal.SIGKILL)
        descendants._signal((child.pid, began + 1), signal.SIGKILL)
        assert child.poll() is None
        descendants._signal((child.pid, began), signal.SIGKILL)
        assert child.wait(5) == -signal.SIGKILL
        descendants._signal((child.pid, began), signal.SIGKILL)  # gone: nothing happens
    finally:
        child.kill()
        child.wait()


def test_marks_of_all_turns_are_found_in_one_look(stage):
    orders = [stage.sh("echo begun; sleep 60") for _ in range(2)]
    running = [stage.start(order) for order in orders]
    until(lambda: all(said(order) for order in orders))
    found = process.marked(None)
    for order, one in zip(orders, running, strict=True):
        assert one.pid in found[order.execution_id]
        assert process.marked({order.execution_id}) == {order.execution_id: found[order.execution_id]}
        process.end(order.execution_id, one, grace=1)
    assert process.marked({"exec_nobody"}) == {}


# -- what the kernel says -------------------------------------------------------------------------
def test_a_zombie_is_dead_and_a_living_process_is_not():
    child = subprocess.Popen(["true"])
    fd = os.pidfd_open(child.pid)
    os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOWAIT)
    os.close(fd)
    began = process.start_time(child.pid)
    assert began is not None
    assert not process.alive(child.pid, began)
    child.wait()
    assert process.start_time(child.pid) is None
    mine = process.start_time(os.getpid())
    assert process.alive(os.getpid(), mine)
    assert not process.alive(os.getpid(), mine + 1)


@pytest.mark.parametrize("name", [b"sh", b"a b", b"a) R 1 2 (", b")) 1 2 3", b"(", b""])
def test_the_start_time_is_read_after_the_last_bracket(name):
    line = b"12 (" + name + b") S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 8 9"
    assert procfs.start_field(line) == 987654


def test_a_process_with_an_odd_name_has_a_start_time(stage):
    program = stage.base / "x) R 1 (y"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(program), "60"])
    try:
        until(lambda: b") R 1 (" in Path(f"/proc/{child.pid}/stat").read_bytes())
        assert process.start_time(os.getpid()) <= process.start_time(child.pid)
        assert process.alive(child.pid, process.start_time(child.pid))
    finally:
        child.kill()
        child.wait()


def test_the_boot_has_a_name_that_stays():
    assert process.boot_id() == process.boot_id()
    assert len(process.boot_id()) == 36
