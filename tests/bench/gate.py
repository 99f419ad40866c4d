"""Agents that all wait until they are let go: a pipe that they read to its end, and a file in which each call leaves a line."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


class Gate:
    """`calls` holds the execution id of every call so far. Who asks after `open` is not held up at all."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path, self.log = folder / "gate", folder / "calls.log"
        self.log.touch()
        os.mkfifo(self.path)
        self._held = os.open(self.path, os.O_RDWR)  # a writer, so that readers wait for what it never writes

    @property
    def command(self) -> tuple[str, ...]:
        """An agent's: it leaves its line, waits, and is then over."""
        return ("sh", "-c", f'echo "$TRINITY_EXECUTION_ID" >> {self.log}; exec cat {self.path}')

    @property
    def calls(self) -> Counter[str]:
        return Counter(self.log.read_text().split())

    def open(self) -> None:
        through = self.path.with_name("open")
        through.touch()
        through.rename(self.path)
        os.close(self._held)
