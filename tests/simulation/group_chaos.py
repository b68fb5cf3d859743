"""A group of brokers that elect their master, in all the trouble one seed draws, and what must be true of it.

`python -m tests.simulation.group_chaos N [FIRST]` runs N seeds, and tells the seed and the cause of what fails.
"""

import asyncio
import itertools
import sys
import time
import traceback
from collections import Counter
from random import Random
from typing import Any

from tests.broker.pop_frames import Popped
from tests.simulation.pop_chaos import Consumer, PopChaos

from roquette import StartFrom
from roquette.errors import ClientError
from roquette.message.message import ReceivedMessage
from roquette.message.record import decode_records
from roquette.nameserver.controller.register_file import RegisterFile
from roquette.replication.record import GroupRecord, decode_record, record_key
from roquette.store.config import FlushDiskType
from roquette.testing.cluster import BROKER_PORT, SimCluster, simulate
from roquette.testing.faulty_files import FaultyFiles
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.connection import Connection
from roquette.wire.header_codec import encode_dict, ext_dict

NAME_SERVERS = ("10.0.0.1", "10.0.0.2")  # the first keeps the record
MEMBERS = ("10.0.1.1", "10.0.1.2", "10.0.1.3")
PRODUCERS = ("10.0.2.1", "10.0.2.2")
CONSUMERS = ("10.0.3.1", "10.0.3.2")
COMMITTER, POPPER = "10.0.4.1", "10.0.5.1"
NAME, TOPIC, POPPED = "broker-a", "orders", "pops"
KEY = record_key("DefaultCluster", NAME)
STORED = ("SEND_OK", "SLAVE_NOT_AVAILABLE")
CALM_S = 60.0  # all must be well so soon after the last fault
OFFSETS_S = 20.0  # of commits a take-over may forget so much, of the last before it
_R = RequestCode


class Pops(PopChaos):
    """The books of POP; the group is whom to ask."""

    topic = POPPED
    not_master = (
        ResponseCode.NO_PERMISSION,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )

    def __init__(self, world: "GroupChaos") -> None:
        super().__init__(messages=0)
        self.world = world

    def broker(self) -> str:
        return self.world.where()

    def take(self, message: Popped, now_ms: int) -> None:
        message.body = _name_of(message.body)
        record = message.record
        if message.receipt.split(" ")[4] == "0":  # not from a retry topic
            self.world.show(POPPED, record.queue_id, record.queue_offset, message.body)
        super().take(message, now_ms)

    def early_ms(self, now_ms: int) -> int:
        """Clocks run 1 % off for as long as the world lasts."""
        return 20 + int(self.world.now * 20)


