"""The stored record: round trips, vectors, and nothing but CorruptRecord on broken bytes."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records import encode_record

from roquette.errors import CorruptRecord
from roquette.message.message_id import host_bytes
from roquette.message.record import (
    decode_record,
    decode_records,
    encode_blank,
    peek_size_magic,
    record_size,
)
from roquette.message.record_layout import (
    BLANK_MAGIC,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    StoredRecord,
)

V4 = host_bytes("127.0.0.1", 10911)
V6 = host_bytes("2001:db8::1", 10911)
VECTOR = bytes.fromhex(  # protocol.md, section 27
    "00000073daa320a777d189820000000300000000000000000000000c0000000000001000000000000000018bcfe568007f0000010000c3500000018bcfe568647f00000100002a9f"
    "0000000000000000000000000000000548656c6c6f09546f70696354657374000a54414753015461674102"
)


def record(
    *,
    topic: bytes = b"T",
    body: bytes = b"body",
    properties: bytes = b"",
    born: bytes = V4,
    store: bytes = V4,
) -> bytes:
    return encode_record(topic, 1, 2, 3, 4, 0, 5, born, 6, store, 7, 8, body, properties)


def test_encodes_the_vector() -> None:
    encoded = encode_record(
        b"TopicTest",
        3,
        0,
        12,
        4096,
        0,
        1700000000000,
        host_bytes("127.0.0.1", 50000),
        1700000000100,
        V4,
        0,
        0,
        b"Hello",
        b"TAGS\x01TagA\x02",
    )

    assert encoded == VECTOR


def test_decodes_the_vector() -> None:
    found = decode_record(b"xx" + VECTOR + b"more", 2, True)

    assert (found.topic, found.body, found.properties) == (
        "TopicTest",
        b"Hello",
        "TAGS\x01TagA\x02",
    )
    assert (found.queue_id, found.queue_offset, found.physical_offset, found.size) == (
        3,
        12,
        4096,
        115,
    )
    assert (found.born_host, found.store_host) == (host_bytes("127.0.0.1", 50000), V4)
    assert (found.born_timestamp_ms, found.store_timestamp_ms) == (1700000000000, 1700000000100)


def fields(found: StoredRecord) -> list[object]:
    names = (
        "size magic body_crc queue_id queue_offset physical_offset born_host store_host body topic"
    )
    return [getattr(found, name) for name in names.split()]  # a compiled class has no __slots__


INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOST = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


@given(
    topic=st.text(min_size=1, max_size=300).map(str.encode),
    properties=st.text(max_size=300).map(str.encode),
    body=st.binary(max_size=300),
    hosts=st.tuples(HOST, HOST),
    ints=st.tuples(INT32, INT32, INT32),
    longs=st.tuples(INT64, INT64, INT64, INT64, INT64),
)
def test_what_is_encoded_is_decoded(
    topic: bytes,
    properties: bytes,
    body: bytes,
    hosts: tuple[bytes, bytes],
    ints: tuple[int, int, int],
    longs: tuple[int, int, int, int, int],
) -> None:
    data = encode_record(
        topic,
        ints[0],
        ints[1],
        longs[0],
        longs[1],
        0x40,
        longs[2],
        hosts[0],
        longs[3],
        hosts[1],
        ints[2],
        longs[4],
        body,
        properties,
    )
    found = decode_record(data, 0, True)

    assert (
        len(data)
        == found.size
        == record_size(len(body), len(topic), len(properties), len(hosts[0]), len(hosts[1]))
    )
    assert found.magic == (RECORD_MAGIC_V2 if len(topic) > 127 else RECORD_MAGIC_V1)
    assert found.sys_flag == 0x40 | (0x10 if len(hosts[0]) == 20 else 0) | (
        0x20 if len(hosts[1]) == 20 else 0
    )
    assert (found.born_host, found.store_host) == hosts
    assert (found.queue_id, found.flag, found.reconsume_times) == ints
    assert longs == (
        found.queue_offset,
        found.physical_offset,
        found.born_timestamp_ms,
        found.store_timestamp_ms,
        found.prepared_offset,
    )
    assert (found.topic.encode(), found.body, found.properties.encode()) == (
        topic,
        body,
        properties,
    )
    assert found.body_crc == zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize(
    "data",
    [
        VECTOR,
        record(topic=b"t" * 200, born=V6, store=V6, properties=b"a\x01b\x02"),
        record(body=b""),
    ],
)
def test_a_truncated_record_is_corrupt_at_every_byte(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(CorruptRecord):
            decode_record(data[:end], 0, False)


@given(
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    born=st.sampled_from([V4, V6]),
)
def test_changed_bytes_are_corrupt_or_another_record(
    changes: list[tuple[int, int]], born: bytes
) -> None:
    data = bytearray(record(topic=b"Topic", body=b"b" * 40, properties=b"KEYS\x01k\x02", born=born))
    for place, value in changes:
        data[place % len(data)] = value

    try:
        found = decode_record(bytes(data), 0, False)
    except CorruptRecord:
        return
    assert found.size == len(data)


@given(data=st.binary(max_size=200), position=st.integers(-5, 250))
def test_any_bytes_raise_only_corrupt_record(data: bytes, position: int) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(data, position, True)


def test_a_body_that_does_not_match_its_crc_is_found_only_when_asked() -> None:
    data = VECTOR.replace(b"Hello", b"Jello")

    assert decode_record(data, 0, False).body == b"Jello"
    with pytest.raises(CorruptRecord, match="CRC"):
        decode_record(data, 0, True)


def test_the_size_must_be_the_sum_of_the_parts() -> None:
    data = (116).to_bytes(4, "big") + VECTOR[4:] + b"\0"

    with pytest.raises(CorruptRecord):
        decode_record(data, 0, False)


def test_texts_that_are_not_utf8_are_read_as_java_reads_them() -> None:
    found = decode_record(record(topic=b"\xff", properties=b"a\x01\xfe\x02"), 0, True)

    assert (found.topic, found.properties) == ("\ufffd", "a\x01\ufffd\x02")


def test_a_pull_body_is_a_row_of_records() -> None:
    rows = [record(topic=b"a"), record(topic=b"b" * 130), record(born=V6)]

    assert [fields(r) for r in decode_records(b"".join(rows), True)] == [
        fields(decode_record(r, 0, True)) for r in rows
    ]
    assert decode_records(b"") == []
    with pytest.raises(CorruptRecord):
        decode_records(rows[0] + rows[1][:-1])


def test_a_blank_says_how_much_it_fills() -> None:
    assert peek_size_magic(b"12" + encode_blank(4096), 2) == (4096, BLANK_MAGIC)
    assert encode_blank(4096).hex() == "00001000cbd43194"
    with pytest.raises(CorruptRecord):
        peek_size_magic(b"1234567", 0)
    with pytest.raises(CorruptRecord):
        decode_record(encode_blank(200) + bytes(200), 0, False)
