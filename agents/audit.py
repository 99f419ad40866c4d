"""Writes the audit trail: append-only, inside the caller's transaction where there is one."""

from __future__ import annotations

import re

from agents.models import Audit


def allowed(actor: str, through: str, action: str, target: str, reason: str = "") -> None:
    """Record that `actor` did this; written with the change itself, so that neither stands without the other."""
    _write(actor, through, action, target, Audit.Verdict.ALLOWED, reason)


def refused(actor: str, through: str, action: str, target: str, reason: str) -> None:
    """Record that `actor` was not let do this, and why."""
    _write(actor, through, action, target, Audit.Verdict.REFUSED, reason)


def _write(actor: str, through: str, action: str, target: str, verdict: Audit.Verdict, reason: str) -> None:
    Audit.objects.create(
        actor=_kept(actor, 160),
        through=through,
        action=action,
        target=_kept(target, 160),
        verdict=verdict,
        reason=_kept(reason, 300),
    )


def _kept(text: str, most: int) -> str:
    """What a row can hold of it; a target comes as the caller sent it, so it may have signs that no database takes."""
    return re.sub("[\0\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text[:most])
