"""A door to an object store that refuses calls, or does them and loses the answer."""

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PASS, REFUSE, LOSE = "pass", "refuse", "lose"
Judge = Callable[[str, str], str]  # of a method and a path


@contextlib.contextmanager
def door(store: str, judge: Judge) -> Iterator[str]:
    """Its address, in front of the store's. `judge` is asked one call at a time."""
    place = urlsplit(store).netloc
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_call(self) -> None:
            body = read_body(self)
            with lock:
                verdict = judge(self.command, self.path)
            if verdict == REFUSE:
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            status, headers, answer = forward(place, self, body)
            if verdict == LOSE:
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = dict(headers).get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one_call

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read_body(call: BaseHTTPRequestHandler) -> bytes:
    """Its bytes as they are, with the frames of chunks."""
    if "chunked" not in (call.headers.get("Transfer-Encoding") or ""):
        return call.rfile.read(int(call.headers.get("Content-Length") or 0))
    lines = []
    while True:
        head = call.rfile.readline()
        size = int(head.split(b";")[0], 16)
        lines += [head, call.rfile.read(size + 2 if size else 0)]
        if not size:
            break
    while lines[-1] != b"\r\n":  # trailers, and the empty line behind them
        lines.append(call.rfile.readline())
    return b"".join(lines)


def forward(
    place: str, call: BaseHTTPRequestHandler, body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    """The same call with the same headers, as its signature is over them."""
    connection = http.client.HTTPConnection(place, timeout=30)
    try:
        connection.putrequest(call.command, call.path, skip_host=True, skip_accept_encoding=True)
        for name, value in call.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        found = connection.getresponse()
        return found.status, found.getheaders(), found.read()
    finally:
        connection.close()
