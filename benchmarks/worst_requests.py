"""CPU of the loop's thread for the dearest legal request of every code, in full servers: `python -m benchmarks.worst_requests`.

The servers are in this process, on a real loop with real files; requests go in as bytes. Two figures of each: the longest
stretch that the loop could do nothing else, and all the CPU the thread spent until the answer. Nothing fails by the clock.
"""

import argparse
import asyncio
import asyncio.events
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bad_input.mutated_world import Pipe
from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS, body_of, ext_of, framed

from benchmarks import worst_cases
from benchmarks.worst_cases import BROKERS, GROUPS, MEMBERS, QUEUES, TOPICS, Request
from roquette.apps.features import broker_features
from roquette.apps.running import settle_memory
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.executor import use_worker_threads
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker
from roquette.message.properties import encode_properties
from roquette.message.record_layout import Draft
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.floor.identity import BrokerIdentity, Registration
from roquette.nameserver.service import NameServer
from roquette.store.format.config import StoreConfig
from roquette.wire.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import encode_dict

LIMIT_MS = 50.0
WAIT_S = 120.0


class Meter:
    """Measures every callback of the loop."""

    def __init__(self) -> None:
        self.longest = self.total = 0.0
        run = asyncio.events.Handle._run

        def timed(handle: Any) -> None:
            began = time.thread_time()
            run(handle)
            self.add(time.thread_time() - began)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]

    def add(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        self.total += seconds


class Bench:
    """One server and a connection to it."""

    def __init__(self, server: Any, meter: Meter) -> None:
        self.server, self.meter = server, meter
        self.remark = ""
        self.code = -1
        self.answers = 0
        self.made = 0
        self.connect()

    def connect(self) -> None:
        self.made += 1
        self.protocol = self.server._new_protocol()
        self.protocol.connection_made(Pipe(self, self.made))  # type: ignore[arg-type]

    def answered(self, command: Any) -> None:
        self.answers += 1
        self.code, self.remark = command.code, command.remark or ""

    async def ask(self, code: int, ext: dict[str, str], body: bytes) -> tuple[float, float, str]:
        """Longest stretch and all CPU in ms, and how it was answered."""
        if self.protocol._peer.transport.closed:
            self.connect()
        head = b'{"code":%d,"extFields":%b,"flag":0,"language":"JAVA","opaque":1,"version":493}' % (
            code, encode_dict(ext),
        )  # fmt: skip
        data = framed(head, body)
        await asyncio.sleep(0.05)
        meter, before = self.meter, self.answers
        meter.longest = meter.total = 0.0
        began = time.thread_time()
        self.protocol.data_received(data)
        meter.add(time.thread_time() - began)
        ends = time.monotonic() + WAIT_S
        while self.answers == before and not self.protocol._peer.transport.closed:
            if time.monotonic() > ends:
                return meter.longest * 1000, meter.total * 1000, "no answer"
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        if self.protocol._peer.transport.closed:
            return meter.longest * 1000, meter.total * 1000, "closed"
        return meter.longest * 1000, meter.total * 1000, f"{self.code} {self.remark[:60]}"


async def measure(name: str, bench: Bench, rows: list[Any], cases: dict[int, list[Request]], only: set[int], places: dict[str, str]) -> None:  # fmt: skip
    """Every request of every row; prints the worst of each code, and all with -v."""
    print(
        f"| {name} | worst request | longest stretch, ms | all CPU, ms | answer |\n|---|---|---|---|---|"
    )
    for row in sorted(rows, key=lambda row: row.code in DESTROYERS):
        if only and row.code not in only:
            continue
        found = []
        for request in cases.get(
            row.code, [Request(worst_cases.SMALL.get(row.code, "the sample"))]
        ):
            ext = ext_of(row) | {k: places.get(f"{k} {v}", v) for k, v in request.ext.items()}
            body = body_of(row) if request.body is None else request.body
            found.append((*await bench.ask(row.code, ext, body), request.what))
        found.sort(reverse=True)
        for longest, total, answer, what in found if VERBOSE else found[:1]:
            mark = " **" if longest > LIMIT_MS else ""
            print(f"| {row.code} {RequestCode(row.code).name} | {what} | {longest:.1f}{mark} | {total:.1f} | {answer} |", flush=True)  # fmt: skip


DESTROYERS = {103, 207, 215, 216, 104, 316, 206, 25, 318}  # last
VERBOSE = False


async def full_broker(root: Path) -> tuple[Broker, dict[str, str]]:
    """A broker with everything, and the places of messages in it."""
    config = BrokerConfig(broker_name="broker-a", bind_address="127.0.0.1", listen_port=0, recall_message_enable=True, lite_pull_message_enable=True)  # fmt: skip
    store_config = StoreConfig(root_dir=str(root / "store"), disk_warning_ratio=99, disk_max_used_ratio=98, disk_clean_forcibly_ratio=99)  # fmt: skip
    clock = SystemClock()
    broker = Broker(
        config, store_config, broker_features, files=OsFiles(), clock=clock, entropy=Entropy()
    )
    await broker.start()
    now_ms = clock.now_ms()
    for number in range(TOPICS):
        broker.tables.topics.put(TopicConfig(topic_name=f"topic-{number:05}", read_queue_nums=1, write_queue_nums=1), now_ms)  # fmt: skip
    for name, queues in (("Wide", QUEUES), ("Gone", QUEUES), ("Full", 1), ("Big", 1), ("T", 2)):
        broker.tables.topics.put(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues), now_ms)  # fmt: skip
    for number in range(GROUPS):
        broker.tables.groups.put(SubscriptionGroupConfig(group_name=f"group-{number:05}"), now_ms)
    for name in ("g", "g2", "leaver", "crowd"):
        broker.tables.groups.put(SubscriptionGroupConfig(group_name=name), now_ms)
    offsets = broker.tables.offsets
    for name in ("g", "leaver"):
        for number in range(TOPICS):
            offsets.commit(name, f"topic-{number:05}", 0, 7, now_ms)
    for number in range(GROUPS):
        offsets.commit(f"group-{number:05}", "T", 0, 7, now_ms)
        offsets.commit(f"group-{number:05}", "Wide", number, 7, now_ms)
    for topic in ("Wide", "Gone"):
        for queue in range(QUEUES):
            offsets.commit("g", topic, queue, 7, now_ms)
    places = await _messages(broker, now_ms)
    _members(broker, clock.steady_ms())
    await asyncio.sleep(8)  # the tables reach the disk
    return broker, places


