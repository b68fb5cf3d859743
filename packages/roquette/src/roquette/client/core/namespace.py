"""Namespaces of Apache's first kind: topics and groups of one namespace stand as `namespace%name` at the brokers. Pure.

Retry and dead-letter topics take it behind their prefix (`%RETRY%namespace%group`), topics and groups of the system not at
all. Apache: NamespaceUtil.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    is_system_group,
    is_system_topic,
    topic_error,
)
from roquette.message.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC

T = TypeVar("T")

_MARK: Final = "%"


def namespace_error(name: str) -> str | None:
    """Return what is wrong with a namespace's name; None when it is good."""
    if topic_error(name) is not None or _MARK in name:
        return (
            f"namespace {name!r:.140} is not 1 to 127 of the characters a-z, A-Z, 0-9, _, - and |"
        )
    return None


def _parts(name: str) -> tuple[str, str]:
    """Its prefix of a retry or dead-letter topic, if it has one, and the rest."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


class Namespace:
    """Names as brokers know them and as the application does. False, and without effect, when its name is "".

    `wrap` of what is wrapped, and `shown` of what is not, change nothing.
    """

    __slots__ = ("_start", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._start = name + _MARK

    def __bool__(self) -> bool:
        return bool(self.name)

    def wrap(self, name: str) -> str:
        """A topic or a group as brokers know it."""
        if not self.name or not name or is_system_topic(name) or is_system_group(name):
            return name
        prefix, rest = _parts(name)
        return name if rest.startswith(self._start) else f"{prefix}{self._start}{rest}"

    def shown(self, name: str) -> str:
        """A topic or a group as the application knows it; that of another namespace stays as it is."""
        if not self.name:
            return name
        prefix, rest = _parts(name)
        return prefix + rest[len(self._start) :] if rest.startswith(self._start) else name

    def wrap_keys(self, by_topic: Mapping[str, T]) -> Mapping[str, T]:
        """Return values by topic under the topics' names at the brokers."""
        if not self.name:
            return by_topic
        return {self.wrap(topic): value for topic, value in by_topic.items()}

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as its broker knows it."""
        if not self.name:
            return queue
        return MessageQueue(self.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the application knows it."""
        if not self.name:
            return queue
        return MessageQueue(self.shown(queue.topic), queue.broker_name, queue.queue_id)

    def shown_queues(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Queues as the application knows them."""
        return [self.shown_queue(queue) for queue in queues] if self.name else queues

    def show(self, message: ReceivedMessage) -> ReceivedMessage:
        """The message, with its topics and queue as the application knows them."""
        if self.name:
            message.topic = self.shown(message.topic)
            message.queue = self.shown_queue(message.queue)
            for name in (DLQ_ORIGIN_TOPIC, RETRY_TOPIC):
                if name in message.properties:
                    message.properties[name] = self.shown(message.properties[name])
        return message
