"""The kinds of harness there are. A new kind is one file with `argv` and `collect`, and one line here."""

from __future__ import annotations

from typing import Protocol

from agents.harness import command
from agents.harness.contract import Order, Result
from agents.harness.starting import CannotStart


class Harness(Protocol):
    """What makes one order one process, and one ended process one result."""

    def argv(self, order: Order) -> list[str]:
        """The process to start, to be handed to `process.start(order, argv)`."""

    def collect(self, order: Order) -> Result | None:
        """What became of it, read from its run folder, twice if need be; None = it vanished without a recorded end."""


HARNESSES: dict[str, Harness] = {"command": command}


def harness(kind: str) -> Harness:
    """The harness of this kind. Raises CannotStart, as an agent's row may name one that is not installed."""
    try:
        return HARNESSES[kind]
    except KeyError:
        raise CannotStart(f"could not start: there is no harness {kind!r} here") from None
