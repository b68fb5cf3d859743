"""What a group keeps beside the log: it travels, and who lacks it is not in step."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.pop_frames import pop_ext, popped
from tests.simulation.test_group import (
    MEMBERS,
    NAME_SERVER,
    group,
    in_step,
    logs,
    master,
    send,
    until,
)
from tests.simulation.test_group_stores import filled, order, replace_disk
from tests.simulation.test_name_servers import create_topic

from roquette import StartFrom
from roquette.broker.floor.config_files import DELAYS, DelayProgress
from roquette.broker.replication.master import Feed, MasterReplication
from roquette.broker.replication.metadata_copy import TABLES, MetadataCopy
from roquette.broker.replication.table_feed import TableFeed
from roquette.errors import ClientError, Refused, RemoteProtocolError
from roquette.message.message import MessageQueue
from roquette.remoting.client import RemotingClient
from roquette.replication.epochs import Cut, EpochMarks, Refuse
from roquette.wire.header_codec import encode_dict
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

SMALL: dict[str, Any] = {
    "segment_size": 64 << 10,
    "file_reserved_bytes": 128 << 10,
    "clean_interval_ms": 1000,
}
LAST = MEMBERS[2]
QUEUE = MessageQueue("T", "orders", 0)


def store(cluster: SimCluster, ip: str | None) -> Any:
    assert ip is not None
    return cluster.hosts[ip].service.broker.store


def tables(cluster: SimCluster, ip: str | None) -> Any:
    assert ip is not None
    return cluster.hosts[ip].service.broker.core.tables


def not_copied(cluster: SimCluster, ip: str) -> str:
    return cluster.hosts[ip].service.broker.runtime_info(0)["tablesNotCopied"]


async def ask(cluster: SimCluster, code: int, body: bytes = b"", **fields: str) -> None:
    admin = RemotingClient(cluster.clock, local_host="10.0.9.9")
    answer = await admin.invoke(f"{master(cluster)}:10911", code, encode_dict(fields), body)
    assert answer.code == 0, answer.remark
    await admin.close()


async def leave_to(cluster: SimCluster, heir: str) -> None:
    """The others die, the master last; `heir` is master then."""
    others = [ip for ip in MEMBERS if ip != heir and cluster.hosts[ip].service is not None]
    others.sort(key=lambda ip: ip == master(cluster))
    for ip in others:
        was = in_step(cluster)
        cluster.kill(ip)
        if ip != others[-1]:
            await until(lambda was=was: in_step(cluster) == was - 1)
    member = cluster.hosts[heir].service
    await until(lambda: master(cluster) == heir and member.broker is not None)


async def expire(cluster: SimCluster, mq: Any) -> None:
    """What was sent until now is too old for every log."""
    while any(store(cluster, ip).min_physical_offset == 0 for ip in living(cluster)):
        await mq.send("other", bytes(20_000))
        await asyncio.sleep(0.1)


def living(cluster: SimCluster) -> list[str]:
    hosts = cluster.hosts
    return [ip for ip in MEMBERS if ip in hosts and hosts[ip].service is not None]


def run(scenario: Callable[[SimCluster], Awaitable[None]], seed: int = 1) -> None:
    async def main(cluster: SimCluster) -> None:
        await scenario(cluster)

    simulate(main, seed)


# What no log tells.


def test_an_idle_queue_goes_on_at_its_next_offset_after_a_machine_was_filled_anew() -> None:
    async def scenario(cluster: SimCluster) -> None:
        got: list[bytes] = []

        async def take(message: Any) -> None:
            got.append(message.body)

        await group(cluster, 2, store=SMALL)
        await create_topic(cluster, "T", str(master(cluster)), queues=1)
        mq, reader = await cluster.client("10.0.2.1"), await cluster.client("10.0.3.1")
        for number in range(8):
            await send(mq, number)
        consume = reader.subscribe("T", group="g", handler=take, start_from=StartFrom.FIRST)
        await cluster.run_on("10.0.3.1", consume)
        await until(lambda: len(got) == 8)
        await until(lambda: tables(cluster, master(cluster)).offsets.query("g", "T", 0) == 8)
        await expire(cluster, mq)
        await cluster.add_member(LAST, "orders", store=SMALL)
        await until(lambda: in_step(cluster) == 3)
        assert (
            store(cluster, LAST).min_offset("T", 0),
            store(cluster, LAST).max_offset("T", 0),
        ) == (8, 8)
        await leave_to(cluster, LAST)
        for number in range(8, 16):
            await mq.send("T", b"%d" % number)
        await until(lambda: len(got) == 16)
        assert store(cluster, LAST).max_offset("T", 0) == 16
        assert sorted(map(int, got)) == list(range(16))

    run(scenario)


@pytest.mark.parametrize("made_again", [False, True])
def test_a_deleted_topic_stays_deleted_on_a_machine_that_is_filled_later(made_again: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster, 2)
        await create_topic(cluster, "T", str(master(cluster)), queues=1)
        mq = await cluster.client("10.0.2.1")
        for number in range(8):
            await send(mq, number)
        await ask(cluster, 215, topic="T")
        if made_again:
            await create_topic(cluster, "T", str(master(cluster)), queues=1)
        await mq.send("other", b"more")
        await cluster.add_member(LAST, "orders")
        await until(lambda: in_step(cluster) == 3)
        assert store(cluster, LAST).max_offset("T", 0) == 0
        await leave_to(cluster, LAST)
        assert (tables(cluster, LAST).topics.find("T") is not None) == made_again
        assert store(cluster, LAST).max_offset("T", 0) == 0
        if made_again:
            await mq.send("T", b"8")
            assert store(cluster, LAST).max_offset("T", 0) == 1
            cluster.kill(LAST, power_loss=True)
            await cluster.restart(LAST)
            assert store(cluster, LAST).max_offset("T", 0) <= 1

    run(scenario)


def test_a_machine_that_is_filled_takes_no_body_that_rotted_at_the_master() -> None:
    """And at the only other one, which could mend it."""

    async def scenario(cluster: SimCluster) -> None:
        await group(cluster, 2)
        mq = await cluster.client("10.0.2.1")
        await mq.send("T", b"sound")
        receipt = await mq.send("T", b"rotten")
        first = int(receipt.offset_message_id[16:], 16)
        files = cluster.hosts[str(master(cluster))].files
        path = f"/store/commitlog/{0:020d}"
        store(cluster, master(cluster)).write_pending()
        data = files.read_bytes(path)
        for ip in MEMBERS[:2]:
            cluster.hosts[ip].files.open_file(path).pwrite(b"R", data.index(b"rotten"))
        await cluster.add_member(LAST, "orders")
        await asyncio.sleep(5)
        assert store(cluster, LAST).max_physical_offset == first
        assert in_step(cluster) == 2
        files.open_file(path).pwrite(b"r", data.index(b"rotten"))
        await mq.send("T", b"more")
        await until(lambda: in_step(cluster) == 3)

    run(scenario)


# In step: the log and the tables.


def deaf(monkeypatch: pytest.MonkeyPatch, *ips: str) -> set[str]:
    """These cannot ask a master for tables, until they are taken out of the answer."""
    those, ask_master = set(ips), MetadataCopy._ask

    async def asked(self: Any, *args: Any) -> Any:
        if self._core.address.host in those:
            raise ClientError("the test does not let it ask")
        return await ask_master(self, *args)

    monkeypatch.setattr(MetadataCopy, "_ask", asked)
    return those


@pytest.mark.promise("Groups of brokers", "in step means log and tables")
def test_who_has_the_log_and_lacks_tables_is_not_in_step_and_never_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        those = deaf(monkeypatch, LAST)
        await group(cluster, 2)
        mq = await cluster.client("10.0.2.1")
        for number in range(20):
            await send(mq, number)
        await cluster.add_member(LAST, "orders")
        for number in range(20, 40):
            await send(mq, number)
            await asyncio.sleep(0.1)
        old = master(cluster)
        assert store(cluster, LAST).wrote == store(cluster, old).wrote
        assert in_step(cluster) == 2
        assert not_copied(cluster, LAST) == ",".join(sorted(TABLES))
        other = next(ip for ip in MEMBERS[:2] if ip != old)
        cluster.kill(other)
        await until(lambda: in_step(cluster) == 1)
        cluster.kill(old)
        await asyncio.sleep(10)
        assert master(cluster) is None, "the only one that is left has no tables"
        await cluster.restart(old)
        await cluster.restart(other)
        await until(lambda: in_step(cluster) == 2)
        those.clear()
        await until(lambda: in_step(cluster) == 3)
        assert not_copied(cluster, LAST) == "none" or master(cluster) == LAST

    run(scenario)


def test_a_new_disk_of_a_member_in_the_set_is_doubtful_until_its_tables_have_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is back before the set has let it go: filled with the log alone it would be master with no committed offset."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        mq = await cluster.client("10.0.2.1")
        old = str(master(cluster))
        new, other = [ip for ip in MEMBERS if ip != old]
        who = cluster.hosts[new].service.id
        those = deaf(monkeypatch, new)
        cluster.kill(new)
        replace_disk(cluster, new)
        await cluster.restart(new)
        await until(lambda: store(cluster, new).wrote == store(cluster, old).wrote)
        await asyncio.sleep(5)
        assert await send(mq, 20) < 1
        record = cluster.hosts[old].service.table.record
        assert who not in {*record.members} - {*record.doubtful}
        cluster.kill(other)
        await until(lambda: in_step(cluster) == 1)
        cluster.kill(old)
        await asyncio.sleep(10)
        assert master(cluster) is None, "the only one that is left has no tables"
        await cluster.restart(old)
        await cluster.restart(other)
        those.clear()
        await until(lambda: in_step(cluster) == 3)

    run(scenario)


def test_who_is_in_the_set_stays_in_it_and_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        await send(mq, 1)
        replicas = [ip for ip in MEMBERS if ip != master(cluster)]
        await until(lambda: {not_copied(cluster, ip) for ip in replicas} == {"none"})
        those = deaf(monkeypatch, *MEMBERS)
        cluster.kill(str(master(cluster)))
        assert await send(mq, 2) < 5
        [replica] = [ip for ip in replicas if ip != master(cluster)]
        assert in_step(cluster) == 2
        await asyncio.sleep(3)
        assert in_step(cluster) == 2
        assert not_copied(cluster, replica) == ",".join(sorted(TABLES))
        those.clear()
        await until(lambda: not_copied(cluster, replica) == "none")

    run(scenario)


def test_a_table_that_comes_late_from_the_master_before_takes_none_of_the_next_ones_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        copy_modes, slow = MetadataCopy._copy_modes, asyncio.Event()

        async def copied(self: Any, *args: Any) -> None:
            await copy_modes(self, *args)
            if self._core.address.host == LAST:
                await slow.wait()  # its disk does

        await group(cluster, 2)
        mq = await cluster.client("10.0.2.1")
        await send(mq, 1)
        monkeypatch.setattr(MetadataCopy, "_copy_modes", copied)
        member = await cluster.add_member(LAST, "orders")
        await until(lambda: "offsets" not in not_copied(cluster, LAST))
        cluster.kill(str(master(cluster)))
        await until(lambda: master(cluster) is not None)
        await until(
            lambda: member.followed is not None and not_copied(cluster, LAST).count(",") < 8
        )
        await until(lambda: "offsets" not in not_copied(cluster, LAST))
        slow.set()
        await until(lambda: not_copied(cluster, LAST) == "none")
        await until(lambda: in_step(cluster) == 2)

    run(scenario)


def test_a_master_that_never_had_tables_takes_none_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the set, it lost its tables, and is elected before they come again."""

    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        await create_topic(cluster, "T", str(master(cluster)), queues=1)
        mq = await cluster.client("10.0.2.1")
        for number in range(20):
            await send(mq, number)
        await ask(cluster, 200, b'{"groupName": "g"}')
        await ask(cluster, 15, consumerGroup="g", topic="T", queueId="0", commitOffset="17")
        await asyncio.sleep(3)
        [heir, other] = [ip for ip in MEMBERS if ip != master(cluster)]
        those = deaf(monkeypatch, heir)
        cluster.kill(heir)
        files = cluster.hosts[heir].files
        for name in files.list_dir("/store/config"):
            files.remove(f"/store/config/{name}")
        await cluster.restart(heir)
        await asyncio.sleep(0.5)
        assert in_step(cluster) == 3
        old = str(master(cluster))
        await leave_to(cluster, heir)
        assert not_copied(cluster, heir) == "groups,offsets,topics"
        those.clear()
        await cluster.restart(old)
        await until(lambda: in_step(cluster) == 2)
        assert not_copied(cluster, old) == "none"
        assert tables(cluster, old).offsets.query("g", "T", 0) == 17
        assert tables(cluster, old).groups.known("g") is not None
        await cluster.restart(other)
        await until(lambda: in_step(cluster) == 3)
        await leave_to(cluster, old)
        assert tables(cluster, old).offsets.query("g", "T", 0) == 17
        assert "tablesNotCopied" not in cluster.hosts[old].service.broker.runtime_info(0)

    run(scenario)


