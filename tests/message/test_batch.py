"""Batch bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import CorruptRecord
from roquette.message.record import BatchCursor, encode_batch

MESSAGES = [(0, b"one", b"KEYS\x01a\x02"), (-7, b"", b""), (9, b"x" * 300, b"")]


def decode_batch(data: bytes) -> list[tuple[int, bytes, bytes]]:
    cursor = BatchCursor(data)
    found = []
    while cursor.advance():
        found.append((int(cursor.flag), cursor.body, cursor.properties))
    assert not cursor.advance()
    return found


def test_what_is_encoded_is_decoded() -> None:
    found = decode_batch(encode_batch(MESSAGES))

    assert found == MESSAGES


def test_an_entry_is_laid_out_as_documented() -> None:
    assert (
        encode_batch([(1, b"ab", b"p")]).hex()
        == "00000019" + "00" * 8 + "00000001" + "00000002" + "6162" + "0001" + "70"
    )


def test_a_truncated_batch_is_corrupt_except_between_entries() -> None:
    data = encode_batch(MESSAGES)
    ends = {0, len(encode_batch(MESSAGES[:1])), len(encode_batch(MESSAGES[:2]))}
    for end in range(len(data)):
        if end in ends:
            decode_batch(data[:end])
            continue
        with pytest.raises(CorruptRecord):
            decode_batch(data[:end])


@given(data=st.binary(max_size=120))
def test_any_bytes_raise_only_corrupt_record(data: bytes) -> None:
    try:
        entries = decode_batch(data)
    except CorruptRecord:
        return
    assert sum(22 + len(body) + len(properties) for _, body, properties in entries) == len(data)
