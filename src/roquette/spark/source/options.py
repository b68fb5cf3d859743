"""The options of `format("rocketmq")` for reading, checked once, with errors of one line.

Names are Kafka's where the meaning is the same; all are case-insensitive. docs/spark.md lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from roquette.client.config import ClientConfig
from roquette.errors import ConfigError
from roquette.message.names import group_error, topic_error
from roquette.spark.option_values import OptionValues
from roquette.spark.source.positions_json import (
    EARLIEST,
    GROUP,
    LATEST,
    Position,
    read_assigned,
    read_position,
)

__all__ = ["EARLIEST", "GROUP", "LATEST", "Position", "ReadOptions", "read_options"]

SOURCE = "rocketmq"
DEFAULT_GROUP = "spark-rocketmq-source"

READ_NAMES = (
    "namesrvAddr",
    "nameServer",
    "subscribe",
    "topic",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "minRecordsPerPartition",
    "offsetPollIntervalMs",
    "partitionDiscoveryIntervalMs",
    "group",
    "groupIdPrefix",
    "commitOffsets",
    "tags",
    "filterSql",
    "includeProperties",
    "includeHeaders",
    "includeSystemProperties",
    "bodyFormat",
    "columns",
    "pullBatchSize",
    "pullTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "batchRows",
    "batchBytes",
)

# Options of the sink. A table made with CREATE TABLE is read and written with one set, so each tolerates the other's.
WRITE_NAMES = (
    "namesrvAddr",
    "nameServer",
    "topic",
    "producerGroup",
    "deliveryGuarantee",
    "writeId",
    "idColumn",
    "queueSelector",
    "orderedQueues",
    "rateLimit",
    "sendBatchSize",
    "maxInFlight",
    "sendTimeoutMs",
    "sendDeadlineMs",
    "retryTimes",
    "requireSendOk",
    "maxMessageSize",
    "compressOverBytes",
    "compression",
    "ignoreUnknownColumns",
    "autoCreateTopic",
)

# What we know of and cannot do, with what to do instead. Their values are never shown.
_NO_ACL = "Roquette's client signs no requests: read from a listener without access control"
_NOT_SUPPORTED = {
    "accessKey": _NO_ACL,
    "secretKey": _NO_ACL,
    "securityToken": _NO_ACL,
    "namespace": "write names in full, as namespace%topic",
    "pushDownFilters": "narrow the read with tags, filterSql, startingTimestamp and endingTimestamp",
    "readFrom": 'read a store\'s files with format("rocketmq_commitlog")',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Checked options of one read. Of `topics`, `topic_pattern` and `assigned` one is set.

    Attributes:
        assigned: (topic, broker_name, queue_id).
        group: named in requests; committed to if `commit_offsets`.
        tags: `A || B`, or `*`. `filter_sql`: an SQL92 expression, or "".
        connect_timeout_ms, call_timeout_ms, pulls_in_flight: given as `rocketmq.*`.
    """

    namesrv_addr: str
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    assigned: tuple[tuple[str, str, int], ...] = ()
    starting: Position | None = None
    ending: Position | None = None
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    min_records_per_partition: int = 500
    offset_poll_interval_ms: int = 100
    partition_discovery_interval_ms: int = 30_000
    group: str = DEFAULT_GROUP
    commit_offsets: bool = False
    tags: str = "*"
    filter_sql: str = ""
    include_properties: bool = True
    include_system_properties: bool = False
    body_as_string: bool = False
    columns: tuple[str, ...] = ()
    pull_batch_size: int = 1024
    pull_timeout_ms: int = 30_000
    fetch_retries: int = 3
    fetch_retry_interval_ms: int = 10
    connect_timeout_ms: int = 3_000
    pulls_in_flight: int = 16
    batch_rows: int = 8_000
    batch_bytes: int = 32 << 20


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options Spark hands over.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    refuse_unsupported(options)
    given = OptionValues(SOURCE, options, READ_NAMES, also=WRITE_NAMES, prefix="rocketmq.")
    group, commit = _group(given)
    starting = read_position(given, "starting")
    if starting is not None and starting.default == GROUP and not given.text("group"):
        raise ConfigError(
            "rocketmq: startingOffsets=group needs option group: the consumer group to go on from"
        )
    topics, pattern, assigned = _selection(given)
    tags, filter_sql = given.text("tags", "*") or "*", given.text("filterSql")
    if filter_sql and tags != "*":
        raise ConfigError("rocketmq: options tags and filterSql exclude each other: give one")
    tuning = _client_settings(given)
    return ReadOptions(
        namesrv_addr=name_servers(given),
        topics=topics,
        topic_pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=read_position(given, "ending"),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        max_offsets_per_trigger=given.optional_integer("maxOffsetsPerTrigger", least=1),
        max_bytes_per_trigger=_optional_size(given, "maxBytesPerTrigger"),
        min_offsets_per_trigger=given.optional_integer("minOffsetsPerTrigger", least=1),
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", 900_000),
        min_partitions=given.optional_integer("minPartitions", least=1),
        max_records_per_partition=given.optional_integer("maxRecordsPerPartition", least=1),
        min_records_per_partition=given.integer("minRecordsPerPartition", 500, least=0),
        offset_poll_interval_ms=given.integer("offsetPollIntervalMs", 100, least=0),
        partition_discovery_interval_ms=given.integer(
            "partitionDiscoveryIntervalMs", 30_000, least=0
        ),
        group=group,
        commit_offsets=commit,
        tags=tags,
        filter_sql=filter_sql,
        include_properties=_include_properties(given),
        include_system_properties=given.flag("includeSystemProperties", False),
        body_as_string=given.choice("bodyFormat", "binary", "string") == "string",
        columns=given.names(given.text("columns")),
        pull_batch_size=given.integer("pullBatchSize", 1024),
        pull_timeout_ms=given.integer("pullTimeoutMs", tuning.get("pulltimeoutms", 30_000)),
        fetch_retries=given.integer("fetchOffset.numRetries", 3, least=0),
        fetch_retry_interval_ms=given.integer("fetchOffset.retryIntervalMs", 10, least=0),
        connect_timeout_ms=tuning.get("connecttimeoutms", 3_000),
        pulls_in_flight=tuning.get("pullsinflight", 16),
        batch_rows=given.integer("batchRows", 8_000),
        batch_bytes=given.size("batchBytes", 32 << 20),
    )


