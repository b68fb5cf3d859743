"""The journal of offsets against a table in memory: kills, power cuts, other writers, full disks, in any order."""

import asyncio
import errno
import random
from typing import Any

import pytest
from tests.broker.conftest import send_ext
from tests.broker.promise_cases import BROKER, GROUP, World

from roquette.base import generations
from roquette.broker.floor.table_files import TablePersistence
from roquette.broker.floor.tables.offset_journal import NAMES, OffsetJournal, merged
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.store.format.config import FlushDiskType
from roquette.wire.bodies import ConsumerOffsetSerializeWrapper
from roquette.wire.json_body import decode_body, fastjson_pretty
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.faulty_files import FaultyFiles

PATH = "/c/consumerOffset.json"
State = tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]


def state_of(table: OffsetTable) -> State:
    found = table.to_wrapper()
    offsets = {key: queues for key, queues in found.offset_table.items() if queues}
    return offsets, found.reset_offset_table or {}


class Life:
    """A table, its file and its journal, from a start to an end."""

    def __init__(self, files: FaultyFiles, log_end: int) -> None:
        self.files = files
        self.table = OffsetTable(0)
        self.journal = OffsetJournal(files, "/c", lambda: False)
        self.log_end = log_end
        self.taken: Any = None
        self.picture: bytes | None = None
        found = generations.load(
            files, PATH, lambda data: decode_body(ConsumerOffsetSerializeWrapper, data)
        )
        crc = size = 0
        if found is not None:
            self.table.load(found.value)
            crc, size = found.mark.crc, found.mark.size
        self.began = state_of(self.table)
        self.replayed = self.journal.load(crc, size, log_end)
        for change in self.replayed:
            self.table.apply(change)
        self.table.count()

    def turn(self, rng: random.Random) -> None:
        """Some changes, and the end of the turn."""
        for _ in range(rng.randrange(1, 4)):
            self.change(rng)
        self.log_end += rng.randrange(100)
        self.end_turn()

    def end_turn(self) -> bool:
        if not self.table.moved:
            return True
        if self.journal.append(self.table.change(self.log_end)):
            self.table.told()
            return True
        return False

    def change(self, rng: random.Random) -> None:
        table, group, topic = self.table, rng.choice("gh"), rng.choice("TU")
        queue_id, offset = rng.randrange(3), rng.randrange(1000)
        kind = rng.randrange(20)
        if kind == 0:
            table.delete_topic(topic)
        elif kind == 1:
            table.delete_group(group)
        elif kind == 2:
            table.clone("g", "h", topic, 0)
        elif kind <= 4:
            table.reset(group, topic, queue_id, offset, 0)
        elif kind <= 6:
            table.take_reset(group, topic, queue_id)
        else:
            table.commit(group, topic, queue_id, offset)

    def begin_picture(self) -> None:
        self.taken = self.table.to_wrapper()
        self.journal.picture()

    def end_picture(self) -> bool:
        """It is encoded, some turns later."""
        data, self.taken = fastjson_pretty(self.taken), None
        named = self.journal.pictured(data)
        self.picture = data if named else None
        return named

    def take_picture(self) -> None:
        self.begin_picture()
        assert self.end_picture()

    def save_picture(self) -> None:
        if self.picture is not None:
            generations.save(self.files, PATH, self.picture)
            self.journal.saved()
            self.picture = None


def live(life: Life, rng: random.Random) -> list[State]:
    """Turns and pictures; the state after each turn."""
    states = [state_of(life.table)]
    for _ in range(rng.randrange(30)):
        kind = rng.randrange(6)
        if kind == 0 and life.picture is None and life.taken is None:
            life.begin_picture()
        elif kind == 2 and life.taken is not None:
            assert life.end_picture()
        elif kind == 1:
            if rng.random() < 0.2:
                life.picture = None  # it could not be written
            life.save_picture()
        else:
            life.turn(rng)
            states.append(state_of(life.table))
    return states


@pytest.mark.parametrize("seed", range(300))
def test_a_killed_process_forgets_nothing(seed: int) -> None:
    rng, files = random.Random(seed), FaultyFiles(seed)
    life = Life(files, 0)
    for _ in range(5):
        states = live(life, rng)
        files.kill()
        life = Life(files, life.log_end)
        assert state_of(life.table) == states[-1]


