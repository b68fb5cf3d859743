"""Offsets in a store of the application's: exactly once with the result, in virtual time and with the blocking client."""

import asyncio
import threading
from collections.abc import Mapping

import pytest
from tests.client.test_push_consumer import committed, small, until

import roquette
from roquette import StartFrom
from roquette.client.consumer_options import OffsetStore
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.embedded import EmbeddedBroker


class Store:
    """Offsets in a dict; `fails` calls of each kind raise first."""

    def __init__(self, fails: int = 0) -> None:
        self.kept: dict[tuple[str, MessageQueue], int] = {}
        self.fails = {"load": fails, "save": fails}

    def _fail(self, what: str) -> None:
        self.fails[what] -= 1
        if self.fails[what] >= 0:
            raise OSError("the database is away")

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        self._fail("load")
        await asyncio.sleep(0.01)
        return self.kept.get((group, queue))

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._fail("save")
        await asyncio.sleep(0.01)
        self.kept.update({(group, queue): offset for queue, offset in offsets.items()})


@pytest.mark.parametrize("fails", [0, 3])
def test_a_group_goes_on_where_its_own_store_says(fails: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, default_topic_queue_nums=1)
        await mq.send_batch("orders", [b"%d" % number for number in range(1, 10)])
        store, seen = Store(fails), []

        def handler(message: ReceivedMessage) -> None:
            seen.append(message.body)

        consumer = await mq.subscribe(
            "orders", group="g", handler=handler, start_from=StartFrom.FIRST, offsets=store
        )
        await until(lambda: len(seen) == 10)
        await consumer.close()
        queue = MessageQueue("orders", "broker-a", 0)
        assert store.kept["g", queue] == 10
        assert await committed(mq, queue) in (None, 0)  # the broker was told nothing

        store.kept["g", queue] = 7
        seen.clear()
        other = await cluster.client("10.0.2.9")
        await other.subscribe(
            "orders", group="g", handler=handler, start_from=StartFrom.FIRST, offsets=store
        )
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(60)
        assert sorted(seen) == [b"7", b"8", b"9"]

    simulate(scenario)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_result_and_its_offset_kept_together_are_exactly_once(seed: int) -> None:
    """Members die at work and others go on; what the database has is each message once."""

    async def scenario(cluster: SimCluster) -> None:
        maker = await small(cluster, default_topic_queue_nums=2)
        results: list[bytes] = []
        kept: dict[MessageQueue, int] = {}

        class Database:
            def load(self, group: str, queue: MessageQueue) -> int | None:
                return kept.get(queue)

            def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
                """The handler has."""

        async def handler(message: ReceivedMessage) -> bool:
            await asyncio.sleep(0.2)
            if message.queue_offset < kept.get(message.queue, 0):
                return True  # somebody has done it
            results.append(message.body)  # one transaction: no other task runs between
            kept[message.queue] = message.queue_offset + 1
            return True

        async def member(number: int) -> None:
            mq = await cluster.client(f"10.0.3.{number}")
            await mq.subscribe(
                "orders",
                group="g",
                handler=handler,
                start_from=StartFrom.FIRST,
                orderly=True,
                offsets=Database(),
            )

        await member(1)
        for number in range(2, 5):
            for body in range(20):
                await maker.send("orders", b"%d-%d" % (number, body))
            await asyncio.sleep(1.0)
            cluster.kill(f"10.0.3.{number - 1}")
            await member(number)
        wanted = sorted([b"0"] + [b"%d-%d" % (n, body) for n in range(2, 5) for body in range(20)])
        await until(lambda: len(results) >= len(wanted), 600)
        assert sorted(results) == wanted

    simulate(scenario, seed=seed)


def test_what_is_no_store_is_refused_and_what_gives_nonsense_begins_nothing() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        for wrong in (object(), {}, "file"):
            with pytest.raises(ConfigError, match="has not both load and save"):
                await mq.subscribe("orders", group="g", handler=print, offsets=wrong)  # type: ignore[arg-type]

        class Nonsense(Store):
            async def load(self, group: str, queue: MessageQueue) -> int | None:
                return "soon"  # type: ignore[return-value]

        seen: list[bytes] = []
        await mq.subscribe(
            "orders",
            group="g",
            handler=lambda message: seen.append(message.body),
            start_from=StartFrom.FIRST,
            offsets=Nonsense(),
        )
        await asyncio.sleep(60)
        assert seen == []

    simulate(scenario)


def test_the_blocking_client_calls_plain_functions_in_its_pool() -> None:
    loop_threads: set[int] = set()

    class Plain:
        kept: dict[MessageQueue, int] = {}

        def load(self, group: str, queue: MessageQueue) -> int | None:
            loop_threads.add(threading.get_ident())
            return self.kept.get(queue)

        def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
            self.kept.update(offsets)

    store: OffsetStore = Plain()
    with EmbeddedBroker() as broker, roquette.sync.Client(broker.name_servers) as mq:
        mq.send("orders", b"1")
        handled = threading.Event()
        consumer = mq.subscribe(
            "orders",
            group="g",
            handler=lambda message: handled.set(),
            start_from=StartFrom.FIRST,
            offsets=store,
        )
        assert handled.wait(30)
        consumer.close()
    assert sum(Plain.kept.values()) == 1
    assert threading.get_ident() not in loop_threads
