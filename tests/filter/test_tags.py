"""Tag expressions."""

import pytest

from roquette.base.javatypes import java_hash
from roquette.errors import ExpressionError
from roquette.filter.tags import tag_codes


@pytest.mark.parametrize(
    "expression, tags",
    [
        (None, None), ("", None), ("*", None), ("A", {"A"}), ("A || B", {"A", "B"}), ("A||B||", {"A", "B"}),
        ("||A", {"A"}), ("\tA \n|| ", {"A"}), (" ", set()), ("|| ||", set()), ("A|B", {"A|B"}), ("\u2003A", {"\u2003A"}),
        ("* || A", {"*", "A"}), ("😀", {"😀"}),
    ],
)  # fmt: skip
def test_the_hashes_of_the_tags_named(expression, tags):
    wanted = None if tags is None else frozenset(map(java_hash, tags))

    assert tag_codes(expression) == wanted


def test_the_longest_expression():
    assert len(tag_codes("ab||" * 4_096)) == 1
    with pytest.raises(ExpressionError, match="has 16388 characters, 16384 are allowed"):
        tag_codes("ab||" * 4_097)


def test_separators_only_are_no_expression():
    with pytest.raises(ExpressionError):
        tag_codes("||||")
