"""Real workers and sweeps as processes: turns run once, whatever dies (architecture 2, turns.md)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import django_rq
import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from agents import executions, queue, worker
from agents.executions import NewTurn
from agents.harness import process
from agents.models import Agent, Execution, User, Worker
from tests.conftest import caller, make_agent
from tests.ledger import start

PYTHON = [sys.executable, "-c", "import sys; exec(sys.stdin.read())"]
NOTE = "import os,time; open('calls','a').write(os.environ['TRINITY_RUN']+'\\n'); "
LEASE = 2

pytestmark = pytest.mark.django_db(transaction=True)


class Parts:
    """Workers and sweeps that a test has started."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen] = []

    def start(self, part: str, *args: str, failpoint: str = "") -> subprocess.Popen:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "trinity.settings",
            "TRINITY_DATA": str(settings.TRINITY_DATA),
            "TRINITY_LEASE_SECONDS": str(LEASE),
            "TRINITY_FAILPOINT": failpoint,
        }
        name = str(connection.settings_dict["NAME"])
        command = [sys.executable, "-m", "tests.part", str(os.getpid()), part, name, *args]
        child = subprocess.Popen(command, cwd=settings.BASE_DIR, env=environment)
        self.running.append(child)
        return child

    def worker(self, slots: int = 5, failpoint: str = "") -> subprocess.Popen:
        return self.start("worker", str(slots), failpoint=failpoint)

    def close(self) -> None:
        for child in self.running:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.terminate()
        for child in self.running:
            child.wait(40)


@pytest.fixture
def parts(valkey):
    django_rq.get_queue(queue.QUEUE).empty()
    parts = Parts()
    yield parts
    parts.close()
    process.end_leftovers(set(Execution.objects.values_list("id", flat=True)), 0)


@pytest.fixture
def alice(db) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def agent(alice) -> Agent:
    agent = make_agent(alice, command=PYTHON)
    agent.workspace.mkdir(parents=True, exist_ok=True)
    for name in ("calls", "go", "go1", "go2"):
        (agent.workspace / name).unlink(missing_ok=True)
    return agent


def until(claim: Callable[[], object], seconds: float = 60) -> object:
    """What `claim` returns as soon as it is true."""
    limit = time.monotonic() + seconds
    while not (found := claim()):
        assert time.monotonic() < limit, "it did not come true"
        time.sleep(0.02)
    return found


def begin(agent: Agent, code: str, **body: object):
    return start(caller(agent.owner), agent, timezone.now(), message=NOTE + code, **body)


def over(loop) -> tuple:
    def ended():
        loop.refresh_from_db()
        return not loop.is_active

    until(ended, 90)
    return loop.status, loop.stop_reason, loop.runs_completed


def calls(agent: Agent) -> list[str]:
    file = Path(agent.workspace) / "calls"
    return file.read_text().split() if file.exists() else []


def test_a_loop_runs_to_its_end_and_leaves_nothing_behind(parts, agent):
    parts.worker()
    loop = begin(agent, "print(os.environ['TRINITY_RUN'], os.environ['TRINITY_MAX_RUNS'])", max_runs=4)
    assert over(loop) == ("completed", "max_runs_reached", 4)
    assert calls(agent) == ["1", "2", "3", "4"]
    assert loop.last_success.response == "4 4\n"
    folders = [worker.runs_folder() / run.execution_id for run in loop.runs.all()]
    until(lambda: not any(folder.exists() for folder in folders))


def test_a_killed_worker_neither_loses_nor_repeats_its_turn(parts, agent):
    first = parts.worker()
    loop = begin(agent, "time.sleep(1.5); print('answer', os.environ['TRINITY_RUN'])", max_runs=2)
    until(lambda: calls(agent))
    first.kill()
    parts.worker()
    assert over(loop) == ("completed", "max_runs_reached", 2)
    assert calls(agent) == ["1", "2"]
    assert loop.runs.get(run_number=1).execution.attempt == 1


def test_a_worker_that_is_told_to_leave_leaves_at_once_and_its_turn_goes_on(parts, agent):
    first = parts.worker()
    loop = begin(agent, "time.sleep(5); print('answer')", max_runs=1)
    until(lambda: calls(agent))
    first.terminate()
    assert first.wait(10) == 0
    assert process.exit_record(worker.run_folder(Execution.objects.get().pk, 1)) is None  # it did not wait for the turn
    parts.worker()
    assert over(loop) == ("completed", "max_runs_reached", 1)
    assert calls(agent) == ["1"]


def test_a_worker_that_goes_on_and_is_told_to_leave_in_the_same_moment_hears_it(parts, db):
    for _ in range(4):  # the kernel may give the signal to a thread that does not wait for a bell
        child = parts.worker()
        until(Worker.objects.filter(owner__contains=f"/{child.pid}/").exists)
        time.sleep(0.2)
        child.send_signal(signal.SIGSTOP)
        until(lambda child=child: is_frozen(child))
        child.send_signal(signal.SIGCONT)
        child.terminate()
        assert child.wait(5) == 0


