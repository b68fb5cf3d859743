"""The options of `format("rocketmq")` for reading and for writing, checked once, with errors of one line.

Names are Kafka's where the meaning is the same; all are case-insensitive. docs/reference/spark-options.md lists them (tools/settings_page.py).
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from roquette.base.javatypes import whole_number
from roquette.base.options import (
    DURATION,
    REQUIRED,
    SIZE,
    OptionKind,
    OptionReader,
    Unfit,
    matching,
    option,
    options_of,
    split_addresses,
)
from roquette.client.config import (
    ClientConfig,
    Credentials,
    TlsOptions,
    access_of,
    credentials_from,
    read_keys,
    security_of,
    tls_from,
)
from roquette.errors import ConfigError
from roquette.message.compression import Compression
from roquette.message.names import (
    client_group_error,
    client_topic_error,
    group_error,
    is_system_topic,
    topic_error,
)
from roquette_spark.values.narrowing import CONDITIONS, Comparison
from roquette_spark.values.positions_json import (
    ASSIGNED,
    EARLIEST,
    ENDING,
    GROUP,
    LATEST,
    STARTING,
    TIMES,
    Position,
    Times,
    position_of,
)

# Identity of a job at a closed cluster, and encryption of its connections: options of all formats that call servers.
# Secrets are shown nowhere: not in plans, errors or `repr`. What no option says, the environment of the process that connects says (`client/config.py`), so that secrets need not be options at all.


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """The options; those of a format inherit them."""

    access_key: str = option(
        "",
        "the user who signs requests",
        unset="`$ROQUETTE_ACCESS_KEY`",
    )
    secret_key: str = option(
        "",
        "the user's secret",
        secret=True,
        unset="`$ROQUETTE_SECRET_KEY`",
    )
    secret_key_file: str = option(
        "",
        "instead: a file with the secret, or with lines `accessKey=` and `secretKey=`; at the driver and at executors",
        unset="`$ROQUETTE_ACCESS_KEY_FILE`",
    )
    security_token: str = option("", "of a temporary secret", secret=True)
    tls: bool | None = option(
        None,
        "connections use TLS",
        name="tls.enable",
        unset="`true` with another `tls.…` of these, else `$ROQUETTE_TLS`",
    )
    tls_ca: str = option(
        "",
        "the authorities of servers' certificates, a PEM file at the driver and at executors, as the next two",
        name="tls.ca",
        also=["tls.client.trustCertPath"],
        unset="the system's",
    )
    tls_certificate: str = option(
        "", "what the job shows of itself", name="tls.certificate", also=["tls.client.certPath"]
    )
    tls_key: str = option(
        "",
        "and its key",
        name="tls.key",
        also=["tls.client.keyPath"],
        unset="in the file of `tls.certificate`",
    )
    tls_key_password: str = option(
        "", "opens that key", name="tls.keyPassword", also=["tls.client.keyPassword"], secret=True
    )
    tls_verify: bool = option(
        True,
        "servers' certificates are checked; `false` believes whoever answers",
        name="tls.verify",
        also=["tls.client.authServer"],
    )
    tls_verify_host: bool = option(
        True, "and name the host or address that is called", name="tls.verifyHost"
    )

    @property
    def credentials(self) -> Credentials | None:
        """Credentials that sign. Raises ConfigError: a part is missing, or the file cannot be read."""
        if self.secret_key_file:
            if self.secret_key:
                raise ConfigError(
                    "rocketmq: options secretKey and secretKeyFile exclude each other: give one"
                )
            return read_keys(self.secret_key_file, self.access_key)
        if not (self.access_key or self.secret_key or self.security_token):
            return credentials_from(os.environ)
        if not self.access_key or not self.secret_key:
            given, missing = "accessKey", "secretKey or secretKeyFile"
            if not self.access_key:
                given, missing = "secretKey or securityToken", "accessKey"
            raise ConfigError(f"rocketmq: option {given} is given without {missing}")
        return access_of(
            {
                "access_key": self.access_key,
                "secret_key": self.secret_key,
                "security_token": self.security_token,
            }
        )[1]

    @property
    def tls_options(self) -> TlsOptions | None:
        """TLS of the connections; None: they are plain. Raises ConfigError."""
        given = TlsOptions(
            ca=self.tls_ca,
            certificate=self.tls_certificate,
            key=self.tls_key,
            key_password=self.tls_key_password,
            verify=self.tls_verify,
            verify_host=self.tls_verify_host,
        )
        if self.tls is None and given == TlsOptions():
            return tls_from(os.environ)
        return None if self.tls is False else given

    @property
    def access(self) -> tuple[TlsOptions | None, Credentials | None]:
        """Both: what connections are made with, and found by."""
        return self.tls_options, self.credentials

    def check_access(self) -> None:
        """Raise ConfigError for what cannot hold: before a job begins."""
        security_of(*self.access)


# Common part of the options of all our formats: how Spark names them, and the kinds of their texts.


C = TypeVar("C")
# What Spark's catalog adds to the options of a table made with CREATE TABLE ... USING.
_SPARKS_OWN: Final = frozenset(
    ("owner", "provider", "location", "external", "comment", "collation", "is_managed_location")
)
_SPARK: Final = OptionReader(
    names=lambda option: (option.name, *option.also),
    normal=str.lower,
    shown=lambda option: f"option {option.name}",
    missing=lambda option: f": {option.help.replace('`', '')}",
)


def names_of(cls: type[object]) -> frozenset[str]:
    """All names of the options of a class, in lower case."""
    known = options_of(cls).values()
    return frozenset(name.lower() for option in known for name in (option.name, *option.also))


def checked_options(
    cls: type[C],
    source: str,
    options: Mapping[str, str],
    also: Iterable[str] = (),
    prefix: str = "",
) -> C:
    """The options of one `format(...)`; names are case-insensitive.

    Args:
        source: the format's name, with which every error begins.
        options: what Spark hands over.
        also: names, in lower case, that are tolerated without being listed to people.
        prefix: so are names that begin so, if it is not empty.

    Raises:
        ConfigError: an option is unknown, missing or malformed; one line names it, and never a value of a secret.
    """
    if not options:
        first = "path" if "path" in names_of(cls) else "namesrvAddr"
        raise ConfigError(
            f"{source}: no option is given. Those of CREATE TABLE are not passed on by Spark: say them with the statement, "
            f"FROM t WITH ('{first}'='...', ...), or use CREATE TEMPORARY VIEW t USING {source} OPTIONS ({first} '...', ...)"
        )
    others = _SPARKS_OWN.union(also)

    def tolerated(name: str) -> bool:
        return name in others or name.startswith(("option.", prefix or "option."))

    values = _SPARK.values(cls, options, source, tolerated=tolerated)
    return _SPARK.build(cls, values, source)


def split_names(text: str) -> tuple[str, ...]:
    """The parts of a text with commas, each once, sorted."""
    return tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise Unfit(f"{text!r} is not a regular expression: {error}") from None
    return text


def _json_object(text: str) -> str:
    if not isinstance(json.loads(text), dict):
        raise ValueError
    return text


def _limits(text: str) -> tuple[tuple[str, int], ...]:
    found = json.loads(text)
    if not isinstance(found, dict) or not found:
        raise ValueError
    if any(type(limit) is not int or limit < 1 for limit in found.values()):
        raise ValueError
    return tuple(found.items())


def _addresses(text: str) -> str:
    for one in split_addresses(text):
        host, _, port = one.rpartition(":")
        if not host or whole_number(port, 65_535) < 1:
            raise ValueError
    return text


ADDRESSES: Final = OptionKind(wanted="host:port;host:port", parse=_addresses)
NAMES: Final = OptionKind(wanted="names, with commas", parse=split_names)
PATTERN: Final = OptionKind(wanted="a regular expression", parse=_pattern)
JSON_OBJECT: Final = OptionKind(wanted='a JSON object such as {"anon":true}', parse=_json_object)
LIMITS: Final = OptionKind(
    wanted='a JSON object of topics and whole numbers of at least 1, such as {"orders":1000}',
    parse=_limits,
)
TAGS: Final = OptionKind(wanted="tags such as A || B", parse=lambda text: text or "*")

SOURCE: Final = "rocketmq"
SPARK_ID: Final = "__SPARK_ID"
"""The property that holds a message's deterministic id."""
HASH, ROUND_ROBIN, COLUMN = "hash", "roundrobin", "column"
AT_LEAST_ONCE, IDEMPOTENT = "at-least-once", "idempotent"

