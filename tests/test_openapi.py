"""The API's description is true: every route is in it, and whatever it allows to be sent is answered as it says."""

from __future__ import annotations

import contextlib
import copy
import re
from datetime import timedelta
from typing import Any

import pytest
import schemathesis
from django.conf import settings as configured
from django.core.wsgi import get_wsgi_application
from django.test import Client
from django.urls import URLPattern, get_resolver
from django.utils import timezone
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from agents import keys
from agents.api.doors import NoSuchAddress
from agents.api.openapi import Docs, document
from agents.models import Execution, Key, Reminder, Worker
from loops.models import Loop, LoopRun
from tests.conftest import caller
from tests.ledger import ok, play, start

THERE = {
    "name": "falcon",
    "loop_id": "loop_here",
    "run_number": 1,
    "execution_id": "exec_here",
    "key_id": 77,
    "reminder_id": "rem_here",
}


def with_real_paths() -> dict[str, Any]:
    """The description, its path variables narrowed to what there is: random ones would find nothing but 404."""
    told = copy.deepcopy(document())
    for methods in told["paths"].values():
        for described in methods.values():
            for parameter in described.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["schema"]["enum"] = [THERE[parameter["name"]]]
    return told


schema = schemathesis.openapi.from_dict(with_real_paths())
schema.app = get_wsgi_application()


@pytest.fixture
def headers(request, cast, now, monkeypatch):
    """The bearer key of who is asked for; around them a loop with a run, and a key to delete."""
    monkeypatch.setattr("agents.api.turns.CHAT_WAITS", 0.01)
    Worker.objects.create(owner="host/boot/1/1", slots=1, seen_at=timezone.now())
    user = getattr(cast, request.param)
    Key.objects.create(pk=THERE["key_id"], user=user, name="another", digest="x")
    Loop.objects.create(
        pk="loop_here", agent=cast.falcon, starter=cast.alice, started_by="alice", message="m", max_runs=3
    )
    turn = {
        "agent": cast.falcon,
        "triggered_by": "loop",
        "requested_by": "alice",
        "message": "m",
        "loop_id": "loop_here",
    }
    Execution.objects.create(pk="exec_here", **turn)
    LoopRun.objects.create(
        loop_id="loop_here", run_number=1, execution_id="exec_here", status="running", started_at=now
    )
    Reminder.objects.create(
        pk="rem_here", agent=cast.falcon, set_by="alice", message="m", fire_at=now + timedelta(days=1)
    )
    start(caller(cast.alice), cast.falcon, now)
    play(cast.falcon, now, ok("fine", cost="0.1"))
    return {"Authorization": f"Bearer {keys.issue(user, name='test')[1]}"}


@pytest.mark.django_db(transaction=True)
@schema.parametrize()
@pytest.mark.parametrize("headers", ["alice", "root"], indirect=True)
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case, headers):
    # Some refusals no schema can tell: rules across fields, names that nobody has, a whole number written as 10.0.
    case.call_and_validate(headers=headers, excluded_checks=[positive_data_acceptance])


def _api_routes(patterns, before=""):
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route, pattern.callback
        else:
            yield from _api_routes(pattern.url_patterns, route)


def test_every_route_and_method_is_described():
    told = {(path, method) for path, methods in document()["paths"].items() for method in methods}
    there = set()
    for route, view in _api_routes(get_resolver().url_patterns):
        kind = getattr(view, "cls", None)
        if kind is None or kind in (Docs, NoSuchAddress):
            continue
        path = "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route)
        there |= {(path, method) for method in ("get", "post", "put", "patch", "delete") if hasattr(kind, method)}
    assert told == there
    assert len(there) > 25


def test_every_operation_has_a_name_a_summary_and_its_refusals():
    operations = [told for methods in document()["paths"].values() for told in methods.values()]
    assert len({told["operationId"] for told in operations}) == len(operations)
    for told in operations:
        assert told["summary"].endswith(".")
        assert ("401" in told["responses"]) == ("security" in told) or told["operationId"] == "create_token"
        assert not told.get("requestBody") or {"400", "411", "413", "415"} <= set(told["responses"])


def test_the_description_is_openapi_3_1_and_open_to_everybody():
    answer = Client().get("/api/schema")
    assert answer.status_code == 200 and answer.json()["openapi"].startswith("3.1")
    assert Client().get("/api/schema", {"lang": "\0", "version": "x"}).json() == answer.json()


def test_the_page_to_try_it_is_made_of_our_own_files_alone():
    page = Client().get("/api/docs")
    html = page.content.decode()
    sources = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert page.status_code == 200 and len(sources) == 5
    assert all(source.startswith("/") for source in sources)
    assert not re.search(r"<style|style=|<script>|onload=", html)
    assert "unsafe" not in page["Content-Security-Policy"]
    script = Client().get(next(source for source in sources if "script=" in source))
    assert script["Content-Type"].startswith("application/javascript") and b"/api/schema" in script.content
    for source in sources:
        if source.startswith(configured.STATIC_URL):
            with contextlib.closing(Client().get(source)) as part:
                assert part.status_code == 200, source
