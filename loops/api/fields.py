"""The fields that start a message loop, as OpenAPI tells them: one table of bounds, held to `loops.core.spec` by a test."""

from __future__ import annotations

from agents.api.inputs import Json, object_schema, or_null, text, texts, whole
from loops.core.spec import REQUIRED, MessageSpec
from loops.core.words import OnFailure

_BOUNDS: dict[str, Json] = {
    "message": {
        **text(100_000, least=1).schema,
        "description": "The task of each run; `{{run}}` and `{{previous_response}}` are filled in.",
    },
    "max_runs": whole(1, 100).schema,
    "stop_signal": {
        **text(200).schema,
        "description": "The loop ends well when a response has this text; blank = none.",
    },
    "delay_seconds": whole(0, 3600).schema,
    "timeout_per_run": {
        **whole(10, 7200).schema,
        "description": "Null: the agent's own limit, which is also the most.",
    },
    "max_duration_seconds": {
        **whole(1, 604_800).schema,
        "description": "At least the timeout of one run. Null: no time limit.",
    },
    "max_cost_usd": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1_000_000_000,
        "description": "US dollars, kept to 6 decimals; looked at between runs. Null: no ceiling.",
    },
    "no_progress_threshold": {
        **whole(0, 1_000_000).schema,
        "not": {"const": 1},
        "description": "So many equal responses in a row end the loop; 0 = never.",
    },
    "on_failure": {"type": "string", "enum": [policy.value for policy in OnFailure]},
    "max_consecutive_failures": {**whole(1, 100).schema, "description": "With `on_failure: continue`."},
    "model": text(200).schema,
    "allowed_tools": {
        **texts("tool names", without=",").schema,
        "description": "Null: unrestricted. An empty list: no tools at all.",
    },
}


def _told(name: str) -> Json:
    schema = _BOUNDS[name]
    if name in REQUIRED:
        return schema
    default = MessageSpec.__dataclass_fields__[name].default
    return {**or_null(schema), "default": default}


START = object_schema({name: _told(name) for name in _BOUNDS}, list(REQUIRED))