# Spark's own beside those of its catalog.
_STREAMS_OWN: Final = ("checkpointlocation", "queryname", "path", "outputmode")
_OPTION: Final = "option."  # what INSERT INTO puts before the options of a table

# What we know of and cannot do, with what to do instead. Their values are never shown.
_PREFIXED = {
    f"rocketmq.{name.lower()}": name
    for name in ("accessKey", "secretKey", "secretKeyFile", "securityToken")
}
_NOT_SUPPORTED = {
    "namespace": "write names in full, as namespace%topic",
    "pushDownFilters": "narrow the read with narrowBy, or read_where of roquette_spark",
    "readFrom": 'read a store\'s files with format("rocketmq_commitlog")',
}


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(sorted({topic.strip() for topic in text.split(",")})) if text else ()
    for error in filter(None, map(topic_error, topics)):
        raise Unfit(error)
    return topics


def _judged(
    wanted: str, error_of: Callable[[str], str | None], *, optional: bool = False
) -> OptionKind:
    """Names of which `error_of` says what is wrong; `optional`: an empty text is none."""

    def parse(text: str) -> str:
        error = error_of(text) if text or not optional else None
        if error is not None:
            raise Unfit(error)
        return text

    return OptionKind(wanted=wanted, parse=parse)


def _target_error(topic: str) -> str | None:
    system = f"topic {topic} is RocketMQ's own" if is_system_topic(topic) else None
    return client_topic_error(topic) or system


