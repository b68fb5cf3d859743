"""Codec and store, one operation at a time: microseconds each, best of several rounds.

Runs in either environment: `.venv/bin/python -m benchmarks.micro`, `.venv-compiled/bin/python ...`; --json for
the harness. The last figures are whole paths of the broker without sockets: bytes in, bytes out.
"""

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from benchmarks.instruction_bench import Sink
from roquette.access.guard import Account, Audit, Guard, Scope
from roquette.access.model import Acl, Action, Policy, PolicyEntry, PolicyType, Resource
from roquette.access.policies import PolicyJudge, PolicyTable
from roquette.apps.features import broker_features
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker
from roquette.message.properties import decode_properties
from roquette.message.record import decode_record, decode_records, encode_batch, encode_record
from roquette.message.record_layout import Draft, Place
from roquette.remoting.request import Peer, RequestContext, Row
from roquette.store.format.config import StoreConfig
from roquette.store.log.commit_log import LogSource
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import QueueRead, ReadRequest
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import HeaderDecoder, encode_ext
from roquette.wire.headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from roquette.wire.signature import Credentials, Signer

ROUNDS = 30
FRAMES = 32
BODY = b"x" * 128
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
PROPERTIES = "UNIQ_KEY\x017F000001ABCD0DA14E0C0000000A0001\x02WAIT\x01true\x02TAGS\x01TagA\x02"
NOW_MS = 1_732_000_000_000

Step = Callable[[], object]


def best_us(step: Step, operations: int, repeat: int = 20) -> float:
    """Microseconds per operation; `step` does `operations` of them."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(repeat):
            step()
        best = min(best, time.perf_counter_ns() - start)
    return best / repeat / operations / 1000


def send_ext(queue_id: int = 3) -> bytes:
    """The ext fields of a send as Java's client writes them."""
    header = SendMessageRequestHeaderV2(
        producer_group="bench_raw",
        topic="Bench",
        default_topic="TBW102",
        default_topic_queue_nums=8,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=NOW_MS,
        flag=0,
        properties=PROPERTIES,
        bname="bench",
    )
    return encode_ext(header)


def frames(code: int, exts: list[bytes], body: bytes) -> bytes:
    """Requests in one piece."""
    wire = WireConnection()
    for ext in exts:
        wire.send_request(code, ext, body)
    return b"".join(wire.data_to_send())


def codec() -> dict[str, float]:
    """Frames, headers, properties, records, queue units."""
    ext = send_ext()
    data = frames(310, [ext] * FRAMES, BODY)
    reader = WireConnection()
    decode_header = HeaderDecoder(SendMessageRequestHeaderV2).fast
    raw = reader.receive_data(data)[0].ext
    draft = Draft("Bench", 3, PROPERTIES.encode(), BODY, NOW_MS, HOST)
    place = Place(b"Bench", HOST, NOW_MS, 7, 4096)
    one = encode_record(draft, place)
    many = one * 32
    writer = WireConnection()
    reply_ext = b'{"msgId":"7F00000100002A9F0000000000001000","queueId":"3","queueOffset":"7"}'

    def reply() -> None:
        for opaque in range(FRAMES):
            writer.send_reply(opaque, 0, None, reply_ext, b"")
        writer.data_to_send()

    return {
        "frame decode, send": best_us(lambda: reader.receive_data(data), FRAMES),
        "header decode, send": best_us(lambda: decode_header(raw), 1, 200),
        "properties decode": best_us(lambda: decode_properties(PROPERTIES), 1, 200),
        "reply encode": best_us(reply, FRAMES),
        "record encode, 128 B": best_us(lambda: encode_record(draft, place), 1, 200),
        "record decode, 128 B": best_us(lambda: decode_record(one, 0, False), 1, 200),
        "records decode, 32 × 128 B, each": best_us(lambda: decode_records(many), 32),
    }


def raw_us(folder: Path, start: int, pieces: list[bytes]) -> float:
    """Microseconds per record of a replica that takes pieces of a log, written after each."""
    best = float("inf")
    for number in range(5):
        config = StoreConfig(root_dir=f"{folder}{number}", segment_size=256 << 20)
        replica = MessageStore(config, OsFiles(), HOST)
        replica.open(NOW_MS)
        records = 0
        began = time.perf_counter_ns()
        for piece in pieces:
            replica.append_raw(max(start, replica.raw_end), piece)
            replica.write_pending()
            records += len(replica.take_arrivals())
        best = min(best, (time.perf_counter_ns() - began) / records / 1000)
        replica.close(NOW_MS)
    return best


