"""A name server and a broker inside a test's own process, on a free port or on a network in memory, in a thread of their own.

    with EmbeddedBroker() as broker:
        with broker.sync_client() as mq:
            mq.send("orders", b"a", deliver_at=timedelta(hours=3))
            broker.clock.advance(hours=3)

Any RocketMQ client can use it, in this process or another: `broker.name_servers` is its address. Its clock is its own:
`clock.advance` makes hours pass for all that waits in it, while connections and clients notice nothing.
"""

import asyncio
import concurrent.futures
import difflib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

from roquette import sync
from roquette.apps.features import broker_features
from roquette.base.clock import LoopClock, SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.pop.feature import PopFeature
from roquette.broker.service import Broker
from roquette.broker.timers.feature import DelayFeature
from roquette.client.client import Client
from roquette.message import properties as names
from roquette.message.message import Message, ReceivedMessage, unread
from roquette.message.names import (
    DEFAULT_PRODUCER_GROUP,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    dlq_topic,
    pop_retry_topic,
    retry_topic,
)
from roquette.message.properties import SYSTEM, UNIQ_KEY
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.store.format.config import StoreConfig
from roquette_testing.faulty_port import Action, Fault, FaultyPort, Side, codes_of
from roquette_testing.memory_pipe import CLIENTS, NETWORK, SERVERS
from roquette_testing.seeds import stored

# Faults of an embedded broker.


class Victim(Protocol):
    """Embedded broker, as far as faults need it."""

    port: FaultyPort

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the broker's loop and wait for its value."""

    def run(self, step: Callable[[], Any]) -> Any:
        """Run a plain function on the broker's loop and wait for its value."""

    def post(self, step: Callable[[], object]) -> None:
        """Run a plain function on the broker's loop soon."""

    async def start_broker(self) -> None:
        """Begin, unless it runs."""

    async def stop_broker(self) -> None:
        """End in order."""

    async def kill_broker(self) -> None:
        """End as by SIGKILL."""

    def drop_connections(self) -> None:
        """Break all."""

    def sync_client(self) -> sync.Client:
        """A client."""
        ...


class EmbeddedFaults:
    """Faults that can happen to an embedded broker.

    `drop`, `delay`, `repeat` and `reorder` happen at the broker's port to the next `count` requests, or answers, of a
    kind: `of` is "send", "receive", "acknowledge", "end transaction", a request code, or None for any request, heartbeats
    among them. They return a `Fault`, whose `left` says how many are still to come. `heal` ends them.
    """

    def __init__(self, broker: Victim) -> None:
        self._broker = broker

    # the process

    def kill(self) -> None:
        """The broker ends as by SIGKILL: connections are cut, nothing more is answered, written or saved.

        What it had written stays, as the system keeps it for a killed process. Its name server stays, and `restart`
        brings the broker back, which then recovers its store.
        """
        self._broker.call(self._broker.kill_broker())

    def stop(self) -> None:
        """The broker ends in order, as after a SIGTERM of its process; its name server stays. `restart` brings it back."""
        self._broker.call(self._broker.stop_broker())

    def restart(self) -> None:
        """The broker again, with its messages, on the same port."""
        self._broker.call(self._broker.start_broker())

    def freeze(self, seconds: float) -> None:
        """Nothing is answered for so long, of real time (at most 60 s), as after a SIGSTOP; returns at once."""
        if not 0 <= seconds <= 60:
            raise ValueError(f"{seconds} s is not 0 to 60 s")
        self._broker.post(lambda: threading.Event().wait(seconds))

    # the network

    def disconnect(self) -> None:
        """Break every connection; clients come back by themselves."""
        self._broker.run(self._broker.drop_connections)

    def partition(self, *, requests: bool = True, answers: bool = True) -> None:
        """No request reaches the broker, and no answer its clients, until `heal`: then all that waited passes.

        Connections stay, and new ones are made; the name server can be reached.
        """
        wanted: dict[Side, bool] = {"requests": requests, "answers": answers}
        sides = frozenset(side for side, is_cut in wanted.items() if is_cut)
        self._broker.run(lambda: self._broker.port.partition(sides))

    def heal(self) -> None:
        """No partition any more, and none of `drop`, `delay`, `repeat` and `reorder`."""
        self._broker.run(self._broker.port.heal)

    def drop(self, side: Side, *, of: str | int | None = None, count: int = 1) -> Fault:
        """Lose the next requests ("requests") or their answers ("answers")."""
        return self._add("drop", side, of, count)

    def delay(
        self, side: Side, seconds: float, *, of: str | int | None = None, count: int = 1
    ) -> Fault:
        """Let the next ones come so much later, by the broker's clock; others overtake them."""
        return self._add("delay", side, of, count, seconds)

    def repeat(self, side: Side, *, of: str | int | None = None, count: int = 1) -> Fault:
        """Let each of the next ones come twice."""
        return self._add("repeat", side, of, count)

    def reorder(
        self, side: Side, *, of: str | int | None = None, count: int = 2, seconds: float = 1.0
    ) -> Fault:
        """Keep the next ones until there are `count`, or `seconds` have passed; then the last comes first."""
        return self._add("reorder", side, of, count, seconds)

    def _add(
        self, action: Action, side: Side, of: str | int | None, count: int, seconds: float = 0.0
    ) -> Fault:
        if side not in ("requests", "answers"):
            raise ValueError(f"{side!r} is neither 'requests' nor 'answers'")
        if count < 1 or seconds < 0:
            raise ValueError(f"count={count}, seconds={seconds}: at least 1, and no negative time")
        fault = Fault(action, side, codes_of(of), count, seconds)
        self._broker.run(lambda: self._broker.port.faults.append(fault))
        return fault

    # messages

    def duplicate(self, message: ReceivedMessage) -> None:
        """Store a message again in its queue, under its own id: as a sender does whose answer was lost."""
        again = Message(
            message.topic,
            message.body,
            tag=message.tag,
            keys=message.keys,
            properties={
                name: text
                for name, text in message.properties.items()
                if name not in SYSTEM or name == UNIQ_KEY
            },
            shard_key=message.shard_key,
        )
        with self._broker.sync_client() as mq:
            mq.send(again, queue=message.queue)


