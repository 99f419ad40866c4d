"""Who holds a lease: this process, named so that another one on the same host can tell whether it is still alive."""

from __future__ import annotations

import os
import secrets
from functools import cache

from django.conf import settings

from agents.harness import process


@cache
def host() -> str:
    """This host's name on the ledger: made once for the data folder, which belongs to one host."""
    file = settings.TRINITY_DATA / "host_id"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return file.read_text().strip()
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secrets.token_hex(6))
    return file.read_text().strip()


def me() -> str:
    """This process as an owner: `host/boot/pid/start`. By pid and start time, since pids are used again."""
    pid = os.getpid()
    return f"{host()}/{process.boot_id()}/{pid}/{process.start_time(pid)}"


def same_boot(owner: str) -> bool:
    """Was this owner alive since the machine was last started?"""
    return owner.split("/")[1:2] == [process.boot_id()]


def is_dead(owner: str) -> bool:
    """Is this owner, a process of this host, gone? A zombie is."""
    _, boot, pid, start = owner.split("/")
    return boot != process.boot_id() or not process.alive(int(pid), int(start))
