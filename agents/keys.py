"""Bearer keys: issue, hash, look up, revoke; and the short-lived key of a turn, which is derived and never stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from agents.access import Caller
from agents.models import Agent, Execution, Key, User

PREFIX = "trinity_"
TURN = PREFIX + "turn_"
_USE_NOTED_EVERY = timedelta(minutes=1)


def digest(secret: str) -> str:
    """What is kept of a key. A plain hash is enough: the key itself has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue(
    user: User, *, name: str, agent: Agent | None = None, expires_at: datetime | None = None, once: str = ""
) -> tuple[Key, str]:
    """Make a key; the secret is returned this once and kept nowhere. `once` may be used once by a person: IntegrityError."""
    secret = PREFIX + secrets.token_urlsafe(32)
    key = Key.objects.create(user=user, agent=agent, name=name, digest=digest(secret), expires_at=expires_at, once=once)
    return key, secret


def turn_key(execution_id: str, attempt: int) -> str:
    """The agent-scoped key that one attempt of a turn is given.

    Derived from the server's secret, so whoever adopts the turn knows it too: to check it, and to mask it in the output.
    """
    text = f"{execution_id}.{attempt}"
    proof = hmac.new(settings.SECRET_KEY.encode(), f"turn:{text}".encode(), hashlib.sha256).hexdigest()
    return f"{TURN}{text}.{proof}"


def look_up(secret: str, through: str) -> Caller | None:
    """Who calls with this key; None where it is unknown, revoked, expired, or its turn, agent or person is gone."""
    if secret.startswith(TURN):
        return _look_up_turn(secret, through)
    now = timezone.now()
    wanted = digest(secret)
    key = Key.objects.select_related("user", "agent__owner").filter(digest=wanted, revoked_at=None).first()
    if key is None or not hmac.compare_digest(key.digest, wanted) or not _is_good(key, now):
        return None
    if key.last_used_at is None or key.last_used_at < now - _USE_NOTED_EVERY:
        Key.objects.filter(pk=key.pk).update(last_used_at=now)
    return Caller(user=key.agent.owner if key.agent else key.user, through=through, agent=key.agent, key_id=key.pk)


def _is_good(key: Key, now: datetime) -> bool:
    """Not revoked, not expired, and of somebody who may still give it: an active person, for an agent its owner or an admin."""
    if key.revoked_at or (key.expires_at and key.expires_at <= now) or not key.user.is_active:
        return False
    if key.agent is None:
        return True
    may_give = key.user.is_superuser or key.agent.owner_id == key.user_id
    return may_give and key.agent.deleted_at is None and key.agent.owner.is_active


def is_alive(caller: Caller) -> bool:
    """Is the key that a caller came with still good? For whoever keeps a line open."""
    if caller.execution is not None:
        return _running_turn(caller.execution.pk, caller.execution.attempt) is not None
    if caller.key_id is None:
        return False
    key = Key.objects.select_related("user", "agent__owner").filter(pk=caller.key_id).first()
    return key is not None and _is_good(key, timezone.now())


def _look_up_turn(secret: str, through: str) -> Caller | None:
    execution_id, _, rest = secret.removeprefix(TURN).partition(".")
    attempt = rest.partition(".")[0]
    if not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
        return None
    if not hmac.compare_digest(secret.encode(), turn_key(execution_id, int(attempt)).encode()):
        return None
    turn = _running_turn(execution_id, int(attempt))
    if turn is None:
        return None
    return Caller(user=turn.agent.owner, through=through, agent=turn.agent, execution=turn)


def _running_turn(execution_id: str, attempt: int) -> Execution | None:
    """This attempt of this turn while it runs, for an agent that is still there."""
    turns = Execution.objects.select_related("agent__owner").filter(pk=execution_id, attempt=attempt)
    return turns.filter(state=Execution.State.RUNNING, agent__deleted_at=None, agent__owner__is_active=True).first()


def revoke(key: Key, now: datetime) -> bool:
    """End a key at once; False where it was ended before."""
    return bool(Key.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=now))
