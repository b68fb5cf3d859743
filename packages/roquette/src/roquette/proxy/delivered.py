"""Stored records as messages of the v5 protocol (Apache: GrpcConverter.buildMessage)."""

from hashlib import md5
from typing import Final

from roquette.message import properties as p
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.properties import RESERVED, decode_properties
from roquette.message.record_layout import StoredRecord
from roquette.message.sysflag import COMPRESSED
from roquette.proxy.encoding import LONGEST_MS
from roquette.wire.proto.definition_pb2 import (
    DeadLetterQueue,
    Digest,
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)

_MD5: Final = DigestType.MD5
_GZIP: Final = Encoding.GZIP
_IDENTITY: Final = Encoding.IDENTITY
_NORMAL: Final = MessageType.NORMAL


def timestamp(ms: int) -> dict[str, int]:
    """A time, as the fields of a Timestamp; what that cannot say is its nearest."""
    seconds, rest = divmod(min(max(ms, 0), LONGEST_MS), 1000)
    return {"seconds": seconds, "nanos": rest * 1_000_000}


def to_message(
    record: StoredRecord,
    topic: Resource | None = None,
    receipt: str | None = None,
    named: dict[str, str] | None = None,
) -> Message:
    """The message of a record.

    Args:
        topic: what it is called; None: as the record says. receipt: its handle, of nine words.
        named: the record's properties, decoded, where the caller has them; it is changed.
    """
    if named is None:
        named = decode_properties(record.properties)
    take = named.pop
    body = record.body
    group = named.get(p.SHARDING_KEY)
    trace = named.get(p.TRACE_CONTEXT)
    system = SystemProperties(
        tag=take(p.TAGS, None),
        message_id=take(p.UNIQ_KEY, None)
        or offset_message_id(record.store_host, record.physical_offset),
        body_digest=Digest(
            type=_MD5, checksum=md5(body, usedforsecurity=False).hexdigest().upper()
        ),
        body_encoding=_GZIP if record.sys_flag & COMPRESSED else _IDENTITY,
        message_type=_NORMAL,
        born_timestamp=timestamp(record.born_timestamp_ms),
        born_host=take(p.BORN_HOST, None) or host_text(record.born_host).rpartition(":")[0],
        store_timestamp=timestamp(record.store_timestamp_ms),
        store_host=host_text(record.store_host),
        receipt_handle=receipt,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=record.reconsume_times + 1,
        message_group=group,
        trace_context=trace,
    )
    keys = take(p.KEYS, None)
    if keys:
        system.keys.extend([key for key in keys.split(p.KEY_SEPARATOR) if key])
    if named:
        _rare(system, named, record.born_timestamp_ms)
        named = {name: value for name, value in named.items() if name not in RESERVED}
    elif group is not None:
        system.message_type = MessageType.FIFO
    return Message(
        topic=Resource(name=record.topic) if topic is None else topic,
        user_properties=named,
        system_properties=system,
        body=body,
    )


def _rare(system: SystemProperties, named: dict[str, str], born_ms: int) -> None:
    """Type, delivery time, origin and priority: what few messages have."""
    deliver = _number(named.get(p.TIMER_DELIVER_MS))
    delay = _number(named.get(p.TIMER_DELAY_SEC))
    if named.get(p.TRAN_MSG) == "true":
        system.message_type = MessageType.TRANSACTION
    elif p.DELAY in named or p.TIMER_DELIVER_MS in named or p.TIMER_DELAY_SEC in named:
        system.message_type = MessageType.DELAY
    elif p.SHARDING_KEY in named:
        system.message_type = MessageType.FIFO
    elif p.LITE_TOPIC in named:
        system.message_type = MessageType.LITE
        system.lite_topic = named[p.LITE_TOPIC]
    if deliver is None and delay is not None:
        deliver = born_ms + delay * 1000
    if deliver is not None:
        seconds, rest = divmod(min(deliver, LONGEST_MS), 1000)
        system.delivery_timestamp.seconds = seconds
        system.delivery_timestamp.nanos = rest * 1_000_000
    priority = _number(named.get(p.PRIORITY))
    if priority is not None:
        system.priority = priority & 0x7FFFFFFF
        if system.message_type == MessageType.NORMAL:
            system.message_type = MessageType.PRIORITY
    recovery = _number(named.get(p.CHECK_IMMUNITY_TIME_IN_SECONDS))
    if recovery is not None:
        system.orphaned_transaction_recovery_duration.seconds = min(recovery, 1 << 31)
    topic, message_id = named.get(p.DLQ_ORIGIN_TOPIC), named.get(p.DLQ_ORIGIN_MESSAGE_ID)
    if topic and message_id:
        system.dead_letter_queue.CopyFrom(DeadLetterQueue(topic=topic, message_id=message_id))


def _number(text: str | None) -> int | None:
    """A number above or equal to 0 in a property's value; None for anything else."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)
