"""Members of a group that come and go as they should: no finished message is repeated, and none is lost."""

import asyncio
import os
from collections import Counter
from typing import Any

import pytest
from tests.client.test_push_consumer import committed
from tests.simulation.test_name_servers import create_topic

from roquette import StartFrom
from roquette.client.client import Client
from roquette.client.consumer import MessageStream
from roquette.client.orderly import QueueLocks
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAME_SERVER, BROKER = "10.0.0.1", "10.0.1.1"
TOPIC, QUEUES = "orders", 6
SEEDS = int(os.environ.get("ROQUETTE_SEEDS", "100"))
FIRST = int(os.environ.get("ROQUETTE_CHAOS_FIRST", "1000"))
CHAOS_SEEDS = int(os.environ.get("ROQUETTE_CHAOS_SEEDS", "2000"))
PIECES = 10
WAYS: list[dict[str, Any]] = [{"failing": 0.1}, {"how": "stream"}, {"how": "orderly"}]


class Handover:
    """The scenario and its books: `changes` joins and as many leaves while messages are sent and consumed.

    Args:
        how: options of the members; `stream`: they are streams.
        failing: the part of the messages that fail once.
        pace: how many times as long everything takes.
    """

    def __init__(
        self,
        messages: int,
        changes: int = 5,
        *,
        failing: float = 0.0,
        how: str = "push",
        pace: float = 1,
    ) -> None:
        self.messages, self.changes = messages, changes
        self.failing = failing
        self.how = how
        self.pace = pace
        self.finished: Counter[bytes] = Counter()
        self.failed: set[bytes] = set()
        self.members: list[tuple[Client, Any]] = []
        self.left: list[Client] = []
        self.joined = 0

    async def __call__(self, cluster: SimCluster) -> None:
        self.cluster, self.random = cluster, cluster.loop.random
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER)
        await create_topic(cluster, TOPIC, BROKER, queues=QUEUES)
        self.producer = await cluster.client("10.0.2.1")
        await self._join()
        sending = cluster.loop.create_task(self._send())
        for _ in range(self.changes):
            await asyncio.sleep(self.random.uniform(0, 1.5) * self.pace)
            await self._join()
            await asyncio.sleep(self.random.uniform(0, 1.5) * self.pace)
            await self._leave()
        await sending
        async with asyncio.timeout(300):
            while len(self.finished) < self.messages:
                await asyncio.sleep(0.2)
        for change in (self._join, self._leave, self._join, self._join):  # the group is idle now
            await asyncio.sleep(0.6)
            await change()
        await asyncio.sleep(4)
        assert {body: n for body, n in self.finished.items() if n > 1} == {}

    async def _send(self) -> None:
        done = 0
        while done < self.messages:
            count = min(self.random.randrange(1, 33), self.messages - done)
            bodies = [b"%d" % number for number in range(done, done + count)]
            await self.producer.send_batch(TOPIC, bodies)
            done += count
            await asyncio.sleep(self.random.uniform(0, 12 * count / self.messages) * self.pace)

    async def _handle(self, message: ReceivedMessage) -> bool:
        if self.random.random() < 0.7:
            await asyncio.sleep(self.random.choice((0.001, 0.02, 0.5)) * self.random.random())
        if self.random.random() < self.failing and message.body not in self.failed:
            self.failed.add(message.body)
            return False
        self.finished[message.body] += 1
        return True

    async def _join(self) -> None:
        self.joined += 1
        ip = f"10.0.3.{self.joined}"
        client = await self.cluster.client(ip)
        if self.how == "stream":
            stream = client.consume(TOPIC, group="g", start_from=StartFrom.FIRST)
            work = self.cluster.loop.create_task(self._iterate(client, stream))
            self.members.append((client, work))
        else:
            options: dict[str, Any] = {"orderly": self.how == "orderly", "concurrency": 8}
            join = client.subscribe(
                TOPIC, group="g", handler=self._handle, start_from=StartFrom.FIRST, **options
            )
            self.members.append((client, await self.cluster.run_on(ip, join)))

    async def _iterate(self, client: Client, stream: MessageStream) -> None:
        async for message in stream:
            await asyncio.sleep(0.01 * self.random.random())
            if client in self.left:
                break
            self.finished[message.body] += 1  # for now the next one is asked for

    async def _leave(self) -> None:
        client, consumer = self.members.pop(self.random.randrange(len(self.members)))
        self.left.append(client)
        if self.random.random() < 0.5 and self.how != "stream":
            await consumer.close()
        await client.close()


