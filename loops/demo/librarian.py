"""The demo agent: a small program, no AI, that measures one Python file per turn and keeps a backlog and a report.

Run as `librarian.py [--pause SECONDS] SHELF...` in its workspace, a shelf being a folder of sources; the message comes on stdin,
one JSON result object goes to stdout. Standard library only: it knows nothing of the platform but the harness contract.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TITLE = "# What the librarian found\n"
BACKLOG, REPORT, LOCK = Path("backlog.md"), Path("report.md"), Path(".librarian.lock")
MOST_FILES = 80  # on a fresh backlog, so that one loop of at most 100 runs can drain it
PAUSE_SECONDS = 1.0  # of pretended thought, so that there is something to watch
USD_PER_100_LINES = 0.001  # made up: it gives a budget something to count
PRICE = f"(Price: ${USD_PER_100_LINES} per 100 lines read, made up for this demo.)"
PAGE = 5
DONE = "[[DONE]]"

START_OVER = re.compile(r"\s*start over\b", re.IGNORECASE)
LIST_PAGE = re.compile(r"\s*list page (\d{1,4})\b", re.IGNORECASE)
MEASURE = re.compile(r"\s*measure (\S+\.\w+)", re.IGNORECASE)
OPEN_ITEM = re.compile(r"^- \[ \] (.+?)\s*$", re.MULTILINE)
ITEM = re.compile(r"^- \[[ xX]\] ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn answers; `lines` = how many lines of source it had to read for it, which is what it costs."""

    text: str
    lines: int = 0
    failed: bool = False


# -- measuring ------------------------------------------------------------------------------------
def lines_of(source: bytes) -> int:
    """How many lines a source has."""
    return len(source.splitlines())


def section(path: str, source: bytes | None) -> str:
    """What the report says of one file, as Markdown; None = it could not be read."""
    return "\n".join([f"## {path}", "", *(f"- {fact}" for fact in _facts(source))])


def _facts(source: bytes | None) -> list[str]:
    if source is None:
        return ["Not measured: there is no such file any more."]
    lines = f"{lines_of(source):,} lines"
    try:
        tree = ast.parse(source)
    except SyntaxError as problem:
        return [lines, f"Not measured: it is no valid Python: {problem.msg}, line {problem.lineno}."]
    except (ValueError, RecursionError, MemoryError) as problem:  # NUL bytes; nesting beyond the parser
        return [lines, f"Not measured: it cannot be parsed: {problem or type(problem).__name__}."]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    places = [tree, *functions, *classes]
    documented = sum(ast.get_docstring(place) is not None for place in places)
    return [
        f"{lines}; functions: {len(functions)}; classes: {len(classes)}",
        f"Docstrings: {100 * documented // len(places)} % ({documented} of {len(places)} modules, classes, functions)",
        f"Longest function: {_longest(functions)}",
    ]


