"""Java's hash and casts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.base.javatypes import NOT_ASCII, java_hash, java_hash_ascii, parse_java_bool


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("*", 42),
        ("TopicTest#key1", -1655984460),
        ("你好", 652829),
        ("a" * 20, 1542361408),
        ("😀", 1772899),
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_hash_goes_on_from_the_hash_of_a_prefix() -> None:
    for prefix, rest in [("TopicTest", "#key1"), ("", "x"), ("你好" * 9, "😀 more")]:
        assert java_hash(rest, java_hash(prefix)) == java_hash(prefix + rest)


ASCII = st.text(st.characters(codec="ascii"), max_size=40)


@given(ASCII, ASCII, st.integers(-(2**31), 2**31 - 1), st.integers(0, 9))
def test_eight_bytes_together_hash_as_one_by_one(
    before: str, text: str, seed: int, behind: int
) -> None:
    data = (before + text).encode() + b"\xe9" * behind
    start, end = len(before), len(before + text)
    assert java_hash_ascii(data, start, end, seed) == java_hash(text, seed)
    assert not behind or java_hash_ascii(data, start, end + 1, seed) == NOT_ASCII


def test_only_true_is_true() -> None:
    assert parse_java_bool("TRUE")
    assert not any(parse_java_bool(text) for text in ("1", "yes", "", " true", None))
