"""A group of brokers that elect their master, in all the trouble one seed draws, and what must be true of it.

`python -m tests.simulation.group_chaos N [FIRST [KIND]]` runs N seeds, and tells the seed and the cause of what fails.
With the name of a kind of `group_chaos_kinds` nothing else befalls the group.
"""

import asyncio
import itertools
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from tests.simulation import group_chaos_kinds as kinds
from tests.simulation.group_chaos_books import (
    OPEN_WITH_USERS,
    POPPED,
    Pops,
    Tables,
    Wire,
    log_of,
    name_of,
    records_of,
)
from tests.simulation.group_chaos_check import LATE_S, TOPIC, check, ours
from tests.simulation.group_chaos_kinds import NAME_SERVERS  # the first keeps the record
from tests.simulation.group_chaos_later import Later
from tests.simulation.group_chaos_rot import Rot
from tests.simulation.group_chaos_stores import foreign_files
from tests.simulation.pop_chaos import Consumer

from roquette import StartFrom
from roquette.broker.replication.metadata_copy import MetadataCopy
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette.message.message import ReceivedMessage
from roquette.nameserver.controller import RegisterFile
from roquette.replication.effects import Role
from roquette.replication.record import GroupRecord, decode_record, record_key
from roquette.store.format.config import FlushDiskType
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import ext_dict
from roquette_testing.cluster import BROKER_PORT, SimCluster, simulate
from roquette_testing.faulty_files import FaultyFiles

MEMBERS = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
PRODUCERS = ("10.0.2.1", "10.0.2.2")
CONSUMERS = ("10.0.3.1", "10.0.3.2")
COMMITTER, POPPER = "10.0.4.1", "10.0.5.1"
NAME = "broker-a"
RETENTION: dict[str, Any] = {
    "segment_size": 64 << 10,
    "file_reserved_bytes": 384 << 10,
    "clean_interval_ms": 1_000,
}
KEY = record_key("DefaultCluster", NAME)
STORED = ("SEND_OK", "SLAVE_NOT_AVAILABLE")
NAMESRV_ADDR = ";".join(f"{ip}:9876" for ip in NAME_SERVERS)
DAMAGED = "the log is damaged"  # found by a member that changes its role: its process ends
CALM_S = 60.0  # all must be well so soon after the last fault
OFFSETS_S = 20.0  # of commits a take-over may forget so much, of the last before it
_R = RequestCode


