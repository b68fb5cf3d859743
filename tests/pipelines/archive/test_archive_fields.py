"""Fields with columns of other names, columns without values, topics whose tables have other names."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.pipelines.archive.test_archive_columns import Said, Topics, cluster, options, run, table
from tests.pipelines.fake_registry import fake_registry
from tests.pipelines.rows.test_decoder import messages
from tests.pipelines.rows.test_registry_rows import avro

from roquette.errors import ConfigError
from roquette_spark.pipelines.archive.options import check_options, routed
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.kit.frame import load_options
from roquette_spark.pipelines.kit.message_rows import RowForm
from roquette_spark.pipelines.rows import tasks
from roquette_spark.pipelines.rows.decoder import Decoder, struct_of
from roquette_spark.pipelines.rows.json_rows import JsonReader
from roquette_spark.pipelines.rows.registry_rows import PREFIX
from roquette_spark.pipelines.rows.tasks import body_reader

__all__ = ["cluster", "options"]

SECRET = "555-0199"


def asked(**more: Any) -> ArchiveOptions:
    return ArchiveOptions(namesrv="127.0.0.1:1", topics=("t",), to="/lake", **more)


def columns(tmp_path: Path, topic: str, *names: str) -> list[tuple[Any, ...]]:
    rows = table(tmp_path, topic).to_pyarrow_table().sort_by("_queue_offset").to_pylist()
    return [tuple(row[name] for name in names) for row in rows]


def shown(folder: Path) -> str:
    """All that files of a folder have: values of all columns, texts of logs."""
    texts = []
    for file in folder.rglob("*"):
        if file.suffix == ".parquet":
            texts.append(str(pq.read_table(file).to_pylist()))
        elif file.is_file():
            texts.append(file.read_bytes().decode(errors="replace"))
    return "\n".join(texts)


@pytest.mark.parametrize("schema", ["", '{"type":"struct","fields":[%s,%s]}'])
def test_a_field_has_a_column_of_another_name(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path, schema: str
) -> None:
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("n", "dt")]
    given = schema and schema % tuple(map(json.dumps, fields))
    cluster.fill("t-a", [{"n": 1, "dt": 7}, {"n": 2, "dt": 8}])

    found = run(options, schema=given, rename=("dt=day_number",)).summary["topics"]["t-a"]

    assert columns(tmp_path, "t-a", "n", "day_number", "_rescued") == [(1, 7, None), (2, 8, None)]
    assert (found["rescued"], found["quarantined"], found["missing"]) == (0, 0, 0)


def test_a_name_that_no_column_can_have_evolves_under_another_one(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    names = ("host name=host", "dt=day_number")
    cluster.fill("t-a", [{"n": 1, "host name": "a"}])
    cluster.fill("t-b", [{"n": 1, "dt": 5}])
    said = Said()
    run(options, said, rename=names)
    cluster.fill("t-a", [{"n": 2, "dt": 5}, {"n": 3, "host name": {"x": 1}, "dt": 2**40}])
    run(options, rename=names)

    assert columns(tmp_path, "t-a", "n", "host", "day_number", "_rescued") == [
        (1, "a", None, None),
        (2, None, 5, None),
        (3, '{"x":1}', 2**40, None),
    ]
    assert [line for line in said.lines if "--rename" in line] == [
        "warning: topic t-a has no column for --rename dt=day_number: it holds when messages bring such a field",
        "warning: topic t-b has no column for --rename host name=host: it holds when messages bring such a field",
    ]


def test_a_field_that_is_called_as_the_column_is_rescued(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.fill("t-a", [{"b": "own", "a": 1}, {"a": 2}, {"B": "other case", "a": 3}])
    run(options, rename=("a=b",))
    cluster.fill("t-a", [{"b": "later", "a": "odd"}])
    run(options, rename=("a=b",))

    assert columns(tmp_path, "t-a", "b", "_rescued") == [
        (1, '{"b":"own"}'),
        (2, None),
        (3, '{"B":"other case"}'),
        (None, '{"b":"later","a":"odd"}'),
    ]


def test_two_fields_may_change_names() -> None:
    form = RowForm(
        "json", json.dumps(struct_of({"b": "long", "a": "string"})), renames={"a": "b", "b": "a"}
    )
    found = Decoder(form, body_reader(form)).decode(messages(b'{"a":1,"b":"x"}')).good
    assert found.select(["a", "b"]).to_pylist() == [{"a": "x", "b": 1}]


def test_a_masked_value_is_nowhere(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"rename": ("phone=tel",), "mask": ("TEL", "card")}
    cluster.fill("t-a", [{"n": 1, "phone": SECRET, "card": 7}])
    run(options, **given)
    cluster.fill("t-a", [{"n": "odd", "phone": {"of": SECRET}, "card": {SECRET: SECRET}}])
    cluster.fill("t-a", [{"n": 3, "Tel": SECRET, "tel": [SECRET], "CARD": SECRET, "new": 1}])
    cluster.fill_raw("t-a", [b'{"phone":"%s"' % SECRET.encode(), b'"%s"' % SECRET.encode()])
    place = JsonReader.place

    def broken(reader: JsonReader, value: dict[str, Any]) -> Any:
        if value["n"] == 6:
            raise ValueError(f"cannot read\n{value}")
        return place(reader, value)

    monkeypatch.setattr(JsonReader, "place", broken)
    cluster.fill("t-a", [{"n": 6, "phone": SECRET, "x": 1}])

    found = run(options, **given).summary["topics"]["t-a"]

    assert columns(tmp_path, "t-a", "n", "tel", "card", "new", "_rescued") == [
        (1, None, None, None, None),
        (None, None, None, None, '{"n":"odd"}'),
        (3, None, None, 1, None),
    ]
    bad = table(tmp_path, "t-a.quarantine").to_pyarrow_table().to_pylist()
    assert sorted((row["error"], row["body"]) for row in bad) == [
        ("the body cannot be read (ValueError)", None),
        ("the body is malformed JSON", None),
        ("the body is no JSON object", None),
    ]
    assert found["missing"] == 0 and found["quarantined"] == 3
    assert SECRET not in shown(tmp_path / "lake")
    monkeypatch.setattr(tasks._ChangedFields, "_shown", lambda _, text: text)
    cluster.fill("t-a", [{"n": 7, "Tel": SECRET}])
    run(options, **given)
    assert SECRET in shown(tmp_path / "lake"), "the look finds what is there"


def test_a_batch_that_is_set_aside_shows_no_body(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.fill("t-a", [{"n": 1, "phone": SECRET}])
    run(options, mask=("phone",), set_aside=0)
    assert table(tmp_path, "t-a.quarantine").to_pyarrow_table()["body"].to_pylist() == [None]
    assert SECRET not in shown(tmp_path / "lake")


@pytest.mark.parametrize("kind", ["connect", "registry", "avro"])
def test_every_format_has_them(tmp_path: Path, kind: str) -> None:
    fields = [{"name": "phone", "type": "string"}, {"name": "n", "type": "long"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    value = {"phone": SECRET, "n": 4}
    with fake_registry() as fake:
        fake.register("t-value", 1, schema)
        body = avro(schema, 1, value)
        if kind == "avro":
            body = body[PREFIX:]
        elif kind == "connect":
            parts = [{"field": "phone", "type": "string"}, {"field": "n", "type": "int64"}]
            whole = {"schema": {"type": "struct", "fields": parts}, "payload": value}
            body = json.dumps(whole, separators=(",", ":")).encode()
        form = RowForm(
            kind,
            json.dumps(struct_of({"tel": "string", "count": "long"})),
            json.dumps(schema) if kind == "avro" else "",
            renames={"phone": "tel", "n": "count"},
            masked=("tel",),
        )
        reader = body_reader(form, fake.url)
        assert reader is not None
        found = Decoder(form, reader).decode(messages(body)).good
    assert found.select(["tel", "count"]).to_pylist() == [{"tel": None, "count": 4}]
    assert SECRET not in json.dumps(reader.news)
    if kind == "connect":
        assert reader.news == struct_of({"count": "long"})


def test_a_table_keeps_its_names_and_masks(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.fill("t-a", [{"n": 1, "phone": SECRET}])
    run(options, rename=("n=count",), mask=("phone",))
    begun = "--rename n=count, --mask phone: give the same, or another --to"
    for other in ({}, {"rename": ("n=count",)}, {"rename": ("n=c",), "mask": ("phone",)}):
        with pytest.raises(ConfigError, match=begun):
            run(options, **other)  # type: ignore[arg-type]
    cluster.fill("t-a", [{"n": 2, "phone": SECRET}])
    run(options, rename=("n=count",), mask=("PHONE",))
    assert columns(tmp_path, "t-a", "count", "phone") == [(1, None), (2, None)]
    plain = RowForm("json", "{}").settings()
    assert "renames" not in plain and "masked" not in plain, "as earlier versions have them"


def test_a_mask_of_no_field_is_a_mistake(cluster: Topics, options: ArchiveOptions) -> None:
    cluster.fill("t-a", [{"n": 1, "phone": SECRET}])
    with pytest.raises(ConfigError, match="--mask fone: no topic of the stream has a column"):
        run(options, mask=("fone",))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rename": ("a",)}, "--rename 'a' is not of the form"),
        ({"rename": ("a=c", "b=C")}, "each column one field"),
        ({"rename": ("a=c", "a=d")}, "each field has one column"),
        ({"rename": ("a=dt",)}, "no column of a body can be called dt"),
        ({"rename": ("a=b c",)}, "no column of a body can be called b c"),
        ({"rename": ("a=b",), "day_of": "a"}, "for a give its column, b"),
        ({"mask": ("b",), "partition": "b"}, "folders or order can be of b, which has no values"),
        ({"mask": ("b",), "sort_by": ("B",)}, "order can be of B, which has no values"),
        (
            {"mask": ("b",), "partition": "bucket(4, b)", "table_format": "iceberg"},
            "folders or order can be of b, which has no values",
        ),
        ({"mask": ("b",), "keep_body": True}, "--mask goes neither with --keep-body"),
        ({"mask": ("b",), "from_quarantine": True}, "nor with --from-quarantine"),
        ({"mask": ("b",), "format": "raw"}, "--format raw has no columns"),
        ({"route": ("a=$",)}, "is not REGEX=NAME"),
        ({"route": ("a.*",)}, "is not REGEX=NAME"),
        ({"route": ("a=b/c",)}, "is not REGEX=NAME"),
        ({"route": ("a(=b",)}, "cannot be used: missing )"),
        ({"route": ("(a).*=$2",)}, "cannot be used: invalid group reference 2"),
    ],
)
def test_what_cannot_be_right_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_options(asked(**given))
    assert words in str(error.value)


def test_defaults_of_days_are_no_fields() -> None:
    check_options(asked(rename=("day=d", "store_timestamp=at"), mask=("hour",)))


def test_a_schema_with_both_names_is_refused(cluster: Topics, options: ArchiveOptions) -> None:
    cluster.fill("t-a", [{"a": 1}])
    schema = json.dumps(struct_of({"a": "long", "b": "long"}))
    with pytest.raises(ConfigError, match="the body's column b has the name of another column"):
        run(options, schema=schema, rename=("a=b",))


def test_a_route_names_the_folder() -> None:
    routes = ("shop-(.*)-v[0-9]{1,2}=$1", "%DLQ%(.*)=dead-$1", ".*=rest")
    names = ("shop-orders-v12", "shop-orders", "%DLQ%g")
    assert [routed(routes, name) for name in names] == ["orders", "rest", "dead-g"]
    assert routed((), "%DLQ%g") == "~DLQ~g"
    with pytest.raises(ConfigError, match="leaves topic t without a name"):
        routed(("t(.*)=$1",), "t")
    given = load_options(
        PIPELINE.options,
        {"namesrv": "n:1", "topics": ["t"], "to": "/lake", "route": ["a{1,2}=b"]},
        {},
        where="archive",
    )
    assert given.route == ("a{1,2}=b",), "no comma divides an expression"


def test_tables_are_where_routes_say(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.fill("t-orders", [{"n": 1}])
    cluster.fill("t-users", [{"n": 2}])
    run(options, route=("t-(.*)=$1",))
    cluster.fill("t-orders", [{"n": 3}])
    found = run(options, route=("t-(.*)=$1",))
    assert columns(tmp_path, "orders", "n") == [(1,), (3,)]
    assert columns(tmp_path, "users", "n") == [(2,)]
    assert found.ok and not (tmp_path / "lake" / "t-orders").exists()

    for other in ((), ("t-(.*)=new-$1",)):
        with pytest.raises(ConfigError, match="the table of t-orders was begun as orders below"):
            run(options, route=other)
    cluster.fill("t-late", [{"n": 4}])
    run(options, route=("t-late=l", "t-(.*)=$1"))
    assert columns(tmp_path, "l", "n") == [(4,)], "a route more, for topics that are new"


@pytest.mark.parametrize("pattern", ["", "t-.*"])
def test_two_topics_on_one_table_are_refused(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path, pattern: str
) -> None:
    cluster.fill("t-a", [{"n": 1}])
    cluster.fill("t-b", [{"n": 1}])
    topics = () if pattern else ("t-a", "t-b")
    with pytest.raises(ConfigError, match=r"topics t-a and t-b would have one table, .*/all"):
        run(options, topics=topics, topics_pattern=pattern, route=("t-.*=all",))
    assert not (tmp_path / "lake").exists()