# Messages that a broker has still to give to a group of one topic: unread, coming again, delayed, timed, popped and not done.
# `admin.left` asks brokers the same from outside, for all groups at once, and errs to the side of waiting; this looks into the broker, for one group and topic. Open transactions count there, since a broker that goes must wait for them, and not here: a half message is not sent yet.


def still_to_come(broker: Broker, topic: str, group: str) -> int:
    """Count these messages; for a moment after a pop or its acknowledgement, one more for each."""
    topics = {
        topic,
        retry_topic(group),
        *(pop_retry_topic(topic, group, v2=bool(v2)) for v2 in (0, 1)),
    }
    unread = sum(_unread(broker, each, topic, group) for each in topics)
    waiting = _delayed(broker, topic, topics) + _timed(broker, topic)
    return unread + waiting + _popped(broker, topics, group)


def _is_of(message: ReceivedMessage, topic: str) -> bool:
    """Return True if it was sent to the topic: a group's retries are of all its topics, and name theirs."""
    return message.properties.get(names.RETRY_TOPIC, topic) == topic


def _unread(broker: Broker, name: str, topic: str, group: str) -> int:
    store, offsets = broker.store, broker.tables.offsets
    begins = {queue: offsets.query(group, name, queue) for queue in store.queues_of(name)}
    if name == retry_topic(group):
        return sum(_is_of(message, topic) for message in stored(broker, name, begins))
    return sum(
        unread(begin, store.min_offset(name, queue), store.max_offset(name, queue))
        for queue, begin in begins.items()
    )


def _delayed(broker: Broker, topic: str, topics: set[str]) -> int:
    """In the delay levels, where what comes again waits, too."""
    levels = broker.feature(DelayFeature).levels.progress()
    begins = {level - 1: done for level, (done, _) in levels.items()}
    return sum(
        message.properties.get(names.REAL_TOPIC) in topics and _is_of(message, topic)
        for message in stored(broker, SCHEDULE_TOPIC, begins)
    )


def _timed(broker: Broker, topic: str) -> int:
    """In the timer, or on the way into it: neither delivered nor recalled. What waits for long stands there again."""
    waiting: set[str] = set()
    recalled: set[str] = set()
    for message in stored(broker, TIMER_TOPIC):
        if message.properties.get(names.REAL_TOPIC) == topic:
            recall = names.TIMER_DEL_UNIQKEY in message.properties
            (recalled if recall else waiting).add(message.properties.get(names.UNIQ_KEY, ""))
    if waiting := waiting - recalled:
        waiting -= {
            message.properties.get(names.UNIQ_KEY, "")
            for message in stored(broker, topic)
            if names.TIMER_DEQUEUE_MS in message.properties
        }
    return len(waiting)


