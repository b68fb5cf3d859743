"""The sink's hooks without Spark: plain classes, Arrow batches, brokers in threads."""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema
from tests.client.sink_cluster import HANG_UP, STORE_AND_HANG_UP, SinkCluster

from roquette.base.javatypes import java_hash
from roquette.errors import ConfigError, RouteNotFound
from roquette.message.compression import decompress
from roquette_spark.datasource import RocketmqDataSource
from roquette_spark.sink import writer as writer_module
from roquette_spark.sink.rows import BadRow
from roquette_spark.sink.writer import RocketmqBatchWriter, SentPartition
from roquette_spark.values.errors import SourceError
from roquette_spark.values.options import SPARK_ID
from roquette_spark.workers.sender import NotStored

TYPES = {
    "body": t.StringType(),
    "topic": t.StringType(),
    "key": t.StringType(),
    "keys": t.ArrayType(t.StringType()),
    "tags": t.StringType(),
    "properties": t.MapType(t.StringType(), t.StringType()),
    "broker_name": t.StringType(),
    "queue_id": t.IntegerType(),
    "message_group": t.StringType(),
    "deliver_timestamp": t.LongType(),
    "delay_level": t.IntegerType(),
    "flag": t.IntegerType(),
    "event": t.StringType(),
}


class FakeContext:
    """What a task knows of itself."""

    attempt = 0

    def __init__(self, partition: int, query: str | None = None, batch: str | None = None) -> None:
        self._partition = partition
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": batch}

    def partitionId(self) -> int:
        return self._partition

    def attemptNumber(self) -> int:
        return self.attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


@pytest.fixture
def cluster() -> Iterator[SinkCluster]:
    with SinkCluster({"T": {"a": 4}, "U": {"a": 1, "b": 1}}) as cluster:
        yield cluster
    writer_module.open_sender.cache_clear()


def schema_of(*names: str) -> t.StructType:
    return t.StructType([t.StructField(name, TYPES[name]) for name in names])


def source(cluster: SinkCluster, **options: str) -> RocketmqDataSource:
    given = {"namesrvAddr": cluster.address, "topic": "T", "sendDeadlineMs": "2000"} | options
    return RocketmqDataSource({k: v for k, v in given.items() if v})


def batches(schema: t.StructType, rows: list[tuple[Any, ...]], size: int = 50) -> Iterator[Any]:
    arrow = to_arrow_schema(schema, timezone="UTC")
    for start in range(0, len(rows), size):
        columns = list(zip(*rows[start : start + size], strict=True))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def write(
    cluster: SinkCluster,
    names: str,
    rows: list[tuple[Any, ...]],
    *,
    context: FakeContext | None = None,
    **options: str,
) -> SentPartition:
    """One task, on a pickled copy of the writer, as Spark runs it."""
    schema = schema_of(*names.split())
    writer = source(cluster, **options).writer(schema, False)
    return run(writer, schema, rows, context)


def run(
    writer: Any, schema: t.StructType, rows: list[tuple[Any, ...]], context: FakeContext | None
) -> SentPartition:
    copy = pickle.loads(pickle.dumps(writer))  # noqa: S301 - our own
    return copy._task.run(batches(schema, rows), context)


def test_rows_become_messages_in_batches(cluster: SinkCluster) -> None:
    rows = [(f"body {n}", f"key-{n}", "ab"[n % 2], {"n": str(n)}, n) for n in range(300)]

    sent = write(cluster, "body key tags properties flag", rows, queueSelector="roundrobin")

    found = {one.body.decode(): one for one in cluster.messages()}
    assert len(cluster.messages()) == len(found) == 300
    for n in range(300):
        one = found[f"body {n}"]
        assert (one.flag, one.sys_flag) == (n, 0)
        own = {k: v for k, v in one.properties.items() if k not in {"UNIQ_KEY", "WAIT"}}
        assert own == {"KEYS": f"key-{n}", "TAGS": "ab"[n % 2], "n": str(n)}
    assert len({one.properties["UNIQ_KEY"] for one in found.values()}) == 300
    assert (sent.rows, sent.requests) == (300, 2)  # 256 and 44


