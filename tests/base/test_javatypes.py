"""Java's hash and casts."""

import pytest

from roquette.base.javatypes import java_hash, parse_java_bool


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


def test_only_true_is_true() -> None:
    assert parse_java_bool("TRUE")
    assert not any(parse_java_bool(text) for text in ("1", "yes", "", " true", None))