def _popped(broker: Broker, topics: set[str], group: str) -> int:
    """Handed out and not acknowledged, and what was not looked at yet."""
    reviver = broker.feature(PopFeature).pop.reviver
    return reviver.behind() + sum(
        len(point.unacknowledged())
        for point in reviver.in_flight()
        if point.topic in topics and point.group == group
    )


T = TypeVar("T")

LOOPBACK = "127.0.0.1"
_STORE: dict[str, Any] = {
    "segment_size": 8 << 20,
    "queue_file_size": 20 * 2_000,
    "max_hash_slots": 5_000,
    "max_index_entries": 20_000,
    "timer_log_file_size": 1 << 20,
}
_LOOK_S = 0.005  # between two looks of an assertion that waits


class TravelLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can jump ahead: then all timers on the way are due.

    Attributes:
        ahead: seconds.
        port: what the servers that are made now get their connections through, or None.
        in_memory: servers are made on this process's own network, without sockets.
    """

    ahead = 0.0
    port: FaultyPort | None = None
    in_memory = False

    def time(self) -> float:
        """The machine's steady time, and what was jumped over."""
        return super().time() + self.ahead

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: Any = None,
        port: Any = None,
        **options: Any,
    ) -> asyncio.AbstractServer:
        factory = protocol_factory if self.port is None else self.port.wrap(protocol_factory)
        if self.in_memory:
            return NETWORK.listen(factory, host, port)
        return await super().create_server(factory, host, port, **options)


