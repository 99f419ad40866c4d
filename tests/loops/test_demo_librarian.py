"""The demo agent: one file a turn, nothing lost or doubled by an interruption, and an end that it says."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from loops.core.facts import fingerprint
from loops.demo import librarian
from loops.demo.librarian import BACKLOG, REPORT, Answer, Shelves, answer, with_section

NEXT = "Take the next file."
SOURCE = '''"""A module."""


class Thing:
    def long(self):
        """Say."""
        return [
            1,
        ]

    async def short(self): ...
'''


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A shelf of four sources, beside what is none."""
    shelf = tmp_path / "books"
    for name, text in {
        "a.py": SOURCE,
        "a.py.py": "x = 1\n",
        "empty.py": "",
        "notes.md": "# no source\n",
        "deep/b.py": "def f():\n    pass\n",
        "deep/c.py": "def broken(:\n",
        ".hidden/d.py": "x = 1\n",
        "migrations/0001.py": "x = 1\n",
    }.items():
        (shelf / name).parent.mkdir(parents=True, exist_ok=True)
        (shelf / name).write_text(text)
    return shelf


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The agent's workspace, and being in it."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def turn(shelf: Path, message: str = NEXT, run: int = 2) -> Answer:
    return answer(message, run, Shelves([shelf]))


def headings(report: str) -> list[str]:
    return [line.removeprefix("## ") for line in report.splitlines() if line.startswith("## ")]


# -- the backlog ----------------------------------------------------------------------------------
def test_the_first_turn_lists_the_sources_and_measures_the_first(workspace, shelf):
    said = turn(shelf)
    assert BACKLOG.read_text() == (
        "# Backlog\n\n- [x] books/a.py\n- [ ] books/a.py.py\n- [ ] books/deep/b.py\n- [ ] books/deep/c.py\n"
    )
    assert headings(REPORT.read_text()) == ["books/a.py"]
    assert "11 lines; functions: 2; classes: 1" in said.text
    assert "Docstrings: 50 % (2 of 4 modules, classes, functions)" in said.text
    assert "Longest function: `long`, 5 lines, from line 5" in said.text
    assert "File 1 of 4, 3 left" in said.text and str(workspace / "report.md") in said.text
    assert not said.failed and said.lines == 11


def test_every_turn_says_something_else_and_only_the_last_says_done(workspace, shelf):
    said = [turn(shelf).text for _ in range(5)]
    assert [librarian.DONE in text for text in said] == [False] * 4 + [True]
    assert len({fingerprint(text) for text in said}) == 5
    assert headings(REPORT.read_text()) == ["books/a.py", "books/a.py.py", "books/deep/b.py", "books/deep/c.py"]
    assert "[ ]" not in BACKLOG.read_text()
    assert librarian.DONE in turn(shelf).text, "asking again changes nothing"


