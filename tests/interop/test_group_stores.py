"""Disks, stores, identities and the record of a real group are swapped, emptied, copied, set back, hang and fill: nothing
that was acknowledged is lost, and words say what is to be done."""

import asyncio
import contextlib
import itertools
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.crash.test_disk_full import grow
from tests.interop.etcd import Etcd
from tests.interop.hung_disk import HungDisk
from tests.interop.peers import START_TIMEOUT_S, Server
from tests.interop.take_over import (
    GROUP,
    HEALTHY_S,
    Books,
    Group,
    group,
    healthy,
    look,
    need_topic,
    running,
    until_resumed,
    writers,
)
from tests.small_disk import on_small_disk, seen_by

from roquette.admin.replication import GroupState
from roquette.client.client import Client
from roquette.errors import RoquetteError
from roquette.message.message import MessageQueue
from roquette.replication.record import NEW_EPOCHS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

QUICK_S = 20  # see test_take_over.py
PACE_S = 0.03
TTL_S = 3.0
NOBODY_S = (
    TTL_S + 2
)  # who may stand has stood by then: a lease, and a second in which all say what they have


class Case:
    """A group with a topic, and what its writers were promised."""

    def __init__(self, made: Group, client: Client, queues: list[MessageQueue], topic: str) -> None:
        self.made = made
        self.client = client
        self.queues = queues
        self.books = Books(topic)
        self._names = (f"w{number}-" for number in itertools.count())

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Writers write while the block runs, and have been promised something before it."""
        with writers(self.client, self.books, self.queues, next(self._names), PACE_S):
            await until_resumed(self.books, time.monotonic(), self.made)
            yield

    async def write(self) -> None:
        """Some messages more."""
        async with self.writing():
            await until_resumed(self.books, time.monotonic(), self.made)

    async def healthy(self) -> GroupState:
        return await healthy(self.client, self.made)

    async def until(self, what: Callable[[GroupState], bool]) -> GroupState:
        """Wait until the group is so."""
        end, said = time.monotonic() + HEALTHY_S, ""
        while time.monotonic() < end:
            try:
                state = await look(self.client, self.made)
                if what(state):
                    return state
                said = str(state)
            except RoquetteError as error:
                said = str(error)
            await asyncio.sleep(0.05)
        raise AssertionError(f"{said}\n{self.made.tails()}")

    async def until_told(self, *words: str) -> GroupState:
        """Wait until the status has all these words."""
        return await self.until(lambda state: all(word in str(state.problems) for word in words))

    async def stop_all_but(self, last: int) -> None:
        """A planned full stop: the set becomes the last one alone."""
        for who in self.made.addresses.keys() - {last}:
            await asyncio.to_thread(self.made.end, who)
        await self.until(lambda state: state.in_step == [last])
        await asyncio.to_thread(self.made.end, last)

    async def nobody_is_elected(self, seconds: float = NOBODY_S) -> None:
        """For so long that whoever may stand would have stood."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert not (await look(self.client, self.made)).master, self.made.tails()
            await asyncio.sleep(0.1)

    async def order_one_with_most(self, *but: int) -> None:
        """What an operator does who has read the status."""
        said = await asyncio.to_thread(self.made.roquette, "broker", "status", code=10)
        assert "NO MASTER" in said
        members = (await look(self.client, self.made)).members
        most = max((m.log_end, m.broker_id) for m in members if m.broker_id not in but)[1]
        await self.promote(most, "--accept-data-loss")

    async def promote(self, who: int, *more: str) -> None:
        command = ("broker", "promote", GROUP, str(who), "--yes", *more)
        await asyncio.to_thread(self.made.roquette, *command)

    async def all_is_there(self) -> None:
        """The group is whole again, takes messages, and has all that was ever promised."""
        await self.healthy()
        await self.write()
        state = await self.healthy()
        (address,) = (m.address for m in state.members if m.broker_id == state.master)
        await asyncio.to_thread(self.books.check, address, again=True)
        assert self.books.checked > 10


@contextlib.asynccontextmanager
async def case(made: Group, topic: str) -> AsyncIterator[Case]:
    """A group in step, and a topic with some messages."""
    async with Client(made.namesrv.address) as client:
        await healthy(client, made)
        found = Case(made, client, await need_topic(client, made, topic), topic)
        await found.write()
        yield found


