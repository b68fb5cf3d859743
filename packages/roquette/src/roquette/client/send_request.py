"""One request to store messages, the same bytes on every attempt, and what its answer says. HOT."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from roquette.base.clock import Clock
from roquette.client.config import ClientConfig
from roquette.client.core.namespace import Namespace
from roquette.client.core.route_cache import TOPICS, broker_error, keep
from roquette.client.receipt import SendReceipt
from roquette.client.session import Session
from roquette.errors import MessageIllegal
from roquette.message.compression import compress
from roquette.message.message import Message, MessageQueue
from roquette.message.message_id import UniqueIds, host_bytes
from roquette.message.names import RETRY_PREFIX, client_topic_error
from roquette.message.outgoing import property_map
from roquette.message.properties import (
    LITE_TOPIC,
    MAX_RECONSUME_TIMES,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    RECONSUME_TIME,
    TRAN_MSG,
    UNIQ_KEY,
    encode_properties,
)
from roquette.message.record_layout import MAX_PROPERTIES
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import NOT_FAST, HeaderDecoder, common_part, encode_ext
from roquette.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

Chooser = Callable[[Sequence[MessageQueue], str | None], MessageQueue]
"""Which of the queues it goes to; the text is the broker that failed last."""

SEND_OK: Final = "SEND_OK"
_OWN: Final = ("sys_flag", "born_timestamp", "flag", "properties")  # of each message
_header: Final = HeaderDecoder(SendMessageResponseHeader)
_decode: Final = _header.fast
_quote: Final = msgspec.json.Encoder().encode
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_STATUS: Final[dict[int, str]] = {
    ResponseCode.SUCCESS: SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}


class SendRequest:
    """A message, or a batch, ready for the wire: the same ids and bytes on every attempt.

    Attributes:
        shown: the topic as the application knows it; `topic` is as brokers do.
    """

    __slots__ = (
        "batch",
        "body",
        "flag",
        "max_reconsume",
        "message_ids",
        "properties",
        "reconsume",
        "shown",
        "sys_flag",
        "topic",
    )

    def __init__(self, topic: str, body: bytes, properties: str, message_ids: list[str]) -> None:
        self.topic = self.shown = topic
        self.body = body
        self.properties = properties
        self.message_ids = message_ids
        self.flag = 0
        self.sys_flag = 0
        self.batch = False
        self.reconsume = 0
        self.max_reconsume: int | None = None

    @property
    def code(self) -> int:
        """The request code."""
        return _SEND_BATCH if self.batch else _SEND

    def receipts(self, reply: Command, target: MessageQueue, address: str) -> list[SendReceipt]:
        """Read what the broker says of each message. Raises BrokerError when it stored none."""
        status = _STATUS.get(reply.code) if reply.code else SEND_OK
        if status is None:
            raise broker_error(reply.code, reply.remark, address)
        header: SendMessageResponseHeader
        try:
            header = _decode(reply.ext)
        except NOT_FAST:
            header = _header.coerce(reply.ext)
        queue = target
        if header.queue_id != target.queue_id or self.shown != target.topic:
            queue = MessageQueue(self.shown, target.broker_name, header.queue_id)
        ids = self.message_ids
        offset_ids = header.msg_id.split(",") if self.batch else [header.msg_id]
        return [
            SendReceipt(
                status=status,
                message_id=ids[index],
                offset_message_id=offset_ids[index] if index < len(offset_ids) else "",
                queue=queue,
                queue_offset=header.queue_offset + index,
                recall_handle=header.recall_handle or "",
                transaction_id=header.transaction_id or "",
            )
            for index in range(len(ids))
        ]


class Headers:
    """The headers of one producer's requests. What plain messages to a queue have in common is encoded once."""

    def __init__(self, group: str, config: ClientConfig, clock: Clock) -> None:
        self._group = group
        self._config = config
        self._clock = clock
        self._common: dict[MessageQueue, bytes] = {}

    def header_for(self, request: SendRequest, target: MessageQueue) -> bytes:
        """The header of an attempt, now, at one queue."""
        now_ms = self._clock.now_ms()
        if request.batch or request.reconsume or request.max_reconsume is not None:
            return encode_ext(self._header(request, target, now_ms))
        common = self._common.get(target)
        if common is None:
            common = common_part(self._header(request, target, now_ms), _OWN)
            keep(self._common, target, common, TOPICS)
        text = _quote(request.properties)
        return b'{%b,"f":"%d","g":"%d","h":"%d","i":%b}' % (
            common, request.sys_flag, now_ms, request.flag, text,
        )  # fmt: skip

    def _header(
        self, request: SendRequest, target: MessageQueue, now_ms: int
    ) -> SendMessageRequestHeaderV2:
        return SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=request.topic,
            default_topic=self._config.create_topic_key,
            default_topic_queue_nums=self._config.default_topic_queues,
            queue_id=target.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=now_ms,
            flag=request.flag,
            properties=request.properties,
            reconsume_times=request.reconsume,
            unit_mode=False,
            max_reconsume_times=request.max_reconsume,
            batch=request.batch,
            bname=target.broker_name,
        )


# A message becomes a request: checked before anything is sent, with its id, its properties as text, its body compressed.


Entry = tuple[int, bytes, bytes]
"""Flag, body and properties of a message in a batch."""


