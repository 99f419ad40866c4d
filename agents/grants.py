"""Who is let in: shares, call permissions and keys, given and taken. For REST and pages alike; asks nobody's permission.

Each change is one transaction with its line on the trail, and says after commit that verdicts are to be formed anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from agents import access, audit, hints, keys, refusals, sql
from agents.access import Caller
from agents.models import Agent, CallPermission, Key, Share, User

MOST_NAME = 100
MOST_DAYS = 3650  # that a key may be asked to last
DEAD_KEYS_SHOWN = timedelta(days=7)  # so long a key that has expired is still in lists of living ones


# -- shares ---------------------------------------------------------------------------------------
def shares_of(agent: Agent) -> list[str]:
    """Usernames of those who share the agent, in order."""
    return list(agent.shares.order_by("user__username").values_list("user__username", flat=True))


def set_shares(caller: Caller, agent: Agent, usernames: list[str]) -> list[str]:
    """Share the agent with exactly these platform users. Raises Refused (400) naming each who is none."""
    wanted = _once(usernames)
    ids = _people(wanted).values()
    with transaction.atomic():
        sql.lock_agent(agent.pk)
        Share.objects.filter(agent=agent).exclude(user__in=ids).delete()
        Share.objects.bulk_create((Share(agent=agent, user_id=id) for id in ids), ignore_conflicts=True)
        _written(caller, agent, "shares.change", _now(wanted))
    return wanted


def share(caller: Caller, agent: Agent, username: str) -> bool:
    """Share the agent with this platform user too; False where it is already. Raises Refused (400) where they are none."""
    user_id = _people([username])[username]
    with transaction.atomic():
        sql.lock_agent(agent.pk)
        _, added = Share.objects.get_or_create(agent=agent, user_id=user_id)
        if added:
            _written(caller, agent, "shares.change", f"added {username}")
    return added


def unshare(caller: Caller, agent: Agent, username: str) -> bool:
    """Share it with this person no longer; False where it was not."""
    with transaction.atomic():
        sql.lock_agent(agent.pk)
        removed, _ = Share.objects.filter(agent=agent, user__username=username).delete()
        if removed:
            _written(caller, agent, "shares.change", f"removed {username}")
    return bool(removed)


def _people(usernames: list[str]) -> dict[str, int]:
    people = User.objects.filter(username__in=_storable(usernames), kind=User.Kind.PLATFORM)
    found = dict(people.values_list("username", "pk"))
    _refuse_missing("users", usernames, found, "is not a platform user")
    return found


# -- call permissions -----------------------------------------------------------------------------
def permissions_of(agent: Agent) -> QuerySet[Agent]:
    """The living agents that this one may call, in order."""
    return Agent.objects.living().filter(callable_by__caller=agent).order_by("name")


def set_permissions(caller: Caller, agent: Agent, names: list[str]) -> list[str]:
    """Let the agent call exactly these agents. Raises Refused (400) naming each that the caller may not use."""
    wanted = _once(names)
    ids = _targets(caller, wanted).values()
    with transaction.atomic():
        sql.lock_agent(agent.pk)
        CallPermission.objects.filter(caller=agent).exclude(target__in=ids).delete()
        rows = (CallPermission(caller=agent, target_id=id) for id in ids)
        CallPermission.objects.bulk_create(rows, ignore_conflicts=True)
        _written(caller, agent, "permissions.change", _now(wanted))
    return wanted


def permit(caller: Caller, agent: Agent, name: str) -> bool:
    """Let the agent call this one too; False where it may already. Raises Refused (400) where the caller may not use it."""
    target_id = _targets(caller, [name])[name]
    with transaction.atomic():
        sql.lock_agent(agent.pk)
        _, added = CallPermission.objects.get_or_create(caller=agent, target_id=target_id)
        if added:
            _written(caller, agent, "permissions.change", f"added {name}")
    return added


def forbid(caller: Caller, agent: Agent, name: str) -> bool:
    """Let the agent call this one no longer, whether or not the caller may use it; False where it may not already."""
    with transaction.atomic():
        sql.lock_agent(agent.pk)
        rows = CallPermission.objects.filter(caller=agent, target__name=name, target__deleted_at=None)
        removed, _ = rows.delete()
        if removed:
            _written(caller, agent, "permissions.change", f"removed {name}")
    return bool(removed)


def _targets(caller: Caller, names: list[str]) -> dict[str, int]:
    found = dict(access.visible_agents(caller).filter(name__in=_storable(names)).values_list("name", "pk"))
    _refuse_missing("agents", names, found, "is not an agent that you may use")
    return found


# -- keys -----------------------------------------------------------------------------------------
def keys_of_person(user: User) -> QuerySet[Key]:
    """The keys that this person has made and nobody has ended, newest first."""
    return Key.objects.filter(user=user, revoked_at=None).select_related("agent").order_by("-pk")


def keys_of_agent(agent: Agent) -> QuerySet[Key]:
    """The keys that are bound to this agent, whoever made them, and nobody has ended, newest first."""
    return Key.objects.filter(agent=agent, revoked_at=None).select_related("user").order_by("-pk")


def still_told(rows: QuerySet[Key], now: datetime) -> QuerySet[Key]:
    """Without those that have expired some time ago."""
    return rows.filter(Q(expires_at=None) | Q(expires_at__gt=now - DEAD_KEYS_SHOWN))


def create_key(
    caller: Caller, *, name: str, agent: Agent | None = None, expires_at: datetime | None = None, once: str = ""
) -> tuple[Key, str]:
    """A key of the caller, or bound to an agent that they manage, and its secret, which is kept nowhere.

    `once` names the form that asks for it. Raises Refused (409) where that form has made its key before.
    """
    try:
        with transaction.atomic():
            key, secret = keys.issue(caller.user, name=name, agent=agent, expires_at=expires_at, once=once)
            audit.allowed(caller.name, caller.through, "key.create", str(key.pk))
    except IntegrityError as twice:
        if not once:
            raise
        raise refusals.conflict(
            "This key was made already, and its secret is shown only once. If you have not seen it, revoke the key and "
            "make another one."
        ) from twice
    return key, secret


def end_key(caller: Caller, key: Key, now: datetime) -> bool:
    """End a key at once; False where it was ended before."""
    with transaction.atomic():
        ended = keys.revoke(key, now)
        if ended:
            audit.allowed(caller.name, caller.through, "key.delete", str(key.pk))
            hints.say_access_changed()
    return ended


def key_name(value: object) -> str:
    """The name of a key. Raises ValueError with what it must be."""
    if not isinstance(value, str) or not 1 <= len(value) <= MOST_NAME:
        raise ValueError(f"must be text of 1 to {MOST_NAME} characters")
    if not value.strip():
        raise ValueError("must not be blank")
    if not _is_storable(value):
        raise ValueError("must not contain NUL or broken characters")
    return value


def key_days(value: str) -> int | None:
    """How many days a key is to last, as typed; None where nothing was. Raises ValueError with what it must be."""
    typed = value.strip()
    if not typed:
        return None
    if not re.fullmatch("[0-9]{1,6}", typed) or not 1 <= int(typed) <= MOST_DAYS:
        raise ValueError(f"must be a whole number from 1 to {MOST_DAYS:,}, or empty for a key that does not expire")
    return int(typed)


# -- what they share ------------------------------------------------------------------------------
def _once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _is_storable(text: str) -> bool:
    return not re.search("[\0\ud800-\udfff]", text)


def _storable(names: Iterable[str]) -> list[str]:
    """Without what no database takes, and no row can be."""
    return [name for name in names if _is_storable(name)]


def _refuse_missing(field: str, wanted: list[str], found: dict[str, int], said: str) -> None:
    missing = [f"{name} {said}" for name in wanted if name not in found]
    if missing:
        raise refusals.invalid({field: missing})


def _now(names: list[str]) -> str:
    return f"now {', '.join(names) or 'nobody'}"


def _written(caller: Caller, agent: Agent, action: str, said: str) -> None:
    audit.allowed(caller.name, caller.through, action, agent.name, said)
    hints.say_access_changed()
