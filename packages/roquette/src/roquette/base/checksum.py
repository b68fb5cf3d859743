"""CRC-32, by Intel's ISA-L where its wheel exists (a third of zlib's time), else by zlib: the same numbers."""

from collections.abc import Callable

crc32: Callable[..., int]
try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
