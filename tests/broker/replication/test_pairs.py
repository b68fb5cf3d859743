"""A master and its replicas in virtual time: every byte arrives, whoever comes when; what replies wait for."""

import asyncio
import contextlib
from collections.abc import Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.admin.doctor.scripted import healthy
from tests.simulation.apache_peers import apache_slave

from roquette.admin.doctor.checks.diagnosis import diagnose
from roquette.apps.features import broker_features, replica_features
from roquette.base.clock import SystemClock
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Copied, Feature
from roquette.broker.replication.follower import ClassicSource
from roquette.broker.replication.master import ClassicQuorum, MasterReplication
from roquette.broker.service import Broker
from roquette.errors import RequestTimeout
from roquette.remoting.ha import HaConnection, call_master
from roquette.store.offline.store_dir import find_store
from roquette.store.offline.take_tail import take_tail
from roquette.wire.ha import Epochs, Piece, SlaveWire, Welcome, hello, report
from roquette_testing.cluster import SimCluster, simulate

MASTER, FIRST, SECOND, OTHER = "10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4"
SEGMENT = 1 << 16
STORE: dict[str, Any] = {"segment_size": SEGMENT}


class Known:
    """A source that knows all; `member`: it greets with epochs."""

    retry_s = 0.5
    copied = Copied(f"{MASTER}:10911")

    def __init__(self, core: BrokerCore, member: int | None = None) -> None:
        self.core = core
        self.member = member
        self.address = f"{MASTER}:10912"
        self.epochs: list[tuple[int, int]] = []
        self.welcomes: list[Welcome] = []
        self.confirms = [0]
        self.gone = 0

    async def prepare(self) -> bool:
        return True

    def welcomed(self, answer: Welcome) -> bool:
        self.welcomes.append(answer)
        return True

    def epoch_begins(self, epoch: int, start: int) -> None:
        self.epochs.append((epoch, start))

    def confirmed(self, offset: int) -> None:
        self.confirms.append(offset)

    def behind(self, begin: int) -> None:
        self.gone = begin


class WithEpochs(ClassicQuorum):
    """A master's in epoch 4."""

    @property
    def marks(self) -> Epochs:
        return ((1, 0), (3, 5000), (4, 40_000))


async def master(cluster: SimCluster, *, epochs: bool = False, **settings: Any) -> Broker:
    def features(core: BrokerCore) -> list[Feature]:
        made = broker_features(core)
        quorum = WithEpochs(core) if epochs else ClassicQuorum(core)
        return [
            MasterReplication(core, quorum) if isinstance(one, MasterReplication) else one
            for one in made
        ]

    return await cluster.add_broker(MASTER, "broker-a", store=STORE, features=features, **settings)


async def replica(
    cluster: SimCluster,
    ip: str,
    member: int | None = None,
    flush: str = "ASYNC_FLUSH",
    **source: Any,
) -> tuple[Broker, Known]:
    made: list[Known] = []

    def features(core: BrokerCore) -> list[Feature]:
        if member is None:
            return replica_features(core)
        made.append(Known(core, member))
        return replica_features(core, followed=made[-1])

    broker = await cluster.add_broker(
        ip,
        "broker-a",
        broker_id=int(ip[-1]),
        broker_role="SLAVE",
        store=STORE | {"flush_disk_type": flush},
        features=features,
    )
    return broker, made[-1] if made else Known(broker.core)


def log_of(broker: Broker) -> bytes:
    store = broker.store
    data, place = [], store.min_physical_offset
    while part := store.read_raw(place, SEGMENT):
        data.append(part)
        place += len(part)
    assert place == store.max_physical_offset
    return b"".join(data)


async def send(cluster: SimCluster, count: int, size: int = 1000) -> None:
    if "10.0.2.1" not in cluster.hosts:
        await cluster.client("10.0.2.1")
    client = cluster.hosts["10.0.2.1"].service
    for number in range(count):
        await client.send("orders", Random(number).randbytes(size))


async def in_step(*brokers: Broker) -> None:
    """Wait until all logs end where the first does."""
    async with asyncio.timeout(60):
        while len({one.store.max_physical_offset for one in brokers}) > 1:
            await asyncio.sleep(0.05)


