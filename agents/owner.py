"""Who holds a lease: this process, named so that another one on the same host can tell whether it is still alive."""

from __future__ import annotations

import os
import secrets
from functools import cache

from django.conf import settings

from agents.harness import process
from agents.once import made_once


@cache
def host() -> str:
    """This host's name on the ledger: made once for the data folder, which belongs to one host."""
    return made_once(settings.TRINITY_DATA / "host_id", lambda: secrets.token_hex(6), 0o644)


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
