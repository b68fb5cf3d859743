"""Looking for messages in the log itself: by topic, queue, key, tag, id, time and body."""

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from roquette.base.files import ReadFiles
from roquette.errors import ConfigError, CorruptRecord
from roquette.message.compression import Compression, decompress
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.properties import KEYS, TAGS, UNIQ_KEY, decode_properties, property_value
from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import (
    COMPRESSED,
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    TRANSACTION_MASK,
)
from roquette.store.format.log_reader import LogReader
from roquette.store.offline.store_dir import (
    DamagedStretch,
    FileEnd,
    LogFile,
    StoreDir,
    first_record,
    walk_files,
)

# Records, units, slots and headers in plain words and JSON values.


MAX_BODY: Final = 64 << 20
_TRANSACTION: Final = {0x4: "prepared", 0x8: "commit", 0xC: "rollback"}


def plain_body(record: StoredRecord) -> tuple[bytes, str]:
    """The body as it was sent, and why that is not so ("" when it is)."""
    try:
        return decompress(record.body, record.sys_flag, MAX_BODY), ""
    except CorruptRecord as error:
        return record.body, str(error)


def flag_words(sys_flag: int) -> list[str]:
    """The system flag in words."""
    words: list[str] = []
    if sys_flag & COMPRESSED:
        kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
        known = kind in {member.value for member in Compression}
        words.append(Compression(kind).name.lower() if known else "zlib")
    transaction = _TRANSACTION.get(sys_flag & TRANSACTION_MASK)
    if transaction:
        words.append(transaction)
    return words


def host_words(host: bytes) -> str:
    """`ip:port` of a record's host."""
    try:
        return host_text(host)
    except CorruptRecord:
        return host.hex()


def record_fields(record: StoredRecord, body: str = "auto") -> dict[str, Any]:
    """Everything known of a record, as JSON values.

    Args:
        body: `auto` gives text as `body` and other bytes as `body_base64`; `base64`, `text` or `none` as they say.
    """
    properties = decode_properties(record.properties)
    offset_id = offset_message_id(record.store_host, record.physical_offset)
    found: dict[str, Any] = {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "id": properties.get(UNIQ_KEY, offset_id),
        "offset_id": offset_id,
        "tag": properties.get(TAGS),
        "keys": properties.get(KEYS, "").split(),
        "properties": properties,
        "born_ms": record.born_timestamp_ms,
        "stored_ms": record.store_timestamp_ms,
        "born_host": host_words(record.born_host),
        "store_host": host_words(record.store_host),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "flags": flag_words(record.sys_flag),
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
    }
    if body == "none":
        return found
    data, fault = plain_body(record)
    if fault:
        found["body_fault"] = fault
    text = None
    if body != "base64":
        try:
            text = data.decode("utf-8", "replace" if body == "text" else "strict")
        except UnicodeDecodeError:
            text = None
    if text is not None:
        found["body"] = text
    else:
        found["body_base64"] = base64.b64encode(data).decode()
    return found


