"""Stores, settings and records of a group that are swapped, emptied, copied, set back: nobody forgets what was acknowledged."""

import asyncio
from random import Random

import pytest
from tests.exposition import read_exposition
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

from roquette.admin.doctor.checks.diagnosis import diagnose
from roquette.admin.doctor.examination import examine
from roquette.admin.replication import order_master
from roquette.base.metric_families import TROUBLES
from roquette.broker.operation.metrics import MetricsFeature
from roquette.errors import ClientError, ConfigError
from roquette.replication.effects import Role
from roquette.replication.takeover import TakeOver
from roquette.store.format.config import FlushDiskType
from roquette.wire.codes import RequestCode
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.faulty_files import FaultyFiles

pytestmark = pytest.mark.simulation
COUNT = 40


async def filled(cluster: SimCluster, **settings) -> None:
    await cluster.add_namesrv(NAME_SERVER, controller="embedded")
    for number, ip in enumerate(MEMBERS, 1):
        await cluster.add_member(ip, "orders", broker_id=number, total_replicas=3, **settings)
    await until(lambda: in_step(cluster) == 3)
    await more(cluster, COUNT)


async def more(cluster: SimCluster, count: int) -> None:
    mq = await cluster.client(f"10.0.2.{len(cluster.hosts)}")
    for number in range(count):
        await send(mq, number)


async def stop_all_but(cluster: SimCluster, last: str) -> None:
    """A planned full stop: the set becomes the last one alone."""
    for ip in MEMBERS:
        if ip != last:
            await cluster.stop(ip)
    await until(lambda: in_step(cluster) == 1)
    await cluster.stop(last)


def table(cluster: SimCluster, ip: str):
    return cluster.hosts[ip].service.table


def whole(cluster: SimCluster, count: int = COUNT) -> bool:
    """All that was acknowledged is on all that run, and the set is full."""
    stores = [cluster.hosts[ip].service.broker for ip in MEMBERS]
    if in_step(cluster) < 3 or not all(stores) or len(set(logs(cluster))) > 1:
        return False
    store = stores[0].store
    return sum(store.max_offset("T", queue) for queue in store.queues_of("T")) >= count


def replace_disk(cluster: SimCluster, ip: str) -> None:
    cluster.hosts[ip].files = FaultyFiles(99)


@pytest.mark.promise(
    "Groups of brokers", "a disk replaced, a store restored, copied, damaged, an id given twice"
)
def test_a_new_disk_under_the_id_of_the_only_one_in_step_is_not_elected():
    """29d5055: 0 of 99 acknowledged messages were left."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        first = MEMBERS[0]
        await stop_all_but(cluster, first)
        replace_disk(cluster, first)
        for ip in MEMBERS:
            await cluster.restart(ip)
        await asyncio.sleep(30)
        assert master(cluster) is None
        assert "its disk was replaced" in table(cluster, first).trouble
        assert "it waits for one of [1]" in table(cluster, MEMBERS[1]).trouble
        await order(cluster, 2)
        await until(lambda: whole(cluster), 60)

    simulate(scenario)


async def order(cluster: SimCluster, who: int) -> None:
    """`roquette broker promote --accept-data-loss`."""
    mq = await cluster.client("10.0.9.9")
    servers = [f"{NAME_SERVER}:9876"]
    await mq.session.run(order_master(servers, "DefaultCluster", "orders", who, True))


@pytest.mark.promise(
    "Groups of brokers", "a disk replaced, a store restored, copied, damaged, an id given twice"
)
def test_an_old_copy_of_a_store_catches_up_instead_of_cutting_the_others():
    """29d5055: 100 of 150 were lost, and the status said in step."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        first = MEMBERS[0]
        await cluster.stop(first)
        copy = cluster.hosts[first].files.crash(share=1.0)
        await cluster.restart(first)
        await until(lambda: in_step(cluster) == 3)
        await more(cluster, COUNT)
        await stop_all_but(cluster, first)
        cluster.hosts[first].files = copy
        await cluster.restart(first)
        await asyncio.sleep(20)
        assert master(cluster) is None
        assert "an older state of itself" in table(cluster, first).trouble
        for ip in MEMBERS[1:]:
            await cluster.restart(ip)
        await asyncio.sleep(10)
        await order(cluster, 2)
        await until(lambda: whole(cluster, 2 * COUNT), 60)

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers", "a disk replaced, a store restored, copied, damaged, an id given twice"
)
def test_a_copy_that_begins_beside_its_original_ends_it_and_is_filled_from_the_master():
    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        old = next(ip for ip in MEMBERS if ip != master(cluster))
        member = cluster.hosts[old].service
        copy = cluster.hosts[old].files.crash(share=1.0)
        await more(cluster, COUNT)
        copy._boot_id = b"another machine"
        cluster.host("10.0.1.9").files = copy
        await cluster.add_member(
            "10.0.1.9", "orders", total_replicas=3, broker_id=member.id, broker_role="SYNC_MASTER"
        )
        await until(lambda: member.failure is not None)
        assert "another process has begun as broker" in member.failure
        await until(lambda: in_step(cluster) == 3)

    simulate(scenario)


