"""The source against real servers to which things happen: queues, brokers and data come and go."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.peers import Server, call, start_broker, start_namesrv
from tests.spark.places import Place
from tests.spark.test_servers import body_of, produce, source

from roquette import Client, Message
from roquette.errors import RouteNotFound
from roquette.message.message import MessageQueue
from roquette.store.format.log_mark import MARK_AT
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.headers import CreateTopicRequestHeader
from roquette_spark import (
    RocketMQOffsetCommitter,
    frozen_options,
    kafka_compatible_view,
    plain_message,
)
from roquette_spark.workers.reader import BlockingReader, ReaderConfig

pytestmark = pytest.mark.spark

SMALL_SEGMENTS = {"mappedFileSizeCommitLog": str(256 << 10)}


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    server = start_namesrv("roquette", tmp_path / "namesrv")
    yield server.address
    server.stop()


@contextlib.contextmanager
def broker(
    namesrv: str, folder: Path, name: str = "broker-a", settings: dict[str, str] | None = None
) -> Iterator[Server]:
    server = start_broker("roquette", folder / name, namesrv, name=name, settings=settings)
    try:
        yield server
    finally:
        server.stop()


def set_queues(broker: Server, topic: str, queues: int) -> None:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )
    answer = call(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext_dict(encode_ext(header)))  # type: ignore[arg-type]
    assert answer is not None
    assert answer[0]["code"] == 0


def until_route_has(namesrv: str, topic: str, queues: int) -> None:
    reader = BlockingReader(ReaderConfig(namesrv_addr=namesrv, group="test"))
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(RouteNotFound):
            if len(reader.queues(topic)) >= queues:
                break
        assert time.monotonic() < end, "the name server never heard of the queues"
        time.sleep(0.05)
    reader.close()


class Archive:
    """A stream into Parquet; `run` goes on from its checkpoint until it is caught up."""

    def __init__(self, spark: Any, namesrv: str, topic: str, folder: Path, **options: str) -> None:
        self.spark, self.folder = spark, folder
        self.where = namesrv, topic
        self.options = {"startingOffsets": "earliest", **options}

    def start(self, *, available_now: bool, **changed: str) -> Any:
        frame = (
            source(self.spark.readStream, *self.where, **{**self.options, **changed})
            .schema("broker_name string, queue_id int, queue_offset long, body string")
            .load()
        )
        writer = (
            frame.writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
        )
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **changed: str) -> Any:
        query = self.start(available_now=True, **changed)
        query.awaitTermination()
        return query

    def rows(self) -> list[tuple[str, int, int, str]]:
        columns = ("broker_name", "queue_id", "queue_offset", "body")
        found = self.spark.read.parquet(str(self.folder / "out")).select(*columns).collect()
        return sorted(map(tuple, found))

    def bodies(self) -> list[str]:
        return sorted(row[3] for row in self.rows())


def bodies_of(numbers: range) -> list[str]:
    return sorted(body_of(number) for number in numbers)


def committed(namesrv: str, topic: str, group: str) -> dict[MessageQueue, int | None]:
    reader = BlockingReader(ReaderConfig(namesrv_addr=namesrv, group=group))
    try:
        return {queue: reader.committed_offset(queue) for queue in reader.queues(topic)}
    finally:
        reader.close()


def check_group(spark: Any, namesrv: str, topic: str, folder: Path) -> None:
    """The listener mirrors the last batch of an AvailableNow run; a table goes on from there."""
    sent = produce(namesrv, topic, range(500))
    group = f"{topic}-group"
    listener = RocketMQOffsetCommitter(namesrvAddr=namesrv, group=group)
    spark.streams.addListener(listener)
    try:
        Archive(spark, namesrv, topic, folder, maxOffsetsPerTrigger="200").run()
        ends: dict[int, int] = {}
        for queue_id, offset in sent:
            ends[queue_id] = max(ends.get(queue_id, 0), offset + 1)
        limit = time.monotonic() + 60
        while {q.queue_id: at for q, at in committed(namesrv, topic, group).items() if at} != ends:
            assert time.monotonic() < limit, (committed(namesrv, topic, group), ends)
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)

    later = produce(namesrv, topic, range(500, 520))
    rest = source(spark.read, namesrv, topic, startingOffsets="group", group=group).load().collect()
    assert sorted((row.queue_id, row.queue_offset) for row in rest) == sorted(later)


def check_filters(spark: Any, namesrv: str, topic: str) -> None:
    """The broker evaluates SQL92; offset ranges stay those of all messages."""

    async def send() -> None:
        async with Client(namesrv) as mq:
            for number in range(120):
                properties = {"n": str(number), "half": "even" if number % 2 == 0 else "odd"}
                await mq.send(Message(topic, b"%d" % number, properties=properties))

    asyncio.run(send())

    frame = source(spark.read, namesrv, topic, filterSql="n > 100 AND half = 'even'").load()

    assert sorted(int(row.body) for row in frame.collect()) == list(range(102, 120, 2))


def test_the_last_batch_is_committed_and_a_table_goes_on_from_there(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    check_group(spark, roquette.address, "committed", tmp_path)


def test_sql_is_evaluated_by_the_broker(spark: Any, roquette: Place) -> None:
    check_filters(spark, roquette.address, "filtered")


@pytest.mark.interop
def test_apaches_broker_keeps_group_offsets_alike(
    spark: Any, apache: Place, tmp_path: Path
) -> None:
    check_group(spark, apache.address, "committed", tmp_path)


@pytest.mark.interop
def test_apaches_broker_reads_by_pattern_time_and_queue(spark: Any, apache: Place) -> None:
    first = produce(apache.address, "pattern-one", range(40))
    time.sleep(0.01)
    between_ms = int(time.time() * 1000)
    time.sleep(0.01)
    second = produce(apache.address, "pattern-two", range(40))
    given = {"namesrvAddr": apache.address, "subscribePattern": "pattern-.*"}
    by_time = {
        "startingTimestamp": str(between_ms),
        "startingOffsetsByTimestampStrategy": "latest",
    }

    def rows_of(**options: str) -> Any:
        return spark.read.format("rocketmq").options(**options).load().collect()

    assert len(rows_of(**given)) == len(first) + len(second)
    found = rows_of(**given, **by_time)
    assert {row.topic for row in found} == {"pattern-two"}
    assert len(found) == 40
    one_queue = rows_of(namesrvAddr=apache.address, assign='{"pattern-two":{"broker-a":[1]}}')
    assert sorted(row.queue_offset for row in one_queue) == sorted(
        offset for queue_id, offset in second if queue_id == 1
    )


def test_an_expanded_topic_and_a_new_broker_are_read_from_their_start(
    spark: Any, namesrv: str, tmp_path: Path
) -> None:
    with broker(namesrv, tmp_path) as first:
        set_queues(first, "grows", 2)
        until_route_has(namesrv, "grows", 2)
        produce(namesrv, "grows", range(100))
        archive = Archive(spark, namesrv, "grows", tmp_path)
        archive.run()
        set_queues(first, "grows", 6)
        with broker(namesrv, tmp_path, "broker-b") as second:
            set_queues(second, "grows", 2)
            until_route_has(namesrv, "grows", 8)
            produce(namesrv, "grows", range(100, 400))
            archive.run()

        rows = archive.rows()

    assert archive.bodies() == bodies_of(range(400))
    assert {queue_id for name, queue_id, *_ in rows if name == "broker-a"} == set(range(6))
    assert {name for name, *_ in rows} == {"broker-a", "broker-b"}


def test_a_broker_without_data_is_no_obstacle(spark: Any, namesrv: str, tmp_path: Path) -> None:
    with broker(namesrv, tmp_path) as first, broker(namesrv, tmp_path, "broker-b") as second:
        set_queues(second, "empty-there", 2)
        set_queues(first, "empty-there", 2)
        until_route_has(namesrv, "empty-there", 4)
        reader = BlockingReader(ReaderConfig(namesrv_addr=namesrv, group="test"))
        queue = MessageQueue("empty-there", "broker-a", 0)

        async def send() -> None:
            async with Client(namesrv) as mq:
                for number in range(50):
                    await mq.send(Message("empty-there", body_of(number).encode()), queue=queue)

        asyncio.run(send())
        archive = Archive(spark, namesrv, "empty-there", tmp_path)
        archive.run()

        assert reader.max_offsets(reader.queues("empty-there"))[queue] == 50
        assert archive.bodies() == bodies_of(range(50))
        assert source(spark.read, namesrv, "empty-there").load().count() == 50
        reader.close()


def test_a_truncated_topic_is_told_or_read_from_what_is_left(
    spark: Any, namesrv: str, tmp_path: Path
) -> None:
    """Segments go while the broker is down, as retention would take them while a query is down."""
    archive = Archive(spark, namesrv, "cut", tmp_path, maxOffsetsPerTrigger="100")
    with broker(namesrv, tmp_path, settings=SMALL_SEGMENTS) as server:
        set_queues(server, "cut", 1)
        until_route_has(namesrv, "cut", 1)
        produce(namesrv, "cut", range(4000))
        query = archive.start(available_now=False)
        while not query.recentProgress:
            time.sleep(0.05)
        query.stop()
        had = len(archive.rows())
    assert 0 < had < 4000
    segments = sorted((tmp_path / "broker-a" / "s" / "commitlog").iterdir())
    segments = [path for path in segments if path.name.isdigit()]
    for path in segments[: len(segments) * 3 // 4]:
        path.unlink()
    with (tmp_path / "broker-a" / "s" / "checkpoint").open("r+b") as checkpoint:
        checkpoint.seek(MARK_AT)
        checkpoint.write(
            bytes(8)
        )  # no mark, as Apache's broker leaves it: with one the files are missed

    with broker(namesrv, tmp_path, settings=SMALL_SEGMENTS):
        until_route_has(namesrv, "cut", 1)
        reader = BlockingReader(ReaderConfig(namesrv_addr=namesrv, group="test"))
        oldest = reader.min_offset(MessageQueue("cut", "broker-a", 0))
        reader.close()
        assert had < oldest < 4000
        with pytest.raises(Exception, match="is gone, the oldest is") as caught:
            archive.run()
        line = plain_message(caught.value)
        archive.run(failOnDataLoss="false", maxOffsetsPerTrigger="100000")

        offsets = [row[2] for row in archive.rows()]

    assert line is not None
    assert line.startswith("rocketmq: cut broker-a queue 0: offset")
    assert offsets == [*range(had), *range(oldest, 4000)]


def test_a_broker_that_dies_within_a_batch_costs_nothing(
    spark: Any, namesrv: str, tmp_path: Path
) -> None:
    archive = Archive(spark, namesrv, "dies", tmp_path, maxOffsetsPerTrigger="300")
    archive.options |= {"pullBatchSize": "8", "rocketmq.pullsInFlight": "1"}
    numbers = range(1, 6001)
    with broker(namesrv, tmp_path, settings={"flushDiskType": "SYNC_FLUSH"}) as server:
        set_queues(server, "dies", 4)
        until_route_has(namesrv, "dies", 4)
        produce(namesrv, "dies", numbers)
        query = archive.start(available_now=False)
        while not query.recentProgress:
            time.sleep(0.02)
        server.process.kill()
        with pytest.raises(Exception, match="rocketmq: ") as caught:
            query.awaitTermination(180)
            raise AssertionError("the query did not notice")
        line = plain_message(caught.value)

    with broker(namesrv, tmp_path):
        until_route_has(namesrv, "dies", 4)
        archive.run(maxOffsetsPerTrigger="100000")

        assert archive.bodies() == bodies_of(numbers)
    assert line is not None
    assert "\n" not in line


def test_a_frozen_table_and_kafkas_names(spark: Any, roquette: Place) -> None:
    produce(roquette.address, "views", range(30))
    options = frozen_options({"namesrvAddr": roquette.address, "subscribe": "views"})
    produce(roquette.address, "views", range(30, 40))

    frame = kafka_compatible_view(spark.read.format("rocketmq").options(**options).load())

    rows = frame.collect()
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("broker_name", "string"),
    ]
    assert sorted(bytes(row.key).decode() for row in rows) == sorted(f"key-{n}" for n in range(30))


def test_what_a_newcomer_gets_wrong_is_one_line(spark: Any, roquette: Place) -> None:
    def line(**options: str) -> str:
        with pytest.raises(Exception) as caught:
            spark.read.format("rocketmq").options(**options).load().collect()
        assert "Traceback" not in str(caught.value)
        found = plain_message(caught.value)
        assert found is not None
        return found

    assert line(namesrvAddr=roquette.address, subscrib="x") == (
        "rocketmq: unknown option subscrib; did you mean subscribe?"
    )
    assert line(namesrvAddr="127.0.0.1:1", subscribe="x").startswith(
        "rocketmq: no name server answers (connect to 127.0.0.1:1 failed"
    )
    assert line(namesrvAddr=roquette.address, subscribe="nowhere").startswith(
        f"rocketmq: topic nowhere does not exist at {roquette.address}"
    )
    assert "accessKey is given without secretKey" in line(
        namesrvAddr=roquette.address, subscribe="x", accessKey="hunter2"
    )
