"""A group of brokers that elect their master: directed scenarios. `group_chaos` has the seeds."""

import asyncio
import json

import pytest

from roquette import StartFrom
from roquette.admin.drain import hide, restore
from roquette.admin.settings import change_brokers
from roquette.admin.topics import create_topic
from roquette.errors import ClientError
from roquette_testing.cluster import SimCluster, simulate

MEMBERS = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
NAME_SERVER = "10.0.0.1"


async def group(cluster: SimCluster, count: int = 3, **settings) -> None:
    await cluster.add_namesrv(NAME_SERVER, controller="embedded")
    for ip in MEMBERS[:count]:
        await cluster.add_member(ip, "orders", **settings)
    await until(lambda: in_step(cluster) == count)


def in_step(cluster: SimCluster) -> int:
    ip = master(cluster)
    if ip is None:
        return 0
    record = cluster.hosts[ip].service.table.record
    return len(record.members)


def master(cluster: SimCluster) -> str | None:
    """The host of the member that may acknowledge."""
    for ip in MEMBERS:
        host = cluster.hosts.get(ip)
        member = host.service if host else None
        if member is not None and member.table.may_acknowledge(member.driver.now_ms):
            return ip
    return None


def registered(cluster: SimCluster) -> int:
    return len(cluster.hosts[NAME_SERVER].service.core.routes.find_members("orders"))


async def until(condition, within_s: float = 20.0) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        assert loop.time() - began < within_s, "it does not come to pass"
        await asyncio.sleep(0.01)
    return loop.time() - began


async def send(mq, number: int) -> float:
    """Send until it is acknowledged; returns how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            receipt = await mq.send("T", b"%d" % number, key="k")
        except ClientError:
            assert loop.time() - began < 20
            await asyncio.sleep(0.05)
            continue
        if receipt.status == "SEND_OK":
            return loop.time() - began


def logs(cluster: SimCluster) -> list[bytes]:
    found = []
    for ip in MEMBERS:
        host = cluster.hosts.get(ip)
        if host is not None and host.service is not None:
            store = host.service.broker.store
            found.append(store.read_log(store.min_physical_offset, store.wrote))
    return found


pytestmark = pytest.mark.simulation


@pytest.mark.promise(
    "Groups of brokers", "the master dies: all are there, in order, another one in some 3 s"
)
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_master_is_followed_by_another_one_that_has_everything(seed):
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        for number in range(20):
            await send(mq, number)
        old = master(cluster)
        cluster.kill(old)
        took = await send(mq, 20)
        assert took < 5
        new = master(cluster)
        assert new not in (None, old)
        for number in range(21, 40):
            await send(mq, number)
        await cluster.restart(old)
        await until(lambda: in_step(cluster) == 3)
        await until(lambda: len(set(logs(cluster))) == 1)
        [queue] = [q for q in await mq.queues("T") if await mq.max_offset(q)][:1] or [None]
        assert queue is not None

    simulate(scenario, seed=seed)


@pytest.mark.promise("Groups of brokers", "SIGTERM gives the office back first")
def test_a_planned_stop_hands_the_office_over_at_once():
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        for number in range(20):
            await send(mq, number)
        old, began = master(cluster), cluster.loop.now
        await cluster.stop(old)
        assert cluster.loop.now - began < 1.5
        assert await send(mq, 20) < 1.5
        assert master(cluster) not in (None, old)
        await cluster.restart(old)
        await until(lambda: in_step(cluster) == 3)
        await until(lambda: len(set(logs(cluster))) == 1)

    simulate(scenario)


def test_a_stop_that_falls_into_a_change_of_role_ends_the_broker_that_begins():
    """The change was cancelled: nobody closed the store, and the member's file said that it had stopped in order."""

    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        for number in range(20):
            await send(mq, number)
        first = master(cluster)
        rest = [ip for ip in MEMBERS if ip != first]
        for ip in rest:
            cluster.slow_disk(ip, 0.3)
        cluster.kill(first)
        await until(lambda: any(cluster.hosts[ip].service.broker is None for ip in rest))
        chosen = next(ip for ip in rest if cluster.hosts[ip].service.broker is None)
        await cluster.stop(chosen)
        for ip in rest:
            cluster.slow_disk(ip, 0)
        await cluster.restart(chosen)
        assert not cluster.hosts[chosen].service.broker.opened.abnormal
        assert await send(mq, 20) < 10

    simulate(scenario)


