"""The options of `format("rocketmq_commitlog")`, read and checked once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from roquette.base.options import SIZE, OptionKind, option
from roquette.errors import ConfigError
from roquette_spark.option_values import JSON_OBJECT, NAMES, PATTERN, checked_options

SOURCE = "rocketmq_commitlog"


def _paths(text: str) -> tuple[str, ...]:
    listed = json.loads(text) if text else []
    if not isinstance(listed, list):
        raise ValueError
    return tuple(str(path) for path in listed)


def _tags(text: str) -> tuple[str, ...]:
    return () if text == "*" else tuple(tag.strip() for tag in text.split("||") if tag.strip())


_LIST: Final = OptionKind(wanted="a JSON list", parse=_paths)
_TAGS: Final = OptionKind(wanted="tags such as A || B", parse=_tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogOptions:
    """The options of one offline read. Times are milliseconds; an ending time is exclusive."""

    path: tuple[str, ...] = option((), "stores, with commas; what `load(...)` is given")
    listed: tuple[str, ...] = option((), "what `load([...])` is given", name="paths", kind=_LIST)
    topics: tuple[str, ...] = option(
        (),
        "topics. A system's topic, such as `SCHEDULE_TOPIC_XXXX`, must be named",
        name="subscribe",
        also=["topic"],
        kind=NAMES,
        unset="all but the system's",
    )
    topic_pattern: str = option(
        "", "a regular expression for whole topic names", name="subscribePattern", kind=PATTERN
    )
    include_system_topics: bool = option(
        False, "all topics, and prepared and rolled back records, which are in no queue"
    )
    tags: tuple[str, ...] = option((), "`A || B`, compared as text", kind=_TAGS, unset="`*`")
    starting_ms: int | None = option(
        None,
        "milliseconds, by store time. Segments outside are not opened, a minute of a clock set back allowed",
        name="startingTimestamp",
    )
    ending_ms: int | None = option(
        None, "the same for the end, which is exclusive", name="endingTimestamp"
    )
    broker_names: tuple[str, ...] = option(
        (), "one name, or one for each path", name="brokerName", unset="null"
    )
    split_bytes: int = option("128m", "bytes of one task; `0`: a segment is one task", kind=SIZE)
    check_crc: bool = option(True, "a body that does not match its CRC makes its record damaged")
    fail_on_corrupt_record: bool = option(
        True,
        "damage and missing segments are an error that names file and place; `false` reads what there is and warns in "
        "the worker's log",
    )
    rows: str = option(
        "messages",
        "`stretches`: what is not a record, as rows",
        choices=("messages", "stretches"),
    )
    columns: tuple[str, ...] = option((), "as above", unset="all")
    include_properties: bool = option(True, "as above")
    include_system_properties: bool = option(False, "as above")
    batch_rows: int = option(8_000, "as above", least=1)
    read_bytes: int = option(  # Arrow counts the bytes of a column in 31 bits
        0, "bytes of one read", kind=SIZE, most=1 << 30, unset="`4m`, remote `16m`"
    )
    storage_options: str = option(
        "{}", 'JSON for fsspec, such as `{"anon":true}`', kind=JSON_OBJECT, secret=True
    )

    @property
    def paths(self) -> tuple[str, ...]:
        """All stores."""
        return self.listed or self.path

    @property
    def stretches(self) -> bool:
        """True if rows are what is not a record, instead of messages."""
        return self.rows == "stretches"

    def broker_name(self, index: int) -> str | None:
        """Return the column broker_name's value for path number `index`; a store itself does not tell."""
        if not self.broker_names:
            return None
        return self.broker_names[index if len(self.broker_names) > 1 else 0]


def commitlog_options(options: Mapping[str, str]) -> CommitLogOptions:
    """Check the options Spark hands over.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    found = checked_options(CommitLogOptions, SOURCE, options)
    count = len(found.broker_names)
    if not found.paths:
        raise ConfigError(
            f"{SOURCE}: a path is required: a store's directory, its commitlog directory or one segment"
        )
    if count > 1 and count != len(found.paths):
        raise ConfigError(
            f"{SOURCE}: option brokerName has {count} names for {len(found.paths)} paths: "
            "give one for all, or one for each"
        )
    if found.topics and found.topic_pattern:
        raise ConfigError(f"{SOURCE}: give subscribe or subscribePattern, not both")
    start, end = found.starting_ms, found.ending_ms
    if start is not None and end is not None and end < start:
        raise ConfigError(f"{SOURCE}: endingTimestamp {end} is before startingTimestamp {start}")
    return found
