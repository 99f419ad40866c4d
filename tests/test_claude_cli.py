"""The Claude Code CLI from npm as it is, with a stand-in for its model: it lists our MCP tools and starts a loop, which runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from loops.api.mcp import TOOLS
from tests.fake_messages import FakeMessages, fake_messages, results, text, use
from tests.running_copy import Copy, clean_environment, running_copy

pytestmark = pytest.mark.clients

RELEASE = "@anthropic-ai/claude-code@2.1.197"
AWAY = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH")
OURS = {f"mcp__trinity__{name}" for name in TOOLS}
LOOP = {"agent_name": "falcon", "message": '[{"say": "run {run}"}]', "max_runs": 2}


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """The CLI in a folder that is removed: it is large."""
    if shutil.which("npm") is None:
        pytest.skip(
            "NOT TESTED: npm is not there, so the Claude Code CLI was not installed and did not meet our server."
        )
    with tempfile.TemporaryDirectory(prefix="claude-cli-") as folder:
        npm = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", RELEASE]
        done = subprocess.run(npm, capture_output=True, text=True, timeout=600)
        away = next((word for word in AWAY if word in done.stderr), "") if done.returncode else ""
        if away:
            pytest.skip(f"NOT TESTED: npm's registry is not reachable ({away}), so there is no Claude Code CLI to try.")
        assert done.returncode == 0, done.stderr
        yield Path(folder) / "node_modules" / ".bin" / "claude"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Iterator[Copy]:
    with running_copy(tmp_path_factory.mktemp("copy")) as found:
        yield found


def script(asked: dict[str, Any]) -> dict[str, Any]:
    """Start a loop, and end the turn once the tool has answered; whatever else the CLI asks for gets a word."""
    if results(asked):
        return text("The loop is at work.")
    offered = {tool["name"] for tool in asked.get("tools", [])}
    return use("mcp__trinity__run_agent_loop", LOOP) if offered & OURS else text("Loops")


def run_claude(program: Path, folder: Path, model: FakeMessages, copy: Copy, key: str) -> list[dict[str, Any]]:
    """One headless turn in this folder; the lines of its stream."""
    servers = {"trinity": {"type": "http", "url": f"{copy.base}/mcp", "headers": {"Authorization": f"Bearer {key}"}}}
    configuration = folder / "mcp.json"
    configuration.write_text(json.dumps({"mcpServers": servers}))
    words = (
        *("-p", "Have falcon work in a loop.", "--output-format", "stream-json", "--verbose", "--max-turns", "4"),
        *("--mcp-config", str(configuration), "--strict-mcp-config", "--allowedTools", "mcp__trinity"),
        *("--disallowedTools", "ScheduleWakeup", "CronCreate"),
    )
    variables = {
        **{"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "claude"), "CLAUDE_CODE_MAX_RETRIES": "1"},
        **{"ANTHROPIC_BASE_URL": model.base, "ANTHROPIC_API_KEY": "dummy"},
        **{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
        **{"DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_CRON": "1"},
    }
    done = subprocess.run(
        [program, *words],
        env={**clean_environment(), **variables},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_lists_our_tools_and_starts_a_loop_that_completes(program, copy, tmp_path):
    key = copy.manage("createkey", "admin")
    address = f"{copy.base.replace('http', 'ws', 1)}/ws/events"
    with (
        connect(address, additional_headers={"Authorization": f"Bearer {key}"}) as events,
        fake_messages(script) as model,
    ):
        said = run_claude(program, tmp_path, model, copy, key)
        loop = _started(said, model)
        told = _until_completed(events, loop["loop_id"])

    assert (told["status"], told["stop_reason"], told["runs_completed"]) == ("completed", "max_runs_reached", 2)
    answer = httpx.get(f"{copy.base}/api/loops/{loop['loop_id']}", headers={"Authorization": f"Bearer {key}"})
    row = answer.raise_for_status().json()
    assert (row["status"], row["agent_name"], row["started_by"]) == ("completed", "falcon", "admin")
    assert [run["response_preview"].strip() for run in row["runs"]] == ["run 1", "run 2"]


def _started(said: list[dict[str, Any]], model: FakeMessages) -> dict[str, Any]:
    """What our tool has answered, as the model was told it."""
    begun = next(line for line in said if line.get("subtype") == "init")
    assert [(server["name"], server["status"]) for server in begun["mcp_servers"]] == [("trinity", "connected")]
    turns = [asked for asked in model.asked if OURS & {tool["name"] for tool in asked.get("tools", [])}]
    assert len(turns) == 2
    for asked in turns:
        offered = {tool["name"]: tool for tool in asked["tools"]}
        assert offered.keys() >= OURS
        for name in OURS:
            tool = TOOLS[name.removeprefix("mcp__trinity__")]
            assert offered[name]["input_schema"]["properties"].keys() == tool.schema["properties"].keys()
    (result,) = results(turns[1])
    content = result["content"]
    answer = json.loads(content if isinstance(content, str) else content[0]["text"])
    assert answer["success"] and not result.get("is_error")
    end = said[-1]
    assert (end["type"], end["is_error"], end["result"]) == ("result", False, "The loop is at work.")
    assert end["permission_denials"] == []
    return answer


def _until_completed(events: Any, loop_id: str) -> dict[str, Any]:
    """The loop's last event."""
    while True:
        event = json.loads(events.recv(timeout=60))
        assert event["loop_id"] == loop_id
        if event["type"] == "loop_completed":
            return event
