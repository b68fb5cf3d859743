"""Property strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.message.properties import RESERVED, decode_properties, encode_properties

WORD = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
)


@given(properties=st.dictionaries(WORD, WORD, max_size=8))
def test_what_is_encoded_is_decoded(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b", {"a": "b"}),
        ("\x01b\x02a\x01\x02c\x02d\x01e\x02", {"d": "e"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected


def test_every_property_is_closed() -> None:
    assert encode_properties({"TAGS": "a", "KEYS": "k l"}) == "TAGS\x01a\x02KEYS\x01k l\x02"
    assert "UNIQ_KEY" in RESERVED
