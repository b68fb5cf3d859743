"""Passing over the log quickly: records that need no attention are told by their numbers alone. HOT.

Recovery reads what the checkpoint does not vouch for, up to a file and more. Nearly all of it is sound
and dispatched already; no object is made of such a record. Whatever looks unusual stops the scan and is
decoded by recovery's careful reader.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.base.checksum import crc32
from roquette.message.record import MAX_TOPIC_V1, RECORD_MAGIC_V1, RECORD_MAGIC_V2
from roquette.store.consume_queues import ConsumeQueues, TopicQueues

_FIXED_SIZE: Final = 75  # everything of a V1 record but hosts, body, topic and properties
SMALLEST_RECORD: Final = 91
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_PREPARED: Final = 0x4
_ROLLBACK: Final = 0xC


class Scanned:
    """What a scan went past."""

    __slots__ = ("last_offset", "last_store_ms", "records")

    def __init__(self) -> None:
        self.records: i64 = 0
        self.last_offset: i64 = -1  # physical offset of the last record
        self.last_store_ms: i64 = 0


def scan_sound(data: bytes, position: i64, base: i64, check_crc: bool, scanned: Scanned) -> i64:
    """Go past sound records, as `message.record.decode_record` judges them.

    Args:
        data: a piece of one log file.
        position: where in it a record begins.
        base: the physical offset of the first byte of `data`.

    Returns:
        The position of the first record that is cut off by the end of `data`, is not sound, or has zeros
        in its properties, which a torn one would have; the end of `data` when there is none.
    """
    limit: i64 = len(data)
    good = b""
    while position + SMALLEST_RECORD <= limit:
        size: int = read_i32_be(data, position)
        magic: int = read_i32_be(data, position + 4)
        end: i64 = position + size
        if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:  # noqa: PLR1714
            return position
        if (
            size < SMALLEST_RECORD
            or end > limit
            or read_i64_be(data, position + 28) != base + position
        ):
            return position
        sys_flag: int = read_i32_be(data, position + 36)
        born_len: i64 = 20 if sys_flag & _BORN_V6 else 8
        store_len: i64 = 20 if sys_flag & _STORE_V6 else 8
        rest: i64 = size - _FIXED_SIZE - born_len - store_len
        if rest < 0:
            return position
        place = position + 56 + born_len + store_len + 12
        body_len: int = read_i32_be(data, place)
        if body_len < 0 or body_len > rest:
            return position
        place += 4
        if check_crc and body_len > 0:
            body_crc: int = read_i32_be(data, position + 8)
            if crc32(data[place : place + body_len]) & 0x7FFFFFFF != body_crc:
                return position
        rest -= body_len
        place += body_len
        topic_len: int = 0
        if magic == RECORD_MAGIC_V1:
            topic_len = data[place]
            place += 1
            if topic_len > MAX_TOPIC_V1:
                return position
        else:
            topic_len = read_i16_be(data, place)
            place += 2
            rest -= 1
        if topic_len < 0 or topic_len > rest:
            return position
        topic = data[place : place + topic_len]
        if topic != good:
            if b"\0" in topic or b"/" in topic:  # torn, or damaged
                return position
            good = topic
        rest -= topic_len
        place += topic_len
        properties_len: int = read_i16_be(data, place)
        if properties_len != rest or data.find(b"\0", place + 2, end) >= 0:
            return position
        scanned.records += 1
        scanned.last_offset = base + position
        scanned.last_store_ms = read_i64_be(data, position + 48 + born_len)
        position = end
    return position


def scan_dispatched(
    data: bytes, position: i64, base: i64, queues: ConsumeQueues, index_from: i64
) -> i64:
    """Go past records that their queue and the index know; they have been found sound before.

    Args:
        index_from: records from this physical offset on are not in the index.

    Returns:
        The position of the first record that is cut off, or is not known; the end of `data` when there is none.
    """
    limit: i64 = len(data)
    name = b""
    entry: TopicQueues | None = None
    while position + SMALLEST_RECORD <= limit:
        physical = base + position
        size: int = read_i32_be(data, position)
        magic: int = read_i32_be(data, position + 4)
        end: i64 = position + size
        if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:  # noqa: PLR1714
            return position
        if size < SMALLEST_RECORD or end > limit or read_i64_be(data, position + 28) != physical:
            return position
        sys_flag: int = read_i32_be(data, position + 36)
        kind = sys_flag & _ROLLBACK
        if physical >= index_from and kind != _ROLLBACK:
            return position
        if kind != _PREPARED and kind != _ROLLBACK:  # noqa: PLR1714
            place = position + 68
            place += 20 if sys_flag & _BORN_V6 else 8
            place += 20 if sys_flag & _STORE_V6 else 8
            body_len: int = read_i32_be(data, place)
            place += 4 + body_len
            if body_len < 0 or place + 2 > end:
                return position
            topic_len: int = 0
            if magic == RECORD_MAGIC_V1:
                topic_len = data[place]
                place += 1
            else:
                topic_len = read_i16_be(data, place)
                place += 2
            topic = data[place : place + topic_len]
            if entry is None or topic != name:
                name = topic
                entry = queues.topics.get(topic.decode("utf-8", "replace"))
                if entry is None:
                    return position
            queue_id: int = read_i32_be(data, position + 12)
            queue = entry.queues.get(queue_id)
            if queue is None:
                return position
            offset = read_i64_be(data, position + 20)
            if not queue.points_to(offset, physical, size) or queue.may_be_torn(offset):
                return position
        position = end
    return position
