"""A small world in which clocks are set and one task meets an exception nobody expects: work must go on.

One name server, one broker, a producer and a consumer; delay levels, timers, retries, transactions and POP. Whatever
was acknowledged is delivered within a bounded virtual time, before and after the trouble, and no task is gone.
"""

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from tests.broker.pop_frames import pop_ext, popped
from tests.simulation.transactions import LOST, QUEUES, Books, keys_of, read
from tests.simulation.transactions import TOPIC as TRANSACTED
from tests.simulation.transactions import Producer as TransactionProducer
from tools.make_fixtures import BROKER, NAME_SERVER, Caller

from roquette import StartFrom
from roquette.broker.service import Broker
from roquette.broker.transactions.feature import TransactionFeature
from roquette.client.client import Client
from roquette.client.producer import SendReceipt
from roquette.errors import ClientError
from roquette.message.message import Message, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.sim_loop import Thrower, Unexpected

PRODUCER, CONSUMER, TRANSACTIONS, POPPER = "10.0.2.1", "10.0.3.1", "10.0.2.2", "10.0.3.2"
SERVERS = (NAME_SERVER, BROKER, PRODUCER, CONSUMER)  # where exceptions are thrown
TOPIC, POPPED = "work", "popped"
BOUND_S = 120.0  # everything is delivered so long after the trouble
FAR_MS = 24 * 3_600_000
BROKER_SETTINGS: dict[str, Any] = {
    "transaction_time_out": 1500,
    "transaction_check_interval": 1000,
    "transaction_check_max": 4,
    "flush_consumer_offset_interval": 900,
}
STORE: dict[str, Any] = {"delay_levels": "1s 1s 1s 1s 2s 2s", "segment_size": 1 << 18}
CLIENT: dict[str, Any] = {
    "heartbeat": 5,
    "poll_routes": 7,
    "rebalance": 4,
    "persist_offsets": 1.5,
    "pull_hold": 3,
    "send_timeout": 1,
}
Wound = tuple[tuple[str, str], int]
NOT_WOUNDED = (
    "SimCluster.",
    "SmallWorld.",
    "Client.",
)  # they start processes, or are the application's own