def until_says(server: Server, words: str) -> None:
    """Wait until a process has printed this."""
    end = time.monotonic() + START_TIMEOUT_S
    while words not in (said := server.process.tail(1 << 20)):
        assert time.monotonic() < end, said
        time.sleep(0.1)


class HangingGroup(Group):
    """Each member's disk may hang."""

    def __init__(self, folder: Path, flush: str) -> None:
        super().__init__(folder)
        self.flush = flush
        self.disks = {
            who: HungDisk(folder / f"disk{who}", self.store(who)) for who in self.addresses
        }
        self.prefixes = {who: disk.prefix for who, disk in self.disks.items()}

    def settings(self, who: int) -> dict[str, str]:
        return super().settings(who) | {"flushDiskType": self.flush}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HangingGroup]:
    """Three members, whose record stands in a file of the name server."""
    members = HangingGroup(tmp_path_factory.mktemp("group"), "ASYNC_FLUSH")
    with running(members):
        yield members


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HangingGroup]:
    """The same with SYNC_FLUSH."""
    members = HangingGroup(tmp_path_factory.mktemp("synced"), "SYNC_FLUSH")
    with running(members):
        yield members


# Disks.


async def the_masters_disk_hangs(one: Case, made: HangingGroup, what: str) -> None:
    """`what` hangs: "all" that is written, "syncs" alone, or all while nobody sends, "idle"."""
    old = (await one.healthy()).master
    async with contextlib.AsyncExitStack() as around:
        if what != "idle":
            await around.enter_async_context(one.writing())
        with made.disks[old].held(syncs_only=what == "syncs"):
            since = time.monotonic()
            await one.until(lambda state: state.master not in (0, old))
            if what != "idle":
                await until_resumed(one.books, time.monotonic(), made)
            took = time.monotonic() - since
            await asyncio.sleep(1)
            assert (await look(one.client, made)).master != old
    print(f"another one served after {took:.2f} s")
    assert took < QUICK_S


async def a_replicas_disk_hangs(made: HangingGroup, topic: str, what: str) -> float:
    """It leaves the set, and comes back when the disk answers. The longest pause that senders saw."""
    async with case(made, topic) as one:
        state = await one.healthy()
        who = next(each for each in state.in_step if each != state.master)
        async with one.writing():
            with made.disks[who].held(syncs_only=what == "syncs"):
                since = time.monotonic()
                await one.until(lambda state: who not in state.in_step)
                left = time.monotonic()
                while time.monotonic() < left + 2 * TTL_S:
                    assert who not in (await look(one.client, made)).in_step
                    await asyncio.sleep(0.1)
                pause = one.books.pause(since)
        await one.all_is_there()
    return pause


async def the_disk_is_replaced_of(one: Case, first: int) -> None:
    """Of the only one in step, after a planned full stop."""
    made = one.made
    await one.stop_all_but(first)
    shutil.rmtree(made.store(first))
    await asyncio.to_thread(made.start_all)
    await one.until_told("its disk was replaced", f"it waits for one of [{first}]")
    await one.nobody_is_elected(TTL_S)
    await one.order_one_with_most()


def test_a_disk_that_hangs_and_one_that_is_replaced(made: HangingGroup) -> None:
    """The smoke of this file."""

    async def scenario() -> None:
        async with case(made, "smoke") as one:
            await the_masters_disk_hangs(one, made, "all")
            await the_disk_is_replaced_of(one, (await one.healthy()).master)
            await one.all_is_there()

    asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.parametrize("what", ["syncs", "idle"])
def test_a_master_whose_disk_hangs_gives_the_office_away(made: HangingGroup, what: str) -> None:
    asyncio.run(_hung_master(made, what))


@pytest.mark.long
def test_a_master_with_sync_flush_whose_syncs_hang_gives_the_office_away(
    synced: HangingGroup,
) -> None:
    asyncio.run(_hung_master(synced, "syncs"))


async def _hung_master(made: HangingGroup, what: str) -> None:
    async with case(made, f"hangs-{what}") as one:
        await the_masters_disk_hangs(one, made, what)
        await one.all_is_there()


LAG_S = 15  # what is late for so long leaves the set, whatever else is known of it


@pytest.mark.long
def test_a_replica_whose_disk_hangs_leaves_the_set(made: HangingGroup) -> None:
    pause = asyncio.run(a_replicas_disk_hangs(made, "replica-hangs", "all"))
    print(f"senders waited for {pause:.2f} s")
    assert pause < LAG_S / 2


