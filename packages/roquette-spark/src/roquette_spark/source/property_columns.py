"""The property strings of many records as Arrow arrays, without a Python object per property.

    name 0x01 value 0x02 | name 0x01 value 0x02 | ...          (protocol: message property string)

Well-formed strings are cut up by numpy in one go, those with the same names in all rows by counting;
anything odd takes the slow, exact path.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.message.properties import decode_properties
from roquette_spark.source.columns import (
    Bytes,
    adjacent_slices,
    contiguous,
    offsets_from_lengths,
    repeated_texts,
    rows_at,
    slice_array,
    take_unchecked,
    uniform_size,
)

_NAME = 1
_VALUE = 2


class Properties(Protocol):
    """All properties of many rows."""

    def has(self, name: str) -> np.ndarray | None:
        """Return which rows have that property; None: no row."""
        ...

    def column(self, name: str) -> pa.Array:
        """One string per row: the value of that property, null where it is missing."""
        ...

    def maps(self, *, without: frozenset[str]) -> pa.Array:
        """One map per row, of the properties that are not in `without`."""
        ...


def property_columns(data: bytes, starts: np.ndarray, ends: np.ndarray) -> Properties:
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

    __slots__ = ("_codes", "_count", "_row_count", "_rows", "_stride", "_texts", "_words")

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
        """Return True if some row has a name twice."""
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
