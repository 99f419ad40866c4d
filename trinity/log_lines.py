"""Turns what children write into whole lines, and writes lines; knows nothing of processes."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable

LONGEST_LINE = 8192  # characters that are kept together


def write_line(line: str) -> None:
    """Write one line to this process' standard output at once."""
    data = memoryview((line + "\n").encode(errors="replace"))
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:  # a log that cannot be written (its reader gone, the disk full) is no reason to end the product
        return


class LineReader:
    """Calls `emit` with each line of a stream of bytes: long ones in pieces, bytes that are no UTF-8 replaced."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> None:
        """Take more bytes; none at all means that there are no more."""
        *lines, self._rest = (self._rest + self._decode(data, final=not data)).split("\n")
        for line in lines:
            self._emit_in_pieces(line.rstrip("\r"))
        keep = (len(self._rest) - 1) % LONGEST_LINE + 1 if data and self._rest else 0
        ready, self._rest = self._rest[: len(self._rest) - keep], self._rest[len(self._rest) - keep :]
        if ready:
            self._emit_in_pieces(ready)

    def _emit_in_pieces(self, line: str) -> None:
        for start in range(0, len(line) or 1, LONGEST_LINE):
            self._emit(line[start : start + LONGEST_LINE])
