"""Many browsers' worth of sockets on `/ws/events` in one process: opens them and notes when each event came on which.

`python -m tests.bench.watchers PORT` with a key in BENCH_KEY answers the lines `open N` (until N are open), `clear`, `size`,
`count` (of messages since), and `take FILE` (writes what came since: `arrivals` = "loop:version" -> times,
`last` = loop -> the last version on each socket).
A client of a hundred lines instead of a library: three hundred sockets share two cores with what they measure.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


class Socket(asyncio.Protocol):
    """One open socket: `came` are the messages with the wall clock of their arrival."""

    def __init__(self, key: str, port: int) -> None:
        self.key, self.port = key, port
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.came: list[tuple[float, bytes]] = []
        self._buffer = b""
        self._shaken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        nonce = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /ws/events HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {nonce}",
            "Sec-WebSocket-Version: 13",
            f"Authorization: Bearer {self.key}",
        ]
        transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._shaken:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head.split(b"\r\n")[0]:
                self.opened.set_exception(ConnectionError(head.decode("latin-1")))
                return
            self._shaken, self._buffer = True, rest
            self.opened.set_result(None)
        now = time.time()
        while frame := self._frame():
            kind, payload = frame
            if kind == _TEXT:
                self.came.append((now, payload))
            elif kind == _PING:
                self.transport.write(bytes([0x80 | _PONG, 0x80 | len(payload), 0, 0, 0, 0]) + payload)

    def _frame(self) -> tuple[int, bytes] | None:
        """The next whole frame of the buffer: a server's frames are short, whole and unmasked."""
        data = self._buffer
        if len(data) < 2:
            return None
        size, start = data[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start], "big")
        if len(data) < start + size:
            return None
        self._buffer = data[start + size :]
        return data[0] & 0x0F, data[start : start + size]

    def connection_lost(self, reason: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(reason or ConnectionError("closed"))


async def _open(sockets: list[Socket], count: int, port: int) -> None:
    loop = asyncio.get_running_loop()
    while len(sockets) < count:
        batch = []
        for _ in range(min(20, count - len(sockets))):
            _, found = await loop.create_connection(lambda: Socket(os.environ["BENCH_KEY"], port), "127.0.0.1", port)
            batch.append(found)
        await asyncio.wait_for(asyncio.gather(*(found.opened for found in batch)), 60)
        sockets += batch


def _take(sockets: list[Socket], file: Path) -> None:
    arrivals: dict[str, list[float]] = defaultdict(list)
    last: dict[str, list[int]] = defaultdict(lambda: [0] * len(sockets))
    for place, one in enumerate(sockets):
        for moment, message in one.came:
            event = json.loads(message)
            arrivals[f"{event['loop_id']}:{event['version']}"].append(moment)
            last[event["loop_id"]][place] = event["version"]
    file.write_text(json.dumps({"arrivals": arrivals, "last": last}))


async def main() -> None:
    port, sockets = int(sys.argv[1]), list[Socket]()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, _, value = line.strip().partition(" ")
        if verb == "open":
            await _open(sockets, int(value), port)
        elif verb == "clear":
            for one in sockets:
                one.came.clear()
        elif verb == "take":
            _take(sockets, Path(value))
        answers = {"count": sum(len(one.came) for one in sockets), "size": len(sockets)}
        print(answers.get(verb, "done"), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
