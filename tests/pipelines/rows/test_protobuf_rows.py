"""Protobuf values as Arrow columns: what Google's own encoder writes comes back, and what it would not read is bad alone."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from roquette_spark.pipelines.rows.registry_rows import (
    BROKEN,
    NO_DAY,
    NO_INDEXES,
    NULL_VALUE,
    ProtobufValues,
    message_of,
    rows_of,
    split_indexes,
)
from roquette_spark.registry import UnusableProto

T = FieldDescriptorProto
FIELDS = [
    ("id", T.TYPE_INT64, 1, ""), ("small", T.TYPE_UINT32, 1, ""), ("large", T.TYPE_UINT64, 1, ""),
    ("name", T.TYPE_STRING, 1, ""), ("raw", T.TYPE_BYTES, 1, ""), ("good", T.TYPE_BOOL, 1, ""),
    ("price", T.TYPE_DOUBLE, 1, ""), ("state", T.TYPE_ENUM, 1, ".shop.State"),
    ("at", T.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"), ("counts", T.TYPE_UINT64, 3, ""),
    ("to", T.TYPE_MESSAGE, 1, ".shop.Order.To"),
]  # fmt: skip


def order_file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="To").field.add(name="zip", number=1, type=T.TYPE_UINT32, label=1)
    for number, (name, kind, label, of) in enumerate(FIELDS, 1):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    return file


FILE = order_file().SerializeToString()
DESCRIPTOR = message_of([FILE], (1,))
ORDER: Any = message_factory.GetMessageClass(DESCRIPTOR)
VALUES = ProtobufValues(DESCRIPTOR)
ORDERS = st.builds(
    ORDER,
    id=st.integers(-(2**63), 2**63 - 1),
    small=st.integers(0, 2**32 - 1),
    large=st.integers(0, 2**64 - 1),
    name=st.text(st.characters(codec="utf-8")),
    raw=st.binary(),
    good=st.booleans(),
    price=st.floats(allow_nan=False),
    state=st.integers(0, 1),
    counts=st.lists(st.integers(0, 2**64 - 1)),
)


def test_columns_have_the_types_of_tables() -> None:
    assert VALUES.schema == pa.schema({
        "id": pa.int64(), "small": pa.int64(), "large": pa.decimal128(20, 0), "name": pa.string(), "raw": pa.binary(),
        "good": pa.bool_(), "price": pa.float64(), "state": pa.string(), "at": pa.timestamp("us", "UTC"),
        "counts": pa.list_(pa.decimal128(20, 0)), "to": pa.struct({"zip": pa.int64()}),
    })  # fmt: skip


@given(st.lists(ORDERS))
def test_what_was_written_is_read(orders: list[Any]) -> None:
    table, errors = VALUES.decode([each.SerializeToString() for each in orders])
    assert table.schema == VALUES.schema
    assert errors == [None] * len(orders)
    for row, order in zip(table.to_pylist(), orders, strict=True):
        for name in ("id", "small", "name", "raw", "good", "price"):
            assert row[name] == getattr(order, name)
        assert row["large"] == Decimal(order.large)
        assert row["counts"] == [Decimal(each) for each in order.counts]
        assert row["state"] == ("NEW", "PAID")[order.state]


def test_messages_within() -> None:
    order = ORDER(to={"zip": 2**32 - 1})
    order.at.FromJsonString("2026-09-01T12:00:00.000001Z")
    table, _ = VALUES.decode([order.SerializeToString(), b""])
    full, empty = table.select(["at", "to", "id"]).to_pylist()
    at = datetime(2026, 9, 1, 12, 0, 0, 1, tzinfo=UTC)
    assert full == {"at": at, "to": {"zip": 2**32 - 1}, "id": 0}
    assert empty == {"at": None, "to": None, "id": 0}


@given(st.lists(st.one_of(st.none(), ORDERS.map(lambda each: each.SerializeToString()[:-1]))))
def test_bad_ones_are_bad_alone(values: list[bytes | None]) -> None:
    good = ORDER(id=7).SerializeToString()
    mixed = [each for value in values for each in (good, value)]
    table, errors = VALUES.decode(mixed)
    rows = table.to_pylist()
    assert len(rows) == len(errors) == len(mixed)
    assert [row["id"] for row in rows[::2]] == [7] * len(values)
    assert errors[::2] == [None] * len(values)
    for value, row, error in zip(values, rows[1::2], errors[1::2], strict=True):
        assert error == (NULL_VALUE if value is None else None if is_order(value) else BROKEN)
        if error:
            assert set(row.values()) == {None}


@given(st.binary(max_size=12))
def test_only_what_google_refuses_is_bad(value: bytes) -> None:
    _, errors = VALUES.decode([value])
    assert errors == [None] or not is_order(value)


def is_order(value: bytes) -> bool:
    try:
        ORDER.FromString(value)
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("data", "path", "value"),
    [
        (b"\0abc", (0,), b"abc"),
        (b"\x02\x02", (1,), b""),
        (b"\x04\x02\x00x", (1, 0), b"x"),
        (b"\x02\x80\x02x", (128,), b"x"),
    ],
)
def test_message_indexes(data: bytes, path: tuple[int, ...], value: bytes) -> None:
    assert split_indexes(data) == (path, value)


@pytest.mark.parametrize(
    "data", [b"", b"\x02", b"\x04\x02", b"\x01", b"\x02\x01", b"\xff" * 9, b"\xfe\xff\x03" * 9]
)
def test_message_indexes_that_are_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=NO_INDEXES):
        split_indexes(data)


def test_a_message_by_its_path() -> None:
    assert message_of([FILE]).full_name == "shop.Other"
    assert message_of([FILE], (1, 0)).full_name == "shop.Order.To"
    user = FileDescriptorProto(name="user.proto", dependency=["order.proto"], syntax="proto3")
    user.message_type.add(name="User").field.add(
        name="last", number=1, type=T.TYPE_MESSAGE, label=1, type_name=".shop.Order"
    )
    values = ProtobufValues(message_of([FILE, user.SerializeToString()]))
    assert values.schema.field("last").type == pa.struct(list(VALUES.schema))


@pytest.mark.parametrize(
    ("files", "path", "words"),
    [
        ([b"\xff"], (0,), "cannot be used"),
        ([], (0,), "cannot be used"),
        (
            [FileDescriptorProto(name="a", dependency=["b"]).SerializeToString()],
            (0,),
            "cannot be used",
        ),
        ([FILE], (2,), "no message"),
        ([FILE], (1, 1), "no message"),
        ([FILE], (), "is empty"),
    ],
)
def test_schemas_that_are_refused(files: list[bytes], path: tuple[int, ...], words: str) -> None:
    with pytest.raises(UnusableProto, match=words):
        message_of(files, path)


def test_of_a_maps_equal_keys_the_last_one_stands() -> None:
    first, second = Struct(), Struct()
    first["a"], second["a"] = 1, 2
    table, errors = ProtobufValues(Struct.DESCRIPTOR).decode(
        [first.SerializeToString() + second.SerializeToString()]
    )
    assert (rows_of(table), errors) == ([{"fields": {"a": {"number_value": 2.0}}}], [None])


@given(st.lists(st.booleans()))
def test_a_time_that_no_calendar_has_is_bad_alone(late: list[bool]) -> None:
    orders = [ORDER(id=n, at={"seconds": (2**63 - 1) * bad}) for n, bad in enumerate(late)]
    table, _ = VALUES.decode([each.SerializeToString() for each in orders])
    found = [None if row is None else row["id"] for row in rows_of(table)]
    assert found == [None if bad else n for n, bad in enumerate(late)]


def test_a_schema_that_the_decoder_panics_at() -> None:
    file = FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    message = file.message_type.add(name="A")
    for number, name in enumerate(("took", "Took"), 1):
        message.field.add(name=name, number=number, type=T.TYPE_STRING, label=1)
    descriptor = message_of([file.SerializeToString()])
    with pytest.raises(UnusableProto, match="conflicts with field"):
        ProtobufValues(descriptor)


def dated_file() -> list[bytes]:
    """Dates in a field, in a list, in a map, and in a message within."""
    days = FileDescriptorProto(name="date.proto", package="google.type", syntax="proto3")
    parts = days.message_type.add(name="Date").field
    for number, name in enumerate(("year", "month", "day"), 1):
        parts.add(name=name, number=number, type=T.TYPE_INT32, label=1)
    file = FileDescriptorProto(
        name="d.proto", package="d", syntax="proto3", dependency=["date.proto"]
    )
    trip = file.message_type.add(name="Trip")
    entry = trip.nested_type.add(name="NamedEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=T.TYPE_STRING, label=1)
    kind = {"type": T.TYPE_MESSAGE, "type_name": ".google.type.Date"}
    entry.field.add(name="value", number=2, label=1, **kind)
    trip.field.add(name="one", number=1, label=1, **kind)
    trip.field.add(name="many", number=2, label=3, **kind)
    named = {"type": T.TYPE_MESSAGE, "type_name": ".d.Trip.NamedEntry"}
    trip.field.add(name="named", number=3, label=3, **named)
    within = {"type": T.TYPE_MESSAGE, "type_name": ".d.Trip.Leg"}
    trip.nested_type.add(name="Leg").field.add(name="on", number=1, label=1, **kind)
    trip.field.add(name="legs", number=4, label=3, **within)
    return [days.SerializeToString(), file.SerializeToString()]


@pytest.mark.parametrize(
    ("parts", "sound"),
    [
        ((1970, 1, 1), True),
        ((2026, 11, 24), True),
        ((2024, 2, 29), True),
        ((2026, 2, 30), False),
        ((2026, 13, 1), False),
        ((2026, 11, -1), False),
        ((0, 0, 0), False),
        ((0, 11, 24), False),
    ],
)
@pytest.mark.parametrize("field", ["one", "many", "named", "legs"])
def test_a_date_is_one_of_the_calendar_or_bad(
    parts: tuple[int, int, int], sound: bool, field: str
) -> None:
    descriptor = message_of(dated_file())
    trip: Any = message_factory.GetMessageClass(descriptor)
    given = dict(zip(("year", "month", "day"), parts, strict=True))
    odd: Any = {
        "one": given,
        "many": [given],
        "named": {"a": given},
        "legs": [{"on": given}],
    }
    good = trip(one={"year": 2026, "month": 1, "day": 2}).SerializeToString()
    values = [good, trip(**{field: odd[field]}).SerializeToString(), good]

    table, errors = ProtobufValues(descriptor).decode(values)

    assert errors == [None, None if sound else NO_DAY, None]
    rows = rows_of(table)
    assert rows[0] is not None and str(rows[0]["one"]) == "2026-01-02"
    if sound and field == "one":
        assert rows[1] is not None and rows[1]["one"] == date(*parts)
