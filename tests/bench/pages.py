"""Pages and lists over a long history: time in the server and statements per request, beside a hundredth of the history."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from django.db import connection
from django.test import Client

from agents import keys
from tests.bench import cast, seed
from tests.bench.figures import Figures, quantile
from tests.bench.stage import Failed

ROUNDS = 3
REQUESTS = 20  # of each address in a round
PAGE_200 = 200 * 25  # loops before it


@dataclass(slots=True)
class Seen:
    """What one address took: seconds of each request, and the most statements of one."""

    seconds: list[float] = field(default_factory=list)
    statements: int = 0

    def ms(self, share: float) -> float:
        """The median over the rounds of a round's quantile."""
        rounds = [self.seconds[begin : begin + REQUESTS] for begin in range(0, len(self.seconds), REQUESTS)]
        return median(quantile(those, share) for those in rounds) * 1e3


def measure(figures: Figures, *, loops: int, runs_each: int) -> None:
    """Fill a hundredth, measure, fill the rest, measure again."""
    agents = [cast.agent(f"page-{number}").pk for number in range(seed.AGENTS)]
    small, large = {}, {}
    begun = 0
    for upto, into in ((loops // 100, small), (loops, large)):
        seed.fill(agents, begun, upto, runs_each)
        seed.refresh_statistics()
        into.update(_visit(upto))
        begun = upto
    figures.head(
        f"Pages at {loops:,} loops and {loops * runs_each:,} runs, beside a hundredth of it: time in the server"
    )
    for words, seen in large.items():
        p95, before = seen.ms(0.95), small[words].ms(0.95)
        ok = p95 <= 50 and p95 <= 2 * before and seen.statements <= 10
        beside = f"{p95 / before:.1f} x of {before:.1f}, {seen.statements} statements"
        figures.line(words, f"p50 {seen.ms(0.5):.1f}  p95 {p95:.1f} ms", beside + ("" if ok else "  MISSED"))
    worst = max(seen.ms(0.95) for seen in large.values())
    figures.goal("pages_p95_ms", "the slowest page's p95", worst, "<= 50", "ms", 1)
    most = max(seen.statements for seen in large.values())
    figures.goal("pages_queries", "the most statements of a page", most, "<= 10", digits=0)


def _addresses(loops: int) -> dict[str, list[str]]:
    """What is asked, each with several addresses so that nothing rendered before is handed out again."""
    page, api = "/agents/page-0/loops/", "/api/agents/page-0/loops"
    deep = [seed.loop_name(max(loops // 20, loops - 2 * PAGE_200 - 2 * number)) for number in range(ROUNDS * REQUESTS)]
    details = [seed.loop_name(loops - 4 - 2 * (number % 48)) for number in range(ROUNDS * REQUESTS)]
    return {
        "Loops tab": [page],
        "Loops tab: active": [f"{page}?status=active"],
        "Loops tab: needs a look": [f"{page}?status=attention"],
        "Loops tab: words that nobody used": [f"{page}?q=unheard-of"],
        "Loops tab: page 200 by cursor": [f"{page}?before={loop_id}" for loop_id in deep],
        "a loop": [f"{page}{loop_id}/" for loop_id in details],
        "a run": [f"{page}{loop_id}/runs/5/" for loop_id in details],
        "Agents": ["/agents/"],
        "REST: loops": [api],
        "REST: loops that failed": [f"{api}?status=failed"],
        "REST: page 200 by cursor": [f"{api}?cursor={loop_id}" for loop_id in deep],
        "REST: loops with their runs": [f"{api}?include=runs"],
        "REST: a loop": [f"/api/loops/{loop_id}" for loop_id in details],
        "REST: an agent's executions": ["/api/agents/page-0/executions"],
        "REST: executions": ["/api/executions"],
        "REST: executions that failed": ["/api/executions?status=failed"],
    }


def _visit(loops: int) -> dict[str, Seen]:
    """All addresses in turns, so that noise hits them alike."""
    person = cast.person()
    client = Client(headers={"host": "localhost"})
    client.force_login(person)
    bearer = {"authorization": f"Bearer {keys.issue(person, name='pages')[1]}"}
    addresses = _addresses(loops)
    found = {words: Seen() for words in addresses}
    for number in range(ROUNDS * REQUESTS + 2):
        for words, those in addresses.items():
            address = those[number % len(those)]
            headers = bearer if address.startswith("/api/") else {}
            with _counted() as statements:
                began = time.perf_counter()
                response = client.get(address, headers=headers)
                took = time.perf_counter() - began
            if response.status_code != 200:
                raise Failed(f"{address} answered {response.status_code}")
            if number >= 2:  # the first two load templates and fill the database's cache
                found[words].seconds.append(took)
            found[words].statements = max(found[words].statements, len(statements))
    return found


@contextmanager
def _counted() -> Iterator[list[str]]:
    statements: list[str] = []

    def note(execute, sql, params, many, context):
        statements.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield statements
