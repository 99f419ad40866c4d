"""Is the installation whole? What `/health` answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import Error, connection
from django.utils import timezone

from agents import owner, queue
from agents.models import Worker


def report() -> tuple[bool, dict[str, Any]]:
    """Whether every part works, and which do: database and Redis answer, at least one worker was heard lately."""
    try:
        connection.ensure_connection()
        workers = _living_workers()
        database = True
    except Error:
        workers, database = 0, False
    redis = queue.answers()
    whole = database and redis and workers > 0
    parts = {
        "status": "ok" if whole else "down",
        "database": "ok" if database else "down",
        "redis": "ok" if redis else "down",
        "workers": workers,
    }
    return whole, parts


def _living_workers() -> int:
    """Workers that were heard lately, without those of this host that are seen to be dead."""
    heard = Worker.objects.filter(seen_at__gt=timezone.now() - timedelta(seconds=2 * settings.TRINITY_LEASE_SECONDS))
    names = heard.values_list("owner", flat=True)
    return sum(not (name.startswith(f"{owner.host()}/") and owner.is_dead(name)) for name in names)
