"""All ways to read a property say the same: the last occurrence that has a value counts."""

from hypothesis import given
from hypothesis import strategies as st

from roquette.base.javatypes import java_hash
from roquette.broker.sending.send import SPECIAL
from roquette.message.properties import (
    TRANSIENT_PREFIX,
    KeySpans,
    decode_properties,
    find_property,
    property_bytes,
    property_value,
)
from roquette.store.format.unit import tags_code_of

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT")
PIECES = st.lists(
    st.tuples(
        st.sampled_from([*NAMES, "TAG", "XTAGS", "UNIQ_KEYS", "UNIQ_KEX", "\0KEYS"]),
        st.sampled_from(["", "a", "b c", "é", "\0", "a\x01b", "long enough for eight at a time"]),
    ),
    max_size=6,
)


@given(PIECES, st.booleans())
def test_all_readers_say_the_same(pieces: list[tuple[str, str]], closed: bool) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in pieces)
    if not closed:
        text = text[:-1]
    data = text.encode()
    spans = KeySpans()
    spans.scan(data)
    for name in NAMES:
        mark = name.encode() + b"\x01"
        wanted = decode_properties(text).get(name)
        assert property_value(text, name) == wanted
        start, end = find_property(b"??" + data, 2, 2 + len(data), mark)
        assert ((b"??" + data)[start:end].decode() or None) == wanted
        found = property_bytes(data, mark)
        assert (None if found is None else found.decode()) == wanted
        short = {"TAGS": "tags", "KEYS": "keys", "UNIQ_KEY": "uniq", "WAIT": "wait"}[name]
        span = data[getattr(spans, f"{short}_start") : getattr(spans, f"{short}_end")]
        assert (span.decode() or None) == wanted
    tags = decode_properties(text).get("TAGS")
    assert tags_code_of(data) == (java_hash(tags) if tags else 0)


@given(PIECES, st.sampled_from([*sorted(SPECIAL), TRANSIENT_PREFIX + "x"]), st.integers(0, 6))
def test_no_property_with_a_meaning_is_passed_over(
    pieces: list[tuple[str, str]], name: str, place: int
) -> None:
    pieces.insert(place, (name, "1"))
    spans = KeySpans()
    spans.scan("".join(f"{each}\x01{value}\x02" for each, value in pieces).encode())
    assert spans.marked