@pytest.mark.promise("Groups of brokers", "one that is alone in step loses power under ASYNC_FLUSH")
@pytest.mark.parametrize("cloned", [True, False], ids=["a clone comes back", "power is lost"])
def test_who_was_left_alone_in_step_and_lacks_what_two_had_does_not_cut_the_other(cloned: bool):
    """Whole groups, seed 301712 of 6dcd2011: 40 of 80 that both had acknowledged were cut off the other one's log."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER, controller="embedded")
        unsynced = {"flush_interval_ms": 3_600_000}
        for ip in MEMBERS[:2]:
            await cluster.add_member(ip, "orders", min_in_sync_replicas=2, store=unsynced)
        await until(lambda: in_step(cluster) == 2)
        await more(cluster, COUNT)
        old = master(cluster)
        other = next(ip for ip in MEMBERS[:2] if ip != old)
        copy = cluster.hosts[old].files.crash(share=1.0)
        await more(cluster, COUNT)
        cluster.partition(old, other)
        await until(lambda: in_step(cluster) == 1)
        cluster.kill(old)
        cluster.heal()
        cluster.hosts[old].files = copy if cloned else cluster.hosts[old].files.crash(share=0.0)
        await cluster.restart(old)
        await until(lambda: in_step(cluster) == 2, 60)
        store = cluster.hosts[old].service.broker.store
        assert sum(store.max_offset("T", queue) for queue in range(8)) == 2 * COUNT
        assert len(set(logs(cluster))) == 1
        assert master(cluster) == other and table(cluster, other).record.lossy_epoch == 0

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers", "a broker refuses a store of another id, or of another group"
)
def test_another_id_for_a_store_that_has_one_is_refused():
    """29d5055: the file of the member was written over in silence, 50 of 70 were lost."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        first = MEMBERS[0]
        who = cluster.hosts[first].service.id
        await cluster.stop(first)
        with pytest.raises(ConfigError, match=f"is broker {who} of its group, and brokerId=7"):
            await cluster.add_member(first, "orders", broker_id=7)

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers", "a broker refuses a store of another id, or of another group"
)
def test_one_of_another_installation_with_the_same_names_is_not_taken_in():
    async def other(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER, controller="embedded")
        await cluster.add_member(MEMBERS[2], "orders", broker_id=3)
        await until(lambda: master(cluster) == MEMBERS[2])
        mq = await cluster.client("10.0.2.1")
        for number in range(70):  # it is alone: SLAVE_NOT_AVAILABLE
            await mq.send("T", b"%d" % number)
        await cluster.stop(MEMBERS[2])
        kept.append(cluster.hosts[MEMBERS[2]].files)

    async def scenario(cluster: SimCluster) -> None:
        await group(cluster, count=2)
        await more(cluster, COUNT)
        cluster.host(MEMBERS[2]).files = kept[0]
        await cluster.add_member(MEMBERS[2], "orders", broker_id=3)
        await asyncio.sleep(20)
        assert in_step(cluster) == 2
        assert "the store is of the group" in table(cluster, MEMBERS[2]).trouble
        cluster.kill(master(cluster))
        await asyncio.sleep(20)
        assert table(cluster, MEMBERS[2]).role.value == "IDLE"

    kept: list[FaultyFiles] = []
    simulate(other)
    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers",
    "the group begins when all are there and empty; a lost record is begun by order only",
)
def test_a_lost_record_is_not_begun_anew_by_an_empty_member():
    """29d5055: it began epoch 1 again, and the others were cut to nothing."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await stop_all_but(cluster, MEMBERS[0])
        await cluster.stop(NAME_SERVER)
        replace_disk(cluster, NAME_SERVER)
        await cluster.restart(NAME_SERVER)
        replace_disk(cluster, MEMBERS[2])
        await cluster.restart(MEMBERS[2])
        await asyncio.sleep(10)
        assert "it waits for 2 of 3 brokers" in table(cluster, MEMBERS[2]).trouble
        for ip in MEMBERS[:2]:
            await cluster.restart(ip)
        await asyncio.sleep(20)
        assert master(cluster) is None
        await order(cluster, 1)
        await until(lambda: whole(cluster), 60)
        assert not any(table(cluster, ip).troubles for ip in MEMBERS)

    simulate(scenario)


def test_who_joins_without_an_id_while_the_record_is_lost_takes_no_others_id_in_the_end():
    """It gets id 1 of the record that it begins; 1 is somebody else."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await stop_all_but(cluster, MEMBERS[0])
        await cluster.stop(NAME_SERVER)
        replace_disk(cluster, NAME_SERVER)
        await cluster.restart(NAME_SERVER)
        joins = await cluster.add_member("10.0.1.9", "orders", total_replicas=3)
        assert joins.id == 1
        for ip in MEMBERS:
            await cluster.restart(ip)
        await asyncio.sleep(10)
        assert master(cluster) is None
        await order(cluster, 2)
        all_four = (*MEMBERS, "10.0.1.9")
        for _ in range(20):  # as systemd does
            for ip in [ip for ip in all_four if cluster.hosts[ip].service.failure]:
                cluster.kill(ip)
                await cluster.restart(ip)
            await asyncio.sleep(1)
        assert [cluster.hosts[ip].service.id for ip in all_four] == [1, 2, 3, 4]
        await until(lambda: in_step(cluster) == 4, 60)
        await until(lambda: whole(cluster), 60)

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers", "a record from a backup is proven old; whom it does not know is asked, too"
)
def test_a_record_from_a_backup_is_proven_old_by_those_that_know_better():
    """29d5055: a member long out of step won, 80 of 100 were cut."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await stop_all_but(cluster, MEMBERS[0])
        await cluster.stop(NAME_SERVER)
        backup = cluster.hosts[NAME_SERVER].files.crash(share=1.0)
        await cluster.restart(NAME_SERVER)
        for ip in MEMBERS[1:]:
            await cluster.restart(ip)
        await cluster.restart(MEMBERS[0])
        await until(lambda: in_step(cluster) == 3, 60)
        await cluster.stop(MEMBERS[0])  # long out of step from now on
        await until(lambda: in_step(cluster) == 2)
        await more(cluster, COUNT)
        for ip in (*MEMBERS[1:], NAME_SERVER):
            await cluster.stop(ip)
        cluster.hosts[NAME_SERVER].files = backup
        for ip in (NAME_SERVER, *MEMBERS):
            await cluster.restart(ip)
        await until(lambda: whole(cluster, 2 * COUNT), 60)

    simulate(scenario)


def test_who_was_stopped_in_order_knows_a_record_of_before_that():
    """Whole groups, seed 300633: the first one that started was elected by it, alone, though others had gone on without it."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await cluster.stop(NAME_SERVER)
        backup = cluster.hosts[NAME_SERVER].files.crash(share=1.0)
        await cluster.restart(NAME_SERVER)
        await asyncio.sleep(3)
        await cluster.stop(MEMBERS[0])
        await until(lambda: in_step(cluster) == 2)
        await more(cluster, COUNT)
        for ip in (*MEMBERS[1:], NAME_SERVER):
            await cluster.stop(ip)
        cluster.hosts[NAME_SERVER].files = backup
        for ip in (NAME_SERVER, MEMBERS[0]):
            await cluster.restart(ip)
        await asyncio.sleep(20)
        assert master(cluster) is None
        assert (
            "the record is an old one: brokers [2, 3] are to say"
            in table(cluster, MEMBERS[0]).trouble
        )
        for ip in MEMBERS[1:]:
            await cluster.restart(ip)
        await until(lambda: whole(cluster, 2 * COUNT), 60)

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers", "a record from a backup is proven old; whom it does not know is asked, too"
)
@pytest.mark.parametrize("order_of_starts", ["1342", "1324"])
def test_who_came_after_the_backup_of_a_record_is_asked_what_it_has_too(order_of_starts: str):
    """Whole groups, seed 300511 of 2df24ec2 among others: 4 had been master alone, and was cut to what 1 to 3 had."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await cluster.stop(NAME_SERVER)
        backup = cluster.hosts[NAME_SERVER].files.crash(share=1.0)
        await cluster.restart(NAME_SERVER)
        await until(lambda: in_step(cluster) == 3)
        await cluster.add_member("10.0.1.4", "orders", broker_id=4, total_replicas=3)
        await until(lambda: in_step(cluster) == 4)
        await order(cluster, 4)
        await until(lambda: table(cluster, "10.0.1.4").role is Role.MASTER)
        await asyncio.sleep(1)  # the others follow it
        for ip in MEMBERS:
            await cluster.stop(ip)
        await until(lambda: table(cluster, "10.0.1.4").alone)
        mq = await cluster.client("10.0.9.8")
        receipts = [await mq.send("T", b"of 4 alone") for _ in range(COUNT)]
        assert {receipt.status for receipt in receipts} == {"SLAVE_NOT_AVAILABLE"}
        for ip in ("10.0.1.4", NAME_SERVER):
            await cluster.stop(ip)
        cluster.hosts[NAME_SERVER].files = backup
        await cluster.restart(NAME_SERVER)
        for who in order_of_starts:
            await cluster.restart(f"10.0.1.{who}")
            await asyncio.sleep(5)
        await until(lambda: table(cluster, "10.0.1.4").role is Role.MASTER)
        await until(lambda: len(table(cluster, "10.0.1.4").record.members) == 4)
        store = cluster.hosts[MEMBERS[0]].service.broker.store
        assert sum(store.max_offset("T", queue) for queue in range(8)) == 2 * COUNT

    simulate(scenario)


def test_an_id_that_the_record_of_a_backup_does_not_know_is_not_given_again():
    """4 came after the backup; without an id, another one became 4, too, and one of the two had to end."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await cluster.stop(NAME_SERVER)
        backup = cluster.hosts[NAME_SERVER].files.crash(share=1.0)
        await cluster.restart(NAME_SERVER)
        await until(lambda: in_step(cluster) == 3)
        four = await cluster.add_member("10.0.1.4", "orders", total_replicas=3)
        await until(lambda: in_step(cluster) == 4)
        assert four.id == 4
        for ip in MEMBERS:  # a start notes who is there
            await cluster.stop(ip)
            await cluster.restart(ip)
            await until(lambda: in_step(cluster) == 4, 60)
        for ip in (*MEMBERS, "10.0.1.4", NAME_SERVER):
            await cluster.stop(ip)
        cluster.hosts[NAME_SERVER].files = backup
        for ip in (NAME_SERVER, *MEMBERS):
            await cluster.restart(ip)
        await asyncio.sleep(1)
        joins = await cluster.add_member("10.0.1.5", "orders", total_replicas=3)
        assert joins.id == 5
        await cluster.restart("10.0.1.4")
        await until(lambda: in_step(cluster) == 5, 60)
        await until(lambda: whole(cluster), 60)

    simulate(scenario)


