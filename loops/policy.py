"""The table of who may, for the ways of this room: routes and pages of loops, the MCP tools, the sockets."""

from __future__ import annotations

from agents.policy import Guard, Table

LOOP = "api/loops/<str:loop_id>"
LOOPS_PAGE = "agents/<slug:name>/loops/"
LOOP_PAGE = LOOPS_PAGE + "<slug:loop_id>/"
RUN_PAGE = LOOP_PAGE + "runs/<int:number>/"
PAGE_SOCKET = "ws/agents/<str:name>/loops/"

TABLE: Table = {
    ("loop.start", Guard.USE_AGENT): (
        *("POST api/agents/<str:name>/loops", "TOOL run_agent_loop"),
        *(f"GET {LOOPS_PAGE}new/", f"POST {LOOPS_PAGE}new/", f"POST {LOOPS_PAGE}outlook/"),
    ),
    ("loop.list", Guard.USE_AGENT): (
        *("GET api/agents/<str:name>/loops", "TOOL list_loops with agent_name"),
        *(f"GET {LOOPS_PAGE}", f"POST {LOOPS_PAGE}state/"),
    ),
    ("loop.list", Guard.VISIBLE): ("TOOL list_loops",),
    ("loop.read", Guard.FOLLOW_LOOP): (
        *(f"GET {LOOP}", f"GET {LOOP}/runs/<int:run_number>", "TOOL get_loop_status"),
        *(
            f"GET {LOOP_PAGE}",
            f"GET {LOOP_PAGE}body/",
            f"GET {LOOP_PAGE}message/",
            f"POST {LOOPS_PAGE}state/ with loop",
        ),
        *(f"GET {RUN_PAGE}", f"GET {RUN_PAGE}response/"),
    ),
    ("loop.stop", Guard.FOLLOW_LOOP): (f"POST {LOOP}/stop", "TOOL stop_loop", f"POST {LOOP_PAGE}stop/"),
    ("events.listen", Guard.VISIBLE): ("SOCKET ws/events",),
    ("events.listen", Guard.USE_AGENT): ("SOCKET ws/events with agent", f"SOCKET {PAGE_SOCKET}"),
    ("events.listen", Guard.FOLLOW_LOOP): (f"SOCKET {PAGE_SOCKET} with loop",),
    ("tools.list", Guard.SIGNED_IN): ("POST mcp",),
    ("agent.list", Guard.VISIBLE): ("TOOL list_agents",),
    ("execution.start", Guard.USE_AGENT): ("TOOL chat_with_agent",),
    ("reminder.create", Guard.AN_AGENT): ("TOOL set_reminder",),
    ("reminder.list", Guard.AN_AGENT): ("TOOL list_reminders",),
    ("reminder.cancel", Guard.AN_AGENT): ("TOOL cancel_reminder",),
    ("nothing", Guard.NOBODY): (r"ANY ^api(?:/[\s\S]*)?$", "SOCKET "),
}
