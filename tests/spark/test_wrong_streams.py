"""Wrong words of a stream reach people as they were said, with a schema and without one.

PySpark's runner makes an UnboundLocalError of whatever `streamReader()` raises, so that no hook but those of a reader may.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record, struct_of

from roquette.errors import RoquetteError
from roquette.message.message import MessageQueue
from roquette_spark import plain_message
from roquette_spark.commitlog.source import CommitLogDataSource
from roquette_spark.datasource import RocketmqDataSource
from roquette_spark.offsets.source import OffsetsDataSource

WRONG = [
    ({"subscrib": "T"}, "rocketmq: unknown option subscrib; did you mean subscribe?"),
    ({"subscribe": ""}, "rocketmq: option subscribe is required"),
    ({"subscribePattern": "T.*"}, "rocketmq: options subscribe and subscribePattern exclude"),
    ({"namesrvAddr": "here"}, "rocketmq: option namesrvAddr must be host:port"),
    ({"startingOffsets": "never"}, "rocketmq: option startingOffsets must be earliest, latest"),
    ({"startingOffsets": "group"}, "rocketmq: startingOffsets=group needs option group"),
    ({"endingOffsets": "latest"}, "rocketmq: endingOffsets and endingTimestamp are for tables"),
    ({"maxOffsetsPerTrigger": "0"}, "rocketmq: option maxOffsetsPerTrigger must be"),
    ({"tags": "A", "filterSql": "a = 1"}, "rocketmq: options tags and filterSql exclude"),
    ({"accessKey": "ak"}, "rocketmq: option accessKey is given without"),
    ({"tls.ca": "/nowhere/ca.pem"}, "rocketmq: "),
    ({"namespace": "n"}, "rocketmq: option namespace is not supported yet"),
]
SCHEMA = "body string, queue_offset long"
HOOKS: list[Callable[[Any], object]] = [
    lambda reader: reader.initialOffset(),
    lambda reader: reader.latestOffset({}, ReadAllAvailable()),
    lambda reader: reader.getDefaultReadLimit(),
    lambda reader: reader.prepareForTriggerAvailableNow(),
    lambda reader: reader.partitions({}, {}),
    lambda reader: reader.read(None),
    lambda reader: reader.commit({}),
]


def lines_of(reader: Any) -> set[str]:
    """What every hook says: after a restart Spark does not begin with the first offset."""
    found = set()
    for hook in HOOKS:
        with pytest.raises(RoquetteError) as caught:
            hook(reader)
        found.add(str(caught.value))
    reader.stop()
    return found


@pytest.mark.parametrize(("words", "line"), WRONG, ids=[next(iter(words)) for words, _ in WRONG])
def test_a_wrong_option_is_said_by_each_hook(words: dict[str, str], line: str) -> None:
    given = {"namesrvAddr": "127.0.0.1:1", "subscribe": "T"} | words

    (found,) = lines_of(RocketmqDataSource(given).streamReader(struct_of("body")))

    assert found.startswith(line)
    assert "\n" not in found


def test_a_column_that_is_not_there() -> None:
    given = {"namesrvAddr": "127.0.0.1:1", "subscribe": "T"}

    (found,) = lines_of(RocketmqDataSource(given).streamReader(struct_of(bodi="string")))

    assert found.startswith("rocketmq: unknown column bodi")


def test_formats_that_have_no_stream() -> None:
    for source in OffsetsDataSource({}), CommitLogDataSource({}):
        (found,) = lines_of(source.streamReader(struct_of("topic")))
        assert found.startswith(f"{source.name()}: there is no stream")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({MessageQueue("T", "broker-a", 0): [make_record(0, b"x")]}) as cluster:
        yield cluster


@pytest.mark.spark
def test_a_session_shows_the_words(spark: Any, cluster: FakeCluster, tmp_path: Path) -> None:
    good = {"namesrvAddr": cluster.address, "subscribe": "T"}
    at_once, again = {"availableNow": True}, {"processingTime": "0 seconds"}
    cases = [
        ({"tagz": "A"}, SCHEMA, at_once, "unknown option tagz; did you mean tags?"),
        ({"batchRows": "0"}, SCHEMA, again, "option batchRows must be "),
        ({"subscribe": "t"}, SCHEMA, at_once, "topic t does not exist at "),
        ({}, "bodi string", at_once, "unknown column bodi"),
        ({"endingTimestamp": "1"}, "", again, "endingOffsets and endingTimestamp are for tables"),
    ]
    for number, (words, schema, trigger, line) in enumerate(cases):
        reader = spark.readStream.format("rocketmq").options(**good | words)
        frame = (reader.schema(schema) if schema else reader).load()
        ends_with(frame.writeStream.format("noop").trigger(**trigger), tmp_path / str(number), line)
    sink = spark.readStream.format("rocketmq").options(**good, startingOffsets="earliest")
    writer = sink.schema("body string").load().writeStream.format("rocketmq")
    writer = writer.options(namesrvAddr=cluster.address, topc="T").trigger(availableNow=True)
    ends_with(writer, tmp_path / "sink", "unknown option topc")


def ends_with(writer: Any, checkpoint: Path, line: str) -> None:
    """A stream ends with these words. One at a time: each starts a Python of its own, for which Spark waits ten seconds."""
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    with pytest.raises(Exception) as caught:
        query.awaitTermination()
    assert (plain_message(caught.value) or str(caught.value)).startswith(f"rocketmq: {line}")
