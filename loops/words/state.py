"""What the words are made from and made into: a loop at one moment, and pieces of a sentence. Says nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from loops.core.words import LoopStatus

if TYPE_CHECKING:
    from loops.models import Loop, LoopRun


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a sentence. `role`: "" plain, `mark` the matched signal, `bad` a failure, `time` that of the moment `at`."""

    text: str
    role: str = ""
    at: datetime | None = None


def plain(parts: Sequence[Part]) -> str:
    """The sentence as text alone."""
    return "".join(part.text for part in parts)


@dataclass(frozen=True, slots=True)
class Words:
    """A status as it is shown: class beside `.status`, icon of the sprite, and whether something runs at this moment."""

    parts: tuple[Part, ...]
    tone: str
    icon: str
    live: bool = False

    @property
    def text(self) -> str:
        """The status words alone."""
        return plain(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """A loop at one moment, as the words need it; what is not known keeps its default and is left out of the sentences.

    `failed_numbers` the failed runs, ascending; `last_error` that of the last of them; `place` in the agent's line, from 1;
    `slots` the turns that the agent takes at once; `run_started_at`, `run_ends_by` of the run in flight; `detail` of a goal loop.
    """

    status: str
    stop_reason: str = ""
    waiting_for: str = ""
    wake_at: datetime | None = None
    deadline_at: datetime | None = None
    stop_requested_at: datetime | None = None
    stopped_by: str = ""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    kind: str = "message"
    max_runs: int = 1
    runs_completed: int = 0
    failed_runs: int = 0
    failure_streak: int = 0
    same_replies: int = 0
    spend: Decimal = Decimal(0)
    unknown_cost_runs: int = 0
    max_cost_usd: Decimal | None = None
    max_duration_seconds: int | None = None
    stop_signal: str = ""
    stop_run: int | None = None
    stop_excerpt: str = ""
    last_reply: str = ""
    error: str = ""
    detail: str = ""
    run_started_at: datetime | None = None
    run_ends_by: datetime | None = None
    failed_numbers: tuple[int, ...] = ()
    last_error: str = ""
    place: int | None = None
    slots: int | None = None

    @classmethod
    def of(
        cls,
        loop: Loop,
        run: LoopRun | None = None,
        *,
        agent_timeout: int | None = None,
        failed_numbers: Sequence[int] = (),
        last_error: str = "",
        place: int | None = None,
        slots: int | None = None,
    ) -> LoopFacts:
        """Of a loop's row, the row of its run in flight and the timeout of its agent in seconds. Makes no query."""
        limits = [seconds for seconds in (loop.timeout_per_run, agent_timeout) if seconds]
        begun = run.started_at if run else None
        return cls(
            **{name: getattr(loop, name) for name in _COLUMNS},
            last_reply=loop.carry,
            detail=getattr(loop, "detail", ""),
            run_started_at=begun,
            run_ends_by=begun + timedelta(seconds=min(limits)) if begun and limits else None,
            failed_numbers=tuple(failed_numbers),
            last_error=last_error,
            place=place,
            slots=slots,
        )

    @property
    def in_flight(self) -> bool:
        """Does a run work at this moment?"""
        return self.status == LoopStatus.RUNNING and not self.waiting_for

    @property
    def next_run(self) -> int:
        """The number of the run in flight, or of the one that is due next."""
        return self.runs_completed + 1


_COLUMNS = (
    *("status", "stop_reason", "waiting_for", "wake_at", "deadline_at", "stop_requested_at", "stopped_by"),
    *("started_at", "completed_at", "kind", "max_runs", "runs_completed", "failed_runs", "failure_streak"),
    *("same_replies", "spend", "unknown_cost_runs", "max_cost_usd", "max_duration_seconds"),
    *("stop_signal", "stop_run", "stop_excerpt", "error"),
)