def run_seeds(first: int, count: int, **options: Any) -> None:
    for seed in range(first, first + count):
        try:
            simulate(Handover(60, **options), seed)
        except BaseException as error:
            error.add_note(f"seed {seed} {options}")
            raise


def run_all(first: int, count: int) -> None:
    """Half of the seeds for handlers that are content, the others shared by the other ways to consume."""
    run_seeds(first, count // 2)
    for options in WAYS:
        run_seeds(first, max(1, count // 6), **options)


@pytest.mark.promise("The client", "a clean join or leave repeats no finished message")
@pytest.mark.parametrize("piece", range(PIECES))
def test_a_clean_join_or_leave_repeats_no_finished_message(piece: int) -> None:
    count = -(-SEEDS // PIECES)
    run_all(1 + piece * count, count)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_clean_joins_and_leaves(piece: int) -> None:
    count = -(-CHAOS_SEEDS // PIECES)
    run_all(FIRST + piece * count, count)


def test_five_joins_and_leaves_among_6000_messages() -> None:
    simulate(Handover(6_000, pace=2), 1)


def test_members_that_give_no_locks_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of Apache, which know of no locks here: the books of this test notice what they repeat."""

    async def at_once(self: QueueLocks, queues: list[MessageQueue]) -> list[MessageQueue]:
        return queues

    monkeypatch.setattr(QueueLocks, "lock", at_once)

    with pytest.raises(AssertionError, match=r"== \{\}"):
        run_seeds(1, 20)


@pytest.mark.parametrize("crashed", [False, True])
def test_locks_of_a_member_that_crashed_or_is_slow_stall_nobody_for_long(crashed: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER)
        await create_topic(cluster, TOPIC, BROKER, queues=1)
        producer = await cluster.client("10.0.2.1")
        begun, after = asyncio.Event(), asyncio.Event()

        async def slow(message: ReceivedMessage) -> None:
            begun.set()
            await asyncio.sleep(5)

        async def next_one(message: ReceivedMessage) -> None:
            after.set()

        first = await cluster.client("10.0.3.2")
        join = first.subscribe(TOPIC, group="g", handler=slow, start_from=StartFrom.FIRST)
        await cluster.run_on("10.0.3.2", join)
        await producer.send(TOPIC, b"x")
        await begun.wait()
        # one queue goes to the first of the sorted members
        second = await cluster.client("10.0.3.1")
        began_s = cluster.loop.time()
        if crashed:
            cluster.kill("10.0.3.2")
        await second.subscribe(TOPIC, group="g", handler=next_one, start_from=StartFrom.FIRST)
        async with asyncio.timeout(60):
            await after.wait()
        assert 1.4 < cluster.loop.time() - began_s < 2.2

    simulate(main)


@pytest.mark.parametrize("how", ["gives up", "leaves"])
def test_a_member_that_ends_late_does_not_move_the_group_back(how: str) -> None:
    """Its handler takes 5 s; whoever waited 2 s for its queue has finished more of it meanwhile."""

    async def main(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER)
        await create_topic(cluster, TOPIC, BROKER, queues=1)
        producer = await cluster.client("10.0.2.1")
        (queue,) = await producer.queues(TOPIC)
        finished: Counter[bytes] = Counter()

        async def slow(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.01 if message.body == b"0" else 5)

        async def quick(message: ReceivedMessage) -> None:
            finished[message.body] += 1

        first = await cluster.client("10.0.3.2")
        consumer = await first.subscribe(TOPIC, group="g", handler=slow, start_from=StartFrom.FIRST)
        await producer.send_batch(TOPIC, [b"%d" % number for number in range(20)])
        await asyncio.sleep(2)
        second = await cluster.client("10.0.3.1")  # the queue goes to the first of the sorted ids
        if how == "leaves":
            leaving = asyncio.create_task(consumer.close())
            await asyncio.sleep(0.1)
        await second.subscribe(TOPIC, group="g", handler=quick, start_from=StartFrom.FIRST)
        await asyncio.sleep(20)
        assert len(finished) == 19
        await second.close()
        if how == "leaves":
            await leaving
        third = await cluster.client("10.0.3.0")
        assert await third.queues(TOPIC)
        stored = await committed(third, queue, f"{BROKER}:10911")
        assert stored == 20

    simulate(main)
