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


class BatchCursor:
    """Goes through a batch body; after `advance` the fields say where the message's parts lie in `data`."""

    __slots__ = (
        "_end",
        "body_end",
        "body_start",
        "data",
        "flag",
        "properties_end",
        "properties_start",
    )

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self._end: i64 = 0
        self.flag: i64 = 0
        self.body_start: i64 = 0
        self.body_end: i64 = 0
        self.properties_start: i64 = 0
        self.properties_end: i64 = 0

    def advance(self) -> bool:
        """Go to the next message; False at the end.

        Raises:
            CorruptRecord: the entry does not fit the bytes that are there.
        """
        data = self.data
        limit: i64 = len(data)
        start = self._end
        if start >= limit:
            return False
        if start + ENTRY_SIZE > limit:
            raise CorruptRecord(f"batch entry at {start}: {limit - start} bytes are left")
        flag: int = read_i32_be(data, start + 12)
        body_len: int = read_i32_be(data, start + 16)
        if body_len < 0 or start + ENTRY_SIZE + body_len > limit:
            raise CorruptRecord(f"batch entry at {start}: body of {body_len} bytes does not fit")
        self.flag = flag
        self.body_start = start + 20
        self.body_end = self.body_start + body_len
        properties_len: int = read_i16_be(data, self.body_end)
        self.properties_start = self.body_end + 2
        self.properties_end = self.properties_start + properties_len
        if properties_len < 0 or self.properties_end > limit:
            raise CorruptRecord(f"batch entry: properties of {properties_len} bytes do not fit")
        self._end = self.properties_end
        return True

    @property
    def body(self) -> bytes:
        """The message's body, a copy."""
        return self.data[self.body_start : self.body_end]

    @property
    def properties(self) -> bytes:
        """The message's property string in UTF-8, a copy."""
        return self.data[self.properties_start : self.properties_end]
