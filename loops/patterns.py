"""Shapes that many loops have, to begin from: fields of the start form, filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """A shape that many loops have, to begin from."""

    name: str
    title: str
    about: str
    fields: Mapping[str, str]


PATTERNS = (
    Pattern(
        "refine",
        "Refine",
        "A fixed number of better passes over one draft",
        {
            "message": "Improve the draft in report.md: read it first, make it better, write it back.\n"
            "Last time: {{previous_response}}",
            "max_runs": "4",
        },
    ),
    Pattern(
        "retry",
        "Retry",
        "Again until it works, with a cap",
        {
            "message": "Make the tests pass. If they do, paste the passing output and end with [[DONE]].\n"
            "Otherwise fix the first error and say what failed.",
            **{"max_runs": "8", "stop_signal": "[[DONE]]", "timeout_per_run": "600"},
        },
    ),
    Pattern(
        "poll",
        "Poll",
        "Look every few minutes, equal replies are fine",
        {
            "message": "Look at the deploy. If it is healthy, end with [[DONE]]. Otherwise report its state.",
            **{"max_runs": "30", "stop_signal": "[[DONE]]", "delay_seconds": "120", "no_progress_threshold": "0"},
        },
    ),
    Pattern(
        "drain",
        "Drain",
        "One item per run until none is left",
        {
            "message": "Take exactly one item of the backlog, finish it and say which.\n"
            "If the backlog is empty, end with [[DONE]].",
            **{"max_runs": "20", "stop_signal": "[[DONE]]", "on_failure": "continue"},
        },
    ),
)
