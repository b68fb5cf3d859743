"""The layout of a stored record: what every reader and writer of one takes from here. HOT.

| field | bytes | note |
|---|---|---|
| total size | 4 | the whole record |
| magic | 4 | V1 0xDAA320A7, V2 0xDAA320AB, blank (end of a file) 0xCBD43194 |
| body CRC | 4 | CRC-32 of the body & 0x7FFFFFFF |
| queue id, flag | 4 + 4 | |
| queue offset, physical offset | 8 + 8 | at bytes 20 and 28 |
| sys flag | 4 | at byte 36 |
| born timestamp, born host | 8 + 8 or 20 | 20 when sys flag has 0x10: address, then port as int32 |
| store timestamp, store host | 8 + 8 or 20 | 20 when sys flag has 0x20 |
| reconsume times, prepared offset | 4 + 8 | |
| body length, body | 4 + n | |
| topic length, topic | 1 + n, in V2 2 + n | V2 when the topic has more than 127 bytes |
| properties length, properties | 2 + n | |

Apache: MessageExtEncoder (writes), CommitLog.checkMessageAndReturnSize and MessageDecoder (read).
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from roquette.message.properties import KeySpans
from roquette.message.sysflag import BORN_HOST_V6, STORE_HOST_V6

RECORD_MAGIC_V1: Final = -626843481
RECORD_MAGIC_V2: Final = -626843477
MAGIC_START: Final = b"\xda\xa3\x20"  # of both
BLANK_MAGIC: Final = -875286124
BLANK_MARK: Final = b"\xcb\xd4\x31\x94"  # its magic as bytes
BLANK_SIZE: Final = 8  # the smallest blank: its size and its magic
MAX_TOPIC_V1: Final = 127
MAX_TOPIC: Final = 32_767
MAX_TOPIC_NAME: Final = 255  # bytes of a directory's name
MAX_PROPERTIES: Final = 32_767
MAX_RECORD: Final = 0x7FFFFFFF

FIXED_SIZE: Final = 75  # everything of V1 but the hosts, body, topic and properties
SMALLEST_RECORD: Final = 91  # two IPv4 hosts, no body, topic or properties
HEAD_SIZE: Final = 112  # up to the body's length, whichever size the hosts have
QUEUE_ID_AT: Final = 12
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_HOST_AT: Final = 48
STORED_AT: Final = 56  # with an IPv4 born host
PLACE_END: Final = (
    36  # behind the physical offset: what tells whether a record stands where it should
)
V4_HOST: Final = 8
V6_HOST: Final = 20
V6_MORE: Final = V6_HOST - V4_HOST

FIXED_FIELDS: Final = (
    ("size", ">i4"),
    ("magic", ">i4"),
    ("body_crc", ">i4"),
    ("queue_id", ">i4"),
    ("flag", ">i4"),
    ("queue_offset", ">i8"),
    ("physical_offset", ">i8"),
    ("sys_flag", ">i4"),
    ("born", ">i8"),
    ("born_host", "V8"),  # from here on only where both hosts are IPv4
    ("stored", ">i8"),
    ("store_host", "V8"),
    ("reconsume_times", ">i4"),
    ("prepared_offset", ">i8"),
    ("body_size", ">i4"),
)
"""Fields up to the body as numpy names their kinds, for who reads many records at once."""

WHOLE_CRC: Final = b"__CRC32#\x01"
WHOLE_CRC_SIZE: Final = 20  # name, separator, ten digits, separator


def names_directory(topic: bytes) -> bool:
    """Can a queue's directory have this name? What cannot is no topic that a store has ever taken."""
    size = len(topic)
    if size == 0 or size > MAX_TOPIC_NAME or topic == b"." or topic == b"..":
        return False
    return b"/" not in topic and b"\0" not in topic


class StoredRecord:
    """One record, decoded. Hosts are raw: the address (4 or 16 bytes), then the port as int32."""

    __slots__ = (
        "body",
        "body_crc",
        "born_host",
        "born_timestamp_ms",
        "flag",
        "magic",
        "physical_offset",
        "prepared_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "store_host",
        "store_timestamp_ms",
        "sys_flag",
        "topic",
    )

    def __init__(self, topic: str, properties: str, body: bytes) -> None:
        self.topic: str = topic
        self.properties: str = properties
        self.body: bytes = body
        self.size: i64 = 0
        self.magic: i64 = RECORD_MAGIC_V1
        self.body_crc: i64 = 0
        self.queue_id: i64 = 0
        self.flag: i64 = 0
        self.queue_offset: i64 = 0
        self.physical_offset: i64 = 0
        self.sys_flag: i64 = 0
        self.born_timestamp_ms: i64 = 0
        self.born_host: bytes = b""
        self.store_timestamp_ms: i64 = 0
        self.store_host: bytes = b""
        self.reconsume_times: i64 = 0
        self.prepared_offset: i64 = 0


# A message before the store has given it a place, and that place. HOT.


CODE_OF_TAGS: Final = -(1 << 62)
_NO_HOST_BITS: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)


@mypyc_attr(acyclic=True, free_list_len=1)
class Draft:
    """Parts of a record that its writer decides. Hosts are raw: the address (4 or 16 bytes), then the port as int32.

    Attributes:
        properties: the property string in UTF-8; it says what the record is indexed by.
        body: of one message; for `MessageStore.append_batch` the entries of a client batch (`message.batch`).
        unit_code: what the queue's unit carries: CODE_OF_TAGS, or a time of delivery in SCHEDULE_TOPIC_XXXX.
        own: the broker delivers what it has taken before: limits for senders are none for it.
        spans: what is known of where its keys and tags stand in `properties`, or None.
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
        "spans",
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
        self.spans: KeySpans | None = None


@mypyc_attr(acyclic=True, free_list_len=1)
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
