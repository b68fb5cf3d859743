"""Passing over the log quickly: records that need no attention are told by their numbers alone. HOT.

Recovery reads what the checkpoint does not vouch for, up to a file and more. Nearly all of it is sound
and dispatched already; no object is made of such a record. Whatever looks unusual stops the scan and is
decoded by recovery's careful reader.
"""

from mypy_extensions import i64

from roquette.base.javatypes import java_text
from roquette.message.record_layout import SMALLEST_RECORD
from roquette.message.record_view import SOUND, RecordView
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from roquette.store.queues.consume_queues import ConsumeQueues, TopicQueues


class Scanned:
    """What a scan went past."""

    __slots__ = ("last_offset", "last_store_ms", "records")

    def __init__(self) -> None:
        self.records: i64 = 0
        self.last_offset: i64 = -1  # physical offset of the last record
        self.last_store_ms: i64 = 0


def scan_sound(data: bytes, position: i64, base: i64, check_crc: bool, scanned: Scanned) -> i64:
    """Go past sound records.

    Args:
        data: a piece of one log file.
        position: where in it a record begins.
        base: the physical offset of the first byte of `data`.

    Returns:
        The position of the first record that is cut off by the end of `data`, is not sound, or has zeros
        in its properties, which a torn one would have; the end of `data` when there is none.
    """
    limit: i64 = len(data)
    view = RecordView()
    while position + SMALLEST_RECORD <= limit:
        if view.examine(data, position, base + position, check_crc) != SOUND:
            return position
        end: i64 = position + view.size
        if data.find(b"\0", view.properties_at, end) >= 0:
            return position
        scanned.records += 1
        scanned.last_offset = base + position
        scanned.last_store_ms = view.store_ms
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
    view = RecordView()
    while position + SMALLEST_RECORD <= limit:
        physical = base + position
        if view.find(data, position) != SOUND or view.check_place(physical) != SOUND:
            return position
        kind = view.sys_flag & TRANSACTION_MASK
        if physical >= index_from and kind != TRANSACTION_ROLLBACK:
            return position
        if kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK:
            topic = data[view.topic_at : view.topic_at + view.topic_size]
            if entry is None or topic != name:
                name = topic
                entry = queues.topics.get(java_text(topic))
                if entry is None:
                    return position
            queue_id: int = view.queue_id
            queue = entry.queues.get(queue_id)
            if queue is None:
                return position
            offset = view.queue_offset
            if not queue.points_to(offset, physical, view.size) or queue.may_be_torn(offset):
                return position
        position += view.size
    return position
