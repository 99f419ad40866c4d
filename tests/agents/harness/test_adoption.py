"""Taking turns over from workers that were killed or frozen, at every moment; with real processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agents.harness import process, procfs
from agents.harness.process import Taken, take_over
from tests.agents.harness.conftest import is_there, living, said, until

STAT = Path("/proc/self/stat")


def test_a_turn_that_was_never_started_never_will_be(stage):
    order = stage.order("touch", "called")
    assert take_over(order.folder, same_boot=True) == (Taken.NEVER_STARTED, None)
    late = stage.start(order)  # its worker was only slow
    stage.wait(late)
    assert not (order.workspace / "called").exists()
    assert process.exit_record(order.folder) is None
    assert stage.run(replace(order, folder=order.folder.with_name("2"))).succeeded
    assert (order.workspace / "called").exists()


def test_taking_over_twice_finds_the_same(stage):
    order = stage.order("true")
    for _ in range(3):
        assert take_over(order.folder, same_boot=True) == (Taken.NEVER_STARTED, None)
    assert take_over(order.folder, same_boot=False) == (Taken.NEVER_STARTED, None)


def test_a_running_turn_is_watched_by_the_new_worker(stage):
    order = stage.sh("echo begun; sleep 0.5; echo done; exit 3")
    worker, wrapper = stage.worker(order)
    until(lambda: said(order))
    worker.kill()
    worker.wait()
    kind, running = take_over(order.folder, same_boot=True)
    assert (kind, running.pid, running.execution_id) == (Taken.RUNNING, wrapper, order.execution_id)
    assert running.limit == order.timeout_seconds
    stage.wait(running)
    assert process.exit_record(order.folder).rc == 3
    assert stage.collect(order).error == "begun\ndone"


def test_a_turn_that_ended_unwatched_is_collected(stage):
    order = stage.sh("echo done")
    worker, _ = stage.worker(order)
    worker.kill()
    worker.wait()
    until(lambda: process.exit_record(order.folder))
    kind, ended = until(lambda: (found := take_over(order.folder, same_boot=True))[0] is Taken.ENDED and found)
    stage.wait(ended)  # a watcher may be given what is over
    assert kind is Taken.ENDED
    assert stage.collect(order).response == "done\n"


def test_a_turn_whose_wrapper_was_killed_has_vanished_and_its_agent_is_ended(stage):
    order = stage.sh("echo begun; env -i setsid true; exec env -i sleep 60")
    worker, wrapper = stage.worker(order)
    until(lambda: said(order))
    worker.kill()
    worker.wait()
    os.kill(wrapper, signal.SIGKILL)
    until(lambda: not is_there(wrapper))
    kind, gone = take_over(order.folder, same_boot=True)
    assert (kind, gone.pid) == (Taken.VANISHED, wrapper)
    agent = until(lambda: [pid for pid in _session(wrapper) if _name(pid) == "sleep"])
    assert living(order) and agent[0] not in living(order)  # `timeout` has the mark, the agent has cleared its own
    process.end(order.execution_id, gone, grace=1)
    assert not living(order) and not is_there(agent[0])


def _session(sid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "-s", str(sid)], capture_output=True, text=True).stdout
    return [int(pid) for pid in found.split()]


def _name(pid: int) -> str:
    return (procfs.read(pid, "comm") or b"").decode().strip()


def test_of_an_earlier_boot_nothing_runs(stage):
    order = stage.sh("echo begun; sleep 60")
    running = stage.start(order)
    until(lambda: said(order))
    kind, gone = take_over(order.folder, same_boot=False)
    assert kind is Taken.VANISHED
    assert not gone.alive()
    stage.wait(gone)
    process.end("exec_nobody", gone, grace=0)  # harmless: its pid means nothing any more
    assert running.alive()
    process.end(order.execution_id, running, grace=1)
    running.reap()
    running.close()
    assert take_over(order.folder, same_boot=False)[0] is Taken.ENDED


@pytest.mark.parametrize("content", [b"", b"12", b"123 (sh) S 1 2 3"])
def test_a_start_that_is_being_written_is_waited_for(tmp_path, content):
    (tmp_path / "start").write_bytes(content)
    line = STAT.read_bytes()

    def write() -> None:
        (tmp_path / "start").write_bytes(line)

    threading.Timer(0.2, write).start()
    kind, running = take_over(tmp_path, same_boot=True)
    assert (kind, running.pid) == (Taken.RUNNING, os.getpid())
    running.close()


def test_a_start_that_nobody_finishes_writing_can_start_nothing_any_more(stage):
    """Its writer hangs, perhaps for long: the message is taken away from under it."""
    order = stage.order("touch", "called")
    order.folder.mkdir(parents=True)
    (order.folder / "in").write_text("")
    (order.folder / "start").touch()
    began = time.monotonic()
    assert take_over(order.folder, same_boot=True) == (Taken.NEVER_STARTED, None)
    assert 0.9 < time.monotonic() - began < 2
    assert not (order.folder / "in").exists()


def test_a_wrapper_without_its_message_leaves(stage):
    """What a wrapper does whose `start` came too late: the race above, from the other side."""
    order = stage.order("touch", "called")
    order.workspace.mkdir()
    order.folder.mkdir(parents=True)
    turn = process.__file__.replace("process.py", "turn.sh")
    argv = ["/bin/sh", turn, str(order.folder), "5", "1", *order.command]
    done = subprocess.run(argv, cwd=order.workspace, env=order.environment, stderr=subprocess.DEVNULL)
    assert done.returncode != 0
    assert not (order.workspace / "called").exists()
    kind, gone = take_over(order.folder, same_boot=True)
    assert (kind, gone.alive()) == (Taken.VANISHED, False)


def test_a_start_of_an_earlier_boot_that_was_never_written_is_taken_as_vanished(tmp_path):
    (tmp_path / "start").touch()  # a machine that loses power may lose what was written
    assert take_over(tmp_path, same_boot=False)[0] is Taken.VANISHED


def test_another_process_with_the_same_pid_is_not_the_wrapper(tmp_path):
    fields = STAT.read_text().split(") ")
    numbers = fields[1].split()
    numbers[19] = str(int(numbers[19]) - 1)
    (tmp_path / "start").write_text(f"{fields[0]}) {' '.join(numbers)}\n")
    assert take_over(tmp_path, same_boot=True)[0] is Taken.VANISHED
    (tmp_path / "exit").write_text("0 1.00 2.00 60\n")
    assert take_over(tmp_path, same_boot=True)[0] is Taken.ENDED


def test_a_name_with_brackets_and_blanks_is_no_trouble(tmp_path):
    fields = STAT.read_text().split(") ")
    (tmp_path / "start").write_text(f"{os.getpid()} (a ) b (c) d) {fields[1]}")
    kind, running = take_over(tmp_path, same_boot=True)
    assert kind is Taken.RUNNING
    running.close()


def test_a_frozen_worker_does_not_keep_its_turn(stage):
    order = stage.sh("echo begun; sleep 0.4; echo done")
    worker, wrapper = stage.worker(order)
    until(lambda: said(order))
    worker.send_signal(signal.SIGSTOP)
    kind, running = take_over(order.folder, same_boot=True)
    assert kind is Taken.RUNNING
    stage.wait(running)
    assert process.start_time(wrapper) is not None  # a zombie, as its parent is frozen: dead all the same
    assert not process.alive(wrapper, process.start_time(wrapper))
    assert take_over(order.folder, same_boot=True)[0] is Taken.ENDED
    assert stage.collect(order).response == "begun\ndone\n"


def test_whenever_the_worker_dies_the_agent_is_called_exactly_once(stage):
    """A worker starts turn after turn and is killed at a random moment; a taker settles each; all are called once."""
    chance = random.Random(7)
    called = stage.base / "called"
    orders = [stage.sh(f"echo {n} >> {called}") for n in range(60)]
    attempts = dict.fromkeys(range(60), 1)
    for n, order in enumerate(orders):
        starter = threading.Thread(target=lambda order=order: process.start(order).close())
        taker_waits = chance.uniform(0, 0.004)
        starter.start()
        time.sleep(taker_waits)
        kind, running = take_over(order.folder, same_boot=True)
        if running is not None:
            stage.wait(running)
        starter.join()
        if kind is Taken.NEVER_STARTED or process.exit_record(order.folder) is None:
            attempts[n] += 1
            assert stage.run(replace(order, folder=order.folder.with_name("2"))).succeeded
    assert sorted(int(line) for line in called.read_text().split()) == list(range(60))
    assert 1 < sum(attempts.values()) - 60 < 60, "every moment was the same: the test tests nothing"
