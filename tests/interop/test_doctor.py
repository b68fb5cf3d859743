"""The doctor on Apache's servers 5.5.0: nothing is found where nothing is wrong, and a sickness where one is."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers
from tests.typed import done, type_at

from roquette import Client, StartFrom
from roquette.admin.doctor.checks import queues
from roquette.admin.doctor.checks.diagnosis import diagnose
from roquette.admin.doctor.examination import examine
from roquette.admin.doctor.findings import Finding, Intent, apply_remedies, remedies_of
from roquette.admin.facts import ClusterFacts
from roquette.admin.topics import create_topic
from roquette.base.clock import SystemClock
from roquette.client import calls
from roquette.message.message import MessageQueue, ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(180)]

SOON_S = 60.0
SETTINGS = {"autoCreateTopicEnable": "false", "messageDelayLevel": " ".join(["1s"] * 18)}


class Ward:
    """A name server and two brokers of Apache's, and our client."""

    wanted = Intent(brokers=("broker-a", "broker-b"))

    def __init__(self, namesrv: str, mq: Client, brokers: dict[str, str]) -> None:
        self.namesrv, self.mq, self.brokers = namesrv, mq, brokers
        self.got: list[ReceivedMessage] = []
        self.sent: dict[str, str] = {}  # a message of each broker

    async def look(self) -> ClusterFacts:
        return await self.mq.session.run(examine([self.namesrv], SystemClock()))

    async def findings(self, intent: Intent | None = wanted) -> list[Finding]:
        return diagnose(await self.look(), None, intent)

    async def create(self, topic: str, **where: Any) -> None:
        await self.mq.session.run(create_topic([self.namesrv], topic, queues=2, **where))
        wanted = 1 if where else 2
        await until(lambda: self.brokers_of(topic), wanted)

    async def brokers_of(self, topic: str) -> int:
        with contextlib.suppress(Exception):
            return len((await self.mq.session.route(topic, fresh=True)).data.queue_datas)
        return 0

    async def consumed(self, group: str, topic: str) -> int:
        """Sum of the group's offsets."""
        positions = (await self.look()).positions()
        return sum(at.offset for at in positions if (at.group, at.queue.topic) == (group, topic))


async def until(count: Callable[[], Awaitable[int]], wanted: int) -> None:
    end = time.monotonic() + SOON_S
    while await count() != wanted:
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.2)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[peers.Server]]]:
    """The name server's address, and both brokers."""
    folder = tmp_path_factory.mktemp("doctor")
    namesrv = peers.start_namesrv("apache", folder / "namesrv")
    started = [namesrv]
    try:
        for name in ("broker-a", "broker-b"):
            start = peers.start_broker
            more = {"name": name, "settings": SETTINGS}
            started.append(start("apache", folder / name, namesrv.address, **more))
        yield namesrv.address, started[1:]
    finally:
        for server in reversed(started):
            server.discard()


@contextlib.asynccontextmanager
async def clients(namesrv: str, folder: Path, count: int) -> AsyncIterator[list[Client]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Client(namesrv, offset_root=str(folder), rebalance=2))
            for _ in range(count)
        ]


