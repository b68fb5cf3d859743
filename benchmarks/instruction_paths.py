"""The paths whose instructions `benchmarks/instructions.py` counts: recorded frames to a broker without a socket, and back.

This runs in the counted process. A path warms up, counts its turns, and then reads every answer it got: `Failed` says which one was
no success. Each has a broker of its own in a forked child, so that its figure is the same whichever others run.
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Any, Final

import ngh2

from benchmarks.instruction_bench import (
    BODY,
    BORN_MS,
    BROKER,
    TURNS,
    WARM,
    Bench,
    End,
    Failed,
    Marks,
    Sink,
    Turn,
    answers_of,
    binary,
    expect,
    java,
    send_fields,
    signer,
    unique,
    unsigned,
)
from roquette.base.entropy import Entropy
from roquette.client.client import Client
from roquette.client.client_base import Outside
from roquette.client.config import ClientConfig
from roquette.client.core.route_cache import TopicRoute
from roquette.client.receipt import SendReceipt
from roquette.client.send_request import SEND_OK
from roquette.message.record import decode_records, encode_batch
from roquette.remoting.address import HOSTS
from roquette.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from roquette.wire.command import Command
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

HOST: Final = "broker.bench"  # where the client connects: to no socket
COMMITTERS: Final = tuple(f"bench_commit_{number}" for number in range(4))
GROUPS: Final = ("bench_pull", "bench_pop", "bench_beat", "bench_receive", *COMMITTERS)

AT_ONCE: Final = 2  # ways: valgrind runs one thread of a process at a time, and two processors are what tests have

Walk = Callable[[Bench], Awaitable[None]]
"""Does the work of a path, counts it and checks it. Raises Failed."""


# The paths of the remoting protocol.


def spread(
    ends: Sequence[End], each: int, frame: Callable[[int], bytes], turns: int = WARM + TURNS
) -> list[Turn]:
    """Turns in which each connection gets `each` frames, numbered through all of them."""
    wide = len(ends)
    return [
        [
            (end, b"".join(frame((turn * wide + at) * each + i) for i in range(each)))
            for at, end in enumerate(ends)
        ]
        for turn in range(turns)
    ]


def replies(ends: Sequence[End], wanted: int, what: str) -> list[Command]:
    """All answers of the connections, `wanted` of them. Raises Failed."""
    found = [answer for end in ends for answer in answers_of(end.sink.taken())]
    expect(found, wanted, what)
    return found


def stored(bench: Bench, topic: str) -> int:
    """How many messages the queues of a topic have."""
    return sum(bench.broker.store.max_offset(topic, queue) for queue in range(8))


def load(bench: Bench, topic: str, count: int, queue: int | None = None) -> None:
    """Send so many messages, which do not count."""
    end = bench.connect()
    frames = (java(310, send_fields(topic, i, queue=queue), i, BODY) for i in range(count))
    bench.do([[(end, b"".join(frames))]])
    replies([end], count, f"a message to {topic}")


Frame = Callable[[int, dict[str, str], int, bytes], bytes]
"""Makes a request of code, ext fields, opaque and body."""


def sends(
    row: str, connections: int, each: int, frame: Frame = java, *, signed: bool = False
) -> Walk:
    """SEND_MESSAGE_V2: in a turn, each of the connections sends `each` messages."""

    async def walk(bench: Bench) -> None:
        sign = signer() if signed else unsigned
        ends = [bench.connect() for _ in range(connections)]

        def request(i: int) -> bytes:
            return frame(310, sign(send_fields(row, i), BODY), i, BODY)

        if connections * each == 1:
            load(bench, row, 8)  # a queue's first message makes files
        before, turns = stored(bench, row), spread(ends, each, request)
        bench.walk(row, turns, connections * each)
        total = len(turns) * connections * each
        replies(ends, total, row)
        if (more := stored(bench, row) - before) != total:
            raise Failed(f"{row}: {more} messages are in the store, not {total}")

    return walk


async def batch(bench: Bench) -> None:
    """SEND_BATCH_MESSAGE of 32 messages of 1 KiB."""
    row, end = "batch-32x1k", bench.connect()

    def request(i: int) -> bytes:
        entries = [
            (0, b"x" * 1024, f"UNIQ_KEY\x01{unique(i * 32 + k)}\x02WAIT\x01true\x02".encode())
            for k in range(32)
        ]
        return java(320, send_fields(row, i, batch=True), i, encode_batch(entries))

    before, turns = stored(bench, row), spread([end], 1, request)
    bench.walk(row, turns, 32)
    replies([end], len(turns), row)
    if (more := stored(bench, row) - before) != len(turns) * 32:
        raise Failed(f"{row}: {more} messages are in the store, not {len(turns) * 32}")


def expect_messages(answers: Sequence[Command], row: str) -> None:
    """Raises Failed: an answer has not 32 messages."""
    for answer in answers:
        if (found := len(decode_records(answer.body))) != 32:
            raise Failed(f"{row}: an answer has {found} messages, not 32")


async def pull(bench: Bench) -> None:
    """PULL_MESSAGE that finds 32 messages; four connections."""
    row = "pull-32"
    load(bench, row, 8 * 40)
    ends = [bench.connect() for _ in range(4)]

    def request(i: int) -> bytes:
        fields = {
            "consumerGroup": "bench_pull", "topic": row, "queueId": str(i & 1), "queueOffset": "1",
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG", "bname": BROKER,
        }  # fmt: skip
        return java(11, fields, i, b"")

    turns = spread(ends, 1, request)
    bench.walk(row, turns, len(ends) * 32)
    expect_messages(replies(ends, len(turns) * len(ends), row), row)


async def pop(bench: Bench) -> None:
    """POP_MESSAGE of 32 messages, then ACK_MESSAGE for each of them, 32 in a turn; one connection."""
    row, end = "pop-32", bench.connect()
    load(bench, row, (WARM + TURNS) * 32, queue=0)
    now = str(time_ns() // 1_000_000)

    def request(i: int) -> bytes:
        fields = {
            "consumerGroup": "bench_pop", "topic": row, "queueId": "0", "maxMsgNums": "32",
            "invisibleTime": "600000", "pollTime": "15000", "bornTime": now, "initMode": "0", "expType": "TAG", "exp": "*",
            "order": "false", "bname": BROKER,
        }  # fmt: skip
        return java(200050, fields, i, b"")

    turns = spread([end], 1, request)
    bench.walk(row, turns, 32)
    answers = replies([end], len(turns), row)
    expect_messages(answers, row)
    acks: list[Turn] = []
    for answer in answers:
        head = json.loads(bytes(answer.ext))
        start = head["startOffsetInfo"].split()[2]
        frames = []
        for offset in head["msgOffsetInfo"].split()[2].split(","):
            extra = f"{start} {head['popTime']} {head['invisibleTime']} {head['reviveQid']} 0 {BROKER} 0 {offset}"
            named = {
                "consumerGroup": "bench_pop", "topic": row, "queueId": "0", "extraInfo": extra, "offset": offset,
                "bname": BROKER,
            }  # fmt: skip
            frames.append(java(200051, named, len(frames), b""))
        acks.append([(end, b"".join(frames))])
    bench.walk("ack", acks, 32)
    replies([end], len(acks) * 32, "ack")


async def commit(bench: Bench) -> None:
    """UPDATE_CONSUMER_OFFSET: four groups commit their eight queues in a turn."""
    row = "commit-offset"
    load(bench, row, 8 * 40)
    ends = [bench.connect() for _ in range(4)]

    def request(i: int) -> bytes:
        fields = {
            "consumerGroup": COMMITTERS[i // 8 % 4], "topic": row, "queueId": str(i & 7),
            "commitOffset": str(i // 32 + 1), "bname": BROKER,
        }  # fmt: skip
        return java(15, fields, i, b"")

    turns = spread(ends, 8, request)
    bench.walk(row, turns, 32)
    replies(ends, len(turns) * 32, row)
    for group in COMMITTERS:
        for queue in range(8):
            known = bench.broker.tables.offsets.query(group, row, queue)
            if known != len(turns):
                raise Failed(f"{row}: queue {queue} has the offset {known}, not {len(turns)}")


async def heartbeat(bench: Bench) -> None:
    """HEART_BEAT of four clients that the broker knows: a producer group and a consumer group with one subscription each."""
    row = "heartbeat"
    ends = [bench.connect() for _ in range(4)]

    def request(i: int) -> bytes:
        subscription = {
            "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1,
            "tagsSet": [], "topic": row,
        }  # fmt: skip
        consumer = {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": "bench_beat",
            "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False,
        }  # fmt: skip
        told = {
            "clientID": f"127.0.0.1@bench{i % 4}", "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "bench_raw"}],
        }  # fmt: skip
        return java(34, {}, i, json.dumps(told, separators=(",", ":")).encode())

    turns = spread(ends, 1, request, 1 + WARM + TURNS)
    # Members are told of each other while they come: no answer, but a request of the broker's.
    bench.do(turns[:1])
    for end in ends:
        end.sink.taken()
    bench.walk(row, turns[1:], len(ends))
    replies(ends, (len(turns) - 1) * len(ends), row)


# The v5 gRPC protocol.


class Grpc:
    """One HTTP/2 connection of a v5 client, which writes its calls before it reads any reply."""

    def __init__(self, bench: Bench) -> None:
        self.end = bench.connect("HTTP2")
        self._bench = bench
        self._http = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self._http.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: 4 << 20})
        self._http.set_local_window_size(64 << 20)
        self._serial = 0
        bench.do([[(self.end, self._http.data_to_send())]])
        self.take(0, "the connection")

    def turn(self, rpc: bytes, requests: Sequence[Any], timeout: bytes) -> Turn:
        """A call for each request, as bytes."""
        for request in requests:
            self._serial += 1
            data = request.SerializeToString()
            number = self._serial * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128
            headers = [
                (b":method", b"POST"), (b":scheme", b"http"),
                (b":path", b"/apache.rocketmq.v2.MessagingService/" + rpc), (b":authority", b"127.0.0.1:10911"),
                (b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"user-agent", b"grpc-python-load/1"),
                (b"x-mq-client-id", b"bench@1"), (b"x-mq-language", b"PYTHON"), (b"x-mq-protocol", b"v2"),
                (b"x-mq-client-version", b"5.0.5"), (b"x-mq-date-time", b"20261122T000000Z"), (b"x-mq-namespace", b""),
                (b"grpc-timeout", timeout), (b"x-mq-request-id", b"%032x" % number),
            ]  # fmt: skip
            stream = self._http.send_request(headers)
            self._http.send_data(
                stream, b"\0" + len(data).to_bytes(4, "big") + data, end_stream=True
            )
        return [(self.end, self._http.data_to_send())]

    def take(self, wanted: int, what: str) -> list[list[bytes]]:
        """The messages of each reply. Raises Failed: there are not `wanted`, or gRPC's status of one is not 0."""
        self._http.receive_data(self.end.sink.taken())
        parts: dict[int, bytes] = {}
        ended = 0
        for event in self._http.events():
            if isinstance(event, ngh2.DataReceived):
                parts[event.stream_id] = parts.get(event.stream_id, b"") + event.data
            elif isinstance(event, ngh2.TrailersReceived):
                ended += 1
                if dict(event.headers).get(b"grpc-status") != b"0":
                    raise Failed(f"{what} was answered {event.headers}")
        if ended != wanted or len(parts) != wanted:
            raise Failed(f"{what}: {ended} replies came with {len(parts)} bodies, not {wanted}")
        return [list(_messages(data)) for data in parts.values()]


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        yield data[at + 5 : at + 5 + size]
        at += 5 + size


