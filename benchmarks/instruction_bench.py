"""A broker without a socket, whose instructions can be counted: `benchmarks/instruction_paths.py` sends frames through it.

The loop is a list of calls, transports keep what is written, timers stand still while calls run.
"""

import asyncio
import gc
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

from roquette.access.model import (
    AccessSettings,
    Acl,
    Action,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
)
from roquette.apps.features import broker_features
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker
from roquette.remoting.door import ConnectionKind
from roquette.store.format.config import StoreConfig
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection, encode_binary_header
from roquette.wire.header_codec import encode_dict
from roquette.wire.signature import Credentials, Signer

WARM: Final = 6  # turns before the counted ones: caches of headers, topics and groups are filled
TURNS: Final = 24  # counted turns
BODY: Final = b"x" * 128
BORN_MS: Final = 1_732_000_000_000
BROKER: Final = "bench"
SIGNER: Final = ("alice", "a secret of some length")


class Failed(Exception):
    """A path did not do its work; the text says what happened."""


class Marks(Protocol):
    """What `benchmarks/callgrind.c` has; outside valgrind it does nothing."""

    def start(self) -> object:
        """Count from here on, from zero."""

    def stop(self, name: bytes) -> object:
        """Write what was counted as the profile `name`."""

    def turn_over(self) -> object:
        """Leave out what comes now, or go on."""


# A loop that is a list, transports that keep what is written.


class Never(asyncio.TimerHandle):
    """A timer while time stands still."""

    def __init__(self) -> None:
        pass

    def cancel(self) -> None:
        """Nothing to do."""


class Steps(asyncio.AbstractEventLoop):
    """A loop that is a list of calls; `run` makes them until there are no more. It is the running one inside `with`.

    Attributes:
        counts: what runs is counted, so nothing may leave for a thread; else that is done at once.
        broken: what has left all the same.
    """

    def __init__(self) -> None:
        self.counts = False
        self.broken = ""
        self._calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._before: asyncio.AbstractEventLoop | None = None
        self._never = Never()

    def __enter__(self) -> None:
        self._before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)

    def __exit__(self, *error: object) -> None:
        asyncio._set_running_loop(self._before)

    def run(self) -> None:
        while self._calls:
            calls, self._calls = self._calls, []
            for call, args in calls:
                call(*args)

    def time(self) -> float:
        return monotonic()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self._calls.append((callback, args))

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self._never

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self._never

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        return asyncio.Task(coro, loop=self, name=name)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        if self.counts:
            self.broken = f"{func} was given to a thread while instructions were counted"
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except OSError as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Of tasks that wait for a time that never comes, when the process ends."""

    def get_debug(self) -> bool:
        return False


class Sink(asyncio.Transport):
    """A transport that keeps what is written, the first way to look at an answer."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 10_911)})
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(data)

    def writelines(self, list_of_data: Any) -> None:
        self.written.append(b"".join(list_of_data))

    def taken(self) -> bytes:
        """What was written, and nothing twice."""
        found, self.written = b"".join(self.written), []
        return found

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        return None

    def abort(self) -> None:
        raise Failed("the broker has cut a connection")


@dataclass(frozen=True, slots=True)
class End:
    """One connection to the broker: what gets its bytes, and what has the answers."""

    protocol: Any
    sink: Sink


Turn = Sequence[tuple[End, bytes]]
"""What arrives, at which connection, before the loop goes on."""


