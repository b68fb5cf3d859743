"""Topics whose bodies name their schema in a registry become tables; `from_registry` in a job of one's own."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.fake_registry import FakeRegistry, fake_registry
from tests.pipelines.rows.test_registry_rows import avro
from tests.pipelines.tables import folder_files, log_files, rows
from tests.spark.records import make_record

from roquette.errors import ConfigError, RoquetteError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.from_registry import from_registry
from roquette_spark.pipelines.kit.running import run_pipeline

pytestmark = pytest.mark.spark

Q0 = MessageQueue("T", "broker-a", 0)
FIRST = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "n", "type": "int"}, {"name": "place", "type": "string"}],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "place", "type": "string"},
        {"name": "warm", "type": ["null", "boolean"], "default": None},
    ],
}
BODIES = [
    *(avro(FIRST, 1, {"n": n, "place": "a"}) for n in range(60)),
    *(avro(SECOND, 2, {"n": 2**40 + n, "place": "b", "warm": True}) for n in range(60)),
    b"\0\0\0\0\x63x",
]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as found:
        found.register("T-value", 1, FIRST)
        yield found


@pytest.fixture
def options(fake: FakeRegistry, tmp_path: Path) -> Iterator[ArchiveOptions]:
    records = [make_record(i, body, queue_id=0) for i, body in enumerate(BODIES)]
    with FakeCluster({Q0: records}) as cluster:
        yield ArchiveOptions(
            namesrv=cluster.address,
            topics=("T",),
            to=str(tmp_path / "lake"),
            report=str(tmp_path / "report"),
            format="registry",
            registry=fake.url,
            batch=50,
            compact=False,
        )


def test_columns_come_from_the_registry_and_grow_with_its_schemas(
    spark: Any, fake: FakeRegistry, options: ArchiveOptions, tmp_path: Path
) -> None:
    # The newest schema when the table begins is the first one; the other's id comes with the messages.
    newer = dict(fake.answers)
    fake.register("T-value", 2, SECOND)
    fake.answers["/subjects/T-value/versions/latest"] = newer["/subjects/T-value/versions/latest"]

    result = run_pipeline(PIPELINE, options)

    found = sorted(rows(log_files(tmp_path / "lake/T")), key=lambda row: row["_queue_offset"])
    assert [row["n"] for row in found] == [*range(60), *(2**40 + n for n in range(60))]
    assert {row.get("warm") for row in found[60:]} == {True}
    assert {row.get("_rescued") for row in found} == {None}
    (bad,) = rows(folder_files(tmp_path / "lake/T.quarantine"))
    assert bad["error"] == "the registry has no schema 99"
    assert bad["body"] == BODIES[-1]
    assert result.ok


def test_a_registry_without_the_subject_or_with_a_user_in_its_address(
    spark: Any, options: ArchiveOptions
) -> None:
    from dataclasses import replace

    with pytest.raises(RoquetteError, match=r"has no subjects/T-key/versions/latest"):
        run_pipeline(PIPELINE, replace(options, registry_subject="{topic}-key"))
    for wrong in (
        {"registry": ""},
        {"format": "json"},
        {"registry": "http://u:p@r"},
        {"schema": "n int"},
    ):
        with pytest.raises(ConfigError, match="registry"):
            run_pipeline(PIPELINE, replace(options, **wrong))


def test_a_column_of_bodies_becomes_a_struct(spark: Any, fake: FakeRegistry) -> None:
    fake.register("T-value", 2, SECOND)
    fake.register("T-value", 1, FIRST)  # the newest again
    small = avro(SECOND, 2, {"n": 7, "place": "c", "warm": False})

    bodies = spark.createDataFrame([(body,) for body in [*BODIES, small]], "body binary")
    read = bodies.select(from_registry("body", fake.url, "T-value").alias("v")).select("v.*")

    found = Counter((row.n is None, row.place, row._error, row._rescued) for row in read.collect())
    # 2**40 is no int, which the column is: that value is rescued, beside what has no column.
    large = {(True, "b", None, f'{{"n":{2**40 + n},"warm":true}}'): 1 for n in range(60)}
    assert found == {
        (False, "a", None, None): 60,
        (False, "c", None, '{"warm":false}'): 1,
        **large,
        (True, None, "the registry has no schema 99", None): 1,
    }
    assert read.columns == ["n", "place", "_error", "_rescued"]