def run(scenario: Any, seed: int = 1) -> None:
    async def whole(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        await scenario(cluster)

    simulate(whole, seed)


@pytest.mark.promise("Replication", "master and replica have the same bytes, ours with Apache's")
@pytest.mark.parametrize("member", [None, 2])
@pytest.mark.parametrize("seed", range(3))
def test_replicas_get_all_bytes_early_and_late_and_go_on(member: int | None, seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster, epochs=member is not None)
        first, source = await replica(cluster, FIRST, member)
        await send(cluster, 150)  # three files of the log
        second, late = await replica(cluster, SECOND, None if member is None else 3, "SYNC_FLUSH")
        await in_step(ours, first, second)
        await send(cluster, 20)
        await in_step(ours, first, second)

        assert log_of(ours) == log_of(first) == log_of(second)
        assert len(log_of(ours)) > 2 * SEGMENT
        feeds = list(ours.feature(MasterReplication)._feeds.values())
        await asyncio.sleep(1)
        assert [feed.acked for feed in feeds] == [ours.store.max_physical_offset] * 2
        if member is not None:
            assert source.welcomes[0].epochs == ((1, 0), (3, 5000), (4, 40_000))
            assert late.epochs == [(1, 0), (3, 5000), (4, 40_000)]
            assert late.confirms[-1] == ours.store.max_physical_offset

    run(scenario, seed)


def test_a_replica_goes_on_after_cuts_kills_and_resets() -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster)
        first, _ = await replica(cluster, FIRST)
        for fault in range(6):
            await send(cluster, 15)
            if fault % 3 == 0:
                cluster.partition(MASTER, FIRST)
                await asyncio.sleep(30)
                cluster.heal()
            elif fault % 3 == 1:
                cluster.kill(FIRST)
                await send(cluster, 10)
                first = await cluster.restart(FIRST)
            else:
                cluster.reset(FIRST)
        await in_step(ours, first)

        assert log_of(ours) == log_of(first)

    run(scenario)


def test_a_master_that_was_killed_or_stopped_is_followed_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster)
        first, _ = await replica(cluster, FIRST, flush="SYNC_FLUSH")
        await send(cluster, 70)
        cluster.kill(MASTER)
        await asyncio.sleep(3)
        ours = await cluster.restart(MASTER)
        await send(cluster, 20)
        await in_step(ours, first)
        await cluster.stop(MASTER)
        await asyncio.sleep(3)
        ours = await cluster.restart(MASTER)
        await send(cluster, 20)
        await in_step(ours, first)
        await cluster.stop(FIRST)
        await send(cluster, 20)
        first = await cluster.restart(FIRST)
        await in_step(ours, first)

        assert log_of(ours) == log_of(first)

    run(scenario)


def test_a_replica_that_comes_again_takes_the_place_of_its_older_connection() -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster, epochs=True)
        older = await bare(cluster, hello(7))
        await bare_reports(older, 0)
        newer = await bare(cluster, hello(7))
        await asyncio.sleep(1)

        assert older.ended and not newer.ended
        assert ours.feature(MasterReplication).health()["replicas"] == "1"

    run(scenario)


class Bare:
    """A replica that does nothing by itself."""

    def __init__(self, connection: HaConnection) -> None:
        self.connection = connection
        self.ended = False
        self.data = b""

    def received(self, data: bytes) -> None:
        self.data += data

    def room(self) -> None:
        pass

    def sign(self) -> None:
        pass

    def lost(self) -> None:
        self.ended = True


async def bare(cluster: SimCluster, first: bytes = b"") -> Bare:
    made: list[Bare] = []

    def side(connection: HaConnection) -> Bare:
        made.append(Bare(connection))
        return made[0]

    async def dial() -> None:
        await call_master(f"{MASTER}:10912", side, cluster.clock)

    await cluster.run_on(OTHER, dial())
    if first:
        made[0].connection.send([first])
        await asyncio.sleep(0.5)
    return made[0]


async def bare_reports(one: Bare, end: int, handshake: bool = True) -> None:
    one.connection.send([report(end, handshake=handshake)])
    await asyncio.sleep(0.5)


def test_a_report_of_what_was_never_sent_ends_the_connection() -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster, broker_role="SYNC_MASTER", in_sync_replicas=2)
        for end in (1 << 40, 1):
            one = await bare(cluster)
            await bare_reports(one, end, handshake=False)
            assert one.ended
        one = await bare(cluster)
        await bare_reports(one, 0, handshake=False)
        await bare_reports(one, 5, handshake=False)
        assert one.ended
        assert ours.feature(MasterReplication).quorum.confirmed == 0

    run(scenario)


