"""An archive in tables of Iceberg, read by pyiceberg: as in Delta's, each message once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.test_archive import BAD_BODIES, Q0, Q1, records, run
from tests.pipelines.tables import places
from tests.spark.records import make_record

from roquette.errors import ConfigError
from roquette_spark.pipelines.archive.pipeline import ArchiveOptions

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import load_catalog

pytestmark = pytest.mark.spark


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({Q0: records(range(300)), Q1: records(range(300, 500), 1)}) as cluster:
        yield cluster


def peer(path: Path) -> Any:
    catalog = load_catalog("roquette", type="sql", uri=f"sqlite:///{path}/_roquette/catalog.db")
    return catalog.load_table(("roquette", path.name.replace(".", "_")))


def test_a_topic_becomes_tables_of_iceberg(
    spark: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.queues[Q1] += [
        make_record(200 + i, each, queue_id=1) for i, each in enumerate(BAD_BODIES)
    ]
    options = ArchiveOptions(
        namesrv=cluster.address,
        topics=("T",),
        to=str(tmp_path / "lake"),
        report=str(tmp_path / "report"),
        batch=150,
        table_format="iceberg",
        schema="n int, name string, at string",
        small_files=3,
    )

    result = run(options)

    found, apart = peer(tmp_path / "lake/T"), peer(tmp_path / "lake/T.quarantine")
    assert (result.ok, result.summary["quarantined"]) == (True, len(BAD_BODIES))
    summary = result.summary["topics"]["T"]
    assert (summary["rows"], summary["missing"], summary["twice"]) == (500, 0, 0)
    assert summary["files_joined"] > 2
    assert sorted(found.scan().to_arrow()["n"].to_pylist()) == list(range(500))
    errors = apart.scan().to_arrow()
    assert (
        dict(zip(errors["body"].to_pylist(), errors["error"].to_pylist(), strict=True))
        == BAD_BODIES
    )

    late = json.dumps({"n": 2**40, "name": "late", "more": {"a": 1}}).encode()
    cluster.queues[Q0] += [
        make_record(300, late, queue_id=0),
        *records(range(1000, 1050), start=301),
    ]
    commits = tmp_path / "lake/T/_roquette/checkpoint/commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):  # killed after the table had the batch
        (commits / name).unlink()
    assert run(options, keep_replaced_minutes=0).summary["new_rows"] == 51

    rows = peer(tmp_path / "lake/T").scan().to_arrow()
    columns = ("_broker_name", "_queue_id", "_queue_offset")
    plain = [
        dict(zip(("broker_name", "queue_id", "queue_offset"), row, strict=True))
        for row in zip(*(rows[name].to_pylist() for name in columns), strict=True)
    ]
    expected = [("broker-a", 0, i) for i in range(351)] + [("broker-a", 1, i) for i in range(200)]
    assert places(plain) == expected
    assert peer(tmp_path / "lake/T").scan(f"n = {2**40}").to_arrow()["more"].to_pylist() == [
        {"a": 1}
    ]
    assert str(rows["dt"][0]) == "2023-11-14"
    with pytest.raises(ConfigError, match="no table of ours and is not empty"):
        run(options, table_format="delta")
    with pytest.raises(ConfigError, match="--catalog is for --table-format iceberg"):
        run(options, table_format="delta", catalog="http://127.0.0.1:1")
