"""The database in use by its plain driver, without Django: one connection per thread, every statement a commit."""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import Any

import psycopg

_mine = threading.local()


def execute(statement: str, *values: object) -> Any:
    """Run and commit one statement with `?` for its values; the cursor with what it found."""
    if not hasattr(_mine, "connection"):
        _mine.connection = _connect()
    if isinstance(_mine.connection, psycopg.Connection):
        statement = statement.replace("?", "%s")
    return _mine.connection.execute(statement, values)


def _connect() -> Any:
    if url := os.environ.get("DATABASE_URL"):
        return psycopg.connect(url, autocommit=True)
    connection = sqlite3.connect(f"{os.environ['TRINITY_DATA']}/trinity.sqlite3", timeout=20, isolation_level=None)
    connection.execute("PRAGMA synchronous=NORMAL")  # as the product's own
    return connection


def close() -> None:
    """Close this thread's connection."""
    if hasattr(_mine, "connection"):
        _mine.connection.close()
        del _mine.connection


# What one durable step writes, here and where others are measured
MAKE_STEPS = "CREATE TABLE IF NOT EXISTS bench_step (engine text, run text, n integer, t double precision)"
ADD_STEP = "INSERT INTO bench_step VALUES (?, ?, ?, ?)"
