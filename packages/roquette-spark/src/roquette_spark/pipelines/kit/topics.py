"""Topics in pipelines: their queues (asked before Spark starts), a sample, a stream, how far its checkpoint has come."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from roquette.base.options import key_values
from roquette.errors import ClientError, ConfigError
from roquette_spark.offsets.route_snapshots import all_topics
from roquette_spark.pipelines.kit.message_rows import source_schema
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.source.queues import queue_bounds
from roquette_spark.values.offsets import QueueRange, decode_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MOST_QUEUES = 10_000  # and groups of queues, in one answer


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """One queue and its offsets; `end` is exclusive."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int


def find_topics(
    namesrv: str, topics: Sequence[str], options: Mapping[str, str] | None = None
) -> list[QueueBounds]:
    """The queues of topics, as `queue_bounds` finds them."""
    starts, ends = queue_bounds(namesrv, topics, options=options)
    return [
        QueueBounds(q.topic, q.broker_name, q.queue_id, start, ends[q])
        for q, start in starts.items()
    ]


def known_topics(namesrv: str, pipeline: str) -> list[str]:
    """All topics of the cluster. Raises ConfigError, which names the pipeline, when no name server answers."""
    try:
        return all_topics(namesrv)
    except ClientError as error:
        raise ConfigError(f"{pipeline}: no name server answers at {namesrv}: {error}") from None


def require_topics(namesrv: str, topics: Iterable[str], pipeline: str) -> None:
    """Raises ConfigError for topics that the cluster does not know, and as `known_topics`."""
    missing = sorted(set(topics) - set(known_topics(namesrv, pipeline)))
    if missing:
        raise ConfigError(f"{pipeline}: no topic {', '.join(missing)} at {namesrv}")


def describe(states: Iterable[QueueBounds]) -> list[str]:
    """One line per topic, for plans."""
    found: dict[str, list[QueueBounds]] = {}
    for state in states:
        found.setdefault(state.topic, []).append(state)
    return [
        f"topic {topic}: {sum(each.end - each.start for each in queues):,} messages in {len(queues)} "
        f"queues on {', '.join(sorted({each.broker_name for each in queues}))}"
        for topic, queues in found.items()
    ]


def folder_name(topic: str) -> str:
    """A topic's name as a folder: of what topics may have, only % and | are changed."""
    return topic.replace("%", "~").replace("|", "!")


class SourceSettings(Protocol):
    """The options that pipelines over topics share."""

    @property
    def namesrv(self) -> str:
        """Name servers."""

    @property
    def source_option(self) -> tuple[str, ...]:
        """KEY=VALUE words."""


def stream_options(options: SourceSettings) -> dict[str, str]:
    """Return the options that every read of the source is given. Raises ConfigError for malformed words."""
    return {
        "namesrvAddr": options.namesrv,
        **key_values(options.source_option, "--source-option"),
    }


def beginning_at(at_ms: int) -> dict[str, str]:
    """Options of a read of what was stored then (milliseconds since 1970) or later.

    A queue that was given nothing since then has nothing to read; to the source by itself that is an error.
    """
    return {"startingTimestamp": str(at_ms), "startingOffsetsByTimestampStrategy": "latest"}


def read_messages(
    spark: "SparkSession",
    columns: str,
    topics: Sequence[str],
    *,
    namesrv: str,
    store: Sequence[str] = (),
    begin_ms: int = 0,
    end_ms: int = 0,
    more: Mapping[str, str] | None = None,
) -> "DataFrame":
    """Messages of a span of store time (0 is no bound), from brokers or from the files of stores.

    Args:
        topics: none are all of the stores.
        more: options of the source.
    """
    given = dict(more or {})
    if topics:
        given["subscribe"] = ",".join(topics)
    if end_ms:
        given["endingTimestamp"] = str(end_ms)
    if store:
        if begin_ms:
            given["startingTimestamp"] = str(begin_ms)
        reader = spark.read.format("rocketmq_commitlog").schema(columns)
        return reader.options(**given).load(",".join(store))
    if begin_ms:
        given |= beginning_at(begin_ms)
    reader = spark.read.format("rocketmq").schema(columns)
    return reader.options(namesrvAddr=namesrv, **given).load()


