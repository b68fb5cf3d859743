"""Messages as applications see them."""

import msgspec
import pytest
from tests.records import encode_record

from roquette.errors import CorruptRecord
from roquette.message.compression import ZSTD, compress
from roquette.message.message import MessageQueue, received
from roquette.message.message_id import host_bytes
from roquette.message.record import decode_record


def test_a_queue_serialises_and_sorts_as_javas() -> None:
    queue = MessageQueue("t", "b", 1)

    assert msgspec.json.encode(queue) == b'{"topic":"t","brokerName":"b","queueId":1}'
    assert (
        sorted([MessageQueue("t", "b", 10), MessageQueue("t", "b", 9), MessageQueue("s", "c", 0)])[
            0
        ].topic
        == "s"
    )
    assert len({queue, MessageQueue("t", "b", 1)}) == 1


def stored(body: bytes, sys_flag: int, properties: bytes) -> bytes:
    hosts = host_bytes("1.2.3.4", 5), host_bytes("127.0.0.1", 10911)
    return encode_record(
        b"t", 3, 9, 12, 4096, sys_flag, 100, hosts[0], 200, hosts[1], 2, 0, body, properties
    )


def test_a_received_message_is_decompressed() -> None:
    data = stored(
        compress(b"text" * 100, ZSTD),
        ZSTD.sys_flag,
        b"UNIQ_KEY\x01ABC\x02TAGS\x01a\x02KEYS\x01k1 k2\x02",
    )
    found = received(decode_record(data, 0, True), "broker-a")

    assert (found.body, found.tag, found.keys, found.message_id) == (
        b"text" * 100,
        "a",
        ("k1", "k2"),
        "ABC",
    )
    assert found.queue == MessageQueue("t", "broker-a", 3)
    assert (found.born_host, found.store_host) == ("1.2.3.4:5", "127.0.0.1:10911")
    assert (found.sys_flag & 1, found.store_size) == (0, len(data))


def test_without_a_unique_key_the_offset_id_is_the_id() -> None:
    found = received(decode_record(stored(b"x", 0, b""), 0, True), "b")

    assert found.message_id == found.offset_message_id == "7F00000100002A9F0000000000001000"
    assert (found.tag, found.keys, found.properties) == (None, (), {})


def test_a_body_beyond_the_bound_is_corrupt() -> None:
    record = decode_record(stored(compress(bytes(1000), ZSTD), ZSTD.sys_flag, b""), 0, True)

    with pytest.raises(CorruptRecord):
        received(record, "b", 999)