async def grpc_send(bench: Bench) -> None:
    """SendMessage of v5: 32 calls in a turn, on one connection."""
    row = "grpc-send-32"
    client = Grpc(bench)

    def request(i: int) -> s.SendMessageRequest:
        message = d.Message(topic=d.Resource(name=row), body=BODY)
        known = message.system_properties
        known.message_id = f"01A1B2C3D4E5F60A1B0C0D0E0F{i:08X}"
        known.tag = "TagA"
        known.message_type = d.NORMAL
        known.body_encoding = d.IDENTITY
        known.born_host = "host"
        known.born_timestamp.FromMilliseconds(BORN_MS)
        return s.SendMessageRequest(messages=[message])

    def turn(at: int) -> Turn:
        calls = [request(at * 32 + i) for i in range(32)]
        return client.turn(b"SendMessage", calls, b"30S")

    def taken(count: int) -> None:
        for said, *more in client.take(count, row):
            reply = s.SendMessageResponse.FromString(said)
            if reply.status.code != d.OK or len(reply.entries) != 1 or more:
                raise Failed(f"{row} was answered {reply}")

    before = stored(bench, row)
    for at in range(WARM):
        bench.do([turn(at)])
        taken(32)
    turns = [turn(WARM + at) for at in range(TURNS)]
    with bench.counting(row, TURNS * 32):
        bench.feed(turns)
    taken(TURNS * 32)
    if (more := stored(bench, row) - before) != (WARM + TURNS) * 32:
        raise Failed(f"{row}: {more} messages are in the store, not {(WARM + TURNS) * 32}")


