"""Compressed bodies."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import CorruptRecord
from roquette.message.compression import LZ4, ZLIB, ZSTD, Compression, compress, decompress

KINDS = [LZ4, ZSTD, ZLIB]


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=3000))
def test_what_is_compressed_is_found_again(kind: Compression, body: bytes) -> None:
    assert decompress(compress(body, kind), kind.sys_flag, len(body)) == body


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_holds(kind: Compression) -> None:
    body = bytes(5_000_000)

    assert decompress(compress(body, kind), kind.sys_flag, len(body)) == body
    with pytest.raises(CorruptRecord, match="more than"):
        decompress(compress(body, kind), kind.sys_flag, len(body) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_broken_and_truncated_bodies_are_corrupt(kind: Compression) -> None:
    packed = compress(b"some text, some more text, and some text", kind)
    for broken in (b"", b"no", packed[:-5], b"\0" * 40, packed[:8] + b"\xff" * 20):
        with pytest.raises(CorruptRecord):
            decompress(broken, kind.sys_flag, 1000)


def test_no_kind_is_zlib_and_unknown_kinds_are_corrupt() -> None:
    assert decompress(zlib.compress(b"old"), 0x1, 10) == b"old"
    assert decompress(b"plain", 0x300, 1) == b"plain"
    with pytest.raises(CorruptRecord, match="kind 5"):
        decompress(b"x", 0x501, 10)
