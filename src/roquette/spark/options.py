"""The options of `format("rocketmq")`, read and checked once, with errors of one line.

Names are Kafka's where the meaning is the same; all are case-insensitive.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from roquette.errors import ConfigError

EARLIEST = -2
LATEST = -1

_NAMES = (
    "namesrvAddr",
    "nameServer",
    "subscribe",
    "topic",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "offsetPollIntervalMs",
    "partitionDiscoveryIntervalMs",
    "group",
    "tags",
    "includeProperties",
    "includeSystemProperties",
    "columns",
    "pullBatchSize",
    "pullTimeoutMs",
    "batchRows",
    "batchBytes",
)
_KNOWN = {name.lower(): name for name in _NAMES}

# What Spark's catalog adds to the options of a table made with CREATE TABLE ... USING rocketmq.
_SPARKS_OWN = frozenset(
    ("owner", "provider", "location", "external", "comment", "collation", "is_managed_location")
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or end: by time if `timestamp_ms` is set, else per queue, else `default`.

    Offsets are queue offsets, or EARLIEST or LATEST. `queues` holds (topic, broker_name, queue_id, offset).
    """

    default: int = EARLIEST
    timestamp_ms: int | None = None
    queues: tuple[tuple[str, str, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Checked options of one read. Hashable: the connections of a process are found by it."""

    namesrv_addr: str
    topics: tuple[str, ...]
    starting: Position | None = None
    ending: Position | None = None
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    offset_poll_interval_ms: int = 100
    partition_discovery_interval_ms: int = 30_000
    group: str = "spark-rocketmq-source"
    tags: str = "*"
    include_properties: bool = True
    include_system_properties: bool = False
    columns: tuple[str, ...] = ()
    pull_batch_size: int = 1024
    pull_timeout_ms: int = 30_000
    batch_rows: int = 8_000
    batch_bytes: int = 32 << 20


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options Spark hands over.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in _KNOWN and name not in _SPARKS_OWN and not name.startswith("option."):
            close = difflib.get_close_matches(name, _KNOWN, 1)
            hint = (
                f"; did you mean {_KNOWN[close[0]]}?" if close else f"; known: {', '.join(_NAMES)}"
            )
            raise ConfigError(f"rocketmq: unknown option {name}{hint}")
    address = _one_of(given, "namesrvAddr", "nameServer")
    if address is None:
        raise ConfigError('rocketmq: option namesrvAddr is required, such as "127.0.0.1:9876"')
    topics = tuple(
        sorted({t.strip() for t in (_one_of(given, "subscribe", "topic") or "").split(",")})
    )
    if not all(topics):
        raise ConfigError("rocketmq: option subscribe is required: a topic, or several with commas")
    return ReadOptions(
        namesrv_addr=address,
        topics=topics,
        starting=_position(given, "startingOffsets", "startingTimestamp"),
        ending=_position(given, "endingOffsets", "endingTimestamp"),
        fail_on_data_loss=_bool(given, "failOnDataLoss", True),
        max_offsets_per_trigger=_optional_int(given, "maxOffsetsPerTrigger"),
        min_partitions=_optional_int(given, "minPartitions"),
        max_records_per_partition=_optional_int(given, "maxRecordsPerPartition"),
        offset_poll_interval_ms=_int(given, "offsetPollIntervalMs", 100, least=0),
        partition_discovery_interval_ms=_int(
            given, "partitionDiscoveryIntervalMs", 30_000, least=0
        ),
        group=given.get("group", "spark-rocketmq-source"),
        tags=given.get("tags", "*").strip() or "*",
        include_properties=_bool(given, "includeProperties", True),
        include_system_properties=_bool(given, "includeSystemProperties", False),
        columns=tuple(c.strip() for c in given.get("columns", "").split(",") if c.strip()),
        pull_batch_size=_int(given, "pullBatchSize", 1024),
        pull_timeout_ms=_int(given, "pullTimeoutMs", 30_000),
        batch_rows=_int(given, "batchRows", 8_000),
        batch_bytes=_int(given, "batchBytes", 32 << 20),
    )


def _one_of(given: Mapping[str, str], first: str, second: str) -> str | None:
    one, two = given.get(first.lower()), given.get(second.lower())
    if one is not None and two is not None and one != two:
        raise ConfigError(f"rocketmq: options {first} and {second} mean the same: give one of them")
    return one if one is not None else two


def _position(given: Mapping[str, str], offsets: str, timestamp: str) -> Position | None:
    """The timestamp wins, as in Spark's Kafka source."""
    if timestamp.lower() in given:
        return Position(timestamp_ms=_int(given, timestamp, 0, least=0))
    text = given.get(offsets.lower())
    if text is None:
        return None
    word = text.strip().lower()
    if word in {"earliest", "latest"}:
        return Position(default=EARLIEST if word == "earliest" else LATEST)
    return Position(
        default=EARLIEST if offsets == "startingOffsets" else LATEST,
        queues=_queue_offsets(offsets, text),
    )


def _queue_offsets(name: str, text: str) -> tuple[tuple[str, str, int, int], ...]:
    """Read {"topic":{"broker-a":{"0":23,"1":-1}}}, also as our checkpoints write it (under "offsets")."""
    try:
        value = json.loads(text)
        value = value.get("offsets", value)
        found = [
            (str(topic), str(broker), int(queue), int(offset))
            for topic, brokers in value.items()
            for broker, queues in brokers.items()
            for queue, offset in queues.items()
        ]
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f"rocketmq: option {name} must be earliest, latest or JSON such as "
            f'{{"topic":{{"broker-a":{{"0":23,"1":-1}}}}}}, not {text[:80]!r}'
        ) from None
    for topic, broker, queue, offset in found:
        if offset < EARLIEST:
            raise ConfigError(
                f"rocketmq: option {name}: offset {offset} of {topic} {broker} {queue}"
            )
    return tuple(sorted(found))


def _int(given: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError(
            f"rocketmq: option {name} must be a number of at least {least}, not {text!r}"
        )
    return value


def _optional_int(given: Mapping[str, str], name: str) -> int | None:
    return _int(given, name, 1) if name.lower() in given else None


def _bool(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in {"true", "false"}:
        raise ConfigError(f"rocketmq: option {name} must be true or false, not {text!r}")
    return text.strip().lower() == "true"
