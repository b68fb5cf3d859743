"""Slices of a buffer as numpy rows and Arrow arrays, without an object for each; where records begin in one.

Slices of one size, as most fields of a producer's messages are, are copied by numpy, evenly spaced ones without an
index; slices of any size are taken by Arrow.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import CorruptRecord
from roquette.message.properties import decode_properties
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


# The property strings of many records as Arrow arrays, without a Python object per property.
# name 0x01 value 0x02 | name 0x01 value 0x02 | ... (protocol: message property string)
# Well-formed strings are cut up by numpy in one go, those with the same names in all rows by counting; anything odd takes the slow, exact path.


_NAME = 1
_VALUE = 2


def property_columns(data: bytes, starts: np.ndarray, ends: np.ndarray) -> "Properties":
    """The properties of rows whose property strings lie between these places of `data`, which ascend."""
    size = uniform_size(starts, ends)
    if size > 0 and (found := from_equal_sized_rows(data, starts, size)):
        return found
    sections = slice_array(data, starts, ends)
    entries = _find_entries(sections)
    if entries is not None:
        if found := from_separators(*entries):
            return found
        columns = VariedProperties(*_texts_of(entries), len(sections))
        if not columns.has_repeated_names():  # the last one counts: a map does that
            return columns
    return VariedProperties(*_parse_slow(sections), len(sections))


@dataclass(frozen=True, slots=True)
class UniformProperties:
    """Properties of rows that all have the same names in the same order, as messages of one producer have.

    `spans`: where in `data` the value of each name lies in each row; values are text.
    """

    data: Bytes
    row_count: int
    spans: dict[str, tuple[np.ndarray, np.ndarray]]

    def has(self, name: str) -> np.ndarray | None:
        """Return which rows have that property; None: no row."""
        return np.ones(self.row_count, dtype=bool) if name in self.spans else None

    def column(self, name: str) -> pa.Array:
        """One string per row: the value of that property, null where it is missing."""
        if name not in self.spans:
            return pa.nulls(self.row_count, pa.string())
        return slice_array(self.data, *self.spans[name], pa.string())

    def maps(self, *, without: frozenset[str]) -> pa.Array:
        """One map per row, of the properties that are not in `without`."""
        inside = [name for name in self.spans if name not in without]
        if len(inside) == 1:
            values = self.column(inside[0])
        else:
            starts, ends = (
                np.array([self.spans[name][which] for name in inside]).T.reshape(-1)
                for which in (0, 1)
            )
            values = slice_array(self.data, starts, ends, pa.string())
        offsets = pa.array(np.arange(self.row_count + 1, dtype=np.int32) * len(inside))
        names = repeated_texts(inside, self.row_count)
        return pa.MapArray.from_arrays(offsets, names, values)


def from_equal_sized_rows(data: Bytes, starts: np.ndarray, size: int) -> UniformProperties | None:
    """For property strings of one size: None when they differ in more than values, or are not plain ASCII."""
    rows = contiguous(rows_at(data, starts, size)).reshape(-1, size)
    low, high = _folded(rows, np.minimum), _folded(rows, np.maximum)
    same = low == high
    if high.max() >= 0x80 or (low[~same] <= _VALUE).any():
        return None
    spans: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    name_end = bytes((_NAME,))
    at = 0
    *entries, rest = rows[0].tobytes().split(bytes((_VALUE,)))
    for entry in entries:
        name, _, value = entry.partition(name_end)
        if not name or not value or name_end in value or not same[at : at + len(name)].all():
            return None
        value_at = at + len(name) + 1
        spans[name.decode()] = starts + value_at, starts + (value_at + len(value))
        at += len(entry) + 1
    return (
        None if rest or len(spans) < len(entries) else UniformProperties(data, len(starts), spans)
    )


def _folded(rows: np.ndarray, by: np.ufunc) -> np.ndarray:
    """One row of all by halves, for an operation to which a value may come twice; `reduce` goes row by row."""
    while len(rows) > 1:
        half = (len(rows) + 1) // 2
        rows = by(rows[:half], rows[-half:])
    return rows[0]


def from_separators(
    data: Bytes, starts: np.ndarray, middles: np.ndarray, ends: np.ndarray, section_ends: np.ndarray
) -> UniformProperties | None:
    """For entries that begin, end their names and end at these places of whole, sound property strings."""
    row_count = len(section_ends)
    each, more = divmod(len(ends), row_count)
    if not each or more or not np.array_equal(ends[each - 1 :: each] + 1, section_ends):
        return None
    spans: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for number in range(each):
        first, after = starts[number::each], middles[number::each]
        size = uniform_size(first, after)
        if size < 0:
            return None
        names = contiguous(rows_at(data, first, size)).tobytes()
        if names != names[:size] * row_count:
            return None
        spans[names[:size].decode()] = after + 1, ends[number::each]
    return UniformProperties(data, row_count, spans) if len(spans) == each else None


class VariedProperties:
    """Properties of rows of which each has names of its own.

    Args:
        texts: name i is text i * `stride`, its value the text half a stride behind it.
        rows: the row of each name.
    """

    def __init__(self, texts: pa.Array, stride: int, rows: np.ndarray, row_count: int) -> None:
        self._texts, self._stride, self._rows, self._row_count = texts, stride, rows, row_count
        self._count = -(-len(texts) // stride)
        encoded = self._take(np.arange(self._count), value=False).dictionary_encode()
        self._words = {word: code for code, word in enumerate(encoded.dictionary.to_pylist())}
        self._codes: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)

    def _take(self, which: np.ndarray, *, value: bool) -> pa.Array:
        return take_unchecked(
            self._texts, which * self._stride + (self._stride // 2 if value else 0)
        )

    def has_repeated_names(self) -> bool:
        if not self._count:
            return False
        keys = self._rows * len(self._words) + self._codes
        if self._row_count * len(self._words) <= 4_000_000:
            return bool(np.bincount(keys).max() > 1)
        return len(np.unique(keys)) < len(keys)

    def has(self, name: str) -> np.ndarray | None:
        """Return which rows have that property; None: no row."""
        code = self._words.get(name)
        if code is None:
            return None
        found: np.ndarray = np.zeros(self._row_count, dtype=bool)
        found[self._rows[self._codes == code]] = True
        return found

    def column(self, name: str) -> pa.Array:
        """One string per row: the value of that property, null where it is missing."""
        code = self._words.get(name)
        if code is None:
            return pa.nulls(self._row_count, pa.string())
        hits = np.flatnonzero(self._codes == code)
        if len(hits) == self._row_count:
            return self._take(hits, value=True)
        index: np.ndarray = np.zeros(self._row_count, dtype=np.int64)
        missing: np.ndarray = np.ones(self._row_count, dtype=bool)
        index[self._rows[hits]] = hits
        missing[self._rows[hits]] = False
        places = pa.array(index * self._stride + self._stride // 2, mask=missing)
        return pc.take(self._texts, places, boundscheck=False)

    def maps(self, *, without: frozenset[str]) -> pa.Array:
        """One map per row, of the properties that are not in `without`."""
        dropped = [code for word, code in self._words.items() if word in without]
        kept = np.flatnonzero(~np.isin(self._codes, dropped))
        counts = np.bincount(self._rows[kept], minlength=self._row_count)
        return pa.MapArray.from_arrays(
            pa.array(offsets_from_lengths(counts)),
            self._take(kept, value=False),
            self._take(kept, value=True),
        )


Properties: TypeAlias = UniformProperties | VariedProperties


class _Entries(NamedTuple):
    """Places where each entry begins, ends its name and ends, and where each row's string ends."""

    data: np.ndarray
    starts: np.ndarray
    middles: np.ndarray
    ends: np.ndarray
    section_ends: np.ndarray