def test_a_task_that_is_tried_again_sends_nothing_where_that_is_forbidden(
    cluster: SinkCluster,
) -> None:
    context = FakeContext(0)
    assert write(cluster, "body", [("a",)], context=context, repeatTasks="false").rows == 1
    context.attempt = 1
    with pytest.raises(SourceError, match="must not be tried again"):
        write(cluster, "body", [("a",), ("b",)], context=context, repeatTasks="false")
    assert len(cluster.messages()) == 1

    assert write(cluster, "body", [("a",), ("b",)], context=context).rows == 2


def test_a_key_names_the_queue_javas_selector_takes_and_keeps_its_order(
    cluster: SinkCluster,
) -> None:
    rows = [(f"{n}", f"k{n % 7}") for n in range(700)]

    write(cluster, "body key", rows, sendBatchSize="16")

    for n in range(7):
        queue_id = abs(java_hash(f"k{n}")) % 4
        lane = [
            int(one.body)
            for one in cluster.stored["T", "a", queue_id]
            if one.properties["KEYS"] == f"k{n}"
        ]
        assert lane == list(range(n, 700, 7))


def test_order_of_a_key_survives_lost_connections_and_busy_brokers(cluster: SinkCluster) -> None:
    fates = {3: HANG_UP, 9: STORE_AND_HANG_UP, 15: STORE_AND_HANG_UP, 22: HANG_UP}
    cluster.verdict = lambda broker, number, ext: (
        (fates[number], "") if number in fates else (2, "busy") if number % 4 == 1 else None
    )
    rows = [(f"{n}", f"k{n % 5}") for n in range(1000)]

    sent = write(cluster, "body key", rows, sendBatchSize="16")

    assert sent.rows == 1000
    assert sent.busy > 5
    seen: dict[str, list[int]] = {}
    for one in cluster.messages():
        lane = seen.setdefault(one.properties["KEYS"], [])
        if int(one.body) not in lane:
            lane.append(int(one.body))
    assert seen == {f"k{n}": list(range(n, 1000, 5)) for n in range(5)}
    assert len(cluster.messages()) > 1000  # the repeated ones


def test_message_group_goes_before_key_and_null_goes_anywhere(cluster: SinkCluster) -> None:
    rows = [("1", "k", "g"), ("2", "k", None), ("3", None, None)]

    write(cluster, "body key message_group", rows)

    group_queue, key_queue = abs(java_hash("g")) % 4, abs(java_hash("k")) % 4
    assert b"1" in [one.body for one in cluster.stored["T", "a", group_queue]]
    assert b"2" in [one.body for one in cluster.stored["T", "a", key_queue]]
    assert sorted(cluster.bodies()) == [b"1", b"2", b"3"]
    assert cluster.stored["T", "a", group_queue][0].properties["__SHARDINGKEY"] == "g"


def test_keys_are_joined_and_the_first_of_them_chooses_the_queue(cluster: SinkCluster) -> None:
    write(cluster, "body keys", [("1", ["x", "y"]), ("2", []), ("3", None)])

    queue_id = abs(java_hash("x")) % 4
    assert {one.body: one.properties.get("KEYS") for one in cluster.messages()} == {
        b"1": "x y",
        b"2": None,
        b"3": None,
    }
    assert b"1" in [one.body for one in cluster.stored["T", "a", queue_id]]


def test_the_topic_column_and_named_queues(cluster: SinkCluster) -> None:
    rows = [("1", "T", "a", 3), ("2", "U", "b", 0), ("3", "U", None, None)]

    write(cluster, "body topic broker_name queue_id", rows, topic="")

    assert [one.body for one in cluster.stored["T", "a", 3]] == [b"1"]
    assert b"2" in [one.body for one in cluster.stored["U", "b", 0]]
    assert sorted(cluster.bodies("U")) == [b"2", b"3"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (("1", "T", None, 9), "row 0: topic T has no queue 9"),
        (
            ("1", "U", None, 0),
            "several brokers have a queue 0 of U .a, b.: give column broker_name",
        ),
        (("1", "U", "c", 0), "topic U has no queue 0 on c"),
    ],
)
def test_queues_that_are_not_there(cluster: SinkCluster, row: Any, says: str) -> None:
    with pytest.raises(BadRow, match=says):
        write(cluster, "body topic broker_name queue_id", [row], topic="")
    assert cluster.bodies("U") == []


