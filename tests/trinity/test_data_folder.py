"""The lock on the data folder: one holder, which may be several processes, and patience for the one that is leaving."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.trinity.running import Running, gone, python
from trinity import data_folder


def holder(folder, more: str = "") -> Running:
    return python(f"""
import os, subprocess, sys, time
from pathlib import Path
from trinity import data_folder
lock = data_folder.take(Path({str(folder)!r}))
{more}
print("taken", flush=True)
time.sleep(300)
""")


def test_a_second_taker_waits_and_is_then_refused_by_the_holders_pid(tmp_path):
    with holder(tmp_path) as first:
        first.wait_for("taken")
        waits = []
        begun = time.monotonic()
        with pytest.raises(data_folder.FolderInUse, match=rf"in use by process {first.process.pid}\b"):
            data_folder.take(tmp_path, patience=0.3, on_wait=lambda: waits.append(1))
        assert 0.3 <= time.monotonic() - begun < 2
        assert waits == [1]


def test_a_taker_in_time_gets_the_lock_when_the_holder_dies(tmp_path):
    with holder(tmp_path) as first:
        first.wait_for("taken")
        lock = data_folder.take(tmp_path, patience=5, on_wait=lambda: first.process.send_signal(signal.SIGKILL))
        os.close(lock)


def test_the_lock_is_held_until_the_last_process_that_has_it_is_gone(tmp_path):
    child = "child = subprocess.Popen(['sleep', '300'], pass_fds=[lock]); print('child is', child.pid, flush=True)"
    with holder(tmp_path, child) as first:
        pid = int(first.wait_for(r"child is (\d+)").group(1))
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(5)
        with pytest.raises(data_folder.FolderInUse):
            data_folder.take(tmp_path, patience=0)
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)
        os.close(data_folder.take(tmp_path, patience=1))


def test_a_process_started_the_usual_way_does_not_keep_the_lock(tmp_path):
    child = (
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True); print('child is', child.pid, flush=True)"
    )
    with holder(tmp_path, child) as first:
        pid = int(first.wait_for(r"child is (\d+)").group(1))
        try:
            os.kill(first.process.pid, signal.SIGKILL)
            first.process.wait(5)
            os.close(data_folder.take(tmp_path, patience=0))
        finally:
            os.kill(pid, signal.SIGKILL)


def test_two_folders_are_two_locks(tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    locks = [data_folder.take(folder, patience=0) for folder in folders]
    for lock in locks:
        os.close(lock)


def test_a_failed_start_leaves_nothing_of_its_own_but_all_that_was_there(tmp_path):
    for kept in ([], ["trinity.sqlite3"]):
        for name in ["lock", "secret_key", *kept]:
            (tmp_path / name).touch()
        data_folder.leave_unused(tmp_path)
        assert {file.name for file in tmp_path.iterdir()} == ({"lock", "secret_key", *kept} if kept else set())
