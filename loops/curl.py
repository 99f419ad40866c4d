"""A start as the command line that a script would use: the same fields, by REST. Holds no key."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from loops.core.spec import FIELDS, MessageSpec
from loops.models import Loop

_DEFAULTS = MessageSpec(message="", max_runs=0)


def of_loop(base: str, agent: str, loop: Loop, message: str) -> str:
    """The start of this loop, without what is a default."""
    stored = {name: getattr(loop, name) for name in FIELDS if name != "message"}
    given = {
        name: value for name, value in stored.items() if value not in (None, "") and value != getattr(_DEFAULTS, name)
    }
    return of_fields(base, agent, {"message": message, **given})


def of_fields(base: str, agent: str, fields: Mapping[str, Any]) -> str:
    """The start with these fields of the API."""
    text = json.dumps(fields, ensure_ascii=False, default=_plain)
    return (
        f"curl -X POST {shlex.quote(f'{base}/api/agents/{agent}/loops')} \\\n"
        '  -H "Authorization: Bearer $TRINITY_API_KEY" -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(text)}"
    )


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)
