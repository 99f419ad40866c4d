"""Runs the database work of MCP calls in a few threads of its own, so that no call ever holds up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from agents.db import released

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Each piece of work is short, and they all share one database: more threads would only wait for each other.
_pool = ThreadPoolExecutor(8, thread_name_prefix="mcp")


async def in_thread(work: Callable[_P, _T], *values: _P.args, **named: _P.kwargs) -> _T:
    """What `work` returns; its database connection is given back when it is done."""

    def held() -> _T:
        with released():
            return work(*values, **named)

    return await asyncio.get_running_loop().run_in_executor(_pool, held)
