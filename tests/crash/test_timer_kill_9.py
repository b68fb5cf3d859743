"""SIGKILL of a real broker while timer messages and delayed ones come in and fall due.

What was acknowledged comes, once in storage and not early, however often the broker dies: before messages are in
the wheel, while they roll, in the middle of a slot, between a delivery and the note of it.
"""

import random
import threading
import time
from pathlib import Path

import pytest
from tests.bad_input.neighbour import wait_until
from tests.real_servers import (
    RawConnection,
    ServerProcess,
    broker_arguments,
    pull_fields,
    send_fields,
    server,
)

from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord

pytestmark = pytest.mark.crash

TOPIC = "orders"
SENDERS = 4
SETTINGS = {
    "timerPrecisionMs": 100,
    "timerFlushIntervalMs": 150,
    "timerRollWindowSlot": 15,  # 1.5 s: longer delays roll
    "mappedFileSizeTimerLog": 8192,
    "messageDelayLevel": "1s 2s 3s",
    "flushDelayOffsetInterval": 500,
    "mappedFileSizeCommitLog": 1 << 19,
    "mappedFileSizeConsumeQueue": 20_000,
}


class Books:
    """What senders were promised: body -> earliest time of delivery, epoch ms."""

    def __init__(self) -> None:
        self.sent: dict[bytes, int] = {}  # perhaps stored
        self.promised: dict[bytes, int] = {}
        self.lock = threading.Lock()


class Sender(threading.Thread):
    """Sends timer messages and delayed ones until the connection breaks."""

    def __init__(
        self, address: tuple[str, int], books: Books, name: str, rng: random.Random
    ) -> None:
        super().__init__(daemon=True)
        self._address, self._books, self._name, self._rng = address, books, name, rng
        self.failure: Exception | None = None

    def run(self) -> None:
        number = 0
        try:
            with RawConnection(self._address) as connection:
                while True:
                    self._send(connection, b"%s-%d" % (self._name.encode(), number))
                    number += 1
        except (OSError, EOFError):
            return  # killed
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.failure = error

    def _send(self, connection: RawConnection, body: bytes) -> None:
        now_ms = time.time_ns() // 1_000_000
        if self._rng.random() < 0.25:
            level = self._rng.choice((1, 2))
            at, ask = now_ms + 1000 * level, f"DELAY\x01{level}\x02"
        else:
            delay = self._rng.choice((150, 400, 900, 1700, 3500))
            at, ask = now_ms + delay, f"TIMER_DELIVER_MS\x01{now_ms + delay}\x02"
        with self._books.lock:
            self._books.sent[body] = at
        properties = f"UNIQ_KEY\x01{body.decode()}\x02WAIT\x01true\x02{ask}"
        head, _ = connection.call(310, send_fields(TOPIC, 0, properties), body)
        assert head["code"] == 0, head
        with self._books.lock:
            self._books.promised[body] = at


def read_queue(connection: RawConnection) -> list[StoredRecord]:
    head, _ = connection.call(30, {"topic": TOPIC, "queueId": 0})
    end = int(head["extFields"]["offset"])
    found: list[StoredRecord] = []
    while len(found) < end:
        head, body = connection.call(11, pull_fields(TOPIC, 0, len(found)))
        assert head["code"] == 0, (head, len(found), end)
        found += decode_records(body, check_crc=True)
    return found


def check(records: list[StoredRecord], books: Books) -> set[bytes]:
    """Each came once, from somebody, and not early."""
    seen: set[bytes] = set()
    for record in records:
        assert record.body not in seen, f"{record.body!r} came twice"
        seen.add(record.body)
        wanted = books.sent.get(record.body)
        assert wanted is not None, record.body
        # The broker waits by its steady clock, which it compares with the wall's: each is rounded down to a millisecond.
        assert record.store_timestamp_ms >= wanted - 1, (
            record.body,
            record.store_timestamp_ms - wanted,
        )
    return seen


def run_cycles(store: Path, cycles: int, seed: int) -> Books:
    """The test proper; returns the books."""
    rng = random.Random(seed)
    books = Books()
    arguments = broker_arguments(store, SETTINGS)
    for cycle in range(cycles):
        if rng.random() < 0.3:  # die while starting
            victim = ServerProcess(arguments)
            time.sleep(rng.uniform(0.2, 0.7))
            victim.end()
        with server(arguments) as broker:
            with RawConnection(broker.address) as connection:
                if cycle == 0:
                    fields = {
                        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 1,
                        "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
                        "topicSysFlag": 0, "order": "false",
                    }  # fmt: skip
                    head, _ = connection.call(17, fields)
                    assert head["code"] == 0, head
                elif cycle % 10 == 9:
                    check(read_queue(connection), books)
            senders = [
                Sender(broker.address, books, f"c{cycle}s{n}", random.Random(rng.random()))
                for n in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            time.sleep(rng.uniform(0.1, 1.5))
            if cycle == cycles - 1:  # whatever else the machine does
                wait_until(lambda: len(books.promised) > 200)
            broker.child.kill()
            for sender in senders:
                sender.join(60)
                assert not sender.is_alive()
                assert sender.failure is None, sender.failure
    with server(arguments) as broker, RawConnection(broker.address) as connection:
        deadline = time.monotonic() + 60
        while True:
            seen = check(read_queue(connection), books)
            if set(books.promised) <= seen or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        assert not set(books.promised) - seen
        time.sleep(2.5)  # what was not acknowledged may come as well, once
        check(read_queue(connection), books)
    return books


def test_timer_messages_survive_kill_9(tmp_path: Path) -> None:
    books = run_cycles(tmp_path, 5, seed=1)
    assert len(books.promised) > 200


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
def test_timer_messages_survive_50_more_kills(tmp_path: Path, seed: int) -> None:
    run_cycles(tmp_path, 50, seed=100 + seed)
