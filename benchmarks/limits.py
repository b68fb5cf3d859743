"""Where our limits are: `python -m benchmarks.limits [--rows topics,store] [--quick] [--json]`.

    topics       60,000 topics of 8 queues on one broker
    namesrv      a name server with 100 brokers that all have the same 60,000 topics; registrations as our broker sends them
    connections  10,000 clients that have said who they are and go on: plain, TLS, gRPC
    groups       5,000 groups with offsets of 100 queues each
    rebalance    one of 2,000 members of a group goes
    store        100 files of 1 GiB of log: our store writes them, bodies are zeros and become holes of the files

Servers are processes of their own, in the form of this environment, with the defaults of a user. A load is paced
(benchmarks/paced.py): latencies count from the moment a request was due. "Loop" is the longest stretch for which the server's
loop did nothing else (benchmarks/loop_watch.py). Memory is anonymous, less what an empty server has where it is "of" something.
"""

import argparse
import asyncio
import json
import os
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table
from tests.real_servers import RawConnection, ServerProcess, frame, send_fields
from tests.request_samples import HEARTBEAT, SUBSCRIPTION

from benchmarks import grpc_load, report, servers
from benchmarks.loop_watch import Held
from benchmarks.paced import Connection, Head, Paced, closed, connected, paced
from benchmarks.recovery import DISK, HOST, now_ms
from roquette.base.files import OsFiles
from roquette.base.form import form
from roquette.message.record_layout import Draft
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.wire.codes import RequestCode, ResponseCode

MIB = 1 << 20
LOOP_MS = 50.0
STALL_MS = 20.0
HOLE = 1 << 16
BODY = bytes(4_000_000)
SLOTS, ENTRIES = 2_500, 10_000  # of an index file: small, that some end under the load


@dataclass(frozen=True)
class Sizes:
    """How much of everything; seconds of each load and its requests a second."""

    topics: int = 60_000
    queues: int = 8
    written: int = 20_000
    brokers: int = 100
    connections: int = 10_000
    groups: int = 5_000
    group_queues: int = 100
    members: int = 2_000
    segments: int = 100
    segment: int = 1 << 30
    seconds: float = 20.0
    sends: float = 500.0
    commits: float = 2_000.0
    routes: float = 5_000.0


QUICK = Sizes(120, 8, 16, 3, 20, 5, 4, 5, 4, 16 * MIB, 0.5, 50, 50, 50)


class Figure(NamedTuple):
    """What was found; `most` is the largest that is wanted."""

    what: str
    value: float
    unit: str
    most: float | None = None


class Told:
    """The figures of one row; each is shown on stderr as it is found."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def add(self, what: str, value: float, unit: str, most: float | None = None) -> None:
        """One figure."""
        self.figures.append(Figure(what, value, unit, most))
        print(f"{what}: {value:,.2f} {unit}", file=sys.stderr, flush=True)

    def loop(self, what: str, server: "Server", most: float) -> None:
        """The longest stretch of its loop since the last look."""
        stretch, cpu = server.held.look()
        server.held.note()
        self.add(what, stretch, "ms", most)
        self.add(f"{what}, its CPU", cpu, "ms", most)

    def load(self, what: str, found: Paced) -> None:
        """Latencies of a load, and how many of its requests were refused."""
        self.add(f"{what}: p99", found.p99_ms, "ms")
        self.add(f"{what}: most", found.most_ms, "ms")
        if found.refused:
            self.add(f"{what}: refused ({found.first[:60]})", found.refused, "")


class Server(NamedTuple):
    """One that serves."""

    process: ServerProcess
    held: Held
    start_s: float

    @property
    def mib(self) -> float:
        """Its memory that is no page of a file."""
        return self.process.anonymous_memory() / MIB

    def connections(self, make: Callable[[int], Any], count: int = 4) -> Any:
        """Some for a load."""
        return connected(self.process.address, count, lambda number: Connection(make))


@asynccontextmanager
async def serving(folder: Path, words: Iterable[str]) -> AsyncIterator[Server]:
    """A server, and how long it took until it was ready; killed at the end."""
    held, began = Held(folder / f"held-{time.monotonic_ns()}"), time.monotonic()
    process = ServerProcess(list(words), held.prefix)
    try:
        await asyncio.to_thread(process.wait_ready)
        took = time.monotonic() - began
        await asyncio.sleep(
            0.01
        )  # the turn that said so ends: the collector went through the tables in it
        held.note()
        yield Server(process, held, took)
    finally:
        process.end()


def broker(folder: Path, namesrv: str = "", **settings: object) -> Any:
    """Ours, on the folder's store."""
    named = (f"{key.replace('__', '.')}={value}" for key, value in settings.items())
    words = [word for setting in (*DISK, *named) for word in ("--set", setting)]
    place = ("--listen", "127.0.0.1:0", "--store", str(folder / "store"))
    return serving(folder, ["broker", *place, *words, *(("-n", namesrv) if namesrv else ())])


