"""SIGKILL of a real broker in the middle of concurrent sends: what was acknowledged is there afterwards.

Each cycle starts the broker on the same store, checks it against the books of all cycles before, lets
senders run and kills it at a random moment: while they send, or already while it starts and recovers.
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
QUEUES = 4
SENDERS = 8  # two for each queue
FULL_CHECK_EVERY = 25  # cycles; between them only what is new, and a step back, is read


class Books:
    """What senders were promised, over all cycles."""

    def __init__(self) -> None:
        self.promised: list[dict[int, bytes]] = [{} for _ in range(QUEUES)]  # offset -> body
        self.seen: list[list[bytes]] = [[] for _ in range(QUEUES)]  # as last read, by offset
        self.lock = threading.Lock()

    def acknowledge(self, queue: int, offset: int, body: bytes) -> None:
        with self.lock:
            before = self.promised[queue].setdefault(offset, body)
        assert before is body, f"offset {offset} of queue {queue} was given twice"


class Sender(threading.Thread):
    """Sends one message after the other to one queue until the connection breaks."""

    def __init__(
        self, address: tuple[str, int], books: Books, name: str, queue: int, rng: random.Random
    ) -> None:
        super().__init__(daemon=True)
        self._address, self._books, self._name, self._queue = address, books, name, queue
        self._rng = rng
        self.failure: Exception | None = None
        self.sent = 0

    def run(self) -> None:
        try:
            with RawConnection(self._address) as connection:
                while True:
                    self._send(connection)
        except (OSError, EOFError):
            return  # killed
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.failure = error

    def _send(self, connection: RawConnection) -> None:
        padding = b"." * self._rng.choice((0, 30, 300, 3000, 30_000))
        body = b"%s-%d-%s" % (self._name.encode(), self.sent, padding)
        properties = f"KEYS\x01{self._name}-{self.sent}\x02WAIT\x01true\x02"
        head, _ = connection.call(310, send_fields(TOPIC, self._queue, properties), body)
        assert head["code"] == 0, head
        assert int(head["extFields"]["queueId"]) == self._queue
        self._books.acknowledge(self._queue, int(head["extFields"]["queueOffset"]), body)
        self.sent += 1


def read_queue(connection: RawConnection, queue: int, start: int) -> list[StoredRecord]:
    """Every message of a queue from `start` on."""
    head, _ = connection.call(30, {"topic": TOPIC, "queueId": queue})
    end = int(head["extFields"]["offset"])
    found: list[StoredRecord] = []
    while start + len(found) < end:
        head, body = connection.call(11, pull_fields(TOPIC, queue, start + len(found)))
        assert head["code"] == 0, (head, start + len(found), end)
        found += decode_records(body, check_crc=True)
    return found


def check(connection: RawConnection, books: Books, *, full: bool) -> None:
    """The store holds all promises, at their places, and each sender's messages once and in order."""
    for queue in range(QUEUES):
        seen = books.seen[queue]
        start = 0 if full else max(0, len(seen) - 50)
        records = read_queue(connection, queue, start)
        assert [r.queue_offset for r in records] == list(range(start, start + len(records)))
        bodies = [r.body for r in records]
        assert bodies[: len(seen) - start] == seen[start:], "what was once read does not change"
        seen[start:] = bodies
        for offset, body in books.promised[queue].items():
            assert offset < len(seen), f"queue {queue} ends at {len(seen)}, promised {offset}"
            assert seen[offset] == body, (queue, offset, body[:40], seen[offset][:40])
        last: dict[bytes, int] = {}
        for body in seen:
            name, number, _ = body.rsplit(b"-", 2)
            assert int(number) == last.get(name, -1) + 1, f"order and uniqueness of {name!r}"
            last[name] = int(number)
        if records:
            _check_index(connection, records[-1])


def _check_index(connection: RawConnection, record: StoredRecord) -> None:
    """The newest message is found by its key: the index came back too."""
    key = record.properties.split("KEYS\x01")[1].split("\x02")[0]
    fields = {"topic": TOPIC, "key": key, "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    deadline = time.monotonic() + 60
    while True:
        head, body = connection.call(12, fields)
        if head["code"] == 0 or time.monotonic() > deadline:
            break
    assert head["code"] == 0, (head, key)
    assert record.body in [found.body for found in decode_records(body)]


def enough(store: Path, books: Books, cycles: int) -> bool:
    """Whether so much was promised that something could have been lost, over some files."""
    promised = sum(len(queue) for queue in books.promised)
    return promised > 20 * cycles and len(list((store / "commitlog").iterdir())) > 4


def run_cycles(store: Path, flush: str, cycles: int, seed: int) -> Books:
    """The test proper; returns the books."""
    rng = random.Random(seed)
    books = Books()
    # 256 KiB a commit log file, 100 units a queue file: every cycle crosses some of their edges
    settings = {
        "flushDiskType": flush,
        "mappedFileSizeCommitLog": 1 << 18,
        "mappedFileSizeConsumeQueue": 2000,
    }
    arguments = broker_arguments(store, settings)
    for cycle in range(cycles):
        if rng.random() < 0.3:  # die while starting
            victim = ServerProcess(arguments)
            time.sleep(rng.uniform(0.1, 0.5))
            victim.end()
        with server(arguments) as broker:
            full = cycle % FULL_CHECK_EVERY == FULL_CHECK_EVERY - 1
            with RawConnection(broker.address) as connection:
                if cycle == 0:
                    fields = {
                        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES,
                        "writeQueueNums": QUEUES, "perm": 6, "topicFilterType": "SINGLE_TAG",
                        "topicSysFlag": 0, "order": "false",
                    }  # fmt: skip
                    head, _ = connection.call(17, fields)
                    assert head["code"] == 0, head
                check(connection, books, full=full)
            senders = [
                Sender(
                    broker.address, books, f"c{cycle}s{n}", n % QUEUES, random.Random(rng.random())
                )
                for n in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            time.sleep(rng.uniform(0.02, 0.6))
            if cycle == cycles - 1:
                wait_until(lambda: enough(store, books, cycles))  # whatever else the machine does
            broker.child.kill()
            for sender in senders:
                sender.join(60)
                assert not sender.is_alive()
                assert sender.failure is None, sender.failure
    with server(arguments) as broker, RawConnection(broker.address) as connection:
        check(connection, books, full=True)
    return books


@pytest.mark.promise("The log", "acknowledged messages survive kill -9 of a real broker")
@pytest.mark.parametrize(
    "flush, cycles", [("SYNC_FLUSH", 10), ("ASYNC_FLUSH", 3)], ids=["sync", "async"]
)
def test_acknowledged_messages_survive_kill_9(tmp_path: Path, flush: str, cycles: int) -> None:
    books = run_cycles(tmp_path, flush, cycles, seed=cycles)
    assert sum(len(queue) for queue in books.promised) > 20 * cycles
    assert len(list((tmp_path / "commitlog").iterdir())) > 3, "files were rolled"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_acknowledged_messages_survive_50_more_kills(tmp_path: Path, seed: int) -> None:
    run_cycles(tmp_path, "SYNC_FLUSH", 50, seed=1000 + seed)