class Bench:
    """A broker, its connections, and the counting.

    Attributes:
        messages: how many messages were counted for each row.
    """

    def __init__(self, marks: Marks) -> None:
        self.steps = Steps()
        self.messages: dict[str, int] = {}
        self._marks = marks

    async def start(
        self,
        folder: Path,
        topics: Sequence[str],
        groups: Sequence[str] = (),
        *,
        signed: bool = False,
    ) -> None:
        """Start the broker, and make topics and consumer groups. Raises Failed: it does not make them."""
        config = BrokerConfig(
            broker_name=BROKER,
            broker_ip1="127.0.0.1",
            bind_address="127.0.0.1",
            listen_port=0,
            # Under valgrind a turn may wait longer than requests are let: a refusal would be cheap.
            broker_fast_failure_enable=False,
        )  # fmt: skip
        store = StoreConfig(root_dir=str(folder), segment_size=64 << 20)
        broker = self.broker = Broker(
            config,
            store,
            broker_features,
            files=OsFiles(),
            clock=SystemClock(),
            entropy=Entropy(1, 4_711),
        )
        first = json.dumps({"username": "root", "password": SIGNER[1]})
        if signed:
            broker.access = AccessSettings(
                authentication_enabled=True, authorization_enabled=True, init_authentication_user=first
            )  # fmt: skip
        await broker.start()
        if signed:
            entry = PolicyEntry(Resource.parse("Topic:*"), (Action.PUB,))
            acl = Acl(f"User:{SIGNER[0]}", (Policy(PolicyType.CUSTOM, (entry,)),))
            user = User(*SIGNER)
            users = broker.core.access.users
            await users.change(lambda state: state.with_user(user).with_acl(SIGNER[0], acl))
        self._server = broker._listeners._servers[0]
        end = self.connect()
        sign = signer() if signed else unsigned
        for topic in topics:
            end.protocol.data_received(java(310, sign(send_fields(topic, 0), BODY), 0, BODY))
        now_ms = broker.core.clock.now_ms()
        for group in groups:
            broker.tables.groups.put(SubscriptionGroupConfig(group_name=group), now_ms)
        for _ in range(600):  # the answers wait until the topics are on the disk
            if len(answers_of(b"".join(end.sink.written))) == len(topics):
                break
            await asyncio.sleep(0.1)
        expect(answers_of(end.sink.taken()), len(topics), "a first message")
        # What was given to threads is done: they would count as well.
        await asyncio.get_running_loop().shutdown_default_executor()
        broker._listeners._main.loop = self.steps
        broker._listeners._main.turn_ms = 1 << 30  # under valgrind it is longer than a turn may be

    def connect(self, kind: str = "REMOTING") -> End:
        """A new connection of this kind (`roquette.remoting.door.ConnectionKind`)."""
        end = End(self._server._new_protocol(ConnectionKind[kind]), Sink())
        end.protocol.connection_made(end.sink)
        return end

    @contextmanager
    def counting(self, row: str, messages: int) -> Iterator[None]:
        """Count what is done inside, as the row's; `messages` are done there."""
        gc.collect()
        gc.disable()  # when it runs depends on what other rows have left
        try:
            with self.steps:
                self.steps.counts = True
                self._marks.start()
                yield
                self._marks.stop(row.encode())
        finally:
            gc.enable()
            self.steps.counts = False
        if self.steps.broken:
            raise Failed(f"{row}: {self.steps.broken}")
        self.messages[row] = messages

    @contextmanager
    def leaving_out(self) -> Iterator[None]:
        """Inside `counting`: what is done here does not count."""
        self._marks.turn_over()
        yield
        self._marks.turn_over()

    def feed(self, turns: Sequence[Turn]) -> None:
        """Let the turns happen, one after the other."""
        run = self.steps.run
        for turn in turns:
            for end, data in turn:
                end.protocol.data_received(data)
            run()

    def do(self, turns: Sequence[Turn]) -> None:
        """Let turns happen that do not count."""
        with self.steps:
            self.feed(turns)

    def walk(self, row: str, turns: Sequence[Turn], messages: int) -> None:
        """Warm up with the first `WARM` turns, count the others; `messages`: of each turn."""
        self.do(turns[:WARM])
        with self.counting(row, messages * (len(turns) - WARM)):
            self.feed(turns[WARM:])


# Frames, as clients write them.


def framed(header: bytes, body: bytes, kind: int = 0) -> bytes:
    """A frame; `kind` of its header: 0 is JSON, 1 is binary."""
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + (len(header) | kind << 24).to_bytes(4, "big") + header + body


def java(code: int, ext: dict[str, str], opaque: int, body: bytes) -> bytes:
    """A request as Apache's Java client writes it: fastjson, its fields by name."""
    header = {
        "code": code, "extFields": dict(sorted(ext.items())), "flag": 0, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 475,
    }  # fmt: skip
    return framed(json.dumps(header, separators=(",", ":")).encode(), body)


def binary(code: int, ext: dict[str, str], opaque: int, body: bytes) -> bytes:
    """The same with a binary header (rocketmq.serialize.type=ROCKETMQ)."""
    header = encode_binary_header(
        code=code, opaque=opaque, flag=0, version=475, language="JAVA", remark=None, ext=ext
    )
    return framed(header, body, 1)


def unique(serial: int) -> str:
    """A message's unique id."""
    return f"7F000001ABCD0DA14E0C0000{serial:08X}"


def send_fields(
    topic: str, serial: int, *, queue: int | None = None, batch: bool = False
) -> dict[str, str]:
    """The ext fields of SEND_MESSAGE_V2; without a queue in turn to each of 8."""
    text = f"UNIQ_KEY\x01{unique(serial)}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    return {
        "a": "bench_raw", "b": topic, "c": "TBW102", "d": "8", "e": str(serial & 7 if queue is None else queue), "f": "0", "g": str(BORN_MS), "h": "0",
        "i": "" if batch else text, "j": "0", "k": "false", "m": "true" if batch else "false", "n": BROKER,
    }  # fmt: skip


def unsigned(ext: dict[str, str], body: bytes) -> dict[str, str]:
    """The fields of a request that nobody signs."""
    return ext


def signer() -> Callable[[dict[str, str], bytes], dict[str, str]]:
    """What adds a signature to the fields of a request."""
    signing = Signer(Credentials(*SIGNER))

    def sign(ext: dict[str, str], body: bytes) -> dict[str, str]:
        named: dict[str, str] = json.loads(
            signing.sign(encode_dict(dict(sorted(ext.items()))), body)
        )
        return named

    return sign


# Answers.


def answers_of(data: bytes) -> list[Command]:
    """The answers in what the broker wrote."""
    return list(WireConnection().receive_data(data))


def expect(answers: Sequence[Command], wanted: int, what: str) -> None:
    """Raises Failed: there are not so many answers, or one is no success."""
    for answer in answers:
        if answer.code or not answer.flag & 1:
            raise Failed(f"{what} was answered {answer.code} {answer.remark or ''}, not 0")
    if len(answers) != wanted:
        raise Failed(f"{what}: {len(answers)} answers came, not {wanted}")