async def grpc_receive(bench: Bench) -> None:
    """ReceiveMessage of v5 that finds 32 messages: one call in a turn. Then AckMessage of each: 32 calls in a turn."""
    row, acks, group = "grpc-receive-32", "grpc-ack-32", "bench_receive"
    total = WARM + TURNS
    load(bench, row, total * 32, queue=0)
    first = bench.connect()
    begin = {"consumerGroup": group, "topic": row, "queueId": "0", "commitOffset": "0"}
    bench.do([[(first, java(15, begin, 0, b""))]])  # else a new group begins at the end
    replies([first], 1, row)
    client = Grpc(bench)
    queue = d.MessageQueue(topic=d.Resource(name=row), broker=d.Broker(name=BROKER))
    request = s.ReceiveMessageRequest(
        group=d.Resource(name=group), message_queue=queue, batch_size=32, auto_renew=False,
        filter_expression=d.FilterExpression(type=d.TAG, expression="*"),
    )  # fmt: skip
    request.invisible_duration.FromSeconds(600)
    turns = [client.turn(b"ReceiveMessage", [request], b"30S") for _ in range(total)]
    bench.walk(row, turns, 32)
    turns = []
    for parts in client.take(total, row):
        said = [s.ReceiveMessageResponse.FromString(part) for part in parts]
        found = [each.message.system_properties for each in said if each.HasField("message")]
        if said[0].status.code != d.OK or len(found) != 32:
            raise Failed(f"{row}: {len(found)} messages came, not 32; {said[0]}")
        calls = [
            s.AckMessageRequest(
                group=request.group, topic=queue.topic,
                entries=[s.AckMessageEntry(message_id=each.message_id, receipt_handle=each.receipt_handle)],
            )
            for each in found
        ]  # fmt: skip
        turns.append(client.turn(b"AckMessage", calls, b"30S"))
    bench.walk(acks, turns, 32)
    for (answer,) in client.take(total * 32, acks):
        reply = s.AckMessageResponse.FromString(answer)
        if [each.status.code for each in (reply, *reply.entries)] != [d.OK, d.OK]:
            raise Failed(f"{acks} was answered {reply}")


