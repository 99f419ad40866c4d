"""The product as a person meets it: `manage.py up` on a free port with a data folder of its own, and a real Chromium before it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.conftest import PASSWORD, SCRIPTED

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)
READY = "Trinity is ready at "


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Product:
    """One running copy."""

    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="trinity-browser-"))
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        given = {
            name: value for name, value in os.environ.items() if name not in {"DJANGO_SETTINGS_MODULE", "TRINITY_DATA"}
        }
        self.environment = {**given, "TRINITY_DATA": str(self.data), "DJANGO_SETTINGS_MODULE": "trinity.settings"}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Return once it says that it is ready; its later words go to up.log in the data folder."""
        log = self.data / "up.log"
        with log.open("w") as written:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port), "--workers", "1", "--no-demo"],
                cwd=ROOT,
                env=self.environment,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
        until = time.monotonic() + 60
        while READY not in log.read_text():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"`up` did not become ready:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def web_process(self) -> int:
        """The pid of the web server, a child of `up`."""
        assert self.process is not None
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = re.search(r"^PPid:\s+(\d+)", (entry / "status").read_text(), re.M)
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent and int(parent[1]) == self.process.pid and b"daphne" in command:
                return int(entry.name)
        raise RuntimeError("no web server is running")

    def manage(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=self.environment,
            check=True,
            capture_output=True,
            timeout=60,
        )

    def workspace(self, agent: str) -> Path:
        """The agent's folder, where its runs find what they wait for."""
        return next((self.data / "workspaces").glob(f"{agent}-*"))


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    """A running copy with alice and bob; alice owns falcon (text) and ci-medic (json, two slots)."""
    found = Product()
    try:
        found.start()
        found.manage("createuser", "alice", "--password", PASSWORD)
        found.manage("createuser", "bob", "--password", PASSWORD)
        command = f"{sys.executable} {SCRIPTED}"
        found.manage("createagent", "falcon", "--owner", "alice", "--command", command)
        found.manage(
            *("createagent", "ci-medic", "--owner", "alice", "--command", command),
            *("--output", "json", "--parallel", "2", "--timeout", "900"),
        )
        yield found
    finally:
        found.stop()
        shutil.rmtree(found.data, ignore_errors=True)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Visit:
    """One person's browser: signed in, watched for errors and for requests that leave our own address."""

    def __init__(self, browser: Browser, base: str, **options: object) -> None:
        self.base = base
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport=options.pop("viewport", {"width": 1440, "height": 900}), base_url=base, **options
        )
        self.context.on("request", self._requested)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))

    def _requested(self, request: object) -> None:
        url = request.url
        if not url.startswith((self.base, self.base.replace("http", "ws", 1), "data:", "blob:")):
            self.complaints.append(f"foreign request: {url}")

    def _said(self, message: object) -> None:
        expected = (
            "status of 4",
            "WebSocket connection",
            "ERR_CONNECTION",
            "htmx:wsError",
            "htmx:sendError",
            "htmx:responseError",
            "[object Event]",
        )
        if message.type == "error" and not any(word in message.text for word in expected):
            self.complaints.append(message.text)

    def sign_in(self, name: str, path: str = "/") -> Page:
        """Through the page's own form, to this path."""
        self.page.goto(f"/login/?next={path}")
        self.page.get_by_label("Username").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(f"**{path}")
        return self.page


@pytest.fixture
def visit(chromium: Browser, product: Product) -> Iterator[Visit]:
    """A visit; whatever the browser complained of fails the test at its end."""
    found = Visit(chromium, product.base)
    yield found
    found.context.close()
    assert found.complaints == []
