"""Batches hold what message.record reads from the same bytes."""

import contextlib
import datetime
import itertools
import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.records import make_log, make_record, struct_of

from roquette.errors import CorruptRecord
from roquette.message.message import received
from roquette.message.message_id import host_bytes
from roquette.message.record import decode_records
from roquette_spark.source.columns import record_starts
from roquette_spark.source.decode import RecordColumns, RecordDecoder
from roquette_spark.values.schema import COLUMNS, arrow_schema

V6_HOST = bytes(range(16)) + (10911).to_bytes(4, "big")


def schema_of(*names: str) -> pa.Schema:
    return arrow_schema(struct_of(*names))


def decode(
    data: bytes, *names: str, tags: tuple[str, ...] = (), start: int = 0, end: int = 1 << 40
) -> list[dict]:
    decoder = RecordDecoder(schema_of(*names), topic="T", broker_name="broker-a", tags=tags)
    return decoder.decode(RecordColumns(data, start=start, end=end)).to_pylist()


def test_all_columns_of_one_message() -> None:
    properties = {
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "U",
        "__SHARDINGKEY": "g",
        "own": "ü",
        "DLQ_ORIGIN_TOPIC": "old",
        "DLQ_ORIGIN_MESSAGE_ID": "oldid",
    }

    rows = decode(make_record(5, b"hello", properties), *COLUMNS)

    utc = datetime.UTC
    assert rows == [
        {
            "topic": "T",
            "broker_name": "broker-a",
            "queue_id": 3,
            "queue_offset": 5,
            "msg_id": "7F00000100002A9F0000000000001388",
            "uniq_key": "U",
            "key": "k1",
            "keys": ["k1", "k2"],
            "tags": "TagA",
            "body": b"hello",
            "properties": list(properties.items()),
            "born_timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 5000, utc),
            "store_timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 105000, utc),
            "born_host": "10.0.0.7:50000",
            "store_host": "127.0.0.1:10911",
            "flag": 7,
            "sys_flag": 0,
            "body_crc": 907060870,
            "reconsume_times": 2,
            "commit_log_offset": 5000,
            "store_size": len(make_record(5, b"hello", properties)),
            "message_type": "fifo",
            "message_group": "g",
            "deliver_timestamp": None,
            "dlq_origin_topic": "old",
            "dlq_origin_msg_id": "oldid",
        }
    ]


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=8)
messages = st.lists(
    st.tuples(
        st.binary(max_size=40),
        st.dictionaries(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "b"]) | texts, texts, max_size=4
        ),
        st.sampled_from([host_bytes("1.2.3.4", 5), V6_HOST]),
        st.sampled_from([host_bytes("5.6.7.8", 9), V6_HOST]),
        st.sampled_from(["T", "L" * 200]),
    ),
    min_size=1,
    max_size=12,
)


@given(messages)
@settings(deadline=None, max_examples=150)
def test_rows_equal_what_the_record_codec_reads(given_messages: list[tuple]) -> None:
    data = b"".join(
        make_record(i, body, properties, born_host=born, store_host=store, topic=topic)
        for i, (body, properties, born, store, topic) in enumerate(given_messages)
    )

    rows = decode(
        data,
        "queue_offset",
        "body",
        "tags",
        "properties",
        "born_host",
        "store_host",
        "msg_id",
        "body_crc",
    )

    for row, record in zip(rows, decode_records(data), strict=True):
        message = received(record, "broker-a")
        assert row["queue_offset"] == message.queue_offset
        assert row["body"] == message.body
        assert row["tags"] == message.properties.get("TAGS")
        assert dict(row["properties"]) == message.properties
        assert row["born_host"] == message.born_host
        assert row["store_host"] == message.store_host
        assert row["msg_id"] == message.offset_message_id
        assert row["body_crc"] == message.body_crc


one_size_messages = st.lists(
    st.tuples(
        st.binary(min_size=5, max_size=5),
        st.text("ab", min_size=2, max_size=2),
        st.sampled_from([host_bytes("1.2.3.4", 5), host_bytes("200.1.255.0", 65535)]),
        st.sampled_from(["T1", "T2"]),
    ),
    min_size=1,
    max_size=12,
)


