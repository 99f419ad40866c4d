"""The supervisor with real children: restarts, the order of the stop, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.trinity.running import Running, gone, python
from trinity.child import ending
from trinity.log_lines import LONGEST_LINE
from trinity.supervisor import next_pause

HEAD = """
import os, signal, sys, time
from pathlib import Path
from trinity.child import Part, program
from trinity.log_lines import write_line
from trinity.supervisor import Supervisor

def sleeper(name, *, on_term="leave", seconds=0.0):
    def run():
        if on_term == "ignore":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        else:
            def leave(*_):
                time.sleep(seconds)
                write_line(f"{name} leaves")
                sys.exit(0)
            signal.signal(signal.SIGTERM, leave)
        write_line(f"{name} is {os.getpid()}")
        while True:
            signal.pause()
    return run
"""


def supervisor(body: str) -> Running:
    return python(HEAD + body)


def pid_of(running: Running, name: str) -> int:
    return int(running.wait_for(rf"{name} is (\d+)").group(1))


@pytest.mark.parametrize(
    ("last", "lived", "pause"),
    [
        (None, 0, 0.5),
        (None, 99, 0.5),
        (0.5, 1, 1.0),
        (4.0, 0, 8.0),
        (8.0, 0, 10.0),
        (10.0, 29.9, 10.0),
        (10.0, 30, 0.5),
    ],
)
def test_the_pause_doubles_to_ten_seconds_and_is_short_again_after_a_steady_life(last, lived, pause):
    assert next_pause(last, lived) == pause


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "ended with exit code 0"), (3 << 8, "ended with exit code 3"), (9, "was killed by SIGKILL")],
)
def test_an_end_is_said_in_words(status, words):
    assert ending(status) == words


def test_a_part_that_dies_is_started_again_after_longer_and_longer_pauses():
    with supervisor("""
s = Supervisor()
s.start(Part("frail", lambda: (write_line(f"born {time.monotonic()}"), sys.exit(3))))
s.run()
""") as running:
        running.wait_for("frail ended with exit code 3; it is started again in 0.5 s")
        running.wait_for("frail ended with exit code 3; it is started again in 1 s")
        births = [float(running.wait_for(r"born ([\d.]+)", count=n).group(1)) for n in (1, 2, 3)]
        assert births[1] - births[0] >= 0.5
        assert births[2] - births[1] >= 1.0
        assert running.end(signal.SIGTERM) == 0


def test_a_killed_part_comes_back_and_the_signal_is_named():
    with supervisor("""
s = Supervisor()
s.start(Part("part", sleeper("part")))
sys.exit(s.run())
""") as running:
        first = pid_of(running, "part")
        os.kill(first, signal.SIGKILL)
        running.wait_for("part was killed by SIGKILL; it is started again in 0.5 s")
        assert int(running.wait_for(r"part is (\d+)", count=2).group(1)) != first
        assert running.end(signal.SIGTERM) == 0
        assert running.lines[-1] == "part leaves"


def test_the_later_stage_is_stopped_when_the_earlier_one_has_left():
    with supervisor("""
s = Supervisor()
s.start(Part("last", sleeper("last"), stage=1))
s.start(Part("slow", sleeper("slow", seconds=0.4)))
s.start(Part("quick", sleeper("quick")))
sys.exit(s.run())
""") as running:
        for name in ("last", "slow", "quick"):
            pid_of(running, name)
        assert running.end(signal.SIGTERM) == 0
        assert [line for line in running.lines if "leaves" in line] == ["quick leaves", "slow leaves", "last leaves"]


def test_a_part_that_does_not_leave_is_killed_at_its_limit():
    with supervisor("""
s = Supervisor()
s.start(Part("deaf", sleeper("deaf", on_term="ignore"), patience=0.3))
s.start(Part("last", sleeper("last"), stage=1))
sys.exit(s.run())
""") as running:
        pid_of(running, "deaf"), pid_of(running, "last")
        begun = time.monotonic()
        assert running.end(signal.SIGTERM) == 0
        assert 0.3 <= time.monotonic() - begun < 3
        assert running.lines[-1] == "last leaves"


def test_a_second_ctrl_c_ends_everything_at_once():
    with supervisor("""
s = Supervisor()
s.start(Part("deaf", sleeper("deaf", on_term="ignore"), patience=60))
s.start(Part("first", sleeper("first")))
sys.exit(s.run())
""") as running:
        deaf = pid_of(running, "deaf")
        pid_of(running, "first")
        running.process.send_signal(signal.SIGINT)
        running.wait_for("first leaves")  # so the first one has been heard
        assert running.end(signal.SIGINT, seconds=5) == 0
        assert gone(deaf)


@pytest.mark.parametrize("whole_group", [False, True])
def test_killing_the_supervisor_leaves_nothing(whole_group):
    with supervisor(r"""
