"""Makes the opaque ids of rows that people see: unguessable, and sorted by when they were made."""

import secrets
import time

_latest = 0


def new_id(prefix: str) -> str:
    """`prefix_` + 13 hex digits of the clock in microseconds + 16 random ones.

    Ids of one process rise strictly; those of several by the clock. So a line that is served by id is
    first come, first served, and a page's cursor is the last id on it.
    """
    global _latest
    _latest = max(_latest + 1, time.time_ns() // 1000)
    return f"{prefix}_{_latest:013x}{secrets.token_hex(8)}"
