"""Holds the tables of who may against the product: a route, tool or socket without a rule stops the start, as does an idle rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core.checks import Error, register
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver, get_resolver

from agents import policy
from loops import policy as loops_policy

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
Way = tuple[str, str]  # how, where; ANY where the code does not say which methods

RULES = policy.rules(policy.TABLE, loops_policy.TABLE)


# -- what there is --------------------------------------------------------------------------------
def ways() -> Iterator[Way]:
    """Every way into the product, as its routers have it."""
    from loops.api import mcp, mcp_door  # here, as commands that serve nobody need none of it
    from loops.routing import sockets

    yield from routes(get_resolver().url_patterns, {rule.where for rule in RULES if rule.how == "ANY"})
    yield "ANY", settings.STATIC_URL.lstrip("/")
    yield "ANY", mcp_door.PATH.lstrip("/")
    yield from (("TOOL", name) for name in mcp.TOOLS)
    yield from (("SOCKET", str(route.pattern)) for route in sockets.app.routes)  # type: ignore[attr-defined]


def routes(patterns: Iterable[URLPattern | URLResolver], prefixes: set[str], before: str = "") -> Iterator[Way]:
    """The routes below these patterns; what lies below one of `prefixes` is one way."""
    for pattern in patterns:
        where = before + str(pattern.pattern)
        if where in prefixes:
            yield "ANY", where
        elif isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, prefixes, where)
        else:
            yield from ((how, where) for how in _methods(pattern.callback))


def _methods(view: Any) -> list[str]:
    """The methods of a view of the REST API; a page does not say."""
    cls = getattr(view, "cls", None)
    return [method for method in METHODS if hasattr(cls, method.lower())] if cls else ["ANY"]


# -- held against the rules -----------------------------------------------------------------------
def holes(found: Iterable[Way], rules: Iterable[policy.Rule] = RULES) -> list[str]:
    """A sentence for each way that has no rule, and for each rule whose way is gone."""
    there, ruled = set(found), {(rule.how, rule.where) for rule in rules}
    served, known = _wheres(there, "ANY"), _wheres(ruled)
    bare = {way for way in there - ruled if way[0] != "ANY" or way[1] not in known}
    idle = {way for way in ruled - there if way[0] in {"TOOL", "SOCKET"} or way[1] not in served}
    return [
        *(
            f"{how} '{where}' has no rule: say in agents/policy.py or loops/policy.py who may."
            for how, where in sorted(bare)
        ),
        *(f"The rule for {how} '{where}' is of no use: there is no such way." for how, where in sorted(idle)),
    ]


def _wheres(ways: set[Way], *hows: str) -> set[str]:
    """Where HTTP leads to in these ways."""
    return {where for how, where in ways if (how in hows if hows else how not in {"TOOL", "SOCKET"})}


@register
def every_way_has_a_rule(app_configs: object = None, **_: object) -> list[Error]:
    """Django's check of it."""
    return [Error(said, id="trinity.E001") for said in holes(ways())]


def demand_a_rule_for_every_way() -> None:
    """For the web server's start. Raises ImproperlyConfigured."""
    if found := holes(ways()):
        raise ImproperlyConfigured(" ".join(found))
