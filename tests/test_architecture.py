"""Holds the house to its drawing: import contracts, one writer, one mouth to each server, names that resolve."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.utils.module_loading import import_string

ROOT = Path(settings.BASE_DIR)
ROOMS = ("trinity", "workspace", "loops", "agents")
TOP = {
    *ROOMS, "manage.py", "pyproject.toml", "constraints.txt", "README.md", "templates", "static", "tests", ".ci", ".gitignore",
}  # fmt: skip


def sources() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text())


def imported(tree: ast.Module) -> set[str]:
    """The top names that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_the_import_contracts_hold():
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("library", "mouths"),
    [
        ({"rq", "django_rq"}, {"agents/queue.py", "agents/worker.py"}),
        (
            {"channels", "asgiref"},
            {"agents/hints.py", "agents/sockets.py", "trinity/asgi.py", "loops/routing.py", "loops/sockets.py",
             "loops/event_reader.py", "loops/event_socket.py", "loops/page_socket.py"},
        ),
        ({"rest_framework", "drf_spectacular"}, {"agents/rest.py", "agents/api/", "loops/api/", "agents/urls.py"}),
        ({"mcp", "starlette"}, {"loops/api/mcp"}),
    ],
    ids=["RQ", "Channels", "REST framework", "MCP"],
)  # fmt: skip
def test_only_its_mouths_speak_to(library, mouths):
    speakers = {name for name, tree in sources() if imported(tree) & library}
    assert {name for name in speakers if not name.startswith(tuple(mouths))} == set()


def test_only_the_engine_writes_loops():
    """Whoever creates, saves, updates or deletes a loop's rows is the engine (or its statements, or a migration)."""
    writers = set()
    for name, tree in sources():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            text = ast.unparse(node.func)
            rows = text.startswith(("Loop.objects", "LoopRun.objects", "LoopEvent.objects", "StartKey.objects"))
            if rows and node.func.attr in {"create", "update", "delete", "bulk_create", "bulk_update", "get_or_create"}:
                writers.add(name)
    assert writers == {"loops/engine.py"}


def test_the_dotted_names_in_the_settings_resolve():
    for path in (*settings.EXECUTION_OBSERVERS.values(), *settings.AGENT_OBSERVERS, *settings.SWEEP_DUTIES):
        assert import_string(path)


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_every_module_says_its_one_job_in_its_first_line():
    silent = [
        name
        for name, tree in sources()
        if tree.body and not ast.get_docstring(tree) and "/migrations/" not in name and not name.endswith("apps.py")
    ]
    assert silent == []


def test_nothing_but_the_drawing_lies_at_the_top():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        names = {name for name in os.listdir(ROOT) if name in TOP}  # not a checkout
    else:
        names = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert names <= TOP
