"""Rules of a message, with Apache's codes and texts (SendMessageActivity, GrpcValidator, DefaultTopicMessageTypeValidator)."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from roquette.errors import ExpressionError
from roquette.filter.tags import check_length
from roquette.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    client_group_error,
    client_topic_error,
    is_system_group,
    is_system_topic,
)
from roquette.message.properties import RESERVED
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import RpcError
from roquette.wire.proto.definition_pb2 import Code, Resource

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")  # Java's ISO controls


def has_control(text: str) -> bool:
    """Return True when there is a control character in it; `isprintable` is many times faster, and nearly always enough."""
    return not text.isprintable() and _CONTROL.search(text) is not None


def size_of(text: str) -> int:
    """Its bytes."""
    return len(text) if text.isascii() else len(text.encode())


def check_expression(expression: str) -> None:
    """Raise RpcError for a filter expression that is too long."""
    try:
        check_length(expression)
    except ExpressionError as error:
        raise RpcError(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


class Validators:
    """The checks, with their limits; a limit of 0 or less is none.

    Args:
        max_body: bytes of a body at most.
    """

    def __init__(self, settings: ProxySettings, max_body: Callable[[], int]) -> None:
        self._max_body = max_body
        self._most_user = settings.user_property_max_num
        self.max_size = settings.max_user_property_size
        self._max_group = settings.max_message_group_size
        self._max_delay_ms = settings.max_delay_time_mills
        self._max_recovery_s = settings.max_transaction_recovery_second
        self._checks_kind = settings.enable_topic_message_type_check

    def body(self, body: bytes) -> None:
        """There is one, and it is not too large."""
        if not body:
            raise RpcError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
        most = self._max_body()
        if 0 < most < len(body):
            text = f"message body cannot exceed the max {most}"
            raise RpcError(Code.MESSAGE_BODY_TOO_LARGE, text)

    def user_properties(self, user: dict[str, str]) -> int:
        """Names and values of an application's own properties; returns their bytes."""
        if len(user) > self._most_user:
            text = f"too many user properties, max is {self._most_user}"
            raise RpcError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
        size = 0
        for key, value in user.items():
            if key in RESERVED:
                text = f"property is used by system: {key}"
            elif has_control(key):
                text = "the key of property cannot contain control character"
            elif has_control(value):
                text = "the value of property cannot contain control character"
            else:
                size += size_of(key) + size_of(value)
                continue
            raise RpcError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        return size

    def tag(self, tag: str) -> None:
        """A tag that is not empty."""
        if not tag.strip():
            text = "tag cannot be the char sequence of whitespace"
        elif "|" in tag:
            text = "tag cannot contain '|'"
        elif has_control(tag):
            text = "tag cannot contain control character"
        else:
            return
        raise RpcError(Code.ILLEGAL_MESSAGE_TAG, text)

    def key(self, key: str) -> None:
        """One of the keys."""
        if key and not key.strip():
            text = "key cannot be the char sequence of whitespace"
        elif has_control(key):
            text = "key cannot contain control character"
        else:
            return
        raise RpcError(Code.ILLEGAL_MESSAGE_KEY, text)

    def total(self, size: int) -> None:
        """The bytes of user properties, tag and keys."""
        if size > self.max_size:
            text = f"the total size of user property is too large, max is {self.max_size}"
            raise RpcError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)

    def message_id(self, message_id: str) -> None:
        """Any text that is not blank."""
        if not message_id or message_id.isspace():
            raise RpcError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")

    def recovery(self, seconds: int) -> None:
        """Check how long a half message is left alone before its producer is asked."""
        if 0 < self._max_recovery_s < seconds:
            text = (
                "the max transaction recovery time of message is too large, "
                f"max is {self._max_recovery_s}"
            )
            raise RpcError(Code.BAD_REQUEST, text)

    def delivery(self, at_ms: int, now_ms: int) -> None:
        """Check how far ahead a delivery time is."""
        if 0 < self._max_delay_ms < at_ms - now_ms:
            text = f"the max delay time of message is too large, max is {self._max_delay_ms}"
            raise RpcError(Code.ILLEGAL_DELIVERY_TIME, text)

    def group(self, group: str) -> None:
        """A message group that is not empty."""
        if group.isspace():
            text = "message group cannot be the char sequence of whitespace"
        elif 0 < self._max_group <= size_of(group):
            text = f"message group exceed the max size {self._max_group}"
        elif has_control(group):
            text = "message group cannot contain control character"
        else:
            return
        raise RpcError(Code.ILLEGAL_MESSAGE_GROUP, text)

    def priority(self, priority: int) -> None:
        """A priority that is set."""
        if priority < 0:
            text = "The priority must be greater than or equal to 0"
            raise RpcError(Code.INTERNAL_SERVER_ERROR, text)

    def kind(self, topic: str, expected: str, actual: str) -> None:
        """A message's type against its topic's; messages to retry and dead-letter topics may have any."""
        if (
            self._checks_kind
            and actual != expected
            and expected != "MIXED"
            and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        ):
            text = (
                f"TopicMessageType validate failed, the expected type is {expected}, "
                f"but actual type is {actual}"
            )
            raise RpcError(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
        if actual == "LITE":
            raise RpcError(Code.NOT_IMPLEMENTED, "this server has no lite topics")


# Names of topics and groups as clients write them, checked.
# A resource's namespace counts for nothing, as in Apache's proxy (docs/compatibility.md): a client finds the same topics behind either.


KEPT: Final = 2_048  # names whose check is remembered


def topic_of(resource: Resource) -> str:
    """The name of a topic that clients may use; raises RpcError."""
    return checked_topic(resource.name)


def checked_topic(said: str) -> str:
    """The same of the name alone."""
    name, error = _topic(said)
    if error is not None:
        raise RpcError(Code.ILLEGAL_TOPIC, error)
    return name


@lru_cache(maxsize=KEPT)
def _topic(name: str) -> tuple[str, str | None]:
    """The name, as one object for all who use it, and what is wrong with it."""
    error = client_topic_error(name)
    return name, "cannot access system topic" if error is None and is_system_topic(name) else error


def group_of(resource: Resource) -> str:
    """The name of a consumer group that clients may use; raises RpcError."""
    return checked_group(resource.name)


def checked_group(said: str) -> str:
    """The same of the name alone."""
    name, error = _group(said)
    if error is not None:
        raise RpcError(Code.ILLEGAL_CONSUMER_GROUP, error)
    return name


@lru_cache(maxsize=KEPT)
def _group(name: str) -> tuple[str, str | None]:
    error = client_group_error(name)
    if error is None and is_system_group(name):
        error = "cannot use system consumer group"
    return name, error
