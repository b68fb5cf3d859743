"""The doors Spark opens: what columns there are, and what is refused before anything is read."""

from collections.abc import Iterator

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record, struct_of

import pyspark_rocketmq
import roquette_spark as spark
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.datasource import RocketmqDataSource
from roquette_spark.source.batch_reader import RocketmqBatchReader
from roquette_spark.source.stream_reader import RocketmqStreamReader
from roquette_spark.values.schema import COLUMNS


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({MessageQueue("T", "a", 0): [make_record(0, "grün".encode())]}) as cluster:
        yield cluster


def data_source(cluster: FakeCluster, **options: str) -> RocketmqDataSource:
    return RocketmqDataSource({"namesrvAddr": cluster.address, "subscribe": "T"} | options)


def columns(cluster: FakeCluster, **options: str) -> dict[str, str]:
    text = data_source(cluster, **options).schema()
    return dict(part.replace("`", "").split(" ") for part in text.split(", "))


def test_spark_finds_the_source_by_its_module() -> None:
    assert pyspark_rocketmq.DefaultSource is RocketmqDataSource
    assert RocketmqDataSource.name() == "rocketmq"


def test_all_columns_by_default_and_fewer_where_options_say_so(cluster: FakeCluster) -> None:
    assert columns(cluster) == COLUMNS
    assert columns(cluster, bodyFormat="string") == COLUMNS | {"body": "string"}
    assert "properties" not in columns(cluster, includeHeaders="false")
    assert columns(cluster, columns="body, topic") == {"body": "binary", "topic": "string"}


def test_readers_of_both_kinds(cluster: FakeCluster) -> None:
    schema = struct_of(body="string")

    table = data_source(cluster).reader(schema)
    stream = data_source(cluster).streamReader(schema)

    assert isinstance(table, RocketmqBatchReader)
    assert isinstance(stream, RocketmqStreamReader)
    (partition,) = table.partitions()
    assert [batch.to_pylist() for batch in table.read(partition)] == [[{"body": "grün"}]]


def test_unknown_columns_and_types_are_refused(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match="column queue_offset is bigint, not int"):
        data_source(cluster).reader(struct_of(queue_offset="int"))


def test_what_people_import_from_the_room() -> None:
    for name in spark._PLACES:
        assert callable(getattr(spark, name))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        spark.nothing  # noqa: B018