# Yesterday's versions.


@pytest.mark.promise("Groups of brokers", "of two versions one after the other")
def test_yesterdays_replica_comes_into_the_set_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """It greets as one that learns nothing."""

    async def scenario(cluster: SimCluster) -> None:
        deaf(monkeypatch, LAST)
        await group(cluster, 2)
        mq = await cluster.client("10.0.2.1")
        await send(mq, 1)
        monkeypatch.setattr(MetadataCopy, "missing", set())
        await cluster.add_member(LAST, "orders")
        await until(lambda: in_step(cluster) == 3)

    run(scenario)


@pytest.mark.promise("Groups of brokers", "of two versions one after the other")
def test_yesterdays_master_takes_in_whom_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no second greeting, and tells neither deletions nor queues."""

    def greet(self: Any, greeting: Any) -> None:
        if self.acked >= 0:
            raise RemoteProtocolError("a replica greets again, as another one")
        GREET(self, greeting)

    GREET, FOLLOW, VERSIONS = Feed._greet, TableFeed.follow, TableFeed._versions

    def reported(self: Any, feed: Any, end: int) -> None:
        self.quorum.report(feed.who, feed.connection.number, end)
        self.moved()

    def follow(self: Any, ctx: Any, header: Any, body: bytes) -> Any:
        if header.what in ("queues", "deleted"):
            raise Refused(29, f"what[{header.what}] is not followed")
        return FOLLOW(self, ctx, header, body)

    def versions(self: Any) -> str:
        return ";".join(one for one in VERSIONS(self).split(";") if not one.startswith("deleted"))

    monkeypatch.setattr(Feed, "_greet", greet)
    monkeypatch.setattr(MasterReplication, "reported", reported)
    monkeypatch.setattr(TableFeed, "follow", follow)
    monkeypatch.setattr(TableFeed, "_versions", versions)

    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        await send(mq, 1)
        replicas = [ip for ip in MEMBERS if ip != master(cluster)]
        await until(lambda: {not_copied(cluster, ip) for ip in replicas} == {"none"})
        await asyncio.sleep(3)
        assert in_step(cluster) == 3
        cluster.kill(str(master(cluster)))
        assert await send(mq, 2) < 5

    run(scenario)


# Nothing of a master whose log is another one.


def test_tables_of_a_master_that_is_refused_are_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        await create_topic(cluster, "T", str(master(cluster)), queues=1)
        mq = await cluster.client("10.0.2.1")
        await send(mq, 1)
        slave = next(ip for ip in MEMBERS if ip != master(cluster))
        await until(lambda: tables(cluster, slave).topics.find("T") is not None)
        cluster.kill(slave)
        await until(lambda: in_step(cluster) == 2)
        await ask(cluster, 215, topic="T")
        await cluster.restart(slave)
        member = cluster.hosts[slave].service
        refusal = Refuse("the test refuses")
        with monkeypatch.context() as patch:
            patch.setattr(member.table, "welcome", lambda *args: refusal)
            await asyncio.sleep(5)
            assert tables(cluster, slave).topics.find("T") is not None
            assert store(cluster, slave).max_offset("T", 0) == 1
            assert not_copied(cluster, slave) == ",".join(sorted(TABLES))
        await until(lambda: tables(cluster, slave).topics.find("T") is None)

    run(scenario)


def test_what_was_delivered_is_taken_back_with_a_cut_of_the_log() -> None:
    """A delayed message's copy is cut off with the tail that nobody else has: the next master looks for it in the log."""

    async def scenario(cluster: SimCluster) -> None:
        await group(cluster)
        mq = await cluster.client("10.0.2.1")
        for number in range(5):
            await send(mq, number)
        slave = next(ip for ip in MEMBERS if ip != master(cluster))
        member, files = cluster.hosts[slave].service, cluster.hosts[slave].files
        end = store(cluster, slave).max_physical_offset
        await asyncio.sleep(3)
        cluster.partition(slave, str(master(cluster)))
        await asyncio.sleep(12)
        config = member.broker.core.files
        config.save(DELAYS, DelayProgress(offset_table={3: 9}, log_offset=end))
        member.rejoin(Cut(0, EpochMarks()))
        await until(lambda: files.exists("/store/replaced") and member.broker is not None)
        await until(lambda: store(cluster, slave).max_physical_offset == 0)
        found = member.broker.core.files.load(DELAYS, DelayProgress)
        assert (found.offset_table, found.log_offset) == ({}, 0)
        cluster.heal()
        await until(lambda: in_step(cluster) == 3)

    run(scenario)


