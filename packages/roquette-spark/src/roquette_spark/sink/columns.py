"""Arrow columns of a write as Python lists of bytes, and Java's hash of a whole column."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.base.javatypes import java_hash
from roquette.errors import RoquetteError

_SEPARATORS = (b"\x01", b"\x02")
_LONGEST_HASHED_AT_ONCE = 256


class BadRow(RoquetteError):
    """A row cannot become a message: which row, and what to do."""


def bytes_list(column: pa.Array) -> list[bytes | None]:
    """The values of a string or binary column; None where it is null."""
    values, spans = _spans(column)
    found: list[bytes | None] = [values[start:end] for start, end in pairwise(spans.tolist())]
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            found[row] = None
    return found


def text_list(column: pa.Array, name: str, first_row: int) -> list[bytes | None]:
    """`bytes_list` of what becomes part of a property string. Raises BadRow for its separators."""
    found = bytes_list(column)
    values, _ = _spans(column)
    if any(separator in values for separator in _SEPARATORS):
        for row, value in enumerate(found):
            if value is not None and any(separator in value for separator in _SEPARATORS):
                raise BadRow(
                    f"rocketmq: row {first_row + row}: {name} holds a control character (1 or 2) that "
                    "RocketMQ uses as separator"
                )
    return found


def number_list(column: pa.Array) -> list[int | None]:
    """The values of an integer column; None where it is null."""
    if column.null_count == 0:
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist())


def millisecond_list(column: pa.Array) -> list[int | None]:
    """The values of a timestamp or bigint column as milliseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        column = pc.floor_temporal(column, unit="millisecond").cast(
            pa.timestamp("ms", tz=column.type.tz)
        )
        column = column.cast(pa.int64())
    return number_list(column)


def joined_list(column: pa.Array, name: str, first_row: int) -> list[bytes | None]:
    """Each row's list of strings, joined by spaces; None where there is none."""
    words = text_list(column.flatten(), name, first_row)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    found: list[bytes | None] = []
    for start, end in pairwise(ends.tolist()):
        row = [word for word in words[start:end] if word]
        if any(b" " in word for word in row):
            raise BadRow(_space(name, first_row + len(found)))
        found.append(b" ".join(row) if row else None)
    return found


def check_spaces(values: list[bytes | None], name: str, first_row: int) -> None:
    """Raise BadRow for a key with a space in it."""
    for row, value in enumerate(values):
        if value is not None and b" " in value:
            raise BadRow(_space(name, first_row + row))


def _space(name: str, row: int) -> str:
    return (
        f"rocketmq: row {row}: {name} holds a space, which RocketMQ takes for the end of a key; "
        "replace it, or send the text as a property"
    )


def property_list(
    column: pa.Array, reserved: frozenset[str], dropped: frozenset[str], first_row: int
) -> list[bytes]:
    """Each row's properties as a property string. Properties without a value are left out: they do not exist.

    Raises:
        BadRow: a name is RocketMQ's own, or a separator is in a name or value.
    """
    counts = pc.fill_null(_map_lengths(column), 0).to_numpy(zero_copy_only=False)
    entries = _entries(column)
    names, values = entries.field(0), entries.field(1)
    own = sorted(set(pc.unique(names).to_pylist()) & reserved)
    if own:
        row = _row_of(names, own[0], counts)
        raise BadRow(
            f"rocketmq: row {first_row + row}: the property {own[0]} is RocketMQ's own; there are columns for "
            "keys, tags, message_group and delays, leave the rest out (includeSystemProperties=false when read)"
        )
    unwanted = frozenset(name.encode() for name in dropped)
    pairs = [
        b"%b\x01%b\x02" % (name, value) if name and value and name not in unwanted else b""
        for name, value in zip(
            text_list(names, "a property's name", first_row),
            text_list(values, "a property", first_row),
            strict=True,
        )
    ]
    ends = np.concatenate(([0], np.cumsum(counts))).tolist()
    return [b"".join(pairs[start:end]) for start, end in pairwise(ends)]


def _map_lengths(column: pa.Array) -> pa.Array:
    offsets = np.asarray(column.offsets)
    lengths = pa.array(np.diff(offsets))
    return pc.if_else(column.is_valid(), lengths, pa.scalar(0, lengths.type))


def _entries(column: pa.Array) -> pa.StructArray:
    """Names and values of the rows that are there; what null rows cover is left out."""
    offsets = np.asarray(column.offsets)
    keys, items = column.keys, column.items
    if column.null_count:
        kept = np.concatenate(
            [np.arange(0)]
            + [
                np.arange(start, end)
                for (start, end), valid in zip(
                    pairwise(offsets.tolist()), column.is_valid().to_pylist(), strict=True
                )
                if valid
            ]
        ).astype(np.int64)
        index = pa.array(kept)
        return pa.StructArray.from_arrays([keys.take(index), items.take(index)], ["k", "v"])
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return pa.StructArray.from_arrays(
        [keys.slice(start, length), items.slice(start, length)], ["k", "v"]
    )


def _row_of(names: pa.Array, name: str, counts: np.ndarray) -> int:
    position = pc.index(names, pa.scalar(name, names.type)).as_py()
    return int(np.searchsorted(np.cumsum(counts), position, side="right"))


def java_hashes(column: pa.Array) -> np.ndarray:
    """`String.hashCode` of each value of a string column, as int64; of null it is 0."""
    values, spans = _spans(column)
    data = np.frombuffer(values, np.uint8)
    lengths = np.diff(spans)
    longest = int(lengths.max()) if len(lengths) else 0
    if longest > _LONGEST_HASHED_AT_ONCE or (len(data) and int(data.max()) > 127):
        exact: np.ndarray = np.array(
            [java_hash((value or b"").decode()) for value in bytes_list(column)], np.int64
        )
        return exact
    hashes: np.ndarray = np.zeros(len(lengths), np.uint32)
    starts = spans[:-1]
    for position in range(longest):
        rows = np.flatnonzero(lengths > position)
        hashes[rows] = hashes[rows] * np.uint32(31) + data[starts[rows] + position]
    signed: np.ndarray = hashes.astype(np.int32).astype(np.int64)
    return signed


def _spans(column: pa.Array) -> tuple[bytes, np.ndarray]:
    """All bytes of a column, and where its values begin and end in them."""
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
        kind = column.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    width = np.dtype(np.int64 if large else np.int32)
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return b"", np.zeros(len(column) + 1, np.int64)
    spans = np.frombuffer(offsets, width, len(column) + 1, column.offset * width.itemsize)
    spans = spans.astype(np.int64)
    first, last = int(spans[0]), int(spans[-1])
    values = b"" if data is None else memoryview(data)[first:last].tobytes()
    return values, spans - first