@given(one_size_messages, st.booleans(), st.sampled_from([0, 3, 5, 9]))
@settings(deadline=None, max_examples=150)
def test_messages_of_one_size_equal_what_the_record_codec_reads(
    given_messages: list[tuple], all_alike: bool, odd_body: int
) -> None:
    """All that is read in one piece where rows are alike, and just beside that."""
    if all_alike:
        given_messages = [given_messages[0]] * len(given_messages)
    given_messages[-1] = (b"x" * (odd_body or 5), *given_messages[-1][1:])
    data, places = make_log(
        [
            {"body": body, "properties": {"TAGS": tag, "KEYS": tag}, "topic": topic}
            | {"born_host": host, "store_host": host}
            for body, tag, host, topic in given_messages
        ],
        base=0x12AB_CDEF_0123,
    )
    records = RecordColumns(data)
    records.check(0x12AB_CDEF_0123, crc=True)

    rows = (
        RecordDecoder(arrow_schema(struct_of(*COLUMNS)), topic=None, broker_name="b")
        .decode(records)
        .to_pylist()
    )

    for row, record, place in zip(rows, decode_records(data), places, strict=True):
        message = received(record, "b")
        assert (row["topic"], row["broker_name"]) == (message.topic, "b")
        assert row["body"] == message.body
        assert row["tags"] == row["key"] == message.properties["TAGS"]
        assert row["keys"] == [message.properties["KEYS"]]
        assert dict(row["properties"]) == message.properties
        assert row["born_host"] == message.born_host
        assert row["store_host"] == message.store_host
        assert row["msg_id"] == message.offset_message_id
        assert row["commit_log_offset"] == place
        assert row["body_crc"] == message.body_crc
        assert row["message_type"] == "normal"
        assert row["deliver_timestamp"] is None


@pytest.mark.parametrize("sizes", [(5, 5, 5), (5, 6, 5), (0, 0, 0)])
def test_a_wrong_crc_of_any_body_is_seen(sizes: tuple[int, ...]) -> None:
    data, places = make_log([{"body": b"x" * size} for size in sizes])
    RecordColumns(data).check(0, crc=True)

    for place, size in zip(places, sizes, strict=True):
        damaged = bytearray(data)
        damaged[place + 88 + size - 1] ^= 1
        if size:
            records = RecordColumns(bytes(damaged))
            records.check(0, crc=False)
            with pytest.raises(CorruptRecord, match="CRC"):
                records.check(0, crc=True)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (b"", []),
        (b"a\x01b", [("a", "b")]),
        (b"a\x01b\x02a\x01c\x02", [("a", "c")]),
        (b"\x01b\x02a\x01\x02x\x01y\x02", [("x", "y")]),
        (b"junk\x02x\x01y\x02", [("x", "y")]),
        (b"x\x01\xff\x02", [("x", "�")]),
    ],
)
def test_odd_property_strings_read_as_java_reads_them(section: bytes, expected: list) -> None:
    data = make_record(0, b"x", section) + make_record(1, b"x", b"k\x01v\x02")

    rows = decode(data, "properties")

    assert [row["properties"] for row in rows] == [expected, [("k", "v")]]


def test_a_compressed_body_comes_out_whole() -> None:
    data = make_record(0, zlib.compress(b"x" * 5000), sys_flag=1) + make_record(1, b"plain")

    rows = decode(data, "body")

    assert [row["body"] for row in rows] == [b"x" * 5000, b"plain"]


def test_rows_outside_the_range_are_left_out() -> None:
    data = b"".join(make_record(i) for i in range(10))

    rows = decode(data, "queue_offset", start=3, end=6)

    assert [row["queue_offset"] for row in rows] == [3, 4, 5]


def test_tags_are_compared_as_text() -> None:
    data = (
        make_record(0, b"x", {"TAGS": "Aa"}) + make_record(1, b"x", {"TAGS": "BB"}) + make_record(2)
    )

    rows = decode(data, "queue_offset", tags=("Aa",))  # Aa and BB have one hash code in Java

    assert [row["queue_offset"] for row in rows] == [0]


def test_body_can_be_asked_for_as_text() -> None:
    schema = arrow_schema(struct_of(body="string"))
    decoder = RecordDecoder(schema, topic="T", broker_name="b")

    batch = decoder.decode(RecordColumns(make_record(0, "grün".encode()), start=0, end=9))

    assert batch.schema == schema
    assert batch.to_pylist() == [{"body": "grün"}]