def test_what_was_written_under_another_flush_type_is_judged_by_that():
    """29d5055: with SYNC_FLUSH after a power cut under ASYNC_FLUSH, 18 to 21 of 60 were lost."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        old = master(cluster)
        who = cluster.hosts[old].service.id
        cluster.kill(old, power_loss=True)
        cluster.hosts[old].process = cluster.loop.new_process(old)
        sync = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
        await cluster.add_member(old, "orders", broker_id=who, total_replicas=3, store=sync)
        await until(lambda: whole(cluster), 60)
        assert seen == [who]

    seen: list[int] = []
    original = TakeOver._doubt

    def doubt(self, record):
        if self.me not in seen:
            seen.append(self.me)
        return original(self, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TakeOver, "_doubt", doubt)
        simulate(scenario)


def test_an_id_that_was_cleaned_away_is_given_to_nobody_else():
    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        await cluster.stop(MEMBERS[2])
        await until(lambda: in_step(cluster) == 2)
        record = table(cluster, MEMBERS[0]).record
        assert record.stores.keys() == record.places.keys() == {1, 2, 3}
        mq = await cluster.client("10.0.9.9")
        ext = {
            "clusterName": "DefaultCluster",
            "brokerName": "orders",
            "brokerControllerIdsToClean": "3",
        }
        await cluster.run_on("10.0.9.9", clean(ext))
        await cluster.add_member("10.0.1.9", "orders")
        await until(lambda: in_step(cluster) == 3)
        assert cluster.hosts["10.0.1.9"].service.id == 4
        await mq.close()

    simulate(scenario)


async def clean(ext: dict[str, str]) -> None:
    """CLEAN_BROKER_DATA, as `mqadmin cleanBrokerMetadata` asks for it."""
    reader, writer = await asyncio.open_connection(NAME_SERVER, 9876)
    wire = WireConnection()
    wire.send_request(RequestCode.CLEAN_BROKER_DATA, encode_dict(ext), b"", False)
    writer.write(b"".join(wire.data_to_send()))
    while not (answers := wire.receive_data(await reader.read(65536))):
        pass
    assert answers[0].code == 0, answers[0].remark
    writer.close()


def test_a_master_whose_disk_is_full_gives_the_office_away_and_does_not_take_it_back():
    """29d5055: it kept the office for ever, with two good replicas beside it."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        old = master(cluster)
        files = cluster.hosts[old].files
        files.set_capacity(files.used)
        await until(lambda: master(cluster) not in (None, old), 10)
        await more(cluster, 5)
        ((where, what),) = await group_troubles(cluster)
        assert what.startswith("the disk below /store takes no messages: ")
        assert cluster.hosts[old].service.id == int(where.removesuffix(")")[-1])
        assert shown_trouble(cluster, old) == {"disk"}
        cluster.kill(master(cluster))
        await until(lambda: master(cluster) not in (None, old), 20)

    simulate(scenario)


