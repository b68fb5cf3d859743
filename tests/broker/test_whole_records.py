"""A request changes the log by whole sound records or not at all: every integer field of the headers of all requests
that make the broker append, at and beyond the edges of Java's types. What is left opens sound after a kill.
"""

import asyncio
import random
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.pop_frames import pop, pop_ext

from roquette.base.files import OsFiles, OsReadFiles
from roquette.message.message_id import RecallHandle
from roquette.message.properties import encode_properties
from roquette.message.record import decode_record, encode_batch, peek_size_magic
from roquette.message.record_layout import BLANK_MAGIC
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette.wire import headers
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import Int32, Int64

CODES = {int(code) for code in ResponseCode}
EDGES = [
    str(edge)
    for bits in (7, 15, 31, 32, 63, 64, 100)
    for edge in (-(2**bits) - 1, -(2**bits), 2**bits - 1, 2**bits)
] + ["-1", "0", "1", "9" * 5000, "-" + "9" * 5000, "+3", "", "x", "1e3", "1.5", " 1", "NaN"]
RAW = re.compile(r"^(?!NumberFormat)[\w.]*(Error|Exception)\b")
GROUP = {"groupName": "g"}
BORN = 1_700_000_000_000
SEND = headers.SendMessageRequestHeaderV2


def letters(**more: Any) -> dict[str, Any]:
    """The V2 header of a send."""
    named = {"UNIQ_KEY": "0A0000010001", "KEYS": "k1 k2", "TAGS": "A"}
    return {
        "a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": BORN, "h": 0,
        "i": encode_properties(named), "j": 0, "k": "false", "l": 16, "m": "false",
    } | more  # fmt: skip


