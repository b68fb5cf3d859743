"""A broker is drained and restored, and a topic resized, again and again under Java clients that send all the time.

    python -m tests.interop.drain_and_resize 100              # rounds; clients ask for routes each second
    python -m tests.interop.drain_and_resize 5 --defaults     # 30 s, as Java's clients do

A round that loses a message, or lets a client see an error, ends it with code 1.
"""

import argparse
import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.driver import Driver
from tests.interop.peers import start_broker, start_namesrv

from roquette.admin.drain import Pace, drain, in_short, restore
from roquette.admin.resize import ProofRow, resize
from roquette.admin.topics import create_topic
from roquette.client.client import Client

TOPIC, GROUP = "orders", "readers"
PATIENCE_S = 90
SENT_AT_ONCE = 10
MODES = ("sync", "async", "sync")


class Yard:
    """Two brokers, a producer and a consumer of Java's, and what was sent and got."""

    def __init__(
        self, java: Driver, namesrv: str, brokers: dict[str, str], settle_s: float, poll_ms: int
    ) -> None:
        self.java, self.namesrv, self.brokers, self.settle_s = java, namesrv, brokers, settle_s
        self.nudged = poll_ms < 10_000
        self.sent: set[str] = set()
        self.told: list[str] = []
        asyncio.run(self._create())
        common = {"namesrv": namesrv, "topic": TOPIC}
        self.java("consumer", name="safe-c", group=GROUP, **common)
        self.java("producer", name="safe-p", group="senders", poll=poll_ms, **common)

    def _client(self) -> Client:
        return Client(self.namesrv, group="TOOLS")

    async def _create(self) -> None:
        async with self._client() as client:
            session = client.session
            await session.run(create_topic(session.name_servers, TOPIC, queues=4))

    def send(self) -> None:
        """A few messages, some of them delayed; any error of the client goes up."""
        number = len(self.sent) // SENT_AT_ONCE
        body = f"m{number}"
        more = {"delay": 1} if number % 5 == 4 else {}
        mode = MODES[number % len(MODES)]
        sending = {"name": "safe-p", "topic": TOPIC, "count": SENT_AT_ONCE, "body": body}
        results = self.java("send", mode=mode, **sending, **more)["results"]
        assert [each["status"] for each in results] == ["SEND_OK"] * SENT_AT_ONCE, results
        self.sent |= {f"{body}-{count}" for count in range(SENT_AT_ONCE)}
        if self.nudged and number % 20 == 19:
            self.seen()  # else a Java client looks at new queues after 20 s

    def round(self) -> list[ProofRow]:
        """A drain, a restore, fewer queues and more again, while messages are sent; the certificate."""
        failed: list[BaseException] = []
        rows: list[ProofRow] = []

        def work() -> None:
            try:
                rows.extend(asyncio.run(self._change()))
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        changing = threading.Thread(target=work)
        changing.start()
        try:
            while changing.is_alive():
                self.send()
                time.sleep(0.02)
        finally:
            changing.join(PATIENCE_S * 10)
        for error in failed:
            raise error
        return rows

    async def _change(self) -> list[ProofRow]:
        now: Callable[[], float] = asyncio.get_running_loop().time
        pace = Pace(asyncio.sleep, now, self.told.append, self.settle_s, PATIENCE_S * 4, 0.2)
        async with self._client() as client:
            session = client.session
            left = await drain(session.run, session.name_servers, "broker-a", pace)
            assert left.rows == [], in_short(left)
            await session.run(restore(session.name_servers, "broker-a"))
            rows = await resize(session.run, TOPIC, 2, pace)
            assert all(row.proven for row in rows), rows
            assert {(row.broker, row.queue) for row in rows} == {
                (broker, queue) for broker in ("broker-a", "broker-b") for queue in (2, 3)
            }
            await resize(session.run, TOPIC, 4, pace)
        return rows

    def lost(self) -> set[str]:
        """What was sent and has not arrived in time."""
        end = time.monotonic() + PATIENCE_S
        while missing := self.sent - {str(message["body"]) for message in self.seen()}:
            if time.monotonic() > end:
                return missing
            time.sleep(0.1)
        return set()

    def seen(self) -> list[Any]:
        """What the consumer has got."""
        found: list[Any] = self.java("dump", name="safe-c", nudge=True)["messages"]
        return found


@contextlib.contextmanager
def yard(
    folder: Path,
    java: Driver,
    flavour: str = "roquette",
    *,
    settle_s: float = 1.2,
    poll_ms: int = 1000,
) -> Any:
    """Servers with these clients."""
    with contextlib.ExitStack() as started:
        namesrv = start_namesrv(flavour, folder / "namesrv")
        started.callback(namesrv.discard)
        brokers: dict[str, str] = {}
        for name in ("broker-a", "broker-b"):
            broker = start_broker(flavour, folder / name, namesrv.address, name=name)
            started.callback(broker.discard)
            brokers[name] = broker.address
        yield Yard(java, namesrv.address, brokers, settle_s, poll_ms)


def main() -> int:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--defaults", action="store_true")
    given = parser.parse_args()
    times: dict[str, Any] = {"settle_s": 35.0, "poll_ms": 30_000} if given.defaults else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        java = Driver("5.5.0", folder / "java")
        try:
            with yard(folder, java, **times) as found:
                for number in range(1, given.rounds + 1):
                    begun = time.monotonic()
                    found.round()
                    took = time.monotonic() - begun
                    print(
                        f"round {number}: {took:.1f} s, {len(found.sent)} sent, no error",
                        flush=True,
                    )
                lost = found.lost()
        finally:
            java.stop()
    print(f"{given.rounds} rounds, {len(found.sent)} sent, 0 errors, {len(lost)} lost")
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
