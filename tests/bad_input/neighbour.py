"""A well-behaved client beside the troublemakers: it must notice nothing."""

import threading
import time
from typing import Any

from tests.real_servers import RawConnection, ServerProcess, send_fields


class Neighbour(threading.Thread):
    """Uses the server all the time on one connection; `with Neighbour(server):` asserts at the end.

    No call may cost the server 2 s of CPU time, which is what a troublemaker could make it spend before it comes to
    us; by the clock it has longer, for the machine may be busy with others.
    """

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._done = threading.Event()
        self.calls = 0
        self.slowest_s = 0.0
        self.dearest_s = 0.0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with RawConnection(self._server.address) as connection:
                while not self._done.is_set() or self.calls < 5:  # some afterwards too
                    started, used = time.monotonic(), self._server.cpu_s()
                    self._call(connection)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                    self.dearest_s = max(self.dearest_s, self._server.cpu_s() - used)
                    self.calls += 1
                    time.sleep(0.002)
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.failure = error

    def _call(self, connection: RawConnection) -> None:
        if "broker" in self._server.child.args:  # type: ignore[operator]
            head, _ = connection.call(310, send_fields("Neighbour"), b"well-behaved")
            assert head["code"] == 0, head
        else:
            head, _ = connection.call(105, {"topic": "Neighbour"})
            assert head["code"] == 17, head

    def __enter__(self) -> "Neighbour":
        self.start()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._done.set()
        self.join(60)
        if kind is None:
            assert not self.is_alive(), "a call is not answered"
            assert self.failure is None, self.failure
            assert self.dearest_s < 2.0, f"{self.dearest_s:.3f} s of CPU time in a call"
            assert self.slowest_s < 20.0, f"slowest call {self.slowest_s:.3f} s"


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    """Poll; the servers are other processes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
