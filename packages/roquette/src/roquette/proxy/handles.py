"""Receipt handles of the v5 protocol, and the requests that they name (Apache: ReceiptHandle, ConsumerProcessor).

A handle is a broker's receipt, `start popTime invisibleTime reviveQid t brokerName queueId queueOffset`, and the
message's place in the log as its ninth word. t: 0 the topic's message, 1 and 2 the pop retry topic's, of v1 and v2.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from roquette.message.names import RETRY_PREFIX, pop_retry_topic
from roquette.proxy.answers import BrokerAnswer, Then
from roquette.proxy.backend import Backend, RequestUnderWay
from roquette.proxy.call import Caller
from roquette.proxy.statuses import RpcError
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import HeaderDecoder
from roquette.wire.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    ConsumerSendMsgBackRequestHeader,
)
from roquette.wire.proto.definition_pb2 import Code

NACK_MS: Final = 1_000  # what is given back comes again after so long
LONGEST: Final = 1_024  # characters of a handle
_KINDS: Final = ("0", "1", "2")
_changed: Final = HeaderDecoder(ChangeInvisibleTimeResponseHeader)


class ReceiptHandle(NamedTuple):
    """A receipt handle, read.

    Attributes:
        place: of the message in the log; below 0 when the handle does not say it.
    """

    text: str
    pop_time: int
    invisible_time: int
    kind: str
    broker: str
    queue_id: int
    offset: int
    place: int

    @property
    def visible_ms(self) -> int:
        """Time at which the message comes again, ms, wall time."""
        return self.pop_time + self.invisible_time

    def topic(self, topic: str, group: str) -> str:
        """The topic the message was popped from."""
        return topic if self.kind == "0" else pop_retry_topic(topic, group, v2=self.kind == "2")


def kind_of(topic: str) -> str:
    """Return which of the three kinds a topic is (ExtraInfoUtil.getRetry)."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


def read_handle(text: str) -> ReceiptHandle:
    """Read a handle.

    Raises:
        RpcError: INVALID_RECEIPT_HANDLE, it is none.
    """
    words = text.split(" ", 9) if len(text) <= LONGEST else []
    if len(words) < 8 or words[4] not in _KINDS or not words[5]:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is invalid")
    try:
        place = int(words[8]) if len(words) > 8 else -1
        return ReceiptHandle(
            text, int(words[1]), int(words[2]), words[4], words[5], int(words[6]), int(words[7]), place
        )  # fmt: skip
    except ValueError:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is invalid") from None


def living_handle(text: str, now_ms: int) -> ReceiptHandle:
    """Read a handle whose message is still invisible. Raises RpcError."""
    handle = read_handle(text)
    if handle.visible_ms <= now_ms:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
    return handle


def ack(
    backend: Backend, caller: Caller, handle: ReceiptHandle, topic: str, group: str, then: Then
) -> RequestUnderWay:
    """Acknowledge a message."""
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=handle.topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=handle.text,
        offset=handle.offset,
    )
    return backend.ask(caller, handle.broker, RequestCode.ACK_MESSAGE, header, b"", then)


def change(
    backend: Backend,
    caller: Caller,
    handle: ReceiptHandle,
    topic: str,
    group: str,
    invisible_ms: int,
    then: Callable[[BrokerAnswer, str], None],
    *,
    suspend: bool = False,
) -> RequestUnderWay:
    """Change how long a message is invisible, from now.

    Args:
        then: gets the answer and the message's handle from now on: the new one, or the old one where it stays.
    """

    def answered(answer: BrokerAnswer) -> None:
        text = handle.text
        if answer.code == ResponseCode.SUCCESS and answer.ext:
            new = _changed(msgspec.Raw(answer.ext))
            if new.pop_time:
                text = (
                    f"{handle.offset} {new.pop_time} {new.invisible_time} {new.revive_qid} {handle.kind} "
                    f"{handle.broker} {handle.queue_id} {handle.offset} {handle.place}"
                )
        then(answer, text)

    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=handle.topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=handle.text,
        offset=handle.offset,
        invisible_time=invisible_ms,
        suspend=suspend,
    )
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    return backend.ask(caller, handle.broker, code, header, b"", answered)


def give_back(backend: Backend, text: str, topic: str, group: str) -> None:
    """Nobody works on a message any more: it comes again soon. Nothing happens for a handle that is none."""
    try:
        handle = read_handle(text)
    except RpcError:
        return
    change(backend, backend.own, handle, topic, group, NACK_MS, lambda answer, new: None)


def forward(
    backend: Backend,
    caller: Caller,
    handle: ReceiptHandle,
    topic: str,
    group: str,
    message_id: str,
    then: Then,
) -> None:
    """Put a message into the group's dead-letter queue, then acknowledge it.

    Raises:
        RpcError: the handle does not say where the message is.
    """
    if handle.place < 0:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")

    def answered(answer: BrokerAnswer) -> None:
        if answer.code == ResponseCode.SUCCESS:
            ack(backend, backend.own, handle, topic, group, lambda ignored: None)
        then(answer)

    header = ConsumerSendMsgBackRequestHeader(
        offset=handle.place,
        group=group,
        delay_level=-1,
        origin_msg_id=message_id,
        origin_topic=handle.topic(topic, group),
        max_reconsume_times=0,
    )
    backend.ask(caller, handle.broker, RequestCode.CONSUMER_SEND_MSG_BACK, header, b"", answered)
