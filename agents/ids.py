"""Makes the opaque ids of rows that people see: unguessable, and sorted by when they were made."""

import re
import secrets
import time

_FORM = re.compile(r"[A-Za-z0-9_-]{1,40}")
_latest = 0


def may_be_id(text: str) -> bool:
    """Could this be an id? What could not, a NUL among it, is kept from the database, which would choke on it."""
    return _FORM.fullmatch(text) is not None


def new_id(prefix: str) -> str:
    """`prefix_` + 13 hex digits of the clock in microseconds + 16 random ones.

    Ids of one process rise strictly; those of several by the clock. So a line that is served by id is
    first come, first served, and a page's cursor is the last id on it.
    """
    global _latest
    _latest = max(_latest + 1, time.time_ns() // 1000)
    return f"{prefix}_{_latest:013x}{secrets.token_hex(8)}"
