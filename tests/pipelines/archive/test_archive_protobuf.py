"""Topics of Protobuf become tables of both formats, whatever a message may hold."""

import base64
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as T
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.fake_registry import FakeRegistry, fake_registry
from tests.pipelines.tables import folder_files, rows
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.from_registry import from_registry
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.rows.registry_rows import BROKEN, NO_DAY, UNFIT, message_of

pytest.importorskip("pyiceberg")

pytestmark = pytest.mark.spark

Q0 = MessageQueue("T", "broker-a", 0)
GOOGLE = ("duration", "empty", "struct", "timestamp")
FIELDS = [
    ("n", T.TYPE_INT64, 1, ""), ("large", T.TYPE_UINT64, 1, ""),
    ("at", T.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
    ("took", T.TYPE_MESSAGE, 1, ".google.protobuf.Duration"),
    ("steps", T.TYPE_MESSAGE, 3, ".google.protobuf.Duration"),
    ("opens", T.TYPE_MESSAGE, 1, ".google.type.TimeOfDay"),
    ("day", T.TYPE_MESSAGE, 1, ".google.type.Date"),
    ("within", T.TYPE_MESSAGE, 1, ".x.Stop"),
    ("nothing", T.TYPE_MESSAGE, 1, ".google.protobuf.Empty"),
    ("free", T.TYPE_MESSAGE, 1, ".google.protobuf.Struct"),
]  # fmt: skip


def type_file(name: str, message: str, *fields: str) -> FileDescriptorProto:
    """One of google/type, whose messages hold numbers."""
    file = FileDescriptorProto(name=name, package="google.type", syntax="proto3")
    found = file.message_type.add(name=message)
    for number, field in enumerate(fields, 1):
        found.field.add(name=field, number=number, type=T.TYPE_INT32, label=1)
    return file


TYPES = (
    type_file("google/type/timeofday.proto", "TimeOfDay", "hours", "minutes", "seconds", "nanos"),
    type_file("google/type/date.proto", "Date", "year", "month", "day"),
)


def stop_file(*more: tuple[str, int, int, str]) -> FileDescriptorProto:
    needs = [*(f"google/protobuf/{each}.proto" for each in GOOGLE), *(each.name for each in TYPES)]
    file = FileDescriptorProto(name="x.proto", package="x", syntax="proto3", dependency=needs)
    file.message_type.add(name="Reading")
    stop = file.message_type.add(name="Stop")
    for message, fields in ((file.message_type[0], [*FIELDS, *more]), (stop, FIELDS[3:7])):
        for number, (name, kind, label, of) in enumerate(fields, 1):
            message.field.add(
                name=name, number=number, type=kind, label=label, type_name=of or None
            )
    return file


FIRST, SECOND = stop_file(), stop_file(("warm", T.TYPE_BOOL, 1, ""))
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


def bodies_of(number: int, file: FileDescriptorProto, first: int, **more: Any) -> list[bytes]:
    """Forty, written by Google's own encoder."""
    files = [each.SerializeToString() for each in (*TYPES, file)]
    reading: Any = message_factory.GetMessageClass(message_of(files))
    found = []
    for n in range(first, first + 40):
        value = reading(n=n, large=2**64 - 1 - n, **more)
        value.at.FromDatetime(NOON)
        value.took.FromMicroseconds(-n)
        value.steps.add(seconds=n)
        value.opens.minutes = n % 60
        value.day.year, value.day.month, value.day.day = 2026, 11, 24
        value.within.took.seconds = n
        value.within.opens.hours = 23
        found.append(b"\0" + number.to_bytes(4, "big") + b"\0" + value.SerializeToString())
    return found


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeRegistry]:
    """The newest schema when a table begins is the first one: the other's id comes with the messages."""
    with fake_registry() as found:
        refer = [
            {"name": each.name, "subject": f"type-{at}", "version": at}
            for at, each in enumerate(TYPES, 10)
        ]
        for number, file in ((10, TYPES[0]), (11, TYPES[1]), (2, SECOND), (1, FIRST)):
            subject = f"type-{number}" if file in TYPES else "T-value"
            more = {} if file in TYPES else {"references": refer}
            found.register(subject, number, "a text", "PROTOBUF", **more)
            serialized = base64.b64encode(file.SerializeToString()).decode()
            for path in (f"/schemas/ids/{number}", f"/subjects/{subject}/versions/{number}"):
                answer = {**found.answers[path], "schema": serialized}
                found.answers[f"{path}?format=serialized"] = answer
        yield found


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_whatever_a_message_holds_becomes_a_table(
    spark: Any, fake: FakeRegistry, tmp_path: Path, table_format: str
) -> None:
    bodies = [*bodies_of(1, FIRST, 0), *bodies_of(2, SECOND, 40, warm=True)]
    bodies += bodies_of(1, FIRST, 80, nothing={}, free={"a": 1.5})[:1]
    late = (
        bodies[0] + b"\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f"
    )  # `at` has the last second of 64 bits
    # `within.opens` at minute 1440, which comes on top of hour 23.
    tomorrow = bodies[0] + bytes.fromhex("4207 1a05 10a00b 1800")
    # `day` once more, of which the fields that come count: month 13.
    no_day = bodies[0] + bytes.fromhex("3a02 100d")
    bad = {
        bodies[0][:-1]: BROKEN,
        no_day: NO_DAY,
        tomorrow: BROKEN,
        late: UNFIT,
        b"\0\0\0\0\1\x02\x0a": "the Protobuf schema x.proto has no message [5]",
    }
    queues = {Q0: [make_record(i, body, queue_id=0) for i, body in enumerate([*bodies, *bad])]}
    with FakeCluster(queues) as cluster:
        options = ArchiveOptions(
            namesrv=cluster.address,
            topics=("T",),
            to=str(tmp_path / "lake"),
            report=str(tmp_path / "report"),
            format="registry",
            registry=fake.url,
            table_format=table_format,
            batch=60,
            compact=False,
        )
        result = run_pipeline(PIPELINE, options)

    found = sorted(rows(folder_files(tmp_path / "lake/T")), key=lambda row: row["_queue_offset"])
    assert (result.ok, len(found)) == (True, len(bodies))
    for n, row in enumerate(found):
        assert (row["n"], row["large"], row["at"]) == (n, 2**64 - 1 - n, NOON)
        assert (row["took"], row["steps"]) == (-n, [n * 1_000_000])
        assert (row["opens"], row["day"]) == (f"00:{n % 60:02}:00.000000", date(2026, 11, 24))
        assert row["within"]["took"] == n * 1_000_000
        assert row["warm"] == (True if 40 <= n < 80 else None)
    free = {key: value["number_value"] for key, value in found[-1]["free"]["fields"]}
    assert free == {"a": 1.5}
    # A message without fields has no column in any table.
    assert [row["_rescued"] for row in found] == [None] * 80 + ['{"nothing":{}}']
    apart = rows(folder_files(tmp_path / "lake/T.quarantine"))
    assert {row["body"]: row["error"] for row in apart} == bad