def test_a_master_whose_disk_hangs_gives_the_office_away():
    """29d5055: after 116 to 122 s."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        old = master(cluster)
        cluster.slow_disk(old, 1_000)
        await until(lambda: master(cluster) not in (None, old), 10)
        assert table(cluster, old).trouble == (
            "the disk below /store takes no messages: has not answered for more than 3 s"
        )
        await more(cluster, 5)

    simulate(scenario)


async def group_troubles(cluster: SimCluster) -> list[tuple[str, str]]:
    """Subject and evidence of what the doctor finds of groups; the fix is told each time."""
    mq = await cluster.client("10.0.9.8")
    clock = cluster.host("10.0.9.8").clock
    facts = await mq.session.run(examine([f"{NAME_SERVER}:9876"], clock))
    found = [one for one in diagnose(facts) if one.code == "RQ-D038"]
    assert all(one.fix for one in found)
    return [(one.subject, one.evidence) for one in found]


def shown_trouble(cluster: SimCluster, ip: str) -> set[str]:
    """The kinds of trouble that its metrics show."""
    pages = cluster.hosts[ip].service.broker.feature(MetricsFeature).pages()
    text = b"".join(pages.streams["/metrics"].begin()).decode()
    samples = [one for one in read_exposition(text) if one.name == "rocketmq_group_trouble"]
    assert {one.labels["kind"] for one in samples} == {*TROUBLES}
    return {one.labels["kind"] for one in samples if one.value == 1}


@pytest.mark.promise(
    "Groups of brokers", "no majority of etcd: nothing is answered, and the brokers say so"
)
def test_a_group_without_its_controllers_says_so():
    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        assert await group_troubles(cluster) == []
        old = master(cluster)
        assert shown_trouble(cluster, old) == set()
        cluster.kill(NAME_SERVER)
        await until(lambda: all(shown_trouble(cluster, ip) == {"record"} for ip in MEMBERS), 30)
        assert "see to the controllers" in table(cluster, old).trouble
        await cluster.restart(NAME_SERVER)
        await until(lambda: in_step(cluster) == 3)
        await until(lambda: not any(shown_trouble(cluster, ip) for ip in MEMBERS))

    simulate(scenario)


def test_a_replica_whose_syncs_hang_leaves_the_set_until_they_come_back():
    """aecfec1: its signs of life went on, and acknowledgements stopped for 15 s."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
        loop = asyncio.get_running_loop()
        ip = next(ip for ip in MEMBERS if ip != master(cluster))
        cluster.slow_disk(ip, 30)
        began = loop.time()
        await more(cluster, 5)
        assert loop.time() - began < 6
        await until(lambda: in_step(cluster) == 2)
        assert "has not answered" in table(cluster, ip).trouble
        cluster.slow_disk(ip, 0)
        await until(lambda: whole(cluster), 60)

    simulate(scenario)


