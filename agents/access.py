"""Every permission verdict, for pages, REST, MCP and sockets alike (product.md 2). Decides; asks the database only for shares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from django.db.models import Q

from agents import audit, refusals
from agents.models import NAME_RULE, Agent, CallPermission, Execution, Key, Share, User

if TYPE_CHECKING:
    from django.db.models import QuerySet


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. A person, or an agent (`agent` set; `user` is then its owner), perhaps from inside a turn (`execution` set)."""

    user: User
    through: str  # rest mcp page command socket engine
    agent: Agent | None = None
    execution: Execution | None = None
    key_id: int | None = None

    @property
    def name(self) -> str:
        """As rows and audit call it: a username, or agent:NAME."""
        return f"agent:{self.agent.name}" if self.agent else self.user.username

    @property
    def identity(self) -> str:
        """Who it is however it is called: names may be given again, row ids are not."""
        return f"agent:{self.agent.pk}" if self.agent else f"user:{self.user.pk}"

    @property
    def is_person(self) -> bool:
        return self.agent is None

    @property
    def is_client(self) -> bool:
        return self.is_person and self.user.kind == User.Kind.CLIENT

    @property
    def is_admin(self) -> bool:
        return self.is_person and self.user.is_superuser


class Verdict(Enum):
    ALLOWED = "allowed"
    UNKNOWN = "unknown"  # as if it did not exist: 404
    FORBIDDEN = "forbidden"  # 403


def agent_named(name: str) -> Agent | None:
    """The living agent of this name."""
    if not NAME_RULE.fullmatch(name):
        return None
    return Agent.objects.living().select_related("owner").filter(name=name).first()


def use_agent(caller: Caller, agent: Agent | None) -> Verdict:
    """May the caller start and list loops on this agent, give it tasks, read its executions?

    Owner, admin, shared; an agent itself and what it may call, in that direction only. Clients know of no agent's loops.
    """
    if agent is None or caller.is_client or agent.deleted_at is not None:
        return Verdict.UNKNOWN
    return Verdict.ALLOWED if _uses(caller, agent) else Verdict.FORBIDDEN


def _uses(caller: Caller, agent: Agent) -> bool:
    if caller.agent is not None:
        if caller.agent.pk == agent.pk:
            return True
        return CallPermission.objects.filter(caller=caller.agent, target=agent).exists()
    return _owns(caller, agent) or Share.objects.filter(agent=agent, user=caller.user).exists()


def _owns(caller: Caller, agent: Agent) -> bool:
    return caller.is_admin or (caller.is_person and agent.owner_id == caller.user.pk)


def manage_agent(caller: Caller, agent: Agent | None) -> Verdict:
    """May the caller change, start, stop, share or delete it? Owner and admin."""
    if agent is None or caller.is_client or agent.deleted_at is not None:
        return Verdict.UNKNOWN
    return Verdict.ALLOWED if _owns(caller, agent) else Verdict.FORBIDDEN


def end_key(caller: Caller, key: Key | None) -> Verdict:
    """May the caller end this key? Who made it, who manages the agent that it is bound to, admins; no agent and no client."""
    if not caller.is_person or caller.is_client:
        return Verdict.FORBIDDEN
    if key is None:
        return Verdict.UNKNOWN
    manages = key.agent is not None and manage_agent(caller, key.agent) is Verdict.ALLOWED
    return Verdict.ALLOWED if caller.is_admin or key.user_id == caller.user.pk or manages else Verdict.FORBIDDEN


def hold_keys(caller: Caller) -> Verdict:
    """May the caller see and make keys of their own? Platform users; agents and clients manage no keys."""
    return Verdict.ALLOWED if caller.is_person and not caller.is_client else Verdict.FORBIDDEN


def remind_agent(caller: Caller, agent: Agent | None) -> Verdict:
    """May the caller set, list and cancel this agent's reminders? The agent itself and no other, its owner and admins."""
    if agent is not None and agent.deleted_at is None and caller.agent is not None and caller.agent.pk == agent.pk:
        return Verdict.ALLOWED
    return manage_agent(caller, agent)


def follow_loop(caller: Caller, agent: Agent, starter_id: int | None, started_by_agent: bool) -> Verdict:
    """May the caller read and stop a loop on `agent`? Who may use the agent, and the person who started the loop.

    The history of a deleted agent stays with its owner and the admins.
    """
    if caller.is_client:
        return Verdict.UNKNOWN
    if _owns(caller, agent):
        return Verdict.ALLOWED
    if agent.deleted_at is not None:
        return Verdict.FORBIDDEN
    if _uses(caller, agent):
        return Verdict.ALLOWED
    began_it = caller.is_person and not started_by_agent and starter_id == caller.user.pk
    return Verdict.ALLOWED if began_it else Verdict.FORBIDDEN


def follow_execution(caller: Caller, execution: Execution | None) -> Verdict:
    """May the caller read and cancel this execution? As its agent; loop runs do not exist for clients."""
    if execution is None:
        return Verdict.UNKNOWN
    return follow_loop(caller, execution.agent, None, started_by_agent=True)


def visible_agents(caller: Caller) -> QuerySet[Agent]:
    """The agents that the caller may use."""
    if caller.agent is None:
        return Agent.objects.visible_to(caller.user)
    callable_ones = CallPermission.objects.filter(caller=caller.agent).values("target")
    return Agent.objects.living().filter(Q(pk=caller.agent.pk) | Q(pk__in=callable_ones))


def visible_executions(caller: Caller) -> QuerySet[Execution]:
    """The executions that the caller may read: `follow_execution` as a query."""
    if caller.is_client:
        return Execution.objects.none()
    if caller.is_admin:
        return Execution.objects.all()
    of_agents = Q(agent__in=visible_agents(caller))
    return Execution.objects.filter(of_agents | Q(agent__owner=caller.user) if caller.is_person else of_agents)


def demand(verdict: Verdict, caller: Caller, action: str, target: str, what: str) -> None:
    """Return where it is allowed; else put the refusal on the trail and raise it."""
    if verdict is Verdict.ALLOWED:
        return
    refusal = refusals.unknown(what) if verdict is Verdict.UNKNOWN else refusals.forbidden()
    audit.refused(caller.name, caller.through, action, target, refusal.detail)
    raise refusal