def test_strangers_at_the_door_disturb_nobody() -> None:
    async def scenario(cluster: SimCluster) -> None:
        rng = Random(5)
        ours = await master(cluster, epochs=True, ha_housekeeping_interval=2_000)
        first, _ = await replica(cluster, FIRST, 2)
        kinds = [b"GET / HTTP/1.1\r\n\r\n", hello(9), report(0, handshake=False), b"", b"\x16\x03"]
        for number in range(150):
            one = await bare(cluster)
            one.connection.send([kinds[number % 5] + rng.randbytes(rng.randrange(40))])
            if number % 10 == 0:
                await send(cluster, 1)
        await asyncio.sleep(5)
        await in_step(ours, first)

        assert log_of(ours) == log_of(first)
        assert len(ours.feature(MasterReplication)._feeds) == 1

    run(scenario)


def test_an_empty_classic_replica_that_reports_0_gets_the_last_file_as_from_apache() -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster)
        await send(cluster, 150)
        one = await bare(cluster)
        await bare_reports(one, 0, handshake=False)
        await asyncio.sleep(1)
        pieces = [p for p in SlaveWire(False, SEGMENT).receive(one.data) if isinstance(p, Piece)]

        assert pieces[0].offset == 2 * SEGMENT
        assert b"".join(p.data for p in pieces) == log_of(ours)[2 * SEGMENT :]

    run(scenario)


def test_a_greeting_with_epochs_is_refused_where_there_are_none() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await master(cluster)
        assert (await bare(cluster, hello(7))).ended

    run(scenario)


def test_what_a_slow_replica_does_not_take_is_bounded_and_it_gets_all_in_the_end() -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster, ha_housekeeping_interval=600_000)
        one = await bare(cluster)
        await bare_reports(one, 0, handshake=False)
        one.connection._transport.pause_reading()
        await send(cluster, 180, 60_000)  # 10.8 MB
        (feed,) = ours.feature(MasterReplication)._feeds.values()
        assert feed.connection._transport.get_write_buffer_size() < (5 << 20) + SEGMENT
        assert feed.sent < ours.store.max_physical_offset
        one.connection._transport.resume_reading()
        await asyncio.sleep(20)
        pieces = [p for p in SlaveWire(False, SEGMENT).receive(one.data) if isinstance(p, Piece)]

        assert b"".join(p.data for p in pieces) == log_of(ours)

    run(scenario)


