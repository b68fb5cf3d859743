"""Tables of Iceberg by what transforms make of a column: every file has the rows of its value, and readers skip the others."""

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg
import pytest
from pyiceberg.catalog import load_catalog
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.local_streams import QUEUE, LocalStream, fill, small_batches
from tests.pipelines.archive.test_archive_partition import column
from tests.pipelines.archive.test_archive_pattern import run
from tests.spark.records import make_record

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive import pipeline
from roquette_spark.pipelines.archive import topic as topic_module
from roquette_spark.pipelines.archive.options import ArchiveOptions, table_root
from roquette_spark.pipelines.archive.topic import with_places
from roquette_spark.pipelines.kit.frame import load_options
from roquette_spark.pipelines.kit.message_rows import RowForm, Transform
from roquette_spark.pipelines.rows import hidden_parts
from roquette_spark.pipelines.tables.table_formats import open_found

pytestmark = pytest.mark.spark

KINDS = [("n", "integer"), ("word", "string"), ("price", "decimal(9,2)"), ("born", "date"), ("at", "timestamp"), ("local", "timestamp_ntz"), ("yes", "boolean"), ("part", "double")]  # fmt: skip
SCHEMA = json.dumps({"type": "struct", "fields": [column(*each) for each in KINDS]})
WORDS = [
    "a b",
    "ü/ö",
    "100%=x",
    "",
    None,
    "plain",
    "plan",
    "..",
    "😀😀😀",
    "01",
    "__HIVE_DEFAULT_PARTITION__",
]


def value(n: int) -> dict[str, Any]:
    """Of message n: before 0 and 1970, on hours' edges, and nothing."""
    if n % 13 == 12:
        return {"n": n, "word": None}
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * (n % 40) - 600)
    return {
        "n": n - 20,
        "word": WORDS[n % len(WORDS)],
        "price": round((n - 20) * 3.35, 2),
        "born": (date(1970, 1, 1) + timedelta(days=n % 5 - 2)).isoformat(),
        "at": moment.isoformat(),
        "local": moment.replace(tzinfo=None).isoformat(),
        "yes": True,
        "part": n / 2,
    }


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({}) as cluster:
        fill(cluster, map(value, range(60)))
        yield cluster


