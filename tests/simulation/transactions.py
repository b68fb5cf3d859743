"""Producers of transactions and a broker, all killed at random, and what must be true of every half message.

Our own client has no transactions yet: the producers here are frames. What a producer decides about a message is
written in the scenario's books, as it would be in the database of an application.
"""

import asyncio
import contextlib
from typing import Any

from tests.records import read_queue

from roquette.broker.service import Broker
from roquette.broker.transactions.feature import TransactionFeature
from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord
from roquette.store.format.config import FlushDiskType
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette_testing.cluster import SimCluster

BROKER = "10.0.1.1"
PRODUCERS = ("10.0.2.1", "10.0.2.2")
PORT = 10911
TOPIC = "orders"
QUEUES = 4
GROUP = "shop"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
LOST = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
SETTINGS: dict[str, Any] = {
    "transaction_time_out": 1500,
    "transaction_check_interval": 1000,
    "transaction_check_max": 4,
    "flush_consumer_offset_interval": 700,
}
QUIET_S = 30.0


class Books:
    """What the application knows: which messages it sent, and what it decided."""

    def __init__(self, count: int) -> None:
        self.left = list(range(count))[::-1]
        self.acknowledged: dict[str, None] = {}
        self.answers: dict[str, int] = {}  # key -> checks answered

    def decide(self, key: str, checked: bool) -> int:
        """The state of a transaction: some are known at once, some later, some never."""
        kind = int(key) % 10
        if checked:
            self.answers[key] = self.answers.get(key, 0) + 1
        if kind < 5:
            return COMMIT
        if kind < 7:
            return ROLLBACK
        if kind == 9:
            return UNKNOWN
        return COMMIT if self.answers.get(key, 0) >= kind - 6 else UNKNOWN


class Producer:
    """One process of the group: it sends half messages, ends them, and answers checks."""

    def __init__(self, cluster: SimCluster, books: Books, client_id: str) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._books = books
        self._rng = cluster.loop.random

    async def run(self) -> None:
        """Until the messages are sent, and then on, for the checks."""
        while True:
            with contextlib.suppress(OSError, EOFError):
                reader, writer = await asyncio.open_connection(BROKER, PORT)
                session = Session(reader, writer, self._books, self._client_id)
                await session.heartbeat()
                work = asyncio.get_running_loop().create_task(self._send(session))
                try:
                    await session.read()
                finally:
                    work.cancel()
            await asyncio.sleep(0.3)

    async def _send(self, session: "Session") -> None:
        left = self._books.left
        while True:
            await asyncio.sleep(self._rng.uniform(0.0, 0.04))
            if self._rng.random() < 0.02:
                await session.heartbeat()
            if left:
                number = left.pop()
                await session.transact(f"{number}", self._cluster.clock.now_ms(), self._rng)


