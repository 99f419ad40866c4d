"""What a loop is told to do, in plain words before it starts: what will end it, and the worst case. Times in seconds."""

from __future__ import annotations

from loops.core.spec import MessageSpec
from loops.core.words import OnFailure
from loops.words.figures import at_most, count, money, seconds_words


def summary(spec: MessageSpec, agent_timeout: int) -> list[str]:
    """What will end the loop, one line each; `not_limited` and `worst_case` say the rest."""
    said = [_signal(spec), _equal_replies(spec), _failures(spec), f"{count(spec.max_runs, 'run')} {_are(spec)} done"]
    said += [_deadline(spec, agent_timeout), _budget(spec)]
    return [line for line in said if line]


def _signal(spec: MessageSpec) -> str:
    return f"A reply contains {spec.stop_signal}" if spec.stop_signal else ""


def _equal_replies(spec: MessageSpec) -> str:
    """Says so where equal replies may end a loop early whose agent works well, as in a poll (product.md 7)."""
    threshold = spec.no_progress_threshold
    if not 0 < threshold <= spec.max_runs:
        return ""
    same = f"{threshold} replies in a row are the same"
    if threshold == spec.max_runs:
        return same
    return f"{same}, before {spec.max_runs} runs are done (a threshold of 0 lets a poll repeat itself)"


def _failures(spec: MessageSpec) -> str:
    if spec.on_failure is OnFailure.ABORT or spec.max_consecutive_failures == 1:
        return "A run fails"
    if spec.max_consecutive_failures > spec.max_runs:
        return ""
    return f"{spec.max_consecutive_failures} runs fail one after another"


def _are(spec: MessageSpec) -> str:
    return "is" if spec.max_runs == 1 else "are"


def _deadline(spec: MessageSpec, agent_timeout: int) -> str:
    if spec.max_duration_seconds is None:
        return ""
    limit = seconds_words(spec.max_duration_seconds)
    more = seconds_words(_timeout(spec, agent_timeout))
    return f"{limit} have passed, counted from the first dispatch; a run then in flight may take {more} more"


def _budget(spec: MessageSpec) -> str:
    if spec.max_cost_usd is None:
        return ""
    return (
        f"Its runs have cost {money(spec.max_cost_usd)}, checked between runs; a run that reports no cost adds nothing"
    )


def not_limited(spec: MessageSpec) -> str:
    """What will not end the loop, as sentences; empty where every guardrail acts."""
    said = [] if _equal_replies(spec) else ["Equal replies do not end it."]
    if not _failures(spec):
        said.append("Failed runs do not end it.")
    limits = (("its time", spec.max_duration_seconds), ("its cost", spec.max_cost_usd))
    if free := [name for name, limit in limits if limit is None]:
        said.append(f"Nothing limits {' or '.join(free)}.")
    return " ".join(said)


def _timeout(spec: MessageSpec, agent_timeout: int) -> int:
    return min(spec.timeout_per_run or agent_timeout, agent_timeout)


def longest_seconds(spec: MessageSpec, agent_timeout: int) -> int:
    """From the first dispatch on: every run to its limit and every delay; past a deadline only the run in flight."""
    one = _timeout(spec, agent_timeout)
    everything = spec.max_runs * one + (spec.max_runs - 1) * spec.delay_seconds
    return everything if spec.max_duration_seconds is None else min(everything, spec.max_duration_seconds + one)


def worst_case(spec: MessageSpec, agent_timeout: int) -> str:
    """The most that can happen, in one line: runs, time, money."""
    cost = "no cost ceiling" if spec.max_cost_usd is None else f"at most {money(spec.max_cost_usd)} plus one run’s cost"
    return f"At most {count(spec.max_runs, 'run')}, at most {at_most(longest_seconds(spec, agent_timeout))}, {cost}"


def reckoning(spec: MessageSpec, agent_timeout: int) -> str:
    """How the time of the worst case comes about."""
    one = _timeout(spec, agent_timeout)
    limit = spec.max_duration_seconds
    if limit is not None and longest_seconds(spec, agent_timeout) == limit + one:
        return f"{seconds_words(limit)} from the first dispatch + the last run’s {seconds_words(one)}."
    pauses = spec.max_runs - 1
    delays = f" + {pauses} × {seconds_words(spec.delay_seconds)} delay" if pauses and spec.delay_seconds else ""
    return f"{spec.max_runs} × {seconds_words(one)}{delays}, not counting waits for a free slot."
