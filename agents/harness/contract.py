"""What goes into a turn and what comes out of it: plain values, the same for every kind of harness (interface.md 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Order:
    """One turn to run. `folder` is this attempt's run folder, `workspace` the process' working folder.

    `environment` is complete: PATH, HOME, LANG, what the agent lists, and every TRINITY_* variable.
    `secrets` are texts that must not survive in anything kept of the turn (the execution's own key).
    """

    execution_id: str
    folder: Path
    workspace: Path
    command: tuple[str, ...]
    message: str
    output: str  # "text" or "json"
    environment: dict[str, str]
    timeout_seconds: int
    grace_seconds: int = 5
    secrets: tuple[str, ...] = ()
    keep_background: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """How a turn ended. `cost` None = not reported. A failure is a value: `succeeded` False and `error` set."""

    succeeded: bool
    response: str = ""
    response_truncated: bool = False
    error: str = ""
    cost: Decimal | None = None
    session_id: str = ""
    model: str = ""
    usage: dict[str, Any] | None = field(default=None)
    duration_ms: int | None = None
    timed_out: bool = False
