"""Bodies that name their schema in a registry, as columns."""

import base64
import io
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipelines.fake_registry import FakeRegistry, fake_registry
from tests.pipelines.kit.test_avro_bodies import KNOWN, LOGICAL, LOGICAL_VALUE
from tests.pipelines.rows.test_protobuf_rows import FILE
from tests.pipelines.rows.test_protobuf_rows import ORDER as PROTO_ORDER

from roquette.errors import ConfigError, ConnectError
from roquette_spark.pipelines.rows.json_rows import EMPTY
from roquette_spark.pipelines.rows.registry_rows import NO_PREFIX, RegistryReader, columns_of
from roquette_spark.registry import Registry, Schema

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "price", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "to", "type": {"type": "record", "name": "To", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ],
}  # fmt: skip
ONE = {
    "id": 1, "price": 2.5, "at": datetime(2026, 9, 1, 12, tzinfo=UTC), "raw": b"\0\xff", "tags": ["a", "b"],
    "to": {"city": "Köln"}, "counts": {"x": 2**40},
}  # fmt: skip
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": ["null", "integer"]},
        "sizes": {"type": "array", "items": {"type": "number"}},
        "home": {"type": "object", "properties": {"zip": {"type": "string"}}},
        "any": {},
    },
}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as found:
        found.register("orders-value", 1, ORDER)
        found.register("people-value", 2, PERSON, "JSON")
        more = [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]  # type: ignore[misc]
        wider = [{**each, "type": "long"} if each["name"] == "id" else each for each in more]
        found.register("orders-value", 3, {**ORDER, "fields": wider})
        found.register("proto-value", 4, "the text of order.proto", "PROTOBUF")
        serialized = {"schema": base64.b64encode(FILE).decode(), "schemaType": "PROTOBUF"}
        found.answers["/schemas/ids/4?format=serialized"] = serialized
        found.register("odd-value", 5, '{"type": "no such type"}')
        yield found


def avro(schema: Any, number: int, value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def reader_of(fake: FakeRegistry, subject: str, schema: Any, kind: str = "AVRO") -> RegistryReader:
    columns = columns_of(Schema(kind, json.dumps(schema)), subject)
    return RegistryReader(columns, Registry(fake.url, {}))


def read(reader: RegistryReader, *bodies: bytes | None) -> tuple[list[Any], list[Any], list[Any]]:
    """Rows, errors, rescued."""
    found = reader.read(pa.array(bodies, pa.binary()))
    names = [field.name for field in reader._typed.schema]
    rows = pa.Table.from_arrays(found.columns, names).to_pylist()
    rescued = [None] * len(bodies) if found.rescued is None else found.rescued.to_pylist()
    return rows, found.errors.to_pylist(), rescued


def test_avro_of_all_types(fake: FakeRegistry) -> None:
    reader = reader_of(fake, "orders-value", ORDER)
    rows, errors, rescued = read(
        reader, avro(ORDER, 1, ONE), avro(ORDER, 1, {**ONE, "price": None})
    )
    assert rows[0] == {**ONE, "counts": [("x", 2**40)]}
    assert rows[1]["price"] is None
    assert errors == rescued == [None, None]


@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**31), 2**31 - 1),
            "price": st.none() | st.floats(allow_nan=False),
            "raw": st.binary(max_size=20),
            "tags": st.lists(st.text(max_size=5), max_size=3),
            "counts": st.dictionaries(
                st.text(max_size=3), st.integers(-(2**63), 2**63 - 1), max_size=3
            ),
        }
    )
)
def test_what_avro_holds_is_what_the_columns_have(
    fake: FakeRegistry, value: dict[str, Any]
) -> None:
    (row,), errors, _ = read(
        reader_of(fake, "orders-value", ORDER), avro(ORDER, 1, {**ONE, **value})
    )
    assert errors == [None]
    assert {name: row[name] for name in ("id", "price", "raw", "tags")} == {
        name: value[name] for name in ("id", "price", "raw", "tags")
    }
    assert dict(row["counts"]) == value["counts"]


def test_decimals_of_avro(fake: FakeRegistry) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    schema = {"type": "record", "name": "M", "fields": [{"name": "sum", "type": money}]}
    fake.register("money-value", 9, schema)
    reader = RegistryReader(
        json.dumps({"type": "struct", "fields": [{"name": "sum", "type": "decimal(10,2)", "nullable": True, "metadata": {}}]}),
        Registry(fake.url, {}),
    )  # fmt: skip
    (row,), errors, _ = read(reader, avro(schema, 9, {"sum": Decimal("12.34")}))
    assert (row, errors) == ({"sum": Decimal("12.34")}, [None])


def test_a_newer_schema_tells_its_columns_and_its_values_are_rescued_meanwhile(
    fake: FakeRegistry,
) -> None:
    newer = json.loads(fake.answers["/schemas/ids/3"]["schema"])
    reader = reader_of(fake, "orders-value", ORDER)
    rows, errors, rescued = read(
        reader, avro(ORDER, 1, ONE), avro(newer, 3, {**ONE, "note": "first"})
    )
    assert rows[1]["id"] == 1
    assert errors == [None, None]
    assert rescued == [None, '{"note":"first"}']
    kinds = {field["name"]: field["type"] for field in reader.news["fields"]}
    assert kinds["note"] == "string"
    assert kinds["id"] == "long"


