"""Mutated frames against one server in virtual time, past no part of it: protocol, dispatcher, processors, store.

python -m tests.bad_input.mutated_world 5000000        (both builds: whichever `roquette` is imported)
"""

import asyncio
import builtins
import gc
import logging
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bad_input.mutations import Mutations
from tests.request_samples import BROKER_ROWS, NAMESRV_ROWS, body_of, ext_of, frame_of

from roquette.apps.features import broker_features
from roquette.base.clock import LoopClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles, OsReadFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.operation.topic_admin import TopicProcessor
from roquette.broker.service import Broker
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette.wire.connection import WireConnection
from roquette_testing.sim_loop import SimLoop, run

START_MS = 1_700_000_000_000
TURN = 32  # frames that arrive together
ROUND = 5_000  # frames after which what the frames made is cleaned away
MOST_GROWTH = 48 << 20  # bytes of resident memory, from the second round to the last
EXCEPTIONS = [
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type)
    and issubclass(kind, BaseException)
    and name not in ("Exception", "Warning")
]
PYTHON_WORDS = re.compile(
    rf"\b({'|'.join(EXCEPTIONS)}|DecodeError|ValidationError|BadHeader|RemoteProtocolError|StoreError)\b"
    r"|codec can't|int too large|too large to convert|has no attribute|not subscriptable|unsupported operand"
    r"|out of range for|list index|string index|invalid literal|to unpack|object is not|Traceback|NoneType"
    r"|<class '|argument must be|format requires|struct\.|embedded null|surrogates not allowed|\bmust be str\b"
)


class Pipe:
    """The transport under one connection: what the server writes is read at once."""

    def __init__(self, world: "World", number: int) -> None:
        self.world, self.number = world, number
        self.closed = False
        self.answers = 0
        self.wire = WireConnection()

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.3", 1000 + self.number) if name == "peername" else ("10.0.0.1", 10911)

    def write(self, data: bytes) -> None:
        for command in self.wire.receive_data(data):
            if command.flag & 1:
                self.answers += 1
                self.world.answered(command)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def abort(self) -> None:
        self.closed = True

    close = write_eof = abort

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, **_: Any) -> None:
        pass

    pause_reading = resume_reading = set_write_buffer_limits


class World:
    """One server, its connections, and what it answered."""

    def __init__(self, rows: list[Any], server: Any, seed: int) -> None:
        self.frames = Mutations(rows, seed)
        self.rows = rows
        self.server = server
        self.sent = self.answers = self.closed = self.made = 0
        self.strange: dict[str, int] = {}
        self.longest: tuple[float, int] = (0.0, 0)
        self.resident: list[int] = []
        self._connections: list[Any] = []
        self._ending: list[Any] = []

    def answered(self, command: Any) -> None:
        self.answers += 1
        remark = command.remark
        if remark and (PYTHON_WORDS.search(remark) or "failed inside" in remark):
            self.strange[remark[:200]] = self.strange.get(remark[:200], 0) + 1

    def connection(self) -> Any:
        self._connections = [c for c in self._connections if not self._over(c)]
        for protocol in [p for p in self._ending if p._peer.transport.closed]:
            self._ending.remove(protocol)
            self._end(protocol)
        while len(self._connections) < 4:
            protocol = self.server._new_protocol()
            self.made += 1
            protocol.connection_made(Pipe(self, self.made))
            self._connections.append(protocol)
        return self._connections[self.sent % 4]

    def _over(self, protocol: Any) -> bool:
        peer = protocol._peer
        if peer.ending and not peer.transport.closed:
            self._ending.append(protocol)  # what it asked before is still answered, in this turn
            return True
        if peer.transport.closed or peer.wire.held:
            self._end(protocol)
            return True
        return False

    def _end(self, protocol: Any) -> None:
        self.closed += 1
        protocol.connection_lost(None)

    async def feed(self, count: int, before_round: Any) -> None:
        for number in range(0, count, TURN):
            if number // ROUND != (number - TURN) // ROUND:
                await before_round()
                # Large answers are made beside others: a topic may have 65,536 queues.
                await asyncio.sleep(30)
                gc.collect()
                self.resident.append(resident())
            for _ in range(TURN):
                code, data = self.frames.next()
                protocol = self.connection()
                began = time.thread_time()
                protocol.data_received(data)
                self._took(time.thread_time() - began, code)
                self.sent += 1
            began = time.thread_time()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._took(time.thread_time() - began, -1)
            await asyncio.sleep(0.005)
        await asyncio.sleep(30)  # requests that wait, and tasks, end

    def _took(self, seconds: float, code: int) -> None:
        self.longest = max(self.longest, (seconds, code))

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        self.connection().data_received(frame_of(code, ext, body))
        await asyncio.sleep(0.001)

    async def alive(self) -> None:
        """The server answers every legal request still: with a code and words of its own."""
        for row in self.rows:
            protocol = self.connection()
            before = protocol._peer.transport.answers
            protocol.data_received(frame_of(row.code, ext_of(row), body_of(row)))
            for _ in range(100):
                await asyncio.sleep(0.2)
                if protocol._peer.transport.answers > before:
                    break
            else:
                raise AssertionError(f"a legal request with code {row.code} is not answered")

    def judge(self) -> None:
        assert not self.strange, self.strange
        assert self.server._dispatcher.crashed == 0
        flat = self.resident[1:]
        if len(flat) > 1:
            grown = flat[-1] - flat[0]
            assert grown < MOST_GROWTH, f"resident memory grew by {grown >> 20} MiB: {flat}"


