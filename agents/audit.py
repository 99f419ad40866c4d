"""Writes the audit trail: append-only, inside the caller's transaction where there is one."""

from __future__ import annotations

from agents.models import Audit


def allowed(actor: str, through: str, action: str, target: str, reason: str = "") -> None:
    """Record that `actor` did this; written with the change itself, so that neither stands without the other."""
    _write(actor, through, action, target, Audit.Verdict.ALLOWED, reason)


def refused(actor: str, through: str, action: str, target: str, reason: str) -> None:
    """Record that `actor` was not let do this, and why."""
    _write(actor, through, action, target, Audit.Verdict.REFUSED, reason)


def _write(actor: str, through: str, action: str, target: str, verdict: Audit.Verdict, reason: str) -> None:
    Audit.objects.create(
        actor=actor[:160], through=through, action=action, target=target[:160], verdict=verdict, reason=reason[:300]
    )
