"""Gives database connections back: a turn that waits holds none (architecture 2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def released() -> Iterator[None]:
    """Run a short piece of database work, then hand the thread's connection back to the pool.

    SQLite has no pool and opening a file costs more than keeping it, so there the thread keeps its connection.
    """
    try:
        yield
    finally:
        if connection.vendor != "sqlite":
            connection.close()