def resident() -> int:
    """Bytes of resident memory, now (the most so far where /proc is missing)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attack_broker(root: Path, count: int, seed: int) -> World:
    """`count` frames against a broker; afterwards its store is sound."""
    worlds: list[World] = []
    sizes = StoreConfig(
        root_dir=str(root / "store"), segment_size=1 << 20, queue_file_size=20_000, max_hash_slots=100,
        max_index_entries=1000, timer_log_file_size=1 << 16,
    )  # fmt: skip

    async def main(loop: SimLoop) -> None:
        config = BrokerConfig(
            broker_name="broker-a", bind_address="10.0.0.1", listen_port=10911, recall_message_enable=True,
            lite_pull_message_enable=True,
        )  # fmt: skip
        clock = LoopClock(loop, START_MS)
        broker = Broker(
            config,
            sizes,
            broker_features,
            files=OsFiles(),
            clock=clock,
            entropy=Entropy(seed, process_id=7),
        )
        await broker.start()
        world = World(BROKER_ROWS, broker._listeners._servers[0], seed)
        worlds.append(world)
        settings = (broker.live.current, broker.live.store)

        async def clean() -> None:
            broker.live.current, broker.live.store = settings
            for topic in broker.tables.topics.all():
                if not broker.feature(TopicProcessor)._deletions.is_system(
                    topic.name
                ) and topic.name not in ("T", "T2"):
                    broker.feature(TopicProcessor)._deletions.delete_topic(
                        topic.name, clock.now_ms()
                    )
            for group in broker.tables.groups.all():
                if group.group_name != "g" and not group.group_name.startswith(("TOOLS", "CID_")):
                    broker.feature(TopicProcessor)._deletions.delete_group(
                        group.group_name, clean_offset=True, now_ms=clock.now_ms()
                    )
            for row in BROKER_ROWS:
                if row.code in (17, 200, 310, 34):
                    await world.ask(row.code, ext_of(row), body_of(row))

        await world.feed(count, clean)
        await clean()
        await world.alive()
        await broker.stop()
        assert broker.failure is None, broker.failure
        assert not loop.crashes, loop.crashes

    run(main, seed)
    store = MessageStore(sizes, OsFiles(), bytes((10, 0, 0, 1, 0, 0, 42, 159)))
    store.open(START_MS)
    store.close(START_MS)
    report = check_store(
        OsReadFiles(), find_store(OsReadFiles(), str(root / "store")), FsckOptions()
    )
    assert report.sound, report.findings
    worlds[0].judge()
    return worlds[0]


def attack_name_server(root: Path, count: int, seed: int) -> World:
    """`count` frames against a name server."""
    worlds: list[World] = []

    async def main(loop: SimLoop) -> None:
        config = NamesrvConfig(
            bind_address="10.0.0.1", listen_port=9876, kv_config_path=str(root / "kvConfig.json"),
            enable_all_topic_list=True, enable_topic_list=True,
        )  # fmt: skip
        server = NameServer(config, files=OsFiles(), clock=LoopClock(loop, START_MS))
        await server.start()
        world = World(NAMESRV_ROWS, server._server, seed)
        worlds.append(world)

        async def clean() -> None:
            server.core.config = config
            for topic in server.core.routes.topics():
                if topic not in ("T", "T2"):
                    server.core.routes.delete_topic(topic)
            for namespace in list(server.core.kv._table):
                for key in list(server.core.kv._table[namespace]):
                    server.core.kv.delete(namespace, key)
            server.core.kv._table.clear()

        await world.feed(count, clean)
        await clean()
        await world.alive()
        await server.stop()
        assert not loop.crashes, loop.crashes

    run(main, seed)
    worlds[0].judge()
    return worlds[0]


def told(name: str, world: World, seconds: float) -> str:
    """One line about a run."""
    longest, code = world.longest
    return (
        f"{name}: {world.sent} frames in {seconds:.0f} s, {world.answers} answers, {world.closed} connections closed, "
        f"longest stretch {longest * 1000:.0f} ms (code {code}), resident MiB "
        + " ".join(str(size >> 20) for size in world.resident[:: max(1, len(world.resident) // 10)])
    )


def main() -> None:
    """Frames in pieces of 50,000 with a seed each, half of them to either server."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    piece = min(count, 50_000)
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + count // piece):
        for name, attack in (("broker", attack_broker), ("name server", attack_name_server)):
            with tempfile.TemporaryDirectory() as root:
                began = time.monotonic()
                world = attack(Path(root), piece // 2, seed)
                print(f"seed {seed} " + told(name, world, time.monotonic() - began), flush=True)


if __name__ == "__main__":
    main()