def test_a_master_that_is_cut_off_acknowledges_nothing_and_comes_back_as_a_replica():
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq, other = await cluster.client("10.0.2.1"), await cluster.client("10.0.2.2")
        for number in range(20):
            await send(mq, number)
        old = master(cluster)
        for ip in (*MEMBERS, NAME_SERVER, "10.0.2.2"):
            if ip != old:
                cluster.partition(old, ip)
        sends = [asyncio.ensure_future(mq.send("T", b"lost")) for _ in range(5)]
        assert await send(other, 20) < 8  # a connection that is not answered takes 3 s to give up
        new = master(cluster)
        assert new not in (None, old)
        await asyncio.sleep(5)
        cluster.heal()
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(outcome, ClientError) or outcome.status != "SEND_OK"
        await until(lambda: in_step(cluster) == 3)
        await until(lambda: len(set(logs(cluster))) == 1)
        assert master(cluster) == new
        assert b"lost" not in logs(cluster)[0]
        assert await send(mq, 21) < 5

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers", "too few in step: refused in words; the choice of two machines"
)
def test_two_of_which_both_must_have_it_refuse_alone_and_one_of_which_goes_on():
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster, 2, min_in_sync_replicas=2)
        mq = await cluster.client("10.0.2.1")
        await send(mq, 1)
        slave = next(ip for ip in MEMBERS[:2] if ip != master(cluster))
        cluster.kill(slave)
        await asyncio.sleep(3)
        with pytest.raises(ClientError, match="in-sync replicas not enough: 1 of 2"):
            await mq.send("T", b"2")
        await cluster.restart(slave)
        assert await send(mq, 3) < 5

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers", "too few in step: refused in words; the choice of two machines"
)
@pytest.mark.promise("Groups of brokers", "`SLAVE_NOT_AVAILABLE` when nobody else has it")
def test_a_lone_survivor_that_goes_on_says_that_nobody_else_has_it():
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster, 2, broker_role="SYNC_MASTER", min_in_sync_replicas=1)
        mq = await cluster.client("10.0.2.1")
        assert (await mq.send("T", b"0")).status == "SEND_OK"
        slave = next(ip for ip in MEMBERS[:2] if ip != master(cluster))
        cluster.kill(slave)
        receipts = [await mq.send("T", b"1"), await mq.send("new", b"2")]
        receipts += await mq.send_batch("T", [b"3", b"4"])
        assert [receipt.status for receipt in receipts] == ["SLAVE_NOT_AVAILABLE"] * 4
        cluster.kill(master(cluster))  # the other one has not got them: it may not stand
        await cluster.restart(slave)
        await asyncio.sleep(8)
        assert master(cluster) is None
        await cluster.restart(next(ip for ip in MEMBERS[:2] if ip != slave))
        await until(lambda: in_step(cluster) == 2)
        await until(lambda: len(set(logs(cluster))) == 1)
        assert (await mq.send("T", b"5")).status == "SEND_OK"
        assert all(b"%d" % number in logs(cluster)[0] for number in range(6))

    simulate(scenario)


def test_a_name_server_that_comes_back_late_hears_of_the_master_at_once():
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        await send(mq, 1)
        for away_s in (40, 70):
            cluster.kill(NAME_SERVER)
            await asyncio.sleep(away_s)
            await cluster.restart(NAME_SERVER)
            other = await cluster.client(f"10.0.2.{away_s}")
            assert await send(other, away_s) < 8  # the lease is long over: an election first
            assert await until(lambda: master(cluster) is not None) < 5
            assert await until(lambda: registered(cluster) == 3) < 3

    simulate(scenario)


