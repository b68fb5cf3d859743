"""The options of writes by `format("rocketmq")`, read and checked once, with errors of one line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from roquette.client.blocking_sender import SenderConfig
from roquette.client.core.send_window import WindowLimits
from roquette.errors import ConfigError
from roquette.message.compression import Compression
from roquette.message.names import client_group_error, client_topic_error, is_system_topic
from roquette.spark.option_values import OptionValues
from roquette.spark.source.options import (
    READ_NAMES,
    SOURCE,
    WRITE_NAMES,
    name_servers,
    refuse_unsupported,
)

SPARK_ID: Final = "__SPARK_ID"
"""The property that holds a message's deterministic id."""

# Spark's own beside those of its catalog.
_STREAMS_OWN: Final = ("checkpointLocation", "queryName", "path", "outputMode")
_OPTION: Final = "option."  # what INSERT INTO puts before the options of a table
DEFAULT_GROUP: Final = "spark-rocketmq-sink"
HASH, ROUND_ROBIN, COLUMN = "hash", "roundrobin", "column"
AT_LEAST_ONCE, IDEMPOTENT = "at-least-once", "idempotent"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Checked options of one write. Hashable: the connections of a process are found by it.

    Attributes:
        topic: of every message; None takes the column's.
        write_id: names this write in the ids of its messages: the same again means the same ids again.
        id_column: whose value is the id, instead of query, batch, partition and row.
        selector: HASH of message_group or key, ROUND_ROBIN, COLUMN queue_id; None: by the columns there are.
        ordered_queues: "broker-a:8;broker-b:8" in place of the route's queues, so that keys never move.
        rate_limit: messages a second of each task.
        batch_size: messages of one request.
    """

    namesrv_addr: str
    topic: str | None = None
    producer_group: str = DEFAULT_GROUP
    guarantee: str = AT_LEAST_ONCE
    write_id: str | None = None
    id_column: str | None = None
    selector: str | None = None
    ordered_queues: tuple[tuple[str, int], ...] = ()
    rate_limit: int | None = None
    batch_size: int = 256
    max_in_flight: int = 32
    send_timeout_ms: int = 10_000
    send_deadline_ms: int = 120_000
    retry_times: int = 16
    require_send_ok: bool = False
    max_message_size: int = 4 << 20
    compress_over_bytes: int = 4_096
    compression: Compression = field(default=Compression.ZLIB)
    ignore_unknown_columns: bool = False
    auto_create_topic: bool = False

    @property
    def rows_per_request(self) -> int:
        """`batch_size`, smaller where a rate limit would let a whole batch through only every now and then."""
        if self.rate_limit is None:
            return self.batch_size
        return max(1, min(self.batch_size, self.rate_limit // 10))

    def sender_config(self) -> SenderConfig:
        """What the sender needs of it."""
        return SenderConfig(
            namesrv_addr=self.namesrv_addr,
            producer_group=self.producer_group,
            send_timeout_ms=self.send_timeout_ms,
            require_send_ok=self.require_send_ok,
            auto_create_topics=self.auto_create_topic,
            limits=WindowLimits(
                max_in_flight=self.max_in_flight,
                deadline_ms=self.send_deadline_ms,
                retry_times=self.retry_times,
                rate=self.rate_limit,
            ),
        )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options Spark hands over.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    refuse_unsupported(options)
    plain = {name.lower().removeprefix(_OPTION): value for name, value in options.items()}
    plain |= {name.lower(): value for name, value in options.items() if _OPTION not in name.lower()}
    also = (*READ_NAMES, *_STREAMS_OWN)
    given = OptionValues(SOURCE, plain, WRITE_NAMES, also=also, prefix="rocketmq.")
    topic = given.text("topic") or None
    if topic is not None:
        check_topic(topic)
    group = given.text("producerGroup", DEFAULT_GROUP)
    error = client_group_error(group)
    if error is not None:
        raise ConfigError(f"rocketmq: option producerGroup: {error}")
    guarantee = _guarantee(given)
    write_id, id_column = given.text("writeId") or None, given.text("idColumn") or None
    if guarantee != IDEMPOTENT and (write_id or id_column):
        raise ConfigError("rocketmq: writeId and idColumn need deliveryGuarantee=idempotent")
    if write_id is not None and re.fullmatch(r"[!-~]{1,200}", write_id) is None:
        raise ConfigError(
            "rocketmq: option writeId must be 1 to 200 visible ASCII characters without spaces"
        )
    return WriteOptions(
        namesrv_addr=name_servers(given),
        topic=topic,
        producer_group=group,
        guarantee=guarantee,
        write_id=write_id,
        id_column=id_column,
        selector=_selector(given),
        ordered_queues=_ordered_queues(given.text("orderedQueues")),
        rate_limit=given.optional_integer("rateLimit", least=1),
        batch_size=_at_most(given, "sendBatchSize", 256, 10_000),
        max_in_flight=_at_most(given, "maxInFlight", 32, 1_024),
        send_timeout_ms=given.integer("sendTimeoutMs", 10_000),
        send_deadline_ms=given.integer("sendDeadlineMs", 120_000),
        retry_times=given.integer("retryTimes", 16, least=0),
        require_send_ok=given.flag("requireSendOk", False),
        max_message_size=_at_most(given, "maxMessageSize", 4 << 20, 15 << 20),
        compress_over_bytes=given.integer("compressOverBytes", 4_096),
        compression=Compression[given.choice("compression", "zlib", "lz4", "zstd").upper()],
        ignore_unknown_columns=given.flag("ignoreUnknownColumns", False),
        auto_create_topic=given.flag("autoCreateTopic", False),
    )


def check_topic(topic: str) -> None:
    """Raise ConfigError when messages cannot be sent to a topic of this name."""
    error = client_topic_error(topic)
    if error is None and is_system_topic(topic):
        error = f"topic {topic} is RocketMQ's own"
    if error is not None:
        raise ConfigError(f"rocketmq: {error}")


def _guarantee(given: OptionValues) -> str:
    if given.text("deliveryGuarantee").lower() == "transactional":
        raise ConfigError(
            "rocketmq: deliveryGuarantee=transactional is not offered: a crash between two commits would leave half "
            "messages undecided; use idempotent, and remove_duplicates when reading"
        )
    return given.choice("deliveryGuarantee", AT_LEAST_ONCE, IDEMPOTENT)


def _at_most(given: OptionValues, name: str, default: int, most: int) -> int:
    value = given.integer(name, default)
    if value > most:
        raise ConfigError(f"rocketmq: option {name} must be at most {most}, not {value}")
    return value


def _selector(given: OptionValues) -> str | None:
    text = given.text("queueSelector")
    if not text:
        return None
    word = re.sub(r"\s", "", text).lower()
    word = HASH if re.fullmatch(r"hash\((key|message_group)\)", word) else word
    if word not in {HASH, ROUND_ROBIN, COLUMN}:
        raise ConfigError(
            f"rocketmq: option queueSelector must be hash(key), roundrobin or column, not {text!r}"
        )
    return word


def _ordered_queues(text: str) -> tuple[tuple[str, int], ...]:
    found = []
    for word in filter(None, (part.strip() for part in text.split(";"))):
        name, _, count = word.rpartition(":")
        if not name or not count.isdecimal() or int(count) < 1:
            raise ConfigError(
                f"rocketmq: option orderedQueues must be such as broker-a:8;broker-b:8, not {text!r}"
            )
        found.append((name, int(count)))
    return tuple(found)