class Session:
    """One connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        books: Books,
        client_id: str,
    ) -> None:
        self._reader, self._writer, self._books = reader, writer, books
        self._client_id = client_id
        self._wire = WireConnection()
        self._waiting: dict[int, asyncio.Future[Command]] = {}

    def _request(self, code: int, ext: dict[str, Any], body: bytes, oneway: bool) -> int:
        fields = {name: str(value) for name, value in ext.items()}
        opaque = self._wire.send_request(code, encode_dict(fields), body, oneway)
        self._writer.write(b"".join(self._wire.data_to_send()))
        return opaque

    async def _call(self, code: int, ext: dict[str, Any], body: bytes) -> Command:
        opaque = self._request(code, ext, body, False)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = future
        return await future

    async def read(self) -> None:
        """Take what comes, until the connection ends."""
        while data := await self._reader.read(65536):
            for command in self._wire.receive_data(data):
                if command.is_response:
                    future = self._waiting.pop(command.opaque, None)
                    if future is not None and not future.done():
                        future.set_result(command)
                elif command.code == 39:
                    self._answer_check(command)

    async def heartbeat(self) -> None:
        """Say which group this is."""
        group = b'{"clientID":"%b","producerDataSet":[{"groupName":"%b"}],"consumerDataSet":[]}'
        self._request(34, {}, group % (self._client_id.encode(), GROUP.encode()), False)

    async def transact(self, key: str, now_ms: int, rng: Any) -> None:
        """Send one half message and, when it is acknowledged and the mood is right, end it."""
        named = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP, "TAGS": "t"}
        ext = {
            "a": GROUP,
            "b": TOPIC,
            "c": "TBW102",
            "d": QUEUES,
            "e": int(key) % QUEUES,
            "f": 4,
            "g": now_ms,
            "h": 0,
            "i": encode_properties(named),
            "j": 0,
            "k": "false",
        }
        reply = await self._call(310, ext, key.encode() * 5)
        if reply.code != 0:
            return
        self._books.acknowledged[key] = None
        sent = ext_dict(reply.ext)
        if rng.random() < 0.1:
            return  # its word gets lost
        await asyncio.sleep(rng.choice((0.0, 0.0, 0.05, 3.0)))
        for _ in range(rng.choice((1, 1, 1, 2))):  # and sometimes it says it twice
            self._end(
                key,
                sent["queueOffset"],
                str(int(sent["msgId"][-16:], 16)),
                self._books.decide(key, False),
                checked=False,
            )

    def _answer_check(self, command: Command) -> None:
        ext = ext_dict(command.ext)
        key = ext["transactionId"]
        [message] = decode_records(command.body, True)
        assert message.body == key.encode() * 5 and message.topic == TOPIC
        state = self._books.decide(key, True)
        self._end(key, ext["tranStateTableOffset"], ext["commitLogOffset"], state, checked=True)

    def _end(self, key: str, table: str, place: str, state: int, *, checked: bool) -> None:
        ext = {
            "producerGroup": GROUP,
            "tranStateTableOffset": table,
            "commitLogOffset": place,
            "commitOrRollback": state,
            "fromTransactionCheck": str(checked).lower(),
            "msgId": key,
            "transactionId": key,
        }
        self._request(37, ext, b"", True)


class Transactions:
    """The scenario.

    Args:
        power_loss: the broker's machine goes down instead of its process, under SYNC_FLUSH.
    """

    def __init__(self, count: int, *, power_loss: bool = False) -> None:
        self.count = count
        self.power_loss = power_loss
        self.books = Books(count)
        self.result: dict[str, int] = {}

    async def __call__(self, cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        store = {"segment_size": 1 << 18}
        if self.power_loss:
            store["flush_disk_type"] = FlushDiskType.SYNC_FLUSH  # type: ignore[assignment]
        await cluster.add_broker(BROKER, store=store, **SETTINGS)
        for ip in PRODUCERS:
            await self._start(cluster, ip)
        clocks = cluster.loop.create_task(cluster.move_clocks((BROKER,), 6.0))
        while self.books.left:
            await self._trouble(cluster)
        clocks.cancel()
        await asyncio.sleep(QUIET_S)
        self._check(cluster.hosts[BROKER].service)

    async def _start(self, cluster: SimCluster, ip: str) -> None:
        producer = Producer(cluster, self.books, ip)

        async def begin() -> asyncio.Task[None]:
            return asyncio.get_running_loop().create_task(producer.run(), name=f"run-{ip}")

        host = cluster.host(ip)
        host.begin = begin
        host.service = await cluster.run_on(ip, begin())

    async def _trouble(self, cluster: SimCluster) -> None:
        rng = cluster.loop.random
        await asyncio.sleep(rng.uniform(0.1, 4))
        victims = rng.choice(((BROKER,), (PRODUCERS[0],), (PRODUCERS[1],), (BROKER, *PRODUCERS)))
        cluster.loop.trace("kill", *victims)
        if BROKER in victims and not self.power_loss and rng.random() < 0.7:
            files = cluster.hosts[BROKER].files
            files.tear_writes = True  # killed within a write, not between two
            files.fail("pwrite", rng.randint(1, 3))
            await asyncio.sleep(rng.uniform(0, 0.3))
            files.work_again()
        for ip in victims:
            cluster.kill(ip, power_loss=self.power_loss and ip == BROKER)
        for ip in victims:
            await asyncio.sleep(rng.uniform(0, 1))
            await cluster.restart(ip)

    def _check(self, broker: Broker) -> None:
        committed = keys_of(r for queue in range(QUEUES) for r in read(broker, TOPIC, queue))
        lost = keys_of(read(broker, LOST, 0))
        halves = keys_of(read(broker, HALF, 0))
        state = broker.feature(TransactionFeature).transactions.state
        assert state.base == broker.store.max_offset(HALF, 0), "half messages are open for ever"
        assert set(committed) | set(lost) <= set(halves)
        for key in set(self.books.acknowledged) | set(halves):
            kind = int(key) % 10
            times = (committed.get(key, 0), lost.get(key, 0))
            if kind < 5 or kind in (7, 8):
                assert times in ((1, 0), (0, 1)), f"{key} to be committed: {times}"
            elif kind < 7:
                assert times in ((0, 0), (0, 1)), f"{key} to be rolled back: {times}"
            else:
                assert times == (0, 1), f"{key} never known: {times}"
        for key in self.books.acknowledged:
            assert key in halves, f"acknowledged and gone: {key}"
        assert len(self.books.acknowledged) > self.count * 0.8, "the run must have done something"
        self.result = {
            "acknowledged": len(self.books.acknowledged),
            "committed": len(committed),
            "visible": len(lost),
            "stored": sum(halves.values()),
        }


def read(broker: Broker, topic: str, queue_id: int) -> list[StoredRecord]:
    """Every record of a queue."""
    found: list[StoredRecord] = []
    end = broker.store.max_offset(topic, queue_id)
    offset = broker.store.min_offset(topic, queue_id)
    while offset < end:
        part = read_queue(broker.store, topic, queue_id, offset, 32, 1 << 20, None)
        found += decode_records(b"".join(part.runs), True)
        offset = part.next_begin_offset
    return found


def keys_of(records: Any) -> dict[str, int]:
    """How often each key is there."""
    found: dict[str, int] = {}
    for record in records:
        key = decode_properties(record.properties)["UNIQ_KEY"]
        found[key] = found.get(key, 0) + 1
    return found
