"""POP under kills: consumers die with messages in hand, the broker dies at any time. The books must balance.

What must hold: every message that was sent is acknowledged in the end; none is handed out again before the invisible
time of its last pop is over; none whose acknowledgement was answered in time is ever handed out again.
"""

import asyncio
import itertools
from typing import Any

from tests.broker.pop_frames import Popped, pop_ext, popped

from roquette.errors import ClientError
from roquette.store.format.config import FlushDiskType
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette_testing.cluster import BROKER_PORT, SimCluster

NAME_SERVER = "10.0.0.1"
BROKER = "10.0.1.1"
PRODUCER = "10.0.2.1"
CONSUMERS = tuple(f"10.0.3.{n}" for n in range(1, 6))
TOPIC = "orders"
INVISIBLE_MS = 8_000
REPLY_S = 20.0


class Gone(Exception):
    """The connection to the broker ended."""


class PopChaos:
    """The scenario.

    Args:
        messages: how many are sent. `kills`: how often the broker dies.
        power_loss: it loses what was not synced, and so runs with synchronous flush.
    """

    order = "false"
    topic = TOPIC
    not_master: tuple[int, ...] = ()  # answers of a broker of which nothing can be had

    def __init__(self, *, messages: int, kills: int = 4, power_loss: bool = False) -> None:
        self.messages = messages
        self.kills = kills
        self.power_loss = power_loss
        self.sent: set[bytes] = set()
        self.hidden_until: dict[bytes, int] = {}  # body -> when its last pop is over
        self.newest: dict[
            bytes, str
        ] = {}  # body -> time of its last pop: older receipts say nothing
        self.acknowledged: set[bytes] = set()  # the broker said so before the time was over
        self.finished: set[bytes] = set()  # acknowledged, perhaps too late, perhaps unheard
        self.stale: set[bytes] = set()  # hidden again by a receipt that was over: it has two copies
        self.wrong: list[str] = []
        self.deliveries = 0
        self.broker_deaths = 0
        self.consumer_deaths = 0

    def broker(self) -> str:
        """Whom to ask."""
        return BROKER

    def early_ms(self, now_ms: int) -> int:
        """By how much the brokers' clocks may disagree."""
        return 0

    async def __call__(self, cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER)
        store: dict[str, Any] = {"segment_size": 8 << 20, "queue_file_size": 20 * 20_000}
        if self.power_loss:
            store["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
        await cluster.add_broker(BROKER, "broker-a", store=store)
        producing = cluster.loop.create_task(self._produce(cluster))
        consuming = [cluster.loop.create_task(self._live(cluster, ip)) for ip in CONSUMERS]
        killing = cluster.loop.create_task(self._kill(cluster))
        for _ in range(20 + self.messages):
            await asyncio.sleep(2)
            assert not self.wrong, self.wrong
            if producing.done() and killing.done() and self.sent <= self.finished:
                break
        assert self.sent <= self.finished, f"lost: {sorted(self.sent - self.finished)[:5]}"
        await asyncio.sleep(3 * INVISIBLE_MS / 1000)  # whoever comes again would do it now
        assert not self.wrong, self.wrong
        for task in (producing, killing, *consuming):
            task.cancel()

    async def _produce(self, cluster: SimCluster) -> None:
        """Send each body once: one whose answer was lost may be there or not, a second would look like a copy."""
        mq = await cluster.client(PRODUCER, send_attempts=1)
        for number in itertools.count():
            if len(self.sent) >= self.messages:
                return
            body = f"{number}".encode()
            try:
                receipt = await mq.send(TOPIC, body)
            except ClientError:
                await asyncio.sleep(0.2)
                continue
            if receipt.status == "SEND_OK":
                self.sent.add(body)
            if number % 20 == 0:
                await asyncio.sleep(cluster.loop.random.uniform(0.0, 0.2))

    async def _kill(self, cluster: SimCluster) -> None:
        rng = cluster.loop.random
        for _ in range(self.kills):
            await asyncio.sleep(rng.uniform(3, 15))
            cluster.kill(BROKER, power_loss=self.power_loss)
            self.broker_deaths += 1
            await asyncio.sleep(rng.uniform(0, 3))
            await cluster.restart(BROKER)

    async def _live(self, cluster: SimCluster, ip: str) -> None:
        """One consumer after the other on one host: each dies with what it holds."""
        rng = cluster.loop.random
        while True:
            consumer = Consumer(cluster, self)
            task = cluster.loop.create_task(cluster.run_on(ip, consumer.run()))
            await asyncio.sleep(rng.uniform(2, 12))
            self.consumer_deaths += 1
            task.cancel()
            consumer.close()
            await asyncio.sleep(rng.uniform(0, 1))

    def take(self, message: Popped, now_ms: int) -> None:
        """A message is handed out: may it be?"""
        body = message.body
        self.deliveries += 1
        if body in self.stale:
            return
        if body in self.acknowledged:
            self.wrong.append(f"{body!r} was acknowledged and comes again: {message.receipt}")
        hidden = self.hidden_until.get(body, 0)
        if now_ms < hidden - self.early_ms(now_ms):
            self.wrong.append(f"{body!r} comes {hidden - now_ms} ms too early: {message.receipt}")
        parts = message.receipt.split(" ")
        self.hidden_until[body] = int(parts[1]) + int(parts[2])
        self.newest[body] = parts[1]

    def done(self, message: Popped, now_ms: int) -> None:
        """An acknowledgement was answered: in time, and of the message's last pop."""
        is_last = self.newest[message.body] == message.receipt.split(" ")[1]
        if is_last and now_ms < self.hidden_until[message.body]:
            self.acknowledged.add(message.body)


class OrderChaos(PopChaos):
    """The same with orderly pops: besides, a queue's messages are out with one consumer only, and in order."""

    order = "true"

    def __init__(self, *, messages: int, kills: int = 4, power_loss: bool = False) -> None:
        super().__init__(messages=messages, kills=kills, power_loss=power_loss)
        self.out: dict[int, dict[int, tuple[str, bytes]]] = {}  # queue -> offset -> pop, body
        self.seen: dict[int, int] = {}  # queue -> the offset after the highest that was out

    def take(self, message: Popped, now_ms: int) -> None:
        """A message is handed out: may it be, and is it its turn?"""
        queue, offset = message.record.queue_id, message.record.queue_offset
        pop = message.receipt.split(" ")[1]
        out = self.out.setdefault(queue, {})
        for other, (other_pop, body) in list(out.items()):
            if other_pop == pop:
                continue
            if other != offset and body not in self.finished and now_ms < self.hidden_until[body]:
                self.wrong.append(f"queue {queue}: {offset} is out while {other} is")
            del out[other]
        super().take(message, now_ms)
        out[offset] = (pop, message.body)
        if offset > self.seen.get(queue, 0):
            self.wrong.append(f"queue {queue}: {offset} comes before {self.seen.get(queue, 0)}")
        self.seen[queue] = max(self.seen.get(queue, 0), offset + 1)


class Consumer:
    """A client of POP that speaks frames."""

    def __init__(self, cluster: SimCluster, books: PopChaos) -> None:
        self._cluster = cluster
        self._books = books
        self._wire = WireConnection()
        self._unread: list[Command] = []
        self._writer: asyncio.StreamWriter | None = None

    def close(self) -> None:
        """The process is gone."""
        if self._writer is not None:
            self._writer.close()

    async def run(self) -> None:
        """Pop and acknowledge until the end."""
        while True:
            try:
                await self._session()
            except (Gone, OSError, TimeoutError):
                self.close()
                await asyncio.sleep(0.3)

    async def _session(self) -> None:
        self._wire, self._unread = WireConnection(), []
        books = self._books
        self._reader, self._writer = await asyncio.open_connection(books.broker(), BROKER_PORT)
        rng, clock = self._cluster.loop.random, self._cluster.clock
        while True:
            ext = pop_ext(
                clock.now_ms(), topic=books.topic, invisibleTime=INVISIBLE_MS, pollTime=3_000,
                maxMsgNums=rng.choice((1, 8, 32)), order=self._books.order,
            )  # fmt: skip
            reply = await self._call(200050, ext)
            if reply.code in books.not_master:
                raise Gone
            messages = popped(reply, "broker-a")
            for message in messages:
                self._books.take(message, clock.now_ms())
            for message in messages:
                done = await self._handle(message)
                if not done and self._books.order == "true":
                    break  # what stands behind it must come again with it

    async def _handle(self, message: Popped) -> bool:
        """Do something with a message; whether it was acknowledged."""
        rng, clock, books = self._cluster.loop.random, self._cluster.clock, self._books
        fate = rng.random()
        if fate < 0.05:
            return False  # forgotten
        if fate < 0.10:
            new_ms = rng.choice((1_000, 20_000))
            if clock.now_ms() >= books.hidden_until[message.body] or (
                books.newest[message.body] != message.receipt.split(" ")[1]
            ):
                books.stale.add(message.body)
            until = min(books.hidden_until[message.body], clock.now_ms() + new_ms)
            books.hidden_until[message.body] = until  # the answer may never come, and yet it counts
            reply = await self._call(200053, message.ack_ext(invisibleTime=new_ms))
            if reply.code == 0 and books.newest[message.body] == message.receipt.split(" ")[1]:
                ext = ext_dict(reply.ext)
                until = int(ext["popTime"]) + int(ext["invisibleTime"])
                books.hidden_until[message.body] = until
            return False
        if fate < 0.12:
            await asyncio.sleep(rng.uniform(0, 12))  # slow: may be too late
        books.finished.add(message.body)  # the answer may never come, and yet it counts
        reply = await self._call(200051, message.ack_ext())
        if reply.code == 0:
            books.done(message, clock.now_ms())
        return reply.code == 0

    async def _call(self, code: int, ext: dict[str, Any]) -> Command:
        assert self._writer is not None
        opaque = self._wire.send_request(
            code, encode_dict({k: str(v) for k, v in ext.items()}), b"", False
        )
        self._writer.write(b"".join(self._wire.data_to_send()))
        while True:
            while self._unread:
                reply = self._unread.pop(0)
                if reply.opaque == opaque:
                    return reply
            data = await asyncio.wait_for(self._reader.read(65536), REPLY_S)
            if not data:
                raise Gone
            self._unread += self._wire.receive_data(data)