def read_offsets(
    spark: "SparkSession", namesrv: str, topics: Sequence[str], groups: Sequence[str]
) -> list[dict[str, Any]]:
    """The queues of these topics (all when there are none), and how far each group is behind in each."""
    from pyspark.sql import functions as f

    given = {"namesrvAddr": namesrv, "group": ",".join(groups)}
    if topics:
        given["subscribe"] = ",".join(topics)
    frame = spark.read.format("rocketmq_offsets").options(**given).load()
    times = {
        f"last_{what}_ms": f.unix_millis(f"last_{what}_timestamp") for what in ("store", "consume")
    }
    plain = frame.withColumns(times).drop("last_store_timestamp", "last_consume_timestamp")
    ordered = plain.orderBy("topic", "broker_name", "queue_id", "group")
    return [row.asDict() for row in ordered.limit(MOST_QUEUES).collect()]


def read_sample(
    spark: "SparkSession",
    options: Mapping[str, str],
    topic: str,
    states: Sequence[QueueBounds],
    *,
    rows: int,
) -> "DataFrame":
    """The first messages of each queue, about `rows` together; one column `body`."""
    each = max(1, rows // max(1, len(states)))
    ends: dict[str, dict[str, int]] = {}
    for state in states:
        end = min(state.end, state.start + each)
        ends.setdefault(state.broker_name, {})[str(state.queue_id)] = end
    reader = spark.read.format("rocketmq").options(**options).option("subscribe", topic)
    until = json.dumps({"v": 1, "offsets": {topic: ends}})
    return reader.option("endingOffsets", until).schema("body binary").load()


def start_stream(
    spark: "SparkSession",
    options: Mapping[str, str],
    write: "Callable[[DataFrame, int], None]",
    *,
    checkpoint: str,
    interval_s: int | None,
) -> "StreamingQuery":
    """A query that gives `write` one batch after another; without an interval it ends when it has caught up."""
    stream = spark.readStream.format("rocketmq").options(**options).schema(source_schema()).load()
    return _start(stream, write, checkpoint, interval_s)


def start_ranges(
    spark: "SparkSession",
    options: Mapping[str, str],
    write: Callable[[list[QueueRange], int], None],
    *,
    checkpoint: str,
    interval_s: int | None,
) -> "StreamingQuery":
    """As `start_stream`, but `write` gets what is to be read of the batch, not its messages."""
    from roquette_spark.ranges import FORMAT, register_ranges

    register_ranges(spark)

    def collected(ranges: "DataFrame", number: int) -> None:
        write([each for row in ranges.collect() for each in decode_ranges(row[0])], number)

    stream = spark.readStream.format(FORMAT).options(**options).load()
    return _start(stream, collected, checkpoint, interval_s)


def _start(
    stream: "DataFrame",
    write: "Callable[[DataFrame, int], None]",
    checkpoint: str,
    interval_s: int | None,
) -> "StreamingQuery":
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    if interval_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


def checkpoint_offsets(files: TableFiles, checkpoint: str) -> dict[str, dict[tuple[str, int], int]]:
    """Read how far a stream has planned: by topic, then by broker and queue. Empty for a new one."""
    names = [
        file.path
        for file in files.list_tree(f"{checkpoint}/offsets")
        if file.path.rpartition("/")[2].isdigit()
    ]
    if not names:
        return {}
    newest = max(names, key=lambda path: int(path.rpartition("/")[2]))
    found = json.loads(files.read(newest).splitlines()[-1])["offsets"]
    return {
        topic: {
            (broker, int(queue)): int(offset)
            for broker, queues in brokers.items()
            for queue, offset in queues.items()
        }
        for topic, brokers in found.items()
    }