def test_a_turn_that_ended_while_nobody_watched_is_collected(parts, agent):
    first = parts.worker()
    loop = begin(agent, "time.sleep(0.5); print('unseen')", max_runs=1)
    until(lambda: calls(agent))
    first.kill()
    folder = worker.run_folder(Execution.objects.get().pk, 1)
    until(lambda: process.exit_record(folder))
    parts.worker()
    assert over(loop) == ("completed", "max_runs_reached", 1)
    assert loop.last_success.response == "unseen\n" and calls(agent) == ["1"]


def test_a_turn_whose_wrapper_and_process_vanished_is_repeated_under_the_same_number(parts, agent):
    parts.worker()
    loop = begin(agent, "time.sleep(0 if len(open('calls').read().split()) > 1 else 60); print('ok')", max_runs=1)
    until(lambda: calls(agent))
    for pid in process.marked({Execution.objects.get().pk})[Execution.objects.get().pk]:
        os.kill(pid, signal.SIGKILL)
    assert over(loop) == ("completed", "max_runs_reached", 1)
    assert calls(agent) == ["1", "1"] and Execution.objects.get().attempt == 2


HELD = "exec(\"while not os.path.exists('go'): time.sleep(0.02)\"); "


def wait_for_a_pause(child: subprocess.Popen) -> None:
    """Wait until the worker's beat rests: who is frozen in the middle of a write of SQLite keeps everybody from writing."""
    heard = Worker.objects.filter(owner__contains=f"/{child.pid}/").values_list("seen_at", flat=True)
    last = until(heard.first)
    until(lambda: heard.first() != last)
    time.sleep(0.3)


def is_frozen(child: subprocess.Popen) -> bool:
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_frozen_worker_loses_its_turn_and_nothing_of_it_is_done_twice(parts, agent):
    frozen = parts.worker()
    loop = begin(agent, HELD + "print('once')", max_runs=1)
    until(lambda: calls(agent))
    wait_for_a_pause(frozen)
    frozen.send_signal(signal.SIGSTOP)
    parts.worker()
    (agent.workspace / "go").touch()
    assert over(loop) == ("completed", "max_runs_reached", 1)
    version = loop.version
    frozen.send_signal(signal.SIGCONT)
    time.sleep(2.5)  # it looks at the turn's end, and its beat at what it holds
    loop.refresh_from_db()
    assert (loop.version, calls(agent)) == (version, ["1"])
    assert Execution.objects.get().attempt == 1


def test_a_late_result_is_refused_while_the_heir_is_at_the_next_run_and_kept_as_late(parts, agent):
    frozen = parts.worker(failpoint="finish.begun STOP")  # with the result in its hand
    code = "exec(\"while not os.path.exists('go' + os.environ['TRINITY_RUN']): time.sleep(0.02)\")"
    loop = begin(agent, f"{code}; print('answer', os.environ['TRINITY_RUN'])", max_runs=2)
    until(lambda: calls(agent))
    wait_for_a_pause(frozen)
    (agent.workspace / "go1").touch()
    until(lambda: is_frozen(frozen))
    parts.worker()
    until(lambda: calls(agent) == ["1", "2"])
    first = loop.runs.get(run_number=1).execution
    assert first.response == "answer 1\n" and first.late_result == ""
    second = loop.runs.get(run_number=2).execution
    frozen.send_signal(signal.SIGCONT)
    late = json.loads(until(lambda: Execution.objects.get(pk=first.pk).late_result))
    assert (late["state"], late["response"]) == ("success", "answer 1\n")
    loop.refresh_from_db()
    assert (loop.status, loop.runs_completed, loop.runs.count()) == ("running", 1, 2)
    (agent.workspace / "go2").touch()
    assert over(loop) == ("completed", "max_runs_reached", 2)
    assert calls(agent) == ["1", "2"]
    second.refresh_from_db()
    assert (second.response, second.late_result, second.fence, second.attempt) == ("answer 2\n", "", 1, 1)


def test_a_worker_frozen_before_it_starts_the_process_neither_starts_it_nor_ends_its_heirs(parts, agent):
    frozen = parts.worker(failpoint="claim.committed STOP")
    wait_for_a_pause(frozen)
    loop = begin(agent, HELD + "print('once')", max_runs=1)
    until(lambda: is_frozen(frozen))
    parts.worker()
    until(lambda: calls(agent))
    frozen.send_signal(signal.SIGCONT)
    turn = Execution.objects.get()
    until((worker.run_folder(turn.pk, 1) / "in").exists)  # it tries
    tried = timezone.now()
    until(lambda: Worker.objects.filter(owner__contains=f"/{frozen.pid}/", seen_at__gt=tried, busy=0).exists())
    assert process.marked({turn.pk})
    (agent.workspace / "go").touch()
    assert over(loop) == ("completed", "max_runs_reached", 1)
    assert calls(agent) == ["1"] and Execution.objects.get().attempt == 2