def _guarantee(text: str) -> str:
    if text.lower() == "transactional":
        raise Unfit(
            "transactional is not offered: a crash between two commits would leave half messages undecided; "
            "use idempotent, and remove_duplicates when reading"
        )
    if text.lower() not in {AT_LEAST_ONCE, IDEMPOTENT}:
        raise ValueError
    return text.lower()


def _selector(text: str) -> str | None:
    word = re.sub(r"\s", "", text).lower()
    word = HASH if re.fullmatch(r"hash\((key|message_group)\)", word) else word
    if word not in {"", HASH, ROUND_ROBIN, COLUMN}:
        raise ValueError
    return word or None


def _ordered_queues(text: str) -> tuple[tuple[str, int], ...]:
    words = [part.strip().rpartition(":") for part in text.split(";") if part.strip()]
    if not all(name and whole_number(count, 2**31 - 1) > 0 for name, _, count in words):
        raise ValueError
    return tuple((name, int(count)) for name, _, count in words)


_TOPICS = OptionKind(wanted="topics, with commas", parse=_topics)
READER_GROUP = _judged("a group", group_error, optional=True)
_GROUP_PREFIX = _judged("a group", group_error)
_TARGET = _judged("a topic", _target_error, optional=True)
_PRODUCER_GROUP = _judged("a group", client_group_error)
_GUARANTEE = OptionKind(wanted=f"{AT_LEAST_ONCE} or {IDEMPOTENT}", parse=_guarantee)
_SELECTOR = OptionKind(wanted="hash(key), roundrobin or column", parse=_selector)
_QUEUES = OptionKind(wanted="such as broker-a:8;broker-b:8", parse=_ordered_queues)
_VISIBLE = matching(r"[!-~]{0,200}", "1 to 200 visible ASCII characters without spaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(AccessOptions):
    """The options of one read, as they are given. Of `topics`, `topic_pattern` and `assigned` one is set."""

    namesrv_addr: str = option(
        REQUIRED,
        "name servers, `host:port;host:port`",
        also=["nameServer"],
        kind=ADDRESSES,
    )
    topics: tuple[str, ...] = option(
        (),
        "topics, with commas",
        name="subscribe",
        also=["topic"],
        kind=_TOPICS,
        unset="one of three",
    )
    topic_pattern: str = option(
        "",
        "a regular expression for whole topic names; system topics never match, `%RETRY%…` and `%DLQ%…` only a "
        "pattern with `%`",
        name="subscribePattern",
        kind=PATTERN,
    )
    assigned: tuple[tuple[str, str, int], ...] = option(
        (), 'single queues: `{"topic":{"broker-a":[0,1]}}`', name="assign", kind=ASSIGNED
    )
    starting_offsets: Position | None = option(
        None,
        "`earliest`, `latest`, `group`, or an offset of each queue. A stream with a checkpoint ignores it",
        kind=STARTING,
        unset="`earliest` (table), `latest` (stream)",
    )
    starting_timestamp: int | None = option(
        None, "milliseconds since 1970, by store time; wins over the two others"
    )
    starting_times: Times | None = option(
        None,
        'times per place: `{"topic":1700000000000}`, `{"topic":{"broker-a":{"0":…}}}`; the rest from the first '
        "message",
        name="startingOffsetsByTimestamp",
        kind=TIMES,
    )
    starting_strategy: str = option(
        "error",
        "of a queue without a message that late: `error`, or `latest` to begin at its end",
        name="startingOffsetsByTimestampStrategy",
        choices=("error", "latest"),
    )
    ending_offsets: Position | None = option(
        None,
        "tables: the same forms; the end is exclusive",
        kind=ENDING,
        unset="`latest`",
    )
    ending_timestamp: int | None = option(None, "tables: the same, as a time")
    ending_times: Times | None = option(
        None, "tables: the same, as times per place", name="endingOffsetsByTimestamp", kind=TIMES
    )
    narrow_by: tuple[Comparison, ...] = option(
        (),
        "tables: what holds no message of these conditions is not read; rows are not tested by it",
        kind=CONDITIONS,
    )
    fail_on_data_loss: bool = option(
        True,
        "an error when messages in the range are gone (retention, a topic made again, a queue that went); `false` "
        "reads what there is",
    )
    max_offsets_per_trigger: int | None = option(
        None,
        "streams: messages per micro-batch, shared among queues by what each has waiting, at least one each",
        least=1,
        unset="no limit",
    )
    limits_by_topic: tuple[tuple[str, int], ...] | None = option(
        None,
        "streams: messages of each of these topics per micro-batch, within the limit of all",
        name="maxOffsetsPerTriggerByTopic",
        kind=LIMITS,
        unset="no limit",
    )
    max_bytes_per_trigger: int | None = option(
        None,
        "streams: stored bytes per micro-batch, such as `256m`. From log positions where these suffice, otherwise "
        "estimated from samples; at least one message of each queue that has some",
        kind=SIZE,
        least=1,
        unset="no limit",
    )
    min_offsets_per_trigger: int | None = option(
        None,
        "streams: wait for at least this many messages, but not longer than `maxTriggerDelay`. Not with AvailableNow",
        least=1,
    )
    max_trigger_delay_ms: int = option(
        "15m", "streams: see `minOffsetsPerTrigger`", name="maxTriggerDelay", kind=DURATION
    )
    min_partitions: int | None = option(
        None,
        "split ranges until there are this many partitions; ranges are not merged while there are fewer",
        least=1,
        unset="one per queue",
    )
    max_records_per_partition: int | None = option(
        None, "split ranges larger than this", least=1, unset="no limit"
    )
    min_records_per_partition: int = option(
        500,
        "ranges of fewer messages share a task until it has this many (64 ranges at most); `0`: a task per queue",
    )
    tags: str = option(
        "*", "`A || B`; the broker filters. Offsets still count all messages", kind=TAGS
    )
    filter_sql: str = option(
        "",
        "an SQL92 expression over properties; the broker filters (Apache's needs `enablePropertyFilter=true`)",
    )
    columns: tuple[str, ...] = option((), "columns of the default schema", unset="all")
    body_format: str = option(
        "binary", "type of `body`: `binary` or `string` (UTF-8)", choices=("binary", "string")
    )
    include_properties: bool = option(True, "the column `properties`", also=["includeHeaders"])
    include_system_properties: bool = option(False, "RocketMQ's own properties in that map too")
    group: str = option(
        "",
        "whose offsets `startingOffsets=group` and `commitOffsets` mean, and the group named in requests",
        kind=READER_GROUP,
    )
    group_id_prefix: str = option(
        "spark-rocketmq-source",
        "the group named in requests without `group`. No random part is added: brokers keep a record of every group "
        "they see",
        kind=_GROUP_PREFIX,
    )
    commit_offsets: bool | None = option(
        None, "streams: mirror progress to that group", unset="`true` with `group`"
    )
    offset_poll_interval_ms: int = option(100, "streams: how often ends are asked for, at most")
    partition_discovery_interval_ms: int = option(
        30_000, "streams: how often queues, brokers and topics are looked for"
    )
    pull_batch_size: int = option(
        1024,
        "messages per pull; brokers give fewer (Apache's default limit is 32, `maxTransferCountOnMessageInMemory`)",
        least=1,
    )
    pull_timeout_ms: int = option(
        30_000, "of each answer", also=["rocketmq.pullTimeoutMs"], least=1
    )
    fetch_retries: int = option(
        3, "how often a request is made again", name="fetchOffset.numRetries"
    )
    fetch_retry_interval_ms: int = option(
        10, "and how long after", name="fetchOffset.retryIntervalMs"
    )
    batch_rows: int = option(8_000, "rows of an Arrow batch, at most one pull more", least=1)
    batch_bytes: int = option(
        "32m", "its bytes, at most one pull more; decompressed bodies count", kind=SIZE, least=1
    )
    connect_timeout_ms: int = option(
        3_000, "of our client: time to connect", name="rocketmq.connectTimeoutMs", least=1
    )
    pulls_in_flight: int = option(
        16, "of our client: pulls sent ahead per task", name="rocketmq.pullsInFlight", least=1
    )

    @property
    def starting(self) -> Position | None:
        """Position at which to begin; None when no option says."""
        lenient = self.starting_strategy == "latest"
        given = self.starting_timestamp, self.starting_times, self.starting_offsets
        return position_of(EARLIEST, *given, lenient)

    @property
    def ending(self) -> Position | None:
        """Position at which to end, exclusively; None when no option says."""
        given = self.ending_timestamp, self.ending_times, self.ending_offsets
        return position_of(LATEST, *given, True)

    @property
    def request_group(self) -> str:
        return self.group or self.group_id_prefix

    @property
    def commits(self) -> bool:
        return bool(self.group) if self.commit_offsets is None else self.commit_offsets

    @property
    def body_as_string(self) -> bool:
        return self.body_format == "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(AccessOptions):
    """The options of one write. Hashable: the connections of a process are found by it."""

    namesrv_addr: str = option(REQUIRED, "name servers", also=["nameServer"], kind=ADDRESSES)
    topic: str = option("", "of every message", kind=_TARGET, unset="the column")
    guarantee: str = option(
        AT_LEAST_ONCE,
        "`idempotent` gives each message an id by which repetitions are found",
        name="deliveryGuarantee",
        kind=_GUARANTEE,
    )
    id_column: str = option("", "the column (string) that is the id")
    write_id: str = option(
        "",
        "tables only: the name of this write in its ids; the same name again makes the same ids again",
        kind=_VISIBLE,
        unset="random",
    )
    selector: str | None = option(
        None,
        "`hash(key)`, `roundrobin`, `column`; default: `column` if there is `queue_id`, else `hash` if there is "
        "`key`, `keys` or `message_group`",
        name="queueSelector",
        kind=_SELECTOR,
        unset="by the columns",
    )
    ordered_queues: tuple[tuple[str, int], ...] = option(
        (),
        "`broker-a:8;broker-b:8`: the queues that keys are hashed over, whatever the route says",
        kind=_QUEUES,
        unset="the route's",
    )
    rate_limit: int | None = option(
        None, "messages a second, of each task; repeated ones count", least=1, unset="none"
    )
    batch_size: int = option(
        256,
        "messages of one request, up to 1 MiB together",
        name="sendBatchSize",
        least=1,
        most=10_000,
    )
    max_in_flight: int = option(32, "requests without an answer, of each task", least=1, most=1_024)
    send_timeout_ms: int = option(10_000, "of one attempt", least=1)
    send_deadline_ms: int = option(120_000, "from the first attempt until the task fails", least=1)
    retry_times: int = option(
        16,
        "attempts a broker may refuse otherwise than by flow control; flow control and lost connections end at the "
        "deadline only",
    )
    require_send_ok: bool = option(
        False,
        'answers "stored, but not flushed or replicated in time" are failures, and the messages are sent again',
    )
    max_message_size: int = option(
        4 << 20, "a larger body is an error; should be the broker's", least=1, most=15 << 20
    )
    compress_over_bytes: int = option(
        4_096, "larger bodies are compressed and travel alone", least=1
    )
    compression: Compression = option(Compression.ZLIB, "`zlib`, `lz4` or `zstd`")
    ignore_unknown_columns: bool = option(False, "columns that no message has are left out")
    auto_create_topic: bool = option(
        False, "a topic that does not exist is made by its first message, if brokers allow it"
    )
    producer_group: str = option("spark-rocketmq-sink", "named in requests", kind=_PRODUCER_GROUP)
    repeat_tasks: bool = option(
        True,
        "false: a task that Spark tries again fails and sends nothing, for jobs that look what is stored before they "
        "send again",
    )

    @property
    def rows_per_request(self) -> int:
        """`batch_size`, smaller where a rate limit would let a whole batch through only every now and then."""
        if self.rate_limit is None:
            return self.batch_size
        return max(1, min(self.batch_size, self.rate_limit // 10))


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options Spark hands over; those of writes are tolerated, since a table has one set for both.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    _refuse_unsupported(options)
    senders = {
        f"rocketmq.{name.lower()}"
        for name in options_of(ClientConfig)
        if name not in ("tls", "credentials", "namespace", "namespace_v2")
    }
    found = checked_options(ReadOptions, SOURCE, options, names_of(WriteOptions) | senders)
    given = {
        "subscribe": found.topics,
        "subscribePattern": found.topic_pattern,
        "assign": found.assigned,
    }
    chosen = [name for name, value in given.items() if value]
    if not chosen:
        raise ConfigError(
            "rocketmq: option subscribe is required: a topic, or several with commas "
            "(or subscribePattern, or assign)"
        )
    if len(chosen) > 1:
        raise ConfigError(
            f"rocketmq: options {' and '.join(chosen)} exclude each other: give one of them"
        )
    found.check_access()
    if found.filter_sql and found.tags != "*":
        raise ConfigError("rocketmq: options tags and filterSql exclude each other: give one")
    if found.commits and not found.group:
        raise ConfigError("rocketmq: commitOffsets=true needs option group: whose offsets to store")
    if found.starting is not None and found.starting.default == GROUP and not found.group:
        raise ConfigError(
            "rocketmq: startingOffsets=group needs option group: the consumer group to go on from"
        )
    return found


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options Spark hands over; those of reads are tolerated, since a table has one set for both.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    _refuse_unsupported(options)
    plain = {name.lower().removeprefix(_OPTION): value for name, value in options.items()}
    plain |= {name.lower(): value for name, value in options.items() if _OPTION not in name.lower()}
    others = names_of(ReadOptions).union(_STREAMS_OWN)
    found = checked_options(WriteOptions, SOURCE, plain, others, prefix="rocketmq.")
    found.check_access()
    if found.guarantee != IDEMPOTENT and (found.write_id or found.id_column):
        raise ConfigError("rocketmq: writeId and idColumn need deliveryGuarantee=idempotent")
    return found


def refuse_ending(options: ReadOptions) -> None:
    """A stream has no end, nor holes. Raises ConfigError when an option gives one."""
    if options.ending is not None:
        raise ConfigError(
            "rocketmq: endingOffsets and endingTimestamp are for tables; "
            "a stream ends with trigger(availableNow=True)"
        )
    if options.narrow_by:
        raise ConfigError(
            "rocketmq: narrowBy is for tables; a stream is narrowed by subscribe or assign"
        )


def check_topic(topic: str) -> None:
    """Raise ConfigError when messages cannot be sent to a topic of this name."""
    error = _target_error(topic)
    if error is not None:
        raise ConfigError(f"rocketmq: {error}")


def _refuse_unsupported(options: Mapping[str, str]) -> None:
    """Raise ConfigError for options that exist elsewhere and that we cannot honour; no value is shown."""
    by_lower = {name.lower(): name for name in _NOT_SUPPORTED}
    for given in options:
        lower = given.lower().removeprefix("rocketmq.")
        name = by_lower.get(lower, given)
        what = _NOT_SUPPORTED.get(name)
        if given.lower() in _PREFIXED:
            what = f"say {_PREFIXED[given.lower()]}"
        if given.lower().startswith(("rocketmq.tls", "tls.server.")):
            what = "say tls.enable, tls.ca and the others of docs/reference/spark-options.md"
        if what is not None:
            raise ConfigError(f"rocketmq: option {name} is not supported yet; {what}")