class EmbeddedClock:
    """The time of an embedded broker."""

    def __init__(self, broker: "EmbeddedBroker") -> None:
        self._broker = broker

    def advance(
        self,
        span: timedelta | None = None,
        *,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Let time pass in the broker: delayed messages and retries on the way are delivered at once.

        Raises:
            ValueError: time does not go back.
        """
        span = span or timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta(0):
            raise ValueError(f"time does not go back: {span}")
        self._broker.jump(span.total_seconds())

    def now(self) -> datetime:
        """The broker's time, in UTC."""
        return datetime.fromtimestamp(self._broker.now_ms() / 1000, UTC)


class EmbeddedBroker:
    """A name server and a broker; also an asynchronous context manager.

    Args:
        port: of the broker; 0: a free one. namesrv_port: of the name server.
        network: "loopback", where any client reaches it, or "memory": no port and no socket, and only the clients of this
            process that `client` and `sync_client` give.
        settings: fields of BrokerConfig, such as `auto_create_topic_enable=False`.

    Attributes:
        clock: makes time pass. faults: makes things go wrong. port: where they happen, on the broker's loop.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        namesrv_port: int = 0,
        network: Literal["loopback", "memory"] = "loopback",
        **settings: Any,
    ) -> None:
        if network not in ("loopback", "memory"):
            raise ValueError(f"network={network!r} is neither 'loopback' nor 'memory'")
        self.clock = EmbeddedClock(self)
        self.faults = EmbeddedFaults(self)
        self.port = FaultyPort()
        self._port = port
        self._namesrv_port = namesrv_port
        self._settings = settings
        self._loop = TravelLoop()
        self._loop.in_memory = network == "memory"
        self._host, self._client_host = (
            (SERVERS, CLIENTS) if network == "memory" else (LOOPBACK, LOOPBACK)
        )
        self._thread: threading.Thread | None = None
        self._folder = ""
        self._world: LoopClock | None = None
        self._names: NameServer | None = None
        self._broker: Broker | None = None

    # life

    def start(self) -> Self:
        """Begin; `with` does it. Returns when clients can send and consume."""
        if self._thread is None:
            self._folder = tempfile.mkdtemp(prefix="roquette-test-")
            self._thread = threading.Thread(target=self._run, name="roquette-broker", daemon=True)
            self._thread.start()
            begun = False
            try:
                self.call(self._begin())
                begun = True
            finally:
                if not begun:
                    self.stop()
        return self

    def stop(self) -> None:
        """End both servers and remove their files; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _begin(self) -> None:
        start_ms = SystemClock().now_ms() - int(self._loop.time() * 1000)
        self._world = LoopClock(self._loop, start_ms)
        config = NamesrvConfig(
            bind_address=self._host,
            listen_port=self._namesrv_port,
            kv_config_path=f"{self._folder}/namesrv/kvConfig.json",
            controller_store_path=f"{self._folder}/namesrv/controller",
        )
        names = NameServer(config, files=OsFiles(), clock=self._world)
        await names.start()
        self._names = names
        await self.start_broker()

    async def start_broker(self) -> None:
        """On the broker's loop."""
        assert self._world is not None
        if self._broker is not None:
            return
        values: dict[str, Any] = {
            "broker_name": "broker-a",
            "bind_address": self._host,
            "broker_ip1": self._host,
            "listen_port": self._port,
            "namesrv_addr": self.name_servers,
            "recall_message_enable": True,
            "broker_fast_failure_enable": False,  # what waits while time jumps is not late
        }
        broker = Broker(
            BrokerConfig(**values | self._settings),
            StoreConfig(root_dir=f"{self._folder}/store", **_STORE),
            broker_features,
            files=OsFiles(),
            clock=self._world,
            entropy=Entropy(),
        )
        self._loop.port = self.port
        try:
            await broker.start()
        finally:
            self._loop.port = None
        self._broker = broker
        self._port = int(broker.address.rpartition(":")[2])

    async def stop_broker(self) -> None:
        """On the broker's loop."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()

    async def kill_broker(self) -> None:
        """On the broker's loop."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.abandon()

    async def _end(self) -> None:
        await self.stop_broker()
        if self._names is not None:
            await self._names.stop()

    # on its thread

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop and wait for its value."""
        return self._submit(work).result(60)

    def _submit(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        if self._thread is None:
            work.close()
            raise RuntimeError(
                "the embedded broker is not started, or stopped: use 'with EmbeddedBroker()'"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, step: Callable[[], T]) -> T:
        """Run a plain function on the broker's loop and wait for its value."""

        async def once() -> T:
            return step()

        return self.call(once())

    def post(self, step: Callable[[], object]) -> None:
        """Run a plain function on the broker's loop soon."""
        self._loop.call_soon_threadsafe(step)

    @property
    def broker(self) -> Broker:
        """The broker itself, which only its own thread may touch (`run`)."""
        if self._broker is None:
            raise RuntimeError("the embedded broker is not started, or was killed")
        return self._broker

    # time

    def now_ms(self) -> int:
        """Milliseconds since 1970, by the broker's clock."""
        assert self._world is not None, "the embedded broker is not started"
        return self._world.now_ms()

    def jump(self, seconds: float) -> None:
        """`clock.advance`."""

        def step() -> None:
            self._loop.ahead += seconds
            self._stay_alive()

        self.run(step)

    def _stay_alive(self) -> None:
        """Keep what was connected before the jump connected after it."""
        assert self._world is not None
        assert self._names is not None
        now_ms = self._world.steady_ms()
        for live in self._names.core.routes.live.all():
            live.updated_ms = now_ms
        broker = self._broker
        if broker is None:
            return
        tables = broker.tables
        tables.consumers.renew(now_ms)
        tables.producers.renew(now_ms)
        tables.locks.renew(now_ms)
        now_s = self._loop.time()
        for peer in [*broker.peers(), *self._names.peers()]:
            peer.last_active = now_s

    def drop_connections(self) -> None:
        """`faults.disconnect`."""
        for peer in self.broker.peers():
            peer.transport.abort()

    # clients

    @property
    def name_servers(self) -> str:
        """The name server's address, for any client: host:port."""
        if self._names is None:
            raise RuntimeError("the embedded broker is not started")
        return f"{self._host}:{self._names.port}"

    def client(self, *, group: str = DEFAULT_PRODUCER_GROUP, **settings: Any) -> Client[Any]:
        """A client of this broker, not started; `settings` are ClientSettings, and `encode`."""
        return Client(self.name_servers, group=group, **self._own() | settings)

    def sync_client(
        self, *, group: str = DEFAULT_PRODUCER_GROUP, **settings: Any
    ) -> sync.Client[Any]:
        """The same without asyncio."""
        return sync.Client(self.name_servers, group=group, **self._own() | settings)

    def _own(self) -> dict[str, Any]:
        return {"local_host": self._client_host, "offset_root": f"{self._folder}/offsets"}

    # looking

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages stored in a topic, by queue and offset; none when there is no such topic."""
        return self.run(lambda: stored(self.broker, topic))

    def unconsumed(self, topic: str, group: str) -> int:
        """Count the messages of a topic that the group has not acknowledged yet: unread ones, those that failed and come again,
        that are delivered later, and that are popped.

        Raises:
            LookupError: there is no such topic.
        """

        def count() -> int:
            if self.broker.tables.topics.find(topic) is None:
                raise LookupError(self._no_topic(topic))
            return still_to_come(self.broker, topic, group)

        return self.run(count)

    def _no_topic(self, topic: str) -> str:
        known = sorted(each.name for each in self.broker.tables.topics.all())
        near = difflib.get_close_matches(topic, known, 3)
        return f"there is no topic {topic}" + (f": {' or '.join(near)}?" if near else "")

    def assert_delivered(self, topic: str, *, group: str, timeout: float = 5.0) -> None:
        """Wait until a group has acknowledged every message of a topic, those that come again, are delivered later or are
        popped among them.

        It blocks: where handlers run on the caller's own event loop, `await assert_delivered_async(...)`.

        Raises:
            AssertionError: it has not within `timeout` seconds, or there is no such topic or group; the words say how many
                are left.
        """
        self._wait(lambda: self._undelivered(topic, group), timeout)

    async def assert_delivered_async(self, topic: str, *, group: str, timeout: float = 5.0) -> None:
        """`assert_delivered`, while the caller's event loop goes on."""
        await self._wait_async(lambda: self._undelivered(topic, group), timeout)

    def _undelivered(self, topic: str, group: str) -> str:
        if self.broker.tables.topics.find(topic) is None:
            return self._no_topic(topic)
        if left := still_to_come(self.broker, topic, group):
            return f"group {group} has not acknowledged {left} messages of {topic}"
        return "" if self.broker.tables.groups.known(group) else f"there is no group {group}"

    def assert_dead_lettered(
        self, group: str, *, body: bytes | str | None = None, count: int = 1, timeout: float = 5.0
    ) -> list[ReceivedMessage]:
        """Wait until a group has dead letters; returns them. It blocks, as `assert_delivered` does.

        Args:
            body: of the messages that are meant; None: all. count: how many there must be at least.

        Raises:
            AssertionError: there are fewer after `timeout` seconds; the words say which there are.
        """
        self._wait(lambda: self._few_dead(group, body, count), timeout)
        return self.run(lambda: self._dead(group, body))

    async def assert_dead_lettered_async(
        self, group: str, *, body: bytes | str | None = None, count: int = 1, timeout: float = 5.0
    ) -> list[ReceivedMessage]:
        """`assert_dead_lettered`, while the caller's event loop goes on."""
        await self._wait_async(lambda: self._few_dead(group, body, count), timeout)
        return self.run(lambda: self._dead(group, body))

    def _dead(self, group: str, body: bytes | str | None) -> list[ReceivedMessage]:
        wanted = body.encode() if isinstance(body, str) else body
        letters = stored(self.broker, dlq_topic(group))
        return [letter for letter in letters if wanted is None or letter.body == wanted]

    def _few_dead(self, group: str, body: bytes | str | None, count: int) -> str:
        found = len(self._dead(group, body))
        if found >= count:
            return ""
        return (
            f"group {group} has {found} such dead letters, {count} are wanted; "
            f"all: {[letter.body[:80] for letter in self._dead(group, None)]}"
        )

    def _wait(self, missing: Callable[[], str], timeout: float) -> None:
        """Look until nothing is missing; `missing` runs on the broker's loop and says what is."""
        deadline = time.monotonic() + timeout
        while words := self.run(missing):
            if time.monotonic() >= deadline:
                raise AssertionError(f"{words} (after {timeout} s)")
            threading.Event().wait(_LOOK_S)

    async def _wait_async(self, missing: Callable[[], str], timeout: float) -> None:
        async def look() -> str:
            return missing()

        deadline = time.monotonic() + timeout
        while words := await asyncio.wrap_future(self._submit(look())):
            if time.monotonic() >= deadline:
                raise AssertionError(f"{words} (after {timeout} s)")
            await asyncio.sleep(_LOOK_S)


# A clock that moves only when the test says so.


class ManualClock:
    """Both times of `roquette.base.clock.Clock` under the test's control."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._steady_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def steady_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._steady_ms

    def lease_ms(self) -> int:
        """Steady time, sleep included."""
        return self._steady_ms

    def advance(self, milliseconds: int) -> int:
        """Let time pass; returns the new wall time."""
        assert milliseconds >= 0, "time does not go back: use `jump`"
        self._steady_ms += milliseconds
        return self.jump(milliseconds)

    def jump(self, milliseconds: int) -> int:
        """Somebody sets the wall clock, forward or back; returns the new wall time."""
        self._now_ms += milliseconds
        return self._now_ms