def test_apaches_brokers(
    servers: tuple[str, list[peers.Server]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        namesrv, brokers = servers
        async with clients(namesrv, tmp_path, 3) as (mq, one, other):
            ward = Ward(namesrv, mq, {each.name: each.address for each in brokers})
            await ward.create("orders")
            await healthy(ward, one)
            await sick(ward, one, other)
            monkeypatch.setattr(queues, "AWAY_MS", 0)
            monkeypatch.setattr(queues, "RECENT_MS", 0)
            await one.close()
            await other.close()
            await away(ward)
            brokers[1].process.kill()
            await lost(ward)

    asyncio.run(run())


async def healthy(ward: Ward, one: Client) -> None:
    """Traffic of most kinds, with one consumer: no alarm, at any moment."""
    await one.subscribe("orders", group="calm", handler=ward.got.append, start_from=StartFrom.FIRST)
    for number in range(40):
        await ward.mq.send("orders", b"x", tag="a", delay_level=number % 2)
    assert await ward.findings() == []
    await until(lambda: ward.consumed("calm", "orders"), 40)
    before = await ward.look()
    now = await ward.look()
    assert diagnose(now, before, ward.wanted) == []
    assert [group.group for group in now.groups] == ["calm"]
    (member,) = now.groups[0].members
    assert member.tells_queues
    assert len(member.queues()) == 4 + 2  # of the topic, and of the retries on both brokers
    assert {broker.runtime["brokerVersionDesc"] for broker in now.brokers} == {"V5_5_0"}
    assert all(broker.ahead_ms is not None for broker in now.brokers)
    assert {level.delivered for broker in now.brokers for level in broker.delays} != {0}
    found = await ward.findings(Intent(none_lost=True))
    assert [(finding.code, finding.subject) for finding in found] == [
        ("RQ-D023", "broker broker-a"),
        ("RQ-D023", "broker broker-b"),
        ("RQ-D056", f"name server {ward.namesrv}"),
    ]


async def sick(ward: Ward, one: Client, other: Client) -> None:
    await ward.create("alone", broker="broker-a")
    leaves = await other.subscribe("orders", group="elsewhere", handler=ward.got.append)
    await leaves.close()
    queue = MessageQueue("orders", "broker-b", 1)
    api = ward.mq.session.api
    await api.call(ward.brokers["broker-b"], calls.commit("elsewhere", queue, 777))
    for client, tag in ((one, "a"), (other, "b")):
        await client.subscribe("orders", group="torn", handler=ward.got.append, tag=tag)
    await one.subscribe(
        "orders",
        group="failing",
        handler=lambda message: False,
        start_from=StartFrom.FIRST,
        max_reconsume_times=0,
    )
    wanted = {"RQ-D005", "RQ-D009", "RQ-D015", "RQ-D017"}
    found: dict[str, Finding] = {}

    async def codes() -> int:
        found.update({finding.code: finding for finding in await ward.findings()})
        return len(wanted & found.keys())

    await until(codes, len(wanted))
    assert found.keys() == wanted
    assert found["RQ-D005"].evidence == "on broker-a, not on broker-b"
    assert "orders: a" in found["RQ-D009"].evidence
    assert "broker-b/1; the first is at 777" in found["RQ-D015"].evidence
    assert found["RQ-D017"].subject == "group failing"

    await ward.mq.session.run(apply_remedies(remedies_of(found.values())))
    await until(lambda: ward.brokers_of("alone"), 2)
    assert "RQ-D005" not in {finding.code for finding in await ward.findings()}


async def away(ward: Ward) -> None:
    """No member is left: what waits, and dead letters, are told by Apache's brokers as by ours."""
    sent = [await ward.mq.send("orders", b"x", tag="a") for _ in range(20)]
    found = {(each.code, each.subject): each for each in await ward.findings()}
    assert "messages wait in 4 queues" in found["RQ-D048", "group calm, topic orders"].evidence
    assert "dead letters that nobody has read" in found["RQ-D051", "group failing"].evidence
    (row,) = json.loads(await done(ward.mq, "roquette dlq ls -o json"))
    assert (row["group"], row["messages"] > 0) == ("failing", True)
    lag = json.loads(await done(ward.mq, "roquette group lag calm -o json"))
    assert sum(row["lag"] for row in lag) == len(sent)
    ward.sent = {each.queue.broker_name: each.message_id for each in sent}
    said = await done(ward.mq, f"roquette explain {ward.sent['broker-b']} --topic orders")
    assert "stored at" in said
    assert re.search("group calm: has not read it", said)


async def lost(ward: Ward) -> None:
    """Apache's name servers forget a broker when it is gone: that nothing is missing is not known."""

    async def known() -> int:
        return len(
            json.loads((await type_at(ward.mq, ["roquette", "cluster", "-o", "json"])).stdout)
        )

    await until(known, 1)
    assert ("RQ-D040", "broker broker-b") in {(f.code, f.subject) for f in await ward.findings()}
    found = {each.code: each for each in await ward.findings(None)}
    assert "RQ-D040" not in found
    assert "whether a broker is missing is not known" in found["RQ-D056"].cause
    said = await done(ward.mq, f"roquette explain {ward.sent['broker-b']} --topic orders")
    assert "is on a broker that name servers do not know any more" in said
    rows = json.loads(await done(ward.mq, "roquette top --every 1 --count 1 -o json"))
    assert {
        row["lag"] > 0 for row in rows if row["group"] == "calm" and row["topic"] == "orders"
    } == {True}
    assert await done(ward.mq, "roquette events --every 1 --count 1") == ""
