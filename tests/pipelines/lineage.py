"""A receiver of OpenLineage's events, for tests."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Receiver:
    """What came, by order; `status` is answered."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    status: int = 201

    @property
    def states(self) -> list[str]:
        return [each["eventType"] for each in self.events]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/api/v1/lineage":
                found.events.append(json.loads(body))
                found.keys.add(self.headers.get("Authorization", ""))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()