class SmallWorld:
    """One run.

    Args:
        wound: the task, by host and name, and the number of its await at which it meets an exception.
        kills: whether the broker is killed once, too.
    """

    def __init__(self, wound: Wound | None = None, *, kills: bool = False) -> None:
        self.wound = wound
        self.kills = kills
        self.thrower = Thrower()
        self.acknowledged: set[bytes] = set()
        self.taken: dict[bytes, int] = {}
        self.to_pop: set[bytes] = set()
        self.popped: dict[bytes, int] = {}
        self.books = Books(0)
        self._count = itertools.count()

    async def __call__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        cluster.loop.thrower = self.thrower
        if self.wound is not None:
            task, number = self.wound
            self.thrower.choose(*task, number)
        await self._build()
        await self._batch(4)
        tasks = self._tasks()
        trouble = cluster.loop.create_task(cluster.move_clocks((BROKER, BROKER, *SERVERS), 1.5))
        await self._batch(6)
        if self.kills:
            cluster.kill(BROKER)
            await asyncio.sleep(cluster.loop.random.uniform(0, 2))
            await cluster.restart(BROKER)
            await self._batch(2)
        for _ in range(20):
            if self.thrower.thrown or self.wound is None:
                break
            await asyncio.sleep(1)
        trouble.cancel()
        hours = cluster.loop.random.uniform(0.1, 6) * (
            -1 if cluster.loop.random.random() < 0.7 else 1
        )
        cluster.set_clock(BROKER, int(hours * 3_600_000))  # what waits now must not wait for hours
        await self._batch(4)
        await self._until(lambda: not any(self._missing(timers=False).values()))
        cluster.set_clock(BROKER, FAR_MS)  # what was promised for a wall time is due
        await self._until(lambda: not any(self._missing().values()))
        await self._until(lambda: self._tasks() >= tasks)
        assert self._broker.failure is None
        self._check_transactions()

    @property
    def _broker(self) -> Broker:
        broker = self.cluster.hosts[BROKER].service
        assert isinstance(broker, Broker)
        return broker

    def _tasks(self) -> set[tuple[str, str]]:
        """The tasks that are to live as long as their process: those that are supervised."""
        found: set[tuple[str, str]] = set()
        for ip in SERVERS:
            service = self.cluster.hosts[ip].service
            owners = [service.session.tasks] if isinstance(service, Client) else [service.tasks]
            found |= {(ip, health.name) for tasks in owners for health in tasks.health()}
        return found

    async def _build(self) -> None:
        cluster = self.cluster
        await cluster.add_namesrv(NAME_SERVER)
        await cluster.add_broker(BROKER, "broker-a", store=STORE, **BROKER_SETTINGS)
        self.mq = await cluster.client(PRODUCER, **CLIENT)
        consumer = await cluster.client(CONSUMER, **CLIENT)
        while not self.acknowledged or not self.to_pop:
            await self._send(Message(TOPIC, b"plain"))
            await self._send(Message(POPPED, b"pop"))
            await asyncio.sleep(0.1)
        while not await self._join(consumer):
            await asyncio.sleep(0.1)
        transactions = TransactionProducer(cluster, self.books, TRANSACTIONS)
        for ip, work in ((TRANSACTIONS, transactions.run()), (POPPER, self._pop_for_ever())):
            cluster.loop.create_task(cluster.run_on(ip, work), name=f"run-{ip}")

    # What goes on

    async def _join(self, consumer: Client) -> bool:
        join = consumer.subscribe(
            TOPIC, group="g", handler=self._take, start_from=StartFrom.FIRST, concurrency=2
        )
        try:
            await self.cluster.run_on(CONSUMER, join)
        except (ClientError, Unexpected):
            return False
        return True

    async def _take(self, message: ReceivedMessage) -> bool:
        body = message.body
        times = self.taken[body] = self.taken.get(body, 0) + 1
        await asyncio.sleep(0.01)
        return not (body.startswith(b"retry") and times == 1)

    async def _batch(self, rounds: int) -> None:
        for _ in range(rounds):
            number = next(self._count)
            self.books.left.insert(0, number)
            body = b"%d" % number
            await self._send(Message(TOPIC, b"plain" + body))
            await self._send(Message(TOPIC, b"retry" + body))
            await self._send(Message(TOPIC, b"later" + body, delay_level=1 + number % 6))
            await self._send(Message(TOPIC, b"timer" + body, properties={"TIMER_DELAY_MS": "1500"}))
            await self._send(Message(POPPED, b"pop" + body))
            await asyncio.sleep(self.cluster.loop.random.uniform(0.1, 1.0))

    async def _send(self, message: Message) -> None:
        try:
            async with asyncio.timeout(BOUND_S):
                receipt = await self.cluster.run_on(PRODUCER, self._send_somehow(message))
        except (ClientError, Unexpected):
            return  # nothing was promised
        if receipt.status == "SEND_OK":
            (self.to_pop if message.topic == POPPED else self.acknowledged).add(message.body)

    async def _send_somehow(self, message: Message) -> SendReceipt:
        if message.body.startswith((b"plain", b"retry")):
            return await (await self.mq.send_nowait(message))
        if message.body.startswith(
            b"timer"
        ):  # a delay by the broker's clock, as Java's clients send
            return await self.mq._sender.send(message)
        return await self.mq.send(message)

    async def _pop_for_ever(self) -> None:
        while True:
            try:
                await self._pop()
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(0.3)

    async def _pop(self) -> None:
        frames = Caller()
        await frames.connect()
        while True:
            ext = pop_ext(
                self.cluster.clock.now_ms(), topic=POPPED, invisibleTime=2_000, pollTime=1_000
            )
            async with asyncio.timeout(5):
                reply = await frames.call(200050, ext)
            for message in popped(reply, "broker-a"):
                times = self.popped[message.body] = self.popped.get(message.body, 0) + 1
                if times == 1 and self.cluster.loop.random.random() < 0.3:
                    continue  # forgotten: it comes again
                async with asyncio.timeout(5):
                    done = await frames.call(200051, message.ack_ext())
                if done.code == 0:
                    self.popped[message.body] += 1_000
            await asyncio.sleep(0.05)

    # What must be

    async def _until(self, good: Callable[[], Any]) -> None:
        end_s = self.cluster.loop.time() + BOUND_S
        while not good():
            assert self.cluster.loop.time() < end_s, f"stuck after {self.wound}: {self._missing()}"
            await asyncio.sleep(0.5)

    def _missing(self, *, timers: bool = True) -> dict[str, list[Any]]:
        """What was acknowledged and has not come."""
        sent = {b for b in self.acknowledged if timers or not b.startswith(b"timer")}
        again = {b for b in self.acknowledged if b.startswith(b"retry")}
        state = self._broker.feature(TransactionFeature).transactions.state
        halves = self._broker.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        return {
            "messages": sorted(sent - set(self.taken)),
            "retries": sorted(b for b in again if self.taken.get(b, 0) < 2),
            "pops": sorted(b for b in self.to_pop if self.popped.get(b, 0) < 1_000),
            "halves": list(range(state.base, halves)),
            "transactions": self.books.left[:5],
        }

    def _check_transactions(self) -> None:
        committed = keys_of(r for q in range(QUEUES) for r in read(self._broker, TRANSACTED, q))
        lost = keys_of(read(self._broker, LOST, 0))
        for key in self.books.acknowledged:
            kind, times = int(key) % 10, (committed.get(key, 0), lost.get(key, 0))
            allowed = {(1, 0), (0, 1)} if kind < 5 or kind in (7, 8) else {(0, 0), (0, 1)}
            assert times in allowed, f"transaction {key}: {times}"


def all_wounds(seed: int = 0) -> list[Wound]:
    """Every await of every task of a run without an exception, from the moment that one may come."""
    world = SmallWorld()
    simulate(world, seed)
    return [
        (task, number)
        for task, count in sorted(world.thrower.awaits.items())
        if task[0] in SERVERS and not task[1].startswith(NOT_WOUNDED)
        for number in range(1, count + 1)
    ]


def wound_of(seed: int, wounds: list[Wound]) -> Wound:
    """The seed's: each task in its turn, at any of its awaits, more often at an early one."""
    tasks = sorted({task for task, _ in wounds})
    task = tasks[seed % len(tasks)]
    count = max(number for other, number in wounds if other == task)
    return task, 1 + int(count * Random(seed).random() ** 2)


def run_seed(seed: int, wounds: list[Wound]) -> SmallWorld:
    """One run under one seed; every fifth kills the broker, too."""
    world = SmallWorld(wound_of(seed, wounds), kills=seed % 5 == 0)
    simulate(world, seed)
    return world
