"""Pieces of a buffer as numpy rows and Arrow arrays, without an object for each.

Pieces of one size, as most fields of a producer's messages are, are copied by numpy, evenly spaced ones without an index;
pieces of any size are taken by Arrow.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Bytes: TypeAlias = "bytes | np.ndarray"  # of single bytes, in one piece


def rows_of(data: Bytes, starts: np.ndarray, size: int) -> np.ndarray:
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


def joined(rows: np.ndarray) -> np.ndarray:
    """Rows of bytes, one after the other: themselves where they lie so."""
    whole: np.ndarray = np.ascontiguousarray(rows.view(f"V{rows.shape[1]}")[:, 0]).view(np.uint8)
    return whole


def one_size(starts: np.ndarray, ends: np.ndarray) -> int:
    """The size that all pieces have; -1 when they differ or there are none."""
    if not len(starts):
        return -1
    sizes = ends - starts
    first = int(sizes[0])
    return first if (sizes == first).all() else -1


def cut(
    data: Bytes, starts: np.ndarray, ends: np.ndarray, kind: pa.DataType | None = None
) -> pa.Array:
    """The pieces of `data` from each start to its end, of an Arrow type of binary (the default) or string.

    Args:
        starts: ascending, as the ends are; no piece overlaps the next.
    """
    kind = kind or pa.binary()
    size = one_size(starts, ends)
    if size >= 0:
        return sized_array(
            joined(rows_of(data, starts, size)) if size else b"", size, len(starts), kind
        )
    bounds: np.ndarray = np.empty(2 * len(starts), dtype=np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    return take_pieces(pieces(data, bounds, kind), np.arange(0, len(bounds), 2))


def pieces(data: Bytes, bounds: np.ndarray, kind: pa.DataType) -> pa.Array:
    """All there is between ascending bounds and the next ones, uncopied."""
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, max(0, len(bounds) - 1), buffers)


def take_pieces(texts: pa.Array, which: np.ndarray) -> pa.Array:
    """Those of these numbers, copied; the numbers are not checked."""
    return pc.take(texts, pa.array(which), boundscheck=False)


def sized_array(data: Bytes, size: int, count: int, kind: pa.DataType) -> pa.Array:
    """`count` values of `size` bytes each that lie one after the other in `data`."""
    offsets: np.ndarray = (
        np.arange(0, count * size + 1, size, dtype=np.int32)
        if size
        else np.zeros(count + 1, np.int32)
    )
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def repeated(texts: Sequence[str], count: int) -> pa.Array:
    """These texts in their order, `count` times."""
    raw = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in raw], dtype=np.int64)
    total = int(ends[-1]) if raw else 0
    offsets: np.ndarray = np.zeros(count * len(raw) + 1, dtype=np.int32)
    offsets[1:] = (np.arange(count)[:, None] * total + ends).reshape(-1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw) * count)]
    return pa.Array.from_buffers(pa.string(), count * len(raw), buffers)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Where each of these lengths begins, and where the last ends, as Arrow counts."""
    offsets: np.ndarray = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