@pytest.mark.parametrize("interval_ms", [100, 5_000])
def test_a_pop_whose_check_point_is_cut_off_has_handed_out_nothing(
    monkeypatch: pytest.MonkeyPatch, interval_ms: int
) -> None:
    """The master's offsets stand behind the pop, in its file (100 ms) or only in its journal; the check-point is in the
    tail that nobody else has. Elected before it has copied tables, it hands the messages out, which nobody has got."""

    async def scenario(cluster: SimCluster) -> None:
        await group(cluster, flush_consumer_offset_interval=interval_ms)
        await create_topic(cluster, "T", str(master(cluster)), queues=1)
        mq = await cluster.client("10.0.2.1")
        for number in range(5):
            await send(mq, number)
        await asyncio.sleep(6)  # tables have come, and are written
        old = str(master(cluster))
        member, others = cluster.hosts[old].service, [ip for ip in MEMBERS if ip != old]
        for ip in (*others, NAME_SERVER):
            cluster.partition(old, ip)
        consumer = RemotingClient(cluster.clock, local_host="10.0.9.9")

        def pop() -> bytes:
            return encode_dict({k: str(v) for k, v in pop_ext(cluster.clock.now_ms()).items()})

        with pytest.raises(ClientError):
            await consumer.invoke(f"{old}:10911", 200050, pop(), timeout_ms=1_000)
        assert tables(cluster, old).offsets.query("g", "T", 0) == 5
        await until(lambda: master(cluster) not in {None, old})
        deaf(monkeypatch, old)
        await send(mq, 5)
        cluster.heal()
        await until(lambda: member.broker is not None and len(set(logs(cluster))) == 1)
        for ip in others:
            await cluster.stop(ip)
        await order(cluster, member.id)
        await until(lambda: master(cluster) == old)
        answer = await consumer.invoke(f"{old}:10911", 200050, pop())
        assert sorted(one.body for one in popped(answer, "orders")) == [b"%d" % n for n in range(6)]
        await consumer.close()

    run(scenario)