class GroupChaos:
    """The scenario and its books. All is drawn from the seed of the cluster.

    Args:
        faults: how many. only: the one kind to draw, instead of all. shape: fixes what would be drawn: members, min, role, flush, rates, small, retention, lossy.
    """

    def __init__(self, faults: int = 10, only: str = "", **shape: Any) -> None:
        self.faults = faults
        self.only = only
        self.shape = shape
        self.wrong: list[str] = []
        self.acknowledged: dict[bytes, tuple[str, int, int]] = {}  # body: topic, queue, offset
        self.places: dict[bytes, tuple[float, int]] = {}  # body: when it was, and where in the log
        self.shown: dict[tuple[str, int, int], bytes] = {}  # to consumers
        self.consumed: dict[bytes, int] = {}
        self.commits: list[tuple[float, int]] = []
        self.confirmed = bytearray()  # of the log, whoever confirmed it
        self.looked_from = 0
        self.looked: dict[int, int] = {}  # by life of a member: how far `confirmed` was compared
        self.record = GroupRecord()
        self.changes = 0  # of the master
        self.answers = 0
        self.oldest_commit = 0.0  # that a take-over did not know
        self.left: list[Any] = []  # what is waited for
        self.producing = True
        self.busy: dict[str, None] = {}  # members that are being killed, stopped, started
        self.alive: dict[str, Any] = {}  # members, those that stop too
        self.ids: dict[str, int] = {}
        self.stores: dict[str, dict[str, Any]] = {}  # settings
        self.unsure: dict[str, None] = {}  # lost something, and the record does not say so yet
        self.deaf: dict[str, None] = {}  # cannot ask for tables
        self.wires: dict[tuple[Any, Any], WireConnection] = {}
        self.copies: dict[str, FaultyFiles] = {}  # of stores, as they were
        self.record_swapped = False
        self.clocks_off_ms = 0  # at most
        self.tables_late_s = 0.0
        self.operator: Client | None = None
        self.pops, self.later, self.tables = Pops(self), Later(self), Tables(self)
        self.rotten: dict[str, Rot] = {}  # damage under way, by member
        self.spoilt: set[bytes] = set()  # bodies of all that was ever damaged
        self.spoilt_places: set[tuple[str, int, int]] = set()
        self.lost_at = -1e9  # when somebody elected by order had forgotten something
        self._lossy_epoch = 0  # the newest that was looked at
        self.drawn: Counter[str] = Counter()

    # The world.

    async def __call__(self, cluster: SimCluster) -> None:
        self.cluster, self.loop = cluster, cluster.loop
        rng = self.loop.random
        self._draw(rng)
        await self._build(rng)
        works = [self._produce(ip, TOPIC) for ip in PRODUCERS]
        works += [self._produce("10.0.2.3", POPPED), self.later.run(), self.tables.run()]
        ending = len(works)
        works += [self._commit(), self._pop(), self._look(), kinds.operate(self)]
        tasks = [self.loop.create_task(work, name=f"work-{n}") for n, work in enumerate(works)]
        with self._deafness():
            try:
                await self._trouble(rng)
                await self._calm()
                self.producing = False
                await asyncio.gather(*tasks[:ending])
                await self.until(self._equal, "logs become equal", 20)
                await self.until(self._all_consumed, "all is consumed", 150)
                await check(self)
            finally:
                for task in tasks:
                    task.cancel()
        assert not self.wrong, self.wrong[:5]

    def _draw(self, rng: Random) -> None:
        draw: dict[str, Any] = {
            "members": rng.choice((2, 3, 3)),
            "min": rng.choice((1, 2)),
            "role": rng.choice(("SYNC_MASTER",) * 4 + ("ASYNC_MASTER",)),
            "flush": rng.choice((FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH)),
            "rates": rng.random() < 0.5,
            "small": rng.random() < 0.5,
            "retention": rng.random() < 0.2,
            "lossy": rng.random() < 0.1,
        }
        self.shape = draw = draw | self.shape
        self.members: tuple[str, ...] = MEMBERS[: draw["members"]]
        self.least: int = draw["min"]
        self.role: str = draw["role"]
        self.rates: bool = draw["rates"]
        self.lossy: bool = draw["lossy"]
        self.expires: bool = draw["retention"]  # old messages go
        store = {"flush_disk_type": draw["flush"]}
        if draw["small"]:
            store |= {"segment_size": 128 << 10}
        if draw["retention"]:
            store |= RETENTION
        self.stores = {ip: dict(store) for ip in self.members}
        self.ids = {ip: number for number, ip in enumerate(self.members, 1)}

    async def _build(self, rng: Random) -> None:
        cluster = self.cluster
        if self.rates:
            for ip in (*self.members, NAME_SERVERS[0]):
                cluster.set_rate(ip, rng.uniform(0.99, 1.01))
        cluster.access = OPEN_WITH_USERS
        await cluster.add_namesrv(NAME_SERVERS[0], controller="embedded")
        await cluster.add_namesrv(NAME_SERVERS[1])
        cluster.network.watch = self._sent
        self.total = len(self.members)
        for ip in self.members:
            await self.start(ip)
        await self.until(self._well, "the group begins", 30)
        for ip in CONSUMERS:
            mq = await self.client(ip)
            await mq.subscribe(TOPIC, group="push", handler=self._take, start_from=StartFrom.FIRST)

    async def start(self, ip: str) -> None:
        """A member, on its machine. Raises StoreError, ConfigError."""
        self.alive[ip] = await self.begin(ip, ip)

    async def begin(self, there: str, ip: str, **changes: Any) -> Any:
        """On a machine, the broker of a member."""
        host = self.cluster.host(there)
        host.process = self.loop.new_process(there)
        settings: dict[str, Any] = {
            "broker_id": self.ids[ip],
            "broker_role": self.role,
            "min_in_sync_replicas": self.least,
            "total_replicas": self.total,
            "namesrv_addr": NAMESRV_ADDR,
            "controller_addr": f"{NAME_SERVERS[0]}:9876",
            "transaction_time_out": 1_500,
            "transaction_check_interval": 1_000,
            "transaction_check_max": 200,  # with the interval: a producer may be away for longer than 15 s
        }
        return await self.cluster.add_member(
            there, NAME, store=self.stores[ip], **settings | changes
        )

    async def client(self, ip: str, **settings: Any) -> Client:
        """A client, which may begin while a name server is down."""
        return await self.cluster.client(ip, name_servers=NAMESRV_ADDR, **settings)

    @contextmanager
    def _deafness(self) -> Iterator[None]:
        ask = MetadataCopy._ask

        async def asked(copy: Any, *args: Any) -> Any:
            if copy._core.address.host in self.deaf:
                raise ClientError("it cannot ask")
            return await ask(copy, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MetadataCopy, "_ask", asked)
            yield

    @property
    def now(self) -> float:
        return self.loop.now

    def where(self) -> str:
        """Where the master is, as far as the record says."""
        place = self.newest().places.get(self.record.master)
        ip = place.address.partition(":")[0] if place else ""
        # The record may still have the machine on which somebody began under a member's id.
        return ip if ip in self.ids else self.loop.random.choice(self.members)

    def member(self, ip: str) -> Any:
        host = self.cluster.hosts[ip]
        return host.service if ip not in self.busy else None

    def newest(self) -> GroupRecord:
        service = self.cluster.hosts[NAME_SERVERS[0]].service
        file = service._registers if service is not None else None
        if isinstance(file, RegisterFile) and KEY in file._table:
            record = decode_record(file._table[KEY].value)
            assert record.number >= self.record.number, "the record went back"
            if record.epoch != self.record.epoch:
                self.changes += 1
                self.tables.taken_over(OFFSETS_S + self.tables_late_s)
            self.record = record
            for ip in [ip for ip in self.unsure if ip not in self.busy]:
                if record.stores.get(self.ids[ip]) == self.alive[ip].table._own.entry:
                    del self.unsure[ip]
            if record.lossy_epoch > self._lossy_epoch:
                self._look_for_losses()
        return self.record

    def forget_record(self) -> None:
        """What the controller has is another one from now on."""
        self.record = GroupRecord()

    def _look_for_losses(self) -> None:
        """Somebody is master by an order that accepts losses: in worlds without losses it must have all."""
        record = self.record
        ip = next((ip for ip, who in self.ids.items() if who == record.master), "")
        member = self.alive.get(ip)
        if member is None or not member.is_master or member.broker is None or ip in self.rotten:
            return
        self._lossy_epoch = record.lossy_epoch
        store = member.broker.store
        log = records_of(store, store.min_physical_offset, store.wrote, ours)
        kept = {(r.topic, r.queue_id, r.queue_offset): name_of(r.body) for r in log}
        lost = [
            body
            for body, place in self.acknowledged.items()
            if kept.get(place) != body and self.places[body][1] >= store.min_physical_offset
        ]
        if lost and self.role == "SYNC_MASTER" and not self.lossy:
            self.wrong.append(f"the one with most lacks {lost[:3]} at {self.now}: {record}")
        if self.lossy:
            self.drawn["lost by order"] += len(lost)
            self.lost_at = self.now
            for body in lost:
                del self.acknowledged[body]
            self.shown.clear()
            self.commits.clear()
            self.tables.unsure |= {*self.tables.made}

    # What everybody does.

    async def _produce(self, ip: str, topic: str) -> None:
        """Each body once: one whose answer was lost may be there or not."""
        mq = await self.client(ip, send_attempts=1)
        rng = self.loop.random
        for number in itertools.count():
            if not self.producing:
                return
            key = f"k{rng.randrange(6)}"
            body = f"{ip}-{key}-{number}-".encode()
            try:
                receipt = await mq.send(topic, body + b"x" * rng.randrange(1500), shard_key=key)
            except ClientError:
                await asyncio.sleep(rng.uniform(0.02, 0.3))
                continue
            if receipt.status in STORED:
                self.acknowledged[body] = (topic, receipt.queue.queue_id, receipt.queue_offset)
                self.places[body] = self.now, int(receipt.offset_message_id[16:], 16)
                if topic == POPPED:
                    self.pops.sent.add(body)
            pauses = (
                (rng.uniform(0.0, 0.3),) if topic == POPPED else (0.0, 0.0, rng.uniform(0.0, 0.3))
            )
            await asyncio.sleep(rng.choice(pauses))

    async def _take(self, message: ReceivedMessage) -> None:
        body = name_of(message.body)
        self.show(TOPIC, message.queue.queue_id, message.queue_offset, body)
        self.consumed[body] = self.consumed.get(body, 0) + 1

    def show(self, topic: str, queue: int, offset: int, body: bytes) -> None:
        if self.lost_at >= 0 and self.now < self.lost_at + LATE_S:
            return  # what is still under way, of what was lost by order
        if (topic, queue, offset) in self.spoilt_places:
            return  # nobody compares a body with its CRC at each read
        known = self.shown.setdefault((topic, queue, offset), body)
        if known != body:
            self.wrong.append(f"{topic}/{queue}/{offset} was {known!r}, is {body!r} at {self.now}")

    def _sent(self, here: Any, there: Any, data: bytes) -> None:
        """A broker answers a producer: may it?"""
        if here[1] != BROKER_PORT or not there[0].startswith("10.0.2."):
            return
        for answer in self.wires.setdefault((here, there), WireConnection()).receive_data(data):
            ok = answer.code in (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)
            if ok and "queueOffset" in ext_dict(answer.ext):
                self.answers += 1
                table, record = self.alive[here[0]].table, self.newest()
                self._check_copies(here[0], answer)
                if (record.epoch, record.master) != (table.epoch, table.me):
                    self.wrong.append(
                        f"broker {table.me} answers in epoch {table.epoch} at {self.now}; the record has "
                        f"{record.epoch} and master {record.master}"
                    )

    def _check_copies(self, ip: str, answer: Any) -> None:
        """SEND_OK of a SYNC_MASTER: another one has the message. Those that are down now may have had it."""
        if self.role != "SYNC_MASTER" or answer.code != 0:
            return
        place = int(ext_dict(answer.ext)["msgId"][16:], 16)
        others = [other for other in self.members if other != ip]
        if any(other in self.busy or self.alive[other].own_end() > place for other in others):
            return
        self.wrong.append(f"SEND_OK for what nobody else has at {self.now}: {place}")

    async def _commit(self) -> None:
        """A consumer that commits the end of a queue again and again, and asks what is known of it."""
        wire = Wire(self, COMMITTER)
        where = {"topic": TOPIC, "queueId": 0}
        mine = where | {"consumerGroup": "g"}  # a group that POP has made, of another topic
        while True:
            await asyncio.sleep(self.loop.random.uniform(0.05, 0.5))
            try:
                asked = self.now
                known = await wire.call(_R.QUERY_CONSUMER_OFFSET, mine)
                end = await wire.call(_R.GET_MAX_OFFSET, where)
                found = int(ext_dict(known.ext)["offset"]) if known.code == 0 else 0
                # A replica serves its own offsets; of one that is being started we know only what it was before.
                if wire.ip in self.busy or not self.alive[wire.ip].is_master:
                    raise OSError("not the master")
                if end.code != 0 or known.code not in (0, ResponseCode.QUERY_NOT_FOUND):
                    raise OSError("not the master")
                self._check_offset(asked, found)
                if found > int(ext_dict(end.ext)["offset"]):
                    self.wrong.append(
                        f"a committed offset of {found} is beyond the end {end.ext!r}"
                    )
                mark = max(found, int(ext_dict(end.ext)["offset"]))
                done = await wire.call(_R.UPDATE_CONSUMER_OFFSET, mine | {"commitOffset": mark})
                if done.code == 0 and self.alive[wire.ip].is_master:
                    self.commits.append((self.now, mark))
            except (OSError, TimeoutError):
                wire.close()
                await asyncio.sleep(0.2)

    def _check_offset(self, asked: float, found: int) -> None:
        lost = [at for at, mark in self.commits if mark > found and at < asked]
        if lost:
            span = self.commits[-1][0] - lost[0]
            self.oldest_commit = max(self.oldest_commit, span)
            if span > OFFSETS_S + self.tables_late_s and self.role == "SYNC_MASTER":
                self.wrong.append(f"commits of {span} s are not known at {asked}: {found}")
            self.commits.clear()

    async def _pop(self) -> None:
        rng = self.loop.random
        while True:
            consumer = Consumer(self.cluster, self.pops)
            task = self.loop.create_task(self.cluster.run_on(POPPER, consumer.run()))
            await asyncio.sleep(rng.uniform(3, 15) if self.producing else 100)
            task.cancel()
            consumer.close()
            await asyncio.sleep(rng.uniform(0, 1))

    async def _look(self) -> None:
        """What is confirmed is the same for ever, whoever shows it."""
        while True:
            await asyncio.sleep(self.loop.random.uniform(0.05, 0.2))
            self.newest()
            for ip in self.members:
                self._compare(ip)

    def _compare(self, ip: str) -> None:
        member = self.member(ip)
        broker = member.broker if member is not None else None
        if broker is None or not hasattr(broker, "store") or self.lost_at >= 0:
            return
        if ip in self.rotten and DAMAGED in (member.failure or ""):
            self.loop.create_task(kinds.supervised(self, ip))
        elif member.failure is not None and not self.wrong:
            self.wrong.append(f"broker {member.id} has failed: {member.failure}")
        store = broker.store
        if ip in self.rotten and self.rotten[ip].is_over(store):
            del self.rotten[ip]
        start, end = self.looked.get(id(broker), 0), min(store.confirmed, store.wrote)
        start = max(start, store.min_physical_offset)
        if store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:  # readers see no more
            end = min(end, store.synced_offset)
        if end <= start:
            return
        self.looked[id(broker)] = end
        self.looked.setdefault(-id(broker), broker)  # no other gets its id
        start = max(start, self.looked_from)
        data = log_of(store, start, end)
        if ip in self.rotten:
            data = self.rotten[ip].mended(data, start)
        known = bytes(self.confirmed[start:end])
        if data[: len(known)] != known:
            at = next(n for n in range(len(known)) if data[n : n + 1] != known[n : n + 1])
            self.wrong.append(f"broker {member.id} shows other bytes at {start + at} at {self.now}")
        if end > len(self.confirmed):
            if start > len(self.confirmed):  # what lay before has expired, unseen
                self.looked_from = start
                self.confirmed += bytes(start - len(self.confirmed))
            self.confirmed += data[len(known) :]

    # Trouble.

    async def _trouble(self, rng: Random) -> None:
        tasks = []
        for _ in range(self.faults):
            await asyncio.sleep(rng.uniform(0.2, 6))
            assert not self.wrong, self.wrong[:5]
            tasks.append(self.loop.create_task(self._fault(rng)))
        await asyncio.gather(*tasks)
        self.cluster.heal()
        for ip in self.members:
            self.cluster.slow_disk(ip, 0)

    async def _fault(self, rng: Random) -> None:
        ip = self.where() if rng.random() < 0.5 else rng.choice(self.members)
        name = self.only or kinds.draw(rng)
        self.loop.trace("fault", name, ip)
        if await kinds.KINDS[name].befall(self, ip, rng):
            self.drawn[name] += 1

    def files(self, ip: str) -> FaultyFiles:
        """Of a machine."""
        return self.cluster.hosts[ip].files

    def swap(self, ip: str, files: FaultyFiles) -> None:
        """Another disk, or other things on it."""
        self.cluster.hosts[ip].files = files
        self.unsure[ip] = None
        self.rotten.pop(ip, None)

    def elsewhere(self, ip: str) -> str:
        """A machine for a second one of this id."""
        return f"10.0.6.{self.ids[ip]}"

    @property
    def clients(self) -> tuple[str, ...]:
        return (*PRODUCERS, COMMITTER)

    def syncs(self, ip: str) -> bool:
        """Does this member run under SYNC_FLUSH?"""
        return self.stores[ip]["flush_disk_type"] is FlushDiskType.SYNC_FLUSH

    def spare(self, ip: str) -> bool:
        """Is another one up of which the record is sure that it has all?"""
        record = self.newest()
        sure = {*record.members} - {*record.doubtful, self.ids[ip]}
        up = {
            self.ids[each]
            for each in self.members
            if each not in self.busy | self.unsure | self.rotten
        }
        return NAME_SERVERS[0] not in self.busy and bool(sure & up)

    def may_lose(self, ip: str) -> bool:
        """May this machine lose power? Under ASYNC_FLUSH one at a time: another one of the set has all that was
        acknowledged."""
        alone = {*self.newest().members} == {self.ids[ip]}
        down = any(each in self.busy for each in self.members if each != ip)
        return self.syncs(ip) or (self.spare(ip) and not (alone or down or self.record.doubtful))

    def stuck(self) -> bool:
        """Is everything up, nobody master, and does everybody say why?"""
        if NAME_SERVERS[0] in self.busy or any(ip in self.busy for ip in self.members):
            return False
        alive = [self.alive[ip] for ip in self.members]
        return not any(member.table.role is Role.MASTER for member in alive) and all(
            member.table.trouble for member in alive
        )

    def has(self, ip: str) -> tuple[int, int, int]:
        """How much of the group's log a member has, by its marks; of those that have nothing, who was in the group."""
        marks, end = self.alive[ip].marks, self.alive[ip].own_end()
        return marks.written(end), end, marks.last_epoch

    # Afterwards.

    async def until(self, condition: Any, what: str, within_s: float) -> None:
        began = self.now
        while not condition():
            assert not self.wrong, self.wrong[:5]
            assert self.now - began < within_s, f"{what}: not within {within_s} s: {self._state()}"
            await asyncio.sleep(0.05)

    def _state(self) -> str:
        return f"{self.newest()} {kinds.state(self)} {self.left[:5]}"

    def _well(self) -> bool:
        record = self.newest()
        return (
            record.master > 0 and len(record.members) == len(self.members) and not record.doubtful
        )

    async def _calm(self) -> None:
        """The group is whole again, and goes on."""
        had = len(self.acknowledged)
        await self.until(self._well, "the set is full", CALM_S)
        await self.until(lambda: not self.rotten, "what has rotted is mended", CALM_S)
        await self.until(lambda: len(self.acknowledged) > had + 10, "messages are taken", CALM_S)

    def stores_open(self) -> list[Any]:
        members = [self.member(ip) for ip in self.members]
        return [member.broker.store for member in members if member.broker is not None]

    def _equal(self) -> bool:
        stores = self.stores_open()
        begin = max((s.min_physical_offset for s in stores), default=0)
        logs = [log_of(s, begin, s.wrote) for s in stores]
        confirmed = {min(s.confirmed, s.wrote) for s in stores}
        return len(stores) == len(self.members) and len(set(logs)) == len(confirmed) == 1

    def _all_consumed(self) -> bool:
        if self.role != "SYNC_MASTER" or self.lost_at >= 0:
            return True
        mine = [body for body, (topic, _, _) in self.acknowledged.items() if topic == TOPIC]
        self.left = [body for body in mine if body not in self.consumed]
        self.left += sorted(self.pops.sent - self.pops.finished)
        begin = max((store.min_physical_offset for store in self.stores_open()), default=0)
        self.left = [body for body in self.left if self.places[body][1] >= begin]
        self.left = [body for body in self.left if body not in self.spoilt]
        if not self.expires:
            self.left += [body for body in self.later.left() if body not in self.spoilt]
        return not self.left


