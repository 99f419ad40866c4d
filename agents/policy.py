"""The table of who may: every route, tool and socket with what it does and the verdict that guards it.

Each room has a table of its own (`loops.policy`); `trinity.checks` holds them against what there is, and a way without a rule
stops the start. The verdicts themselves are in `agents.access`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Guard(Enum):
    """Who is let through; the function that decides it is named where there is one."""

    ANYBODY = "anybody"
    SIGNED_IN = "whoever shows a key or a session"
    VISIBLE = "signed in; the answer holds what the caller may see"  # access.visible_agents, visible_executions
    USE_AGENT = "access.use_agent"
    MANAGE_AGENT = "access.manage_agent"
    REMIND_AGENT = "access.remind_agent"
    AN_AGENT = "an agent, for itself"
    FOLLOW_EXECUTION = "access.follow_execution"
    FOLLOW_LOOP = "access.follow_loop"
    HOLD_KEYS = "access.hold_keys"
    END_KEY = "access.end_key"
    ADMIN = "an admin"
    NOBODY = "nobody: there is nothing"


@dataclass(frozen=True, slots=True)
class Rule:
    """One way in. `how`: an HTTP method, TOOL, SOCKET, or ANY for all below a prefix; `field`: only where this is given."""

    how: str
    where: str
    field: str
    action: str
    guard: Guard

    @property
    def transport(self) -> str:
        """As the trail calls it: rest mcp page socket."""
        if self.how == "TOOL" or self.where == "mcp":
            return "mcp"
        if self.how == "SOCKET":
            return "socket"
        return "rest" if self.where.lstrip("^").startswith(("api", "health")) else "page"


# (what it does, who is let through) -> "HOW where", or "HOW where with FIELD" where the field makes it another matter.
# What the trail records is called as the trail calls it.
Table = Mapping[tuple[str, Guard], tuple[str, ...]]


def rules(*tables: Table) -> tuple[Rule, ...]:
    """The tables' rows one by one."""
    return tuple(
        _rule(way, action, guard) for table in tables for (action, guard), ways in table.items() for way in ways
    )


def _rule(way: str, action: str, guard: Guard) -> Rule:
    address, _, field = way.partition(" with ")
    how, _, where = address.partition(" ")
    return Rule(how, where, field, action, guard)


AGENT = "api/agents/<str:name>"
EXECUTION = "api/executions/<str:execution_id>"
EXECUTION_PAGE = "executions/<slug:execution_id>/"
ACCESS = "agents/<slug:name>/access/"

TABLE: Table = {
    ("health.read", Guard.ANYBODY): ("GET health",),
    ("schema.read", Guard.ANYBODY): ("GET api/schema", "GET api/docs"),
    ("static.read", Guard.ANYBODY): ("ANY static/",),
    ("sign-in", Guard.ANYBODY): ("GET api/auth/mode", "POST api/token", "GET login/", "POST login/"),
    ("sign-out", Guard.ANYBODY): ("POST logout/",),
    ("caller.read", Guard.SIGNED_IN): ("GET api/users/me",),
    ("admin", Guard.ADMIN): ("ANY admin/",),
    ("agent.list", Guard.VISIBLE): ("GET api/agents", "GET api/monitoring/status", "GET ", "GET agents/"),
    ("agent.change", Guard.ADMIN): ("POST api/agents", f"PATCH {AGENT} with command"),
    ("agent.read", Guard.USE_AGENT): (
        *(f"GET {AGENT}", "GET api/monitoring/agents/<str:name>", "GET agents/<slug:name>/"),
    ),
    ("agent.read", Guard.MANAGE_AGENT): (f"GET {AGENT}/shares", f"GET {AGENT}/permissions", f"GET {ACCESS}"),
    ("agent.change", Guard.MANAGE_AGENT): (
        *(f"PATCH {AGENT}", f"PUT {AGENT}/timeout", f"POST {AGENT}/stop", f"POST {AGENT}/start", f"DELETE {AGENT}"),
        *("POST agents/<slug:name>/stop/", "POST agents/<slug:name>/start/"),
    ),
    ("shares.change", Guard.MANAGE_AGENT): (
        *(f"PUT {AGENT}/shares", f"POST {ACCESS} with do=share", f"POST {ACCESS} with do=unshare"),
    ),
    ("permissions.change", Guard.MANAGE_AGENT): (
        *(f"PUT {AGENT}/permissions", f"POST {ACCESS} with do=permit", f"POST {ACCESS} with do=forbid"),
    ),
    ("key.read", Guard.HOLD_KEYS): ("GET api/keys", "GET keys/"),
    ("key.create", Guard.HOLD_KEYS): (
        *("POST api/keys", "POST api/mcp/keys/ensure-default", "POST keys/ with do=create-key"),
    ),
    ("key.create", Guard.MANAGE_AGENT): ("POST api/keys with agent", f"POST {ACCESS} with do=create-key"),
    ("key.delete", Guard.END_KEY): ("DELETE api/keys/<int:key_id>", "POST keys/ with do=revoke-key"),
    ("key.delete", Guard.MANAGE_AGENT): (f"POST {ACCESS} with do=revoke-key",),
    ("audit.read", Guard.ADMIN): ("GET api/audit", "GET audit/"),
    ("execution.start", Guard.USE_AGENT): (f"POST {AGENT}/task", f"POST {AGENT}/chat"),
    ("execution.list", Guard.VISIBLE): ("GET api/executions", "GET executions/"),
    ("execution.read", Guard.USE_AGENT): (
        *(f"GET {AGENT}/executions", f"GET {AGENT}/chat/history", "GET agents/<slug:name>/executions/"),
    ),
    ("execution.read", Guard.FOLLOW_EXECUTION): (
        *(f"GET {EXECUTION}", f"GET {EXECUTION_PAGE}", f"GET {EXECUTION_PAGE}output/"),
        *(f"GET {EXECUTION_PAGE}message/", f"GET {EXECUTION_PAGE}response/"),
    ),
    ("execution.cancel", Guard.FOLLOW_EXECUTION): (f"POST {EXECUTION}/cancel", f"POST {EXECUTION_PAGE}cancel/"),
    ("reminder.create", Guard.REMIND_AGENT): (f"POST {AGENT}/reminders",),
    ("reminder.list", Guard.REMIND_AGENT): (f"GET {AGENT}/reminders",),
    ("reminder.cancel", Guard.REMIND_AGENT): (f"POST {AGENT}/reminders/<str:reminder_id>/cancel",),
}
