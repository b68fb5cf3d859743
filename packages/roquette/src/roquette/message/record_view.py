"""Reading a stored record: one cursor, with every fault it can have. HOT."""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.base.checksum import crc32
from roquette.base.javatypes import java_text
from roquette.message.record_layout import (
    BLANK_MAGIC,
    BORN_HOST_AT,
    MAX_RECORD,
    MAX_TOPIC_V1,
    PHYSICAL_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    SMALLEST_RECORD,
    STORED_AT,
    SYS_FLAG_AT,
    V6_MORE,
    WHOLE_CRC,
    WHOLE_CRC_SIZE,
    StoredRecord,
    names_directory,
)
from roquette.message.sysflag import BORN_HOST_V6, STORE_HOST_V6

# What a reader finds; FAULT_NAMES and FAULT_WORDS say it in words.
SOUND: Final = 0
BAD_MAGIC: Final = 1
BAD_SIZE: Final = 2
BAD_PARTS: Final = 3
BAD_OFFSET: Final = 4
BAD_CRC: Final = 5
HOLE: Final = 6
TAIL: Final = 7
CUT: Final = 8
BAD_BLANK: Final = 9
BAD_WHOLE_CRC: Final = 10
BLANK: Final = 11  # not a fault: the file ends here
BAD_TOPIC: Final = 12

FAULT_NAMES: Final = (
    "sound", "magic", "size", "structure", "offset", "crc", "hole", "tail", "cut", "blank", "whole_crc", "blank", "topic",
)  # fmt: skip
FAULT_WORDS: Final = (
    "a sound record",
    "no record or blank begins here: the magic number is wrong",
    "the record's size is impossible",
    "the parts of the record do not add up to its size",
    "the record names another physical offset than the one it stands at",
    "the body does not match its CRC",
    "zeros where a record should be, and records behind them",
    "bytes behind the last sound record",
    "the bytes end within a record",
    "the blank at the file's end has the wrong size",
    "the record does not match the CRC over all of it",
    "a blank, which fills the rest of a file",
    "the topic cannot name a directory",
)


