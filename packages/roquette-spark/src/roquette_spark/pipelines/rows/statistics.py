"""Statistics of a Parquet file as a Delta log has them: readers skip files that cannot have what they ask for. Pure."""

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow.parquet as pq

MOST_COLUMNS = 32  # Delta's default; columns of ours, which begin with "_", come on top
_TEXT = 32  # characters of a bound
_LAST = "\U0010ffff"  # no character is greater
_JSON = msgspec.json.Encoder(decimal_format="number")


def file_statistics(metadata: pq.FileMetaData, *, without: Collection[str] = ()) -> str:
    """JSON of numRecords, minValues, maxValues and nullCount.

    Args:
        without: columns that get no bounds: those with NaN, which Parquet's bounds leave out.
    """
    found: dict[str, Any] = {
        "numRecords": metadata.num_rows,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
    }
    shown = 0
    for index in range(metadata.num_columns):
        path = metadata.schema.column(index).path.split(".")
        if not path[-1].startswith("_"):
            shown += 1
            if shown > MOST_COLUMNS:
                continue
        if metadata.schema.column(index).max_repetition_level:
            continue  # what is in lists has no bounds
        _add_column(found, metadata, index, path, bounds=path[0] not in without)
    return encode_statistics(found)


def encode_statistics(found: Mapping[str, Any]) -> str:
    """As JSON in Delta's words, of times and decimals too."""
    return _JSON.encode(found).decode()


def _add_column(
    found: dict[str, Any], metadata: pq.FileMetaData, index: int, path: list[str], *, bounds: bool
) -> None:
    parts = [
        metadata.row_group(group).column(index).statistics
        for group in range(metadata.num_row_groups)
    ]
    if not parts or any(part is None for part in parts):
        return
    if all(part.has_null_count for part in parts):
        _put(found["nullCount"], path, sum(part.null_count for part in parts))
    some = [part for part in parts if part.num_values]
    if not bounds or not some or not all(part.has_min_max for part in some):
        return
    least = _lower(min(part.min for part in some))
    most = _upper(max(part.max for part in some))
    if least is not None and most is not None:
        _put(found["minValues"], path, least)
        _put(found["maxValues"], path, most)


def _put(target: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


def _lower(value: Any) -> Any:
    """A bound that no value is below; None where the log has none."""
    return value[:_TEXT] if isinstance(value, str) else _exact(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _TEXT else value[:_TEXT] + _LAST
    return _exact(value)


def _exact(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    return value