def test_no_columns_still_count_rows() -> None:
    decoder = RecordDecoder(pa.schema([]), topic="T", broker_name="b")

    assert decoder.decode(RecordColumns(make_record(0) * 3, start=0, end=9)).num_rows == 3


def test_nothing_gives_nothing() -> None:
    assert decode(b"", *COLUMNS) == []


@given(st.integers(0, 400), st.integers(0, 255))
@settings(deadline=None, max_examples=300)
def test_damaged_bytes_are_refused_or_read_never_worse(at: int, value: int) -> None:
    data = bytearray(b"".join(make_record(i, b"body", {"TAGS": "x"}) for i in range(3)))
    data[at % len(data)] = value

    with contextlib.suppress(CorruptRecord):
        decode(bytes(data), "queue_offset", "tags", "properties", "msg_id", "born_host")


@pytest.mark.parametrize("cut", range(1, 130, 7))
def test_a_cut_record_is_refused(cut: int) -> None:
    with pytest.raises(CorruptRecord):
        decode(make_record(0, b"body", {"TAGS": "x"})[:-cut] or b"x", "body")


@pytest.mark.parametrize(
    ("properties", "sys_flag", "kind"),
    [
        ({}, 0, "normal"),
        ({"__LITE_TOPIC": "l"}, 0, "lite"),
        ({"_SYS_MSG_PRIORITY_": "3"}, 0, "priority"),
        ({"__SHARDINGKEY": "g", "_SYS_MSG_PRIORITY_": "3"}, 0, "fifo"),
        ({"DELAY": "3", "__SHARDINGKEY": "g"}, 0, "delay"),
        ({"TIMER_DELIVER_MS": "1"}, 0, "delay"),
        ({"TRAN_MSG": "true"}, 0, "transaction"),
        ({"TIMER_DELIVER_MS": "1"}, 8, "transaction"),
    ],
)
def test_kinds_of_messages(properties: dict[str, str], sys_flag: int, kind: str) -> None:
    rows = decode(make_record(0, b"x", properties, sys_flag=sys_flag), "message_type")

    assert rows == [{"message_type": kind}]


def test_when_a_message_was_due() -> None:
    data = (
        make_record(0, b"x", {"TIMER_DELIVER_MS": "1700000000000", "TIMER_OUT_MS": "1700000000500"})
        + make_record(1, b"x", {"TIMER_DELIVER_MS": "1700000000000"})
        + make_record(2, b"x", {"TIMER_DELIVER_MS": "soon"})
        + make_record(3, b"x", {"TIMER_DELIVER_MS": "9" * 30})
        + make_record(4)
    )

    due = [row["deliver_timestamp"] for row in decode(data, "deliver_timestamp")]

    at = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    assert due == [at + datetime.timedelta(milliseconds=500), at, None, None, None]


def test_compressed_rows_come_in_parts_and_plain_ones_do_not() -> None:
    plain = RecordColumns(make_record(0, b"x" * 900) * 3, start=0, end=9)
    mixed = b"".join(
        make_record(i, zlib.compress(b"%d" % i * 500), sys_flag=1) if i % 2 else make_record(i)
        for i in range(6)
    )

    parts = list(RecordColumns(mixed, start=0, end=9).parts(600))

    assert list(plain.parts(1)) == [plain]
    assert [part.count for part in parts] == [4, 2]
    whole = RecordDecoder(
        schema_of("queue_offset", "body", "born_host"), topic="T", broker_name="b"
    )
    rows = [row for part in parts for row in whole.decode(part).to_pylist()]
    assert rows == whole.decode(RecordColumns(mixed, start=0, end=9)).to_pylist()


sizes_in_a_row = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=6)


@given(sizes_in_a_row)
@settings(deadline=None, max_examples=60)
def test_positions_of_runs_and_of_single_records(runs: list[tuple[int, int]]) -> None:
    records = [make_record(0, b"x" * size) for size, count in runs for _ in range(count)]

    found = record_starts(b"".join(records))

    ends = list(itertools.accumulate(map(len, records)))
    assert found.tolist() == [0, *ends[:-1]]


@pytest.mark.parametrize("count", [1, 8, 9, 10, 11, 73, 75, 400])
def test_a_cut_run_is_refused(count: int) -> None:
    data = make_record(0, b"x") * count

    with pytest.raises(CorruptRecord, match=f"record at {len(data)} of {len(data) + 50} bytes"):
        record_starts(data + make_record(0, b"x")[:50])
