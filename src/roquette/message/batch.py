"""The body of a batch send: the messages of one topic, one after another. HOT.

| field | bytes | note |
|---|---|---|
| total size | 4 | of this entry; the Apache broker ignores it, and so do we |
| magic, body CRC | 4 + 4 | both 0 |
| flag | 4 | the user's flag |
| body length, body | 4 + n | |
| properties length, properties | 2 + n | |

Apache: MessageDecoder.encodeMessages (writes), MessageExtEncoder.encode(MessageExtBatch) (reads).
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i64

from roquette.errors import CorruptRecord

ENTRY_SIZE: Final = 22  # an entry without body and properties


class BatchEntry:
    """One message of a batch: what differs from message to message."""

    __slots__ = ("body", "flag", "properties")

    def __init__(self, flag: int, body: bytes, properties: bytes) -> None:
        self.flag: int = flag
        self.body: bytes = body
        self.properties: bytes = properties


def encode_batch(messages: list[tuple[int, bytes, bytes]]) -> bytes:
    """The batch body of (flag, body, properties) triples; properties of at most 32,767 bytes."""
    w = BytesWriter()
    for flag, body, properties in messages:
        write_i32_be(w, ENTRY_SIZE + len(body) + len(properties))
        write_i32_be(w, 0)
        write_i32_be(w, 0)
        write_i32_be(w, flag)
        write_i32_be(w, len(body))
        w.write(body)
        write_i16_be(w, len(properties))
        w.write(properties)
    return w.getvalue()


def decode_batch(data: bytes) -> list[BatchEntry]:
    """The messages of a batch body, in order.

    Raises:
        CorruptRecord: an entry does not fit the bytes that are there.
    """
    entries: list[BatchEntry] = []
    pos: i64 = 0
    limit: i64 = len(data)
    while pos < limit:
        if pos + ENTRY_SIZE > limit:
            raise CorruptRecord(f"batch entry at {pos}: {limit - pos} bytes are left")
        flag: int = read_i32_be(data, pos + 12)
        body_len: int = read_i32_be(data, pos + 16)
        if body_len < 0 or pos + ENTRY_SIZE + body_len > limit:
            raise CorruptRecord(f"batch entry at {pos}: body of {body_len} bytes does not fit")
        start = pos + 20
        pos = start + body_len
        properties_len: int = read_i16_be(data, pos)
        if properties_len < 0 or pos + 2 + properties_len > limit:
            raise CorruptRecord(f"batch entry: properties of {properties_len} bytes do not fit")
        entries.append(BatchEntry(flag, data[start:pos], data[pos + 2 : pos + 2 + properties_len]))
        pos += 2 + properties_len
    return entries
