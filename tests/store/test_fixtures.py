"""Stores that commit 1b94d96 left open in today's code, serve all that their books say, and go on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.pop_frames import pop_ext, popped
from tests.simulation.transactions import keys_of, read
from tests.store.fixtures import KINDS, load_book, load_files, unpack
from tools.make_fixtures import BROKER, CLIENT, FRAMES, NAME_SERVER, Caller, body_hash

from roquette import StartFrom
from roquette.base.files import OsReadFiles
from roquette.broker.service import Broker
from roquette.message.message import ReceivedMessage
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette_testing.cluster import SimCluster, simulate

SOON_MS, LATE_MS = 2_000, 3 * 3_600_000


class Life:
    """The broker of today on an old store."""

    def __init__(self, cluster: SimCluster, kind: str) -> None:
        self.cluster = cluster
        self.kind = kind
        self.book = load_book(kind)

    async def start(self) -> Broker:
        """Open it."""
        cluster = self.cluster
        cluster.host(BROKER).files = load_files(self.kind)
        await cluster.add_namesrv(NAME_SERVER)
        store = self.book["store"]
        self.broker: Broker = await cluster.add_broker(BROKER, "broker-a", store=store)
        self.frames = Caller()
        await cluster.run_on(FRAMES, self.frames.connect())
        return self.broker

    def check_messages(self) -> None:
        """Each acknowledged message stands where it was, and is found by its key."""
        store = self.broker.store
        for topic, queue, offset, key, digest in self.book["messages"]:
            found = [r for r in read(self.broker, topic, queue) if r.queue_offset == offset]
            assert [body_hash(r.body) for r in found] == [digest], (topic, queue, offset)
            assert len(store.query(topic, key, 10, 0, 1 << 62)) == 1, key
        for topic, queue, end in self.book["ends"]:
            assert store.max_offset(topic, queue) >= end, (topic, queue)

    def check_tables(self) -> None:
        """Topics, groups and offsets."""
        for topic, read_queues, write_queues in self.book["topics"]:
            found = self.broker.tables.topics.find(topic)
            assert found is not None, topic
            assert (found.read_queues, found.write_queues) == (read_queues, write_queues), topic
        if self.book["topics"] and self.kind in ("stopped", "killed"):
            assert self.broker.tables.topics.find("dropped") is None
            strict = self.broker.tables.groups.known("strict")
            assert strict is not None and strict.retry_max_times == 2
            assert self.broker.tables.groups.known("gone") is None
        for group, topic, queue, offset in self.book["offsets"]:
            assert self.broker.tables.offsets.query(group, topic, queue) == offset, (
                group,
                topic,
                queue,
            )

    def waiting(self) -> list[str]:
        """What the book says of delayed messages: the hashes of their bodies."""
        return sorted(digest for _, _, digest in self.book["waiting"])

    def delivered(self) -> list[str]:
        """What came of them."""
        return sorted(body_hash(r.body) for q in range(4) for r in read(self.broker, "later", q))

    async def pop(self) -> list[str]:
        """What comes again to the group whose check-points were open."""
        ext = pop_ext(self.cluster.clock.now_ms(), consumerGroup="popper", topic="invoices")
        found: list[str] = []
        for _ in range(5):
            reply = await self.frames.call(200050, ext)
            for message in popped(reply, "broker-a"):
                found.append(body_hash(message.body))
                assert (await self.frames.call(200051, message.ack_ext("popper"))).code == 0
        return sorted(found)

    async def end_halves(self) -> None:
        """What was open is open: its producer commits it now."""
        halves = self.book["halves"]
        for key, table, place, _ in halves["open"]:
            ext = {
                "producerGroup": "shop", "tranStateTableOffset": table, "commitLogOffset": place,
                "commitOrRollback": 8, "fromTransactionCheck": "true", "msgId": key, "transactionId": key,
            }  # fmt: skip
            assert (await self.frames.call(37, ext)).code == 0
        await asyncio.sleep(1)
        keys = keys_of(r for q in range(4) for r in read(self.broker, "orders", q))
        for name, times in (("open", 1), ("committed", 1), ("rolled_back", 0)):
            for key, *_ in halves[name]:
                assert keys.get(key, 0) == times, (name, key)

    async def goes_on(self) -> None:
        """Messages come and go, through a stop and a start."""
        mq = await self.cluster.client(CLIENT)
        taken: set[bytes] = set()

        async def take(message: ReceivedMessage) -> None:
            taken.add(message.body)

        consumer = await mq.subscribe(
            "orders", group="billing", handler=take, start_from=StartFrom.FIRST
        )
        await mq.send("orders", b"new-1", key="new-1")
        await asyncio.sleep(15)
        await self.cluster.stop(BROKER)
        self.broker = await self.cluster.restart(BROKER)
        await mq.send("orders", b"new-2", key="new-2")
        await asyncio.sleep(15)
        await consumer.close()
        assert {b"new-1", b"new-2"} <= taken
        self.check_messages()


def open_store(kind: str, later_ms: int) -> None:
    """Everything the book has, in one scenario."""

    async def scenario(cluster: SimCluster) -> None:
        life = Life(cluster, kind)
        await life.start()
        life.check_messages()
        life.check_tables()
        pop = life.book["pop"]
        if later_ms == SOON_MS:
            await asyncio.sleep(10)
            assert life.delivered() == []
            assert await life.pop() == []
        else:
            await asyncio.sleep(40)
            assert life.delivered() == life.waiting()
            assert await life.pop() == sorted(pop["open"])
        await life.end_halves()
        await life.goes_on()
        await asyncio.sleep(20)
        assert life.delivered() == (life.waiting() if later_ms == LATE_MS else [])

    simulate(scenario, start_ms=load_book(kind)["end_ms"] + later_ms)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("later_ms", [SOON_MS, LATE_MS])
def test_a_store_of_1b94d96_is_served_and_goes_on(kind: str, later_ms: int) -> None:
    open_store(kind, later_ms)


def damage_of(root: Path) -> list[Any]:
    """What fsck calls damage."""
    files = OsReadFiles()
    report = check_store(files, find_store(files, str(root)), FsckOptions())
    return [f for f in report.findings if f.severity == "damage"]


@pytest.mark.parametrize("kind", KINDS)
def test_fsck_finds_a_store_of_1b94d96_sound(kind: str, tmp_path: Path) -> None:
    assert damage_of(unpack(kind, tmp_path)) == []