def weight(entry: Entry) -> int:
    """Return about how many bytes a message has in a batch."""
    return len(entry[1]) + len(entry[2]) + 32


_ALONE: Final = frozenset((LITE_TOPIC, TRAN_MSG))
NOTHING: Final[Mapping[str, str]] = {}
BATCH_BYTES = 1 << 20  # a batch request is split at about this size


class Preparation:
    """Of one producer's messages. All of it raises MessageIllegal, or TypeError.

    Attributes:
        batch_bytes: what a batch has at most, about.
    """

    def __init__(self, session: Session, namespace: Namespace) -> None:
        self._namespace, self._wraps = namespace, bool(namespace)
        self._config = config = session.config
        self._max_size: int = config.max_message_size
        self._max_level: int = config.max_delay_level
        self._compress_over: int = config.compress_over_bytes
        self.batch_bytes = min(BATCH_BYTES, self._max_size)
        self._clock = session.clock
        self._ids = UniqueIds(
            host_bytes(session.local_host, 0)[:-4],
            session.entropy.process_id,
            session.entropy.below(1 << 31),
        )

    def new_id(self) -> str:
        """A unique id, such as messages get."""
        return self._ids.next_id(self._clock.now_ms())

    def request(self, message: Message, named: Mapping[str, str] = NOTHING) -> SendRequest:
        """A message's request.

        Args:
            named: further properties, which win.
        """
        body, properties, message_id = self._checked(message, named)
        topic: str = message.topic
        request = SendRequest(topic, body, properties, [message_id])
        if self._wraps:
            request.topic = self._namespace.wrap(topic)
        request.flag = message.flag
        if len(body) > self._compress_over:
            packed = compress(body, self._config.compression, self._config.compression_level)
            if len(packed) < len(body):
                request.body = packed
                request.sys_flag |= self._config.compression.sys_flag
        if topic.startswith(RETRY_PREFIX):
            request.reconsume = int(message.properties.get(RECONSUME_TIME, "0"))
            most = message.properties.get(MAX_RECONSUME_TIMES)
            request.max_reconsume = int(most) if most else None
        return request

    def _checked(self, message: Message, named: Mapping[str, str]) -> tuple[bytes, str, str]:
        """Its body, its properties as text, its id."""
        properties = property_map(message)
        given: Any = message
        content, own = given.body, given.properties
        body: bytes = content if type(content) is bytes else bytes(content)
        topic: str = message.topic
        error = client_topic_error(self._namespace.wrap(topic) if self._wraps else topic)
        if error is not None:
            raise MessageIllegal(error)
        if not body:
            raise MessageIllegal("the message body length is zero")
        if not 0 <= message.delay_level <= self._max_level:
            raise MessageIllegal(
                f"delay level {message.delay_level} is not 0 (at once) to {self._max_level}"
            )
        if len(body) > self._max_size:
            raise MessageIllegal(
                f"the message body size over max value, MAX: {self._max_size}, is {len(body)}"
            )
        if named:
            properties.update(named)
        message_id = properties.get(UNIQ_KEY)
        if message_id is None:
            message_id = properties[UNIQ_KEY] = self.new_id()
        for name, value in own.items() if own else ():
            if NAME_SEPARATOR in name + value or PROPERTY_SEPARATOR in name + value:
                raise MessageIllegal(
                    f"property {name!r} holds a control character RocketMQ uses as separator"
                )
        text = encode_properties(properties)
        if len(text) > MAX_PROPERTIES // 4 and (size := len(text.encode())) > MAX_PROPERTIES:
            raise MessageIllegal(
                f"the message's properties, keys and tag have {size} bytes, brokers take {MAX_PROPERTIES}: put them into the body"
            )
        return body, text, message_id

    def entries(self, messages: Sequence[Message]) -> tuple[list[Entry], list[str]]:
        """The messages as batches hold them, and their ids: all of them checked before the first is sent."""
        found: list[Entry] = []
        ids: list[str] = []
        for message in messages:
            body, properties, message_id = self._checked(message, NOTHING)
            found.append((message.flag, body, properties.encode()))
            ids.append(message_id)
        return found, ids

    def fits(self, message: Message) -> bool:
        """Return True when it may go in a batch with any others of its topic, and gains by it."""
        given: Any = message  # what is wrong with it is said when it is sent
        return (
            not given.shard_key
            and not given.delay_level
            and given.deliver_at is None
            and given.priority is None
            and bool(given.wait_store_ok)
            and type(given.body) is bytes
            and len(given.body) <= self._compress_over
            and not given.topic.startswith(RETRY_PREFIX)
            and _ALONE.isdisjoint(given.properties)
        )

    def batch(self, topic: str, body: bytes, ids: list[str]) -> SendRequest:
        """The request of a batch."""
        properties = f"WAIT{NAME_SEPARATOR}true{PROPERTY_SEPARATOR}"
        request = SendRequest(self._namespace.wrap(topic), body, properties, ids)
        request.shown = topic
        request.batch = True
        return request

    def cut(self, entries: Sequence[Entry], places: Sequence[int]) -> list[list[int]]:
        """The entries at these places as parts of about `BATCH_BYTES`: the places of each."""
        parts: list[list[int]] = []
        size = self.batch_bytes + 1
        for place in places:
            if size + weight(entries[place]) > self.batch_bytes:
                parts.append([])
                size = 0
            parts[-1].append(place)
            size += weight(entries[place])
        return parts
