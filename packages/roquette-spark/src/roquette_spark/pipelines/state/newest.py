"""Which change of a key is the newest, in Arrow. Pure.

Versions are compared as Spark compares them: null is the least, NaN the greatest number; for equal ones the place in the topic
decides.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import ConfigError
from roquette_spark.pipelines.state.buckets import key_of
from roquette_spark.pipelines.state.change_rows import TIES, VERSION

ORDER = (VERSION, *TIES)


def newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row of each key."""
    if not rows.num_rows:
        return rows
    order = _order(rows)
    keys = pa.table({"key": key_of(rows, key).take(order), "at": np.arange(rows.num_rows)})
    last = keys.group_by("key", use_threads=False).aggregate([("at", "max")])
    return rows.take(order.take(last.column("at_max").sort()))


class Overlay:
    """Changes of some keys, one each, laid over rows that are older for the most part.

    Args:
        changes: one row of each key.
    """

    def __init__(self, changes: pa.Table, key: Sequence[str]) -> None:
        self._changes = changes
        self._key = key
        keys = key_of(changes, key)
        self._keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], keys.type)
        self._older = np.zeros(changes.num_rows, bool)

    def over(self, base: pa.Table) -> pa.Table:
        """Those of `base` (one row of each key) that no change replaces."""
        found = pc.index_in(key_of(base, self._key), value_set=self._keys)
        hit = pc.indices_nonzero(pc.is_valid(found))
        if not len(hit):
            return base
        changed = found.take(hit)
        changed = changed.combine_chunks() if isinstance(changed, pa.ChunkedArray) else changed
        kept = np.ones(base.num_rows, bool)
        behind = _behind(base.take(hit), self._changes.take(changed))
        kept[hit.to_numpy()[behind]] = False
        self._older[changed.to_numpy(zero_copy_only=False)[~behind]] = True
        return base.filter(pa.array(kept))

    def rest(self) -> pa.Table:
        """The changes that are newer than all that was under them."""
        return self._changes.filter(pa.array(~self._older))


def _behind(base: pa.Table, changes: pa.Table) -> np.ndarray:
    """Whether each row of `base` is replaced by that of `changes` at its place."""
    count = base.num_rows
    both = pa.concat_tables([each.select(list(ORDER)) for each in (base, changes)])
    ranks = np.empty(2 * count, np.int64)
    ranks[_order(both).to_numpy()] = np.arange(2 * count)
    found: np.ndarray = ranks[:count] < ranks[count:]
    return found


def _order(rows: pa.Table) -> pa.Array:
    """Places of rows, from the oldest to the newest."""
    columns = [each for name in ORDER for each in _sortable(rows.column(name))]
    named = {str(number): column for number, column in enumerate(columns)}
    return pc.sort_indices(pa.table(named), sort_keys=[(name, "ascending") for name in named])


def _sortable(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """Columns that Arrow puts in Spark's order. Raises ConfigError for a type that has none."""
    kind = column.type
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        raise ConfigError(f"current-state: --version is of type {kind}, which has no order here")
    if column.null_count:
        yield column.is_valid()
    if pa.types.is_struct(kind):
        whole = column.combine_chunks()
        whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
        for part in whole.flatten():
            yield from _sortable(pa.chunked_array([part]))
        return
    if pa.types.is_floating(kind):
        yield pc.is_nan(column).fill_null(False)
    yield column