@pytest.mark.parametrize("seed", range(300))
def test_after_a_power_cut_there_is_one_of_the_states_and_never_one_before_the_file(
    seed: int,
) -> None:
    rng, files = random.Random(seed), FaultyFiles(seed)
    files.make_dirs("/c")
    life = Life(files, 0)
    history: list[State] = []
    for _ in range(5):
        history += live(life, rng)
        files = files.crash(rng)
        life = Life(files, rng.randrange(life.log_end + 1) if rng.random() < 0.5 else life.log_end)
        found = state_of(life.table)
        first = history.index(life.began) if life.began in history else 0
        assert life.began in history or life.began == ({}, {})
        assert found in history[first:] or found == life.began
        assert all(change.log_end <= life.log_end for change in life.replayed)
        while history and history[-1] != found:
            history.pop()


@pytest.mark.parametrize("seed", range(100))
def test_a_torn_or_damaged_journal_gives_a_beginning_of_it(seed: int) -> None:
    rng, files = random.Random(seed), FaultyFiles(seed)
    life = Life(files, 0)
    states = live(life, rng)
    for name in NAMES:
        path = f"/c/{name}"
        if files.exists(path) and (size := len(files.read_bytes(path))) and rng.random() < 0.7:
            file = files.open_file(path)
            if rng.random() < 0.5:
                file.truncate(rng.randrange(size))
            else:
                file.pwrite(bytes([rng.randrange(256)]), rng.randrange(size))
    again = Life(files, life.log_end)
    assert state_of(again.table) in states
    again.turn(rng)
    assert state_of(Life(files, again.log_end).table) == state_of(again.table)


def test_what_others_have_written_counts() -> None:
    files = FaultyFiles()
    life = Life(files, 0)
    life.table.commit("g", "T", 0, 5)
    life.take_picture()
    life.save_picture()
    life.table.commit("g", "T", 0, 9)
    assert life.end_turn()
    other = OffsetTable(0)
    other.commit("g", "T", 0, 7)
    data = fastjson_pretty(other.to_wrapper())
    file = files.open_file(PATH)
    file.truncate(0)
    file.pwrite(data, 0)
    files.now_ms += 1000
    life = Life(files, 100)
    assert life.table.query("g", "T", 0) == 7
    life.table.commit("g", "T", 0, 8)
    assert life.end_turn()
    assert Life(files, 100).table.query("g", "T", 0) == 8


def test_a_stop_leaves_no_journal() -> None:
    files = FaultyFiles()
    life = Life(files, 0)
    life.table.commit("g", "T", 0, 5)
    assert life.end_turn()
    life.journal.close(remove=True)
    assert not [name for name in files.list_dir("/c") if "journal" in name]


def test_it_stays_small_while_the_file_is_written() -> None:
    files = FaultyFiles()
    life = Life(files, 0)
    for offset in range(2000):
        life.table.commit("g", "T", 0, offset)
        assert life.end_turn()
        if offset % 100 == 50:
            life.take_picture()
        if offset % 100 == 60:
            life.save_picture()
    assert all(len(files.read_bytes(f"/c/{name}")) < 10_000 for name in NAMES)


def test_a_change_is_small_and_one_write() -> None:
    files = FaultyFiles()
    life = Life(files, 0)
    for queue_id in range(100):
        life.table.commit("group", "topic", queue_id, 123_456 + queue_id)
    before, size = files.calls.get("pwrite", 0), len(files.read_bytes(f"/c/{NAMES[0]}"))
    assert life.end_turn()
    assert files.calls["pwrite"] == before + 1
    assert len(files.read_bytes(f"/c/{NAMES[0]}")) - size < 800
    assert life.end_turn() and files.calls["pwrite"] == before + 1


def cut_while_committing(seed: int, *, power_loss: bool) -> None:
    """Commits of a broker that a kill ends, or under SYNC_FLUSH a loss of power: what it has answered is there afterwards."""

    async def scenario(cluster: SimCluster) -> None:
        flush = FlushDiskType.SYNC_FLUSH if power_loss else FlushDiskType.ASYNC_FLUSH
        store = {"flush_disk_type": flush}
        await cluster.add_broker(BROKER, "broker-a", name_servers="", store=store)
        world = World(cluster)
        await world.connect()
        await world.know(1)
        acknowledged = 0

        async def commit() -> None:
            nonlocal acknowledged
            for offset in range(1, 100_000):
                if power_loss and offset % 3 == 0:  # the log grows, and is synced at other times
                    world.client.send(310, send_ext(), b"body")
                await world.ask(15, GROUP | {"commitOffset": offset})
                acknowledged = offset
                await asyncio.sleep(0.01)

        task = asyncio.ensure_future(commit())
        await asyncio.sleep(cluster.loop.random.uniform(0.1 if power_loss else 0.0, 12.0))
        cluster.kill(BROKER, power_loss=power_loss)
        task.cancel()
        await cluster.restart(BROKER)
        await world.connect()
        assert acknowledged > 0 or not power_loss
        assert acknowledged <= await world.offset() <= acknowledged + 1

    simulate(scenario, seed)


