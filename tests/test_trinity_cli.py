"""The field's own client, `trinity-cli` from PyPI as it is, against a running copy: each of its commands that we serve."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PASSWORD
from tests.running_copy import Copy, clean_environment, running_copy

pytestmark = pytest.mark.clients

RELEASE = "trinity-cli==0.2.9"


@dataclass
class Done:
    """How a command went."""

    code: int
    said: str

    @property
    def told(self) -> Any:
        """Its answer as JSON."""
        assert self.code == 0, self.said
        return json.loads(self.said)


class Client:
    """The client of one person, with a home of its own."""

    def __init__(self, program: Path, home: Path) -> None:
        self.program, self.home = program, home
        home.mkdir(exist_ok=True)

    def __call__(self, *words: str, typed: str = "", **variables: str) -> Done:
        """Run a command and type this; without a terminal it reads a password from stdin as well."""
        done = subprocess.run(
            [self.program, *words],
            env={**clean_environment(), "HOME": str(self.home), "COLUMNS": "200", **variables},
            cwd=self.home,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            start_new_session=True,
        )
        return Done(done.returncode, done.stdout)

    @property
    def profile(self) -> dict[str, Any]:
        """What it has kept of the last sign-in."""
        kept = json.loads((self.home / ".trinity" / "config.json").read_text())
        return kept["profiles"][kept["current_profile"]]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The console script in a venv of its own."""
    folder = tmp_path_factory.mktemp("trinity-cli")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    pip = [folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", RELEASE]
    done = subprocess.run(pip, env=clean_environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "trinity"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Iterator[Copy]:
    with running_copy(tmp_path_factory.mktemp("copy")) as found:
        yield found


def login(client: Client, copy: Copy, password: str = PASSWORD) -> Done:
    return client("login", "--instance", copy.base, "--admin", typed=f"{password}\n")


@pytest.fixture(scope="module")
def admin(program, copy, tmp_path_factory) -> Client:
    """The client, signed in."""
    client = Client(program, tmp_path_factory.mktemp("home"))
    done = login(client, copy)
    assert done.code == 0, done.said
    return client


def test_it_is_the_release_that_is_meant(program, tmp_path):
    assert Client(program, tmp_path)("--version").said.split()[-1] == RELEASE.partition("==")[2]


def test_it_signs_in_keeps_its_keys_and_says_how_things_stand(program, copy, tmp_path):
    client = Client(program, tmp_path / "home")
    assert "Not configured" in client("status").said
    assert "Connected" in client("status", TRINITY_URL=copy.base).said
    done = login(client, copy)
    assert done.code == 0 and "Logged in as admin" in done.said, done.said
    assert stat.S_IMODE(os.stat(client.home / ".trinity" / "config.json").st_mode) == 0o600
    assert (client.profile["user"]["username"], client.profile["user"]["role"]) == ("admin", "admin")
    assert client("agents", "list", "--format", "json").told[0]["name"] == "falcon"
    status = client("status").said
    assert copy.base in status and "Role:     admin" in status and "Status:   Connected" in status
    assert client("logout").code == 0
    assert client("agents", "list").code == 1


def test_a_key_for_mcp_comes_with_the_first_sign_in_and_stays(program, copy, tmp_path):
    copy.manage("shell", "-c", "from agents.models import Key; Key.objects.filter(name__startswith='MCP').delete()")
    client = Client(program, tmp_path / "home")
    assert "MCP API key provisioned" in login(client, copy).said
    key = client.profile["mcp_api_key"]
    assert (
        Client(program, tmp_path / "other")(
            "agents", "get", "falcon", "--format", "json", TRINITY_URL=copy.base, TRINITY_API_KEY=key
        ).told["name"]
        == "falcon"
    )
    again = login(client, copy)
    assert again.code == 0 and "provisioned" not in again.said
    assert client.profile["mcp_api_key"] == key


def test_a_wrong_password_and_a_bad_key_end_with_its_own_words(program, copy, tmp_path):
    client = Client(program, tmp_path / "home")
    for done in (
        login(client, copy, "wrong"),
        client("agents", "list", TRINITY_URL=copy.base, TRINITY_API_KEY="trinity_mcp_no_such_key"),
    ):
        assert done.code == 1 and "Authentication failed" in done.said, done.said


def test_it_lists_and_reads_agents(admin):
    table = admin("agents", "list").said
    assert "falcon" in table and "running" in table
    assert [agent["name"] for agent in admin("agents", "list", "--format", "json").told] == ["falcon"]
    assert admin("agents", "get", "falcon", "--format", "json").told["owner"] == "admin"
    assert "max_parallel_tasks" in admin("agents", "get", "falcon").said


def test_it_stops_and_starts_an_agent(admin):
    assert admin("agents", "stop", "falcon").said.strip() == "Stopped agent 'falcon'"
    assert admin("agents", "get", "falcon", "--format", "json").told["status"] == "stopped"
    assert admin("health", "agent", "falcon", "--format", "json").told["health"] == "stopped"
    refused = admin("chat", "falcon", "hello")
    assert refused.code == 1 and "HTTP 409: The agent is not running. Start it first." in refused.said
    assert admin("agents", "start", "falcon").said.strip() == "Started agent 'falcon'"
    assert admin("agents", "get", "falcon", "--format", "json").told["status"] == "running"


def test_it_chats_and_reads_what_was_said(admin):
    plan = '[{"say": "the answer is 42"}]'
    done = admin("chat", "falcon", plan)
    assert (done.code, done.said.strip()) == (0, "the answer is 42")
    whole = admin("chat", "falcon", '[{"say": "and 43", "cost": 0.5}]', "--format", "json").told
    assert set(whole) == {"response", "execution_id", "cost"}
    told = admin("history", "falcon", "--format", "json").told[-4:]
    assert [line["role"] for line in told] == ["user", "assistant"] * 2
    assert [line["content"].strip() for line in told[:2]] == [plan, "the answer is 42"]
    assert told[-1]["execution_id"] == whole["execution_id"]
    table = admin("history", "falcon").said
    assert "the answer is 42" in table and "assistant" in table


def test_a_chat_whose_turn_fails_is_told_why(admin):
    done = admin("chat", "falcon", '[{"fail": "the disk is full"}]')
    assert done.code == 1 and "HTTP 502: the disk is full" in done.said
    assert admin("history", "falcon", "--format", "json").told[-1]["role"] == "error"


def test_it_tells_the_health_of_the_fleet_and_of_an_agent(admin):
    fleet = admin("health", "fleet", "--format", "json").told
    assert (fleet["status"], fleet["workers"], fleet["agents_running"]) == ("ok", 1, 1)
    assert admin("chat", "falcon", '[{"say": "well"}]').code == 0
    one = admin("health", "agent", "falcon", "--format", "json").told
    assert (one["health"], one["last_turn_status"], one["turns_running"]) == ("healthy", "success", 0)
    assert "turns_waiting" in admin("health", "fleet").said
    assert "healthy" in admin("health", "agent", "falcon").said


def test_a_stranger_is_told_no_in_a_sentence(program, copy, tmp_path):
    copy.manage("createuser", "carol", "--password", PASSWORD)
    client = Client(program, tmp_path / "home")
    known = {"TRINITY_URL": copy.base, "TRINITY_API_KEY": copy.manage("createkey", "carol")}
    assert client("agents", "list", **known).said.strip() == "(no results)"
    for words in (("agents", "get"), ("agents", "stop"), ("history",), ("health", "agent")):
        done = client(*words, "falcon", **known)
        assert done.code == 1 and "HTTP 403: You do not have access to this." in done.said, words
