"""Compressed bodies: zlib, LZ4 frames and Zstandard, told apart by three bits of the sys flag.

Apache: CompressionType, CompressorFactory. LZ4 and Zstandard are loaded with the first body of theirs. Decompression never yields more than the caller's bound.
"""

import zlib
from enum import IntEnum
from typing import Final

from roquette.errors import CorruptRecord
from roquette.message.sysflag import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT

DEFAULT_LEVEL: Final = 5
_ZSTD_STEP: Final = 256  # one step's output is bounded: 4 bytes of Zstandard yield at most 128 KiB


class Compression(IntEnum):
    """The kinds, by their number in the sys flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits to set for a body of this kind: compressed, and the kind."""
        return COMPRESSED | (self << COMPRESSION_SHIFT)


LZ4: Final = Compression.LZ4
ZSTD: Final = Compression.ZSTD
ZLIB: Final = Compression.ZLIB


def compress(body: bytes, kind: Compression, level: int = DEFAULT_LEVEL) -> bytes:
    """The compressed body; LZ4 has no levels here, as in Apache's Lz4Compressor."""
    if kind is Compression.LZ4:
        import lz4.frame

        return bytes(lz4.frame.compress(body))
    if kind is Compression.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    return zlib.compress(body, level)


def decompress(body: bytes, sys_flag: int, max_size: int) -> bytes:
    """The body as the application sent it; a body that is not compressed comes back as it is.

    Args:
        max_size: the most bytes the result may have.

    Raises:
        CorruptRecord: the body is not what the flag says, is cut off, or exceeds `max_size`.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    try:
        if kind in {0, Compression.ZLIB}:  # old clients set no kind: theirs is zlib
            return _unzlib(body, max_size)
        if kind == Compression.LZ4:
            return _unlz4(body, max_size)
        if kind == Compression.ZSTD:
            return _unzstd(body, max_size)
    except (zlib.error, RuntimeError, EOFError) as error:
        raise CorruptRecord(f"a compressed body of {len(body)} bytes is broken: {error}") from error
    raise CorruptRecord(f"compression kind {kind} is unknown")


def _unzlib(body: bytes, max_size: int) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(body, max_size + 1)
    return _whole(found, stream.eof, max_size)


def _unlz4(body: bytes, max_size: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    found = bytes(stream.decompress(body, max_length=max_size + 1))
    return _whole(found, stream.eof, max_size)


def _unzstd(body: bytes, max_size: int) -> bytes:
    import zstandard

    stream = zstandard.ZstdDecompressor().decompressobj()
    found: list[bytes] = []
    size = 0
    for start in range(0, len(body), _ZSTD_STEP):
        try:
            chunk = stream.decompress(body[start : start + _ZSTD_STEP])
        except zstandard.ZstdError as error:
            raise EOFError(error) from error
        found.append(chunk)
        size += len(chunk)
        if stream.eof or size > max_size:
            break
    return _whole(b"".join(found), stream.eof, max_size)


def _whole(found: bytes, complete: bool, max_size: int) -> bytes:
    if len(found) > max_size:
        raise CorruptRecord(f"a compressed body holds more than {max_size} bytes")
    if not complete:
        raise CorruptRecord(f"a compressed body is cut off after {len(found)} bytes")
    return found