def _find_entries(sections: pa.Array) -> _Entries | None:
    """None when a section is not strictly name, 1, value, 2, ... or is not UTF-8."""
    if not len(sections):
        return None
    section_ends = np.frombuffer(sections.buffers()[1], dtype=np.int32)[1 : len(sections) + 1]
    data = np.frombuffer(sections.buffers()[2] or b"", dtype=np.uint8)[: int(section_ends[-1])]
    if len(data) and data.max() >= 0x80 and not _is_utf8(data.tobytes()):
        return None
    marks = np.flatnonzero((data == _NAME) | (data == _VALUE))
    middles, ends = marks[0::2], marks[1::2]
    if len(middles) != len(ends) or np.any(data[middles] != _NAME) or np.any(data[ends] != _VALUE):
        return None
    starts: np.ndarray = np.zeros(len(ends), dtype=np.int64)
    starts[1:] = ends[:-1] + 1
    # Each entry needs a name and a value, and each section that is not empty must end with 0x02.
    if not (np.all(starts < middles) and np.all(middles + 1 < ends)):
        return None
    if not np.all(data[section_ends[section_ends > 0] - 1] == _VALUE):
        return None
    return _Entries(data, starts, middles, ends, section_ends)


def _texts_of(entries: _Entries) -> tuple[pa.Array, int, np.ndarray]:
    """Texts, stride and rows as `VariedProperties` wants them."""
    count, section_ends = len(entries.ends), entries.section_ends
    bounds: np.ndarray = np.empty(4 * count, dtype=np.int32)
    bounds[0::4], bounds[1::4] = entries.starts, entries.middles
    bounds[2::4], bounds[3::4] = entries.middles + 1, entries.ends
    below = np.searchsorted(entries.ends, section_ends, side="left")
    rows: np.ndarray = np.repeat(np.arange(len(section_ends)), np.diff(below, prepend=0))
    return adjacent_slices(entries.data, bounds, pa.string()), 4, rows


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_slow(sections: pa.Array) -> tuple[pa.Array, int, np.ndarray]:
    maps = [
        decode_properties(section.decode("utf-8", "replace")) for section in sections.to_pylist()
    ]
    rows: np.ndarray = np.repeat(np.arange(len(maps)), [len(m) for m in maps])
    texts = [text for m in maps for entry in m.items() for text in entry]
    return pa.array(texts, pa.string()), 2, rows


def first_words(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Space separated texts as lists, and the first word of each; null stays null."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.list_(pa.string())), texts
    end = np.frombuffer(texts.buffers()[1], dtype=np.int32)[len(texts)]
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[:end]
    # One word each: no white space, and no letter beyond ASCII, of which some are white space, too.
    if not len(data) or (data.min() > 0x20 and data.max() < 0x80):
        valid = texts.is_valid()
        offsets = pa.array(offsets_from_lengths(valid.to_numpy(zero_copy_only=False)))
        mask = pc.invert(valid) if texts.null_count else None
        return pa.ListArray.from_arrays(offsets, texts.drop_null(), mask=mask), texts
    lists = pc.utf8_split_whitespace(texts)
    filled = pc.if_else(pc.greater(pc.list_value_length(lists), 0), lists, None)
    return lists, pc.list_element(filled, 0)