@pytest.mark.promise(
    "Answers", "committed offsets never go back by a kill; under SYNC_FLUSH not by a loss of power"
)
@pytest.mark.parametrize("seed", range(40))
def test_committed_offsets_never_go_back_by_a_kill(seed: int) -> None:
    cut_while_committing(seed, power_loss=False)


@pytest.mark.promise(
    "Answers", "committed offsets never go back by a kill; under SYNC_FLUSH not by a loss of power"
)
@pytest.mark.parametrize("seed", range(22))
def test_under_sync_flush_a_power_cut_takes_back_no_answered_commit(seed: int) -> None:
    """Before, 21 of 22 cuts did."""
    cut_while_committing(seed, power_loss=True)


def test_a_commit_that_the_disk_does_not_take_is_refused_under_sync_flush() -> None:
    async def scenario(cluster: SimCluster) -> None:
        sync = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
        await cluster.add_broker(BROKER, "broker-a", name_servers="", store=sync)
        world = World(cluster)
        await world.connect()
        await world.know(1)
        await world.ask(15, GROUP | {"commitOffset": 1})
        cluster.hosts[BROKER].files.fail("sync")
        answer = await world.client.call(15, GROUP | {"commitOffset": 2})
        assert answer.code == 1
        assert answer.remark.startswith("changed in memory only: consumerOffset.json cannot be")

    simulate(scenario, seed=1)


def test_a_journal_that_cannot_be_written_is_told_and_works_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_broker(BROKER, "broker-a", name_servers="")
        world = World(cluster)
        await world.connect()
        await world.know(1)
        await world.ask(15, GROUP | {"commitOffset": 1})
        journal: Any = world.broker.feature(TablePersistence)._journal
        put = journal._put

        def refuse(data: bytes) -> None:
            raise OSError(errno.EIO, "Input/output error")

        journal._put = refuse
        with pytest.raises((AssertionError, ConnectionError)):  # no answer leaves
            await world.client.call(15, GROUP | {"commitOffset": 2})
        await world.connect()
        refused = await world.client.call(15, GROUP | {"commitOffset": 3})
        assert refused.code == 1
        assert "no offset is committed now: the journal of offsets cannot be" in refused.remark
        journal._put = put
        await asyncio.sleep(0.5)
        await world.client.produce("T")
        await world.ask(15, GROUP | {"commitOffset": 4})
        cluster.kill(BROKER)
        await cluster.restart(BROKER)
        await world.connect()
        assert await world.offset() == 4

    simulate(scenario)


@pytest.mark.parametrize("seed", range(100))
def test_several_changes_are_one(seed: int) -> None:
    rng = random.Random(seed)
    life, one = Life(FaultyFiles(), 0), OffsetTable(0)
    changes = []
    for _ in range(rng.randrange(1, 12)):
        life.change(rng)
        if rng.random() < 0.6:
            changes.append(life.table.change(0))
            life.table.told()
    changes.append(life.table.change(7))
    one.apply(merged(changes))
    assert state_of(one) == state_of(life.table)
    assert one.log_end == 7


def test_a_picture_whose_changes_cannot_be_written_again_is_not_used() -> None:
    files = FaultyFiles()
    life = Life(files, 0)
    life.table.commit("g", "T", 0, 1)
    assert life.end_turn()
    life.begin_picture()
    life.table.commit("g", "T", 0, 2)
    assert life.end_turn()
    put: Any = life.journal._put
    calls = []

    def refuse(data: bytes) -> None:
        calls.append(data)
        if len(calls) == 2:  # the name can be written, what follows it cannot
            raise OSError(errno.ENOSPC, "No space left on device")
        put(data)

    life.journal._put = refuse  # type: ignore[method-assign]
    assert not life.end_picture()
    assert Life(files, 0).table.query("g", "T", 0) == 2


def test_a_change_that_speaks_of_more_log_than_there_is_ends_it() -> None:
    files = FaultyFiles()
    life = Life(files, 0)
    for offset in (10, 20, 30):
        life.table.commit("g", "T", 0, offset)
        life.log_end = offset
        assert life.end_turn()
    life = Life(files, 25)
    assert life.table.query("g", "T", 0) == 20
    assert Life(files, 1000).table.query("g", "T", 0) == 20  # what was cut off never comes back