def _longest(functions: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> str:
    if not functions:
        return "none, it has no functions"
    longest = max(functions, key=_length)
    return f"`{longest.name}`, {_length(longest)} lines, from line {longest.lineno}"


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


# -- the shelves ----------------------------------------------------------------------------------
class Shelves:
    """The folders that may be read; a file is called by its folder's name and its path in there."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = {folder.name: folder for folder in folders}
        for folder in folders:
            if not folder.is_dir():
                raise FileNotFoundError(f"my shelf {folder} is not there.")

    def names(self) -> str:
        return ", ".join(self.folders)

    def read(self, path: str) -> bytes | None:
        """The file of this name; None where there is none, or where it would lie outside of the shelves."""
        shelf, _, rest = path.partition("/")
        folder = self.folders.get(shelf)
        try:
            file = (folder / rest).resolve() if folder else None
            return file.read_bytes() if folder and file and file.is_relative_to(folder.resolve()) else None
        except (OSError, ValueError):
            return None

    def by_length(self) -> list[tuple[int, str]]:
        """Every Python file that is not empty, with its lines, the longest first."""
        found = [(lines_of(file.read_bytes()), name) for name, file in self._files()]
        return sorted(((lines, name) for lines, name in found if lines), key=lambda one: (-one[0], one[1]))

    def _files(self) -> Iterator[tuple[str, Path]]:
        for shelf, folder in self.folders.items():
            for file in folder.rglob("*.py"):
                inside = file.relative_to(folder)
                hidden = any(part.startswith(".") or part in {"migrations", "__pycache__"} for part in inside.parts)
                if not hidden and file.is_file():
                    yield f"{shelf}/{inside.as_posix()}", file


# -- the files of the workspace -------------------------------------------------------------------
def replace_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: whoever is interrupted leaves the old one."""
    new = path.with_name(f".{path.name}.new")
    with open(new, "w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(new, path)


def with_section(report: str, path: str, text: str) -> str:
    """The report with this file's section in it once: in the place of an earlier one, else at the end.

    An earlier one is there when a turn was interrupted before it could tick the file off, or when a person unticked it.
    """
    earlier = re.compile(rf"^## {re.escape(path)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if earlier.search(report):
        return earlier.sub(lambda _: f"{text}\n\n", report, count=1).rstrip() + "\n"
    return f"{report.rstrip()}\n\n{text}\n"


def ticked(backlog: str, path: str) -> str:
    """The backlog with the first open item of this name ticked off, everything else as it was."""
    return re.sub(
        rf"^- \[ \] {re.escape(path)}(?=\s*$)", lambda _: f"- [x] {path}", backlog, count=1, flags=re.MULTILINE
    )


def fresh_backlog(shelves: Shelves) -> str:
    """A backlog of the sources, all open, in the order of their names."""
    names = sorted(name for _, name in shelves.by_length()[:MOST_FILES])
    return "\n".join(["# Backlog", "", *(f"- [ ] {name}" for name in names)]) + "\n"


@contextmanager
def alone() -> Iterator[None]:
    """Keep other turns in this workspace away: two loops may drain one backlog."""
    with open(LOCK, "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# -- the tasks ------------------------------------------------------------------------------------
def answer(message: str, run: int, shelves: Shelves) -> Answer:
    """Do what the message asks for; anything that is not one of the other tasks is the next file of the backlog."""
    if page := LIST_PAGE.match(message):
        return list_page(int(page[1]), shelves)
    if file := MEASURE.match(message):
        return measure(file[1], shelves)
    with alone():
        return next_file(shelves, start_over=run == 1 and bool(START_OVER.match(message)))


def next_file(shelves: Shelves, *, start_over: bool) -> Answer:
    """Measure the first open file of the backlog, write it into the report, then tick it off.

    The backlog is made where there is none yet.
    """
    if start_over:
        REPORT.unlink(missing_ok=True)
    if start_over or not BACKLOG.exists():
        replace_file(BACKLOG, fresh_backlog(shelves))
    backlog = BACKLOG.read_text(encoding="utf-8", errors="replace")
    report = REPORT.read_text(encoding="utf-8", errors="replace") if REPORT.exists() else TITLE
    all_items, items = len(ITEM.findall(backlog)), OPEN_ITEM.findall(backlog)
    if not items:
        return Answer(f"{DONE}\n\n{_nothing_left(all_items)}")
    path = items[0]
    source = shelves.read(path)
    found = section(path, source)
    # In this order: an interruption between the two repeats a section in its own place and loses none.
    replace_file(REPORT, with_section(report, path, found))
    replace_file(BACKLOG, ticked(backlog, path))
    place = (
        f"File {all_items - len(items) + 1} of {all_items}, {len(items) - 1} left. Written to `{REPORT.absolute()}`."
    )
    return Answer(f"{found}\n\n{place}", lines_of(source or b""))


def _nothing_left(all_items: int) -> str:
    return (
        f"The backlog is empty: {all_items} files are ticked off, and what I found is in `{REPORT.absolute()}`. "
        "A message that begins with `Start over` has everything measured again."
    )


def list_page(number: int, shelves: Shelves) -> Answer:
    """A page of all sources by their length."""
    files = shelves.by_length()
    begin = (number - 1) * PAGE
    rows = files[begin : begin + PAGE] if number > 0 else []
    if not rows:
        return Answer(f"There is no page {number}: the last one is {-(-len(files) // PAGE)}.", failed=True)
    table = [f"| {begin + place} | {name} | {lines:,} |" for place, (lines, name) in enumerate(rows, 1)]
    head = [f"The longest files, page {number}:", "", "| | file | lines |", "|---:|---|---:|"]
    return Answer("\n".join([*head, *table]), sum(lines for lines, _ in rows))


def measure(path: str, shelves: Shelves) -> Answer:
    """One named file, outside of the backlog."""
    source = shelves.read(path)
    if source is None:
        return Answer(f"There is no file {path} on my shelves ({shelves.names()}).", failed=True)
    return Answer(section(path, source), lines_of(source))


# -- the edge -------------------------------------------------------------------------------------
def result(said: Answer, session: str) -> dict[str, object]:
    """The result object that the harness reads."""
    return {
        "type": "result",
        "is_error": said.failed,
        "result": said.text if said.failed or not said.lines else f"{said.text}\n\n{PRICE}",
        "total_cost_usd": round(said.lines * USD_PER_100_LINES / 100, 6),
        "session_id": session,
        "num_turns": 1,
        "usage": {"input_tokens": 0, "output_tokens": 0, "lines_read": said.lines},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure one Python file per turn.")
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS)
    parser.add_argument("shelves", nargs="+", type=Path, metavar="SHELF")
    options = parser.parse_args()
    message = sys.stdin.buffer.read().decode("utf-8", "replace")
    time.sleep(options.pause)
    try:
        said = answer(message, int(os.environ.get("TRINITY_RUN") or 1), Shelves(options.shelves))
    except OSError as problem:
        said = Answer(f"I could not work: {problem}", failed=True)
    print(json.dumps(result(said, f"librarian-{os.environ.get('TRINITY_EXECUTION_ID', 'alone')}")))


if __name__ == "__main__":
    main()
