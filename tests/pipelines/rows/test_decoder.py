"""Messages to rows of a table and of its quarantine."""

import json
from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from roquette_spark.pipelines.kit.message_rows import RAW_COLUMNS, RowForm
from roquette_spark.pipelines.rows.decoder import (
    Bodies,
    Decoder,
    messages_schema,
    quarantine_type,
    table_type,
    text_day,
    text_moment,
)

MIDNIGHT = datetime(2023, 11, 14, tzinfo=UTC)
COLUMNS = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}},{"name":"at","type":"string","nullable":true,"metadata":{}}]}'  # fmt: skip


def messages(*bodies: bytes | None, at: datetime = MIDNIGHT) -> pa.RecordBatch:
    rows = [
        {
            "broker_name": "b",
            "queue_id": 0,
            "queue_offset": i,
            "keys": ["k"],
            "body": body,
            "properties": {"colour": "red"},
            "born_timestamp": at - timedelta(microseconds=1),
            "store_timestamp": at,
        }
        for i, body in enumerate(bodies)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=messages_schema())


class Numbers:
    """Reads bodies that are whole numbers; those above 9 have something left over."""

    def read(self, bodies: pa.Array) -> Bodies:
        found = [json.loads(body) if body else None for body in bodies.to_pylist()]
        return Bodies(
            [pa.array(found, pa.int64()), pa.array(["2023-02-01T10:00"] * len(found))],
            pa.array([None if each is not None else "the body is empty" for each in found], pa.string()),
            pa.array(['{"x":1}' if each and each > 9 else None for each in found], pa.string()),
        )  # fmt: skip


def test_raw_rows_are_the_messages_with_the_day_of_their_storing() -> None:
    found = Decoder(RowForm("raw")).decode(messages(b"a", None))

    assert found.bad is None
    assert found.good.column_names == [*RAW_COLUMNS, "dt"]
    assert found.good.column("body").to_pylist() == [b"a", None]
    assert found.good.column("dt").to_pylist() == [date(2023, 11, 14)] * 2
    assert found.good.schema.field("store_timestamp").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    "day_of, expected", [("born_timestamp", date(2023, 11, 13)), ("store_timestamp", date(2023, 11, 14))]
)  # fmt: skip
def test_days_are_days_in_utc(day_of: str, expected: date) -> None:
    found = Decoder(RowForm("raw", day_of=day_of)).decode(messages(b"a"))

    assert found.good.column("dt").to_pylist() == [expected]


def test_bodies_become_columns_and_those_that_cannot_go_apart() -> None:
    form = RowForm("json", COLUMNS, keep_body=True)

    found = Decoder(form, Numbers()).decode(messages(b"7", b"", b"12"))

    assert found.good.column("n").to_pylist() == [7, 12]
    assert found.good.column("_queue_offset").to_pylist() == [0, 2]
    assert found.good.column("_rescued").to_pylist() == [None, '{"x":1}']
    assert found.good.column("_body").to_pylist() == [b"7", b"12"]
    assert dict(found.good.column("_properties")[0].as_py()) == {"colour": "red"}
    assert found.rescued == 1
    [bad] = found.bad.to_pylist() if found.bad is not None else []
    assert (bad["error"], bad["queue_offset"], bad["dt"]) == ("the body is empty", 1, date(2023, 11, 14))  # fmt: skip


def test_the_day_may_come_from_the_body() -> None:
    found = Decoder(RowForm("json", COLUMNS, day_of="at"), Numbers()).decode(messages(b"7"))

    assert found.good.column("dt").to_pylist() == [date(2023, 2, 1)]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2023-01-31", date(2023, 1, 31)),
        ("2023-02-30", None),
        ("2023-1-5 10:0", date(2023, 1, 5)),
        ("2023-1", date(2023, 1, 1)),
        ("2023", date(2023, 1, 1)),
        ("x2023-01-01", None),
        ("", None),
    ],
)
def test_texts_are_dates_as_spark_reads_them(text: str, expected: date | None) -> None:
    assert text_day(text) == expected


def test_columns_are_those_that_tables_of_1b94d96_have() -> None:
    beside = [
        *("_broker_name", "_queue_id", "_queue_offset", "_uniq_key", "_keys", "_tags"),
        *("_born_timestamp", "_store_timestamp", "_properties", "_message_group", "_flag"),
    ]
    for form, names in (
        (RowForm("raw"), [*RAW_COLUMNS, "dt"]),
        (RowForm("json", COLUMNS), ["n", "at", *beside, "_rescued", "dt"]),
        (RowForm("json", COLUMNS, keep_body=True), ["n", "at", *beside, "_rescued", "_body", "dt"]),
        (RowForm("avro", COLUMNS, "{}"), ["n", "at", *beside, "dt"]),
    ):
        assert table_type(form).names == names
    kinds = {field.name: field.dataType.simpleString() for field in table_type(RowForm("raw"))}
    assert kinds["queue_offset"] == "bigint"
    assert kinds["queue_id"] == kinds["flag"] == "int"
    assert kinds["keys"] == "array<string>"
    assert kinds["properties"] == "map<string,string>"
    assert kinds["born_timestamp"] == "timestamp"
    assert quarantine_type().names == ["error", *RAW_COLUMNS, "dt"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-01-31T05:06:07+02:00", datetime(2023, 1, 31, 3, 6, 7)),
        ("2023-01-01T00:30:00+01:00", datetime(2022, 12, 31, 23, 30)),
        (" 2023-01-31 05:06:07.25Z", datetime(2023, 1, 31, 5, 6, 7, 250_000)),
        ("2023-01-31", datetime(2023, 1, 31)),
        ("0001-01-01T00:00:00+05:00", None),
        ("noon", None),
    ],
)
def test_a_text_is_a_moment_in_utc(text: str, expected: datetime | None) -> None:
    assert text_moment(text) == expected


def test_a_table_by_hours_has_day_and_hour_in_utc() -> None:
    at = datetime(2023, 11, 14, 23, 59, tzinfo=timezone(timedelta(hours=-3)))
    found = Decoder(RowForm("raw", partition="hour")).decode(messages(b"a", at=at)).good
    body = Decoder(RowForm("json", COLUMNS, day_of="at", partition="hour"), Numbers())

    assert (found.column("dt").to_pylist(), found.column("hour").to_pylist()) == (
        [date(2023, 11, 15)],
        [2],
    )
    rows = body.decode(messages(b"7")).good
    assert (rows.column("dt").to_pylist(), rows.column("hour").to_pylist()) == (
        [date(2023, 2, 1)],
        [10],
    )
    assert found.column_names == [*RAW_COLUMNS, "dt", "hour"]


def test_a_text_that_names_no_folder_is_null_or_bad() -> None:
    class Words(Numbers):
        def read(self, bodies: pa.Array) -> Bodies:
            found = super().read(bodies)
            texts = pa.array(["", "x" * 300, "ü" * 90, "fine"])
            return Bodies([found.columns[0], texts], found.errors)

    by_at = Decoder(RowForm("json", COLUMNS, partition="at"), Words())
    found = by_at.decode(messages(b"1", b"2", b"3", b"4"))

    assert found.good.column("at").to_pylist() == [None, "ü" * 90, "fine"]
    assert found.bad is not None
    assert found.bad.column("error").to_pylist() == [
        "the value of at, which partitions the table, is too long for a folder's name"
    ]
    by_day = Decoder(RowForm("json", COLUMNS), Words()).decode(messages(b"1", b"2", b"3", b"4"))
    assert by_day.good.column("at").to_pylist() == ["", "x" * 300, "ü" * 90, "fine"]