def words(ext: dict[str, Any]) -> dict[str, Any]:
    """The same header under full names."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(SEND)}
    wire = {f.name: f.encode_name for f in msgspec.structs.fields(headers.SendMessageRequestHeader)}
    return {wire[names[letter]]: value for letter, value in ext.items()}


Made = tuple[dict[str, Any], bytes]
Maker = Callable[[Any, Any], Awaitable[Made]]


def plain(ext: dict[str, Any], body: bytes = b"hello") -> Maker:
    async def make(case: Any, client: Any) -> Made:
        return ext, body

    return make


BATCH = encode_batch([(n, b"m%d" % n, b"KEYS\x01k%d\x02TAGS\x01B\x02" % n) for n in range(5)])
HALF = {"UNIQ_KEY": "H1", "TRAN_MSG": "true", "PGROUP": "pg"}


async def send_back(case: Any, client: Any) -> Made:
    reply = await client.produce()
    offset = int(case.ext(reply)["msgId"][-16:], 16)
    return {
        "offset": offset, "group": "g", "delayLevel": 1, "originTopic": "T", "maxReconsumeTimes": 16,
    }, b""  # fmt: skip


async def end_transaction(case: Any, client: Any) -> Made:
    reply = await client.produce(properties=HALF, f=4, g=case.clock.now_ms())
    assert reply.code == 0, reply.remark
    ext = case.ext(reply)
    return {
        "producerGroup": "pg", "tranStateTableOffset": ext["queueOffset"], "commitOrRollback": 8,
        "commitLogOffset": int(ext["msgId"][-16:], 16), "msgId": "H1", "transactionId": "H1",
    }, b""  # fmt: skip


async def pop_message(case: Any, client: Any) -> Made:
    await client.produce("P")
    return pop_ext(case.clock.now_ms(), topic="P"), b""


async def receipt(case: Any, client: Any) -> Made:
    await client.produce("P")
    popped = await pop(case, client, topic="P")
    return popped[0].ack_ext(invisibleTime=20_000) if popped else {}, b""


REQUESTS: dict[str, tuple[int, type[msgspec.Struct], Maker]] = {
    "send": (10, headers.SendMessageRequestHeader, plain(words(letters()))),
    "send v2": (310, SEND, plain(letters())),
    "send delayed": (310, SEND, plain(letters(i="DELAY\x012\x02"))),
    "send timer": (310, SEND, plain(letters(i="TIMER_DELAY_SEC\x0130\x02"))),
    "send half": (310, SEND, plain(letters(i=encode_properties(HALF), f=4))),
    "send retry": (310, SEND, plain(letters(b="%RETRY%g"))),
    "send batch flag": (310, SEND, plain(letters(m="true"), BATCH)),
    "batch": (320, SEND, plain(letters(m="true"), BATCH)),
    "reply": (324, headers.SendMessageRequestHeader, plain(words(letters(b="R")))),
    "reply v2": (325, SEND, plain(letters(b="R"))),
    "send back": (36, headers.ConsumerSendMsgBackRequestHeader, send_back),
    "end transaction": (37, headers.EndTransactionRequestHeader, end_transaction),
    "pop": (200050, headers.PopMessageRequestHeader, pop_message),
    "ack": (200051, headers.AckMessageRequestHeader, receipt),
    "change invisible": (200053, headers.ChangeInvisibleTimeRequestHeader, receipt),
    "pull": (11, headers.PullMessageRequestHeader, plain({
        "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
        "suspendTimeoutMillis": 0, "subscription": "*", "maxMsgBytes": 4096, "requestSource": 0,
    }, b"")),
}  # fmt: skip
NUMBERS = {Int32, Int64, Int32 | None, Int64 | None}


def number_fields(header: type[msgspec.Struct]) -> list[str]:
    return [f.encode_name for f in msgspec.structs.fields(header) if f.type in NUMBERS]


def test_every_sending_request_has_numbers_to_be_tried() -> None:
    assert all(number_fields(header) for _, header, _ in REQUESTS.values())
    assert sum(len(number_fields(header)) for _, header, _ in REQUESTS.values()) >= 90


def check_whole(store: MessageStore, start: int, end: int) -> int:
    """The log from `start` to `end` is whole records at home where they stand; how many."""
    size, count = store.config.segment_size, 0
    while start < end:
        head, magic = peek_size_magic(store.read_log(start, start + 8), 0)
        if magic == BLANK_MAGIC:
            start += size - start % size
            continue
        record = decode_record(store.read_log(start, start + head), 0, True)
        assert record.physical_offset == start
        start += record.size
        count += 1
    assert start == end
    return count


class Tries:
    """Sends requests and looks at the log after each."""

    def __init__(self, case: Any, client: Any, store: MessageStore) -> None:
        self.case, self.client, self.store = case, client, store
        self.requests = 0

    async def ask(self, name: str, **changes: Any) -> None:
        code, _, make = REQUESTS[name]
        ext, body = await make(self.case, self.client)
        start = self.store.max_physical_offset
        self.requests += 1
        try:
            reply = await asyncio.wait_for(self.client.call(code, ext | changes, body), 60)
        except TimeoutError:
            # A pop is held as long as it asks; Apache answers no END that neither commits nor rolls back.
            assert name == "pop" or "commitOrRollback" in changes, (name, changes)
            self.client = await self.case.client()
            return
        assert reply.code in CODES, (name, changes, reply)
        assert not RAW.match(reply.remark or ""), (name, changes, reply.remark)
        assert len(reply.remark or "") < 1000, (name, changes)
        added = check_whole(self.store, start, self.store.max_physical_offset)
        if name.startswith(("send", "batch", "reply")) and name not in {"send back", "reply"}:
            # Copies that became due meanwhile come on top.
            assert reply.code != 0 or added > 0, (name, changes, reply)


@pytest.fixture
def killed(run_broker: Any, tmp_path: Path) -> Callable[..., None]:
    """`killed(scenario)`: a scenario of tries, then a kill; the store is opened and checked."""

    def start(scenario: Callable[[Tries], Awaitable[None]]) -> None:
        ends: dict[tuple[str, int], int] = {}
        copy = tmp_path / "killed"
        sizes: list[StoreConfig] = []

        async def main(case: Any) -> None:
            client = await case.client()
            assert (await client.call(200, {}, msgspec.json.encode(GROUP))).code == 0
            store: MessageStore = case.broker.store
            tries = Tries(case, client, store)
            await scenario(tries)
            assert (await tries.client.produce()).code == 0
            store.write_pending()
            shutil.copytree(store.config.root_dir, copy)
            sizes.append(replace(store.config, root_dir=str(copy)))
            for topic in store.topics():
                for queue_id in store.queues_of(topic):
                    ends[topic, queue_id] = store.max_offset(topic, queue_id)

        run_broker(main, broker={"slave_read_enable": False, "recall_message_enable": True})
        store = MessageStore(sizes[0], OsFiles(), bytes((10, 0, 0, 1, 0, 0, 42, 159)))
        store.open(BORN)
        assert {place: store.max_offset(*place) for place in ends} == ends
        store.close(BORN)
        report = check_store(OsReadFiles(), find_store(OsReadFiles(), str(copy)), FsckOptions())
        assert report.sound, report.findings

    return start


@pytest.mark.promise(
    "The log",
    "a request changes the log by whole records or not at all, whatever numbers it brings",
)
@pytest.mark.parametrize("name", REQUESTS)
def test_every_number_of_a_request_at_and_beyond_the_edges(name: str, killed: Any) -> None:
    async def scenario(tries: Tries) -> None:
        for field in number_fields(REQUESTS[name][1]):
            for edge in EDGES:
                await tries.ask(name, **{field: edge})
        assert tries.requests == len(EDGES) * len(number_fields(REQUESTS[name][1]))

    killed(scenario)


@pytest.mark.promise(
    "The log",
    "a request changes the log by whole records or not at all, whatever numbers it brings",
)
@pytest.mark.parametrize("seed", range(8))
def test_all_numbers_at_once(seed: int, killed: Any) -> None:
    rng = random.Random(seed)

    async def scenario(tries: Tries) -> None:
        for _ in range(100):
            name = rng.choice(list(REQUESTS))
            chosen = rng.sample(
                fields := number_fields(REQUESTS[name][1]), rng.randint(1, len(fields))
            )
            await tries.ask(name, **{field: rng.choice(EDGES) for field in chosen})

    killed(scenario)


NUMBER_PROPERTIES = (
    "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "REAL_QID",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "INNER_NUM", "TRANSACTION_CHECK_TIMES",
    "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "CONSUME_START_TIME", "UNIQ_KEY", "WAIT",
)  # fmt: skip


@pytest.mark.parametrize("name", ["send v2", "send half", "send retry", "reply v2"])
@pytest.mark.parametrize("chosen", NUMBER_PROPERTIES)
def test_numbers_in_properties(name: str, chosen: str, killed: Any) -> None:
    async def scenario(tries: Tries) -> None:
        named = HALF if name == "send half" else {"UNIQ_KEY": "u"}
        for edge in EDGES:
            await tries.ask(name, i=encode_properties(named | {chosen: edge}))

    killed(scenario)


@pytest.mark.parametrize("name", ["ack", "change invisible"])
def test_numbers_in_receipts(name: str, killed: Any) -> None:
    async def scenario(tries: Tries) -> None:
        for place in range(8):
            for edge in EDGES:
                ext, _ = await receipt(tries.case, tries.client)
                words = str(ext.get("extraInfo", "0 1 2 3 0 broker-a 0 0")).split(" ")
                words[place] = edge.strip()
                await tries.ask(name, extraInfo=" ".join(words))

    killed(scenario)


def test_numbers_in_recall_handles(killed: Any) -> None:
    async def scenario(tries: Tries) -> None:
        for edge in EDGES:
            handle = RecallHandle(
                topic="T", broker_name="broker-a", timestamp=edge, uniq_key="u1"
            ).encode()
            ext = {"producerGroup": "pg", "topic": "T", "recallHandle": handle}
            start = tries.store.max_physical_offset
            reply = await tries.client.call(370, ext)
            assert reply.code in CODES and not RAW.match(reply.remark or ""), (edge, reply)
            check_whole(tries.store, start, tries.store.max_physical_offset)

    killed(scenario)
