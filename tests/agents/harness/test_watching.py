"""The watcher: ends told once and at once, output looked at, floods bounded; with real processes."""

from __future__ import annotations

import errno
import os
import select
import shutil
import statistics
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from agents.harness import process, spools
from tests.agents.harness.conftest import ROOT, is_there, living, said, until

MIB = 1 << 20
FLOOD = "import sys\nfor n in range({mib}): sys.stdout.write('x' * (1 << 20))\nprint('the answer')"


def test_the_end_is_told_once_and_from_the_watchers_thread(stage):
    told: list[threading.Thread] = []
    running = stage.start(stage.order("true"))
    stage.watcher.watch(running, lambda _: told.append(threading.current_thread()))
    until(lambda: told)
    stage.wait(stage.start(stage.sh("sleep 0.4")))  # more than a tick
    assert told == [stage.watcher]


def test_a_process_that_is_over_already_is_told_of(stage):
    running = stage.start(stage.order("true"))
    assert running.over(timeout=10)
    told = threading.Event()
    stage.watcher.watch(running, lambda _: told.set())
    assert told.wait(1)


def test_a_told_process_is_reaped_and_closed(stage):
    running = stage.start(stage.order("true"))
    pid = running.pid
    stage.wait(running)
    assert process.start_time(pid) is None, "a zombie has stayed"
    assert running.pidfd == -1
    running.close()


def test_a_forgotten_process_is_not_told_of_and_goes_on(stage):
    told: list[process.Process] = []
    order = stage.sh("sleep 0.3; echo done")
    running = stage.start(order)
    stage.watcher.watch(running, told.append)
    stage.watcher.forget(running)
    stage.watcher.forget(running)
    until(lambda: process.exit_record(order.folder))
    stage.run(stage.order("true"))
    assert told == []
    assert stage.collect(order).response == "done\n"


def test_a_stopped_watcher_lets_go_of_all_and_takes_nothing_more(stage):
    told: list[process.Process] = []
    watcher = process.Watcher()
    watcher.start()
    order = stage.sh("sleep 0.3; echo done")
    running = stage.start(order)
    watcher.watch(running, told.append)
    began = time.monotonic()
    watcher.stop()
    watcher.stop()
    assert time.monotonic() - began < 0.2, "it waited for its tick"
    assert not watcher.is_alive()
    with pytest.raises(RuntimeError, match="stopped"):
        watcher.watch(running, told.append)
    until(lambda: process.exit_record(order.folder))
    assert told == []


def test_a_watcher_that_never_ran_can_be_stopped():
    watcher = process.Watcher()
    watcher.stop()
    watcher.stop()


def test_a_callback_that_fails_is_logged_and_the_others_are_told(stage, caplog):
    def fail(_: process.Process) -> None:
        raise LookupError("a callback's bug")

    stage.watcher.watch(stage.start(stage.order("true")), fail)
    stage.wait(stage.start(stage.sh("sleep 0.1")))
    assert "a callback's bug" in caplog.text


def test_the_end_is_told_within_milliseconds(stage):
    late = []
    for _ in range(15):
        order = stage.order("true")
        running = stage.start(order)
        fd = os.pidfd_open(running.pid)
        told: list[float] = []
        over = threading.Event()

        def tell(_: process.Process, told: list[float] = told, over: threading.Event = over) -> None:
            told.append(time.monotonic())
            over.set()

        stage.watcher.watch(running, tell)
        ended = _ended_at(fd)
        assert over.wait(5)
        late.append(told[0] - ended)
    assert statistics.median(late) < 0.002


def _ended_at(fd: int) -> float:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(5000)
    os.close(fd)
    return time.monotonic()


def test_many_ends_at_once_are_all_told(stage):
    told: list[int] = []
    running = [stage.start(stage.sh("sleep 0.5")) for _ in range(60)]
    for one in running:
        stage.watcher.watch(one, lambda gone: told.append(gone.pid))
    until(lambda: len(told) == 60)
    assert sorted(told) == sorted(one.pid for one in running)
    assert not any(is_there(pid) for pid in told)


