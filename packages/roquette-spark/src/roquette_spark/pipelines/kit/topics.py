"""Topics in pipelines: their queues (asked before Spark starts), a sample, a stream, how far its checkpoint has come."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from roquette.base.options import key_values
from roquette.errors import ClientError, ConfigError
from roquette_spark.offsets.route_snapshots import all_topics
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.source.queues import queue_bounds
from roquette_spark.values.offsets import (
    QueueRange,
    decode_begin,
    decode_offsets,
    decode_ranges,
    decode_seen,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

T = TypeVar("T")

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

    @property
    def group(self) -> str:
        """Which is told how far the tables are; "" for the default."""


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
        columns: "" is all, of brokers.
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
    reader = spark.read.format("rocketmq").options(namesrvAddr=namesrv, **given)
    return (reader.schema(columns) if columns else reader).load()


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
) -> list[bytes | None]:
    """Bodies of the first messages of each queue, about `rows` together."""
    each = max(1, rows // max(1, len(states)))
    ends: dict[str, dict[str, int]] = {}
    for state in states:
        end = min(state.end, state.start + each)
        ends.setdefault(state.broker_name, {})[str(state.queue_id)] = end
    reader = spark.read.format("rocketmq").options(**options).option("subscribe", topic)
    until = json.dumps({"v": 1, "offsets": {topic: ends}})
    found = reader.option("endingOffsets", until).schema("body binary").load()
    return [row[0] for row in found.collect()]


def start_ranges(
    spark: "SparkSession",
    options: Mapping[str, str],
    write: Callable[[list[QueueRange], int], None],
    *,
    checkpoint: str,
    interval_s: int | None,
) -> "StreamingQuery":
    """A query that gives `write` what is to be read of one batch after another.

    Without an interval it ends when it has caught up.
    """
    from roquette_spark.ranges import FORMAT, register_ranges

    register_ranges(spark)

    def collected(ranges: "DataFrame", number: int) -> None:
        write([each for row in ranges.collect() for each in decode_ranges(row[0])], number)

    stream = spark.readStream.format(FORMAT).options(**options).load()
    writer = stream.writeStream.foreachBatch(collected).option("checkpointLocation", checkpoint)
    if interval_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


def checkpoint_text(files: TableFiles, checkpoint: str, number: int) -> str:
    """The end that a batch was planned with, as Spark keeps it; "" for a batch that is not there."""
    path = f"{checkpoint}/offsets/{number}"
    text = files.read(path).decode().strip("\0 \n") if files.exists(path) else ""
    return text.splitlines()[-1] if text else ""


def newest_batch(files: TableFiles, checkpoint: str, part: str = "offsets") -> int:
    """The newest batch that was planned, or of part "commits" done; -1 for a new stream. A torn one was not planned."""
    names = files.list_names(f"{checkpoint}/{part}")
    found = max((int(name) for name in names if name.isdigit()), default=-1)
    torn = part == "offsets" and found >= 0 and not checkpoint_text(files, checkpoint, found)
    return found - 1 if torn else found


def torn_batch(files: TableFiles, checkpoint: str) -> int | None:
    """The newest batch, if a machine that went down has left its file of offsets empty; None if it has not."""
    number = newest_batch(files, checkpoint) + 1
    return number if files.exists(f"{checkpoint}/offsets/{number}") else None


def forget_torn_batch(files: TableFiles, checkpoint: str) -> None:
    """Let Spark plan that batch anew, of which no table has anything."""
    number = torn_batch(files, checkpoint)
    for name in () if number is None else (str(number), f".{number}.crc"):
        if files.exists(f"{checkpoint}/offsets/{name}"):
            files.remove(f"{checkpoint}/offsets/{name}")


Queue = tuple[str, int]  # broker, queue id


@dataclass(frozen=True, slots=True)
class PlannedEnd:
    """Where a batch ends in one queue.

    Attributes:
        offset: after the last message.
        seen: which message that is, as the source's offsets say it; "" if they do not.
        anew: where the batch begins, if the queue has other messages than were read before; None if it goes on.
    """

    offset: int
    seen: str = ""
    anew: int | None = None


def planned_ends(
    files: TableFiles, checkpoint: str, number: int
) -> dict[str, dict[Queue, PlannedEnd]]:
    """Of a batch: by topic, then by broker and queue. Empty for one that is not there."""
    value = json.loads(checkpoint_text(files, checkpoint, number) or "null")
    if value is None:
        return {}
    seen, anew = decode_seen(value), decode_begin(value)
    found: dict[str, dict[Queue, PlannedEnd]] = {}
    for queue, offset in decode_offsets(value).items():
        end = PlannedEnd(offset, seen.get(queue, ""), anew.get(queue))
        found.setdefault(queue.topic, {})[queue.broker_name, queue.queue_id] = end
    return found


def checkpoint_offsets(files: TableFiles, checkpoint: str) -> dict[str, dict[Queue, int]]:
    """How far a stream has planned: by topic, then by broker and queue. Empty for a new one."""
    ends = planned_ends(files, checkpoint, newest_batch(files, checkpoint))
    return {
        topic: {queue: end.offset for queue, end in queues.items()}
        for topic, queues in ends.items()
    }


# What a pipeline's tables have, as the offsets of a consumer group: for its lag, and for the proofs of resize and drain.


def group_of(options: SourceSettings, pipeline: str, root: str) -> str:
    """The group of a pipeline into a folder, or a table: of the option, else of the source's options, else a name of its own."""
    given = {name.lower(): value for name, value in stream_options(options).items()}
    name = re.sub(r"[^A-Za-z0-9_-]", "-", root.rpartition("/")[2])[:60]
    own = f"{pipeline}-{name}-{hashlib.sha256(root.encode()).hexdigest()[:8]}"
    return options.group or given.get("group") or own


class GroupPlace:
    """Commits to a group, for one stream, what the stream's tables have. Nothing reads it to go on.

    Args:
        positions: where the stream's checkpoint is.

    Raises:
        ConfigError: an option of the source is wrong.
    """

    def __init__(
        self, options: SourceSettings, group: str, positions: TableFiles, checkpoint: str
    ) -> None:
        from roquette_spark.offsets.committer import RocketMQOffsetCommitter  # needs PySpark

        ours = ("namesrvaddr", "nameserver", "group")
        more = {n: v for n, v in stream_options(options).items() if n.lower() not in ours}
        self._committer = RocketMQOffsetCommitter(options.namesrv, group, **more)
        self._positions, self._checkpoint = positions, checkpoint
        done = newest_batch(positions, checkpoint, "commits")
        self._commit(done)  # of a run that ended before it could

    def after(self, write: Callable[[T, int], None]) -> Callable[[T, int], None]:
        """`write`, and then its batch is committed."""

        def written(batch: T, number: int) -> None:
            write(batch, number)
            self._commit(number)

        return written

    def _commit(self, number: int) -> None:
        self._committer.commit(checkpoint_text(self._positions, self._checkpoint, number))
