"""Bodies with their schema, as Kafka Connect and Debezium write them: two real ones of Postgres, and each type at its edges."""

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette_spark.pipelines.rows.connect_json import ConnectReader, connect_columns
from roquette_spark.pipelines.rows.decoder import possible_columns
from roquette_spark.pipelines.rows.json_rows import JsonReader, NoObjects

# What Debezium 3.6.3 sent for two rows of PostgreSQL 15: numeric(10,2), numeric, date, timestamp, timestamptz, time, boolean, jsonb,
# bytea, text[], uuid, real, double precision, smallint, interval.
POSTGRES = (Path(__file__).parent / "data" / "debezium-postgres.jsonl").read_bytes().splitlines()


def rows_of(bodies, columns=None):
    """Rows by name, and the reader."""
    reader = ConnectReader(columns or possible_columns(connect_columns(bodies, "t")))
    found = reader.read(pa.array(bodies, pa.binary()))
    assert found.errors.null_count == len(bodies), found.errors
    table = pa.table(dict(zip(reader.schema.names, found.columns, strict=True)))
    left = [None] * len(bodies) if found.rescued is None else found.rescued.to_pylist()
    return [{**row, "_rescued": each} for row, each in zip(table.to_pylist(), left, strict=True)]


def connect(schema, value):
    """A body with one field v."""
    fields = [{"optional": True, "field": "v", **schema}]
    whole = {"type": "struct", "fields": fields, "optional": False, "name": "t.Value"}
    return json.dumps({"schema": whole, "payload": {"v": value}}, separators=(",", ":")).encode()


def one(schema, value):
    """The column's kind, the value, and what is rescued."""
    body = connect(schema, value)
    (row,) = rows_of([body])
    return (
        json.loads(connect_columns([body], "t"))["fields"][0]["type"], row["v"], row["_rescued"],
    )  # fmt: skip


def test_rows_of_postgres_are_what_postgres_has():
    first, second = rows_of(POSTGRES)

    row = first["after"]
    assert first["op"] == "r" and first["before"] is None and first["source"]["table"] == "orders"
    assert row == {
        "id": 1, "customer": "a", "price": Decimal("1.05"), "free": "3.14159", "born": date(2020, 2, 29),
        "at": datetime(2020, 2, 29, 12, 34, 56, 789012),
        "seen": datetime(2020, 2, 29, 10, 34, 56, 789012, tzinfo=UTC),
        "t": "23:59:59.500000", "paid": True, "doc": '{"a": 1}', "raw": b"\x00\xff", "tags": ["x", "y"],
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "f": 1.5, "d": 2.25, "s": 7, "i": 86_400_000_000,
    }  # fmt: skip
    row = second["after"]
    assert (row["price"], row["born"], row["t"]) == (
        Decimal("-1.05"), date(1969, 12, 31), "00:00:00",
    )  # fmt: skip
    # 44 before Christ and infinity are no times of Arrow's: the fields alone are rescued, as Debezium wrote them.
    assert (row["at"], row["seen"]) == (None, None)
    assert json.loads(second["_rescued"]) == {
        "after": {"at": -63524131200000000, "seen": "infinity"}
    }


@pytest.mark.parametrize(
    ("schema", "value", "kind", "found"),
    [
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, -719162, "date", date(1, 1, 1)),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, -1, "timestamp_ntz", datetime(1969, 12, 31, 23, 59, 59, 999000)),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1_000, "timestamp_ntz", datetime(1970, 1, 1, 0, 0, 0, 1)),
        ({"type": "int64", "name": "io.debezium.time.NanoTime"}, 1_000, "string", "00:00:00.000001"),
        ({"type": "int32", "name": "io.debezium.time.Time"}, 1, "string", "00:00:00.001000"),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 86_400_000_000, "string", "24:00:00"),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}, "AIA=", "decimal(38,2)", Decimal("1.28")),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "-2"}}, "AQ==", "string", "100"),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "40"}}, "AQ==", "string", "0." + "0" * 39 + "1"),
        ({"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}}, [0, None], {"type": "array", "elementType": "date", "containsNull": True}, [date(1970, 1, 1), None]),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, {"a": 1}, "string", '{"a":1}'),
        ({"type": "int8"}, -128, "byte", -128),
    ],
)  # fmt: skip
def test_values_are_what_their_schema_says(schema, value, kind, found):
    assert one(schema, value) == (kind, found, None)
    assert one(schema, None)[1:] == (None, None)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "int32", "name": "io.debezium.time.Date"}, 2**31 - 1),  # infinity
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1),  # less than a microsecond
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 2**63 - 1),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, "soon"),
        (
            {
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": {"scale": "2", "connect.decimal.precision": "3"},
            },
            "fw==!",
        ),
        (
            {
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": {"scale": "0", "connect.decimal.precision": "2"},
            },
            "AIA=",
        ),
    ],
)
def test_what_no_column_holds_is_rescued(schema, value):
    _, found, rescued = one(schema, value)
    assert found is None and "v" in json.loads(rescued)


@given(
    st.integers(-(10**37), 10**37),
    st.integers(0, 38),
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
)
def test_any_decimal_and_any_time_comes_back(whole, scale, moment):
    size = whole.bit_length() // 8 + 1
    text = base64.b64encode(whole.to_bytes(size, "big", signed=True)).decode()
    decimal = {
        "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": str(scale)},
    }  # fmt: skip
    stamp = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    assert one(decimal, text)[1] == Decimal(whole).scaleb(-scale)
    assert one(stamp, (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1))[1] == moment


def test_what_is_not_connects_is_json():
    plain = [
        b'{"v": 1}',
        b'{"schema": 1, "payload": 2}',
        b'{"schema":{"type":"struct"},"payload":{}}',
    ]
    kept = ConnectReader('{"type":"struct","fields":[]}')
    as_json = JsonReader('{"type":"struct","fields":[]}')
    bodies = pa.array([*plain, b"", None, b"\xff", b"[]", connect({"type": "int8"}, 1)[:-1]])
    found, wanted = kept.read(bodies), as_json.read(bodies)
    assert found.errors == wanted.errors and found.rescued == wanted.rescued
    with pytest.raises(NoObjects):
        connect_columns([None, b"7"], "t")


def test_a_new_schema_widens_the_columns():
    old, new = connect({"type": "int32"}, 1), connect({"type": "int64"}, 2)
    reader = ConnectReader(connect_columns([old], "t"))
    reader.read(pa.array([old, new, old]))
    assert reader.news["fields"][0]["type"] == "long"
