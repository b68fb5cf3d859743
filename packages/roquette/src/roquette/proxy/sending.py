"""The rpcs SendMessage and RecallMessage (Apache: SendMessageActivity, ProducerProcessor, RecallMessageActivity).

Several messages of one call go as they may: those of one queue that a batch can hold as a batch (SEND_BATCH_MESSAGE's form), in
their order; compressed, delayed, prioritized and half messages one by one. Apache makes one batch of all: a delay or a
transaction is lost there, and messages of several groups end in one queue. The reply has an entry for each message.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from roquette.message.batch import encode_batch
from roquette.message.message_id import decode_offset_message_id
from roquette.message.names import RETRY_PREFIX, TBW102
from roquette.message.recall_handle import decode_handle
from roquette.proxy.answers import BrokerAnswer
from roquette.proxy.backend import Backend, TopicFacts
from roquette.proxy.call import Rpc, RpcCall
from roquette.proxy.messages import Converter, Outgoing
from roquette.proxy.names import topic_of
from roquette.proxy.queue_choice import QueueChoice
from roquette.proxy.sent import SendAnswer
from roquette.proxy.sent import recalled as recalled_of
from roquette.proxy.sent import sent as sent_of
from roquette.proxy.service import Part, fail
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import RpcError, code_of, no_topic, status
from roquette.proxy.transactions import Half
from roquette.proxy.validators import Validators
from roquette.wire.bodies.route import TopicRouteData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import RecallMessageRequestHeader, SendMessageRequestHeaderV2
from roquette.wire.proto.definition_pb2 import Code, Status
from roquette.wire.proto.service_pb2 import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)

UNREADABLE: Final = "the broker's answer cannot be read"
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError)
_TIMEOUT_MS: Final = 3_000
_RECALL_TIMEOUT_MS: Final = 2_000
_NOT_SAFE: Final = {
    int(ResponseCode.FLUSH_DISK_TIMEOUT): (Code.MASTER_PERSISTENCE_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): (Code.SLAVE_PERSISTENCE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    int(ResponseCode.SLAVE_NOT_AVAILABLE): (Code.HA_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
}
_OK: Final = status(Code.OK, "OK")
# Messages to begin with: parsing is several times faster than setting messages within messages.
_ENTRY: Final = SendResultEntry(status=_OK).SerializeToString()
_REPLY: Final = SendMessageResponse(
    status=_OK, entries=[SendResultEntry(status=_OK)]
).SerializeToString()
_READY_ENTRY: Final = SendResultEntry.FromString
_READY_REPLY: Final = SendMessageResponse.FromString


class _Bundle:
    """Messages that go to a queue in one request."""

    __slots__ = ("broker", "messages", "queue_id")

    def __init__(self, broker: str, queue_id: int, first: Outgoing) -> None:
        self.broker = broker
        self.queue_id = queue_id
        self.messages = [first]


class Sending(Part):
    """SendMessage and RecallMessage.

    Args:
        max_body: bytes of a message's body at most, now.
    """

    def __init__(
        self,
        backend: Backend,
        settings: ProxySettings,
        max_body: Callable[[], int] = lambda: 4 << 20,
    ) -> None:
        self._backend = backend
        self._max_body = max_body
        self._check = Validators(settings, max_body)
        self._convert = Converter(settings, self._check).convert
        self._choice = QueueChoice()

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """SendMessage, RecallMessage."""
        return (
            Rpc("SendMessage", SendMessageRequest, SendMessageResponse, self.send),
            Rpc("RecallMessage", RecallMessageRequest, RecallMessageResponse, self.recall),
        )

    # SendMessage.

    def send(self, call: RpcCall, request: SendMessageRequest) -> None:
        """Check and convert all messages, then send them."""
        messages = request.messages
        if not messages:
            raise RpcError(Code.MESSAGE_CORRUPTED, "no message to send")
        first = messages[0].topic
        name = topic_of(first)
        remote, now_ms, convert = call.caller.peer.remote, call.now_ms, self._convert
        out: list[Outgoing] = []
        for message in messages:
            if out and message.topic.name != name:
                raise RpcError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
            out.append(convert(message, name, remote, now_ms))
        self._backend.topic(call.caller, name, partial(self._send, call, name, out))

    def _send(
        self, call: RpcCall, name: str, out: list[Outgoing], topic: TopicFacts | None
    ) -> None:
        try:
            bundles = self._bundles(name, out, topic)
        except RpcError as error:
            fail(call, error)
            return
        if len(bundles) == 1:
            self._ask(call, name, bundles[0], partial(_answer_one, call, bundles[0]))
            return
        reply = _Gathered(call, len(bundles))
        for number, bundle in enumerate(bundles):
            self._ask(call, name, bundle, partial(reply.answered, number, bundle))

    def _bundles(self, name: str, out: list[Outgoing], topic: TopicFacts | None) -> list[_Bundle]:
        """The requests to make, in order."""
        route = _known(topic, name).route
        check = self._check
        if len(out) == 1:
            check.kind(name, _kind_of(topic), out[0].kind)
            broker, queue_id = self._choose(name, route, out[0].group)
            return [_Bundle(broker, queue_id, out[0])]
        found: list[_Bundle] = []
        shared: tuple[str, int] | None = None  # the queue of those without a message group
        size = 0
        for message in out:
            check.kind(name, _kind_of(topic), message.kind)
            place = shared
            if message.group or place is None:
                place = self._choose(name, route, message.group)
                shared = shared if message.group else place
            last = found[-1] if found else None
            size += len(message.body) + len(message.properties) * 3 + 64
            if (
                last is not None
                and (last.broker, last.queue_id) == place
                and message.joins
                and last.messages[0].joins
                and size <= self._max_body()
            ):
                last.messages.append(message)
            else:
                found.append(_Bundle(place[0], place[1], message))
                size = len(message.body) + len(message.properties) * 3 + 64
        return found

    def _choose(self, name: str, route: TopicRouteData, group: str) -> tuple[str, int]:
        """Return the broker name and the number of a writable queue."""
        queue = self._choice.choose(name, route, group)
        if queue is None:
            raise RpcError(Code.FORBIDDEN, "no writable queue")
        return queue

    def _ask(
        self, call: RpcCall, name: str, bundle: _Bundle, then: Callable[[BrokerAnswer], None]
    ) -> None:
        first = bundle.messages[0]
        several = len(bundle.messages) > 1
        header = SendMessageRequestHeaderV2(
            producer_group=name,
            topic=name,
            default_topic=TBW102,
            queue_id=bundle.queue_id,
            sys_flag=first.sys_flag,
            born_timestamp=first.born_ms,
            flag=0,
            properties=first.properties,
            batch=several,
        )
        if name.startswith(RETRY_PREFIX):
            header.reconsume_times = first.attempts
        code, body = RequestCode.SEND_MESSAGE_V2, first.body
        if several:
            code = RequestCode.SEND_BATCH_MESSAGE
            body = encode_batch([(0, m.body, m.properties.encode()) for m in bundle.messages])
        self._backend.ask(call.caller, bundle.broker, code, header, body, then, _TIMEOUT_MS)

    # RecallMessage.

    def recall(self, call: RpcCall, request: RecallMessageRequest) -> None:
        """Take a delayed message back."""
        name = topic_of(request.topic)
        handle = request.recall_handle

        def known(topic: TopicFacts | None) -> None:
            try:
                _known(topic, name)
                self._check.kind(name, _kind_of(topic), "DELAY")
                named = decode_handle(handle)
                if named is None:
                    raise RpcError(Code.INTERNAL_SERVER_ERROR, "recall handle is invalid")
            except RpcError as error:
                fail(call, error)
                return
            header = RecallMessageRequestHeader(
                producer_group=name, topic=name, recall_handle=handle
            )
            self._backend.ask(
                call.caller, named.broker_name, RequestCode.RECALL_MESSAGE, header, b"", recalled,
                _RECALL_TIMEOUT_MS,
            )  # fmt: skip

        def recalled(answer: BrokerAnswer) -> None:
            if answer.code != ResponseCode.SUCCESS:
                call.refuse(code_of(answer.code), answer.remark)
                return
            try:
                message_id = recalled_of(answer.ext).msg_id if answer.ext else ""
            except _UNREADABLE:
                call.refuse(Code.INTERNAL_SERVER_ERROR, UNREADABLE)
            else:
                call.reply(RecallMessageResponse(status=_OK, message_id=message_id))

        self._backend.topic(call.caller, name, known)


def _known(topic: TopicFacts | None, name: str) -> TopicFacts:
    if topic is None:
        raise no_topic(name)
    return topic


def _kind_of(topic: TopicFacts | None) -> str:
    return "NORMAL" if topic is None or topic.kind == "UNSPECIFIED" else topic.kind


class _Gathered:
    """The answers to several requests of one call; they may come in any order."""

    def __init__(self, call: RpcCall, count: int) -> None:
        self._call = call
        self._entries: list[list[SendResultEntry]] = [[] for _ in range(count)]
        self._left = count

    def answered(self, number: int, bundle: _Bundle, answer: BrokerAnswer) -> None:
        """One of them; the last one makes the reply."""
        refusal = _refusal(answer)
        if refusal is None:
            try:
                self._entries[number] = _entries(bundle, answer)
            except _UNREADABLE:
                refusal = status(Code.INTERNAL_SERVER_ERROR, UNREADABLE)
        if refusal is not None:
            self._entries[number] = [SendResultEntry(status=refusal)] * len(bundle.messages)
        self._left -= 1
        if self._left:
            return
        entries = [entry for some in self._entries for entry in some]
        codes = {entry.status.code for entry in entries}
        code = codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS
        self._call.reply(SendMessageResponse(status=status(code, Code.Name(code)), entries=entries))


def _answer_one(call: RpcCall, bundle: _Bundle, answer: BrokerAnswer) -> None:
    """The reply to a call of one request."""
    if answer.code == ResponseCode.SUCCESS:
        try:
            if len(bundle.messages) == 1:
                reply = _READY_REPLY(_REPLY)
                _fill(reply.entries, bundle, answer)
            else:
                reply = SendMessageResponse(status=_OK, entries=_entries(bundle, answer))
        except _UNREADABLE:
            call.refuse(Code.INTERNAL_SERVER_ERROR, UNREADABLE)
        else:
            call.reply(reply)
        return
    refusal = _refusal(answer)
    assert refusal is not None
    if answer.code in _NOT_SAFE:
        entries = [SendResultEntry(status=refusal)] * len(bundle.messages)
        overall = status(refusal.code, Code.Name(refusal.code))
        call.reply(SendMessageResponse(status=overall, entries=entries))
    else:
        call.refuse(refusal.code, refusal.message)


def _refusal(answer: BrokerAnswer) -> Status | None:
    """Return why nothing was stored, or is not safe; None: it is stored."""
    if answer.code == ResponseCode.SUCCESS:
        return None
    known = _NOT_SAFE.get(answer.code)
    if known is not None:
        return status(known[0], f"send message failed, sendStatus={known[1]}")
    return status(code_of(answer.code), answer.remark)


def _entries(bundle: _Bundle, answer: BrokerAnswer) -> list[SendResultEntry]:
    """An entry for each message that is stored."""
    entries = [_READY_ENTRY(_ENTRY) for _ in bundle.messages]
    _fill(entries, bundle, answer)
    return entries


def _fill(entries: Sequence[SendResultEntry], bundle: _Bundle, answer: BrokerAnswer) -> None:
    """Write into entries, one for each message, where it is."""
    sent = sent_of(answer.ext) if answer.ext else SendAnswer()
    offset = int(sent.queue_offset)
    first, entry = bundle.messages[0], entries[0]
    entry.message_id = first.message_id
    entry.offset = offset
    if first.kind == "TRANSACTION":
        entry.transaction_id = _transaction_id(bundle.broker, sent.msg_id, offset)
    else:
        entry.transaction_id = sent.transaction_id or ""
    if sent.recall_handle:
        entry.recall_handle = sent.recall_handle
    for number in range(1, len(bundle.messages)):
        message_id, entry = bundle.messages[number].message_id, entries[number]
        entry.message_id = entry.transaction_id = message_id
        entry.offset = offset + number


def _transaction_id(broker: str, offset_id: str, queue_offset: int) -> str:
    try:
        _, log_offset = decode_offset_message_id(offset_id)
    except ValueError:
        return ""
    return Half(broker, log_offset, queue_offset).id