def refuse_ending(options: ReadOptions) -> None:
    """A stream has no end. Raises ConfigError when an option gives one."""
    if options.ending is not None:
        raise ConfigError(
            "rocketmq: endingOffsets and endingTimestamp are for tables; "
            "a stream ends with trigger(availableNow=True)"
        )


def refuse_unsupported(options: Mapping[str, str]) -> None:
    """Raise ConfigError for options that exist elsewhere and that we cannot honour; no value is shown."""
    by_lower = {name.lower(): name for name in _NOT_SUPPORTED}
    for given in options:
        lower = given.lower().removeprefix("rocketmq.")
        name = by_lower.get(lower, given)
        what = _NOT_SUPPORTED.get(name)
        if lower.startswith("tls."):
            what = "Roquette's client speaks no TLS: read from a listener without it"
        if what is not None:
            raise ConfigError(f"rocketmq: option {name} is not supported yet; {what}")


def name_servers(given: OptionValues) -> str:
    """The addresses, checked. Raises ConfigError."""
    address = given.either("namesrvAddr", "nameServer")
    if not address:
        raise ConfigError('rocketmq: option namesrvAddr is required, such as "127.0.0.1:9876"')
    for one in address.replace(",", ";").split(";"):
        host, _, port = one.strip().rpartition(":")
        if one.strip() and not (host and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(
                f"rocketmq: option namesrvAddr must be host:port;host:port, not {address!r}"
            )
    return address


def _selection(
    given: OptionValues,
) -> tuple[tuple[str, ...], str, tuple[tuple[str, str, int], ...]]:
    """Topics, pattern, assigned queues: one of them is set."""
    names = given.either("subscribe", "topic")
    pattern, assign = given.pattern("subscribePattern"), given.text("assign")
    chosen = [
        name
        for name, value in (("subscribe", names), ("subscribePattern", pattern), ("assign", assign))
        if value
    ]
    if not chosen:
        raise ConfigError(
            "rocketmq: option subscribe is required: a topic, or several with commas "
            "(or subscribePattern, or assign)"
        )
    if len(chosen) > 1:
        raise ConfigError(
            f"rocketmq: options {' and '.join(chosen)} exclude each other: give one of them"
        )
    topics = tuple(sorted({topic.strip() for topic in names.split(",")})) if names else ()
    for topic in topics:
        wrong = topic_error(topic)
        if wrong is not None:
            raise ConfigError(f"rocketmq: option subscribe: {wrong}")
    return topics, pattern, read_assigned(given) if assign else ()


def _group(given: OptionValues) -> tuple[str, bool]:
    """The group named in requests, and whether progress is committed to it."""
    group = given.text("group")
    commit = given.flag("commitOffsets", bool(group))
    if commit and not group:
        raise ConfigError("rocketmq: commitOffsets=true needs option group: whose offsets to store")
    group = group or given.text("groupIdPrefix") or DEFAULT_GROUP
    wrong = group_error(group)
    if wrong is not None:
        raise ConfigError(f"rocketmq: option group: {wrong}")
    return group, commit


def _include_properties(given: OptionValues) -> bool:
    both = given.flag("includeProperties", True), given.flag("includeHeaders", True)
    return all(both)


def _optional_size(given: OptionValues, name: str) -> int | None:
    return given.size(name, 0) if given.given(name) else None


def _client_settings(given: OptionValues) -> dict[str, int]:
    """Options rocketmq.*: settings of our client by their names there, and pullsInFlight.

    Those that only senders use are tolerated, since one set of options may serve reads and writes.
    """
    known = {_camel(field.name): field.name for field in fields(ClientConfig)}
    by_lower = {name.lower(): name for name in (*known, "pullsInFlight")}
    found: dict[str, int] = {}
    for name in given.names_with("rocketmq."):
        short = name.removeprefix("rocketmq.")
        if short not in by_lower:
            raise ConfigError(
                f"rocketmq: unknown option {name}; for reading there are rocketmq.connectTimeoutMs, "
                "rocketmq.pullTimeoutMs and rocketmq.pullsInFlight"
            )
        if short in {"connecttimeoutms", "pulltimeoutms", "pullsinflight"}:
            found[short] = given.integer(name, 0)
    return found


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