@pytest.fixture
def options(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ArchiveOptions:
    monkeypatch.setattr(pipeline, "start_ranges", LocalStream)
    return small_batches(cluster, tmp_path, table_format="iceberg", schema=SCHEMA)


def table(options: ArchiveOptions) -> Any:
    uri = f"sqlite:///{table_root(options, 't')}/_roquette/catalog.db"
    return load_catalog("roquette", type="sql", uri=uri).load_table("roquette.t")


def internal(each: Any) -> Any:
    """A value as Iceberg's transforms take it."""
    if isinstance(each, datetime):
        since = each.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return since // timedelta(microseconds=1)
    return (each - date(1970, 1, 1)).days if isinstance(each, date) else each


def check_files(options: ArchiveOptions) -> int:
    """Every live file has only rows of its value, by pyiceberg's own transform; returns how many values there are."""
    found = table(options)
    (field,) = found.spec().fields
    source = found.schema().find_field(field.source_id)
    make = field.transform.transform(source.field_type)
    seen = set()
    for task in found.scan().plan_files():
        path = Path(task.file.file_path.removeprefix("file://"))
        rows = pq.ParquetFile(path).read()
        assert field.name not in rows.column_names
        made = {make(internal(each)) for each in rows.column(source.name).to_pylist()}
        assert made == {task.file.partition[0]}, path
        seen |= made
    root = Path(table_root(options, "t"))
    named = {path for path in root.rglob("*.parquet") if path.parent.parent == root}
    live = {task.file.file_path.removeprefix("file://") for task in found.scan().plan_files()}
    assert {str(path) for path in named} == live, "nothing else is in its folders"
    return len(seen)


PARTITIONS = {
    "bucket(4, n)": ("n", -3),
    "bucket(4,word)": ("word", "plain"),
    "bucket(7, price)": ("price", Decimal("33.50")),
    "bucket(5, born)": ("born", "1970-01-02"),
    "bucket(8, at)": ("at", "1970-01-01T01:00:00+00:00"),
    "bucket(3, _queue_offset)": ("_queue_offset", 7),
    "truncate(10, n)": ("n", -3),
    "truncate(3, word)": ("word", "plain"),
    "day(born)": ("born", "1970-01-02"),
    "day(at)": ("at", "1969-12-31T14:30:00+00:00"),
    "hour(at)": ("at", "1969-12-31T14:30:00+00:00"),
    "hour(local)": ("local", "1969-12-31T14:30:00"),
    "day(_store_timestamp)": ("_store_timestamp", "2023-11-14T22:13:20.107000+00:00"),
}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_hidden_values_are_pyicebergs(partition: str) -> None:
    kinds = {
        "n": pa.int32(),
        "word": pa.string(),
        "price": pa.decimal128(9, 2),
        "born": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
    }
    made: list[dict[str, Any]] = []
    for one in map(value, range(60)):
        made.append(one | {name: None for name in kinds if name not in one})
        for name, read in (("born", date), ("at", datetime), ("local", datetime)):
            made[-1][name] = one.get(name) and read.fromisoformat(one[name])
        if one.get("price") is not None:
            made[-1]["price"] = Decimal(str(one["price"]))
    columns = {name: [row[name] for row in made] for name in kinds}
    columns |= {"_queue_offset": list(range(60)), "_store_timestamp": columns["at"]}
    kinds |= {"_queue_offset": pa.int64(), "_store_timestamp": kinds["at"]}
    rows = pa.table({name: pa.array(columns[name], kind) for name, kind in kinds.items()})
    wanted = Transform.read(partition)
    assert wanted is not None
    hidden = hidden_parts.HiddenPart(wanted, rows.schema)

    schema = hidden_parts.schema_of_arrow(rows.schema)
    source = schema.find_field(wanted.column).field_type
    how = hidden_parts.iceberg_transform(wanted)
    make = how.transform(source)
    texts = [
        None if each is None else how.to_human_string(source, make(internal(each)))
        for each in rows.column(wanted.column).to_pylist()
    ]
    assert hidden.added(rows).column(wanted.name).to_pylist() == texts
    assert len(set(texts)) > 1


@pytest.mark.parametrize("partition", PARTITIONS)
def test_each_file_has_the_rows_of_its_value_after_compaction_and_evolution(
    options: ArchiveOptions, cluster: FakeCluster, partition: str
) -> None:
    name, looked_for = PARTITIONS[partition]
    options = replace(options, partition=partition, sort_by=("part",), small_files=2)
    summary = run(options).summary["topics"]["t"]

    assert (summary["rows"], summary["missing"], summary["twice"]) == (60, 0, 0)
    values = check_files(options)
    assert (values > 1) == (name != "_store_timestamp")

    with open_found(table_root(options, "t")).files.open_new(
        f"{table(options).spec().fields[0].name}=1/batch-0000000900-x-00000.parquet"
    ) as stream:
        stream.write(b"of a killed batch")
    fill(cluster, map(value, range(60, 90)), n=1 << 40, late=1)
    summary = run(options).summary["topics"]["t"]
    assert (summary["rows"], summary["missing"], summary["twice"]) == (90, 0, 0)
    check_files(options)
    rows = table(options).scan().to_arrow()
    assert sorted(rows["_queue_offset"].to_pylist()) == list(range(90))
    assert rows["late"].null_count == 60

    wanted = f"{name} = {looked_for if isinstance(looked_for, Decimal) else repr(looked_for)}"
    if partition == "truncate(10, n)" and pyiceberg.__version__ < "0.12":
        with pytest.raises(struct.error):  # its own fault, also without a transform
            list(table(options).scan(wanted).plan_files())
        return
    scan = table(options).scan(wanted)
    read, all_files = list(scan.plan_files()), list(table(options).scan().plan_files())
    assert scan.to_arrow().num_rows == _count(rows[name].to_pylist(), looked_for) > 0
    if values > 1:
        assert len(read) < len(all_files), "readers skip the other values' files"


def _count(values: list[Any], looked_for: Any) -> int:
    def plain(each: Any) -> Any:
        return each.isoformat() if isinstance(each, date) else each

    return sum(plain(each) == looked_for for each in values)


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ("bucket(4, part)", "bucket.*has no values for folders; .* and bucket of the columns n, word,"),
        ("truncate(4, born)", "has no values for folders"),
        ("hour(born)", "has no values for folders; .* hour of the columns at, local, _born_timestamp"),
        ("day(nobody)", "this column is not there"),
        ("bucket(1001, n)", "at most 1,000"),
        ("truncate(50, word)", "at most 46"),
    ],
)  # fmt: skip
def test_what_has_no_values_is_said_before_anything_is_made(
    options: ArchiveOptions, partition: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        run(options, partition=partition)
    assert not list(Path(options.to).rglob("*.parquet"))


def test_the_words_of_a_transform_are_checked_and_delta_has_none(options: ArchiveOptions) -> None:
    def parsed(text: str) -> str:
        given = {"partition": text, "to": "x"}
        return load_options(ArchiveOptions, given, {}, where="archive").partition

    assert parsed("bucket(16,n)") == parsed("bucket(16, n)") == "bucket(16, n)"
    for wrong in ("bucket(n)", "bucket(0, n)", "day(3, n)", "month(n)", "truncate(3 n)"):
        with pytest.raises(
            ConfigError, match=r"must be day, hour, a column, or of a column bucket"
        ):
            parsed(wrong)
    with pytest.raises(ConfigError, match=r"truncate\(3, word\) is for --table-format iceberg"):
        run(options, partition="truncate(3, word)", table_format="delta")


def test_no_column_takes_the_name_of_the_values(
    options: ArchiveOptions, cluster: FakeCluster
) -> None:
    fill(cluster, map(value, range(60, 61)), AT_hour=7)
    for partition, rescued in (("hour(at)", {"AT_hour": 1}), ("day(at)", {})):
        found = replace(options, partition=partition, to=f"{options.to}-{partition[:3]}")
        summary = run(found).summary["topics"]["t"]
        assert (summary["rows"], summary["rescued_fields"]) == (61, rescued)
        assert ("AT_hour" in table(found).schema().column_names) == (not rescued)
        assert run(found).summary["new_rows"] == 0


def test_a_time_whose_day_has_no_name_costs_its_message(
    options: ArchiveOptions, cluster: FakeCluster, tmp_path: Path
) -> None:
    kind = {"type": "long", "logicalType": "timestamp-micros"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": kind}]}
    (tmp_path / "at.avsc").write_text(json.dumps(schema))
    there: list[bytes] = []
    for micros in (0, -1, 1 << 60, 7_200_000_000):
        stream = io.BytesIO()
        zigzag = micros << 1 ^ micros >> 63
        while zigzag > 127:
            stream.write(bytes([zigzag & 127 | 128]))
            zigzag >>= 7
        stream.write(bytes([zigzag]))
        there.append(make_record(len(there), stream.getvalue(), queue_id=0))
    cluster.queues[QUEUE] = there
    for partition in ("hour(at)", "day(at)", "bucket(4, at)"):
        to = f"{options.to}-{partition[:3]}"
        found = replace(options, to=to, format="avro", schema=str(tmp_path / "at.avsc"))
        summary = run(found, partition=partition).summary["topics"]["t"]
        assert (summary["rows"], summary["quarantined"], summary["missing"]) == (3, 1, 0)
        assert check_files(found) >= 2


def test_a_topic_of_a_pattern_without_the_column_has_its_table(
    options: ArchiveOptions, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = {"t": json.dumps(value(1)).encode(), "u": b'{"at": "words"}'}
    monkeypatch.setattr(
        topic_module, "read_sample", lambda spark, given, topic, states, rows: [bodies[topic]]
    )
    queue = MessageQueue("u", "broker-a", 0)
    cluster.queues[queue] = [make_record(0, b'{"at": "words"}', topic="u", queue_id=0)]
    more = replace(options, topics=(), topics_pattern="[tu]", schema="")
    summary = run(more, partition="truncate(3, word)").summary["topics"]
    assert (summary["t"]["rows"], summary["u"]["rows"]) == (60, 1)
    assert summary["u"]["lacks"] == ["--partition word"]
    there = open_found(f"{options.to}/u")._table  # type: ignore[attr-defined]
    assert [task.file.partition[0] for task in there.scan().plan_files()] == [None]
    check_files(options)

    text = json.dumps({"type": "struct", "fields": [column("at", "string"), column("n", "long")]})
    for partition, kinds in (
        ("hour(at)", {"at": "timestamp", "n": "long"}),
        ("bucket(4, n)", {"at": "string", "n": "long"}),
        ("day(_born_timestamp)", {"at": "string", "n": "long"}),
        ("truncate(3, more)", {"at": "string", "n": "long", "more": "string"}),
    ):
        form, _ = with_places(RowForm("json", text, partition=partition))
        found = {each["name"]: each["type"] for each in json.loads(form.body_schema)["fields"]}
        assert found == kinds