def run_seed(seed: int, **settings: Any) -> GroupChaos:
    """One seed; raises AssertionError with the cause."""
    world = GroupChaos(**settings)
    for size in (64 << 10, 128 << 10, 1 << 20):
        foreign_files(size)  # in no world yet
    try:
        simulate(world, seed)
    except BaseException as error:
        error.add_note(f"seed {seed} {world.shape}")
        raise
    return world


def main(count: int, first: int, only: str) -> int:
    """Run seeds; returns how many failed."""
    failed = 0
    began = time.process_time()
    changes = messages = 0
    drawn: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            world = run_seed(seed, only=only)
            changes, messages = changes + world.changes, messages + len(world.acknowledged)
            drawn += world.drawn
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = "".join(traceback.format_exception_only(error))[:1500]
            print(f"seed {seed} {where.name}:{where.lineno} {told}", flush=True)
        done = seed - first + 1
        if done % 10 == 0 or done == count:
            spent = time.process_time() - began
            print(
                f"{done} seeds, {failed} failed, {spent / done:.2f} s CPU each, {changes} elections, "
                f"{messages} acknowledged, {dict(sorted(drawn.items()))}", flush=True,
            )  # fmt: skip
    return failed


if __name__ == "__main__":
    count, first, only = (*sys.argv[1:], *("1", "1", "")[len(sys.argv) - 1 :])
    sys.exit(main(int(count), int(first), only) > 0)
