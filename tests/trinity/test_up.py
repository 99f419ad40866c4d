"""`up` as a whole, as a person or a script meets it: the real command with all its parts, on free ports."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.trinity.running import Running, command_line, gone, parent, processes_with

READY = r"^Trinity is ready at (http://\S+)$"
# Those of the test run itself would be taken over, and with them its data folder and its Redis.
OURS = re.compile(r"TRINITY_|DJANGO_|DATABASE_URL|REDIS_URL|SECRET_KEY|ALLOWED_HOSTS")


def up(data: Path, *options: str, **settings: str) -> Running:
    """Start `up` on a free port unless the options name one."""
    command = [sys.executable, "manage.py", "up", *(options or ("--port", "0", "--workers", "2", "--no-demo"))]
    inherited = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    return Running(*command, env={**inherited, "TRINITY_DATA": str(data), **settings}, inherit=False)


def parts(data: Path) -> dict[str, list[int]]:
    """The pids of this copy's processes by what they are."""
    found: dict[str, list[int]] = {
        "daphne": [],
        "manage.py worker": [],
        "manage.py sweep": [],
        "valkey": [],
        "other": [],
    }
    for pid in processes_with(f"TRINITY_DATA={data}"):
        with contextlib.suppress(OSError):
            line = command_line(pid)
            found[next((name for name in found if name in line), "other")].append(pid)
    return found


def everything(data: Path) -> list[int]:
    return [pid for pids in parts(data).values() for pid in pids]


def health(address: str) -> int:
    """The status of /health; a refused connection is an error."""
    asking = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    try:
        asking.request("GET", "/health")
        return asking.getresponse().status
    finally:
        asking.close()


@pytest.fixture
def data(tmp_path) -> Iterator[Path]:
    """An empty data folder; the test fails if anything of it still runs at the end."""
    folder = tmp_path / "data"
    folder.mkdir()
    yield folder
    left = [pid for pid in everything(folder) if not gone(pid, seconds=3)]
    assert left == []


def refused(running: Running, seconds: float = 15) -> str:
    """The one line with which `up` refuses to start."""
    with running:
        assert running.end(seconds=seconds) == 1
        errors = [line for line in running.lines if line.startswith("error: ")]
        assert len(errors) == 1
        assert "Traceback" not in running.text
        return errors[0]


def test_a_busy_port_is_named(data):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        line = refused(up(data, "--port", str(port)))
        assert line == f"error: port {port} on 127.0.0.1 is already in use: choose another one with --port"
    assert list(data.iterdir()) == []


def test_an_address_of_another_machine_is_named(data):
    assert refused(up(data, "--host", "192.0.2.1")).startswith("error: cannot listen on 192.0.2.1, port 8000: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [("TRINITY_SLOTS", "many"), ("TRINITY_SLOTS", "0"), ("TRINITY_PORT", "65536"), ("DATABASE_URL", "mysql://h/d")],
)
def test_a_bad_value_in_the_environment_is_named(data, name, value):
    assert refused(up(data, **{name: value, "SECRET_KEY": "k"})).startswith(f"error: {name} must ")


@pytest.mark.parametrize("option", ["--workers=0", "--workers=two", "--port=65536", "--port=-1"])
def test_a_bad_option_is_named(data, option):
    with up(data, option) as running:
        assert running.end() == 2
        assert f"argument {option.partition('=')[0]}: must be a whole number" in running.text


@pytest.mark.parametrize(
    ("name", "url"),
    [("REDIS_URL", "redis://:hush@127.0.0.1:1/0"), ("DATABASE_URL", "postgresql://u:hush@127.0.0.1:1/d")],
)
def test_a_server_that_does_not_answer_is_named_without_its_password(data, name, url):
    line = refused(up(data, "--port", "0", **{name: url, "SECRET_KEY": "k"}))
    assert line.startswith(f"error: {name}: ")
    assert "does not answer" in line
    assert "hush" not in line


def test_what_it_keeps_is_for_its_own_user_alone(tmp_path):
    folder = tmp_path / "new"
    with up(folder) as running:
        running.wait_for(READY, seconds=30)
        assert folder.stat().st_mode & 0o777 == 0o700
        secret = [folder / name for name in ("secret_key", "lock", "trinity.sqlite3", "trinity.sqlite3-wal")]
        assert {file.name: file.stat().st_mode & 0o077 for file in secret} == dict.fromkeys((f.name for f in secret), 0)
        assert running.end(signal.SIGTERM) == 0


def test_two_copies_run_side_by_side_and_stop_in_order(data, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with up(data) as one, up(other) as two:
        for running, folder in ((one, data), (two, other)):
            assert health(running.wait_for(READY, seconds=30).group(1)) == 200
            found = parts(folder)
            assert {name: len(pids) for name, pids in found.items()} == {
                "daphne": 1,
                "manage.py worker": 3,
                "manage.py sweep": 1,
                "valkey": 1,
                "other": 1,
            }
            assert {os.getpgid(pid) for pids in found.values() for pid in pids} == {running.process.pid}
        for running, folder in ((one, data), (two, other)):
            begun = time.monotonic()
            assert running.end(signal.SIGTERM) == 0
            assert time.monotonic() - begun < 10
            assert everything(folder) == []
            assert "Traceback" not in running.text
            assert "again in" not in running.text


def test_whatever_is_killed_comes_back_and_no_request_is_refused_meanwhile(data):
    with up(data) as running:
        address = running.wait_for(READY, seconds=30).group(1)
        before = parts(data)
        for name in ("daphne", "manage.py sweep", "valkey"):
            os.kill(before[name][0], signal.SIGKILL)
        forked = next(pid for pid in before["manage.py worker"] if parent(pid) != running.process.pid)
        os.kill(forked, signal.SIGKILL)
        for name in ("web", "sweep", "redis", r"worker \d"):
            running.wait_for(rf"{name} was killed by SIGKILL; it is started again in 0.5 s")
        wait_until_healthy(address)
        os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does
        assert running.end() == 0
        assert "Received SIGTERM scheduling shutdown" in running.text  # Valkey: by `up`, after the others
        assert "SIGINT" not in running.text


def wait_until_healthy(address: str, seconds: float = 15) -> None:
    """Ask again while a part is still down."""
    deadline = time.monotonic() + seconds
    while (status := health(address)) != 200:
        assert status == 503
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_killing_it_leaves_nothing_and_the_next_start_goes_on(data):
    with up(data, "--port", "0", "--workers", "1") as first:
        first.wait_for(READY, seconds=30)
        assert "admin" in first.text
        left = everything(data)
        os.kill(first.process.pid, signal.SIGKILL)
        assert all(gone(pid) for pid in left)
    with up(data, "--port", "0", "--workers", "1") as second:
        second.wait_for(READY, seconds=30)
        assert "admin" not in second.text
        left = everything(data)
        os.killpg(second.process.pid, signal.SIGKILL)
        assert all(gone(pid) for pid in left)


def test_a_stop_in_the_middle_of_the_start_is_orderly_too(data):
    with up(data) as running:
        deadline = time.monotonic() + 15
        while not parts(data)["valkey"]:
            assert time.monotonic() < deadline
        assert running.end(signal.SIGTERM) == 0
        assert "Traceback" not in running.text


@pytest.mark.parametrize("seconds", [0.15, 0.4, 0.8, 1.3])
def test_ctrl_c_is_quiet_at_whatever_moment_of_the_start(data, seconds):
    with up(data) as running:
        time.sleep(seconds)
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.end() in (0, 130)
        assert "Traceback" not in running.text
