"""A cluster that the doctor visits: two name servers, two brokers, a topic, one operator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from roquette import StartFrom
from roquette.admin.doctor.checks.diagnosis import diagnose
from roquette.admin.doctor.examination import examine
from roquette.admin.doctor.findings import Finding, Intent, Severity
from roquette.admin.facts import ClusterFacts
from roquette.admin.topics import create_topic
from roquette.client.client import Client
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.sim_loop import Thrower

N1, N2, A, B = "10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2"
OPERATOR, CONSUMERS = "10.0.2.1", ("10.0.4.1", "10.0.4.2")
SETTINGS: dict[str, Any] = {"auto_create_topic_enable": False}
APART_S = 40.0


class Ward:
    """The topic `orders` has four queues on each broker."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.got: list[ReceivedMessage] = []

    async def build(
        self,
        *,
        store_a: dict[str, Any] | None = None,
        store_b: dict[str, Any] | None = None,
        thrower: Thrower | None = None,
        **client: Any,
    ) -> None:
        cluster = self.cluster
        cluster.loop.thrower = thrower
        for ip in (N1, N2):
            await cluster.add_namesrv(ip)
        await cluster.add_broker(A, "broker-a", store=store_a, **SETTINGS)
        await cluster.add_broker(B, "broker-b", store=store_b, **SETTINGS)
        self.mq = await cluster.client(OPERATOR, **client)
        await self.create("orders", queues=4)

    async def run(self, operation: Any) -> Any:
        return await self.mq.session.run(operation)

    async def create(self, topic: str, **where: Any) -> None:
        await self.run(create_topic(self.mq.session.name_servers, topic, **where))
        await asyncio.sleep(1)

    async def look(self) -> ClusterFacts:
        clock = self.cluster.host(OPERATOR).clock
        found: ClusterFacts = await self.run(examine(self.mq.session.name_servers, clock))
        return found

    async def findings(self, seconds: float = 0, *, notes: bool = False) -> list[Finding]:
        """What one look finds, or two; without notes, which the simulated addresses always give."""
        before = None
        if seconds:
            before = await self.look()
            await asyncio.sleep(seconds)
        found = diagnose(await self.look(), before)
        return [f for f in found if notes or f.severity is not Severity.NOTE]

    async def consumer(self, ip: str, handler: Any = None, **options: Any) -> Client:
        client = await self.cluster.client(ip, **options.pop("client", {}))
        words = {"topic": "orders", "group": "g", "start_from": StartFrom.FIRST} | options
        join = client.subscribe(handler=handler or self.got.append, **words)
        await self.cluster.run_on(ip, join)
        return client

    async def send(self, count: int, *, body: bytes = b"", **words: Any) -> None:
        for number in range(count):
            await self.mq.send("orders", body or b"%d" % number, **words)

    async def sent_to(self) -> set[MessageQueue]:
        """The queues that 16 messages of a new client come to."""
        client = await self.cluster.client(f"10.0.5.{len(self.cluster.hosts)}")
        return {(await client.send("orders", b"x")).queue for _ in range(16)}

    async def codes(self, intent: Intent) -> set[str]:
        """Errors and warnings of one look, where the cluster is to be so."""
        found = diagnose(await self.look(), None, intent)
        return {finding.code for finding in found if finding.severity is not Severity.NOTE}


def nurse(scenario: Callable[[Ward], Awaitable[None]], **build: Any) -> None:
    """Run a scenario on a new cluster, in virtual time."""

    async def main(cluster: SimCluster) -> None:
        ward = Ward(cluster)
        await ward.build(**build)
        await scenario(ward)

    simulate(main)


async def one(ward: Ward, code: str, seconds: float = 0) -> Finding:
    """The one thing that is found."""
    found = await ward.findings(seconds)
    assert [finding.code for finding in found] == [code], found
    return found[0]
