"""The property strings of many records as Arrow arrays, without a Python object per property.

    name 0x01 value 0x02 | name 0x01 value 0x02 | ...          (protocol: message property string)

Well-formed strings are cut up by numpy in one go; anything odd takes the slow, exact path.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.message.properties import decode_properties

_NAME = 1
_VALUE = 2


class PropertyColumns:
    """All properties of `row_count` records: entry i is `names[i]`, `values[i]`, of row `rows[i]`."""

    __slots__ = ("_codes", "_words", "names", "row_count", "rows", "values")

    def __init__(self, sections: Sequence[bytes]) -> None:
        self.row_count = len(sections)
        parsed = _parse_fast(sections)
        self.rows, self.names, self.values = parsed or _parse_slow(sections)
        encoded = self.names.dictionary_encode()
        self._words = {word: code for code, word in enumerate(encoded.dictionary.to_pylist())}
        self._codes = encoded.indices.to_numpy(zero_copy_only=False)
        if (
            parsed is not None and self._has_repeated_names()
        ):  # the last one counts: a map does that
            self.rows, self.names, self.values = _parse_slow(sections)
            encoded = self.names.dictionary_encode()
            self._codes = encoded.indices.to_numpy(zero_copy_only=False)
            self._words = {word: code for code, word in enumerate(encoded.dictionary.to_pylist())}

    def _has_repeated_names(self) -> bool:
        if not len(self.rows):
            return False
        keys = self.rows * len(self._words) + self._codes
        if self.row_count * len(self._words) <= 4_000_000:
            return bool(np.bincount(keys).max() > 1)
        return len(np.unique(keys)) < len(keys)

    def column(self, name: str) -> pa.Array:
        """One string per row: the value of that property, null where it is missing."""
        code = self._words.get(name)
        if code is None:
            return pa.nulls(self.row_count, pa.string())
        hits = np.flatnonzero(self._codes == code)
        if len(hits) == self.row_count:
            return self.values.take(pa.array(hits))
        index: np.ndarray = np.full(self.row_count, -1, dtype=np.int64)
        index[self.rows[hits]] = hits
        return self.values.take(pa.array(index, mask=index < 0))

    def maps(self, *, without: frozenset[str]) -> pa.Array:
        """One map per row, of the properties that are not in `without`."""
        dropped = [code for word, code in self._words.items() if word in without]
        keep = ~np.isin(self._codes, dropped)
        counts = np.bincount(self.rows[keep], minlength=self.row_count)
        mask = pa.array(keep)
        return pa.MapArray.from_arrays(
            pa.array(_offsets(counts)), self.names.filter(mask), self.values.filter(mask)
        )


def string_array(data: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Texts of these lengths that lie one after the other in `data`, as an Arrow array."""
    buffers = [None, pa.py_buffer(_offsets(lengths)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets: np.ndarray = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _parse_fast(sections: Sequence[bytes]) -> tuple[np.ndarray, pa.Array, pa.Array] | None:
    """None when a section is not strictly name, 1, value, 2, name, ... or is not UTF-8."""
    joined = b"".join(sections)
    if not joined.isascii() and not _is_utf8(joined):
        return None
    data = np.frombuffer(joined, dtype=np.uint8)
    middles = np.flatnonzero(data == _NAME)
    ends = np.flatnonzero(data == _VALUE)
    section_ends = np.cumsum([len(section) for section in sections])
    if len(middles) != len(ends):
        return None
    starts: np.ndarray = np.zeros(len(ends), dtype=np.int64)
    starts[1:] = ends[:-1] + 1
    # Each entry needs a name and a value, and each section that is not empty must end with 0x02.
    if not (np.all(starts < middles) and np.all(middles + 1 < ends)):
        return None
    if len(data) and not np.all(data[section_ends[section_ends > 0] - 1] == _VALUE):
        return None
    name_lengths = middles - starts
    value_lengths = ends - middles - 1
    runs: np.ndarray = np.ones(4 * len(ends), dtype=np.int64)
    runs[0::4] = name_lengths
    runs[2::4] = value_lengths
    pattern = np.array([_NAME, 0, _VALUE, 0], np.uint8)
    kinds: np.ndarray = np.repeat(np.tile(pattern, len(ends)), runs)
    below = np.searchsorted(ends, section_ends, side="left")
    rows: np.ndarray = np.repeat(np.arange(len(sections)), np.diff(below, prepend=0))
    return (
        rows,
        string_array(data[kinds == _NAME], name_lengths),
        string_array(data[kinds == _VALUE], value_lengths),
    )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_slow(sections: Sequence[bytes]) -> tuple[np.ndarray, pa.Array, pa.Array]:
    maps = [decode_properties(section.decode("utf-8", "replace")) for section in sections]
    rows: np.ndarray = np.repeat(np.arange(len(maps)), [len(m) for m in maps])
    names = [name for m in maps for name in m]
    values = [value for m in maps for value in m.values()]
    return rows, pa.array(names, pa.string()), pa.array(values, pa.string())


def first_words(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Space separated texts as lists, and the first word of each; null stays null."""
    lists = pc.utf8_split_whitespace(texts)
    filled = pc.if_else(pc.greater(pc.list_value_length(lists), 0), lists, None)
    return lists, pc.list_element(filled, 0)
