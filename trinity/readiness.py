"""Asks the product over HTTP whether it is whole, without ever keeping the supervisor's main loop waiting for the answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from trinity.supervisor import Supervisor

ASK_EVERY = 0.1  # seconds
TELL_AFTER = 15.0  # seconds


class Readiness:
    """Calls `on_ready` once `GET /health` has answered 200; says every TELL_AFTER seconds that it has not, and why."""

    def __init__(
        self,
        supervisor: Supervisor,
        listener: socket.socket,
        host: str,
        *,
        on_ready: Callable[[], None],
        on_wait: Callable[[str], None],
    ) -> None:
        self._supervisor = supervisor
        self._family, self._address = listener.family, listener.getsockname()
        self._request = f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        self._on_ready, self._on_wait = on_ready, on_wait
        self._told = time.monotonic()

    def ask(self) -> None:
        """Ask, and ask again until the answer is yes. The kernel takes the connection, so this cannot wait."""
        asking = socket.socket(self._family)
        asking.settimeout(1.0)
        try:
            asking.connect(self._address)
            asking.sendall(self._request)
        except OSError as reason:
            asking.close()
            self._ask_later(str(reason))
            return
        answer = bytearray()
        self._supervisor.watch(asking, lambda: self._hear(asking, answer))

    def _hear(self, asking: socket.socket, answer: bytearray) -> None:
        """Read on to the end: the server takes an early goodbye for a failure."""
        try:
            data = asking.recv(65536)
        except OSError as reason:
            data = b""
            answer += str(reason).encode()
        answer += data
        if data:
            return
        self._supervisor.forget(asking)
        asking.close()
        if answer.split(b" ", 2)[1:2] == [b"200"]:
            self._on_ready()
        else:
            self._ask_later(answer.decode(errors="replace").strip().rpartition("\n")[2])

    def _ask_later(self, reason: str) -> None:
        if time.monotonic() - self._told >= TELL_AFTER:
            self._told = time.monotonic()
            self._on_wait(reason or "no answer")
        self._supervisor.later(ASK_EVERY, self.ask)
