"""The kind `command`: the agent's own command, message on stdin, answer on stdout as text or as a result object."""

from __future__ import annotations

from agents.harness.contract import Order, Result
from agents.harness.result_object import last_result
from agents.harness.results import (
    ERROR_WINDOW,
    RESULT_WINDOWS,
    TEXT_WINDOW,
    Ending,
    json_result,
    text_result,
)
from agents.harness.spools import Tail, read_tail
from agents.harness.wrapper import exit_record


def argv(order: Order) -> list[str]:
    """The command as it stands: a list, no shell."""
    return list(order.command)


def collect(order: Order) -> Result | None:
    """The result of a turn whose process is gone, from the tails of what it printed; None = no end is recorded.

    May be called again.
    """
    ended = exit_record(order.folder)
    if ended is None:
        return None
    ending = Ending(argv(order)[0], ended)
    return collect_json(order, ending) if order.output == "json" else collect_text(order, ending)


def collect_text(order: Order, ending: Ending) -> Result:
    """For any kind whose stdout is the answer."""
    out = read_tail(order.folder / "out", TEXT_WINDOW if ending.succeeded else ERROR_WINDOW)
    return text_result(ending, out, _err(order), order.secrets)


def collect_json(order: Order, ending: Ending) -> Result:
    """For any kind that prints result objects: the last one counts."""
    for window in RESULT_WINDOWS:
        out = read_tail(order.folder / "out", window)
        found = last_result(out.data, out.whole)
        if found is not None or out.whole:
            break
    out = Tail(out.data[-ERROR_WINDOW:], out.whole and len(out.data) <= ERROR_WINDOW)
    return json_result(ending, found, out, _err(order), order.secrets)


def _err(order: Order) -> Tail:
    return read_tail(order.folder / "err", ERROR_WINDOW)
