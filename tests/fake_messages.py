"""A stand-in for the Messages API of a model: answers as a stream of events what a script says, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Script = Callable[[Json], Json]  # what was asked -> the one content block that is answered


@dataclass
class FakeMessages:
    """Where it listens, and the requests so far, oldest first."""

    base: str
    asked: list[Json] = field(default_factory=list)


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def use(name: str, arguments: Json) -> Json:
    """The model wants this tool called."""
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": arguments}


def results(asked: Json) -> list[Json]:
    """The results of tools that the request brings, oldest first."""
    contents = [message["content"] for message in asked["messages"] if isinstance(message["content"], list)]
    return [block for content in contents for block in content if block["type"] == "tool_result"]


@contextmanager
def fake_messages(script: Script) -> Iterator[FakeMessages]:
    """Serve on a free port of the loopback."""
    fake = FakeMessages("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(script, fake.asked))
    fake.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def _handler(script: Script, asked: list[Json]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.partition("?")[0] != "/v1/messages":
                return self.send_error(404)
            asked.append(request)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in _events(request["model"], script(request)):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def do_HEAD(self) -> None:
            """A client may look whether anybody is there."""
            self.send_response(200)
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *_: object) -> None:
            """What was asked is kept; nothing is to be printed."""

    return Handler


def _events(model: str, block: Json) -> Iterator[Json]:
    """One message of one block, as it is streamed."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    usage = {"input_tokens": 10, "output_tokens": 1}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    if block["type"] == "text":
        begun, delta, reason = text(""), {"type": "text_delta", "text": block["text"]}, "end_turn"
    else:
        begun, reason = {**block, "input": {}}, "tool_use"
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": 0, "content_block": begun}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": 9},
    }
    yield {"type": "message_stop"}