def test_a_replica_whose_disk_is_full_leaves_the_set_in_two_seconds():
    """29d5055: acknowledgements stopped for 15 s."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster, store={"segment_size": 1 << 20})
        loop = asyncio.get_running_loop()
        files = cluster.hosts[next(ip for ip in MEMBERS if ip != master(cluster))].files
        files.set_capacity(files.used)
        mq = await cluster.client("10.0.2.77")
        began = loop.time()
        for _ in range(20):
            await mq.send("T", Random(1).randbytes(200_000))
        took = loop.time() - began
        await until(lambda: in_step(cluster) == 2)
        assert took < 4

    simulate(scenario)


@pytest.mark.promise("Groups of brokers", "a replica dies: answers wait some 1.5 s, then go on")
def test_a_replica_that_dies_holds_answers_up_until_it_has_left_the_set():
    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster, min_in_sync_replicas=2)
        mq = await cluster.client("10.0.2.77")
        await send(mq, COUNT)
        cluster.kill(next(ip for ip in MEMBERS if ip != master(cluster)))
        assert 0.5 < await send(mq, COUNT + 1) < 2.5
        assert in_step(cluster) == 2
        assert await send(mq, COUNT + 2) < 0.2

    simulate(scenario)


@pytest.mark.promise(
    "Groups of brokers",
    "all lose power: SYNC_FLUSH goes on with two and has everything; else all are waited for",
)
@pytest.mark.parametrize("flush", [*FlushDiskType])
def test_all_lose_power_at_once(flush: FlushDiskType):
    """Two that are back go on where each sync was waited for, with all that was acknowledged; else all are waited for."""
    sure = flush is FlushDiskType.SYNC_FLUSH

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster, min_in_sync_replicas=2, store={"flush_disk_type": flush})
        for ip in MEMBERS:
            cluster.kill(ip, power_loss=True)
        for ip in MEMBERS[:2]:
            await cluster.restart(ip)
        if sure:
            await until(lambda: in_step(cluster) == 2)
            await more(cluster, 5)
        else:
            await asyncio.sleep(30)
            assert master(cluster) is None
            assert all(table(cluster, ip).trouble for ip in MEMBERS[:2])
        await cluster.restart(MEMBERS[2])
        await until(lambda: whole(cluster, COUNT + 5 if sure else 0), 60)

    simulate(scenario)


def test_a_replica_whose_disk_was_full_when_the_master_changed_follows_when_there_is_space():
    """It forgot the order, and was never in step again."""

    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        old = master(cluster)
        slave = next(ip for ip in MEMBERS if ip != old)
        files = cluster.hosts[slave].files
        files.set_capacity(0)
        cluster.kill(old)
        await until(lambda: master(cluster) not in (None, old))
        await asyncio.sleep(5)
        files.set_capacity(1 << 40)
        await cluster.restart(old)
        await until(lambda: whole(cluster), 30)

    simulate(scenario)


def test_a_least_number_in_step_counts_from_its_change_on():
    async def scenario(cluster: SimCluster) -> None:
        await filled(cluster)
        leader = cluster.hosts[master(cluster)].service
        leader.broker.core.live.update({"minInSyncReplicas": "3"})
        assert leader.table.settings.min_in_sync == 3
        cluster.kill(next(ip for ip in MEMBERS if ip != master(cluster)))
        await until(lambda: in_step(cluster) == 2)
        mq = await cluster.client("10.0.2.77", send_attempts=1)
        await asyncio.sleep(1)
        with pytest.raises(ClientError, match="not enough"):
            await mq.send("T", b"x")

    simulate(scenario)