def test_the_answer_holds_the_section_as_it_stands_in_the_report(workspace, shelf):
    said = turn(shelf)
    section = said.text.split("\n\nFile 1 of 4")[0]
    assert section in REPORT.read_text() and section.startswith("## books/a.py\n")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"def broken(:\n", "no valid Python"),
        (b"x = 1\0\n", "Not measured"),
        (b"\xff\xfe\xfa = 1\n", "Not measured"),
        (b"(" * 5000 + b"\n", "Not measured"),
        (b"x = " + b"-" * 100_000 + b"1\n", "Not measured"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_reported_and_ticked_off(workspace, shelf, source, why):
    (shelf / "a.py").write_bytes(source)
    BACKLOG.write_text("- [ ] books/a.py\n")
    said = turn(shelf)
    assert why in said.text and not said.failed
    assert BACKLOG.read_text() == "- [x] books/a.py\n"
    assert why in REPORT.read_text()


@pytest.mark.parametrize(
    "path", ["books/gone.py", "books", "other/a.py", "books/../secret.py", "books/deep", "/etc/hosts"]
)
def test_what_is_not_on_a_shelf_is_reported_and_ticked_off_and_never_read(workspace, shelf, path):
    (shelf.parent / "secret.py").write_text("def secret(): ...\n")
    BACKLOG.write_text(f"- [ ] {path}\n")
    assert "no such file" in turn(shelf).text
    assert BACKLOG.read_text() == f"- [x] {path}\n" and "secret`" not in REPORT.read_text()


def test_what_a_person_wrote_into_the_backlog_stays(workspace, shelf):
    text = "Mine:\r\n- [x] books/deep/b.py\n* other\n- [ ] books/a.py.py  \n- [ ] books/a.py\n\nend"
    BACKLOG.write_bytes(text.encode())
    turn(shelf)
    turn(shelf)
    kept = text.replace("- [ ]", "- [x]")
    assert BACKLOG.read_bytes().decode().split() == kept.split()
    assert headings(REPORT.read_text()) == ["books/a.py.py", "books/a.py"]


def test_a_backlog_never_holds_more_than_one_loop_can_drain(workspace, tmp_path):
    shelf = tmp_path / "many"
    shelf.mkdir()
    for number in range(120):
        (shelf / f"f{number:03}.py").write_text("x = 1\n" * (number + 1))
    turn(shelf)
    items = librarian.ITEM.findall(BACKLOG.read_text())
    assert len(items) == librarian.MOST_FILES < 100
    assert "many/f119.py" in BACKLOG.read_text() and "many/f000.py" not in BACKLOG.read_text()


# -- interruptions --------------------------------------------------------------------------------
def test_an_interruption_before_the_tick_repeats_the_section_in_its_place(workspace, shelf):
    turn(shelf)
    before = BACKLOG.read_text()
    turn(shelf)
    report = REPORT.read_text()
    BACKLOG.write_text(before)  # the second turn was ended after it had written the report
    said = turn(shelf)
    assert REPORT.read_text() == report
    assert said.text.startswith("## books/a.py.py\n") and "File 2 of 4" in said.text


def test_an_interruption_before_the_report_leaves_everything_to_the_next_turn(workspace, shelf):
    turn(shelf)
    report, backlog = REPORT.read_text(), BACKLOG.read_text()
    Path(".report.md.new").write_text("## books/a.py.py\n\n- half a sec")  # ended while it wrote
    turn(shelf)
    assert headings(REPORT.read_text()) == ["books/a.py", "books/a.py.py"] and REPORT.read_text().startswith(report)
    assert BACKLOG.read_text() == backlog.replace("- [ ]", "- [x]", 1)
    assert "half a sec" not in REPORT.read_text()


@pytest.mark.parametrize("path", ["a.py", "a.py.py", "b/a.py", "c(1)[x]*.py"])
def test_a_section_is_replaced_where_it_stands_and_no_other(path):
    names = ["a.py", "a.py.py", "b/a.py", "c(1)[x]*.py"]
    report = librarian.TITLE
    for name in names:
        report = with_section(report, name, f"## {name}\n\n- old \\1")
    changed = with_section(report, path, f"## {path}\n\n- new \\1")
    assert headings(changed) == names
    assert changed == report.replace(f"## {path}\n\n- old", f"## {path}\n\n- new")


def test_two_loops_on_one_workspace_share_the_files_between_them(workspace, shelf):
    started = [launch(shelf) for _ in range(5)]
    said = [json.loads(process.communicate(NEXT, timeout=60)[0])["result"] for process in started]
    assert sorted(librarian.DONE in text for text in said) == [False] * 4 + [True]
    assert sorted(headings(REPORT.read_text())) == ["books/a.py", "books/a.py.py", "books/deep/b.py", "books/deep/c.py"]


# -- the other tasks ------------------------------------------------------------------------------
def test_start_over_begins_anew_on_run_one_alone(workspace, shelf):
    for _ in range(4):
        turn(shelf)
    message = "Start over, then take the next file."
    assert librarian.DONE in turn(shelf, message, run=2).text
    assert "File 1 of 4" in turn(shelf, message, run=1).text
    assert headings(REPORT.read_text()) == ["books/a.py"]
    assert "File 2 of 4" in turn(shelf, message, run=2).text


def test_pages_list_the_longest_files_first(workspace, tmp_path):
    shelf = tmp_path / "books"
    shelf.mkdir()
    for number in range(1, 8):
        (shelf / f"f{number}.py").write_text("x = 1\n" * number)
    first, second = (turn(shelf, f"List page {page} of the longest files.") for page in (1, 2))
    assert "| 1 | books/f7.py | 7 |" in first.text and first.lines == 7 + 6 + 5 + 4 + 3
    assert "| 7 | books/f1.py | 1 |" in second.text and second.lines == 2 + 1
    assert not BACKLOG.exists()


@pytest.mark.parametrize("page", ["0", "3"])
def test_a_page_that_does_not_exist_is_a_failure(workspace, shelf, page):
    said = turn(shelf, f"List page {page}")
    assert said.failed and "the last one is 1" in said.text


def test_measure_looks_at_one_file_outside_of_the_backlog(workspace, shelf):
    assert turn(shelf, "Measure books/deep/b.py.").text.startswith("## books/deep/b.py")
    missing = turn(shelf, "Measure drafts/missing.py")
    assert missing == Answer("There is no file drafts/missing.py on my shelves (books).", failed=True)
    assert not BACKLOG.exists() and not REPORT.exists()


# -- as the process that the harness starts -------------------------------------------------------
def launch(shelf: Path, *options: str, run: str = "2") -> subprocess.Popen[str]:
    command = [sys.executable, librarian.__file__, *(options or ("--pause", "0")), str(shelf)]
    pipe = subprocess.PIPE
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C", "TRINITY_RUN": run, "TRINITY_EXECUTION_ID": "exec_1"}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def test_it_prints_one_result_object_with_a_price_that_follows_from_the_lines(workspace, shelf):
    out, err = launch(shelf).communicate("Nächste Datei, bitte", timeout=60)
    said = json.loads(out)
    assert err == "" and said["is_error"] is False and said["num_turns"] == 1
    assert said["total_cost_usd"] == round(11 * librarian.USD_PER_100_LINES / 100, 6)
    assert said["session_id"] == "librarian-exec_1" and said["usage"]["lines_read"] == 11
    assert said["result"].endswith(librarian.PRICE)


def test_it_tells_a_shelf_that_is_gone_as_a_failure_with_a_reason(workspace, tmp_path):
    out, _ = launch(tmp_path / "gone").communicate(NEXT, timeout=60)
    said = json.loads(out)
    assert said["is_error"] is True and "gone is not there" in said["result"] and said["total_cost_usd"] == 0


def test_bytes_that_are_no_text_are_a_message_like_any_other(workspace, shelf):
    command = [sys.executable, librarian.__file__, "--pause", "0", str(shelf)]
    done = subprocess.run(command, input=b"\xff\xfe", capture_output=True, timeout=60)
    assert json.loads(done.stdout)["is_error"] is False


def test_it_knows_nothing_of_the_platform():
    tree = ast.parse(Path(librarian.__file__).read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    assert imported <= set(sys.stdlib_module_names)