def time_words(time_ms: int) -> str:
    """Local time with milliseconds; `-` for never, the number for what is no time."""
    if time_ms <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return str(time_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions that a message must meet; None and empty let all pass.

    Attributes:
        since_ms, until_ms: store times, both included.
        message_id: a unique id, compared without regard to case.
        body: searched in the body as it was sent.
    """

    topic: str | None = None
    queue: int | None = None
    key: str | None = None
    tag: str | None = None
    message_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    body: re.Pattern[bytes] | None = None

    def wants(self, record: StoredRecord) -> bool:
        """Is it such a message? Topic, queue and time were looked at before."""
        properties = record.properties
        if self.tag is not None and property_value(properties, TAGS) != self.tag:
            return False
        if self.key is not None and self.key not in (property_value(properties, KEYS) or "").split(
            " "
        ):
            return False
        if self.message_id is not None:
            found = property_value(properties, UNIQ_KEY) or ""
            if found.upper() != self.message_id.upper():
                return False
        return self.body is None or self.body.search(plain_body(record)[0]) is not None

    def header_filter(self) -> Callable[[LogReader], bool]:
        """The part of the query that a record's header answers, before it is decoded."""
        topic = self.topic.encode() if self.topic is not None else None
        queue = self.queue
        since = self.since_ms if self.since_ms is not None else -(1 << 62)
        until = self.until_ms if self.until_ms is not None else 1 << 62

        def wanted(reader: LogReader) -> bool:
            if queue is not None and reader.queue_id != queue:
                return False
            if not since <= reader.store_ms <= until:
                return False
            at = reader.topic_at
            return topic is None or reader.data[at : at + reader.topic_size] == topic

        return wanted


def files_of(files: ReadFiles, store: StoreDir, query: Query) -> list[LogFile]:
    """The files of the log that may hold such messages; a clock that was set back is allowed an hour."""
    if query.since_ms is None and query.until_ms is None:
        return store.log
    slack = 3_600_000
    firsts: list[int | None] = []
    for file in store.log:
        record = first_record(files, file.path, file.base, store.segment_size)
        firsts.append(record.store_timestamp_ms if record is not None else None)
    chosen: list[LogFile] = []
    for place, file in enumerate(store.log):
        first = firsts[place]
        following = firsts[place + 1] if place + 1 < len(firsts) else None
        if query.until_ms is not None and first is not None and first - slack > query.until_ms:
            continue
        since = query.since_ms
        if since is not None and following is not None and following + slack < since:
            continue
        chosen.append(file)
    return chosen


def search(
    files: ReadFiles,
    store: StoreDir,
    query: Query,
    on_file: Callable[[LogFile], None] | None = None,
    check_crc: bool = True,
) -> Iterator[StoredRecord | DamagedStretch]:
    """Messages that fit, in the order of the log, and the damaged stretches met on the way."""
    log = files_of(files, store, query)
    wanted = query.header_filter()
    for found in walk_files(
        files, log, store.segment_size, check_crc=check_crc, wanted=wanted, on_file=on_file
    ):
        if isinstance(found, FileEnd):
            continue
        if isinstance(found, DamagedStretch) or query.wants(found):
            yield found


# Messages as Parquet, a row each, in batches of bounded size. Needs pyarrow.


_BATCH_ROWS = 20_000
_BATCH_BYTES = 64 << 20


def parquet_row(record: StoredRecord) -> dict[str, Any]:
    """One message as a row."""
    properties = decode_properties(record.properties)
    body, fault = plain_body(record)
    return {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "id": properties.get(UNIQ_KEY),
        "tag": properties.get(TAGS),
        "keys": properties.get(KEYS, "").split(),
        "properties": list(properties.items()),
        "body": body,
        "body_fault": fault or None,
        "born": record.born_timestamp_ms,
        "stored": record.store_timestamp_ms,
        "born_host": host_words(record.born_host),
        "store_host": host_words(record.store_host),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
    }


def write_parquet(records: Iterable[StoredRecord], path: str) -> int:
    """Write a Parquet file; returns how many rows it has.

    Raises:
        ConfigError: pyarrow is not installed. OSError: the file cannot be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed: pip install 'roquette[spark]' or pip install pyarrow, "
            "or take --format jsonl"
        ) from None
    time = pa.timestamp("ms", tz="UTC")
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("queue", pa.int32()),
            ("offset", pa.int64()),
            ("physical_offset", pa.int64()),
            ("id", pa.string()),
            ("tag", pa.string()),
            ("keys", pa.list_(pa.string())),
            ("properties", pa.map_(pa.string(), pa.string())),
            ("body", pa.binary()),
            ("body_fault", pa.string()),
            ("born", time),
            ("stored", time),
            ("born_host", pa.string()),
            ("store_host", pa.string()),
            ("flag", pa.int32()),
            ("sys_flag", pa.int32()),
            ("reconsume_times", pa.int32()),
            ("prepared_offset", pa.int64()),
        ]
    )
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        rows: list[dict[str, Any]] = []
        size = 0
        for record in records:
            rows.append(parquet_row(record))
            size += len(rows[-1]["body"])
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                count += len(rows)
                rows, size = [], 0
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count