def test_delays_are_sent_singly_and_in_their_place(cluster: SinkCluster) -> None:
    rows = [("1", None, None), ("2", None, None), ("3", 4_000_000_000_000, None), ("4", None, 3)]
    rows += [("5", None, 0), ("6", None, None)]

    write(cluster, "body deliver_timestamp delay_level", rows)

    found = {int(one.body): one for one in cluster.messages()}
    assert [found[n].batch_of for n in range(1, 7)] == [2, 2, 1, 1, 2, 2]
    assert found[3].properties["TIMER_DELIVER_MS"] == "4000000000000"
    assert found[4].properties["DELAY"] == "3"
    assert "DELAY" not in found[5].properties
    with pytest.raises(BadRow, match="row 0: both deliver_timestamp and delay_level"):
        write(cluster, "body deliver_timestamp delay_level", [("1", 5, 3)])


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_big_bodies_are_compressed_and_sent_singly(cluster: SinkCluster, kind: str) -> None:
    rows = [("small",), ("x" * 5000,), ("small",)]

    write(cluster, "body", rows, compressOverBytes="1000", compression=kind)

    (packed,) = [one for one in cluster.messages() if one.sys_flag]
    assert decompress(packed.body, packed.sys_flag, 10_000) == b"x" * 5000
    assert len(packed.body) < 200
    assert packed.batch_of == 1


def test_a_batch_is_closed_before_it_is_too_big(cluster: SinkCluster) -> None:
    rows = [("x" * 900,) for _ in range(30)]

    sent = write(cluster, "body", rows, maxMessageSize="10000")

    assert max(one.batch_of for one in cluster.messages()) == 10
    assert sent.requests == 3


@pytest.mark.parametrize(
    ("names", "row", "says"),
    [
        ("body", (None,), "row 0: body is null or empty"),
        ("body", ("",), "body is null or empty"),
        ("body", ("x" * 101,), "body of 101 bytes is above maxMessageSize 100"),
        ("body tags", ("x", "a\x01"), "tags holds a control character"),
        ("body key", ("x", "a b"), "key holds a space"),
        ("body properties", ("x", {"TAGS": "t"}), "property TAGS is RocketMQ's own"),
        ("body properties", ("x", {"p": "y" * 33_000}), "at most 32000"),
        ("body delay_level", ("x", -1), "delay_level -1"),
        ("body topic", ("x", None), "topic is null"),
    ],
)
def test_rows_that_cannot_be_messages_name_row_and_reason(
    cluster: SinkCluster, names: str, row: tuple[Any, ...], says: str
) -> None:
    given = {"topic": ""} if "topic" in names else {}
    with pytest.raises(BadRow, match=says):
        write(cluster, names, [row], maxMessageSize="100", **given)
    assert cluster.messages() == []


def test_ids_are_the_same_for_every_attempt_of_a_stream_and_for_a_named_write(
    cluster: SinkCluster,
) -> None:
    schema, rows = schema_of("body"), [(f"{n}",) for n in range(5)]
    stream = source(cluster, deliveryGuarantee="idempotent").streamWriter(schema, False)
    for _attempt in range(2):
        run(stream, schema, rows, FakeContext(3, "q-1", "17"))
    found = [(one.body, one.properties[SPARK_ID]) for one in cluster.messages()]
    assert sorted(found) == sorted([(b"%d" % n, f"q-1/17/3/{n}") for n in range(5)] * 2)

    cluster.stored.clear()
    named = {"deliveryGuarantee": "idempotent", "writeId": "load-7"}
    write(cluster, "body", rows, context=FakeContext(1), **named)
    assert {one.properties[SPARK_ID] for one in cluster.messages()} == {
        f"load-7/1/{n}" for n in range(5)
    }