@pytest.mark.long
def test_a_replica_with_sync_flush_whose_syncs_hang_leaves_the_set(synced: HangingGroup) -> None:
    pause = asyncio.run(a_replicas_disk_hangs(synced, "replica-hangs", "syncs"))
    print(f"senders waited for {pause:.2f} s")
    assert pause < LAG_S / 2


@pytest.mark.long
def test_a_master_on_a_full_disk_gives_the_office_away_and_does_not_take_it_back(
    tmp_path: Path,
) -> None:
    made = Group(tmp_path)
    made.store(1).parent.mkdir()
    made.prefixes = {1: on_small_disk("100m", made.store(1))}
    with running(made):
        took = asyncio.run(_a_full_disk(made))
    print(f"another one served after {took:.2f} s")
    assert took < QUICK_S


async def _a_full_disk(made: Group) -> float:
    async with case(made, "full") as one:
        if (await one.healthy()).master != 1:
            await one.promote(1)
            await one.healthy()
        ballast = seen_by(made.members[1].process.popen.pid, made.store(1)) / "ballast"
        async with one.writing():
            since = time.monotonic()
            await asyncio.to_thread(grow, ballast, 1.0)
            second = (await one.until(lambda state: state.master not in (0, 1))).master
            await until_resumed(one.books, time.monotonic(), made)
            took = time.monotonic() - since
            made.kill(second)
            third = 5 - second
            await one.until(lambda state: state.master == third)
            await one.until(lambda state: state.in_step == [third])
            await asyncio.to_thread(made.start, second)
            await one.until(lambda state: state.in_step == sorted((second, third)))
            await until_resumed(one.books, time.monotonic(), made)
            assert (await look(one.client, made)).master == third
        ballast.unlink()
        await one.all_is_there()
    return took


# Stores.


@pytest.mark.long
@pytest.mark.parametrize("how", ["restore-backup", "copy"])
def test_an_old_state_of_a_store_does_not_stand(made: Group, how: str) -> None:
    """The backup of a store in use; the copy of one that was stopped."""
    asyncio.run(_old_state(made, how))


async def _old_state(made: Group, how: str) -> None:
    async with case(made, how) as one:
        state = await one.healthy()
        first = next(each for each in state.in_step if each != state.master)
        store, kept = made.store(first), made.folder / how
        if how == "copy":
            await asyncio.to_thread(made.end, first)
            shutil.copytree(store, kept)
            await asyncio.to_thread(made.start, first)
            await one.healthy()
        else:
            made.roquette("broker", "backup", str(store), "--to", str(kept))
        await one.write()
        await one.stop_all_but(first)
        shutil.rmtree(store)
        if how == "copy":
            kept.rename(store)
        else:
            made.roquette("broker", "restore-backup", str(kept), "--to", str(store))
        await asyncio.to_thread(made.start_all)
        why = "an older state of itself" if how == "copy" else "is a copy of one that was in use"
        await one.until_told(why, f"it waits for one of [{first}]")
        await one.nobody_is_elected()
        await one.order_one_with_most(first)
        await one.all_is_there()


@pytest.mark.long
@pytest.mark.parametrize("copied", ["stopped", "running"])
def test_a_copy_of_a_replica_that_begins_beside_it_ends_it(made: Group, copied: str) -> None:
    asyncio.run(_cloned_replica(made, copied))


async def _cloned_replica(made: Group, copied: str) -> None:
    async with case(made, f"cloned-{copied}") as one:
        state = await one.healthy()
        who = next(each for each in state.in_step if each != state.master)
        clone = made.folder / f"clone-{copied}" / "s"
        await _copy(made, who, clone, copied)
        await one.healthy()
        async with one.writing():
            second = await asyncio.to_thread(made.start_beside, who, clone)
            first, made.members[who] = made.members[who], second
            await asyncio.to_thread(until_says, first, "another process has begun as broker")
            assert await asyncio.to_thread(first.process.popen.wait, START_TIMEOUT_S) != 0
        await one.all_is_there()
        await asyncio.to_thread(made.end, who)
        await asyncio.to_thread(made.start, who)  # the first one comes back: an old state now
        await one.all_is_there()