def test_json_of_one_schema_goes_the_fast_way_and_mixed_ones_the_other(fake: FakeRegistry) -> None:
    reader = reader_of(fake, "people-value", PERSON, "JSON")
    prefix = b"\0\0\0\0\2"
    bodies = [
        prefix + b'{"name": "Ann", "age": 3, "sizes": [1.5]}',
        prefix + b'{"home": {"zip": "50667"}}',
    ]
    rows, errors, _ = read(reader, *bodies)
    assert rows[0] == {"name": "Ann", "age": 3, "sizes": [1.5], "home": None}
    assert rows[1]["home"] == {"zip": "50667"}
    mixed, errors, rescued = read(reader, *bodies, prefix + b'{"any": 1}', prefix + b"{")
    assert mixed[:2] == rows
    assert errors[:3] == [None] * 3
    assert "malformed JSON" in errors[3]
    assert rescued[2] == '{"any":1}'
    assert "any" in {field["name"] for field in reader.news["fields"]}


def test_what_cannot_be_read_is_bad_by_itself(fake: FakeRegistry) -> None:
    good = avro(ORDER, 1, ONE)
    bodies = {
        None: EMPTY,
        b"": EMPTY,
        b"\0\0\0": NO_PREFIX,
        b'{"id": 1}': NO_PREFIX,
        b"\0\0\0\0\x63x": "the registry has no schema 99",
        b"\0\0\0\0\5x": "schema 5 cannot be used",
        good[:-1]: "the body is no Avro of its schema",
        good + b"x": "the body is longer than an Avro record",
    }
    rows, errors, _ = read(reader_of(fake, "orders-value", ORDER), *bodies, good)
    for error, words in zip(errors, bodies.values(), strict=False):
        assert words in error
    assert errors[-1] is None
    assert rows[-1]["id"] == 1


def test_a_registry_that_does_not_answer_makes_no_row_bad(fake: FakeRegistry) -> None:
    reader = reader_of(fake, "orders-value", ORDER)
    fake.down = True
    try:
        with pytest.raises(ConnectError, match="cannot answer now"):
            read(reader, avro(ORDER, 1, ONE))
    finally:
        fake.down = False
    assert read(reader, avro(ORDER, 1, ONE))[1] == [None]


def test_protobuf_of_a_message_that_the_prefix_names(fake: FakeRegistry) -> None:
    kinds = [
        "id long",
        "small long",
        "name string",
        "raw binary",
        "state string",
        "at timestamp",
        "counts array<long>",
    ]
    pairs = [each.split() for each in kinds]
    named = {"array<long>": {"type": "array", "elementType": "long", "containsNull": True}}
    fields = [
        {"name": n, "type": named.get(k, k), "nullable": True, "metadata": {}} for n, k in pairs
    ]
    reader = RegistryReader(
        json.dumps({"type": "struct", "fields": fields}), Registry(fake.url, {})
    )
    values = [
        PROTO_ORDER(id=n, small=2**32 - 1, name="Köln", raw=b"\0", counts=[1, 2]) for n in (7, -8)
    ]
    values[0].at.FromSeconds(1_700_000_000)
    values[0].price = 2.5
    prefix = b"\0\0\0\0\4"
    good = [
        prefix + b"\x02\x02" + value.SerializeToString() for value in values
    ]  # message 1 of the file
    rows, errors, rescued = read(reader, good[0], good[0][:-1], prefix + b"\x02\x08x", good[1])
    assert [row["id"] for row in (rows[0], rows[3])] == [7, -8]
    assert rows[0]["at"] == datetime.fromtimestamp(1_700_000_000, UTC)
    assert (rows[0]["name"], rows[0]["raw"], rows[0]["small"], rows[0]["counts"]) == (
        "Köln", b"\0", 2**32 - 1, [1, 2],
    )  # fmt: skip
    assert [error is None for error in errors] == [True, False, False, True]
    assert json.loads(rescued[0])["price"] == 2.5
    assert {"price", "to", "large"} <= {field["name"] for field in reader.news["fields"]}


def test_a_worker_without_the_decoder_makes_no_row_bad(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ptars", None)
    reader = RegistryReader(json.dumps({"type": "struct", "fields": []}), Registry(fake.url, {}))
    with pytest.raises(ConfigError, match="need ptars"):
        read(reader, b"\0\0\0\0\4\0")


def test_a_record_without_fields_has_no_column_and_stays_among_the_rescued(
    fake: FakeRegistry,
) -> None:
    nothing = {"type": "record", "name": "Nothing", "fields": []}
    fields = [{"name": "n", "type": "int"}, {"name": "nothing", "type": nothing}]
    schema = {"type": "record", "name": "R", "fields": fields}
    fake.register("nothing-value", 10, schema)
    reader = reader_of(fake, "nothing-value", schema)
    found = read(reader, avro(schema, 10, {"n": 7, "nothing": {}}))
    assert found == ([{"n": 7}], [None], ['{"nothing":{}}'])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (Schema("AVRO", '"string"'), "is no record"),
        (Schema("JSON", '{"type": "array"}'), "is no record"),
        (Schema("JSON", "{"), "is no JSON"),
        (Schema("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}'), "union"),
        (Schema("AVRO", '{"type": "record", "fields": []}'), "is no Avro schema"),
    ],
)  # fmt: skip
def test_schemas_without_columns(schema: Schema, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        columns_of(schema, "t-value")


def test_logical_types_of_avro_are_values_of_their_columns(fake: FakeRegistry) -> None:
    fake.register("logical-value", 8, LOGICAL)
    columns = columns_of(Registry(fake.url, {}).schema(8), "logical-value")

    found = RegistryReader(columns, Registry(fake.url, {})).read(
        pa.array([avro(LOGICAL, 8, LOGICAL_VALUE)], pa.binary())
    )

    assert found.errors.to_pylist() == [None]
    assert [column[0].as_py() for column in found.columns] == [
        Decimal("12.30"),
        "10:05:00",
        str(KNOWN),
        datetime(2013, 2, 1, 12, tzinfo=UTC),
        ["01:02:03.000004"],
    ]
