"""One request to store messages, the same bytes on every attempt, and what its answer says."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roquette.base.clock import Clock
from roquette.client.config import ClientConfig
from roquette.client.core.bounds import TOPICS, keep
from roquette.client.core.retry_policy import broker_error
from roquette.errors import ClientError, NotSent
from roquette.message.message import MessageQueue
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import HeaderDecoder, common_part, encode_ext, rest_encoder
from roquette.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

Chooser = Callable[[Sequence[MessageQueue], str | None], MessageQueue]
"""Which of the queues it goes to; the text is the broker that failed last."""

SEND_OK: Final = "SEND_OK"
_OWN: Final = ("sys_flag", "born_timestamp", "flag", "properties")  # of each message
_encode_rest = rest_encoder(SendMessageRequestHeaderV2, _OWN)
_decode_header = HeaderDecoder(SendMessageResponseHeader)
_STATUS: Final[dict[int, str]] = {
    ResponseCode.SUCCESS: SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}


class SendReceipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Answer of the broker to a message it stored.

    Attributes:
        status: SEND_OK, or which durability was not reached in time (the message is stored all the same).
        message_id: the unique id we gave it. `offset_message_id`: where it lies on its broker.
        queue_offset: its index in `queue`.
        recall_handle: of a message delivered later: what `Client.recall` takes it back by; "" for others.
        transaction_id: of a half message; what brokers say of others means nothing.
    """

    status: str
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    recall_handle: str = ""
    transaction_id: str = ""


def all_stored(outcomes: Sequence[SendReceipt | ClientError]) -> list[SendReceipt]:
    """The receipts of a batch; raises the first of its errors, which then knows what became of each message."""
    receipts = [each for each in outcomes if isinstance(each, SendReceipt)]
    if len(receipts) == len(outcomes):
        return receipts
    errors = [each for each in outcomes if isinstance(each, ClientError)]
    error = next(each for each in errors if not isinstance(each, NotSent))
    error.receipts, error.outcomes = tuple(receipts), tuple(outcomes)
    unsent = sum(isinstance(each, NotSent) for each in outcomes)
    failed = len(outcomes) - len(receipts) - unsent
    error.add_note(
        f"of {len(outcomes)} messages of the batch {len(receipts)} were stored, {failed} failed and {unsent} were not sent"
    )
    raise error


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
        return RequestCode.SEND_BATCH_MESSAGE if self.batch else RequestCode.SEND_MESSAGE_V2

    def receipts(self, reply: Command, target: MessageQueue, address: str) -> list[SendReceipt]:
        """Read what the broker says of each message. Raises BrokerError when it stored none."""
        status = _STATUS.get(reply.code)
        if status is None:
            raise broker_error(reply.code, reply.remark, address)
        header: SendMessageResponseHeader = _decode_header(reply.ext)
        queue = target
        if header.queue_id != target.queue_id or self.shown != target.topic:
            queue = MessageQueue(self.shown, target.broker_name, header.queue_id)
        offset_ids = header.msg_id.split(",")
        return [
            SendReceipt(
                status=status,
                message_id=message_id,
                offset_message_id=offset_ids[index] if index < len(offset_ids) else "",
                queue=queue,
                queue_offset=header.queue_offset + index,
                recall_handle=header.recall_handle or "",
                transaction_id=header.transaction_id or "",
            )
            for index, message_id in enumerate(self.message_ids)
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
        return _encode_rest(common, request.sys_flag, now_ms, request.flag, request.properties)

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