async def timed(work: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    return await work, loop.time() - began


def test_a_synchronous_master_waits_for_replicas_and_says_when_they_are_late() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await master(cluster, broker_role="SYNC_MASTER", in_sync_replicas=2)
        client = await cluster.client("10.0.2.1")
        alone, took = await timed(client.send("orders", b"0"))
        assert alone.status == "FLUSH_SLAVE_TIMEOUT" and 3 <= took < 5
        first, _ = await replica(cluster, FIRST)
        await asyncio.sleep(3)
        both, took = await timed(client.send("orders", b"1"))
        assert both.status == "SEND_OK" and took < 0.1
        assert (
            first.store.max_physical_offset
            == cluster.hosts[MASTER].service.store.max_physical_offset
        )
        cluster.kill(FIRST)
        gone, took = await timed(client.send("orders", b"2"))
        assert gone.status == "FLUSH_SLAVE_TIMEOUT" and 3 <= took < 5

    run(scenario)


def test_a_synchronous_master_refuses_when_too_few_are_in_step() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await master(cluster, broker_role="SYNC_MASTER", in_sync_replicas=2, min_in_sync_replicas=2)
        client = await cluster.client("10.0.2.1")
        with pytest.raises(Exception, match="in-sync replicas not enough"):
            await client.send("orders", b"0")
        await replica(cluster, FIRST)
        await asyncio.sleep(3)
        assert (await client.send("orders", b"1")).status == "SEND_OK"

    run(scenario)


# A master that lost what its replica has


async def lose_power(cluster: SimCluster) -> tuple[Broker, Broker, int]:
    """A pair, SYNC_MASTER with ASYNC_FLUSH, whose master lost power: both, and how many bytes the replica has more."""
    await master(cluster, broker_role="SYNC_MASTER", in_sync_replicas=2)
    first, _ = await replica(cluster, FIRST)
    await asyncio.sleep(3)
    await send(cluster, 30)
    await asyncio.sleep(5)  # so much is on the disk
    client = cluster.hosts["10.0.2.1"].service
    done = [await client.send("orders", b"%02d" % number) for number in range(50)]
    assert {one.status for one in done} == {"SEND_OK"}
    cluster.kill(MASTER, power_loss=True)
    ours = await cluster.restart(MASTER)
    lacks = first.store.max_physical_offset - ours.store.max_physical_offset
    assert lacks > 5_000  # dozens of acknowledged messages are on the replica only
    await asyncio.sleep(5)
    return ours, first, lacks


def test_a_master_tells_loudly_that_a_replica_has_what_it_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours, first, lacks = await lose_power(cluster)
        log, end = log_of(first), ours.store.max_physical_offset

        assert ours.feature(MasterReplication).health()["replicaAhead"] == (
            f"{FIRST} was {lacks} bytes ahead of this log, from offset {end} on"
        )
        told = [one for one in caplog.records if "take-tail" in one.getMessage()]
        assert {one.levelname for one in told} == {"ERROR"}
        assert 1 <= len(told) <= 3  # it comes again each second
        words = first.runtime_info(0)["followsRefused"]
        assert words == f"its log has {lacks} bytes from {end} on that its master lacks"
        assert log_of(first) == log
        facts = healthy()
        facts.brokers[0].runtime |= ours.feature(MasterReplication).health()
        facts.brokers[1].runtime["followsRefused"] = words
        found = [one for one in diagnose(facts) if one.code == "RQ-D037"]
        assert len(found) == 2
        assert "take-tail" in found[0].fix

    run(scenario)


@pytest.mark.parametrize(("restart", "size"), [(None, 2), (None, 3_000), (MASTER, 2), (FIRST, 2)])
def test_a_master_that_has_grown_past_its_replica_overwrites_nothing_of_it(
    restart: str | None, size: int
) -> None:
    """Messages as large as those that were lost end where those did: then nothing but their bytes tells them apart."""

    async def scenario(cluster: SimCluster) -> None:
        ours, first, lacks = await lose_power(cluster)
        log, end = log_of(first), ours.store.max_physical_offset
        client = await cluster.client("10.0.2.2")

        async def send_one() -> None:
            with contextlib.suppress(RequestTimeout):  # it waits for replicas as long as a client
                await client.send("orders", bytes(size))

        while ours.store.max_physical_offset < end + 2 * lacks:
            await asyncio.gather(*(send_one() for _ in range(8)))
        if restart:
            await cluster.stop(restart)
            await cluster.restart(restart)
        await asyncio.sleep(30)

        ours, first = cluster.hosts[MASTER].service, cluster.hosts[FIRST].service
        assert log_of(first) == log
        shown = first.runtime_info(0)
        assert "another record than its master's" in shown["followsRefused"]
        assert shown["followsConnected"] == "false"
        if restart != MASTER:
            assert FIRST in ours.feature(MasterReplication).health()["replicaAhead"]

    run(scenario)


def test_a_master_that_has_grown_past_apaches_replica_before_it_came_back_feeds_it_nothing() -> (
    None
):
    """It comes after 5 s, and compares nothing: what it reports can be of no byte that was sent since the power cut."""

    async def scenario(cluster: SimCluster) -> None:
        await master(cluster)
        first = await cluster.add_broker(
            FIRST, "broker-a", broker_id=1, broker_role="SLAVE", store=STORE, features=apache_slave
        )
        await asyncio.sleep(12)
        await send(cluster, 1)
        await asyncio.sleep(5)
        await send(cluster, 50)
        await in_step(cluster.hosts[MASTER].service, first)
        cluster.kill(MASTER, power_loss=True)
        ours = await cluster.restart(MASTER)
        log, end = log_of(first), ours.store.max_physical_offset
        lacks = len(log) - end
        assert lacks > 1_000
        while ours.store.max_physical_offset <= len(log):
            await send(cluster, 1)
        await asyncio.sleep(15)
        said = f"{FIRST} was {lacks} bytes ahead of this log, from offset {end} on"
        assert ours.feature(MasterReplication).health()["replicaAhead"] == said
        for again in (False, True):  # a second crash, then a stop in order
            await cluster.stop(MASTER) if again else cluster.kill(MASTER)
            ours = await cluster.restart(MASTER)
            await send(cluster, 1)
            await asyncio.sleep(15)
            assert log_of(first) == log
            assert ours.feature(MasterReplication).health()["replicaAhead"] == said

    run(scenario)


def test_a_replica_that_reports_the_same_end_again_is_refused_though_the_log_has_grown() -> None:
    """As Apache's replica does, which does not ask first."""

    async def scenario(cluster: SimCluster) -> None:
        ours = await master(cluster)
        await send(cluster, 10)
        end = ours.store.max_physical_offset
        one = await bare(cluster)
        await bare_reports(one, end + 1000, handshake=False)
        assert one.ended
        await send(cluster, 10)
        again = await bare(cluster)
        await bare_reports(again, end + 1000, handshake=False)
        assert again.ended
        assert OTHER in ours.feature(MasterReplication).health()["replicaAhead"]
        await asyncio.sleep(1)
        cluster.kill(MASTER)
        ours = await cluster.restart(MASTER)
        assert ours.feature(MasterReplication).health()["replicaAhead"] == "no", "it may be gone"
        later = await bare(cluster)
        await bare_reports(later, end + 1000, handshake=False)
        assert later.ended
        emptied = await bare(cluster)
        await bare_reports(emptied, end, handshake=False)
        assert not emptied.ended
        assert ours.feature(MasterReplication).health()["replicaAhead"] == "no"

    run(scenario)


def test_what_anybody_reports_is_remembered_of_few() -> None:
    async def scenario(cluster: SimCluster) -> None:
        ours = (await master(cluster)).feature(MasterReplication)
        for number in range(100):
            assert ours.is_ahead(f"10.1.0.{number}:1", 1 << 40)
        assert ours.health()["replicaAhead"].count("ahead") == 16

    run(scenario)


def test_the_tail_is_taken_from_the_replica_and_every_acknowledged_message_is_there() -> None:
    async def scenario(cluster: SimCluster) -> None:
        _, first, lacks = await lose_power(cluster)
        log = log_of(first)
        for ip in (MASTER, FIRST):
            await cluster.stop(ip)
        files = cluster.hosts[MASTER].files
        images, directories = cluster.hosts[FIRST].files.snapshot()
        for path in directories:
            files.make_dirs(f"/replica{path}")
        for path, image in images.items():  # its disk, in the master's machine
            files.open_file(f"/replica{path}", create=True).pwrite(image, 0)

        stores = find_store(files, "/store"), find_store(files, "/replica/store")
        begin, end, count = take_tail(files, files, *stores)

        assert (end - begin, count) == (lacks, 50 - (begin - end + lacks))
        ours, first = await cluster.restart(MASTER), await cluster.restart(FIRST)
        assert log_of(ours) == log
        await send(cluster, 5)
        await in_step(ours, first)
        assert log_of(first) == log_of(ours)
        assert ours.feature(MasterReplication).health()["replicaAhead"] == "no"
        assert first.runtime_info(0)["followsRefused"] == "no"
        store = ours.store
        ends = [store.max_offset("orders", queue) for queue in store.queues_of("orders")]
        assert sum(ends) == 30 + 50 + 5

    run(scenario)


@pytest.mark.parametrize(("own", "follows"), [(99, True), (100, True), (101, False)])
def test_apaches_master_is_followed_by_whom_has_no_more_than_it(own: int, follows: bool) -> None:
    """It would send what it gets later; a master of ours sends nothing while a replica has more."""

    class Master:
        ours = False

        async def runtime_info(self, address: str, timeout_ms: int) -> dict[str, str]:
            form = {"roquetteForm": "sources"} if self.ours else {}
            return form | {"commitLogMinOffset": "0", "commitLogMaxOffset": "100"}

        async def ask(self, address: str, *_: Any, **__: Any) -> Any:
            assert address == f"{MASTER}:10911"
            return SimpleNamespace(body=b"our last record")

    store = SimpleNamespace(
        max_physical_offset=own,
        last_record_offset=50,
        raw_end=own,
        record_at=lambda place: b"our last record",
    )
    live = SimpleNamespace(current=SimpleNamespace(ha_master_address=f"{MASTER}:10912"))
    names: Any = SimpleNamespace(master_address="")
    master = Master()
    core: Any = SimpleNamespace(store=store, live=live, clock=SystemClock(), outbound=master)
    source = ClassicSource(core, names)
    assert asyncio.run(source.prepare()) is follows
    master.ours = True
    assert asyncio.run(source.prepare())
