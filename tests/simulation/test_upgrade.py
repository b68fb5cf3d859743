"""docs/howto/upgrade.md, typed as it stands, in the midst of a healthy day: the doctor finds what the page says, and nothing else.

Two name servers, a classic pair, a group of three; senders and consumers of most kinds, and retention.
"""

import asyncio
import itertools
import json
from collections import Counter
from typing import Any

import pytest
from tests.simulation.test_group import MEMBERS, in_step, until
from tests.simulation.ward import N1, N2, OPERATOR, SETTINGS, Ward
from tests.typed import done, type_at

from roquette.apps.features import replica_features
from roquette.message.message import ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

MASTER, REPLICA = "10.0.5.1", "10.0.5.2"  # of the pair
KEPT: dict[str, Any] = {
    "segment_size": 1 << 18,
    "file_reserved_hours": 2,
    "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
}
SEEN_ANYWAY = {"RQ-D023", "RQ-D025", "RQ-D055"}
"""Notes: flushes are Apache's default, the cluster is open to everybody, a broker is drained."""


class Estate(Ward):
    """What a company has, and what was sent and came. `install_s`: how long each server is away."""

    install_s = 6.0

    async def build(self, **client: Any) -> None:
        cluster = self.cluster
        for ip in (N1, N2):
            await cluster.add_namesrv(ip, **({"controller": "embedded"} if ip == N1 else {}))
        await cluster.add_broker(MASTER, "pair", store=KEPT, **SETTINGS)
        words = {"broker_id": 1, "broker_role": "SLAVE", "features": replica_features}
        await cluster.add_broker(REPLICA, "pair", store=KEPT, **words, **SETTINGS)
        group = {"total_replicas": 3, "min_in_sync_replicas": 2, "in_sync_replicas": 2}
        for ip in MEMBERS:
            await cluster.add_member(ip, "group", store=KEPT, **group, **SETTINGS)
        await until(lambda: in_step(cluster) == len(MEMBERS))
        self.mq = await cluster.client(OPERATOR, **client)
        await self.create("orders", queues=4)
        self.sent: set[bytes] = set()
        self.came: dict[str, Counter[bytes]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    # Applications

    async def work(self, pause_s: float) -> None:
        """Begin to send, each so many seconds, and to consume."""
        for number, (group, options) in enumerate(
            {
                "plain": {},
                "other": {},
                "orderly": {"orderly": True},
                "tags": {"tag": "a || b"},
            }.items()
        ):
            name = group if group != "other" else "plain"
            await self.consumer(f"10.0.4.{number}", self.handler(name), group=name, **options)
        await self.consumer("10.0.4.9", self.fails_once(), group="retries")
        start = self.cluster.loop.create_task
        self.tasks = [start(self.produce(pause_s)), start(self.pop())]

    def handler(self, group: str) -> Any:
        seen = self.came.setdefault(group, Counter())
        return lambda message: seen.update([message.body[:8]])

    def fails_once(self) -> Any:
        seen, failed = self.came.setdefault("retries", Counter()), Counter[bytes]()

        def handle(message: ReceivedMessage) -> bool:
            number = message.body[:8]
            failed[number] += 1
            if failed[number] == 1 and int(number) % 10 == 0:
                return False
            seen[number] += 1
            return True

        return handle

    async def produce(self, pause_s: float) -> None:
        """Plain and delayed messages of three tags, and transactions; what is refused ends it."""
        producer = await self.cluster.client("10.0.3.1", group="shop")
        producer.on_check("orders", lambda message: True)
        for number in itertools.count():
            body = b"%08d" % number + bytes(2_000)
            if number % 20 == 0:
                async with producer.transaction("orders", body, tag="a"):
                    await asyncio.sleep(0.5)
            else:
                delay = {"delay_level": 1 + number % 3} if number % 5 == 0 else {}
                await producer.send("orders", body, tag="abc"[number % 3], **delay)
            self.sent.add(body[:8])
            await asyncio.sleep(pause_s)

    async def pop(self) -> None:
        client = await self.cluster.client("10.0.4.8")
        seen = self.came.setdefault("popping", Counter())
        async for job in client.pop("orders", group="popping"):
            seen[job.body[:8]] += 1
            await job.ack()

    def to_come(self) -> dict[str, set[bytes]]:
        """By group, what was sent and has not come."""
        tagged = {n for n in self.sent if int(n) % 3 < 2 or int(n) % 20 == 0}
        return {
            group: missing
            for group, seen in self.came.items()
            if (missing := (tagged if group == "tags" else self.sent) - seen.keys())
        }

    async def all_came(self) -> None:
        """Nothing more is sent, and within two minutes every group has everything."""
        self.tasks[0].cancel()
        for _ in range(120):
            if not self.to_come():
                break
            await asyncio.sleep(1)
        assert self.to_come() == {}
        assert not self.tasks[1].done()
        self.tasks[1].cancel()

    # The operator

    async def look(self, *expected: str) -> None:
        """`roquette doctor` finds this, besides notes, and ends accordingly."""
        result = await type_at(self.mq, ["roquette", "doctor", "-o", "json"])
        rows = json.loads(result.stdout)
        found = {row["code"]: row for row in rows if row["severity"] != "note"}
        assert found.keys() == set(expected), found
        assert result.exit_code == (10 if found else 0)
        assert {row["code"] for row in rows} - found.keys() <= SEEN_ANYWAY, rows
        assert [task for task in self.tasks if task.done()] == [], "senders and consumers go on"

    async def quiet(self, minutes: float) -> None:
        """Nothing happens; the doctor is asked every ten minutes."""
        while minutes > 0:
            await asyncio.sleep(min(minutes, 10) * 60)
            minutes -= 10
            await self.look()

    async def wait_for(self, command: str) -> None:
        """Type it until it ends with 0."""
        for _ in range(60):
            if not (await type_at(self.mq, command.split())).exit_code:
                return
            await asyncio.sleep(1)
        raise AssertionError(f"not well in a minute: {command}")

    async def upgraded(self, ip: str, *meanwhile: str) -> None:
        """Stop, install, start; the doctor finds this meanwhile."""
        await self.cluster.stop(ip)
        await asyncio.sleep(self.install_s / 2)
        await self.look(*meanwhile)
        await asyncio.sleep(self.install_s / 2)
        await self.cluster.restart(ip)

    async def upgrade(self) -> None:
        """The page, from the top."""
        await self.look()
        await done(self.mq, "roquette broker config get --broker pair -o json")
        for ip in (N1, N2):
            await self.cluster.stop(ip)
            await self.cluster.restart(ip)
            await self.wait_for("roquette namesrv diff")
            await self.look()

        await self.upgraded(REPLICA, "RQ-D040")
        await self.wait_for("roquette doctor")
        await done(self.mq, "roquette broker drain pair --wait")
        await self.look()
        await self.upgraded(MASTER, "RQ-D040")
        await done(self.mq, "roquette broker restore pair")
        await self.wait_for("roquette doctor")

        behind = set(MEMBERS)
        while behind:
            (group,) = json.loads(await done(self.mq, "roquette broker status -o json"))
            places = {m["broker_id"]: m["address"].split(":")[0] for m in group["members"]}
            old = [
                places[who] for who in places if who != group["master"] and places[who] in behind
            ]
            if not old:  # the last one: hand the office over
                other = next(who for who in places if who != group["master"])
                await done(self.mq, f"roquette broker promote group {other}")
            else:
                await self.upgraded(old[0], "RQ-D041")
                behind.discard(old[0])
            await self.wait_for("roquette broker status")
            await self.look()
        for command in ("doctor", "topic list", "group list"):
            await done(self.mq, f"roquette {command}")

    def deleted(self) -> list[int]:
        """Of each store, how many bytes retention took."""
        services = [self.cluster.hosts[ip].service for ip in (MASTER, REPLICA, *MEMBERS)]
        stores = [getattr(each, "broker", each).store for each in services]
        return [store.min_physical_offset for store in stores]


def lived(minutes: float, pause_s: float) -> Estate:
    """So many minutes with an upgrade in the midst; one message each so many seconds."""
    estates: list[Estate] = []

    async def main(cluster: SimCluster) -> None:
        estate = Estate(cluster)
        estates.append(estate)
        await estate.build()
        await estate.work(pause_s)
        await estate.quiet(minutes / 2)
        await estate.upgrade()
        await estate.quiet(minutes / 2)
        await estate.all_came()

    simulate(main)
    return estates[0]


def test_an_upgrade_by_the_page() -> None:
    estate = lived(0.5, 2)
    assert len(estate.sent) > 50


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_a_healthy_day_with_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Estate, "install_s", 60.0)
    estate = lived(24 * 60, 10)
    assert len(estate.sent) > 8_000
    assert min(estate.deleted()) > 0, "retention took some of each store"