s = Supervisor()
s.start(Part("forked", sleeper("forked", on_term="ignore")))
code = "import os, time; print('program is', os.getpid(), flush=True); time.sleep(300)"
s.start(Part("program", program([sys.executable, "-c", code], environment=os.environ, folder=Path("/"))))
s.start(Part("gentle", sleeper("gentle"), death_signal=signal.SIGTERM))
s.run()
""") as running:
        pids = [pid_of(running, name) for name in ("forked", "program", "gentle")]
        (os.killpg if whole_group else os.kill)(running.process.pid, signal.SIGKILL)
        assert all(gone(pid) for pid in pids)
        assert whole_group or running.wait_for("gentle leaves")


def test_orphans_are_reaped_and_do_not_pass_for_parts():
    with supervisor("""
def abandon():
    if os.fork() == 0:
        time.sleep(0.2)   # until its parent has gone
        write_line(f"orphan is {os.getpid()} of {os.getppid()}")
        os._exit(7)
s = Supervisor()
s.start(Part("once", abandon, then=lambda: write_line("done")))
sys.exit(s.run())
""") as running:
        running.wait_for("done")
        orphan = running.wait_for(r"orphan is (\d+) of (\d+)")
        assert int(orphan.group(2)) == running.process.pid
        deadline = time.monotonic() + 5
        while Path(f"/proc/{orphan.group(1)}").exists():  # a zombie has no event of its own for us
            assert time.monotonic() < deadline, "never reaped"
            time.sleep(0.01)
        assert "code 7" not in running.text
        assert running.end(signal.SIGTERM) == 0


def test_what_a_part_writes_gets_its_name_and_never_breaks_the_reader():
    with supervisor(r"""
def talk():
    os.write(1, b"hello\n\xff\xfe bytes\r\n")
    os.write(2, "gr\u00fc\u00df".encode()[:3])
    time.sleep(0.05)
    os.write(2, "gr\u00fc\u00df".encode()[3:] + b"\nnever: advice nobody wants\n\n")
    os.write(1, b"x" * (2 * 8192 + 5) + b"\nno newline at the end")
    assert os.read(0, 1) == b""
s = Supervisor()
s.start(Part("web", talk, then=s.stop, logged=True, hushed=("advice",)))
sys.exit(s.run())
""") as running:
        assert running.end() == 0
        assert running.lines == [
            "web   | hello",
            "web   | �� bytes",
            "web   | grüß",
            "web   | ",
            *[f"web   | {'x' * LONGEST_LINE}"] * 2,
            "web   | xxxxx",
            "web   | no newline at the end",
        ]


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [("None", 0, "then"), ("sys.exit(4)", 1, "step ended with exit code 4"), ("1/0", 1, "ZeroDivisionError")],
)
def test_a_step_that_runs_once_either_goes_on_or_stops_everything(work, code, said):
    with supervisor(f"""
s = Supervisor()
s.start(Part("other", sleeper("other")))
s.start(Part("step", lambda: {work}, then=lambda: (write_line("then"), s.stop())))
sys.exit(s.run())
""") as running:
        assert running.end() == code
        assert said in running.text
        assert ("then" in running.lines) == (code == 0)


def test_a_stop_right_after_a_start_is_never_missed():
    with supervisor("""
signal.alarm(30)
for _ in range(30):
    s = Supervisor()
    s.start(Part("part", lambda: time.sleep(300), patience=20))
    s.stop()
    s.run()
write_line("all stopped")
""") as running:
        assert running.end(seconds=15) == 0
        assert running.lines == ["all stopped"]


def test_a_reader_of_the_log_that_goes_away_does_not_end_the_product():
    code = (
        HEAD
        + """
s = Supervisor()
s.start(Part("loud", lambda: [print("line", flush=True) or time.sleep(0.01) for _ in iter(int, 1)], logged=True))
s.later(0.3, lambda: s.stop())
os.close(1)
read, write = os.pipe()
assert write == 1 or os.dup2(write, 1)
os.close(read)
code = s.run()
os.write(2, b"lived on\\n")
sys.exit(code)
"""
    )
    with python(code) as running:
        assert running.end() == 0
        assert running.lines == ["lived on"]


def test_children_are_started_from_the_main_thread_only():
    with supervisor("""
import threading
s = Supervisor()
def start():
    try:
        s.start(Part("part", sleeper("part")))
    except RuntimeError as refusal:
        write_line(str(refusal))
thread = threading.Thread(target=start)
thread.start()
thread.join()
s.stop()
sys.exit(s.run())
""") as running:
        assert running.end() == 0
        assert "main thread" in running.lines[0]
        assert len(running.lines) == 1