class GroupChaos:
    """The scenario and its books. All is drawn from the seed of the cluster.

    Args:
        faults: how many. shape: fixes what would be drawn: members, min, role, flush, rates, small.
    """

    def __init__(self, faults: int = 10, **shape: Any) -> None:
        self.faults = faults
        self.shape = shape
        self.wrong: list[str] = []
        self.acknowledged: dict[bytes, tuple[str, int, int]] = {}  # body: topic, queue, offset
        self.shown: dict[tuple[str, int, int], bytes] = {}  # to consumers
        self.consumed: dict[bytes, int] = {}
        self.commits: list[tuple[float, int]] = []
        self.confirmed = bytearray()  # of the log, whoever confirmed it
        self.looked: dict[int, int] = {}  # by life of a member: how far `confirmed` was compared
        self.record = GroupRecord()
        self.changes = 0  # of the master
        self.answers = 0
        self.oldest_commit = 0.0  # that a take-over did not know
        self.left: list[bytes] = []  # not consumed
        self.producing = True
        self.busy: dict[str, None] = {}  # members that are being killed, stopped, started
        self.alive: dict[str, Any] = {}  # members, those that stop too
        self.wires: dict[tuple[Any, Any], Connection] = {}
        self.copies: dict[str, FaultyFiles] = {}  # of stores, as they were
        self.drawn: Counter[str] = Counter()

    # The world.

    async def __call__(self, cluster: SimCluster) -> None:
        self.cluster, self.loop = cluster, cluster.loop
        rng = self.loop.random
        self._draw(rng)
        await self._build(rng)
        self.pops = Pops(self)
        works = [self._produce(ip, TOPIC) for ip in PRODUCERS]
        works += [self._produce("10.0.2.3", POPPED), self._commit(), self._pop(), self._look()]
        tasks = [self.loop.create_task(work, name=f"work-{n}") for n, work in enumerate(works)]
        await self._trouble(rng)
        try:
            await self._calm()
            self.producing = False
            await asyncio.gather(*tasks[:3])
            await self._until(self._equal, "logs become equal", 20)
            await self._until(self._all_consumed, "all is consumed", 150)
            await self._check()
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
        }
        self.shape = draw = draw | self.shape
        self.members = MEMBERS[: draw["members"]]
        self.least: int = draw["min"]
        self.role: str = draw["role"]
        self.sync_flush = draw["flush"] is FlushDiskType.SYNC_FLUSH
        self.rates: bool = draw["rates"]
        self.store = {"flush_disk_type": draw["flush"]}
        if draw["small"]:
            self.store |= {"segment_size": 128 << 10}

    async def _build(self, rng: Random) -> None:
        cluster = self.cluster
        if self.rates:
            for ip in (*self.members, NAME_SERVERS[0]):
                cluster.set_rate(ip, rng.uniform(0.99, 1.01))
        await cluster.add_namesrv(NAME_SERVERS[0], controller="embedded")
        await cluster.add_namesrv(NAME_SERVERS[1])
        cluster.network.watch = self._sent
        for number, ip in enumerate(self.members):
            self.alive[ip] = await cluster.add_member(
                ip, NAME, store=self.store, broker_id=number + 1, broker_role=self.role,
                min_in_sync_replicas=self.least, total_replicas=len(self.members),
            )  # fmt: skip
        await self._until(self._well, "the group begins", 30)
        for ip in CONSUMERS:
            mq = await cluster.client(ip)
            await mq.subscribe(TOPIC, group="push", handler=self._take, start_from=StartFrom.FIRST)

    @property
    def now(self) -> float:
        return self.loop.now

    def where(self) -> str:
        """Where the master is, as far as the record says."""
        place = self._newest().places.get(self.record.master)
        return place.address.partition(":")[0] if place else self.loop.random.choice(self.members)

    def member(self, ip: str) -> Any:
        host = self.cluster.hosts[ip]
        return host.service if ip not in self.busy else None

    def _newest(self) -> GroupRecord:
        service = self.cluster.hosts[NAME_SERVERS[0]].service
        file = service._registers if service is not None else None
        if isinstance(file, RegisterFile) and KEY in file._table:
            record = decode_record(file._table[KEY].value)
            assert record.number >= self.record.number, "the record went back"
            self.changes += record.epoch != self.record.epoch
            self.record = record
        return self.record

    # What everybody does.

    async def _produce(self, ip: str, topic: str) -> None:
        """Each body once: one whose answer was lost may be there or not."""
        mq = await self.cluster.client(ip, send_attempts=1)
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
                if topic == POPPED:
                    self.pops.sent.add(body)
            pauses = (
                (rng.uniform(0.0, 0.3),) if topic == POPPED else (0.0, 0.0, rng.uniform(0.0, 0.3))
            )
            await asyncio.sleep(rng.choice(pauses))

    async def _take(self, message: ReceivedMessage) -> None:
        body = _name_of(message.body)
        self.show(TOPIC, message.queue.queue_id, message.queue_offset, body)
        self.consumed[body] = self.consumed.get(body, 0) + 1

    def show(self, topic: str, queue: int, offset: int, body: bytes) -> None:
        known = self.shown.setdefault((topic, queue, offset), body)
        if known != body:
            self.wrong.append(f"{topic}/{queue}/{offset} was {known!r}, is {body!r} at {self.now}")

    def _sent(self, here: Any, there: Any, data: bytes) -> None:
        """A broker answers a producer: may it?"""
        if here[1] != BROKER_PORT or not there[0].startswith("10.0.2."):
            return
        for answer in self.wires.setdefault((here, there), Connection()).receive_data(data):
            ok = answer.code in (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)
            if ok and "queueOffset" in ext_dict(answer.ext):
                self.answers += 1
                table, record = self.alive[here[0]].table, self._newest()
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
        wire = Wire(self)
        where = {"topic": TOPIC, "queueId": 0}
        mine = where | {"consumerGroup": "g"}  # a group that POP has made, of another topic
        while True:
            await asyncio.sleep(self.loop.random.uniform(0.05, 0.5))
            try:
                asked = self.now
                known = await wire.call(_R.QUERY_CONSUMER_OFFSET, mine)
                end = await wire.call(_R.GET_MAX_OFFSET, where)
                found = int(ext_dict(known.ext)["offset"]) if known.code == 0 else 0
                if not self.alive[wire.ip].is_master:  # a replica serves its own offsets
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
            if span > OFFSETS_S and self.role == "SYNC_MASTER":
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
            self._newest()
            for ip in self.members:
                self._compare(self.member(ip))

    def _compare(self, member: Any) -> None:
        broker = member.broker if member is not None else None
        if broker is None or not hasattr(broker, "store"):
            return
        if member.failure is not None and not self.wrong:
            self.wrong.append(f"broker {member.id} has failed: {member.failure}")
        store = broker.store
        start, end = self.looked.get(id(broker), 0), min(store.confirmed, store.wrote)
        if self.sync_flush:  # readers see no more
            end = min(end, store.synced_offset)
        if end <= start:
            return
        self.looked[id(broker)] = end
        self.looked.setdefault(-id(broker), broker)  # no other gets its id
        data = _log_of(store, start, end)
        known = bytes(self.confirmed[start:end])
        if data[: len(known)] != known:
            at = next(n for n in range(len(known)) if data[n : n + 1] != known[n : n + 1])
            self.wrong.append(f"broker {member.id} shows other bytes at {start + at} at {self.now}")
        if end > len(self.confirmed):
            assert start + len(known) == len(self.confirmed)
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
        cluster = self.cluster
        master = self.where()
        ip = master if rng.random() < 0.5 else rng.choice(self.members)
        kind = rng.choice(
            ("kill", "kill", "power", "power", "pause", "pause", "stop", "isolate", "cut", "cut", "way", "way",
             "namesrv", "disk", "reset", "new disk", "old copy")
        )  # fmt: skip
        other = rng.choice((*self.members, NAME_SERVERS[0], NAME_SERVERS[0], *PRODUCERS, COMMITTER))
        self.loop.trace("fault", kind, ip, other)
        self.drawn[kind] += 1
        if kind in ("kill", "power", "stop", "new disk", "old copy"):
            await self._end(kind, ip, rng)
        elif kind == "pause":
            if ip not in self.busy:
                cluster.pause(ip, rng.uniform(0.2, 8))
        elif kind == "namesrv":
            host = rng.choice(NAME_SERVERS)
            if host not in self.busy:
                self.busy[host] = None
                self._newest()
                cluster.kill(host, power_loss=rng.random() < 0.5)
                await asyncio.sleep(rng.uniform(0, 4))
                await cluster.restart(host)
                del self.busy[host]
        elif kind == "disk":
            cluster.slow_disk(ip, rng.uniform(0.02, 1.5))
            await asyncio.sleep(rng.uniform(1, 10))
            cluster.slow_disk(ip, 0)
        elif kind == "reset":
            cluster.reset(ip)
        elif kind == "isolate":
            cluster.isolate(ip)
            await asyncio.sleep(rng.uniform(0.5, 10))
            cluster.network.heal(ip)
        elif ip != other:
            ways = [(ip, other), (other, ip)]
            if kind == "cut":
                cluster.partition(ip, other)
            else:
                cluster.cut_way(*rng.choice(ways))
            await asyncio.sleep(rng.uniform(0.5, 12))
            cluster.network.heal(ip, other)

    async def _end(self, kind: str, ip: str, rng: Random) -> None:
        """A member dies, or is stopped, and comes again."""
        if ip in self.busy:
            return
        member = self.cluster.hosts[ip].service
        self.busy[ip] = None
        if kind == "stop":
            await self.cluster.stop(ip)
        else:
            self.cluster.kill(ip, power_loss=kind == "power" and self._may_lose(member.id))
        self._swap_store(kind, ip, member.id, rng)
        await asyncio.sleep(rng.choice((rng.uniform(0, 1), rng.uniform(0, 8))))
        self.alive[ip] = await self.cluster.restart(ip)
        del self.busy[ip]

    def _swap_store(self, kind: str, ip: str, who: int, rng: Random) -> None:
        """A new disk, or a copy of the store as it was once; while another one that is up has all."""
        host = self.cluster.hosts[ip]
        sure = {*self._newest().members} - {*self.record.doubtful, who}
        there = {n for n, other in enumerate(MEMBERS, 1) if other not in self.busy}
        if NAME_SERVERS[0] not in self.busy and sure & there:
            if kind == "new disk":
                host.files = FaultyFiles(rng.randrange(1 << 30))
            elif kind == "old copy" and ip in self.copies:
                host.files = self.copies.pop(ip)
        if rng.random() < 0.3:
            self.copies[ip] = host.files.crash(rng, share=1.0)

    def _may_lose(self, who: int) -> bool:
        """Under ASYNC_FLUSH one machine at a time: another one of the set has all that was acknowledged."""
        record = self._newest()
        in_doubt = record.doubtful or {who} == {*record.members} or NAME_SERVERS[0] in self.busy
        down = [ip for ip in self.busy if ip in self.members and ip != MEMBERS[who - 1]]
        return self.sync_flush or not (in_doubt or down)

    # Afterwards.

    async def _until(self, condition: Any, what: str, within_s: float) -> None:
        began = self.now
        while not condition():
            assert not self.wrong, self.wrong[:5]
            assert self.now - began < within_s, f"{what}: not within {within_s} s: {self._state()}"
            await asyncio.sleep(0.05)

    def _state(self) -> str:
        members = [self.member(ip) for ip in self.members]
        ends = [(m.id, m.table.role.value, m.table.trouble, m.own_end()) for m in members if m]
        return f"{self._newest()} {ends} {self.left[:5]}"

    def _well(self) -> bool:
        record = self._newest()
        return (
            record.master > 0 and len(record.members) == len(self.members) and not record.doubtful
        )

    async def _calm(self) -> None:
        """The group is whole again, and goes on."""
        had = len(self.acknowledged)
        await self._until(self._well, "the set is full", CALM_S)
        await self._until(lambda: len(self.acknowledged) > had + 10, "messages are taken", CALM_S)

    def _stores(self) -> list[Any]:
        members = [self.member(ip) for ip in self.members]
        return [member.broker.store for member in members if member.broker is not None]

    def _equal(self) -> bool:
        stores = self._stores()
        logs = [_log_of(s, s.min_physical_offset, s.wrote) for s in stores]
        confirmed = {min(s.confirmed, s.wrote) for s in stores}
        return len(stores) == len(self.members) and len(set(logs)) == len(confirmed) == 1

    def _all_consumed(self) -> bool:
        if self.role != "SYNC_MASTER":
            return True
        mine = [body for body, (topic, _, _) in self.acknowledged.items() if topic == TOPIC]
        self.left = [body for body in mine if body not in self.consumed]
        self.left += sorted(self.pops.sent - self.pops.finished)
        return not self.left

    async def _check(self) -> None:
        stores = self._stores()
        store = stores[0]
        begin, end = store.min_physical_offset, store.wrote
        assert begin == 0
        places: dict[tuple[str, int, int], bytes] = {}
        ends: dict[bytes, int] = {}
        for record in _records(store, begin, end):
            if record.topic in (TOPIC, POPPED):
                body = _name_of(record.body)
                assert body not in ends, f"twice in the log: {body!r}"
                ends[body] = record.physical_offset
                place = record.topic, record.queue_id, record.queue_offset
                assert place not in places, f"two messages at {place}: {places[place]!r} {body!r}"
                places[place] = body
        assert len(self.acknowledged) > 20, "the run must have done something"
        order: dict[tuple[bytes, str, int], int] = {}
        for body, place in self.acknowledged.items():
            kept = places.get(place)
            if kept != body and (self.role == "SYNC_MASTER" or body in ends):
                raise AssertionError(f"acknowledged, not at its place {place}: {body!r} ({kept!r})")
            if kept == body:
                line = body.split(b"-")[0], place[0], place[1]
                assert order.get(line, -1) < ends[body], f"out of order: {body!r}"
                order[line] = ends[body]
        for place, body in self.shown.items():
            assert places.get(place) == body, (
                f"shown at {place}: {body!r}; there is {places.get(place)!r}"
            )
        for other in stores[1:]:
            for topic in (TOPIC, POPPED):
                assert store.queues_of(topic) == other.queues_of(topic)
                for queue in store.queues_of(topic):
                    assert store.max_offset(topic, queue) == other.max_offset(topic, queue)
        if self.role == "SYNC_MASTER":
            assert not self.pops.wrong, self.pops.wrong[:5]
        await self._until(self._registered, "name servers know the master", 35)

    def _registered(self) -> bool:
        record = self._newest()
        wanted = {
            0 if who == record.master else who: place.address
            for who, place in record.places.items()
        }
        for ip in NAME_SERVERS:
            route = self.cluster.hosts[ip].service.core.routes.find_route(TOPIC)
            found = route.broker_datas[0].broker_addrs if route and route.broker_datas else {}
            if {int(who): address for who, address in found.items()} != wanted:
                return False
        return True


