"""The first byte that is not plain, or that separates properties, is found, eight at a time."""

import random

from hypothesis import given
from hypothesis import strategies as st
from librt.strings import read_i64_le

from roquette.base.plain_text import first_of, plain_end, separator_at, unplain

EDGES = bytes((0, 1, 2, 31, 32, 33, 34, 35, 91, 92, 93, 125, 126, 127, 128, 162, 220, 255))


def by_bytes(data: bytes, at: int, end: int) -> int:
    """The same, one byte at a time."""
    while at < end and 32 <= data[at] <= 126 and data[at] not in b'"\\':
        at += 1
    return at


@given(st.binary(max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_it_is_the_first_that_is_not_plain(data: bytes, at: int, end: int) -> None:
    at, end = sorted((min(at, len(data)), min(end, len(data))))
    assert plain_end(data, at, end) == by_bytes(data, at, end)


@given(
    st.lists(st.sampled_from(EDGES + b"abcdefgh"), max_size=40).map(bytes),
    st.integers(0, 41),
    st.sampled_from((1, 2)),
)
def test_it_is_the_next_separator(data: bytes, at: int, least: int) -> None:
    places = (place for place in range(at, len(data)) if least <= data[place] <= 2)
    assert separator_at(data, at, least) == next(places, len(data))


def test_eight_bytes_together_say_what_each_says() -> None:
    """Every pair of edges in every two places beside plain bytes: what one test borrows from the next shows here."""
    rng = random.Random(1)
    for first in range(8):
        for second in range(8):
            for one in EDGES:
                for two in EDGES:
                    eight = bytearray(rng.choices(b" !#[]az~", k=8))
                    eight[first], eight[second] = one, two
                    bits, place = (
                        unplain(read_i64_le(bytes(eight), 0)),
                        by_bytes(bytes(eight), 0, 8),
                    )
                    assert (first_of(bits) if bits else 8) == place, bytes(eight)