# Our client. What the broker does for it does not count here.


class Application:
    """A process that sends by our client, over a connection without a socket to the broker's."""

    def __init__(self, bench: Bench, topic: str) -> None:
        self.topic = topic
        self.receipts: list[SendReceipt] = []
        self._bench = bench
        self._near: list[End] = []  # the client's side
        self._far = bench.connect()  # the broker's
        self._client: Client

    def start(self) -> None:
        """Make the client, which knows its route."""
        HOSTS[HOST] = self._connected
        route = TopicRouteData(
            queue_datas=[QueueData(broker_name=BROKER, read_queue_nums=8, write_queue_nums=8, perm=6)],
            broker_datas=[BrokerData(cluster="c", broker_name=BROKER, broker_addrs={0: f"{HOST}:10911"})],
        )  # fmt: skip

        async def begin() -> None:
            config = ClientConfig(
                name_servers="127.0.0.1:1", local_host="127.0.0.1", instance_name="bench"
            )
            outside = Outside(entropy=Entropy(1, 4_711))
            self._client = Client._within(outside, config, "bench")
            await self._client.start()
            self._client.session.learn(self.topic, TopicRoute(self.topic, route))

        with self._bench.steps:
            task = asyncio.get_running_loop().create_task(begin())
            self._bench.steps.run()
            task.result()

    async def _connected(
        self, factory: Callable[[], asyncio.Protocol], port: int
    ) -> asyncio.Transport:
        end = End(factory(), Sink())
        end.protocol.connection_made(end.sink)
        self._near.append(end)
        return end.sink

    async def pipelined(self) -> None:
        """32 messages on their way together."""
        client = self._client
        waiting = [await client.send_nowait(self.topic, BODY, tag="TagA") for _ in range(32)]
        for each in waiting:
            self.receipts.append(await each)

    async def one(self) -> None:
        """A message, and its answer."""
        self.receipts.append(await self._client.send(self.topic, BODY, tag="TagA"))

    def turn(self, work: Callable[[], Any], leave_out: Callable[[], Any]) -> None:
        """Let the application work until it has its receipts; the broker's part inside `leave_out`."""
        run = self._bench.steps.run
        task = asyncio.get_running_loop().create_task(work())
        run()
        while not task.done():
            with leave_out():
                sent = b"".join(end.sink.taken() for end in self._near)
                if not sent:
                    raise Failed(f"{self.topic}: the client waits and has sent nothing")
                self._far.protocol.data_received(sent)
                run()
                answers = self._far.sink.taken()
            self._near[-1].protocol.data_received(answers)
            run()
        task.result()