class Wire:
    """Calls to the master, one after the other."""

    def __init__(self, world: GroupChaos) -> None:
        self._world = world
        self._writer: asyncio.StreamWriter | None = None
        self.ip = ""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def call(self, code: int, ext: dict[str, Any]) -> Command:
        """Raises OSError, TimeoutError."""
        return await self._world.cluster.run_on(COMMITTER, self._call(code, ext))

    async def _call(self, code: int, ext: dict[str, Any]) -> Command:
        async with asyncio.timeout(4):
            if self._writer is None:
                self._wire = Connection()
                self.ip = self._world.where()
                self._reader, self._writer = await asyncio.open_connection(self.ip, BROKER_PORT)
            header = encode_dict({k: str(v) for k, v in ext.items()})
            self._wire.send_request(code, header, b"", False)
            self._writer.write(b"".join(self._wire.data_to_send()))
            while True:
                data = await self._reader.read(65536)
                if not data:
                    raise ConnectionResetError
                answers = self._wire.receive_data(data)
                if answers:
                    return answers[0]


def _name_of(body: bytes) -> bytes:
    """A body without what only makes it long."""
    return body.rstrip(b"x")


def _log_of(store: Any, start: int, end: int) -> bytes:
    found = []
    while start < end:
        found.append(store.read_raw(start, end - start))
        assert found[-1], f"the log has nothing at {start} of {end}"
        start += len(found[-1])
    return b"".join(found)


