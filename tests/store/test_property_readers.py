"""Property strings are read in several places; all say the same: the last occurrence that has a value counts."""

from hypothesis import given
from hypothesis import strategies as st

from roquette.base.javatypes import java_hash
from roquette.filter.sql_eval import property_bytes
from roquette.message.properties import decode_properties
from roquette.message.record import encode_record
from roquette.store.keys import KeySpans, property_value, span_of, tags_code_in

NAMES = ("TAGS", "KEYS", "UNIQ_KEY")
PIECES = st.lists(
    st.tuples(st.sampled_from([*NAMES, "TAG", "XTAGS"]), st.sampled_from(["", "a", "b c", "é"])),
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
        wanted = decode_properties(text).get(name) or None
        assert property_value(text, name) == wanted
        start, end = span_of(b"??" + data, 2, 2 + len(data), name.encode() + b"\x01")
        assert ((b"??" + data)[start:end].decode() or None) == wanted
        assert (
            (property_bytes(data, b"\x02" + name.encode() + b"\x01") or b"").decode() or None
        ) == wanted
        short = {"TAGS": "tags", "KEYS": "keys", "UNIQ_KEY": "uniq"}[name]
        span = data[getattr(spans, f"{short}_start") : getattr(spans, f"{short}_end")]
        assert (span.decode() or None) == wanted
    tags = decode_properties(text).get("TAGS")
    record = encode_record(b"T", 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"body", data)
    assert tags_code_in(record) == (java_hash(tags) if tags else 0)