def client_sends(row: str, messages: int, work: Callable[[Application], Any]) -> Walk:
    """`Client.send` and its kin, from the call to the receipt; `work` does so many messages."""

    async def walk(bench: Bench) -> None:
        application = Application(bench, row)
        application.start()
        with bench.steps:
            for _ in range(WARM):
                application.turn(lambda: work(application), nullcontext)
        with bench.counting(row, TURNS * messages):
            for _ in range(TURNS):
                application.turn(lambda: work(application), bench.leaving_out)
        total = (WARM + TURNS) * messages
        fine = sum(1 for each in application.receipts if each.status == SEND_OK)
        if fine != total or stored(bench, row) < total:
            raise Failed(f"{row}: {fine} receipts say {SEND_OK}, not {total}")

    return walk


# All of them.


@dataclass(frozen=True, slots=True)
class Way:
    """A path and its rows.

    Attributes:
        rows: what it counts; its topic has the name of the first. signed: its broker asks who sends, and may they.
    """

    rows: tuple[str, ...]
    walk: Walk
    signed: bool = False


WAYS: Final = (
    Way(("send-4x32",), sends("send-4x32", 4, 32)),
    Way(("pull-32",), pull),
    Way(("pop-32", "ack"), pop),
    Way(("grpc-send-32",), grpc_send),
    Way(("send-32x1",), sends("send-32x1", 32, 1)),
    Way(("send-1x1",), sends("send-1x1", 1, 1)),
    Way(("send-binary-4x32",), sends("send-binary-4x32", 4, 32, binary)),
    Way(("batch-32x1k",), batch),
    Way(("commit-offset",), commit),
    Way(("heartbeat",), heartbeat),
    Way(("grpc-receive-32", "grpc-ack-32"), grpc_receive),
    Way(("client-send-32",), client_sends("client-send-32", 32, Application.pipelined)),
    Way(("client-send-1",), client_sends("client-send-1", 1, Application.one)),
    Way(("send-signed-4x32",), sends("send-signed-4x32", 4, 32, signed=True), signed=True),
)


async def walked(way: Way, marks: Marks, folder: Path) -> dict[str, int]:
    """Go a way, through a broker of its own over a store in `folder`; how many messages were counted for each row. Raises Failed."""
    bench = Bench(marks)
    await bench.start(folder, way.rows[:1], GROUPS, signed=way.signed)
    await way.walk(bench)
    return bench.messages


class Child:
    """A way in a process of its own: what one leaves in the heap, in caches and in the store changes no figure of another.

    The modules are imported before, once: under valgrind that takes longer than most ways.
    """

    def __init__(self, way: Way, marks: Marks, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._way = way
        self._found = folder / "messages.json"
        self._id = os.fork()
        if self._id:
            return
        try:
            self._found.write_text(json.dumps(asyncio.run(walked(way, marks, folder / "store"))))
        except Failed as error:
            print(error, file=sys.stderr)
        except BaseException:  # noqa: BLE001 - nothing of it may go on in the parent's frames
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0 if self._found.exists() else 1)

    def messages(self) -> dict[str, int]:
        """How many were counted for each row, when it is done. Raises Failed: it is not; it has said why."""
        _, status = os.waitpid(self._id, 0)
        if status:
            raise Failed(f"{self._way.rows[0]} gives no figure")
        known: dict[str, int] = json.loads(self._found.read_text())
        return known


def main() -> None:
    """Of the counted process: LIBRARY FOLDER ROW ...; prints the messages of each row as JSON."""
    library, folder, *rows = sys.argv[1:]
    marks = ctypes.CDLL(library)
    gc.collect()
    gc.freeze()
    waiting = [(n, way) for n, way in enumerate(WAYS) if {*way.rows} & {*rows}]
    running: list[Child] = []
    messages: dict[str, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                number, way = waiting.pop(0)
                running.append(Child(way, marks, Path(folder) / str(number)))
            messages |= running.pop(0).messages()
    except Failed as error:
        for child in running:
            with suppress(Failed):  # it writes into the folder, which goes
                child.messages()
        sys.exit(str(error))
    print(json.dumps({row: messages[row] for row in rows}))


if __name__ == "__main__":
    main()