def name_server(folder: Path) -> Any:
    """Ours, empty, with room for more pairs of broker and topic than 1,000,000."""
    kept = "serverChannelMaxIdleTimeSeconds=3600"  # brokers of the load say nothing between registrations
    settings = f"kvConfigPath={folder / 'kv.json'}", "maxRegisteredTopics=10000000", kept
    words = [word for setting in settings for word in ("--set", setting)]
    return serving(folder, ["namesrv", "--listen", "127.0.0.1:0", *words])


def topic(number: int) -> str:
    """A name of usual length."""
    return f"team-{number % 97}_orders-{number}"


def send(number: int, topics: int = 8, queues: int = 8, size: int = 128) -> Any:
    """A send with a unique key."""
    key = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01order-{number}\x02WAIT\x01true\x02"
    place = topic(number % topics), number // topics % queues
    return RequestCode.SEND_MESSAGE_V2, send_fields(*place, key), bytes(size)


def until_accepted(server: Server) -> float:
    """Seconds from before the process to its first accepted send."""
    began = time.monotonic()
    with RawConnection(server.process.address) as peer:
        while peer.call(*send(0))[0]["code"] != 0:
            time.sleep(0.005)
    return server.start_s + time.monotonic() - began


async def empty_mib(sizes: Sizes, folder: Path) -> float:
    """Memory of a broker that has served sends to 8 topics for 2 s, and has nothing else."""
    servers.write_topics(folder / "store", [topic(n) for n in range(8)], 8)
    async with broker(folder) as server:
        await paced(await server.connections(send), sizes.sends, 2.0)
        return float(server.mib)


# One broker's topics