def test_a_stream_of_ones_own_reads_protobuf(
    spark: Any, fake: FakeRegistry, tmp_path: Path
) -> None:
    bodies = [*bodies_of(1, FIRST, 0), *bodies_of(2, SECOND, 40, warm=True)]
    broken = bodies[0][:-1]
    queues = {Q0: [make_record(i, body, queue_id=0) for i, body in enumerate([*bodies, broken])]}
    with FakeCluster(queues) as cluster:
        given = {"namesrvAddr": cluster.address, "topic": "T", "startingOffsets": "earliest"}
        source = spark.readStream.format("rocketmq").options(**given).load()
        read = source.select(from_registry("body", fake.url, "T-value").alias("v")).select("v.*")
        query = (
            read.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    found = rows(folder_files(tmp_path / "out"))
    sound = sorted((row for row in found if row["_error"] is None), key=lambda row: row["n"])
    assert [row["n"] for row in sound] == list(range(80))
    assert [row["_error"] for row in found if row["_error"]] == [BROKEN]
    for row in sound:
        assert (row["large"], str(row["at"])[:19]) == (2**64 - 1 - row["n"], "2026-11-24 12:00:00")
        assert (row["took"], row["day"]) == (-row["n"], date(2026, 11, 24))
        assert row["within"] == {
            "took": row["n"] * 1_000_000,
            "steps": [],
            "opens": "23:00:00.000000",
            "day": None,
        }
    assert {row["_rescued"] for row in sound[40:]} == {'{"warm":true}'}
