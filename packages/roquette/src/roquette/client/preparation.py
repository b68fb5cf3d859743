"""A message becomes a request: checked before anything is sent, with its id, its properties as text, its body compressed."""

from collections.abc import Mapping, Sequence
from typing import Final

from roquette.client.core.namespace import Namespace
from roquette.client.send_request import SendRequest
from roquette.client.session import Session
from roquette.errors import MessageIllegal
from roquette.message.compression import compress
from roquette.message.message import Message
from roquette.message.message_id import UniqueIds, host_bytes
from roquette.message.names import RETRY_PREFIX, client_topic_error
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
        self._config = session.config
        self.batch_bytes = min(BATCH_BYTES, session.config.max_message_size)
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
        body = self._checked_body(message)
        properties, message_id = self._properties(message, named)
        request = SendRequest(message.topic, body, properties, [message_id])
        if self._wraps:
            request.topic = self._namespace.wrap(message.topic)
        request.flag = message.flag
        if len(body) > self._config.compress_over_bytes:
            packed = compress(body, self._config.compression, self._config.compression_level)
            if len(packed) < len(body):
                request.body = packed
                request.sys_flag |= self._config.compression.sys_flag
        if message.topic.startswith(RETRY_PREFIX):
            request.reconsume = int(message.properties.get(RECONSUME_TIME, "0"))
            most = message.properties.get(MAX_RECONSUME_TIMES)
            request.max_reconsume = int(most) if most else None
        return request

    def _checked_body(self, message: Message) -> bytes:
        body = message.body
        if wrong := message._wrong_type():
            raise TypeError(wrong)
        if wrong := message._wrong_word():
            raise MessageIllegal(wrong)
        error = client_topic_error(
            self._namespace.wrap(message.topic) if self._wraps else message.topic
        )
        if error is not None:
            raise MessageIllegal(error)
        if not body:
            raise MessageIllegal("the message body length is zero")
        if not 0 <= message.delay_level <= self._config.max_delay_level:
            raise MessageIllegal(
                f"delay level {message.delay_level} is not 0 (at once) to {self._config.max_delay_level}"
            )
        if len(body) > self._config.max_message_size:
            raise MessageIllegal(
                f"the message body size over max value, MAX: {self._config.max_message_size}, is {len(body)}"
            )
        return body

    def _properties(self, message: Message, named: Mapping[str, str] = NOTHING) -> tuple[str, str]:
        properties = {**message._property_map(), **named} if named else message._property_map()
        message_id = properties.get(UNIQ_KEY)
        if message_id is None:
            message_id = self.new_id()
            properties[UNIQ_KEY] = message_id
        for name, value in message.properties.items() if message.properties else ():
            if NAME_SEPARATOR in name + value or PROPERTY_SEPARATOR in name + value:
                raise MessageIllegal(
                    f"property {name!r} holds a control character RocketMQ uses as separator"
                )
        text = encode_properties(properties)
        if len(text) > MAX_PROPERTIES // 4 and (size := len(text.encode())) > MAX_PROPERTIES:
            raise MessageIllegal(
                f"the message's properties, keys and tag have {size} bytes, brokers take {MAX_PROPERTIES}: put them into the body"
            )
        return text, message_id

    def entries(self, messages: Sequence[Message]) -> tuple[list[Entry], list[str]]:
        """The messages as batches hold them, and their ids: all of them checked before the first is sent."""
        found: list[Entry] = []
        ids: list[str] = []
        for message in messages:
            properties, message_id = self._properties(message)
            found.append((message.flag, self._checked_body(message), properties.encode()))
            ids.append(message_id)
        return found, ids

    def fits(self, message: Message) -> bool:
        """Return True when it may go in a batch with any others of its topic, and gains by it."""
        return (
            not message.shard_key
            and not message.delay_level
            and message.deliver_at is None
            and message.priority is None
            and message.wait_store_ok
            and type(message.body) is bytes  # or the error is made elsewhere
            and len(message.body) <= self._config.compress_over_bytes
            and not message.topic.startswith(RETRY_PREFIX)
            and _ALONE.isdisjoint(message.properties)
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