@pytest.mark.promise("Groups of brokers", "offsets, delayed messages, transactions, POP go on")
def test_consumers_go_on_where_they_were():
    async def scenario(cluster: SimCluster) -> None:
        got: list[bytes] = []

        async def take(message) -> None:
            got.append(message.body)

        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        reader = await cluster.client("10.0.3.1")
        await send(mq, 0)
        await reader.subscribe("T", group="g", handler=take, start_from=StartFrom.FIRST)
        for number in range(1, 50):
            await send(mq, number)
        await until(lambda: len(got) == 50)
        await asyncio.sleep(8)
        cluster.kill(master(cluster))
        for number in range(50, 60):
            await send(mq, number)
        await until(lambda: len(set(got)) == 60)
        assert len(got) == 60

    simulate(scenario)


def test_a_power_cut_is_remembered_until_the_record_says_so():
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        slave = next(ip for ip in MEMBERS if ip != master(cluster))
        cluster.kill(slave, power_loss=True)
        cluster.kill(NAME_SERVER)
        path = "/store/roquetteMember.json"

        def boot() -> str:
            return json.loads(cluster.hosts[slave].files.read_bytes(path))["boot"]

        before = boot()
        await cluster.restart(slave)
        await asyncio.sleep(1)
        assert boot() == before
        await cluster.restart(NAME_SERVER)
        await until(lambda: boot() != before)
        assert cluster.hosts[slave].service.table.settled

    simulate(scenario)


@pytest.mark.promise("Groups of brokers", "what a replica has and its group has not is kept")
def test_a_member_that_was_away_for_too_long_begins_anew_and_its_log_is_set_aside():
    async def scenario(cluster: SimCluster) -> None:
        size = 1 << 16
        sizes = {"segment_size": size, "file_reserved_bytes": 2 * size}
        soon = {"queue_flush_thorough_interval_ms": 1_000, "clean_interval_ms": 1_000}
        await group(cluster, store=sizes | soon, ha_max_time_slave_not_catchup=1_000)
        mq = await cluster.client("10.0.2.1")
        for number in range(20):
            await send(mq, number)
        away = next(ip for ip in MEMBERS if ip != master(cluster))
        held = cluster.hosts[away].service.broker.store
        had = held.read_log(held.min_physical_offset, held.wrote)
        cluster.kill(away)
        ours = cluster.hosts[master(cluster)].service.broker.store
        while ours.min_physical_offset <= len(had):
            await mq.send("T", bytes(size // 2))
            await asyncio.sleep(0.3)
        await cluster.restart(away)
        await until(lambda: in_step(cluster) == 3)

        files = cluster.hosts[away].files
        [place] = files.list_dir("/store/replaced")
        assert place == f"{0:020d}-{len(had):020d}"
        kept = [
            f"/store/replaced/{place}/{name}" for name in files.list_dir(f"/store/replaced/{place}")
        ]
        assert b"".join(map(files.read_bytes, kept)).startswith(had)
        assert (
            "files in /store/replaced" in cluster.hosts[away].service.broker.store.disk.kept_words
        )

    simulate(scenario)


def test_a_drain_holds_for_the_next_master_and_a_setting_is_that_members_alone() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        run, servers = mq.session.run, mq.session.name_servers
        await run(create_topic(servers, "T", queues=2))
        first = master(cluster)
        assert first is not None
        others = [ip for ip in MEMBERS if ip != first]

        named = await run(change_brokers({"fileReservedTime": "7"}, broker=f"{others[0]}:10911"))
        kept = {
            ip: cluster.hosts[ip].service.broker.live.store.file_reserved_hours for ip in MEMBERS
        }
        assert named == {f"{others[0]}:10911": ""}
        assert kept == {ip: 7 if ip == others[0] else 72 for ip in MEMBERS}

        await run(hide(servers, "orders", alone=True))
        cluster.kill(first)
        await until(lambda: master(cluster) in others, 60)
        await asyncio.sleep(2)
        broker = cluster.hosts[master(cluster)].service.broker
        assert broker.live.current.broker_permission == 4
        with pytest.raises(ClientError):
            await mq.send("T", b"x")
        await run(restore(servers, "orders"))
        await asyncio.sleep(31)  # a client's route is as old
        assert (await mq.send("T", b"x")).status == "SEND_OK"

    simulate(scenario)
