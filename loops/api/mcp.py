"""The MCP server: tells its tools and answers a call with one JSON object, as text and as structured content alike.

Who calls is in `caller_now`, put there by the door. Transport, host and key are the door's business (`loops.api.mcp_door`).
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ToolOnTheWire

from agents.access import Caller
from agents.api.inputs import Json
from agents.refusals import Refused
from loops.api import mcp_agents, mcp_loops
from loops.api.mcp_tools import Tool, sentence

log = logging.getLogger(__name__)

caller_now: ContextVar[Caller] = ContextVar("caller_now")
TOOLS = {tool.name: tool for tool in (*mcp_loops.TOOLS, *mcp_agents.TOOLS)}

INSTRUCTIONS = (
    "Trinity Loops runs work of AI agents on its own server: loops (the same task again and again, bounded and stoppable), "
    "single turns, and reminders. All of it goes on when your own turn is over; what you start inside your turn does not. "
    "So repeat with run_agent_loop and look again later with set_reminder. Every answer has `success`; where it is false, "
    "`error` says why in a sentence."
)
OUR_FAULT = "The server failed at this; its log says more."


def _on_the_wire(tool: Tool) -> ToolOnTheWire:
    return ToolOnTheWire(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema,
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads_only,
            destructive_hint=tool.ends_work,
            idempotent_hint=tool.reads_only or tool.repeatable,
            open_world_hint=False,
        ),
    )


async def _list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[_on_the_wire(tool) for tool in TOOLS.values()])


async def _call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, "There is no such tool.")
    try:
        return _result({"success": True, **await tool.run(caller_now.get(), params.arguments or {})})
    except Refused as refused:
        return _result({"success": False, "error": sentence(refused)})
    except Exception:
        log.exception("the tool %s failed", tool.name)
        return _result({"success": False, "error": OUR_FAULT})


def _result(answer: Json) -> CallToolResult:
    """Read back from the text, so that both forms are equal; what the caller sent and no text can carry is replaced in both."""
    text = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace").decode()
    return CallToolResult(
        content=[TextContent(text=text)], structured_content=json.loads(text), is_error=not answer["success"]
    )


def _schema(name: str) -> Json | None:
    return TOOLS[name].schema if name in TOOLS else None


server: Server[Any] = Server(
    "trinity-loops",
    title="Trinity Loops",
    version=str(settings.SPECTACULAR_SETTINGS["VERSION"]),
    instructions=INSTRUCTIONS,
    get_tool_input_schema=_schema,
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
)
