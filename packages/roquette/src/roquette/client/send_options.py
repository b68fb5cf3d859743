"""Options of a message that an application sends: each option stated once."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from roquette.client.producer import Selector
from roquette.message.message import MessageQueue


class MessageOptions(TypedDict, total=False):
    """Options of any message: `Client.send_oneway` has these and `queue`.

    Attributes:
        key: one key or several, to find the message by.
        tag: what consumers filter by.
        properties: the application's own.
    """

    key: str | Sequence[str] | None
    tag: str | None
    properties: Mapping[str, str] | None


class OnewayOptions(MessageOptions, total=False):
    """Of `Client.send_oneway`.

    Attributes:
        queue: where it goes.
    """

    queue: MessageQueue | None


class KeyedOptions(MessageOptions, total=False):
    """Of `Client.request` and `Client.transaction`.

    Attributes:
        shard_key: messages with one shard key go to one queue, in order.
    """

    shard_key: str | None


class SendOptions(KeyedOptions, OnewayOptions, total=False):
    """Of `Client.send` and `Client.send_nowait`.

    Attributes:
        delay_level: 1..18 (1 s .. 2 h) delivers later.
        deliver_at: deliver then (a datetime with a zone), or after so long (a timedelta); `recall` takes it back.
        selector: chooses the queue, of all that may be written.
        priority: 0 and up: `pop` gets higher ones first. It chooses the queue (of brokers from 5.4 on): the topic is made with
            `+message.type=PRIORITY` and a queue for each priority; higher ones are the highest queue's.
    """

    delay_level: int
    deliver_at: datetime | timedelta | None
    selector: Selector | None
    priority: int | None
