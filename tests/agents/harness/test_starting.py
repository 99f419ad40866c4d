"""Starting a turn: what its process sees, and what cannot be started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agents.harness import process
from tests.agents.harness.conftest import Stage, living, said, until

SHOW = "import json, os, sys; print(json.dumps({0}))"


def seen(stage: Stage, what: str, **fields: object) -> object:
    result = stage.run(stage.python(SHOW.format(what), **fields))
    assert result.succeeded, result.error
    return json.loads(result.response)


def test_the_environment_is_exactly_the_orders(stage):
    order = stage.python(SHOW.format("dict(os.environ)"))
    found = json.loads(stage.run(order).response)
    found.pop("LC_CTYPE", None)  # Python's own
    assert found == {**order.environment, "PWD": str(order.workspace)}


def test_no_variable_of_the_wrapper_takes_the_place_of_the_agents(stage):
    names = ["run", "limit", "grace", "me", "t0", "t1", "rc", "id", "left", "n", "f", "line", "pids"]
    values = seen(stage, f"[os.environ.get(n) for n in {names}]", environment=dict.fromkeys(names, "mine"))
    assert values == ["mine"] * len(names)


@pytest.mark.parametrize(
    "message",
    ["", "no newline", "two\nlines\n", "--flag $(hostname) `id` 'Bob\\'s' \"x\" | ; & \t 日本語 👩‍👩‍👧", "x" * 100_000],
    ids=["empty", "one", "two", "odd", "long"],
)
def test_the_message_arrives_on_stdin_byte_for_byte(stage, message):
    assert stage.run(stage.order("cat", message=message)).response == message


def test_a_lone_surrogate_in_the_message_does_not_stop_the_turn(stage):
    assert stage.run(stage.order("cat", message="a\ud800b")).response == "a?b"


def test_arguments_are_no_shell_words(stage):
    result = stage.run(stage.order("printf", "%s|", "$(id)", "*", "a b", "", "-k"))
    assert result.response == "$(id)|*|a b||-k|"


def test_the_message_is_in_no_command_line(stage):
    order = stage.sh(
        "cat /proc/$$/cmdline /proc/$PPID/cmdline; ps -o args= -s $(ps -o sid= -p $$)", message="my secret plan"
    )
    assert "secret plan" not in stage.run(order).response


def test_it_works_in_its_workspace_which_is_made_and_stays(stage):
    workspace = stage.base / "deep" / "down"
    order = stage.sh("pwd; echo x >> n; cat n", workspace=workspace)
    assert stage.run(order).response == f"{workspace}\nx\n"
    again = stage.sh("cat n", workspace=workspace)
    assert stage.run(again).response == "x\n"


def test_a_relative_run_folder_is_the_starters_not_the_workspaces(stage, monkeypatch):
    monkeypatch.chdir(stage.base)
    order = stage.order("echo", "here", folder=Path("runs") / "relative")
    assert stage.run(order).response == "here\n"
    assert (stage.base / "runs" / "relative" / "exit").exists()


def test_it_has_a_session_and_group_of_its_own_and_open_files_of_nobody_else(stage):
    with open(os.devnull) as held:
        os.set_inheritable(held.fileno(), True)
        session, files = seen(stage, "[os.getsid(0), sorted(os.listdir('/proc/self/fd'))]")
    assert session != os.getsid(0)
    assert set(files) <= {"0", "1", "2", "3"}  # the fourth is the folder being listed


def test_others_cannot_read_the_run_folder(stage):
    order = stage.order("true")
    stage.run(order)
    assert order.folder.stat().st_mode & 0o077 == 0


# -- what cannot start ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/no/such/program", "--x"], "could not start /no/such/program: No such file or directory"),
        (["no-such-program-here"], "could not start no-such-program-here: No such file or directory"),
        (["/etc/passwd"], "could not start /etc/passwd: Permission denied"),
        (["/etc"], "could not start /etc: Permission denied"),
        (
            ["./with 'quotes' (1) and.stars*"],
            "could not start ./with 'quotes' (1) and.stars*: No such file or directory",
        ),
        (["-k"], "could not start -k: No such file or directory"),
    ],
    ids=["missing", "not on the path", "not executable", "folder", "odd name", "like an option"],
)
def test_a_program_that_cannot_be_executed_is_a_failed_result_that_names_it(stage, command, reason):
    result = stage.run(stage.order(*command))
    assert not result.succeeded
    assert result.error == reason


def test_a_script_without_its_interpreter_cannot_start(stage):
    program = stage.base / "script"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    assert stage.run(stage.order(str(program))).error == f"could not start {program}: No such file or directory"


def test_an_agent_that_answers_127_itself_has_started(stage):
    result = stage.run(stage.sh("echo I ran; echo sh: nope: not found >&2; exit 127"))
    assert result.error == "sh: nope: not found"


def test_a_missing_program_of_an_agent_that_uses_timeout_is_not_the_agents(stage):
    result = stage.run(stage.sh("timeout 5 /no/such/thing; exit $?"))
    assert "could not start" not in result.error
    assert "/no/such/thing" in result.error


def test_a_working_folder_that_cannot_be_made_is_said(stage):
    (stage.base / "file").write_text("")
    with pytest.raises(process.CannotStart, match="could not make the working folder: Not a directory"):
        stage.start(stage.order("true", workspace=stage.base / "file" / "below"))
    with pytest.raises(process.CannotStart, match="could not make the working folder: File exists"):
        stage.start(stage.order("true", workspace=stage.base / "file"))


def test_a_run_folder_that_cannot_be_made_is_said(stage):
    (stage.base / "runs").write_text("")
    with pytest.raises(process.CannotStart, match="could not make the run folder"):
        stage.start(stage.order("true"))


@pytest.mark.parametrize("command", [(), ("",)], ids=["no words", "an empty word"])
def test_an_empty_command_is_said(stage, command):
    order = stage.order(*command)
    if not command:
        with pytest.raises(process.CannotStart, match="no command"):
            stage.start(order)
    else:
        assert not stage.run(order).succeeded


@pytest.mark.parametrize("word", ["a\0b", "a\ud800b", "x" * 200_000], ids=["nul", "surrogate", "too long"])
def test_a_word_that_no_process_can_be_given_is_said(stage, word):
    with pytest.raises(process.CannotStart, match="could not start echo"):
        stage.start(stage.order("echo", word))


@pytest.mark.parametrize("environment", [{"A": "x\0y"}, {"A=B": "x"}], ids=["nul", "equals sign"])
def test_an_environment_that_no_process_can_be_given_is_said(stage, environment):
    with pytest.raises(process.CannotStart, match="could not start true"):
        stage.start(stage.order("true", environment=environment))


def test_an_order_without_limit_or_mark_is_a_bug(stage):
    order = stage.order("true")
    with pytest.raises(ValueError, match="limit"):
        stage.start(replace(order, timeout_seconds=0))
    with pytest.raises(ValueError, match="limit"):
        stage.start(replace(order, environment={}))


def test_a_second_start_in_the_same_folder_is_refused_and_the_first_goes_on(stage):
    order = stage.sh("echo begun; sleep 0.3; cat", message="the message")
    first = stage.start(order)
    with pytest.raises(process.CannotStart, match="File exists"):
        stage.start(replace(order, message="another"))
    stage.wait(first)
    assert stage.collect(order).response == "begun\nthe message"


def test_another_command_can_be_started_for_an_order(stage):
    order = stage.order("false")
    stage.wait(stage.start(order, ["echo", "instead"]))
    assert stage.collect(order).response == "instead\n"


def test_the_agents_path_does_not_lead_the_wrapper_to_other_tools(stage):
    tools = stage.base / "tools"
    tools.mkdir()
    for name in ("timeout", "grep", "sleep"):
        (tools / name).write_text("#!/bin/sh\necho hijacked\n")
        (tools / name).chmod(0o755)
    order = stage.order("/bin/echo", "mine", environment={"PATH": str(tools)})
    assert stage.run(order).response == "mine\n"


def test_a_turn_outlives_the_worker_that_started_it(stage):
    order = stage.sh("echo begun; sleep 0.4; echo done")
    worker, wrapper = stage.worker(order)
    until(lambda: said(order) == "begun\n")
    worker.kill()
    worker.wait()
    until(lambda: process.exit_record(order.folder))
    assert stage.collect(order).response == "begun\ndone\n"
    until(lambda: process.start_time(wrapper) is None or not living(order))


def test_a_turn_that_nobody_waits_for_gives_no_warning(stage):
    program = (
        "import sys; from pathlib import Path; from agents.harness import process; "
        "from agents.harness.contract import Order; base = Path(sys.argv[1]); "
        "order = Order('exec_1', base / 'run', base, ('sleep', '0.2'), '', 'text', "
        "{'PATH': '/bin', 'TRINITY_EXECUTION_ID': 'exec_1'}, 5); process.start(order).close()"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program, str(stage.base)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    until(lambda: process.exit_record(stage.base / "run"))