# -- output ---------------------------------------------------------------------------------------
def test_growing_output_is_told_at_most_once_a_tick(tmp_path, stage):
    grown: list[tuple[str, int, float]] = []
    watcher = process.Watcher(on_output=lambda one, size: grown.append((one.execution_id, size, time.monotonic())))
    watcher.start()
    order = stage.sh("for n in 1 2 3 4 5 6 7 8 9 10; do echo $n; sleep 0.1; done; echo quiet >&2; sleep 0.6")
    over = threading.Event()
    watcher.watch(stage.start(order), lambda _: over.set())
    assert over.wait(10)
    watcher.stop()
    assert 3 <= len(grown) <= 6
    assert {name for name, _, _ in grown} == {order.execution_id}
    sizes = [size for _, size, _ in grown]
    assert sizes == sorted(set(sizes)) and sizes[-1] == len(said(order))
    times = [at for _, _, at in grown]
    assert all(later - earlier > 0.2 for earlier, later in pairwise(times))


def test_a_flood_takes_little_disk_and_keeps_its_tail(stage):
    order = stage.python(FLOOD.format(mib=120) + "\nsys.stdout.flush()\nimport time; time.sleep(0.6)")
    running = stage.start(order)
    stage.wait(running)
    out = order.folder / "out"
    assert out.stat().st_size > 120 * MIB
    assert out.stat().st_blocks * 512 <= spools.BOUND + MIB
    result = stage.collect(order)
    assert result.response.endswith("xthe answer\n") and set(result.response[:-20]) == {"x"}
    assert (len(result.response), result.response_truncated) == (MIB, True)


def test_the_tail_of_a_flood_is_collected_in_little_memory(stage):
    order = stage.python(FLOOD.format(mib=300))
    assert stage.run(order).response_truncated
    program = (
        "import resource, sys; from pathlib import Path; from agents.harness import command; "
        "from agents.harness.contract import Order; "
        "order = Order('x', Path(sys.argv[1]), Path('/'), ('x',), '', sys.argv[2], {}, 60, secrets=('a-secret-of-the-turn',)); "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; command.collect(order); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    for output in ("text", "json"):
        argv = [sys.executable, "-c", program, str(order.folder), output]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
        assert int(done.stdout) < 40 * 1024, output


def test_without_a_watcher_anybody_can_bound_the_output(tmp_path):
    for name in ("out", "err"):
        (tmp_path / name).write_bytes(b"head" + bytes(3 * MIB) + b"tail")
    assert process.bound_output(tmp_path, bound=MIB)
    for name in ("out", "err"):
        assert (tmp_path / name).stat().st_size == 3 * MIB + 8
        assert (tmp_path / name).stat().st_blocks * 512 <= MIB + 8192
        tail = process.read_tail(tmp_path / name, 6)
        assert (tail.data, tail.whole) == (b"\0\0tail", False)
    assert process.bound_output(tmp_path / "nowhere")


def test_an_open_end_of_a_file_is_read_as_far_as_it_goes(tmp_path):
    (tmp_path / "out").write_bytes(b"12345")
    assert process.read_tail(tmp_path / "out", 5) == spools.Tail(b"12345", True)
    assert process.read_tail(tmp_path / "out", 4) == spools.Tail(b"2345", False)
    assert process.read_tail(tmp_path / "missing", 4) == spools.Tail(b"", True)


def test_where_nothing_can_be_freed_a_flooding_turn_is_ended_and_says_why(stage):
    def refuse(fd: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    watcher = process.Watcher(bound=MIB, unfreed_bound=4 * MIB, free=refuse)
    watcher.start()
    order = stage.sh("while :; do head -c 1000000 /dev/zero; sleep 0.05; done")
    over = threading.Event()
    watcher.watch(stage.start(order), lambda _: over.set())
    assert over.wait(10)
    watcher.stop()
    result = stage.collect(order)
    assert not result.succeeded
    assert "printed more than 4 MiB" in result.error
    until(lambda: not living(order))


def test_a_spool_below_the_bound_is_left_alone_where_nothing_can_be_freed(stage):
    def refuse(fd: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    watcher = process.Watcher(bound=MIB, unfreed_bound=64 * MIB, free=refuse)
    watcher.start()
    order = stage.python(FLOOD.format(mib=3) + "\nsys.stdout.flush()\nimport time; time.sleep(0.6)")
    over = threading.Event()
    watcher.watch(stage.start(order), lambda _: over.set())
    assert over.wait(10)
    watcher.stop()
    assert stage.collect(order).succeeded


def test_a_deleted_run_folder_does_not_stop_the_watcher(stage):
    order = stage.sh("echo begun; sleep 0.8")
    running = stage.start(order)
    told = threading.Event()
    stage.watcher.watch(running, lambda _: told.set())
    until(lambda: said(order))
    shutil.rmtree(order.folder)
    assert told.wait(5)
    assert process.exit_record(order.folder) is None
    assert stage.run(stage.order("true")).succeeded
