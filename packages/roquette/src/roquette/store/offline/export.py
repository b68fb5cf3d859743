"""Messages as Parquet, a row each, in batches of bounded size. Needs pyarrow."""

from collections.abc import Iterable
from typing import Any

from roquette.errors import ConfigError
from roquette.message.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.store.offline.describe import host_words, plain_body

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
