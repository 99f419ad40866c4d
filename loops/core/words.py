"""The words of a loop's life, one enum each. What they are called on a page is `loops.words`' business."""

from enum import StrEnum


class LoopStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


ACTIVE = (LoopStatus.QUEUED, LoopStatus.RUNNING)


class StopReason(StrEnum):
    MAX_RUNS_REACHED = "max_runs_reached"
    STOP_SIGNAL_MATCHED = "stop_signal_matched"
    USER_STOPPED = "user_stopped"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    BUDGET_EXHAUSTED = "budget_exhausted"
    NO_PROGRESS = "no_progress"
    ERROR = "error"
    MAX_CONSECUTIVE_FAILURES = "max_consecutive_failures"


class RunStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class WaitingFor(StrEnum):
    DELAY = "delay"
    CAPACITY = "capacity"
    AGENT = "agent"
    CONVERSATION = "conversation"


class OnFailure(StrEnum):
    ABORT = "abort"
    CONTINUE = "continue"