async def _messages(broker: Broker, now_ms: int) -> dict[str, str]:
    host = bytes((127, 0, 0, 1, 0, 0, 42, 159))
    text = encode_properties(
        {"UNIQ_KEY": "0A01", "KEYS": "k", "TAGS": "A", "a": "xyz" * 40, "WAIT": "true"}
    ).encode()
    for number in range(100_000):
        broker.store.append(Draft("Full", 0, text, b"x", now_ms, host), now_ms)
        if number % 500 == 0:
            broker.end_turn()
            await asyncio.sleep(0)
    done = None
    for _ in range(16):
        done = broker.store.append(Draft("Big", 0, text, bytes(4_000_000), now_ms, host), now_ms)
        broker.end_turn()
        await asyncio.sleep(0)
    assert done is not None
    physical = done.physical_offset
    return {"offset big": str(physical), "msgId big": f"7F00000100002A9F{physical:016X}"}


def _members(broker: Broker, steady_ms: int) -> None:
    server = broker._listeners._servers[0]  # type: ignore[attr-defined]
    for number in range(MEMBERS):
        protocol = server._new_protocol()
        protocol.connection_made(_Nobody(None, 10_000 + number))  # type: ignore[arg-type]
        peer = protocol._peer
        broker.tables.consumers.register("crowd", peer, client_id=f"m{number}", language="JAVA", version=493, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING", consume_from_where="CONSUME_FROM_LAST_OFFSET", subscriptions=[], now_ms=steady_ms)  # fmt: skip
        broker.tables.producers.register("crowd", peer, client_id=f"m{number}", language="JAVA", version=493, now_ms=steady_ms)  # fmt: skip


class _Nobody(Pipe):
    """A member that takes what it is sent."""

    def write(self, data: bytes) -> None:
        pass

    def writelines(self, parts: list[bytes]) -> None:
        pass


async def full_name_server(root: Path) -> NameServer:
    """A name server with many topics and many brokers."""
    config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=str(root / "kv.json"), enable_all_topic_list=True, enable_topic_list=True)  # fmt: skip
    server = NameServer(config, files=OsFiles(), clock=SystemClock())
    await server.start()
    now = SystemClock().steady_ms()
    topics = {f"topic-{n:05}": TopicConfig(topic_name=f"topic-{n:05}") for n in range(TOPICS)}
    few = {name: TopicConfig(topic_name=name) for name in ("Common", "Common2", "T")}

    def register(name: str, address: str, number: int, told: dict[str, TopicConfig], connection: int) -> None:  # fmt: skip
        identity = BrokerIdentity("DefaultCluster", name, address, number)
        server.core.routes.register(Registration(identity=identity, topics=told, data_version=DataVersion(counter=1), connection=connection, now_ms=now, timeout_ms=10**9))  # fmt: skip

    register("all", "10.9.0.1:1", 0, topics, 0)
    register("all2", "10.9.0.2:1", 0, topics, 0)
    for number in range(BROKERS):
        register(f"broker-{number}", f"10.8.{number // 250}.{number % 250}:1", 0, few, 0)
    for number in range(1_000):
        register("members", f"10.7.{number // 250}.{number % 250}:1", number, few, 0)
    for number in range(10_000):
        server.core.kv.put("ORDER_TOPIC_CONFIG", f"k{number}", "broker-a:4;broker-b:4")
    return server


async def main(arguments: argparse.Namespace) -> None:
    meter = Meter()
    loop = asyncio.get_running_loop()
    threads = use_worker_threads(loop)
    only = set(arguments.codes)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if arguments.server in ("", "namesrv"):
            server = await full_name_server(root)
            settle_memory()
            await measure("name server", Bench(server._server, meter), NAMESRV_ROWS, worst_cases.namesrv_cases(), only, {})  # fmt: skip
            await server.stop()
        if arguments.server in ("", "broker"):
            broker, places = await full_broker(root)
            settle_memory()
            await measure("broker", Bench(broker._listeners._servers[0], meter), BROKER_ROWS, worst_cases.broker_cases(), only, places)  # type: ignore[attr-defined]  # fmt: skip
            await broker.stop()
    threads.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("codes", nargs="*", type=int, help="only these request codes")
    parser.add_argument("--server", default="", choices=["", "broker", "namesrv"])
    parser.add_argument("-v", action="store_true", help="every request, not the worst of each code")
    options = parser.parse_args()
    VERBOSE = options.v
    logging.disable(logging.CRITICAL)
    asyncio.run(main(options))