async def topics(sizes: Sizes, folder: Path, told: Told) -> None:
    names = [topic(number) for number in range(sizes.topics)]
    servers.write_topics(folder / "store", names, sizes.queues)
    base = await empty_mib(sizes, folder / "empty")
    async with (
        name_server(folder) as routes,
        broker(
            folder,
            "{}:{}".format(*routes.process.address),
            mappedFileSizeConsumeQueue=4_000,
        ) as server,
    ):
        told.add("start to the first accepted send", until_accepted(server), "s")
        with RawConnection(routes.process.address) as peer:
            began = time.monotonic()
            while peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": names[-1]})[0]["code"]:
                time.sleep(0.01)
        told.add("then until the name server knows all", time.monotonic() - began, "s")
        told.loop("loop, start and registration", server, LOOP_MS)
        told.add("memory of a topic", (server.mib - base) * MIB / sizes.topics, "bytes")
        connections = await server.connections(send)
        told.load("sends", await paced(connections, sizes.sends, sizes.seconds))
        spans: list[float] = []

        async def create() -> None:
            (peer,) = await server.connections(send, 1)
            while True:
                began = time.perf_counter()
                fields = {"topic": f"new-{len(spans)}", "defaultTopic": "TBW102", "perm": 6}
                fields |= {"readQueueNums": 8, "writeQueueNums": 8, "topicFilterType": "SINGLE_TAG"}
                await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"topicSysFlag": 0})
                spans.append(time.perf_counter() - began)

        server.held.note()
        creating = asyncio.create_task(create())
        found = await paced(connections, sizes.sends, sizes.seconds)
        creating.cancel()
        told.load("sends while topics are created and topics.json is written", found)
        told.loop("loop while topics.json is written", server, STALL_MS)
        told.add("creations, one after the other", len(spans) / sizes.seconds, "a second")
        size = (folder / "store" / "config" / "topics.json").stat().st_size
        told.add("topics.json", size / MIB, "MiB")
    names = names[: sizes.written // 8]
    servers.write_topics(folder / "written" / "store", names, 8)
    async with broker(folder / "written", mappedFileSizeConsumeQueue=4_000) as server:
        await paced(await server.connections(send), sizes.sends, 2.0)
        before = server.mib
        peers = await server.connections(lambda number: send(number, len(names)))
        await paced(peers, sizes.commits, sizes.written / sizes.commits)
        told.add("memory of a written queue", (server.mib - before) * MIB / sizes.written, "bytes")
        told.loop("loop while queues are written for the first time", server, LOOP_MS)


# A name server


class Recorder(Connection):
    """A name server that takes everything and keeps the registrations."""

    kept: list[tuple[dict[str, Any], bytes]]

    def frame_received(self, header: bytes, body: bytes) -> None:
        """Keep a registration, answer anything."""
        request = json.loads(header)
        known = request["code"] == RequestCode.REGISTER_BROKER
        if known:
            self.kept.append((request["extFields"], body))
        code = 0 if known else ResponseCode.QUERY_NOT_FOUND
        answer = {"code": code, "flag": 1, "language": "JAVA", "version": 493}
        head = msgspec.json.encode(answer | {"opaque": request["opaque"]})
        size = (4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big")
        self.transport.write(size + head)


async def recorded(sizes: Sizes, folder: Path) -> list[tuple[dict[str, Any], bytes]]:
    """The registrations of our broker with all topics: fields and body of each slice."""
    servers.write_topics(folder / "store", [topic(n) for n in range(sizes.topics)], sizes.queues)
    kept: list[tuple[dict[str, Any], bytes]] = []

    def made() -> Recorder:
        one = Recorder(send)
        one.kept = kept
        return one

    listener = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with broker(folder, f"127.0.0.1:{port}") as server:
        while not any("registered namesrv=" in line for line in server.process.lines):
            await asyncio.sleep(0.1)
    listener.close()
    return kept


async def namesrv(sizes: Sizes, folder: Path, told: Told) -> None:
    slices = await recorded(sizes, folder / "broker")
    size = sum(len(frame(RequestCode.REGISTER_BROKER, *each)) for each in slices)
    told.add("registration of a broker", size / MIB, "MiB")
    told.add("largest slice", max(len(body) for _, body in slices) / MIB, "MiB", 16)

    def route(number: int) -> Any:
        name = topic(number * 7919 % sizes.topics)
        return RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name}, b""

    async with name_server(folder) as server:
        base = server.mib
        brokers = await server.connections(send, sizes.brokers)

        async def register(number: int, peer: Connection) -> None:
            address = f"10.1.{number // 250}.{number % 250}:10911"
            own = {"brokerName": f"broker-{number:03}", "brokerAddr": address}
            own["heartbeatTimeoutMillis"] = "3600000"
            for fields, body in slices:
                await peer.call(RequestCode.REGISTER_BROKER, fields | own, body)

        began = time.monotonic()
        await register(0, brokers[0])
        told.add("the first broker's registration", time.monotonic() - began, "s")
        cpu_s = server.process.cpu_s()
        for first in range(1, sizes.brokers, 4):
            some = enumerate(brokers[first : first + 4], first)
            await asyncio.gather(*(register(number, peer) for number, peer in some))
        told.add("all brokers' registrations", time.monotonic() - began, "s")
        each = (server.process.cpu_s() - cpu_s) / (sizes.brokers - 1)
        told.add("CPU of a broker's registration", each, "s")
        told.loop("loop, registrations", server, LOOP_MS)
        pairs = sizes.topics * sizes.brokers
        told.add("memory", server.mib, "MiB")
        told.add("memory of a topic on a broker", (server.mib - base) * MIB / pairs, "bytes")
        peers = await server.connections(route, 8)
        cpu_s = server.process.cpu_s()
        found = await paced(peers, sizes.routes, sizes.seconds)
        told.add("CPU of a route", (server.process.cpu_s() - cpu_s) / found.count * 1e6, "us")
        told.add("size of a route's answer", len(peers[0].body) / 1024, "KiB")
        told.add(f"routes at {sizes.routes:,.0f} a second, answered", found.rate, "a second")
        told.load("the same", found)
        told.loop("loop, routes", server, LOOP_MS)
        most = await closed(peers, 16, sizes.seconds / 2)
        told.add("routes, as many as there is room for", most.rate, "a second")

        async def again() -> None:
            """Every broker every 30 s, one after the other."""
            number, began = 0, time.monotonic()
            while True:
                await register(number % sizes.brokers, brokers[number % sizes.brokers])
                number += 1
                due = began + number * 30 / sizes.brokers
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        server.held.note()
        registering = asyncio.create_task(again())
        found = await paced(peers, sizes.routes, sizes.seconds)
        registering.cancel()
        told.load("routes while brokers register every 30 s", found)
        told.loop("loop, both", server, LOOP_MS)
        (peer,) = await server.connections(route, 1)
        began = time.monotonic()
        body = await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        told.add("the list of all topics", time.monotonic() - began, "s")
        assert len(json.loads(body)["topicList"]) >= sizes.topics


# Connections


class GrpcSender:
    """One connection of the gRPC load in the place of one with frames."""

    def __init__(self, client: grpc_load.Client) -> None:
        self._client = client
        self._head, self._tail = grpc_load.send_parts(topic(0), 128)

    def ask(self, number: int, done: Callable[[str], None]) -> None:
        """Send one message."""

        def answered(found: list[bytes], trailers: dict[bytes, bytes]) -> None:
            done("" if found and b"OK" in found[0] else f"{found} {trailers}")

        body = self._head + b"01%032X" % number + self._tail
        self._client.call(b"SendMessage", body, answered)


async def connections(sizes: Sizes, folder: Path, told: Told) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for way, secure in (("plain", None), ("TLS", context), ("gRPC", None)):
        store = folder / way
        servers.write_topics(store / "store", [topic(n) for n in range(8)], 8)
        async with broker(store, tls__server__mode="permissive") as server:
            address = server.process.address
            host = "{}:{}".format(*address)

            def client(number: int, way: str = way, host: str = host) -> Any:
                if way == "gRPC":
                    return grpc_load.Client(f"client-{number}", host)
                return Connection(send)

            senders = await connected(address, 4, client, secure)
            asking = [GrpcSender(one) for one in senders] if way == "gRPC" else senders
            await paced(asking, sizes.sends, sizes.seconds / 4)
            base = server.mib
            server.held.note()
            began = time.monotonic()
            idle: list[Any] = []
            while len(idle) < sizes.connections:
                some = min(50, sizes.connections - len(idle))
                made = await connected(address, some, client, secure)
                await introduced(made, way, len(idle))
                idle += made
            took = time.monotonic() - began
            told.add(f"{way}: connections and their first request", len(idle) / took, "a second")  # fmt: skip
            told.loop(f"{way}: loop meanwhile", server, LOOP_MS)
            told.add(f"{way}: memory of a connection", (server.mib - base) * 1024 / len(idle), "KiB")  # fmt: skip
            found = await paced(asking, sizes.sends, sizes.seconds)
            told.load(f"{way}: sends beside them", found)
            told.loop(f"{way}: loop", server, LOOP_MS)
            for one in (*idle, *senders):
                one.transport.abort()
            await asyncio.sleep(0.1)


async def introduced(peers: list[Any], way: str, first: int) -> None:
    """Each says who it is: a heartbeat of a producer, or the settings of a simple consumer, whose stream stays open."""
    if way == "gRPC":
        for number, one in enumerate(peers, first):
            grpc_load.introduce(one, f"idle-{number % 20}", topic(0))
        async with asyncio.timeout(60):
            while not all(one.parts for one in peers):
                await asyncio.sleep(0.005)
    else:
        some = (beat(one, f"idle-{number}", []) for number, one in enumerate(peers, first))
        await asyncio.gather(*some)


def beat(one: Connection, client_id: str, consumers: list[Any]) -> Any:
    """A heartbeat."""
    body = HEARTBEAT | {"clientID": client_id, "consumerDataSet": consumers}
    return one.call(RequestCode.HEART_BEAT, {}, msgspec.json.encode(body))


# Groups


async def groups(sizes: Sizes, folder: Path, told: Told) -> None:
    config = folder / "store" / "config"
    servers.write_topics(folder / "store", [topic(n) for n in range(8)], sizes.group_queues)
    names = [f"service-{number}-of-team-{number % 97}" for number in range(sizes.groups)]
    base = await empty_mib(sizes, folder / "empty")
    table = {
        f"{topic(number % 8)}@{name}": {str(queue): 0 for queue in range(sizes.group_queues)}
        for number, name in enumerate(names)
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    known = {name: {"groupName": name} for name in names}
    text = json.dumps({"subscriptionGroupTable": known, "dataVersion": version})
    (config / "subscriptionGroup.json").write_text(text)
    offsets = sizes.groups * sizes.group_queues

    def commit(number: int) -> Any:
        group = number * 7919 % sizes.groups
        fields = {"consumerGroup": names[group], "topic": topic(group % 8), "queueId": number % sizes.group_queues, "commitOffset": number}  # fmt: skip
        return RequestCode.UPDATE_CONSUMER_OFFSET, fields, b""

    async with broker(folder) as server:
        told.add("start to the first accepted send", until_accepted(server), "s")
        senders = await server.connections(lambda n: send(n, queues=sizes.group_queues))
        await paced(senders, sizes.sends, 2.0)
        told.add("memory of an offset", (server.mib - base) * MIB / offsets, "bytes")
        committers = await server.connections(commit)
        server.held.note()
        commits, sends = await asyncio.gather(
            paced(committers, sizes.commits, sizes.seconds),
            paced(senders, sizes.sends, sizes.seconds),
        )
        told.load(f"commits at {sizes.commits:,.0f} a second", commits)
        told.load("sends beside them", sends)
        told.loop("loop while consumerOffset.json is written every 5 s", server, STALL_MS)
        most = await closed(committers, 32, sizes.seconds / 2)
        told.add("commits, as many as there is room for", most.rate, "a second")
        told.loop("loop meanwhile", server, STALL_MS)
        size = (config / "consumerOffset.json").stat().st_size
        told.add("consumerOffset.json", size / MIB, "MiB")


# A large group


class Member(Connection):
    """A consumer that asks who the others are as soon as it is told of a change."""

    asks = False
    notes = 0
    members = 0

    def told_of(self, head: Head) -> None:
        """Of a change."""
        self.notes += 1
        if self.asks:
            self.ask_others()

    def ask_others(self) -> None:
        """Who are they?"""
        group = {"consumerGroup": "crowd"}
        self.send(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group, b"", self.answered)

    def answered(self, words: str) -> None:
        """With the list; a member that is refused asks again."""
        if words and not self.transport.is_closing():
            self.ask_others()
        self.members = self.body.count(b'"member-')


async def rebalance(sizes: Sizes, folder: Path, told: Told) -> None:
    def member(number: int) -> Member:
        one = Member(send)
        one.told = one.told_of
        return one

    consumer = HEARTBEAT["consumerDataSet"][0]  # type: ignore[index]
    consumers = [consumer | {"groupName": "crowd", "subscriptionDataSet": [SUBSCRIPTION]}]
    servers.write_topics(folder / "store", [topic(n) for n in range(8)], 8)
    async with broker(folder) as server:
        senders = await server.connections(send)
        await paced(senders, sizes.sends, 1.0)
        base = server.mib
        members = await connected(server.process.address, sizes.members, member)
        server.held.note()
        began = time.monotonic()
        for first in range(0, len(members), 50):
            await asyncio.gather(*(beat(one, f"member-{first + number}", consumers) for number, one in enumerate(members[first : first + 50])))  # fmt: skip
        told.add("all have joined", time.monotonic() - began, "s")
        await asyncio.sleep(1.0)
        told.add("notes of changes that this took", sum(one.notes for one in members), "")
        told.loop("loop, joining", server, LOOP_MS)
        told.add("memory of a member", (server.mib - base) * 1024 / len(members), "KiB")
        for one in members:
            one.notes, one.asks = 0, True
        began = time.monotonic()
        members.pop().transport.abort()

        async def all_know() -> tuple[float, float]:
            notified = 0.0
            while any(one.members != len(members) for one in members):
                if not notified and all(one.notes for one in members):
                    notified = time.monotonic() - began
                await asyncio.sleep(0.002)
            return notified or time.monotonic() - began, time.monotonic() - began

        (notified, known), sends = await asyncio.gather(
            asyncio.wait_for(all_know(), 60), paced(senders, sizes.sends, sizes.seconds / 4)
        )
        told.add("one goes: all others have been told", notified, "s")
        told.add("and have the new list", known, "s")
        told.loop("loop meanwhile", server, LOOP_MS)
        told.load("sends meanwhile", sends)


# A large store


class HoleFile:
    """A file of the log in which pages of zeros become holes."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write all of it that is no run of zeros."""
        at, zeros = 0, bytes(HOLE)
        while at < len(data):
            end = min(len(data), at + HOLE - (position + at) % HOLE)
            if data[at:end] != zeros[: end - at]:
                self._file.pwrite(data[at:end], position + at)
            at = end

    def allocate(self, size: int) -> None:
        """Without blocks."""
        if self._file.size < size:
            self._file.truncate(size)


class HoleFiles:
    """The system's files, the log's with holes."""

    def __init__(self) -> None:
        self._files = OsFiles()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_file(self, path: str, size: int | None = None, create: bool = False, private: bool = False) -> Any:  # fmt: skip
        """As the system's."""
        if "/commitlog/" not in path:
            return self._files.open_file(path, size, create, private)
        file = HoleFile(self._files.open_file(path, None, create, private))
        if size is not None:
            file.allocate(size)
        return file


def fill(root: Path, sizes: Sizes, left: int) -> int:
    """Have our store write its files but for the last `left` bytes, and close it; returns the number of messages.

    Their times go from 145 hours ago to now: half of the files are older than fileReservedTime.
    """
    config = StoreConfig(
        root_dir=str(root),
        segment_size=sizes.segment,
        max_hash_slots=SLOTS,
        max_index_entries=ENTRIES,
    )
    store = MessageStore(config, HoleFiles(), HOST)  # type: ignore[arg-type]
    store.open(now_ms())
    end, number = sizes.segments * sizes.segment - left - len(BODY), 0
    while (at := store.max_physical_offset) < end:
        key = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01old-{number}\x02WAIT\x01true\x02".encode()
        stamp = now_ms() - int(145 * 3_600_000 * (1 - at / end))
        store.append(Draft(topic(number % 8), number // 8 % 8, key, BODY, stamp, HOST), stamp)
        store.write_pending()
        store.take_arrivals()
        number += 1
    store.close(now_ms())
    return number


async def store(sizes: Sizes, folder: Path, told: Told) -> None:
    root, size = folder / "store", 4096
    log = root / "commitlog"
    left = int(sizes.sends * 2 * sizes.seconds * size / 3)  # so that the load rolls a third through
    servers.write_topics(root, [topic(n) for n in range(8)], 8)
    began = time.monotonic()
    messages = await asyncio.to_thread(fill, root, sizes, left)
    told.add("filled, messages a second", messages / (time.monotonic() - began), "a second")
    files = sorted(log.iterdir())
    told.add("log", sum(file.stat().st_size for file in files) / (1 << 30), "GiB")
    blocks = sum(f.stat().st_blocks for f in root.rglob("*") if f.is_file())
    told.add("on the disk, with queues and index", blocks * 512 / (1 << 30), "GiB")
    settings = {
        "mappedFileSizeCommitLog": sizes.segment,
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "deleteFileBatchMax": 1000,
        "cleanResourceInterval": min(10_000, int(sizes.seconds * 500)),
        "maxIndexNum": ENTRIES,
        "maxHashSlotNum": SLOTS,
    }
    async with broker(folder, **settings) as server:
        told.add("start to the first accepted send, after a stop", until_accepted(server), "s")
        told.add("memory", server.mib, "MiB")
        indexes = len(list((root / "index").iterdir()))
        senders = await server.connections(lambda number: send(number, size=size))
        server.held.note()
        found = await paced(senders, sizes.sends, 2 * sizes.seconds)  # the second look deletes
        told.load("sends of 4 KiB while old files go, the log rolls, index files end", found)
        told.loop("loop meanwhile", server, LOOP_MS)
        after = sorted(log.iterdir())
        told.add("files of the log deleted", len(set(files) - set(after)), "")
        told.add("files of the log begun", len(set(after) - set(files)), "")
        told.add("files of the index begun", len(list((root / "index").iterdir())) - indexes, "")  # fmt: skip
    async with broker(folder, **settings) as server:
        told.add("start to the first accepted send, after kill -9", until_accepted(server), "s")
        told.add("memory then", server.mib, "MiB")


ROWS: dict[str, Callable[[Sizes, Path, Told], Awaitable[None]]] = {
    "topics": topics,
    "namesrv": namesrv,
    "connections": connections,
    "groups": groups,
    "rebalance": rebalance,
    "store": store,
}


async def measure(row: str, sizes: Sizes, directory: str | None = None) -> list[Figure]:
    """The figures of one row, in a folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="roquette-bench-limits-", dir=directory))
    try:
        told = Told()
        await ROWS[row](sizes, folder, told)
        return told.figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.limits", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--rows", default=",".join(ROWS), help="by commas")
    parser.add_argument("--quick", action="store_true", help="the smallest form: that it runs")
    parser.add_argument("--brokers", type=int, help="other than 100, for a name server")
    parser.add_argument("--directory", help="where stores are made; a disk of 20 GB")
    parser.add_argument("--json", action="store_true", help="the figures, with the machine")
    asked = parser.parse_args()
    sizes, rows = QUICK if asked.quick else Sizes(), []
    sizes = replace(sizes, brokers=asked.brokers or sizes.brokers)
    for row in asked.rows.split(","):
        loads = [os.getloadavg()[0]]
        figures = uvloop.run(measure(row, sizes, asked.directory))
        loads.append(os.getloadavg()[0])
        words = f"load {loads[0]:.1f} before, {loads[1]:.1f} after"
        table = Table("", "measured", "", "at most", title=f"{row}: {form()}, {words}")
        for what, value, unit, most in figures:
            mark = " **" if most is not None and value > most else ""
            wanted = "" if most is None else f"{most:g}"
            table.add_row(what, f"{value:,.2f}{mark}", unit, wanted)
        Console(width=120, stderr=asked.json).print(table)
        rows.append({"row": row, "load": loads, "figures": [each._asdict() for each in figures]})
    if asked.json:
        print(json.dumps({"form": form(), "machine": report.machine(), "rows": rows}))


if __name__ == "__main__":
    main()
