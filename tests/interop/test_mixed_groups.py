"""One consumer group with members of every client: Java 4.9.8 and 5.5.0, Go, Node.js and Roquette's own (C3)."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import pytest
from tests.interop.bench import create_topic
from tests.interop.clients import GoClient, NodeClient
from tests.interop.conftest import Cluster
from tests.interop.driver import Driver, LineClient

from roquette import Client, ReceivedMessage, StartFrom
from roquette.client.consumer import Consumer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

QUEUES = 12
SOON_S = 60.0


class Group:
    """A topic of twelve queues, the members of a group on it, and what each has got."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.topic = f"T_{name}"
        self.group = f"G_{name}"
        self.name = name
        self.members: dict[str, LineClient] = {}
        self.ours: Consumer | None = None
        self.got: list[tuple[int, str]] = []  # ours: queue, body

    async def join(self, word: str, client: LineClient) -> None:
        """A member of another client."""
        options = {"group": self.group, "topic": self.topic}
        options["namesrv"] = self.cluster.namesrv.address
        await asyncio.to_thread(client, "consumer", name=f"{self.name}-{word}", **options)
        self.members[word] = client

    async def leave(self, word: str) -> None:
        """A member of another client stops."""
        await asyncio.to_thread(self.members.pop(word), "stop", name=f"{self.name}-{word}")

    async def join_ours(self, mq: Client) -> None:
        """A member of ours."""

        def handler(message: ReceivedMessage) -> None:
            self.got.append((message.queue.queue_id, message.body.decode()))

        self.ours = await mq.subscribe(
            self.topic, group=self.group, handler=handler, start_from=StartFrom.FIRST
        )

    async def seen(self) -> dict[str, tuple[set[int], list[tuple[int, str]]]]:
        """Queues, and messages as queue and body, of every member."""
        found = {}
        for word, client in self.members.items():
            told = await asyncio.to_thread(client, "dump", name=f"{self.name}-{word}")
            held = {int(q.rsplit("@", 1)[1]) for q in told["queues"] if q.startswith(self.topic)}
            found[word] = (held, [(m["queueId"], m["body"]) for m in told["messages"]])
        if self.ours is not None:
            held = {queue.queue_id for queue in self.ours.queues if queue.topic == self.topic}
            found["ours"] = (held, list(self.got))
        return found

    async def settled(self) -> dict[str, set[int]]:
        """Wait until the members share the queues exactly, each with its part; the shares."""
        least = QUEUES // (len(self.members) + (self.ours is not None))
        end = time.monotonic() + SOON_S
        while True:
            shares = {word: held for word, (held, _) in (await self.seen()).items()}
            counted = Counter(queue for held in shares.values() for queue in held)
            fair = all(least <= len(held) <= least + 1 for held in shares.values())
            if fair and counted == dict.fromkeys(range(QUEUES), 1):
                return shares
            assert time.monotonic() < end, shares
            await asyncio.sleep(0.2)

    async def exchanged(self, label: str, send: Callable[[str], None]) -> None:
        """Send a message to each queue five times; each arrives once, where its queue is."""
        shares = await self.settled()
        await asyncio.to_thread(send, label)
        end = time.monotonic() + SOON_S
        while True:
            seen = {word: got for word, (_, got) in (await self.seen()).items()}
            mine = {word: [g for g in got if g[1].startswith(label)] for word, got in seen.items()}
            if sum(map(len, mine.values())) >= 5 * QUEUES:
                break
            assert time.monotonic() < end, mine
            await asyncio.sleep(0.1)
        bodies = Counter(body for got in mine.values() for _, body in got)
        assert len(bodies) == 5 * QUEUES and set(bodies.values()) == {1}
        for word, got in mine.items():
            assert Counter(queue for queue, _ in got) == dict.fromkeys(shares[word], 5)


@pytest.mark.feature("mixed-group", client=("Java 4.9.8", "Java 5.5.0", "Go 2.1.2", "Node 3.12.0"))
def test_members_of_every_kind_share_the_queues(
    drivers: Callable[[str], Driver], go: GoClient, node: NodeClient, cluster: Cluster, name: str
) -> None:
    create_topic(cluster, f"T_{name}", queues=QUEUES)
    common = {"name": name, "topic": f"T_{name}", "brokerName": cluster.broker.name}
    go("producer", name=name, namesrv=cluster.namesrv.address, queue=1)

    def send(label: str) -> None:
        for queue in range(QUEUES):
            go("send", **common, queue=queue, body=f"{label}-{queue}", count=5)

    async def case() -> None:
        group = Group(cluster, name)
        async with Client(cluster.namesrv.address, rebalance=2) as mq:
            await group.join("java5", drivers("5.5.0"))
            await group.join("go", go)
            await group.exchanged("two", send)
            await group.join_ours(mq)
            await group.join("node", node)
            await group.join("java4", drivers("4.9.8"))
            await group.exchanged("five", send)
            await group.leave("java5")
            await group.leave("go")  # it only closes its connections
            await group.exchanged("three", send)
            assert group.ours is not None
            await group.ours.close()
            group.ours = None
            await group.leave("java4")
            await group.exchanged("one", send)
            await group.leave("node")

    async def bounded() -> None:
        async with asyncio.timeout(200):
            await case()

    asyncio.run(bounded())
    go("drop", name=name)
