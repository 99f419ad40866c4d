"""The demo: made once, by the same verbs as anything else, and its loops end as the list is meant to teach."""

import re
import sys
import threading
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth import authenticate
from django.core.management import call_command
from django.utils import timezone

from agents import executions, life
from agents.harness import process, registry
from agents.models import Agent, Audit, Execution, User
from agents.worker import order_of
from loops import engine
from loops.demo import librarian
from loops.models import Loop
from tests.conftest import caller, make_user
from tests.ledger import OWNER, claim


@pytest.fixture(autouse=True)
def data_folder(settings, tmp_path):
    """Workspaces of this test alone: row numbers, and with them folders, come again after a rollback."""
    settings.TRINITY_DATA = tmp_path / "data"


def seed() -> tuple[str, str]:
    """What seed returns, and what it says on stderr."""
    err = StringIO()
    return call_command("seed", stdout=StringIO(), stderr=err) or "", err.getvalue()


def counts() -> tuple[int, ...]:
    return tuple(model.objects.count() for model in (User, Agent, Loop, Execution, Audit))


def loop_like(words: str) -> Loop:
    return Loop.objects.get(message__contains=words)


def test_the_first_seed_makes_an_admin_whose_login_is_printed_this_once(db):
    out = StringIO()
    login = call_command("seed", stdout=out)
    assert out.getvalue().splitlines()[-1] == login
    name, password = re.fullmatch(r"(admin) / (\S{16,})", login).groups()
    admin = authenticate(username=name, password=password)
    assert admin.is_superuser and admin.is_staff
    assert not Audit.objects.filter(reason__contains=password).exists()


def test_the_passwords_of_two_installations_differ(db):
    first, _ = seed()
    Loop.objects.all().delete()
    Execution.objects.all().delete()
    Agent.objects.all().delete()
    User.objects.all().delete()
    second, _ = seed()
    assert first and second and first != second


def test_seeding_again_changes_nothing(db):
    seed()
    before = counts()
    assert seed() == ("", "")
    assert counts() == before


def test_where_there_is_an_admin_the_demo_is_theirs_and_no_login_is_made(cast):
    assert seed() == ("", "")
    assert not User.objects.filter(username="admin").exists()
    assert Agent.objects.get(name="librarian").owner == cast.root
    assert set(Loop.objects.values_list("started_by", flat=True)) == {"root"}


def test_a_librarian_that_was_deleted_is_not_made_again(cast, now):
    seed()
    life.delete(Agent.objects.get(name="librarian"), caller(cast.root), now)
    before = counts()
    assert seed() == ("", "")
    assert counts() == before


def test_a_stranger_called_admin_gets_no_rights_and_the_seed_says_what_to_do(db):
    stranger = make_user("admin", kind=User.Kind.CLIENT)
    login, said = seed()
    assert login == "" and "createsuperuser" in said
    stranger.refresh_from_db()
    assert not stranger.is_superuser and not Agent.objects.exists()


def test_the_librarian_says_openly_what_it_is_and_where_its_report_lies(db):
    seed()
    agent = Agent.objects.get(name="librarian")
    assert agent.display_name == "Librarian" and agent.status == "running"
    assert "no AI" in agent.description and str(agent.workspace / "report.md") in agent.description
    assert agent.command[:2] == [sys.executable, librarian.__file__] and agent.output == "json"


def test_the_loops_are_started_like_any_other_with_guardrails_that_show(db):
    seed()
    drain = loop_like("backlog.md")
    assert (drain.stop_signal, drain.max_runs, drain.on_failure) == ("[[DONE]]", 100, "continue")
    assert drain.delay_seconds == 3 and drain.max_cost_usd and drain.max_duration_seconds
    assert Loop.objects.order_by("-pk").first() == drain, "the one to watch stands on top of the list"
    started = Audit.objects.filter(action="loop.start", verdict="allowed", actor="admin", through="command")
    assert set(started.values_list("target", flat=True)) == set(Loop.objects.values_list("pk", flat=True))


def play_out(agent: Agent, watcher: process.Watcher) -> None:
    """Be the worker of this agent, with its real program, until nothing is left to do; delays pass at once."""
    now = timezone.now()
    while Loop.objects.active().exists():
        now += timedelta(seconds=5)
        engine.wake_due(now)
        turn = claim(agent, now)
        while turn is not None:
            order, over = order_of(turn), threading.Event()
            watcher.watch(process.start(order), lambda _, over=over: over.set())
            assert over.wait(20), "the librarian does not come to an end"
            turn = executions.finish(turn, registry.harness("command").collect(order), OWNER, now)


@pytest.fixture
def watcher():
    watcher = process.Watcher()
    watcher.start()
    yield watcher
    watcher.stop()


def test_the_three_loops_end_as_they_are_meant_to(db, tmp_path, watcher):
    seed()
    shelf = tmp_path / "books"
    shelf.mkdir()
    for number in range(12):
        (shelf / f"f{number:02}.py").write_text("x = 1\n" * (number + 1))
    agent = Agent.objects.get(name="librarian")
    agent.command = [*agent.command[:2], "--pause", "0", str(shelf)]
    agent.save(update_fields=["command"])
    play_out(agent, watcher)

    failed = loop_like("drafts/missing.py")
    assert (failed.status, failed.stop_reason, failed.runs_completed) == ("failed", "error", 1)
    assert failed.error == "Run 1: There is no file drafts/missing.py on my shelves (books)."
    counted = loop_like("{{run}}")
    assert (counted.status, counted.stop_reason, counted.runs_completed) == ("completed", "max_runs_reached", 3)
    pages = [run.response_preview for run in counted.runs.order_by("run_number")]
    assert [f"page {number}" in text for number, text in enumerate(pages, 1)] == [True] * 3
    drained = loop_like("backlog.md")
    assert (drained.status, drained.stop_reason) == ("completed", "stop_signal_matched")
    assert drained.runs_completed == 13 and drained.unknown_cost_runs == 0 and drained.spend > 0
    report = (agent.workspace / "report.md").read_text()
    assert report.count("## books/") == 12


def test_the_demo_as_shipped_reads_its_own_sources_within_its_limits(db, watcher):
    seed()
    agent = Agent.objects.get(name="librarian")
    turn = claim(agent, timezone.now())
    drain = loop_like("backlog.md")
    while turn.execution.loop_id != drain.pk:
        turn = claim(agent, timezone.now())
    order, over = order_of(turn), threading.Event()
    watcher.watch(process.start(order), lambda _: over.set())
    assert over.wait(20)
    result = registry.harness("command").collect(order)
    assert result.succeeded and result.cost > 0 and "## agents/" in result.response
    assert result.duration_ms < 2500, "so that the first run is done soon after the start"
    lines = sum(lines for lines, _ in librarian.Shelves([Path(shelf) for shelf in agent.command[2:]]).by_length())
    assert lines * librarian.USD_PER_100_LINES / 100 < float(drain.max_cost_usd), "the budget lets it come to its end"
