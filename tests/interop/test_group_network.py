"""A real group on a network that stalls and cuts, and on a disk that somebody else keeps busy."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.etcd import Etcd
from tests.interop.take_over import (
    HEALTHY_S,
    Books,
    Group,
    healthy,
    kill_masters,
    look,
    need_topic,
    running,
    until_resumed,
    writers,
)
from tests.interop.wires import Wire
from tests.real_servers import RawConnection, send_fields

from roquette import Client
from roquette.wire.codes import STORED_CODES

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

QUICK_S = 20  # see test_take_over.py


class WiredGroup(Group):
    """Each member has a loopback address of its own, where wires lead to it, and to the record for it.

    Attributes:
        doors: to a member's replication port. records: from a member to the record.
    """

    def __init__(self, folder: Path, etcd: Etcd) -> None:
        super().__init__(folder, etcd.url)
        self.doors: dict[int, Wire] = {}
        self.records: dict[int, list[Wire]] = {}
        self._wires: list[Wire] = []
        for who, address in self.addresses.items():
            port = int(address.rpartition(":")[2])
            self._wire(who, port)
            self.doors[who] = self._wire(who, port + 1)
            self.records[who] = [self._wire(who, member.port) for member in etcd.members]

    def _wire(self, who: int, port: int) -> Wire:
        wire = Wire((f"127.0.0.{who + 10}", port), ("127.0.0.1", port))
        self._wires.append(wire)
        return wire

    def settings(self, who: int) -> dict[str, str]:
        host = f"127.0.0.{who + 10}"
        record = self.controller.replace("127.0.0.1", host)
        return super().settings(who) | {"brokerIP1": host, "controllerAddr": record}

    def heal(self) -> None:
        """All wires pass again."""
        for wire in self._wires:
            wire.heal()

    def stop(self) -> None:
        self.heal()
        super().stop()
        for wire in self._wires:
            wire.close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """Three members of etcd."""
    members = Etcd(tmp_path_factory.mktemp("etcd"), 3)
    try:
        yield members.start().wait()
    finally:
        members.stop()


@pytest.fixture(scope="module")
def made(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredGroup]:
    """Three members."""
    members = WiredGroup(tmp_path_factory.mktemp("group"), etcd)
    with running(members):
        yield members


class Asker(threading.Thread):
    """Sends to one broker, whatever the routes say; what it is promised goes into the books.

    Attributes:
        stored: when those messages were sent that the broker says it has stored.
        promised: of those with SEND_OK also when the answer came.
    """

    def __init__(self, address: str, books: Books) -> None:
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._books = books
        self._ended = threading.Event()
        self.stored: list[float] = []
        self.promised: list[tuple[float, float]] = []

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            with (
                contextlib.suppress(OSError, EOFError),
                RawConnection(self._address, 1.0) as connection,
            ):
                while not self._ended.wait(0.01):
                    body = f"raw{number}-0".encode()  # each is sent once
                    number += 1
                    sent = time.monotonic()
                    head, _ = connection.call(310, send_fields(self._books.topic, 0), body)
                    if head["code"] in STORED_CODES:
                        self.stored.append(sent)
                    if head["code"] == 0:
                        self.promised.append((sent, time.monotonic()))
                        offset = int(head["extFields"]["queueOffset"])
                        self._books.promise(0, offset, body)

    def end(self) -> None:
        """Send no more."""
        self._ended.set()
        self.join(10)


async def cut_from_the_record(made: WiredGroup, how: str, topic: str) -> tuple[float, float]:
    """The master does not reach etcd, and all else reaches it: it acknowledges nothing after its lease.

    Returns seconds from then to when the last message was sent that it acknowledged, and to another one's first.
    """
    books = Books(topic)
    async with Client(made.namesrv.address) as client:
        old = (await healthy(client, made)).master
        queues = await need_topic(client, made, topic)
        asker = Asker(made.addresses[old], books)
        with writers(client, books, queues):
            await until_resumed(books, time.monotonic(), made)
            asker.start()
            while not asker.stored:
                await asyncio.sleep(0.01)
            since = time.monotonic()
            try:
                for wire in made.records[old]:
                    getattr(wire, how)()
                while (state := await look(client, made)).master in (0, old):
                    assert time.monotonic() < since + HEALTHY_S, made.tails()
                    await asyncio.sleep(0.02)
                elected = time.monotonic()
                resumed = elected - since + await until_resumed(books, elected, made)
                await asyncio.sleep(1)
                assert asker.is_alive() and max(asker.stored) < elected
            finally:
                await asyncio.to_thread(asker.end)
                made.heal()
            assert (await healthy(client, made)).master == state.master
        await asyncio.to_thread(books.check, made.addresses[state.master])
    return max(asker.stored) - since, resumed


async def no_replica_is_reached(made: WiredGroup, how: str, seconds: float, topic: str) -> None:
    """The master's replicas hear nothing for so long: nothing is promised meanwhile, and nobody else stands."""
    books = Books(topic)
    async with Client(made.namesrv.address) as client:
        before = await healthy(client, made)
        queues = await need_topic(client, made, topic)
        asker = Asker(made.addresses[before.master], books)
        with writers(client, books, queues):
            await until_resumed(books, time.monotonic(), made)
            asker.start()
            cut = time.monotonic()
            getattr(made.doors[before.master], how)()
            try:
                while (await look(client, made)).in_step != [before.master]:
                    assert time.monotonic() < cut + HEALTHY_S, made.tails()
                    await asyncio.sleep(0.05)
                alone = time.monotonic()
                await asyncio.sleep(seconds)
                healed = time.monotonic()
            finally:
                made.heal()
                await asyncio.to_thread(asker.end)
            wrong = [one for one in asker.promised if one[0] > alone and one[1] < healed]
            assert asker.is_alive() is False and not wrong, (
                "promised, and nobody else has it",
                wrong,
            )
            await until_resumed(books, time.monotonic(), made)
            after = await healthy(client, made)
        await asyncio.to_thread(books.check, made.addresses[after.master])
    assert (after.epoch, after.master) == (before.epoch, before.master)


