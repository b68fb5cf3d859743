"""Properties of rows that all have the same names in the same order, as messages of one producer have.

A value is then found by counting. Two ways lead there: strings of one size with every separator at one place are
compared column by column; of others the separators have been found already.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from roquette.spark.source.cuts import Bytes, cut, joined, one_size, repeated, rows_of

_NAME = b"\x01"
_VALUE = b"\x02"


@dataclass(frozen=True, slots=True)
class SameNames:
    """Where in `data` the value of each name lies in each row; values are text."""

    data: Bytes
    row_count: int
    spans: dict[str, tuple[np.ndarray, np.ndarray]]

    def has(self, name: str) -> np.ndarray | None:
        """Which rows have that property; None: no row."""
        return np.ones(self.row_count, dtype=bool) if name in self.spans else None

    def column(self, name: str) -> pa.Array:
        """One string per row: the value of that property, null where it is missing."""
        if name not in self.spans:
            return pa.nulls(self.row_count, pa.string())
        return cut(self.data, *self.spans[name], pa.string())

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
            values = cut(self.data, starts, ends, pa.string())
        offsets = pa.array(np.arange(self.row_count + 1, dtype=np.int32) * len(inside))
        names = repeated(inside, self.row_count)
        return pa.MapArray.from_arrays(offsets, names, values)


def by_columns(data: Bytes, starts: np.ndarray, size: int) -> SameNames | None:
    """For property strings of one size: None when they differ in more than values, or are not plain ASCII."""
    rows = rows_of(data, starts, size)
    low, high = rows.min(axis=0), rows.max(axis=0)
    same = low == high
    if high.max() >= 0x80 or (low[~same] <= _VALUE[0]).any():
        return None
    spans: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    at = 0
    *entries, rest = rows[0].tobytes().split(_VALUE)
    for entry in entries:
        name, _, value = entry.partition(_NAME)
        if not name or not value or _NAME in value or not same[at : at + len(name)].all():
            return None
        value_at = at + len(name) + 1
        spans[name.decode()] = starts + value_at, starts + (value_at + len(value))
        at += len(entry) + 1
    return None if rest or len(spans) < len(entries) else SameNames(data, len(starts), spans)


def by_marks(
    data: Bytes, starts: np.ndarray, middles: np.ndarray, ends: np.ndarray, section_ends: np.ndarray
) -> SameNames | None:
    """For entries that begin, end their names and end at these places of whole, sound property strings."""
    row_count = len(section_ends)
    each, more = divmod(len(ends), row_count)
    if not each or more or not np.array_equal(ends[each - 1 :: each] + 1, section_ends):
        return None
    spans: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for number in range(each):
        first, after = starts[number::each], middles[number::each]
        size = one_size(first, after)
        if size < 0:
            return None
        names = joined(rows_of(data, first, size)).tobytes()
        if names != names[:size] * row_count:
            return None
        spans[names[:size].decode()] = after + 1, ends[number::each]
    return SameNames(data, row_count, spans) if len(spans) == each else None
