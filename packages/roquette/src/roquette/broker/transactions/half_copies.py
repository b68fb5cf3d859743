"""Half messages of one transaction: a copy of one that was put again without a word of where it came from.

Apache's broker puts open half messages again when it checks and when it stops, with prepared offset 0, and lets its progress
pass the first one. What stays the same is the unique id (`__transactionId__`), the born time and the body.
Pure but for the store.
"""

from roquette.broker.floor.sound_records import sound_record
from roquette.message import names, properties, sysflag
from roquette.message.properties import decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.store.message_store import MessageStore

_MOST = 64  # copies looked at: more than transactionCheckMax allows by default


def copies_of(store: MessageStore, half: StoredRecord) -> list[StoredRecord]:
    """The other half messages of its transaction, the newest first."""
    found = [
        other
        for other in _of_key(store, names.TRANS_HALF_TOPIC, half)
        if other.physical_offset != half.physical_offset
    ]
    return sorted(found, key=lambda other: -other.queue_offset)


def committed(store: MessageStore, half: StoredRecord) -> bool:
    """Whether a half message of its transaction was committed."""
    topic = decode_properties(half.properties).get(properties.REAL_TOPIC, "")
    return any(
        record.sys_flag & sysflag.TRANSACTION_MASK == sysflag.TRANSACTION_COMMIT
        for place in (topic, names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
        for record in _of_key(store, place, half)
    )


def _of_key(store: MessageStore, topic: str, half: StoredRecord) -> list[StoredRecord]:
    key = decode_properties(half.properties).get(properties.UNIQ_KEY)
    if not key:
        return []
    found: list[StoredRecord] = []
    for data in store.query(topic, key, _MOST, 0, 1 << 62):
        record = sound_record(data)
        if (
            record is not None
            and record.topic == topic
            and record.born_timestamp_ms == half.born_timestamp_ms
            and record.body_crc == half.body_crc
            and decode_properties(record.properties).get(properties.UNIQ_KEY) == key
        ):
            found.append(record)
    return found
