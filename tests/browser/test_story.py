"""A person's story with loops, told in a real browser: start, watch, open, stop, come back; by mouse, by keyboard, without script."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Product, Visit
from tests.conftest import SCRIPTED

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parent / "screenshots"
TAB = "/agents/falcon/loops/"
TURN = 15_000  # milliseconds that a turn of the scripted agent may take on a busy machine


def plan(text: str, *steps: dict[str, object]) -> str:
    return f"{text}\n{json.dumps(steps)}"


@pytest.fixture
def gate(product: Product) -> Iterator[Path]:
    """The file that a waiting run waits for; it is opened at the end, so that no run is left behind."""
    file = product.workspace("falcon") / "gate"
    file.unlink(missing_ok=True)
    yield file
    file.touch()


def live(page: Page) -> None:
    expect(page.locator("#connection")).to_have_attribute("data-state", "live", timeout=TURN)


def open_form(page: Page) -> None:
    page.locator("#run-loop").click()
    expect(page.locator("#message")).to_be_focused()


def start(page: Page, message: str, **fields: str) -> Locator:
    """Start a loop by the form in the list; the row that comes on top."""
    open_form(page)
    page.locator("#message").fill(message)
    for name, value in fields.items():
        field = page.locator(f"#{name}")
        field.select_option(value) if name == "on_failure" else field.fill(value)
    page.locator("#start-loop").click()
    expect(page.locator("#loop-form")).to_have_count(0)
    title = message.partition("\n")[0]
    row = page.locator("#loops > li:first-child article.loop").filter(has_text=title)
    expect(row).to_be_visible()
    return page.locator(f"#{row.get_attribute('id')}")


def done_with(page: Page) -> Locator:
    """A loop of one run that has ended."""
    row = start(page, plan("One to look at", {"say": "done"}), max_runs="1")
    expect(row).to_have_attribute("data-status", "completed", timeout=TURN)
    return row


def hear(page: Page) -> None:
    """Note everything that the polite voice says from now on."""
    page.evaluate(
        """() => {
            window.heard = [];
            const voice = document.querySelector("#announcer");
            new MutationObserver(() => window.heard.push(voice.textContent)).observe(voice, {
                childList: true, characterData: true, subtree: true,
            });
        }"""
    )


def test_a_loop_is_started_watched_opened_stopped_and_found_again(visit: Visit, gate: Path):
    page = visit.sign_in("alice", TAB)
    live(page)
    hear(page)
    page.evaluate("window.sameDocument = true")
    row = start(
        page, plan("Look after the tests", {"say": "one"}, {"say": "two"}, {"print": ["half way"], "wait": "gate"})
    )
    expect(row.locator(".run b")).to_have_text("Run 3 / 5", timeout=TURN)
    expect(row.locator(".status")).to_have_text("Running")
    expect(page.locator("#loops-active")).to_contain_text("1")

    row.get_by_role("button", name=re.compile("^Details of loop")).click()
    expect(row.locator(".runs tbody tr")).to_have_count(3)
    expect(row.locator(".now-line code")).to_have_text("half way", timeout=TURN)
    expect(row.locator(".runs tbody tr").nth(1)).to_contain_text("two")

    row.locator("button[name=stop]").click()
    expect(row.locator(".status").first).to_have_text(
        re.compile(r"Finishing run 3, then stopping \(by \d\d:\d\d at the latest\)")
    )
    gate.touch()
    expect(row).to_have_attribute("data-status", "stopped", timeout=TURN)
    expect(row.locator(".status").first).to_have_text("Stopped by you")
    expect(row.locator("button.open")).to_have_attribute("aria-expanded", "true")
    expect(row.locator(".runs tbody tr").first).to_contain_text("done")
    expect(page.locator("#announcer")).to_have_text(re.compile("ended: Stopped"), timeout=TURN)
    assert page.evaluate("window.sameDocument") is True
    said = page.evaluate("window.heard")
    assert len(said) <= 4 and said[0].endswith("started.")

    page.reload()
    again = page.locator(f"#{row.get_attribute('id')}")
    expect(again).to_have_attribute("data-status", "stopped")
    expect(again).to_contain_text("Stopped by you")
    page.goto(f"{TAB}{again.get_attribute('id').removeprefix('loop-')}/runs/3/")
    expect(page.locator("#run-html")).to_have_text("done")


def test_the_same_story_by_keyboard_alone(visit: Visit, gate: Path):
    page = visit.sign_in("alice", TAB)
    live(page)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.locator("#run-loop").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_be_focused()
    page.keyboard.insert_text(plan("By keyboard", {"say": "one"}, {"wait": "gate"}))
    page.keyboard.press("Tab")
    expect(page.locator("#max_runs")).to_be_focused()
    page.keyboard.insert_text("0")
    page.keyboard.press("Enter")
    expect(page.locator("#loop-errors")).to_be_focused()
    expect(page.locator("#loop-errors")).to_contain_text("Max runs must be a whole number from 1 to 100")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#max_runs")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("4")
    page.keyboard.press("Enter")
    row = page.locator("#loops > li:first-child article.loop").filter(has_text="By keyboard")
    expect(row.locator("h3 a")).to_be_focused()
    expect(row.locator(".run b")).to_have_text("Run 2 / 4", timeout=TURN)

    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(row.locator(".runs tbody tr")).to_have_count(2)
    expect(row.locator("button.open")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(row.locator("button[name=stop]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(row.locator(".act button")).to_have_text("Stopping…")
    expect(row.locator(".act button")).to_be_focused()
    gate.touch()
    expect(row).to_have_attribute("data-status", "stopped", timeout=TURN)
    expect(row.locator("h3 a")).to_be_focused()  # the button is gone; the row is still where one was


def test_the_same_story_without_any_script(chromium: Browser, product: Product, gate: Path):
    visit = Visit(chromium, product.base, java_script_enabled=False)
    page = visit.sign_in("alice", TAB)
    page.locator("#run-loop").click()
    page.get_by_label("Message template").fill(plan("Without script", {"say": "one"}, {"wait": "gate"}))
    page.get_by_label("Max runs").fill("none")
    page.locator("#start-loop").click()
    expect(page.locator("#loop-errors")).to_contain_text("Max runs must be a whole number")
    expect(page.locator("#message")).to_have_value(re.compile("Without script"))
    page.get_by_label("Max runs").fill("4")
    page.locator("#start-loop").click()
    row = page.locator("#loops > li:first-child article.loop")
    expect(row).to_contain_text("Without script")
    expect(row.locator("button.open")).to_have_attribute("aria-expanded", "true")
    row.locator("button.open").click()
    expect(row.locator("button.open")).to_have_attribute("aria-expanded", "false")
    row.locator("button.open").click()
    expect(row.locator("button.open")).to_have_attribute("aria-expanded", "true")
    for _ in range(50):
        if "Run 2 / 4" in row.inner_text():
            break
        page.wait_for_timeout(200)
        page.reload()
    row.locator("button[name=stop]").click()
    expect(page.locator(".notice")).to_contain_text("Finishing run 2, then stopping")
    expect(row.locator(".act")).to_contain_text("Stopping…")
    visit.context.close()


def test_what_the_reader_holds_is_kept_while_runs_arrive(visit: Visit, gate: Path):
    page = visit.sign_in("alice", TAB)
    live(page)
    steps: list[dict[str, object]] = [
        {"sleep": 0.3, "say": f"reply {number}\n\n" + "a long line of the reply\n\n" * 60} for number in range(1, 13)
    ]
    steps[1]["wait"] = "gate"
    row = start(page, plan("Many replies", *steps), max_runs="12", no_progress_threshold="0")
    row.locator("button.open").click()
    reply = row.locator(".response.rendered")
    expect(reply).to_contain_text("reply 1", timeout=TURN)
    reply.evaluate("element => { element.scrollTop = 300; window.reply = element; }")
    row.locator("details summary").click()
    search = page.locator("#find")
    search.focus()
    seen = int(row.get_attribute("data-version"))
    gate.touch()
    search.press_sequentially("typed while it moves", delay=60)
    search.evaluate("input => input.setSelectionRange(2, 7)")
    expect(row).to_have_attribute("data-status", "completed", timeout=3 * TURN)
    assert int(row.get_attribute("data-version")) > seen + 6
    expect(search).to_be_focused()
    expect(search).to_have_value("typed while it moves")
    assert search.evaluate("input => [input.selectionStart, input.selectionEnd]") == [2, 7]
    assert reply.evaluate("element => [element === window.reply, element.scrollTop]") == [True, 300]
    expect(row.locator("details")).to_have_attribute("open", "")
    expect(row.locator(".response.rendered")).to_contain_text("reply 12")
    row.get_by_text("Raw", exact=True).click()
    expect(row.locator("pre.response.raw")).to_be_visible()
    expect(reply).to_be_hidden()


def test_the_first_loop_of_an_agent_brings_the_filters_with_it(visit: Visit, product: Product):
    product.manage("createagent", "newcomer", "--owner", "alice", "--command", f"{sys.executable} {SCRIPTED}")
    page = visit.sign_in("alice", "/agents/newcomer/loops/")
    live(page)
    expect(page.locator("#no-loops")).to_be_visible()
    expect(page.locator("#loop-filters")).to_be_hidden()
    row = start(page, plan("The very first", {"say": "one"}), max_runs="1")
    expect(page.locator("#no-loops")).to_be_hidden()
    page.locator("#find").fill("very first")
    page.locator("#find").press("Enter")
    expect(row).to_be_visible()
    expect(page).to_have_url(re.compile("q=very"))


def test_an_old_or_doubled_message_never_turns_a_row_back(visit: Visit):
    page = visit.sign_in("alice", TAB)
    live(page)
    row = start(page, plan("Only forward", {"say": "one"}), max_runs="1")
    expect(row).to_have_attribute("data-status", "completed", timeout=TURN)
    name = row.get_attribute("id")
    row.locator("h3 a").focus()
    page.evaluate(
        """name => {
            const late = (id, swap) => `<article class="loop" id="${id}" data-status="queued" data-version="1"
                ${swap ? `hx-swap-oob="${swap}"` : ""}>late</article>`;
            htmx.swap(document.querySelector("#socket"), late(name, "morph")
                + `<li hx-swap-oob="afterbegin:#loops">${late(name, "")}</li>`, { swapStyle: "none" });
        }""",
        name,
    )
    expect(row).to_have_attribute("data-status", "completed")
    expect(page.locator(f"[id='{name}']")).to_have_count(1)
    assert "late" not in row.inner_text()
    expect(row.locator("h3 a")).to_be_focused()


def test_the_page_recovers_by_itself_when_the_server_was_away(visit: Visit, product: Product, gate: Path):
    page = visit.sign_in("alice", TAB)
    live(page)
    row = start(page, plan("While away", {"say": "one"}, {"wait": "gate"}), max_runs="2")
    expect(row.locator(".run b")).to_have_text("Run 2 / 2", timeout=TURN)
    visit.context.set_offline(True)
    os.kill(product.web_process(), signal.SIGKILL)
    expect(page.locator("#connection")).to_have_text(
        re.compile(r"Reconnecting, data from \d\d:\d\d:\d\d"), timeout=TURN
    )
    expect(row.locator(".status")).to_have_text("Running")  # the line is down, the work is not
    gate.touch()
    page.wait_for_timeout(2000)
    visit.context.set_offline(False)
    expect(row).to_have_attribute("data-status", "completed", timeout=4 * TURN)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live", timeout=6 * TURN)


def test_a_line_that_is_open_but_silent_is_found_out_and_the_page_stays_right(visit: Visit, gate: Path):
    visit.page.route_web_socket("**/ws/**", lambda line: None)  # opens, and never says a word
    page = visit.sign_in("alice", TAB)
    row = start(page, plan("On a dead line", {"wait": "gate"}), max_runs="1")
    gate.touch()
    expect(row).to_have_attribute("data-status", "completed", timeout=2 * TURN)  # the poll every 12 s
    expect(page.locator("#connection")).to_have_attribute("data-state", "reconnecting", timeout=3 * TURN)


def test_updates_can_be_paused_and_are_caught_up_with(visit: Visit, gate: Path):
    page = visit.sign_in("alice", TAB)
    live(page)
    row = start(page, plan("Paused", {"wait": "gate"}), max_runs="1")
    expect(row.locator(".status")).to_have_text("Running", timeout=TURN)
    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("#connection")).to_have_attribute("data-state", "paused")
    gate.touch()
    page.wait_for_timeout(1500)
    expect(row).to_have_attribute("data-status", "running")
    page.get_by_role("button", name="Resume updates").click()
    expect(row).to_have_attribute("data-status", "completed", timeout=TURN)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")


def test_a_loop_started_elsewhere_comes_on_top_and_two_people_see_the_same(
    visit: Visit, chromium: Browser, product: Product
):
    page = visit.sign_in("alice", TAB)
    live(page)
    other = Visit(chromium, product.base)
    there = other.sign_in("alice", TAB)
    live(there)
    row = start(there, plan("From another window", {"say": "one"}), max_runs="1")
    here = page.locator(f"#{row.get_attribute('id')}")
    expect(here).to_have_attribute("data-status", "completed", timeout=TURN)
    expect(page.locator("#loops > li:first-child article.loop")).to_contain_text("From another window")
    assert other.complaints == []
    other.context.close()


def test_a_session_that_ends_leads_to_the_login_and_back_to_the_same_place(
    visit: Visit, chromium: Browser, product: Product
):
    page = visit.sign_in("alice", f"{TAB}?status=attention")
    live(page)
    page.evaluate(
        """() => { fetch("/logout/", {method: "POST", headers: {"X-CSRFToken": document.cookie.match(/csrftoken=([^;]+)/)[1]}}); }"""
    )
    page.wait_for_url("**/login/**", timeout=TURN)
    expect(page.locator("#login-form")).to_be_visible()
    expect(page.locator(".top nav")).to_have_count(0)  # the whole page, not a part of one
    page.get_by_label("Username").fill("alice")
    page.get_by_label("Password").fill("a long enough passphrase 7")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"**{TAB}?status=attention")


def test_typed_text_outlives_a_session(visit: Visit):
    page = visit.sign_in("alice", f"{TAB}new/")
    page.locator("#message").fill("a long thought that must not be lost")
    page.locator("#tools-only").check()
    page.get_by_role("checkbox", name="Read").check()
    visit.context.clear_cookies(name="sessionid")
    page.locator("#start-loop").click()
    page.wait_for_url("**/login/**")
    page.get_by_label("Username").fill("alice")
    page.get_by_label("Password").fill("a long enough passphrase 7")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#message")).to_have_value("a long thought that must not be lost")
    expect(page.get_by_role("checkbox", name="Read")).to_be_checked()
    page.locator("#start-loop").click()
    page.wait_for_url(f"**{TAB}?open=*")
    page.goto(f"{TAB}new/")
    expect(page.locator("#message")).to_have_value("")


def test_the_outlook_follows_the_typing(visit: Visit):
    page = visit.sign_in("alice", f"{TAB}new/")
    page.locator("#max_runs").fill("20")
    page.locator("#delay_seconds").fill("60")
    expect(page.locator("#loop-summary")).to_contain_text("At most 20 runs, at most 20 h 19 min, no cost ceiling")
    expect(page.locator("#field-max_consecutive_failures")).to_be_hidden()
    page.locator("#on_failure").select_option("continue")
    expect(page.locator("#field-max_consecutive_failures")).to_be_visible()
    page.locator("#message").fill("Item {{run}}")
    expect(page.locator("#loop-preview-1")).to_have_text("Item 1")
    expect(page.locator("#message")).to_be_focused()


def test_two_presses_on_start_are_one_loop(visit: Visit):
    page = visit.sign_in("alice", f"{TAB}new/")
    page.locator("#message").fill(plan("Pressed twice", {"say": "one"}))
    page.evaluate(
        """() => { const form = document.querySelector("#loop-form"); const button = document.querySelector("#start-loop");
            form.requestSubmit(button); form.requestSubmit(button); }"""
    )
    page.wait_for_url(f"**{TAB}?open=*")
    expect(page.locator("#loops article.loop").filter(has_text="Pressed twice")).to_have_count(1)


def test_the_theme_follows_the_system_and_a_choice_is_remembered(visit: Visit):
    page = visit.sign_in("alice", "/")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    bright = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert bright != dark
    page.get_by_role("button", name="Theme: follows the system").click()
    assert page.evaluate(ground) == bright
    page.reload()
    assert page.evaluate(ground) == bright
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) == dark


def test_times_are_shown_in_the_readers_zone(chromium: Browser, product: Product):
    visit = Visit(chromium, product.base, timezone_id="Asia/Kathmandu")
    page = visit.sign_in("alice", TAB)
    live(page)
    row = start(page, plan("In another zone", {"say": "one"}), max_runs="1")
    expect(row).to_have_attribute("data-status", "completed", timeout=TURN)
    row.locator("button.open").click()
    expect(row.locator("time.exact").first).to_have_text(re.compile(r"GMT\+5:45$"))
    assert row.locator("time.exact").first.get_attribute("title").endswith("UTC")
    assert "UTC" in row.locator(".meta time").get_attribute("title")
    assert visit.complaints == []
    visit.context.close()


def test_hostile_answers_fetch_and_run_nothing(visit: Visit):
    page = visit.sign_in("alice", TAB)
    live(page)
    hostile = "<img src=https://evil.example/a.png onerror=window.owned=1> ![x](https://evil.example/b.png)\n\n<script>window.owned=1</script>"
    row = start(page, plan("Hostile", {"say": hostile}), max_runs="1")
    expect(row).to_have_attribute("data-status", "completed", timeout=TURN)
    row.locator("button.open").click()
    expect(row.locator(".response.rendered")).to_contain_text("<script>")
    assert page.evaluate("window.owned") is None


# -- how it looks -----------------------------------------------------------------------------------------
PAGES = ("/", TAB, f"{TAB}new/", f"{TAB}?status=active&q=nothing", "/agents/ci-medic/loops/", "/nothing/")


def test_nothing_is_wider_than_the_window_from_320_to_1440(visit: Visit):
    page = visit.sign_in("alice", TAB)
    loop = done_with(page).locator("h3 a").get_attribute("href")
    for width in (320, 360, 480, 768, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        for path in (*PAGES, loop, f"{loop}runs/1/", f"{TAB}?open={loop.split('/')[-2]}"):
            page.goto(path)
            over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, f"{path} is {over} px too wide at {width} px"


def test_every_control_has_a_name_and_ids_are_unique(visit: Visit):
    page = visit.sign_in("alice", TAB)
    loop = done_with(page).get_attribute("id").removeprefix("loop-")
    for path in ("/", TAB, f"{TAB}new/", f"{TAB}?open={loop}", f"{TAB}{loop}/"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        found = page.evaluate(
            """() => {
                const shown = [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, progress")];
                const named = (e) => e.textContent.trim() || e.getAttribute("aria-label") || (e.labels && e.labels.length)
                    || (e.labels && e.closest("label"));
                const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
                const kinds = ["aria-controls", "aria-labelledby", "aria-describedby"];
                const points = kinds.flatMap((kind) => [...document.querySelectorAll(`[${kind}]`)].flatMap(
                    (e) => e.getAttribute(kind).split(" ").filter(Boolean)));
                return {
                    nameless: shown.filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 120)),
                    doubled: ids.filter((id, at) => ids.indexOf(id) !== at),
                    dangling: points.filter((id) => !document.getElementById(id)),
                    headings: document.querySelectorAll("h1").length,
                };
            }"""
        )
        assert found == {"nameless": [], "doubled": [], "dangling": [], "headings": 1}, path


FLAKY = (
    "## Fixed: `test_lease_expires`\n\nThe test read the clock twice, once for the lease and once for the assertion, so it failed whenever "
    "a second boundary fell between them.\n\n- Froze the clock once at the top of the test\n- Ran it 50 times alone and 10 times with "
    "the whole file: **60 of 60 passed**\n\n```\n- assert lease.until == timezone.now() + TTL\n+ assert lease.until == frozen + TTL\n```\n"
    "\nEleven entries are left in `flaky.md`."
)


def scene(page: Page) -> Locator:
    """Loops of every kind on ci-medic; the row of the one that runs."""
    start(
        page,
        plan(
            "Rebase every open branch",
            {"say": "rebased", "cost": 0.02},
            {"fail": "could not read from remote", "cost": 0.01},
        ),
    )
    start(
        page,
        plan("Refine report.md: read it first", {"say": "Pass {run} is better.", "cost": 0.31}),
        max_cost_usd="1",
        max_runs="12",
    )
    filed = [
        {"say": f"Item {n} filed.", "cost": 0.07} if n not in (11, 12, 31) else {"fail": "no such item", "cost": 0}
        for n in range(1, 41)
    ]
    start(page, plan("Process item {{run}} of the triage list", *filed), max_runs="40", on_failure="continue")
    checked = [{"say": f"{n} checks fail", "cost": 0.2} for n in (3, 1)]
    done = {"say": "The copy is migrated and all 214 checks pass. [[DONE]]", "cost": 0.2}
    last = start(
        page, plan("Attempt the schema migration on a copy", *checked, done), max_runs="8", stop_signal="[[DONE]]"
    )
    expect(last).to_have_attribute("data-status", "completed", timeout=6 * TURN)
    fixed = [
        {"say": f"Fixed test number {n}, which compared floats with ==.", "cost": 0.1 + n / 50, "sleep": n / 10}
        for n in range(1, 4)
    ]
    steps = [*fixed, {"fail": "database is locked while collecting tests/agents", "cost": 0.17, "sleep": 1}]
    steps += [
        {"say": FLAKY, "cost": 0.14, "sleep": 0.5},
        {"print": ["$ pytest tests/loops/test_deadline.py -x --count 50"], "wait": "gate"},
    ]
    limits = {
        "max_runs": "20",
        "stop_signal": "[[DONE]]",
        "max_cost_usd": "2",
        "max_duration_seconds": "7200",
        "on_failure": "continue",
    }
    row = start(page, plan("Fix the next flaky test of flaky.md\nLast time: {{previous_response}}", *steps), **limits)
    expect(row.locator(".run b")).to_have_text("Run 6 / 20", timeout=2 * TURN)
    return row


def test_the_loops_tab_has_its_picture_taken(visit: Visit, product: Product):
    page = visit.sign_in("alice", "/agents/ci-medic/loops/")
    live(page)
    row = scene(page)
    address = f"/agents/ci-medic/loops/?open={row.get_attribute('id').removeprefix('loop-')}"
    SCREENSHOTS.mkdir(exist_ok=True)
    for width in (1440, 360):
        for theme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            page.goto(address)
            live(page)
            file = SCREENSHOTS / f"loops-{width}-{theme}.png"
            page.screenshot(path=file, full_page=True, style="")
            assert file.stat().st_size > 50_000
    visit.complaints[:] = [said for said in visit.complaints if "inline style" not in said]  # the camera's own
    (product.workspace("ci-medic") / "gate").touch()
