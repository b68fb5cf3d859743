"""A message before the store has given it a place, and that place. HOT."""

from typing import Final

from mypy_extensions import i64

from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import BORN_HOST_V6, STORE_HOST_V6

CODE_OF_TAGS: Final = -(1 << 62)
_NO_HOST_BITS: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)


class Draft:
    """Parts of a record that its writer decides. Hosts are raw: the address (4 or 16 bytes), then the port as int32.

    Attributes:
        properties: the property string in UTF-8; it says what the record is indexed by.
        body: of one message; for `MessageStore.append_batch` the entries of a client batch (`message.batch`).
        unit_code: what the queue's unit carries: CODE_OF_TAGS, or a time of delivery in SCHEDULE_TOPIC_XXXX.
        own: the broker delivers what it has taken before: limits for senders are none for it.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_ms",
        "flag",
        "own",
        "prepared_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
        "unit_code",
    )

    def __init__(
        self,
        topic: str,
        queue_id: i64,
        properties: bytes,
        body: bytes,
        born_ms: i64,
        born_host: bytes,
    ) -> None:
        self.topic: str = topic
        self.queue_id: i64 = queue_id
        self.properties: bytes = properties
        self.body: bytes = body
        self.born_ms: i64 = born_ms
        self.born_host: bytes = born_host
        self.flag: i64 = 0
        self.sys_flag: i64 = 0
        self.reconsume_times: i64 = 0
        self.prepared_offset: i64 = 0
        self.unit_code: i64 = CODE_OF_TAGS
        self.own: bool = False


class Place:
    """Place and time at which a record is stored. `topic`: the draft's, in UTF-8."""

    __slots__ = ("physical_offset", "queue_offset", "store_host", "store_ms", "topic")

    def __init__(
        self,
        topic: bytes,
        store_host: bytes,
        store_ms: i64 = 0,
        queue_offset: i64 = 0,
        physical_offset: i64 = 0,
    ) -> None:
        self.topic: bytes = topic
        self.store_host: bytes = store_host
        self.store_ms: i64 = store_ms
        self.queue_offset: i64 = queue_offset
        self.physical_offset: i64 = physical_offset


def draft_of(record: StoredRecord) -> Draft:
    """A draft of a stored record as it is; the bits of its hosts are set again when it is encoded."""
    draft = Draft(
        record.topic,
        record.queue_id,
        record.properties.encode(),
        record.body,
        record.born_timestamp_ms,
        record.born_host,
    )
    draft.flag = record.flag
    draft.sys_flag = record.sys_flag & _NO_HOST_BITS
    draft.reconsume_times = record.reconsume_times
    draft.prepared_offset = record.prepared_offset
    return draft


def place_of(record: StoredRecord) -> Place:
    """Return the place and time at which a record was stored."""
    return Place(
        record.topic.encode(),
        record.store_host,
        record.store_timestamp_ms,
        record.queue_offset,
        record.physical_offset,
    )