def _records(store: Any, start: int, end: int) -> list[Any]:
    found = []
    offset = start
    while offset < end:
        data = store.record_at(offset)
        if data is None:  # the rest of a file
            size = store.config.segment_size
            offset += size - offset % size
            continue
        found += decode_records(data)
        offset += len(data)
    return found


def run_seed(seed: int, **settings: Any) -> GroupChaos:
    """One seed; raises AssertionError with the cause."""
    world = GroupChaos(**settings)
    try:
        simulate(world, seed)
    except BaseException as error:
        error.add_note(f"seed {seed} {world.shape}")
        raise
    return world


def main(count: int, first: int) -> int:
    """Run seeds; returns how many failed."""
    failed = 0
    began = time.process_time()
    changes = messages = 0
    drawn: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            world = run_seed(seed)
            changes, messages = changes + world.changes, messages + len(world.acknowledged)
            drawn += world.drawn
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            print(
                f"seed {seed}: {''.join(traceback.format_exception_only(error))[:1500]}", flush=True
            )
        done = seed - first + 1
        if done % 10 == 0:
            spent = time.process_time() - began
            print(
                f"{done} seeds, {failed} failed, {spent / done:.2f} s CPU each, {changes} elections, "
                f"{messages} acknowledged, {dict(drawn)}", flush=True,
            )  # fmt: skip
    return failed


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(numbers[0], numbers[1] if len(numbers) > 1 else 1) > 0)
