"""The options of `format("rocketmq_commitlog")`, read and checked once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from roquette.errors import ConfigError
from roquette.spark.option_values import OptionValues

SOURCE = "rocketmq_commitlog"
_MOST_READ = 1 << 30  # Arrow counts the bytes of a column in 31 bits
_NAMES = (
    "path",
    "paths",
    "brokerName",
    "subscribe",
    "topic",
    "subscribePattern",
    "tags",
    "startingTimestamp",
    "endingTimestamp",
    "includeSystemTopics",
    "includeProperties",
    "includeSystemProperties",
    "columns",
    "checkCrc",
    "failOnCorruptRecord",
    "splitBytes",
    "readBytes",
    "batchRows",
    "rows",
    "storageOptions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogOptions:
    """Checked options of one offline read. Times are milliseconds; an ending time is exclusive."""

    paths: tuple[str, ...]
    broker_names: tuple[str, ...] = ()  # none, one for all paths, or one for each
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    tags: tuple[str, ...] = ()
    starting_ms: int | None = None
    ending_ms: int | None = None
    include_system_topics: bool = False
    include_properties: bool = True
    include_system_properties: bool = False
    columns: tuple[str, ...] = ()
    check_crc: bool = True
    fail_on_corrupt_record: bool = True
    split_bytes: int = 128 << 20  # 0: a segment is one task
    read_bytes: int = 0  # 0: by kind of storage
    batch_rows: int = 8_000
    stretches: bool = False  # rows are what is no record, instead of messages
    storage_options: str = "{}"  # JSON, for fsspec

    def broker_name(self, index: int) -> str | None:
        """What the column broker_name holds for path number `index`; a store itself does not tell."""
        if not self.broker_names:
            return None
        return self.broker_names[index if len(self.broker_names) > 1 else 0]


def commitlog_options(options: Mapping[str, str]) -> CommitLogOptions:
    """Check the options Spark hands over.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    given = OptionValues(SOURCE, options, _NAMES)
    paths = _paths(given)
    brokers = given.names(given.text("brokerName"))
    if len(brokers) > 1 and len(brokers) != len(paths):
        raise ConfigError(
            f"{SOURCE}: option brokerName has {len(brokers)} names for {len(paths)} paths: "
            "give one for all, or one for each"
        )
    topics = tuple(sorted(set(given.names(given.either("subscribe", "topic")))))
    pattern = given.pattern("subscribePattern")
    if topics and pattern:
        raise ConfigError(f"{SOURCE}: give subscribe or subscribePattern, not both")
    tags = given.text("tags", "*") or "*"
    starting, ending = (
        given.optional_integer("startingTimestamp"),
        given.optional_integer("endingTimestamp"),
    )
    if starting is not None and ending is not None and ending < starting:
        raise ConfigError(
            f"{SOURCE}: endingTimestamp {ending} is before startingTimestamp {starting}"
        )
    read_bytes = given.size("readBytes", 0)
    if read_bytes > _MOST_READ:
        raise ConfigError(f"{SOURCE}: option readBytes must be at most 1g, not {read_bytes}")
    return CommitLogOptions(
        paths=paths,
        broker_names=brokers,
        topics=topics,
        topic_pattern=pattern,
        tags=() if tags == "*" else tuple(t.strip() for t in tags.split("||") if t.strip()),
        starting_ms=starting,
        ending_ms=ending,
        include_system_topics=given.flag("includeSystemTopics", False),
        include_properties=given.flag("includeProperties", True),
        include_system_properties=given.flag("includeSystemProperties", False),
        columns=given.names(given.text("columns")),
        check_crc=given.flag("checkCrc", True),
        fail_on_corrupt_record=given.flag("failOnCorruptRecord", True),
        split_bytes=0 if given.text("splitBytes") == "0" else given.size("splitBytes", 128 << 20),
        read_bytes=read_bytes,
        batch_rows=given.integer("batchRows", 8_000),
        stretches=given.choice("rows", "messages", "stretches") == "stretches",
        storage_options=_storage_options(given),
    )


def _paths(given: OptionValues) -> tuple[str, ...]:
    """One path, several with commas, or the list that `load([...])` makes."""
    text = given.text("paths")
    if text:
        try:
            found = tuple(str(path) for path in json.loads(text))
        except (ValueError, TypeError):
            raise ConfigError(
                f"{SOURCE}: option paths must be a JSON list, not {text[:80]!r}"
            ) from None
    else:
        found = given.names(given.text("path"))
    if not found:
        raise ConfigError(
            f"{SOURCE}: a path is required: a store's directory, its commitlog directory or one segment"
        )
    return found


def _storage_options(given: OptionValues) -> str:
    text = given.text("storageOptions", "{}")
    try:
        if isinstance(json.loads(text), dict):
            return text
    except ValueError:
        pass
    raise ConfigError(  # the text may hold a secret: it is not shown
        f'{SOURCE}: option storageOptions must be a JSON object such as {{"anon":true}}'
    )
