"""Requests that find stored messages: by key or id through the index (12), by place (33). Pure, as `client.calls`.

Apache: MQAdminImpl.queryMessage, viewMessage. The index finds by hashes, so the text decides here.
"""

from typing import Final

from roquette.client.calls import Call
from roquette.message.message import ReceivedMessage, received
from roquette.message.record import decode_records
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.headers import QueryMessageRequestHeader, ViewMessageRequestHeader

_INDEX_MS: Final = 1_000  # the index knows whole seconds
FOREVER_MS: Final = 2**63 - 1


def query(
    broker_name: str, topic: str, key: str, most: int, begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> Call[list[ReceivedMessage]]:
    """A broker's messages of a topic with a key, or with this id, stored between two times."""

    def read(answer: Command) -> list[ReceivedMessage]:
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        found = [received(record, broker_name) for record in decode_records(answer.body or b"")]
        return [
            message
            for message in found
            if message.topic == topic
            and (key in message.keys or key == message.message_id)
            and begin_ms <= message.store_timestamp_ms <= end_ms
        ]

    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=most,
        begin_timestamp=max(0, begin_ms - _INDEX_MS),
        end_timestamp=min(FOREVER_MS, end_ms + _INDEX_MS),
    )
    also = frozenset((int(ResponseCode.QUERY_NOT_FOUND),))
    return Call(RequestCode.QUERY_MESSAGE, read, header, also=also)


def view(broker_name: str, topic: str, offset: int) -> Call[ReceivedMessage]:
    """The message at a place of a broker's log; the broker refuses when there is none."""

    def read(answer: Command) -> ReceivedMessage:
        (record,) = decode_records(answer.body or b"")
        return received(record, broker_name)

    header = ViewMessageRequestHeader(topic=topic or None, offset=offset)
    return Call(RequestCode.VIEW_MESSAGE_BY_ID, read, header)
