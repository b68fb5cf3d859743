"""A schema registry with Confluent's interface, as its documents say, on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeRegistry:
    """Holds schemas.

    Attributes:
        down: every answer is 503.
        asked: paths, in order. headers: of the last request.
    """

    def __init__(self) -> None:
        self.down = False
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.answers: dict[str, Any] = {}
        self.url = ""

    def register(
        self, subject: str, number: int, schema: object, kind: str = "AVRO", **more: object
    ) -> None:
        """As the newest schema of a subject, under an id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer: dict[str, object] = {"schema": text, **more}
        if kind != "AVRO":  # the interface leaves that word out for Avro
            answer["schemaType"] = kind
        self.answers[f"/schemas/ids/{number}"] = answer
        for version in ("latest", number):
            self.answers[f"/subjects/{subject}/versions/{version}"] = {
                **answer,
                "subject": subject,
                "id": number,
                "version": number,
            }


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.headers = dict(self.headers.items())
            found = registry.answers.get(self.path)
            status = 503 if registry.down else 404 if found is None else 200
            if isinstance(found, int):
                status = found
            body = json.dumps(found if status == 200 else {"error_code": 40403}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if status == 302:
                self.send_header("Location", f"{registry.url}/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