async def _copy(made: Group, who: int, clone: Path, copied: str) -> None:
    clone.parent.mkdir()
    if copied == "stopped":
        await asyncio.to_thread(made.end, who)
    copying = await asyncio.create_subprocess_exec("cp", "-r", str(made.store(who)), str(clone))
    await copying.wait()  # temporary files may be gone: their time was over
    if copied == "stopped":
        await asyncio.to_thread(made.start, who)


@pytest.mark.long
def test_a_copy_of_the_master_that_begins_beside_it_waits(made: Group) -> None:
    asyncio.run(_cloned_master(made))


async def _cloned_master(made: Group) -> None:
    async with case(made, "cloned-master") as one:
        who = (await one.healthy()).master
        clone = made.folder / "clone-master" / "s"
        await _copy(made, who, clone, "stopped")
        await one.healthy()
        await one.promote(who)
        before = await one.healthy()
        second = await asyncio.to_thread(made.start_beside, who, clone)
        try:
            await asyncio.to_thread(until_says, second, f"broker {who} is running as master at")
            await one.write()
            after = await look(one.client, made)
            assert (after.master, after.epoch) == (who, before.epoch)
            made.kill(who)  # now it may come in, and must not stand: it lacks what came since
            await one.until(lambda state: state.master not in (0, who))
            await one.until(lambda state: who in state.in_step)
        finally:
            second.stop()
        await asyncio.to_thread(made.start, who)
        await one.all_is_there()


# The record.


class Records:
    """Where the group's record stands: the name server's directory, or etcd's."""

    def __init__(self, made: Group, etcd: Etcd | None) -> None:
        self._made = made
        self._etcd = etcd
        self.folder = made.records if etcd is None else etcd.members[0].folder / "data"

    @contextlib.asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Stopped while the block runs."""
        await asyncio.to_thread(self._stop)
        yield
        await asyncio.to_thread(self._start)

    def _stop(self) -> None:
        if self._etcd is None:
            self._made.namesrv.stop()
        else:
            self._etcd.members[0].kill()

    def _start(self) -> None:
        if self._etcd is None:
            self._made.start_namesrv(self._made.namesrv.address)
        else:
            self._etcd.start().wait()


@pytest.fixture(params=["embedded", "etcd"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Group, Records]]:
    """A group whose record may be lost or set back."""
    etcd = Etcd(tmp_path, 1).start().wait() if request.param == "etcd" else None
    try:
        with group(tmp_path, etcd.url if etcd else "") as members:
            yield members, Records(members, etcd)
    finally:
        if etcd is not None:
            etcd.stop()


@pytest.mark.long
def test_a_record_that_is_lost_begins_anew_by_order(recorded: tuple[Group, Records]) -> None:
    asyncio.run(_lost_record(*recorded))


async def _lost_record(made: Group, records: Records) -> None:
    async with case(made, "lost-record") as one:
        async with one.writing():
            async with records.down():
                shutil.rmtree(records.folder)
            await one.until_told("is not there", "restore it")
            await one.nobody_is_elected()
            words = ("broker", "promote", GROUP, "1", "--yes")
            said = await asyncio.to_thread(lambda: made.roquette(*words, code=1))
            (most,) = re.findall(r"broker (\d) has most", said.replace("\n", " "))
            await one.promote(int(most), "--accept-data-loss")
        await one.all_is_there()


@pytest.mark.long
def test_a_record_from_a_backup_elects_who_has_most(recorded: tuple[Group, Records]) -> None:
    asyncio.run(_old_record(*recorded))


async def _old_record(made: Group, records: Records) -> None:
    backup = made.folder / "records"
    async with case(made, "old-record") as one:
        async with records.down():
            shutil.copytree(records.folder, backup)
        behind = (await one.healthy()).master
        await asyncio.to_thread(made.end, behind)  # long out of step from now on
        await one.until(lambda state: behind not in state.in_step and state.master != 0)
        await one.write()
        last = (await look(one.client, made)).master
        for who in made.addresses.keys() - {behind, last}:
            await asyncio.to_thread(made.end, who)
        await asyncio.to_thread(made.end, last)
        async with records.down():
            shutil.rmtree(records.folder)
            backup.rename(records.folder)
        await asyncio.to_thread(made.start_all)
        await one.all_is_there()
        assert (await look(one.client, made)).epoch > NEW_EPOCHS