def test_a_late_worker_clears_nothing_up_that_its_heir_has_not_collected(parts, agent):
    one = parts.worker()
    loop = begin(agent, HELD + "print('once')", max_runs=1)
    until(lambda: calls(agent))
    wait_for_a_pause(one)
    one.send_signal(signal.SIGSTOP)
    two = parts.worker()
    until(lambda: Execution.objects.get().fence == 2)
    wait_for_a_pause(two)
    two.send_signal(signal.SIGSTOP)
    one.send_signal(signal.SIGCONT)
    # So that `one` collects what is no longer its own, and takes it back a lease later.
    (agent.workspace / "go").touch()
    assert over(loop) == ("completed", "max_runs_reached", 1)
    two.send_signal(signal.SIGCONT)
    turn = Execution.objects.get()
    assert (calls(agent), turn.response, turn.attempt) == (["1"], "once\n", 1)


def test_a_cancelled_turn_is_ended_with_all_that_it_started(parts, agent):
    parts.worker()
    loop = begin(agent, "import subprocess; subprocess.Popen(['sleep','613'], start_new_session=True); time.sleep(60)")
    until(lambda: calls(agent))
    execution = Execution.objects.get()
    until(lambda: len(process.marked({execution.pk}).get(execution.pk, [])) >= 3)
    assert executions.cancel(execution.pk, "alice", timezone.now()) == "cancelling"
    assert over(loop) == ("failed", "error", 1)
    until(lambda: not process.marked({execution.pk}))


def test_what_a_turn_left_running_is_ended_unless_the_agent_keeps_it(parts, agent):
    parts.worker()
    code = "import subprocess; subprocess.Popen(['sleep','617'], start_new_session=True, stdout=subprocess.DEVNULL); print('gone')"
    assert over(begin(agent, code, max_runs=1))[0] == "completed"
    marks = {execution.pk for execution in Execution.objects.all()}
    until(lambda: not process.marked(marks))
    agent.keep_background = True
    agent.save()
    assert over(begin(agent, code, max_runs=1))[0] == "completed"
    kept = Execution.objects.order_by("-id").first().pk
    time.sleep(2.5)  # longer than the beat takes to clear up
    assert len(process.marked({kept})[kept]) == 1


def test_a_program_that_is_missing_is_a_failed_run_that_names_it(parts, agent):
    parts.worker()
    agent.command = ["/no/such/program", "--x"]
    agent.save()
    loop = begin(agent, "")
    assert over(loop) == ("failed", "error", 1) and "/no/such/program" in loop.error


def test_a_workspace_that_cannot_be_made_is_a_failed_run_that_says_so(parts, agent):
    agent.workspace.rmdir()
    agent.workspace.write_text("a file is in the way")
    parts.worker()
    loop = begin(agent, "")
    assert over(loop)[0] == "failed" and "working folder" in loop.error
    agent.workspace.unlink()


def test_a_lost_bell_is_rung_again_by_the_sweep(parts, agent):
    loop = begin(agent, "print('heard')", max_runs=1)
    django_rq.get_queue(queue.QUEUE).empty()
    parts.start("sweep")
    parts.worker()
    assert over(loop) == ("completed", "max_runs_reached", 1)


def test_the_sweep_wakes_a_loop_after_its_delay(parts, agent):
    parts.start("sweep")
    parts.worker()
    loop = begin(agent, "print(time.time())", max_runs=2, delay_seconds=1)
    assert over(loop) == ("completed", "max_runs_reached", 2)
    one, two = loop.runs.order_by("run_number")
    assert 1 <= (two.started_at - one.completed_at).total_seconds() < 5


def test_two_workers_share_a_line_and_never_go_above_the_slots(parts, agent):
    agent.max_parallel_tasks = 2
    agent.save()
    parts.worker()
    parts.worker()
    code = "open('log','a').write('+'); time.sleep(0.05); open('log','a').write('-'); print(time.time())"
    loops = [begin(agent, code, max_runs=5) for _ in range(5)]
    for loop in loops:
        assert over(loop) == ("completed", "max_runs_reached", 5)
    level, most = 0, 0
    for sign in (agent.workspace / "log").read_text():
        level += 1 if sign == "+" else -1
        most = max(most, level)
    assert most <= 2 and len(calls(agent)) == 25


def test_a_turn_outside_a_loop_runs_and_is_closed(parts, agent):
    parts.worker()
    code = "import os; print(os.environ.get('TRINITY_LOOP_ID'), os.environ['TRINITY_TRIGGERED_BY'])"
    row = executions.submit(
        NewTurn(agent_id=agent.pk, triggered_by="manual", requested_by="alice", message=code), timezone.now()
    )
    until(lambda: Execution.objects.get(pk=row.pk).is_over)
    assert Execution.objects.get(pk=row.pk).response == "None manual\n"
