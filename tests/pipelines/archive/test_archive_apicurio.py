"""Archives by a registry that is not ours: Apicurio 3.3.3. Avro, JSON Schema and Protobuf, with references and newer versions."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.apicurio import Apicurio, running
from tests.pipelines.tables import folder_files, log_files, rows
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.from_registry import from_registry
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.rows.registry_rows import message_of
from roquette_spark.registry import descriptors_of_text

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

PLACE = {"type": "record", "name": "Place", "namespace": "x", "fields": [{"name": "name", "type": "string"}]}  # fmt: skip
FIRST = {
    "type": "record",
    "name": "Reading",
    "namespace": "x",
    "fields": [{"name": "n", "type": "int"}, {"name": "place", "type": "x.Place"}],
}
SECOND = {
    **FIRST,
    "fields": [*FIRST["fields"], {"name": "warm", "type": ["null", "boolean"], "default": None}],  # type: ignore[misc]
}
PERSON = {"type": "object", "properties": {"n": {"type": "integer"}, "name": {"type": "string"}}}
PROTO_PLACE = 'syntax = "proto3";\npackage x;\nmessage Place { string name = 1; }\n'
PROTO = """syntax = "proto3";
package x;
import "place.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Other { int32 unused = 1; }
message Reading { int64 n = 1; Place place = 2; google.protobuf.Timestamp at = 3; google.protobuf.Duration took = 4;%s }
"""
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with running(tmp_path_factory.mktemp("apicurio")) as found:
        yield found


def prefixed(schema_id: int, value: bytes, indexes: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + value


def avro_bodies(registry: Apicurio) -> list[bytes]:
    place = registry.register("place", "AVRO", json.dumps(PLACE))
    assert place > 0
    named = {"name": "x.Place", "subject": "place", "version": 1}
    bodies = []
    for number, (schema, more) in enumerate(((FIRST, {}), (SECOND, {"warm": True}))):
        schema_id = registry.register("A-value", "AVRO", json.dumps(schema), named)
        known: dict[str, Any] = {}
        fastavro.parse_schema(PLACE, named_schemas=known)
        parsed = fastavro.parse_schema(schema, named_schemas=known)
        for n in range(number * 20, number * 20 + 20):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, {"n": n, "place": {"name": f"p{n}"}, **more})
            bodies.append(prefixed(schema_id, out.getvalue()))
    return [*bodies, prefixed(9999, b"x")]


def json_bodies(registry: Apicurio) -> list[bytes]:
    schema_id = registry.register("J-value", "JSON", json.dumps(PERSON))
    values = [{"n": n, "name": f"p{n}"} for n in range(40)]
    return [prefixed(schema_id, json.dumps(value).encode()) for value in values]


def protobuf_bodies(registry: Apicurio) -> list[bytes]:
    registry.register("place-proto", "PROTOBUF", PROTO_PLACE)
    named = {"name": "place.proto", "subject": "place-proto", "version": 1}
    bodies = []
    for number, more in enumerate(("", " bool warm = 5;")):
        text = PROTO % more
        schema_id = registry.register("P-value", "PROTOBUF", text, named)
        files = descriptors_of_text(text, {"place.proto": PROTO_PLACE})
        reading = GetMessageClass(message_of(files, (1,)))
        for n in range(number * 20, number * 20 + 20):
            value = reading(n=n, place={"name": f"p{n}"}, **({"warm": True} if number else {}))
            value.at.FromDatetime(NOON)
            value.took.FromMicroseconds(n)
            bodies.append(prefixed(schema_id, value.SerializeToString(), b"\x02\x02"))
    return bodies


@pytest.fixture(scope="module")
def bodies(registry: Apicurio) -> dict[str, list[bytes]]:
    return {
        "A": avro_bodies(registry),
        "J": json_bodies(registry),
        "P": protobuf_bodies(registry),
    }


def test_three_kinds_become_tables(
    spark: Any, registry: Apicurio, bodies: dict[str, list[bytes]], tmp_path: Path
) -> None:
    queues = {
        MessageQueue(topic, "broker-a", 0): [
            make_record(i, body, topic=topic, queue_id=0) for i, body in enumerate(found)
        ]
        for topic, found in bodies.items()
    }
    with FakeCluster(queues) as cluster:
        options = ArchiveOptions(
            namesrv=cluster.address,
            topics=tuple(bodies),
            to=str(tmp_path / "lake"),
            report=str(tmp_path / "report"),
            format="registry",
            registry=registry.url,
            batch=50,
        )
        assert run_pipeline(PIPELINE, options).ok

    found = {
        topic: sorted(rows(log_files(tmp_path / "lake" / topic)), key=lambda row: row["n"])
        for topic in bodies
    }
    for topic, mine in found.items():
        assert [row["n"] for row in mine] == [row["_queue_offset"] for row in mine], topic
        assert [row["n"] for row in mine] == list(range(40)), topic
    warm = [row["warm"] for row in found["A"]]
    assert warm == [None] * 20 + [True] * 20
    assert [row["place"] for row in found["A"]] == [{"name": f"p{n}"} for n in range(40)]
    assert [row["name"] for row in found["J"]] == [f"p{n}" for n in range(40)]
    assert [row["place"] for row in found["P"]] == [{"name": f"p{n}"} for n in range(40)]
    assert {row["at"] for row in found["P"]} == {NOON}
    assert [row["took"] for row in found["P"]] == list(range(40))
    assert [row["warm"] for row in found["P"]][20:] == [True] * 20
    (bad,) = rows(folder_files(tmp_path / "lake/A.quarantine"))
    assert bad["error"] == "the registry has no schema 9999"


def test_a_column_of_bodies_becomes_a_struct(
    spark: Any, registry: Apicurio, bodies: dict[str, list[bytes]]
) -> None:
    frame = spark.createDataFrame([(body,) for body in bodies["A"]], "body binary")

    read = frame.select(from_registry("body", registry.url, "A-value").alias("v")).select("v.*")

    found = sorted(
        tuple(row) for row in read.select("n", "place.name", "warm").dropna(subset="n").collect()
    )
    assert found == [(n, f"p{n}", True if n >= 20 else None) for n in range(40)]
    errors = [row[0] for row in read.where("_error is not null").select("_error").collect()]
    assert errors == ["the registry has no schema 9999"]
