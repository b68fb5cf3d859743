"""Any bytes as the message of any rpc: each call is answered or held, and no defect is counted.

Requests are mutated at protobuf's level too: a valid one with fields of any value, cut, doubled, and with unknown fields.
"""

import asyncio
import random
from typing import Any, cast

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tests.proxy.worlds import FakeBackend, FakeStream

from roquette.base.entropy import Entropy
from roquette.proxy.backend import Backend, TopicFacts
from roquette.proxy.parts import make_proxy
from roquette.proxy.service import Asks, BrokerAnswer, Caller, RpcCall
from roquette.proxy.settings import ProxySettings
from roquette.remoting.request import Peer
from roquette.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from roquette.wire.header_codec import encode_ext
from roquette_testing.embedded import ManualClock

TEXTS = ("", "T", "g", "a b", "%", "x" * 300, "\x00", "é", "ns%T", "0 1 2 3 0 b 0 0 0", "%RETRY%g")
NUMBERS = (0, 1, -1, 5, 1 << 31, -(1 << 63), (1 << 63) - 1, 253_402_300_800)


def fill(message: Message, dice: random.Random, depth: int = 0) -> Message:
    """Any values in any fields."""
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.4 or depth > 4:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[dice.choice(TEXTS)] = dice.choice(TEXTS)
        elif field.message_type is not None:
            part = getattr(message, field.name)
            many = field.is_repeated
            for _ in range(dice.choice((1, 1, 2, 5)) if many else 1):
                fill(part.add() if many else part, dice, depth + 1)
            if not many:
                part.SetInParent()
        else:
            value = scalar(field, dice)
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


def scalar(field: FieldDescriptor, dice: random.Random) -> object:
    """A value of a field's type."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return dice.randbytes(dice.choice((0, 1, 100)))
        return dice.choice(TEXTS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return dice.choice((0, 1, 2, 3, 6, 99))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    number = dice.choice(NUMBERS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_INT32:
        return max(-(1 << 31), min(number, (1 << 31) - 1))
    return number


def mutate(data: bytes, dice: random.Random) -> bytes:
    """As it is, cut, with a bit changed, doubled, or something else."""
    kind = dice.randrange(6)
    if kind < 2 or not data:
        return data
    place = dice.randrange(len(data))
    if kind == 2:
        return data[:place]
    if kind == 3:
        return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]
    if kind == 4:
        return data + data
    return dice.randbytes(dice.randrange(200))


class AnyBackend(FakeBackend):
    """A broker that answers anything, at once, later or never."""

    in_process = True

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice
        self.waiting: list[Any] = []
        peer = Peer(Turns(), Transport(), 9, bytes(8), "10.0.0.9:1")
        self.own = Caller(peer, "own", Asks())

    def ask(
        self, caller: Caller, broker: str, code: int, header: Any, body: bytes, then: Any,
        timeout_ms: int = 0,
    ) -> "AnyBackend":  # fmt: skip
        if header is not None:
            encode_ext(header)  # what CLUSTER sends
        dice = self.dice
        ext = dice.choice((b"", b"{}", b'{"msgId":"x","queueOffset":"7"}', b"[", dice.randbytes(9)))
        answer = BrokerAnswer(
            dice.choice((0, 0, 0, 1, 2, 11, 17, 210, 10_002)), "", ext, dice.randbytes(9)
        )
        if dice.random() < 0.7:
            then(answer)
        else:
            self.waiting.append(lambda: then(answer))
        return self

    def cancel(self) -> None:
        return None

    def topic(self, caller: Caller, name: str, then: Any) -> None:
        perm = self.dice.choice((2, 4, 6))
        queues = QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=perm)
        brokers = BrokerData(cluster="c", broker_name="b", broker_addrs={0: "10.0.0.9:10911"})
        route = TopicRouteData(queue_datas=[queues], broker_datas=[brokers])
        kind = self.dice.choice(("NORMAL", "MIXED", "FIFO", "?"))
        then(TopicFacts(name, kind, route) if self.dice.random() < 0.9 else None)

    def route(self, caller: Caller, name: str, used: Any, then: Any) -> None:
        self.topic(caller, name, then)

    def endpoints(self, caller: Caller, broker: Any, number: int, used: Any) -> Any:
        return used


class Turns:
    """`soon` of a peer: at once."""

    class loop:
        @staticmethod
        def call_soon(call: Any, *args: Any) -> None:
            call(*args)

    def mark(self, peer: Peer) -> None:
        return None


class Transport(asyncio.Transport):
    def get_write_buffer_size(self) -> int:
        return 0


class Replies(FakeStream):
    """Keeps nothing; says so when a call ends twice."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: set[int] = set()

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        assert stream_id not in self.ended

    def finish(self, stream_id: int, status: int, text: str) -> None:
        assert stream_id not in self.ended
        self.ended.add(stream_id)


def run(count: int, seed: int) -> None:
    dice = random.Random(seed)
    backend, clock, stream = AnyBackend(dice), ManualClock(), Replies()
    proxy = make_proxy(cast(Backend, backend), ProxySettings(), clock, Entropy(seed=1))
    rpcs = list(proxy.rpcs.items())
    caller = Caller(Peer(Turns(), Transport(), 1, bytes(8), "10.0.0.1:1"), "client", Asks())
    for number in range(count):
        path, rpc = dice.choice(rpcs)
        data = mutate(fill(rpc.request(), dice).SerializeToString(), dice)
        call = RpcCall(caller, rpc, stream, number)
        call.now_ms, call.arrived_ms = clock.now_ms(), clock.steady_ms()
        proxy.begin(call, data)
        if rpc.listens and not call.over:
            proxy.go_on(call, mutate(data, dice))
        if dice.random() < 0.3:
            proxy.guarded(call, call.cancelled)
        waiting, backend.waiting = backend.waiting, []
        for answer in waiting if dice.random() < 0.9 else ():
            proxy.guarded(call, answer)
        assert proxy.crashed == 0, (seed, number, path, data)
    proxy.stop()
    assert proxy.crashed == 0


@pytest.mark.parametrize("seed", range(4))
def test_any_message_of_any_rpc(seed: int) -> None:
    run(1_500, seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_half_a_million_messages() -> None:
    for seed in range(100, 150):
        run(10_000, seed)
