"""The property strings of many records as Arrow arrays, without a Python object per property.

    name 0x01 value 0x02 | name 0x01 value 0x02 | ...          (protocol: message property string)

Well-formed strings are cut up by numpy in one go; anything odd takes the slow, exact path. Where all rows have
the same names in the same order, as messages of one producer have, a property is found by counting.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.message.properties import decode_properties

_NAME = 1
_VALUE = 2


class PropertyColumns:
    """All properties of many rows.

    Args:
        sections: each row's property string, a binary array.
    """

    __slots__ = ("_codes", "_count", "_layout", "_rows", "_stride", "_texts", "_words", "row_count")

    def __init__(self, sections: pa.Array) -> None:
        self.row_count = len(sections)
        # Name i is text i * stride, its value the text half a stride behind it.
        self._texts, self._stride, self._rows = _parse_fast(sections) or _parse_slow(sections)
        self._count = -(-len(self._texts) // self._stride)
        self._layout = self._find_layout()
        self._index_names()
        if self._stride == 4 and self._has_repeated_names():  # the last one counts: a map does that
            self._texts, self._stride, self._rows = _parse_slow(sections)
            self._count = len(self._texts) // 2
            self._layout = None
            self._index_names()

    def _take(self, which: np.ndarray, *, value: bool) -> pa.Array:
        places: np.ndarray = which * self._stride + (self._stride // 2 if value else 0)
        return pc.take(self._texts, pa.array(places), boundscheck=False)

    def _find_layout(self) -> list[str] | None:
        """The names of every row, when they are the same for all."""
        rows, count = self.row_count, self._count
        if (
            not count
            or count % rows
            or not np.array_equal(self._rows[:: count // rows], np.arange(rows))
        ):
            return None
        each = count // rows
        if not np.array_equal(self._rows[each - 1 :: each], np.arange(rows)):
            return None
        names = self._take(np.arange(count), value=False)
        lengths = _lengths(names).reshape(rows, each)
        if not (lengths == lengths[0]).all():
            return None
        data = np.frombuffer(names.buffers()[2], dtype=np.uint8)[: int(lengths.sum())]
        data = data.reshape(rows, -1)
        found: list[str] = names[:each].to_pylist()
        return found if len(set(found)) == each and (data == data[0]).all() else None

    def _index_names(self) -> None:
        self._words: dict[str, int] = {}
        self._codes: np.ndarray = np.zeros(0, dtype=np.int32)
        if self._layout is not None:
            self._words = {word: code for code, word in enumerate(self._layout)}
        elif self._count:
            encoded = self._take(np.arange(self._count), value=False).dictionary_encode()
            self._words = {word: code for code, word in enumerate(encoded.dictionary.to_pylist())}
            self._codes = encoded.indices.to_numpy(zero_copy_only=False)

    def _has_repeated_names(self) -> bool:
        if self._layout is not None or not self._count:
            return False
        keys = self._rows * len(self._words) + self._codes
        if self.row_count * len(self._words) <= 4_000_000:
            return bool(np.bincount(keys).max() > 1)
        return len(np.unique(keys)) < len(keys)

    def column(self, name: str) -> pa.Array:
        """One string per row: the value of that property, null where it is missing."""
        code = self._words.get(name)
        if code is None:
            return pa.nulls(self.row_count, pa.string())
        if self._layout is not None:
            return self._take(np.arange(code, self._count, len(self._layout)), value=True)
        hits = np.flatnonzero(self._codes == code)
        if len(hits) == self.row_count:
            return self._take(hits, value=True)
        index: np.ndarray = np.zeros(self.row_count, dtype=np.int64)
        missing: np.ndarray = np.ones(self.row_count, dtype=bool)
        index[self._rows[hits]] = hits
        missing[self._rows[hits]] = False
        places = pa.array(index * self._stride + self._stride // 2, mask=missing)
        return pc.take(self._texts, places, boundscheck=False)

    def maps(self, *, without: frozenset[str]) -> pa.Array:
        """One map per row, of the properties that are not in `without`."""
        if self._layout is not None:
            inside = [code for code, word in enumerate(self._layout) if word not in without]
            starts: np.ndarray = np.arange(self.row_count) * len(self._layout)
            kept = (starts[:, None] + np.array(inside, dtype=np.int64)).reshape(-1)
            counts: np.ndarray = np.full(self.row_count, len(inside))
        else:
            dropped = [code for word, code in self._words.items() if word in without]
            kept = np.flatnonzero(~np.isin(self._codes, dropped))
            counts = np.bincount(self._rows[kept], minlength=self.row_count)
        return pa.MapArray.from_arrays(
            pa.array(_offsets(counts)), self._take(kept, value=False), self._take(kept, value=True)
        )


def cut(data: bytes | np.ndarray, bounds: np.ndarray, step: int, first: int) -> pa.Array:
    """The pieces of `data` between bounds `first` and the next, `first + step` and the next, ..., as binary.

    Args:
        bounds: ascending positions; the pieces between them are cut by Arrow, and only those asked for.
    """
    return pc.take(
        _pieces(data, bounds, pa.binary()),
        pa.array(np.arange(first, max(0, len(bounds) - 1), step)),
        boundscheck=False,
    )


def _pieces(data: bytes | np.ndarray, bounds: np.ndarray, kind: pa.DataType) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, max(0, len(bounds) - 1), buffers)


def only_value(texts: pa.Array) -> bytes | None:
    """The value that all rows of a binary array have; None when they differ or there is none."""
    if not len(texts):
        return None
    lengths = _lengths(texts)
    data = np.frombuffer(texts.buffers()[2], dtype=np.uint8)[: int(lengths.sum())]
    if not (lengths == lengths[0]).all() or not lengths[0]:
        return None
    rows = data.reshape(len(texts), -1)
    return rows[0].tobytes() if (rows == rows[0]).all() else None


def _lengths(texts: pa.Array) -> np.ndarray:
    """Of a fresh string or binary array without offset."""
    assert texts.offset == 0
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[: len(texts) + 1]
    lengths: np.ndarray = np.diff(offsets)
    return lengths


def string_array(data: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Texts of these lengths that lie one after the other in `data`, as an Arrow array."""
    buffers = [None, pa.py_buffer(_offsets(lengths)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets: np.ndarray = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _parse_fast(sections: pa.Array) -> tuple[pa.Array, int, np.ndarray] | None:
    """Texts, stride and rows; None when a section is not strictly name, 1, value, 2, ... or is not UTF-8."""
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
    bounds: np.ndarray = np.zeros(4 * len(ends), dtype=np.int64)
    bounds[1::4], bounds[2::4], bounds[3::4] = middles, middles + 1, ends
    starts = bounds[0::4]
    starts[1:] = ends[:-1] + 1
    # Each entry needs a name and a value, and each section that is not empty must end with 0x02.
    if not (np.all(starts < middles) and np.all(middles + 1 < ends)):
        return None
    if len(data) and not np.all(data[section_ends[section_ends > 0] - 1] == _VALUE):
        return None
    return _pieces(data, bounds, pa.string()), 4, _rows_of(section_ends, ends)


def _rows_of(section_ends: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The row of each entry."""
    rows, count = len(section_ends), len(ends)
    if count % rows == 0 and count:
        each = count // rows
        if np.array_equal(ends[each - 1 :: each] + 1, section_ends):
            return np.repeat(np.arange(rows), each)
    below = np.searchsorted(ends, section_ends, side="left")
    return np.repeat(np.arange(rows), np.diff(below, prepend=0))


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
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[: int(_lengths(texts).sum())]
    if not np.any(
        (data <= 0x20) | (data >= 0x80)
    ):  # one word each: no white space, no letter beyond ASCII
        valid = texts.is_valid()
        offsets = pa.array(_offsets(valid.to_numpy(zero_copy_only=False)))
        mask = pc.invert(valid) if texts.null_count else None
        return pa.ListArray.from_arrays(offsets, texts.drop_null(), mask=mask), texts
    lists = pc.utf8_split_whitespace(texts)
    filled = pc.if_else(pc.greater(pc.list_value_length(lists), 0), lists, None)
    return lists, pc.list_element(filled, 0)