class RecordView:
    """Places of one record's parts in some bytes, and what is wrong with it: the only reader of the layout.

    A view is moved from record to record; each method that looks sets the fields and returns a fault, SOUND if none.
    How strict a reader is, it says by the methods it calls: `find` (the parts add up: what a reply must be),
    `check_place` (it stands where it says: what a log must be), `check_topic` (its queue can have a directory),
    `check_body` (its CRC). `examine` is all of them, and what every reader of a store asks.

    Attributes:
        at, size: of the record. Positions count from the first byte of `data`.
        magic, queue_id, queue_offset, physical, sys_flag, store_ms: fields of the header.
        stored_at, after_hosts: where the store time stands, and what follows the hosts.
        body_at, body_size, topic_at, topic_size, properties_at, properties_size: the variable parts.
    """

    __slots__ = (
        "_topic", "after_hosts", "at", "body_at", "body_size", "data", "magic", "physical", "properties_at",
        "properties_size", "queue_id", "queue_offset", "size", "store_ms", "stored_at", "sys_flag", "topic_at",
        "topic_size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.data: bytes = b""
        self.at: i64 = 0
        self.size: i64 = 0
        self.magic: i64 = 0
        self.queue_id: i64 = 0
        self.queue_offset: i64 = 0
        self.physical: i64 = 0
        self.sys_flag: i64 = 0
        self.store_ms: i64 = 0
        self.stored_at: i64 = 0
        self.after_hosts: i64 = 0
        self.body_at: i64 = 0
        self.body_size: i64 = 0
        self.topic_at: i64 = 0
        self.topic_size: i64 = 0
        self.properties_at: i64 = 0
        self.properties_size: i64 = 0
        self._topic: bytes = b""  # the last one that can name a directory

    def find_size(self, data: bytes, at: i64, room: i64) -> i64:
        """The size and magic at a place, of a record that may take `room` bytes; needs 8 bytes there."""
        self.data = data
        self.at = at
        magic: int = read_i32_be(data, at + 4)
        size: int = read_i32_be(data, at)
        self.magic = magic
        self.size = size
        if magic == BLANK_MAGIC:
            return BLANK if self.size == room else BAD_BLANK
        if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:
            return BAD_MAGIC
        return BAD_SIZE if self.size < SMALLEST_RECORD or self.size > room else SOUND

    def find_head(self, data: bytes, at: i64) -> i64:
        """The fixed fields at a place, body and what follows may be missing; needs HEAD_SIZE bytes or the record."""
        left: i64 = len(data) - at
        if at < 0 or left < SMALLEST_RECORD:
            return CUT
        fault = self.find_size(data, at, MAX_RECORD)
        if fault != SOUND:
            return fault
        flags: int = read_i32_be(data, at + SYS_FLAG_AT)
        self.sys_flag = flags
        place: i64 = at + STORED_AT
        if flags & BORN_HOST_V6:
            place += V6_MORE
        self.stored_at = place
        # 8 bytes of store time, then the store host in its short form.
        place += 16
        if flags & STORE_HOST_V6:
            place += V6_MORE
        self.after_hosts = place
        if place + 16 > len(data):
            return CUT
        queue_id: int = read_i32_be(data, at + QUEUE_ID_AT)
        self.queue_id = queue_id
        self.queue_offset = read_i64_be(data, at + QUEUE_OFFSET_AT)
        self.physical = read_i64_be(data, at + PHYSICAL_AT)
        self.store_ms = read_i64_be(data, self.stored_at)
        body: int = read_i32_be(data, place + 12)
        self.body_size = body
        self.body_at = place + 16
        fixed: i64 = place + 16 - at + 3  # the smallest lengths of topic and properties
        return BAD_PARTS if body < 0 or fixed + body > self.size else SOUND

    def find(self, data: bytes, at: i64) -> i64:
        """All parts of the record at a place; they must add up to its size, as Apache's checkMessageAndReturnSize asks."""
        fault = self.find_head(data, at)
        if fault != SOUND:
            return fault
        if at + self.size > len(data):
            return CUT
        return self._find_tail(data, self.body_at + self.body_size, at + self.size)

    def find_tail(self, tail: bytes) -> i64:
        """Topic and properties after `find_head`, out of the bytes behind the body: positions count in `tail`."""
        self.data = tail
        return self._find_tail(tail, 0, len(tail))

    def _find_tail(self, data: bytes, place: i64, end: i64) -> i64:
        if place + 3 > end:
            return BAD_PARTS
        topic_size: i64
        if self.magic == RECORD_MAGIC_V1:
            topic_size = data[place]
            # Java reads this byte with its sign: above 127 it would be negative there.
            if topic_size > MAX_TOPIC_V1:
                return BAD_PARTS
            place += 1
        else:
            short: int = read_i16_be(data, place)
            topic_size = short
            place += 2
        if topic_size < 0 or place + topic_size + 2 > end:
            return BAD_PARTS
        self.topic_at = place
        self.topic_size = topic_size
        place += topic_size
        properties_size: int = read_i16_be(data, place)
        self.properties_at = place + 2
        self.properties_size = properties_size
        return SOUND if place + 2 + self.properties_size == end else BAD_PARTS

    def check_place(self, physical: i64) -> i64:
        """Does it name the physical offset at which it stands?"""
        return SOUND if self.physical == physical else BAD_OFFSET

    def check_topic(self) -> i64:
        """Can its topic name a directory?"""
        topic = self.data[self.topic_at : self.topic_at + self.topic_size]
        if topic != self._topic or not topic:
            if not names_directory(topic):
                return BAD_TOPIC
            self._topic = topic
        return SOUND

    def check_body(self) -> i64:
        """Does the body match its CRC? An empty one has none."""
        if self.body_size > 0:
            wanted: int = read_i32_be(self.data, self.at + 8)
            body = self.data[self.body_at : self.body_at + self.body_size]
            if crc32(body) & 0x7FFFFFFF != wanted:
                return BAD_CRC
        return SOUND

    def check_whole(self) -> i64:
        """Does the record match Apache's optional CRC over all of it, which is its last property?

        Nobody but fsck asks: an application may send a property of that name, and loses nothing by it.
        """
        data = self.data
        end: i64 = self.at + self.size
        start: i64 = end - WHOLE_CRC_SIZE
        if self.properties_size < WHOLE_CRC_SIZE or not data.startswith(WHOLE_CRC, start):
            return SOUND
        digits = data[end - 11 : end - 1]
        wanted = int(digits[::-1]) if digits.isdigit() else -1
        return SOUND if crc32(data[self.at : start]) & 0x7FFFFFFF == wanted else BAD_WHOLE_CRC

    def examine(self, data: bytes, at: i64, physical: i64, check_crc: bool) -> i64:
        """Check what every reader of a store asks of a record that lies in `data` as a whole."""
        fault = self.find(data, at)
        if fault == SOUND:
            fault = self.check_place(physical)
        if fault == SOUND:
            fault = self.check_topic()
        # Last: it reads the whole body.
        if fault == SOUND and check_crc:
            fault = self.check_body()
        return fault

    def prepared_offset(self) -> i64:
        """Return the offset of a transaction's prepared message; below 0 the mark of a delivered copy."""
        return read_i64_be(self.data, self.after_hosts + 4)

    def properties(self) -> bytes:
        """The property bytes."""
        return self.data[self.properties_at : self.properties_at + self.properties_size]

    def record(self) -> StoredRecord:
        """The record as a value. Texts that are not UTF-8 are read with U+FFFD, as Java does."""
        data = self.data
        at = self.at
        after_hosts = self.after_hosts
        found = StoredRecord(
            java_text(data[self.topic_at : self.topic_at + self.topic_size]),
            java_text(self.properties()),
            data[self.body_at : self.body_at + self.body_size],
        )
        body_crc: int = read_i32_be(data, at + 8)
        flag: int = read_i32_be(data, at + 16)
        reconsume_times: int = read_i32_be(data, after_hosts)
        found.size = self.size
        found.magic = self.magic
        found.body_crc = body_crc
        found.queue_id = self.queue_id
        found.flag = flag
        found.queue_offset = self.queue_offset
        found.physical_offset = self.physical
        found.sys_flag = self.sys_flag
        found.born_timestamp_ms = read_i64_be(data, at + 40)
        found.born_host = data[at + BORN_HOST_AT : self.stored_at]
        found.store_timestamp_ms = self.store_ms
        found.store_host = data[self.stored_at + 8 : after_hosts]
        found.reconsume_times = reconsume_times
        found.prepared_offset = self.prepared_offset()
        return found


def is_of_queue(
    view: RecordView, record: bytes, size: i64, physical: i64, topic: bytes, queue_id: i64
) -> bool:
    """Are these bytes one sound record of a queue, at home where it stands? Its parts are in the view then."""
    if len(record) != size or view.find(record, 0) != SOUND or view.size != size:
        return False
    if view.physical != physical or view.queue_id != queue_id:
        return False
    if record[view.topic_at : view.topic_at + view.topic_size] != topic:
        return False
    return view.check_body() == SOUND
