"""A password for a person, by page and by API alike: how often it may be wrong, and what the trail says of it.

The limit is per name and address, kept in the database that all web processes share.

An attempt is written down before the password is looked at and taken back where it was right, so that attempts made at the
same moment cannot pass the limit together; who would pass it is refused without a look at the password.
"""

from __future__ import annotations

import hashlib
import math
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone

from agents import audit, refusals
from agents.models import FailedSignIn, User
from agents.refusals import Refused

ACTION = "sign-in"
WRONG = "Wrong username or password."
NOBODY = "(unknown)"  # no username can be this


def address_of(request: HttpRequest) -> str:
    """Where a request comes from: the connection, or what the outermost of our own proxies has seen (TRINITY_PROXIES)."""
    connection = str(request.META.get("REMOTE_ADDR", ""))
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",") if hop.strip()]
    trusted = min(settings.TRINITY_PROXIES, len(hops))
    return hops[-trusted] if trusted else connection


def digest(address: str, name: object) -> str:
    """What attempts on one name from one address are counted under."""
    return hashlib.sha256(f"{address} {name!r}".encode()).hexdigest()


def attempt(who: str, now: datetime) -> FailedSignIn:
    """Write an attempt down as failed, until `was_right`. Raises Refused (429) where `who` has used the limit up."""
    window = timedelta(seconds=settings.TRINITY_SIGN_IN_SECONDS)
    FailedSignIn.objects.filter(at__lte=now - window).delete()
    if wait := _wait(who, now, window, settings.TRINITY_SIGN_IN_FAILURES):
        raise _too_many(wait)
    noted = FailedSignIn.objects.create(digest=who, at=now)
    # Counted again with this one: whoever noted theirs last sees all that were let through before.
    if wait := _wait(who, now, window, settings.TRINITY_SIGN_IN_FAILURES + 1):
        noted.delete()
        raise _too_many(wait)
    return noted


def was_right(noted: FailedSignIn) -> None:
    """Take back the attempt: it was no failure."""
    noted.delete()


def _wait(who: str, now: datetime, window: timedelta, most: int) -> int:
    """Seconds until fewer than `most` attempts count; 0 = now."""
    times = list(FailedSignIn.objects.filter(digest=who, at__gt=now - window).order_by("-at").values_list("at")[:most])
    if len(times) < most:
        return 0
    return max(1, math.ceil((times[-1][0] + window - now).total_seconds()))


def _too_many(wait: int) -> Refused:
    return refusals.too_many(f"Request was throttled. Expected available in {wait} second{'s' * (wait != 1)}.", wait)


def person_of(request: HttpRequest, name: str, password: str, through: str) -> User | None:
    """Whose name and password these are; None where they are wrong. Raises Refused (429) where the limit is used up."""
    noted = attempt(digest(address_of(request), name), timezone.now())
    user = authenticate(request, username=name, password=password)
    if not isinstance(user, User):
        audit.refused(_known(name), through, ACTION, "", WRONG)
        return None
    was_right(noted)
    return user


def _known(name: str) -> str:
    """The name as the trail may hold it: what is nobody's name may be a password in the wrong field."""
    return name if User.objects.filter(username=name).exists() else NOBODY


class BoundedSignIn(AuthenticationForm):
    """Name and password, with the limit on wrong ones. `refused` is set where it was used up."""

    refused: Refused | None = None

    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name is None or not password or self.request is None:
            return super().clean()
        try:
            self.user_cache = person_of(self.request, name, password, "page")
        except Refused as refused:
            self.refused = refused
            raise ValidationError(refused.detail, code="throttled") from refused
        if self.user_cache is None:
            raise self.get_invalid_login_error()
        self.confirm_login_allowed(self.user_cache)
        audit.allowed(self.user_cache.username, "page", ACTION, "")
        return self.cleaned_data