async def the_other_replica_takes_over(made: WiredGroup, topic: str) -> float:
    """One replica's connection stalls, then the master is killed: the other one is elected, which has all."""
    books = Books(topic)
    async with Client(made.namesrv.address) as client:
        old = (await healthy(client, made)).master
        queues = await need_topic(client, made, topic)
        with writers(client, books, queues):
            await until_resumed(books, time.monotonic(), made)
            began = time.monotonic()
            made.doors[old].stall_one()
            while len(members := (await look(client, made)).in_step) != 2:
                assert time.monotonic() < began + HEALTHY_S, made.tails()
                await asyncio.sleep(0.05)
            await until_resumed(books, time.monotonic(), made)
            since = time.monotonic()
            made.kill(old)
            while (state := await look(client, made)).master in (0, old):
                assert time.monotonic() < since + HEALTHY_S, made.tails()
                await asyncio.sleep(0.05)
            assert state.master in members
            took = await until_resumed(books, since, made)
            made.heal()
            await asyncio.to_thread(made.start, old)
            state = await healthy(client, made)
        await asyncio.to_thread(books.check, made.addresses[state.master])
    return took


@contextlib.contextmanager
def busy_disk(folder: Path, writers_: int = 3) -> Iterator[None]:
    """Somebody writes and syncs all the time where the brokers' stores are."""
    ended = threading.Event()

    def work(number: int) -> None:
        data = os.urandom(1 << 20)
        with (folder / f"busy{number}").open("wb", buffering=0) as file:
            while not ended.is_set():
                file.seek(0)
                for _ in range(16):
                    file.write(data)
                os.fsync(file.fileno())

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(writers_)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.promise("Groups of brokers", "the master is cut off from the record, or stands still")
@pytest.mark.parametrize("how", ["stall", pytest.param("cut", marks=pytest.mark.long)])
def test_a_master_that_does_not_reach_the_record_stops_in_time(made: WiredGroup, how: str) -> None:
    last, resumed = asyncio.run(cut_from_the_record(made, how, f"record-{how}"))
    print(
        f"{how}: the last acknowledgement after {last:.2f} s, another one's after {resumed:.2f} s"
    )
    assert last < resumed < QUICK_S


@pytest.mark.parametrize(
    ("how", "seconds"),
    [("stall", 2), *(pytest.param(w, 10, marks=pytest.mark.long) for w in ("stall", "cut"))],
)
def test_no_promise_and_no_election_while_replicas_are_cut_off(
    made: WiredGroup, how: str, seconds: int
) -> None:
    asyncio.run(no_replica_is_reached(made, how, seconds, f"door-{how}-{seconds}"))


def test_a_replica_that_was_cut_off_is_not_elected(made: WiredGroup) -> None:
    took = asyncio.run(the_other_replica_takes_over(made, "one"))
    print(f"writes after {took:.2f} s")
    assert took < QUICK_S


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.long)])
def test_a_take_over_on_a_busy_disk(made: WiredGroup, kills: int) -> None:
    with busy_disk(made.folder):
        report = asyncio.run(kill_masters(made, kills, topic=f"busy-{kills}"))
    print("\n".join(report.lines()))
    assert max(report.ours) < QUICK_S
