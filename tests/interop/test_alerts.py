"""The alerts of `roquette generate`, by Prometheus' own engine, over what servers of a simulated cluster show when they are sick.

Each sickness fires its alerts and no other; each alert has a sickness; a healthy cluster with restarts has none.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.interop.scraping import Scraper, Seen, judged, shown

from roquette import StartFrom
from roquette.access.model import AccessSettings
from roquette.apps.features import replica_features
from roquette.base.metric_boards import ALERTS, grafana_board
from roquette.errors import ClientError
from roquette.remoting.pem import Authority, CertificateEnds
from roquette.store.format.config import FlushDiskType
from roquette.wire.signature import Credentials
from roquette_testing.cluster import SimCluster, simulate

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

N, A, R, B = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1"
USER, OTHER = "10.0.3.1", "10.0.3.2"
GB = 1 << 30
CLOSED = AccessSettings(
    authentication_enabled=True,
    init_authentication_user='{"username":"root","password":"r00t"}',
    inner_client_authentication_credentials='{"accessKey":"root","secretKey":"r00t"}',
)


class Clinic:
    """A name server, a classic pair `broker-a` and a broker `broker-b`, which Prometheus watches."""

    def __init__(self, cluster: SimCluster, folder: Path) -> None:
        self.cluster = cluster
        self.scraper = Scraper(cluster, (N, A, R, B))
        self.watch = self.scraper.watch
        self.folder = folder
        self.tasks: list[asyncio.Task[Any]] = []

    async def build(self, store_b: dict[str, Any] | None = None, **settings_b: Any) -> None:
        cluster = self.cluster
        await cluster.add_namesrv(N, **shown(N))
        await cluster.add_broker(A, "broker-a", **shown(A))
        replica = {"broker_role": "SLAVE", "broker_id": 1, "features": replica_features}
        await cluster.add_broker(R, "broker-a", **replica, **shown(R))
        await cluster.add_broker(B, "broker-b", store=store_b, **settings_b, **shown(B))
        self.mq = await cluster.client(USER)

    @property
    def b(self) -> Any:
        return self.cluster.hosts[B].service

    def meanwhile(self, work: Callable[[], Awaitable[object]], pause_s: float) -> None:
        """Do it again and again; what the servers refuse is refused."""

        async def again() -> None:
            while True:
                with suppress(ClientError):
                    await work()
                await asyncio.sleep(pause_s)

        self.tasks.append(self.cluster.loop.create_task(again()))

    async def send(self) -> None:
        await self.mq.send("orders", b"x" * 1000)


def seen(
    scenario: Callable[[Clinic], Awaitable[None]], folder: Path, queries: list[str] | None = None
) -> Seen:
    """Run a scenario; what Prometheus makes of it."""
    found: list[Clinic] = []

    async def main(cluster: SimCluster) -> None:
        clinic = Clinic(cluster, folder)
        found.append(clinic)
        await scenario(clinic)
        for task in clinic.tasks:
            task.cancel()
        await asyncio.gather(*clinic.tasks, return_exceptions=True)

    simulate(main)
    return judged(found[0].scraper.scrapes, queries)


SICK: dict[Callable[[Clinic], Awaitable[None]], set[str]] = {}
LONG: list[Any] = []


def fires(*names: str, long: bool = False) -> Callable[[Any], Any]:
    """This sickness fires these alerts; one that costs 3 CPU seconds or more is in the long form alone."""

    def noted(scenario: Any) -> Any:
        SICK[scenario] = {f"RocketMQ{name}" for name in names}
        if long:
            LONG.append(scenario)
        return scenario

    return noted


@fires("ServerDown", "BrokerLeft", "NoMaster", "ReplicaCutOff", "NotReady")
async def a_dead_master(clinic: Clinic) -> None:
    await clinic.build()
    await clinic.watch(2)
    clinic.cluster.kill(A)
    await clinic.watch(7)


@fires("ServerDown", "BrokerLeft", "ReplicaGone", long=True)
async def a_dead_replica(clinic: Clinic) -> None:
    await clinic.build()
    await clinic.watch(2)
    clinic.cluster.kill(R)
    await clinic.watch(7)


@fires("ServerDown", "NoServer")
async def everything_is_dead(clinic: Clinic) -> None:
    await clinic.build()
    await clinic.watch(3)
    for ip in (A, R, B, N):
        clinic.cluster.kill(ip)
    await clinic.watch(3)


@fires("NotRegistered", "BrokerLeft", "NotReady")
async def a_name_server_that_a_broker_cannot_reach(clinic: Clinic) -> None:
    await clinic.build()
    await clinic.watch(3)
    clinic.cluster.partition(B, N)
    await clinic.watch(9)


@fires("RefusesMessages", "NotReady", "DiskFills", long=True)
async def a_full_disk(clinic: Clinic) -> None:
    await clinic.build()
    files = clinic.cluster.hosts[B].files
    for size in range(40, 4, -1):  # somebody else fills it
        files.set_capacity(files.used + size * GB)
        await clinic.watch(1)
    files.set_capacity(files.used * 51 // 50)
    await clinic.watch(4)


@fires("DeadLetters")
async def the_first_dead_letter_of_a_group(clinic: Clinic) -> None:
    """Before: never, since its counter is born with it: increase() of that is 0."""
    await clinic.build()
    await clinic.watch(16)
    await clinic.mq.send("orders", b"1")
    words: dict[str, Any] = {"max_reconsume_times": 0, "start_from": StartFrom.FIRST}
    await clinic.mq.subscribe("orders", group="g", handler=lambda message: False, **words)
    await clinic.watch(2)


@fires(
    "ConsumerLagOld", "ConsumerLagGrows", "SubscriptionConflict", "DuplicateClientIds", long=True
)
async def consumers_in_trouble(clinic: Clinic) -> None:
    await clinic.build()
    mq, cluster = clinic.mq, clinic.cluster

    def take(message: object) -> bool:
        return True

    await mq.send("orders", b"1")
    slow = await mq.subscribe("orders", group="slow", handler=take, start_from=StartFrom.FIRST)
    await clinic.watch(1)
    await slow.close()  # and its messages come and come
    for _ in range(30):
        await mq.send_batch("orders", [b"x"] * 1000)
    clinic.meanwhile(lambda: mq.send("orders", b"x"), 5)
    members = []
    for number, tag in enumerate("ab"):
        ip = f"10.0.3.{3 + number}"
        client = await cluster.client(ip, local_host="10.0.3.3", instance_name="one")
        for group, of in (("torn", tag), ("twins", "*")):
            words = {"group": group, "tag": of, "handler": take}
            members.append(await cluster.run_on(ip, client.subscribe("orders", **words)))
        await clinic.watch(1)
    await clinic.watch(3)
    for member in members:
        await member.close()
    await clinic.watch(13)


@fires("DeletedUnread", long=True)
async def a_group_that_is_away_longer_than_messages_are_kept(clinic: Clinic) -> None:
    await clinic.build({"file_reserved_bytes": 2 << 20})
    await clinic.mq.send("orders", b"1")
    away = await clinic.mq.subscribe("orders", group="away", handler=lambda message: True)
    await asyncio.sleep(30)
    await away.close()
    await clinic.watch(16)
    for number in range(12):
        await clinic.mq.send("orders", Random(number).randbytes(900_000))
    await clinic.watch(4)


@fires("AccessRefused")
async def a_client_without_the_password(clinic: Clinic) -> None:
    clinic.cluster.access = CLOSED
    await clinic.build()
    mq = await clinic.cluster.client(OTHER, credentials=Credentials("root", "wrong"))
    await clinic.watch(2)
    clinic.meanwhile(lambda: mq.send("orders", b"1"), 20)
    await clinic.watch(5)


@fires("RequestsRefused", "MetricsLeftOut", long=True)
async def more_names_than_may_be(clinic: Clinic) -> None:
    await clinic.build(metrics_max_series=20)
    clinic.b.core.live.bounds.topics.most = 30
    numbers = itertools.count()
    clinic.meanwhile(lambda: clinic.mq.send(f"T{next(numbers)}", b"1"), 5)
    await clinic.watch(16)


@fires(
    "SyncSlow", "EventLoopWaits", "TaskFails", "NotReady", "ClockOff", "TablesUnwritten", long=True
)
async def a_machine_in_trouble(clinic: Clinic) -> None:
    await clinic.build({"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    clinic.meanwhile(clinic.send, 3)
    await clinic.mq.subscribe("orders", group="g", handler=lambda message: True)
    await clinic.watch(2)
    clinic.cluster.slow_disk(B, 0.3)
    clinic.cluster.set_clock(A, 60_000)

    def fails() -> None:
        raise RuntimeError("no luck")

    clinic.cluster.hosts[R].service.tasks.every("unlucky", 1.0, fails)
    files = clinic.cluster.hosts[A].files
    for number in range(1, 2_000):
        files.fail("rename", number)
    for _ in range(14):
        clinic.cluster.pause(N, 2)
        await clinic.watch(1)


@fires("ReplicaOutOfStep", "ReplicaBehind", long=True)
async def a_replica_that_writes_nothing(clinic: Clinic) -> None:
    cluster = clinic.cluster
    await clinic.build(ha_max_gap_not_in_sync=1 << 20)

    async def replica() -> None:
        reader, writer = await asyncio.open_connection(B, 10912)
        while True:
            writer.write(bytes(8))  # it has nothing
            await asyncio.sleep(4)
            await reader.read(1 << 24)

    clinic.tasks.append(cluster.loop.create_task(cluster.run_on(OTHER, replica())))
    while clinic.b.store.max_physical_offset < 70 << 20:
        await clinic.mq.send("large", Random(1).randbytes(900_000))  # which no compressor shortens
    await clinic.watch(8)


@fires("CertificateEnds", "CertificateEnded")
async def certificates_near_their_end(clinic: Clinic) -> None:
    await clinic.build()
    now_ms, folder = clinic.cluster.clock.now_ms(), clinic.folder
    for ip, days in ((A, 90), (B, 10), (R, 1)):
        path = folder / f"{days}.pem"
        path.write_bytes(Authority("ours", now_ms, days).server([ip])["cert"])
        ends = CertificateEnds({"tls.server.certPath": str(path)})
        await ends.look()
        core = clinic.cluster.hosts[ip].service.core
        object.__setattr__(core, "protection", replace(core.protection, ends=ends))
    await clinic.watch(12)


@fires("GroupTrouble", "ReplicaCutOff", "NotReady", long=True)
async def a_member_whose_disk_takes_nothing(clinic: Clinic) -> None:
    cluster = clinic.cluster
    await cluster.add_namesrv(N, controller="embedded", **shown(N))
    for ip in (A, R, B):
        await cluster.add_member(ip, "orders", **shown(ip))
    await clinic.watch(2)
    cluster.slow_disk(R, 60)
    await clinic.watch(4)


@fires("RefusesForReplicas", "ReplicaOutOfStep", "NotReady", "ServerDown", "BrokerLeft", "ReplicaGone", long=True)  # fmt: skip
async def a_group_of_three_that_lacks_two(clinic: Clinic) -> None:
    cluster = clinic.cluster
    await cluster.add_namesrv(N, controller="embedded", **shown(N))
    for ip in (A, R, B):
        await cluster.add_member(ip, "orders", in_sync_replicas=2, **shown(ip))
    await clinic.watch(2)
    masters = [ip for ip in (A, R, B) if cluster.hosts[ip].service.is_master]
    for ip in {A, R, B} - set(masters):
        cluster.kill(ip)
    await clinic.watch(7)


@pytest.mark.parametrize(
    "sickness",
    [pytest.param(s, marks=pytest.mark.long if s in LONG else (), id=s.__name__) for s in SICK],
)
def test_a_sickness_fires_its_alerts_once_and_no_other(
    sickness: Callable[[Clinic], Awaitable[None]], tmp_path: Path
) -> None:
    found = seen(sickness, tmp_path)
    assert found.names == SICK[sickness]
    for each in found.alerts:
        words = each["annotations"]["summary"]
        assert words and "<no value>" not in words and "  " not in words, each
    told = [tuple(sorted(each["labels"].items())) for each in found.alerts]
    assert len(told) == len(set(told)), "an alert fires twice"


def test_every_alert_has_a_sickness() -> None:
    assert {alert.name for alert in ALERTS} == set().union(*SICK.values())


# As Grafana puts variables in: all, and some of several values.
CHOICES: tuple[dict[str, str], ...] = (
    dict.fromkeys(("cluster", "broker", "topic", "group"), ".*"),
    {"cluster": "DefaultCluster", "broker": "(broker-a|broker-b)", "topic": "orders", "group": "g"},
)
EMPTY = "Dead letters|Messages given back|Days until certificates end"  # in a healthy cluster


@pytest.mark.long
def test_a_healthy_cluster_fires_nothing_through_restarts_and_fills_the_board(
    tmp_path: Path,
) -> None:
    """Before: RocketMQDiskFills above 85 % of a disk of 10 TB, whatever diskFullFreeBytes says."""
    board, queries = grafana_board(), []
    names = [each["name"] for each in board["templating"]["list"]]
    assert names == ["datasource", *CHOICES[0]]
    for panel in board["panels"]:
        query = panel["targets"][0]["expr"]
        for choice in CHOICES if not query.endswith("> 0") else ():
            asked = query
            for name, value in choice.items():
                asked = asked.replace(f"${name}", value)
            assert "$" not in asked
            if not re.fullmatch(EMPTY, panel["title"]):
                queries.append(asked)

    async def day(clinic: Clinic) -> None:
        await clinic.build()
        await clinic.mq.send("orders", b"1")
        await clinic.mq.subscribe("orders", group="g", handler=lambda message: True)
        clinic.meanwhile(clinic.send, 10)
        files: Any = clinic.cluster.hosts[B].files
        restarts = {10: R, 14: A, 18: B, 22: N}
        for minute in range(35):
            free = round((0.14 - 0.00001 * minute) * 10_000 * GB)
            files.disk_usage = lambda path, free=free: (10_000 * GB, free)
            if minute in restarts:
                await clinic.cluster.stop(restarts[minute])
                await asyncio.sleep(2)
                await clinic.cluster.restart(restarts[minute])
            await clinic.watch(1)

    found = seen(day, tmp_path, queries)
    assert found.alerts == []
    assert {query for query, series in found.series.items() if not series} == set()
