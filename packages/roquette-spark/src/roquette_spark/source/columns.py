"""Slices of a buffer as numpy rows and Arrow arrays, without an object for each; where records begin in one.

Slices of one size, as most fields of a producer's messages are, are copied by numpy, evenly spaced ones without an
index; slices of any size are taken by Arrow.
"""

import struct
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import CorruptRecord
from roquette.message.record_layout import SMALLEST_RECORD

_read_size = struct.Struct(">i").unpack_from
_REPEATS = 8  # equal sizes after which a run is looked for
_WORTH = 64  # records that a run must have more than these; after a shorter one the next look waits twice as long

Bytes: TypeAlias = "bytes | np.ndarray"  # of single bytes, in one piece


def rows_at(data: Bytes, starts: np.ndarray, size: int) -> np.ndarray:
    """`size` bytes from each start as a row: a view where the starts are evenly spaced, else a copy.

    Args:
        starts: within `data`, as are the bytes they begin; at least one byte is asked for.
    """
    count = len(starts)
    if not count:
        return np.empty((0, size), dtype=np.uint8)
    first = int(starts[0])
    step = int(starts[1]) - first if count > 1 else size
    if step > 0 and (np.diff(starts) == step).all():
        return np.ndarray((count, size), np.uint8, data, first, (step, 1))
    windows: np.ndarray = np.ndarray(len(data) - size + 1, f"V{size}", data, 0, (1,))
    rows: np.ndarray = windows[starts].view(np.uint8).reshape(count, size)
    return rows


def contiguous(rows: np.ndarray) -> np.ndarray:
    """Concatenate rows; returns the input when it is already contiguous."""
    whole: np.ndarray = np.ascontiguousarray(rows.view(f"V{rows.shape[1]}")[:, 0]).view(np.uint8)
    return whole


def uniform_size(starts: np.ndarray, ends: np.ndarray) -> int:
    """The size that all slices have; -1 if they differ or there are none."""
    if not len(starts):
        return -1
    sizes = ends - starts
    first = int(sizes[0])
    return first if (sizes == first).all() else -1


def slice_array(
    data: Bytes, starts: np.ndarray, ends: np.ndarray, kind: pa.DataType | None = None
) -> pa.Array:
    """The slices of `data` from each start to its end, of an Arrow type of binary (the default) or string.

    Args:
        starts: ascending, as the ends are; no slice overlaps the next.
    """
    kind = kind or pa.binary()
    size = uniform_size(starts, ends)
    if size >= 0:
        return equal_sized_array(
            contiguous(rows_at(data, starts, size)) if size else b"", size, len(starts), kind
        )
    bounds: np.ndarray = np.empty(2 * len(starts), dtype=np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    return take_unchecked(adjacent_slices(data, bounds, kind), np.arange(0, len(bounds), 2))


def adjacent_slices(data: Bytes, bounds: np.ndarray, kind: pa.DataType) -> pa.Array:
    """The slices between each of the ascending bounds and the next, without a copy."""
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, max(0, len(bounds) - 1), buffers)


def take_unchecked(texts: pa.Array, which: np.ndarray) -> pa.Array:
    """Copies of the texts at these indices; the indices are not checked."""
    return pc.take(texts, pa.array(which), boundscheck=False)


def equal_sized_array(data: Bytes, size: int, count: int, kind: pa.DataType) -> pa.Array:
    """`count` values of `size` bytes each that lie one after the other in `data`."""
    offsets: np.ndarray = (
        np.arange(0, count * size + 1, size, dtype=np.int32)
        if size
        else np.zeros(count + 1, np.int32)
    )
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def repeated_texts(texts: Sequence[str], count: int) -> pa.Array:
    """These texts in their order, `count` times."""
    raw = [text.encode() for text in texts]
    if len(raw) == 1:
        return equal_sized_array(raw[0] * count, len(raw[0]), count, pa.string())
    ends = np.cumsum([len(text) for text in raw], dtype=np.int64)
    total = int(ends[-1]) if raw else 0
    offsets: np.ndarray = np.zeros(count * len(raw) + 1, dtype=np.int32)
    offsets[1:] = (np.arange(count)[:, None] * total + ends).reshape(-1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw) * count)]
    return pa.Array.from_buffers(pa.string(), count * len(raw), buffers)


def offsets_from_lengths(lengths: np.ndarray) -> np.ndarray:
    """Return the start of each of these lengths, and the end of the last, as Arrow counts."""
    offsets: np.ndarray = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def record_starts(data: bytes) -> np.ndarray:
    """Start positions of all records. Raises CorruptRecord when sizes do not add up to all of the data."""
    positions, end = leading_records(data, len(data))
    if end < len(data):
        size = _read_size(data, end)[0] if len(data) - end >= 4 else 0
        raise CorruptRecord(f"record at {end} of {len(data)} bytes has size {size}")
    return positions


def leading_records(data: bytes, stop: int) -> tuple[np.ndarray, int]:
    """Start positions of consecutive whole records before `stop`, and where the last one ends.

    Only sizes are read; the records are checked later, many at once. Records of one size in a row, as a producer's
    often are, are found together.
    """
    runs: list[np.ndarray] = []
    starts: list[int] = []
    position, limit = 0, len(data)
    stop = min(stop, limit - SMALLEST_RECORD + 1)
    read_size, add, smallest = _read_size, starts.append, SMALLEST_RECORD
    last, repeats, enough = 0, 0, _REPEATS
    while position < stop:
        (size,) = read_size(data, position)
        if size < smallest or position + size > limit:
            break
        add(position)
        position += size
        if size != last:
            last, repeats = size, 0
        elif (repeats := repeats + 1) >= enough:
            after = _end_of_run(data, position, stop, size)
            repeats, enough = 0, _REPEATS if after - position >= _WORTH * size else 2 * enough
            runs += np.array(starts, dtype=np.int64), np.arange(position, after, size)
            starts.clear()
            position = after
    runs.append(np.array(starts, dtype=np.int64))
    return np.concatenate(runs) if len(runs) > 1 else runs[0], position


def _end_of_run(data: bytes, start: int, stop: int, size: int) -> int:
    """Return the end of the whole records of exactly this size that follow each other from `start` on, begun before `stop`."""
    most = min(-(-(stop - start) // size), (len(data) - start) // size)
    count = 64
    while most > 0:
        count = min(count, most)
        sizes: np.ndarray = np.ndarray(count, ">i4", data, start, (size,))
        others = np.flatnonzero(sizes != size)
        if len(others):
            return start + int(others[0]) * size
        start += count * size
        most -= count
        count *= 4
    return start