def test_a_table_without_a_name_gets_one_that_its_tasks_share(cluster: SinkCluster) -> None:
    schema = schema_of("body")
    writers = [
        source(cluster, deliveryGuarantee="idempotent").writer(schema, False) for _ in range(2)
    ]
    for writer in writers:
        for partition in range(2):
            run(writer, schema, [("x",)], FakeContext(partition))

    ids = [one.properties[SPARK_ID].split("/") for one in cluster.messages()]
    assert len(ids) == 4
    assert len({name for name, *_ in ids}) == 2
    assert {tuple(rest) for _, *rest in ids} == {("0", "0"), ("1", "0")}


def test_the_id_column_is_the_id_and_an_old_id_is_replaced(cluster: SinkCluster) -> None:
    rows = [("x", {SPARK_ID: "old", "p": "1"}, "e-1")]

    given = {"deliveryGuarantee": "idempotent", "idColumn": "event"}
    write(cluster, "body properties event", rows, **given)

    (one,) = cluster.messages()
    assert (one.properties[SPARK_ID], one.properties["p"]) == ("e-1", "1")
    with pytest.raises(BadRow, match="id column is null"):
        write(cluster, "body properties event", [("x", {}, None)], **given)


def test_without_idempotence_there_is_no_id(cluster: SinkCluster) -> None:
    write(cluster, "body", [("x",)])
    assert SPARK_ID not in cluster.messages()[0].properties


def test_all_tasks_hash_over_the_queues_of_the_plan(cluster: SinkCluster) -> None:
    schema = schema_of("body", "key")
    writer = source(cluster).writer(schema, False)
    cluster.topics["T"] = {"a": 9}  # the topic grows between plan and task

    run(writer, schema, [(str(n), f"k{n}") for n in range(100)], None)

    assert {key[2] for key in cluster.stored} <= {0, 1, 2, 3}
    named = source(cluster, orderedQueues="a:2").writer(schema, False)
    cluster.stored.clear()
    run(named, schema, [(str(n), f"k{n}") for n in range(100)], None)
    assert {key[2] for key in cluster.stored} == {0, 1}


def test_a_task_fails_when_one_message_is_not_acknowledged(cluster: SinkCluster) -> None:
    cluster.verdict = lambda broker, number, ext: (2, "busy") if ext["e"] == "2" else None

    with pytest.raises(NotStored, match="not stored after"):
        write(
            cluster,
            "body queue_id",
            [(str(n), n % 4) for n in range(40)],
            sendDeadlineMs="100",
        )


def test_only_append(cluster: SinkCluster) -> None:
    for make in (source(cluster).writer, source(cluster).streamWriter):
        with pytest.raises(ConfigError, match=r"mode..append"):
            make(schema_of("body"), True)


def test_a_missing_topic_is_told_on_the_driver_and_what_to_do(cluster: SinkCluster) -> None:
    with pytest.raises(RouteNotFound, match=r"topic create.*autoCreateTopic=true"):
        source(cluster, topic="nothing").writer(schema_of("body"), False)


def test_a_name_server_that_is_not_there_is_told_on_the_driver() -> None:
    wrong = {"namesrvAddr": "127.0.0.1:1", "topic": "T"}
    with pytest.raises(ConfigError, match=r"no route of topic T from namesrvAddr 127.0.0.1:1"):
        RocketmqDataSource(wrong).writer(schema_of("body"), False)
    RocketmqDataSource(wrong).streamWriter(schema_of("body"), False)  # its commit must not fail


def test_commit_and_abort_take_what_tasks_report(
    cluster: SinkCluster, caplog: pytest.LogCaptureFixture
) -> None:
    writer: RocketmqBatchWriter = source(cluster).writer(schema_of("body"), False)
    with caplog.at_level("INFO", "roquette_spark"):
        writer.commit([SentPartition(0, 5, 1, 0, 0, 0), SentPartition(1, 7, 2, 3, 0, 0)])
        writer.abort([None, SentPartition(1, 7, 2, 3, 0, 0)])
    assert "table written rows=12 requests=3 busy=3" in caplog.text
    assert "aborted table written rows=7" in caplog.text
