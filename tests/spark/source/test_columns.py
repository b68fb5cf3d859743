"""Pieces of a buffer equal slices of it, whichever way they are cut."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquette_spark.source.columns import (
    contiguous,
    repeated_texts,
    rows_at,
    slice_array,
    uniform_size,
)

DATA = bytes(range(1, 128)) * 20


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20)
    | st.tuples(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.integers(1, 20)).map(
        lambda given: [given[0]] * given[1]
    )
    | st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(0, 9)).map(
        lambda given: [(gap, given[1]) for gap in given[0]]
    )
)
@settings(deadline=None, max_examples=200)
def test_pieces_equal_slices(gaps_and_sizes: list[tuple[int, int]]) -> None:
    edges = list(itertools.accumulate(itertools.chain.from_iterable(gaps_and_sizes)))
    starts, ends = (np.array(edges[which::2], dtype=np.int64) for which in (0, 1))

    for kind in (pa.binary(), pa.string()):
        found = slice_array(DATA, starts, ends, kind)
        found.validate(full=True)
        assert found.type == kind
        assert found.cast(pa.binary()).to_pylist() == [
            DATA[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
        ]


@pytest.mark.parametrize(
    ("starts", "copied"), [([5, 25, 45], False), ([5, 25, 46], True), ([7], False)]
)
def test_evenly_spaced_rows_are_a_view(starts: list[int], copied: bool) -> None:
    rows = rows_at(DATA, np.array(starts), 9)

    assert [bytes(row) for row in rows] == [DATA[at : at + 9] for at in starts]
    assert contiguous(rows).tobytes() == b"".join(DATA[at : at + 9] for at in starts)
    assert np.shares_memory(rows, np.frombuffer(DATA, np.uint8)) != copied


@pytest.mark.parametrize("starts", [[0, len(DATA) - 8], [0, 5, len(DATA) - 8]])
def test_rows_beyond_the_data_are_refused(starts: list[int]) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        rows_at(DATA, np.array(starts), 9)


def test_one_size() -> None:
    starts = np.array([0, 10, 20])

    assert uniform_size(starts, starts + 7) == 7
    assert uniform_size(starts, starts) == 0
    assert uniform_size(starts, np.array([7, 17, 28])) == -1
    assert uniform_size(starts[:0], starts[:0]) == -1


def test_texts_repeated() -> None:
    for texts, count in ((["ü", "", "abc"], 3), (["a"], 4), ([], 3), (["a"], 0)):
        found = repeated_texts(texts, count)
        found.validate(full=True)
        assert found.to_pylist() == texts * count
