"""Stored records of which the broker makes new ones: a copy gets a CRC of its own, so the old one is checked before."""

import logging

from roquette.errors import CorruptRecord
from roquette.message.record import decode_record, decode_records
from roquette.message.record_layout import PHYSICAL_AT, PLACE_END, StoredRecord
from roquette.store.format.results import Found
from roquette.store.format.unit import FILLER_FROM
from roquette.store.message_store import MessageStore

log = logging.getLogger("roquette.broker")


def sound_record(data: bytes, position: int = 0) -> StoredRecord | None:
    """One stored record; None, with a line in the log, when its bytes or its body are not what was stored."""
    try:
        return decode_record(data, position, True)
    except CorruptRecord as error:
        offset = int.from_bytes(
            data[position + PHYSICAL_AT : position + PLACE_END], "big", signed=True
        )
        log.error(
            "damaged message not delivered commit log offset=%d: %s; see `roquette store fsck`",
            offset,
            error,
        )
        return None


def sound_records(
    store: MessageStore, topic: str, queue_id: int, offset: int, found: Found
) -> list[StoredRecord]:
    """The sound records of what was read from an offset of a queue on.

    A damaged one may say a wrong size: then the queue says where each of the others is.
    """
    try:
        return decode_records(b"".join(found.runs), True)
    except CorruptRecord:
        units = store.queue_units(topic, queue_id, offset, found.next_begin_offset - offset) or ()
        places = [(place, place + size) for place, size, _ in units if size < FILLER_FROM]
        each = (sound_record(store.read_log(start, end)) for start, end in places)
        return [record for record in each if record is not None]


def topic_of(record: bytes) -> str:
    """The topic of one stored record; "", which nobody has a right to, of a damaged one."""
    found = sound_record(record)
    return "" if found is None else found.topic
