"""What an MCP tool is, and what all tools share: which agent a call is about, and the words that refuse it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agents import access, refusals
from agents.access import Caller
from agents.api import doors
from agents.api.inputs import Field, Json, body_schema
from agents.models import Agent
from agents.refusals import Refused

Run = Callable[[Caller, Json], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: `run` answers a call with what stands beside `success`, or raises Refused."""

    name: str
    title: str
    description: str
    schema: Json
    run: Run
    reads_only: bool = False
    ends_work: bool = False
    repeatable: bool = False  # a second call with the same arguments changes nothing more


# -- arguments ------------------------------------------------------------------------------------
def any_text(*, required: bool = False) -> Field:
    """Text that is looked up and never stored: what it cannot be, nobody finds."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("must be text")
        return value

    return Field(check, {"type": "string"}, required)


def told(field: Field, description: str) -> Field:
    """The field with a description for its reader."""
    return replace(field, schema={**field.schema, "description": description})


def schema_of(fields: Mapping[str, Field]) -> Json:
    """The input schema of a tool with these arguments."""
    return body_schema(fields)


# -- the agent of a call --------------------------------------------------------------------------
def agent_of(caller: Caller, arguments: Json, action: str) -> Agent:
    """The agent that the call names, else the key's own. Raises Refused, with the refusal on the trail, where it is not theirs."""
    name = arguments.get("agent_name")
    if name is None:
        if caller.agent is None:
            raise refusals.invalid({"agent_name": ["is required with a key that is not bound to an agent"]})
        return caller.agent
    if not isinstance(name, str):
        raise refusals.invalid({"agent_name": ["must be text"]})
    agent = access.agent_named(name)
    try:
        return doors.admitted(agent, access.use_agent(caller, agent), caller, action, name, "Agent")
    except Refused as refused:
        raise Refused(refused.status, _not_yours(caller, name)) from refused


def _not_yours(caller: Caller, name: str) -> str:
    """One sentence for an agent that is foreign and one that does not exist."""
    if caller.agent is None:
        return f"Agent '{name}' not found or not accessible"
    return f"Permission denied: Agent '{caller.agent.name}' is not permitted to communicate with '{name}'."


# -- refusals -------------------------------------------------------------------------------------
def sentence(refused: Refused) -> str:
    """A refusal as a tool says it: REST's sentences, naming every field."""
    if refused.errors:
        said = " ".join(f"{field} {sentence}." for field, found in refused.errors.items() for sentence in found)
    else:
        said = refused.detail
    if refused.retry_after is not None:
        said += f" Try again after {refused.retry_after:,} s."
    return said.replace("Idempotency-Key", "idempotency_key")
