"""Stored records of which the broker makes new ones: a copy gets a CRC of its own, so the old one is checked before."""

import logging

from librt.strings import read_i32_be

from roquette.errors import CorruptRecord
from roquette.message.record import decode_record
from roquette.message.record_layout import PHYSICAL_AT, PLACE_END, StoredRecord

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


def sound_records(data: bytes) -> list[StoredRecord]:
    """The sound records of a run of records."""
    found: list[StoredRecord] = []
    position = 0
    while len(data) - position >= PLACE_END:
        record = sound_record(data, position)
        if record is not None:
            found.append(record)
        size = read_i32_be(data, position)
        if size < PLACE_END:
            break
        position += size
    return found


def topic_of(record: bytes) -> str:
    """The topic of one stored record; "", which nobody has a right to, of a damaged one."""
    found = sound_record(record)
    return "" if found is None else found.topic