def store(folder: Path) -> dict[str, float]:
    """Appends of 128 B with tag and unique id, written to the system every 32."""
    opened = MessageStore(
        StoreConfig(root_dir=str(folder), segment_size=256 << 20), OsFiles(), HOST
    )
    opened.open(NOW_MS)
    count = 0
    texts = [PROPERTIES.replace("0A0001", f"{n:06X}").encode() for n in range(1 << 15)]

    def append() -> None:
        nonlocal count
        for _ in range(FRAMES):
            count += 1
            text = texts[count & 0x7FFF]
            opened.append(Draft("Bench", count & 7, text, BODY, NOW_MS, HOST), NOW_MS)
        opened.write_pending()
        opened.take_arrivals()

    found = {"store append, 128 B": best_us(append, FRAMES)}
    end = opened.max_physical_offset // (256 << 20) * (256 << 20)
    pieces = [opened.read_raw(at, 1 << 20) for at in range(end, end + (8 << 20), 1 << 20)]
    found["store append_raw, 128 B, 1 MiB at once"] = raw_us(folder / "replica", end, pieces)
    for text in texts[:800]:
        opened.append(Draft("Bench", 8, text, BODY, NOW_MS, HOST), NOW_MS)
    queue = opened._queues.find("Bench", 8)
    assert queue is not None
    source = LogSource(opened._log, opened._log.end_offset)
    read = QueueRead(source, queue, ReadRequest("Bench", 8, 0, 800, 1 << 30), 0)
    found["queue scan, 800 units, each"] = best_us(read.may_block, 800)
    opened.close(NOW_MS)
    return found


class OneUser:
    """Accounts of one user."""

    def __init__(self, user: Account) -> None:
        self._user = user

    def find(self, access_key: str) -> Account | None:
        return self._user if access_key == self._user.name else None


def guard() -> dict[str, float]:
    """What access control adds to a signed send: proof, need, verdict."""
    ext = Signer(Credentials("alice", "a secret of some length")).sign(send_ext(), BODY)
    (command,) = WireConnection().receive_data(frames(310, [ext], BODY))
    entry = PolicyEntry(Resource.parse("Topic:Bench"), (Action.PUB,))
    table = PolicyTable([Acl("User:alice", (Policy(PolicyType.CUSTOM, (entry,)),))])
    user = OneUser(Account("alice", b"a secret of some length"))
    scope, audit = Scope(cluster="DefaultCluster"), Audit(SystemClock())
    check = Guard(user, PolicyJudge(table), scope, audit).check
    peer = Peer(cast(Any, None), Sink(), 1, HOST, "127.0.0.1:50000")
    job = RequestContext(peer, command, Row(310, lambda *_: None, None, 0), 0)
    header = HeaderDecoder(SendMessageRequestHeaderV2)(command.ext)
    return {"guard, signed send, 128 B": best_us(lambda: check(job, header), 1, 200)}


async def paths(folder: Path) -> dict[str, float]:
    """The broker's whole way of a send and of a pull, 32 requests a turn."""
    config = BrokerConfig(
        broker_name="bench", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0
    )
    broker = Broker(
        config,
        StoreConfig(root_dir=str(folder), segment_size=256 << 20),
        broker_features,
        files=OsFiles(),
        clock=SystemClock(),
        entropy=Entropy(1),
    )
    await broker.start()
    sink = Sink()
    broker._listeners._main.turn_ms = 1 << 30  # on a busy machine it is longer than a turn may be
    protocol = broker._listeners._servers[0]._new_protocol()
    protocol.connection_made(sink)

    last = b""

    async def turn(data: bytes) -> int:
        nonlocal last
        protocol.data_received(data)
        while not sink.written:
            await asyncio.sleep(0)
        last = sink.taken()
        return len(last)

    async def measure(data: bytes, operations: int, repeat: int) -> float:
        best = float("inf")
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            for _ in range(repeat):
                await turn(data)
            best = min(best, time.perf_counter_ns() - start)
        return best / repeat / operations / 1000

    await turn(frames(310, [send_ext(0)], BODY))
    await asyncio.sleep(1)  # the topic is persisted
    sends = frames(310, [send_ext(i & 3) for i in range(FRAMES)], BODY)
    found = {"send path, 128 B": await measure(sends, FRAMES, 20)}
    assert last.count(b'"code":0,') == FRAMES, last[:500]
    inner = b"UNIQ_KEY\x017F000001ABCD0DA14E0C0000000A0001\x02WAIT\x01true\x02"
    batch = frames(320, [send_ext(2)], encode_batch([(0, b"x" * 1024, inner)] * 32))
    found["batch path, 32 × 1 KiB, each"] = await measure(batch, 32, 20)
    assert b'"code":0,' in last, last[:500]
    pull = encode_ext(
        PullMessageRequestHeader(
            consumer_group="bench",
            topic="Bench",
            queue_id=1,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
    )
    found["pull path, 32 × 128 B, each"] = await measure(frames(11, [pull], b""), 32, 20)
    await broker.stop()
    return found


def main() -> None:
    """Measure and print."""
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="roquette-bench-micro-") as name:
        found = (
            codec()
            | guard()
            | store(Path(name) / "store")
            | asyncio.run(paths(Path(name) / "broker"))
        )
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key:36} {value:8.3f} µs")


if __name__ == "__main__":
    main()
