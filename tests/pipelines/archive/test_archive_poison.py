"""No message stops a table: what cannot be read is in quarantine with its reason, a field without a place is rescued."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.pipelines.archive.test_archive_columns import Topics, cluster, options, run
from tests.pipelines.archive.test_archive_iceberg import peer
from tests.pipelines.rows.test_json_bodies import map_of, struct
from tests.pipelines.rows.test_registry_rows import avro

from roquette.errors import ConfigError
from roquette_spark.pipelines.archive.pipeline import ArchiveOptions
from roquette_spark.pipelines.archive.topic import TopicArchive
from roquette_spark.pipelines.kit.frame import PipelineError, load_options
from roquette_spark.pipelines.rows.json_rows import JsonReader
from roquette_spark.pipelines.tables import mending, streamed_table

__all__ = ["cluster", "options"]

TABLES = pytest.mark.parametrize("table_format", ["delta", "iceberg"])


def rows(lake: Path, topic: str, table_format: str) -> list[dict[str, Any]]:
    if table_format == "delta":
        found = DeltaTable(str(lake / topic)).to_pyarrow_table()
    else:
        found = peer(lake / topic).scan().to_arrow()
    ordered: list[dict[str, Any]] = found.sort_by("_queue_offset").to_pylist()
    return ordered


@TABLES
@pytest.mark.parametrize(
    ("first", "bodies", "wanted"),
    [
        (
            {"host": "a"},
            [{"host": "b", "host.name": "c"}, {"host.name": "d"}],
            [("a", None, None), ("b", "c", None), (None, "d", None)],
        ),
        (
            {"host": {"name": "a"}},
            [{"host": {"name": "b"}, "host.name": "c"}],
            [({"name": "a"}, None, None), ({"name": "b"}, None, '{"host.name":"c"}')],
        ),
        (
            {"host.name": "a"},
            [{"host": {"name": "b", "os": "c"}, "host.name": "d"}],
            [(None, "a", None), (None, "d", '{"host":{"name":"b","os":"c"}}')],
        ),
        ({"host": "a"}, [{"x": {"a{b}": 1, "c": 2}}], [("a", None, None), (None, None, '{"x":{"a{b}":1}}')]),
    ],
    ids=["flat", "path", "other path", "name"],
)  # fmt: skip
def test_names_with_dots_and_braces(
    cluster: Topics,
    options: ArchiveOptions,
    tmp_path: Path,
    table_format: str,
    first: dict[str, Any],
    bodies: list[dict[str, Any]],
    wanted: list[tuple[Any, ...]],
) -> None:
    cluster.fill("logs", [first])
    given = {"topics_pattern": "", "topics": ("logs",), "table_format": table_format}
    run(options, **given)
    cluster.fill("logs", bodies)

    result = run(options, **given)

    found = rows(tmp_path / "lake", "logs", table_format)
    assert [(r.get("host"), r.get("host.name"), r["_rescued"]) for r in found] == wanted
    assert (result.ok, result.summary["quarantined"]) == (True, 0)


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
RECORD = {"type": "record", "name": "R", "fields": [{"name": "sum", "type": MONEY}]}
WIDE = {"type": "record", "name": "R", "fields": [{"name": "sum", "type": {**MONEY, "precision": 10}}]}  # fmt: skip


@TABLES
def test_a_body_that_a_reader_fails_at_is_bad_by_itself(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path, table_format: str
) -> None:
    path = tmp_path / "money.avsc"
    path.write_text(json.dumps(RECORD))
    sums = [Decimal("1.50"), Decimal("123456.78"), Decimal("2.50")]
    cluster.fill_raw("money", [avro(WIDE, 1, {"sum": each})[5:] for each in sums])

    given = {"topics_pattern": "", "topics": ("money",), "table_format": table_format}
    result = run(options, format="avro", schema=str(path), **given)

    assert [r["sum"] for r in rows(tmp_path / "lake", "money", table_format)] == [sums[0], sums[2]]  # fmt: skip
    [(reason, count)] = result.summary["topics"]["money"]["reasons"].items()
    assert reason.startswith("the body cannot be read (ArrowInvalid: ") and count == 1


@TABLES
@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        ("decimal(10,2)", {"x": "NaN"}, None),
        ("decimal(10,2)", {"x": 1.005}, None),
        ("float", {"x": 1e300}, 1e300),
        ("decimal(4,2)", {"x": 12345.5}, Decimal("12345.50")),
        (map_of("long", "integer"), {"x": {"7": 1}}, [(7, 1)]),
        (map_of("long", "integer"), {"x": {"seven": 1}}, None),
    ],
    ids=["nan", "scale", "float", "digits", "map", "map of names"],
)
def test_a_value_that_its_column_cannot_hold(
    cluster: Topics,
    options: ArchiveOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table_format: str,
    kind: Any,
    body: dict[str, Any],
    value: Any,
) -> None:
    from roquette_spark.pipelines.archive import topic

    monkeypatch.setattr(topic, "schema_of_text", lambda text, pipeline: text)
    cluster.fill("numbers", [{"x": None, "y": 1}])
    given = {
        "topics_pattern": "",
        "topics": ("numbers",),
        "table_format": table_format,
        "schema": json.dumps(struct(x=kind, y="long")),
    }
    run(options, **given)
    cluster.fill("numbers", [{**body, "y": 2}])

    result = run(options, **given)

    _, found = rows(tmp_path / "lake", "numbers", table_format)
    rescued = None if value is not None else json.dumps(body).replace(" ", "")
    assert (found["x"], found["y"], found["_rescued"]) == (value, 2, rescued)
    assert (result.ok, result.summary["quarantined"]) == (True, 0)


ORDERS: dict[str, Any] = {"topics_pattern": "", "topics": ("orders",)}
BODIES = [b'{"n": 1}', b"{", b'{"n": 2}', b"[]", b'{"n": 3}']


def test_bad_messages_are_told_by_the_status(cluster: Topics, options: ArchiveOptions) -> None:
    cluster.fill("orders", [{"n": 0}])
    cluster.fill_raw("orders", BODIES)

    first = run(options, **ORDERS)
    second = run(options, **ORDERS)

    assert (first.ok, first.status, second.ok, second.status) == (True, 3, True, 0)
    assert "2 messages of this run went to the quarantine" in first.last_line
    orders = second.summary["topics"]["orders"]
    assert (orders["quarantined"], orders["quarantined_now"]) == (2, 0)


@pytest.mark.parametrize(
    ("limit", "stops"), [("1", True), ("2", False), ("30%", True), ("34%", False)]
)
def test_too_many_bad_messages_end_the_run_before_their_batch(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path, limit: str, stops: bool
) -> None:
    cluster.fill("orders", [{"n": 0}])
    cluster.fill_raw("orders", BODIES)
    given = {**ORDERS, "max_bad": limit}

    if stops:
        with pytest.raises(
            PipelineError,
            match=rf"2 of 6 messages of this run are bad, more than --max-bad {limit}",
        ):
            run(options, **given)
        assert DeltaTable(str(tmp_path / "lake/orders")).to_pyarrow_table().num_rows == 0
        result = run(options, **ORDERS)
    else:
        result = run(options, **given)
    assert (result.summary["rows"], result.summary["quarantined"]) == (4, 2)


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5", "%"])
def test_a_limit_is_a_number_or_a_share(wrong: str) -> None:
    with pytest.raises(ConfigError, match="max-bad"):
        load_options(
            ArchiveOptions, {"topics": ["t"], "to": "x", "max_bad": wrong}, {}, where="archive"
        )


@TABLES
def test_a_batch_may_be_set_aside(
    cluster: Topics, options: ArchiveOptions, table_format: str, tmp_path: Path
) -> None:
    cluster.fill("orders", [{"n": n} for n in range(4)])
    given = {**ORDERS, "table_format": table_format, "batch": 2}

    result = run(options, set_aside=1, **given)

    assert [row["n"] for row in rows(tmp_path / "lake", "orders", table_format)] == [0, 1]
    orders = result.summary["topics"]["orders"]
    assert orders["reasons"] == {"an operator has set its batch aside": 2}
    assert (orders["missing"], orders["twice"]) == (0, 0)

    result = run(options, from_quarantine=True, **given)
    assert [row["n"] for row in rows(tmp_path / "lake", "orders", table_format)] == [0, 1, 2, 3]
    assert (
        result.summary["quarantined"],
        result.summary["topics"]["orders"]["from_quarantine"],
    ) == (0, 2)


@TABLES
@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed between"])
def test_what_can_be_read_after_a_mend_leaves_the_quarantine(
    cluster: Topics,
    options: ArchiveOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table_format: str,
    killed: bool,
) -> None:
    cluster.fill("orders", [{"n": 0}])
    cluster.fill_raw("orders", BODIES)
    given = {**ORDERS, "table_format": table_format}
    with monkeypatch.context() as broken:
        # A version with a fault: it fails at a body that is fine.
        def read(self: JsonReader, bodies: Any) -> Any:
            if b'{"n": 2}' in bodies.to_pylist():
                raise TypeError("a fault")
            return plain(self, bodies)

        plain = JsonReader.read
        broken.setattr(JsonReader, "read", read)
        first = run(options, **given)
    reasons = first.summary["topics"]["orders"]["reasons"]
    assert reasons["the body cannot be read (TypeError: a fault)"] == 1

    if killed:
        with monkeypatch.context() as broken:

            def die(self: TopicArchive) -> None:
                raise PipelineError("killed")

            broken.setattr(TopicArchive, "leave_quarantine", lambda *given: None)
            broken.setattr(TopicArchive, "check", die)
            with pytest.raises(PipelineError, match="killed"):
                run(options, from_quarantine=True, **given)
        result = run(options, **given)  # finishes it without being asked
    else:
        result = run(options, from_quarantine=True, **given)

    orders = result.summary["topics"]["orders"]
    assert (orders["rows"], orders["quarantined"], orders["from_quarantine"]) == (4, 2, 1)
    assert (orders["missing"], orders["twice"], result.ok) == (0, 0, True)
    assert sorted(row["n"] for row in rows(tmp_path / "lake", "orders", table_format)) == [
        0,
        1,
        2,
        3,
    ]
    again = run(options, from_quarantine=True, **given).summary["topics"]["orders"]
    assert (again["rows"], again["quarantined"], again["from_quarantine"]) == (4, 2, 0)


@TABLES
def test_a_quarantine_is_read_again_in_portions(
    cluster: Topics,
    options: ArchiveOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table_format: str,
) -> None:
    """The places of one portion are held, not those of all messages."""
    cluster.fill("orders", [{"n": n} for n in range(6)])
    given = {**ORDERS, "table_format": table_format, "batch": 2}
    with monkeypatch.context() as broken:

        def read(self: JsonReader, bodies: Any) -> Any:
            if any(json.loads(each)["n"] % 2 for each in bodies.to_pylist()):
                raise TypeError("a fault")
            return plain(self, bodies)

        plain = JsonReader.read
        broken.setattr(JsonReader, "read", read)
        assert run(options, **given).summary["quarantined"] == 3
    held = []

    def places_in(*given: Any) -> Any:
        held.append(mending.places_in(*given))
        return held[-1]

    monkeypatch.setattr(mending, "_PORTION", 1)
    monkeypatch.setattr(streamed_table, "places_in", places_in)

    orders = run(options, from_quarantine=True, **given).summary["topics"]["orders"]

    assert [len(each) for each in held] == [1, 1, 1]
    assert (orders["rows"], orders["quarantined"], orders["from_quarantine"]) == (6, 0, 3)
    assert (orders["missing"], orders["twice"]) == (0, 0)
    found = sorted(row["n"] for row in rows(tmp_path / "lake", "orders", table_format))
    assert found == list(range(6))


@pytest.mark.parametrize("in_table", [False, True], ids=["not begun", "committed"])
def test_an_empty_file_of_offsets_does_not_stop_a_stream(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path, in_table: bool
) -> None:
    cluster.fill("orders", [{"n": n} for n in range(4)])
    given = {**ORDERS, "batch": 2}
    run(options, **given)
    offsets = tmp_path / "lake/orders/_roquette/checkpoint/offsets"
    commits = offsets.parent / "commits"
    torn = offsets / ("1" if in_table else "2")
    torn.write_bytes(b"")
    if in_table:
        (commits / "1").unlink()
    cluster.fill("orders", [{"n": 4}])

    if in_table:
        with pytest.raises(PipelineError, match="offsets/1 is empty, and the table has that batch"):
            run(options, **given)
    else:
        result = run(options, **given).summary["topics"]["orders"]
        assert (result["rows"], result["missing"], result["twice"]) == (5, 0, 0)
