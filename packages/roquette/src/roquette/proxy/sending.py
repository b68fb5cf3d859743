"""The rpcs SendMessage and RecallMessage (Apache: SendMessageActivity, ProducerProcessor, RecallMessageActivity).

Several messages of one call go as they may: those of one queue that a batch can hold as a batch (SEND_BATCH_MESSAGE's form), in
their order; compressed, delayed, prioritized and half messages one by one. Apache makes one batch of all: a delay or a
transaction is lost there, and messages of several groups end in one queue. The reply has an entry for each message.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from roquette.base.javatypes import java_hash
from roquette.message.message_id import decode_handle, decode_offset_message_id
from roquette.message.names import PERM_WRITE, RETRY_PREFIX, TBW102
from roquette.message.record import encode_batch
from roquette.message.sysflag import COMPRESSED, TRANSACTION_PREPARED
from roquette.proxy.backend import Backend, TopicFacts
from roquette.proxy.encoding import entry_of, stored
from roquette.proxy.service import BrokerAnswer, Part, Rpc, RpcCall, fail
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import RpcError, SendAnswer, code_of, no_topic, status
from roquette.proxy.statuses import recalled as recalled_of
from roquette.proxy.statuses import sent as sent_of
from roquette.proxy.transactions import Half
from roquette.proxy.validators import Validators, checked_topic, size_of, topic_of
from roquette.wire.bodies.route import TopicRouteData
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import RecallMessageRequestHeader, SendMessageRequestHeaderV2
from roquette.wire.plain_v5 import MOST_SECONDS, SentMessage, plain_send
from roquette.wire.proto.definition_pb2 import (
    Code,
    Encoding,
    Message,
    MessageType,
    Status,
)
from roquette.wire.proto.service_pb2 import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from roquette.wire.send_fields import SendFields, made_fields

# From a protobuf message to what brokers store: properties, sys flag, body (Apache: SendMessageActivity.buildMessage).


_LEVEL_SECONDS: Final = (
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540),
    *(600, 1200, 1800, 3600, 7200),
)
MOST_CHARACTERS: Final = 10_922  # of properties in a batch: three bytes each at most
_GZIP: Final = int(Encoding.GZIP)
_TRANSACTION: Final = int(MessageType.TRANSACTION)


class Outgoing:
    """A message on its way to a broker.

    Attributes:
        kind: what it is by its properties: TRANSACTION, DELAY, FIFO, LITE, PRIORITY or NORMAL.
        properties: as a property string. attempts: how often it was delivered, as its sender says.
    """

    __slots__ = (
        "attempts", "body", "born_ms", "group", "kind", "message_id", "properties", "sys_flag",
    )  # fmt: skip

    def __init__(self, message_id: str, body: bytes) -> None:
        self.message_id = message_id
        self.body = body
        self.kind = "NORMAL"
        self.group = ""
        self.sys_flag = 0
        self.born_ms = 0
        self.attempts = 0
        self.properties = ""

    @property
    def joins(self) -> bool:
        """It may be one of a batch, which has one sys flag, is stored at once, and has int16 for properties' sizes."""
        plain = not self.sys_flag and self.kind in ("NORMAL", "FIFO")
        return plain and len(self.properties) <= MOST_CHARACTERS


class Converter:
    """Converts messages, and refuses those that are not as they must be."""

    def __init__(self, settings: ProxySettings, validators: Validators) -> None:
        self._check = validators
        self._levels = settings.use_delay_level

    def convert(self, message: SentMessage, topic: str, remote: str, now_ms: int) -> Outgoing:
        """Convert a message to what a broker gets.

        The order of properties is ours: that of Java's hash table has no meaning.

        Args:
            remote: the sender's address, for messages that name no host.

        Raises:
            RpcError: the first thing that is wrong with it, in Apache's order.
        """
        check = self._check
        check.body(message.body)
        user = message.user
        size = check.user_properties(user) if user else 0
        text = "".join([f"{key}\x01{value}\x02" for key, value in user.items()]) if user else ""
        tag = message.tag
        if tag:
            check.tag(tag)
            size += size_of(tag)
            text = f"{text}TAGS\x01{tag}\x02"
        keys = message.keys
        if keys:
            for key in keys:
                check.key(key)
                size += size_of(key)
            text = f"{text}KEYS\x01{' '.join(keys)}\x02"
        if size > check.max_size:
            check.total(size)
        message_id = message.message_id
        check.message_id(message_id)
        out = Outgoing(message_id, message.body)
        text = f"{text}UNIQ_KEY\x01{_value(message_id)}\x02"
        if message.encoding == _GZIP:
            out.sys_flag = COMPRESSED
        if message.type == _TRANSACTION:
            out.sys_flag |= TRANSACTION_PREPARED
            text += "TRAN_MSG\x01true\x02"
            if message.recovery_s is not None:
                seconds = max(message.recovery_s, -1)
                check.recovery(seconds)
                text = f"{text}CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}\x02"
            out.kind = "TRANSACTION"
        if message.deliver_ms is not None:
            text += self._delayed(max(message.deliver_ms, 1), now_ms)
            if out.kind == "NORMAL":
                out.kind = "DELAY"
        out.attempts = message.attempts
        text = f"{text}RECONSUME_TIME\x01{out.attempts}\x02PGROUP\x01{topic}\x02"
        group = message.group
        if group:
            check.group(group)
            out.group = group
            text = f"{text}__SHARDINGKEY\x01{group}\x02"
        if out.kind == "NORMAL":
            if group or (user and user.get("__SHARDINGKEY")):
                out.kind = "FIFO"
            elif message.lite_topic:
                out.kind = "LITE"
            elif message.priority is not None:
                out.kind = "PRIORITY"
        if message.priority is not None:
            check.priority(message.priority)
            text = f"{text}_SYS_MSG_PRIORITY_\x01{message.priority}\x02"
        if message.trace:
            text = f"{text}TRACE_CONTEXT\x01{_value(message.trace)}\x02"
        host = message.host
        out.born_ms = message.born_ms or now_ms
        host = remote if not host or host.isspace() else _value(host)
        out.properties = f"{text}__BORNHOST\x01{host}\x02BORN_TIMESTAMP\x01{out.born_ms}\x02"
        return out

    def _delayed(self, at_ms: int, now_ms: int) -> str:
        self._check.delivery(at_ms, now_ms)
        level = f"DELAY\x01{delay_level(at_ms - now_ms)}\x02" if self._levels else ""
        return f"{level}TIMER_DELIVER_MS\x01{at_ms}\x02"


def sent_message(message: Message) -> SentMessage:
    """The values of a message that protobuf has read: whatever a producer may say, `plain_send` reads what most say."""
    system = message.system_properties
    found = SentMessage()
    found.topic = message.topic.name
    found.user = dict(message.user_properties)
    found.tag = system.tag
    found.keys = list(system.keys)
    found.message_id = system.message_id
    found.encoding = system.body_encoding
    found.type = system.message_type
    found.born_ms = _ms(system.born_timestamp)
    found.host = system.born_host
    found.group = system.message_group
    found.body = message.body
    found.attempts = system.delivery_attempt
    found.trace = system.trace_context
    found.lite_topic = system.lite_topic
    if system.HasField("delivery_timestamp"):
        found.deliver_ms = _ms(system.delivery_timestamp)
    if system.HasField("orphaned_transaction_recovery_duration"):
        found.recovery_s = system.orphaned_transaction_recovery_duration.seconds
    if system.HasField("priority"):
        found.priority = system.priority
    return found


def delay_level(wait_ms: int) -> int:
    """The first of the default delay levels that is longer than a wait, else the last (ProxyConfig.computeDelayLevel)."""
    for level, seconds in enumerate(_LEVEL_SECONDS, 1):
        if seconds * 1000 > wait_ms:
            return level
    return len(_LEVEL_SECONDS)


def _ms(at: Any) -> int:
    """A Timestamp in epoch ms; 0: none, or not of the years 1 to 9999."""
    seconds: int = at.seconds
    return seconds * 1000 + at.nanos // 1_000_000 if abs(seconds) <= MOST_SECONDS else 0


def _value(text: str) -> str:
    """A value that adds no properties: Apache lets these three have any characters."""
    return text.replace("\x02", "") if "\x02" in text else text


# The queue a message goes to, as Apache's proxy chooses it (SendMessageQueueSelector, MessageQueueSelector).


MOST_TOPICS: Final = 4_096


def bucket(group: str, count: int) -> int:
    """The jump consistent hash of a message group (Guava's Hashing.consistentHash of Java's hashCode)."""
    state = java_hash(group) & 0xFFFFFFFFFFFFFFFF
    candidate = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        step = ((state >> 33) + 1) / 0x80000000
        following = int((candidate + 1) / step)
        if not 0 <= following < count:
            return candidate
        candidate = following


class _Queues:
    """Writable queues of a topic, by the names of their brokers, and whose turn it is."""

    __slots__ = ("count", "places", "route", "turn")

    def __init__(self, turn: int, route: TopicRouteData) -> None:
        self.turn: int = turn
        self.route: TopicRouteData = route
        self.places: list[tuple[str, int]] = sorted(
            (data.broker_name, data.write_queue_nums)
            for data in route.queue_datas
            if data.perm & PERM_WRITE and data.write_queue_nums > 0
        )
        self.count: int = sum(place[1] for place in self.places)


class QueueChoice:
    """Chooses by the message group, else one after the other."""

    def __init__(self) -> None:
        self._topics: dict[str, _Queues] = {}

    def choose(self, topic: str, route: TopicRouteData, group: str) -> tuple[str, int] | None:
        """Broker name and queue id, among the writable queues in the order of their brokers' names; None: there is none.

        A route never changes: another one takes its place.
        """
        known = self._topics.get(topic)
        if known is None or known.route is not route:
            if known is None and len(self._topics) >= MOST_TOPICS:
                self._topics.clear()
            known = self._topics[topic] = _Queues(0 if known is None else known.turn, route)
        if not known.count:
            return None
        if group:
            number = bucket(group, known.count)
        else:
            number = known.turn % known.count
            known.turn += 1
        for place in known.places:
            if number < place[1]:
                return place[0], number
            number -= place[1]
        return None


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
        self._inside = backend.in_process
        self._max_body = max_body
        self._check = Validators(settings, max_body)
        self._converter = Converter(settings, self._check)
        self._choice = QueueChoice()

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """SendMessage, RecallMessage."""
        return (
            Rpc(
                "SendMessage",
                SendMessageRequest,
                SendMessageResponse,
                self.send,
                plain=self.send_plain,
            ),
            Rpc("RecallMessage", RecallMessageRequest, RecallMessageResponse, self.recall),
        )

    # SendMessage.

    def send(self, call: RpcCall, request: SendMessageRequest) -> None:
        """Check and convert all messages, then send them."""
        messages = [sent_message(message) for message in request.messages]
        if not messages:
            raise RpcError(Code.MESSAGE_CORRUPTED, "no message to send")
        self._take(call, messages)

    def send_plain(self, call: RpcCall, request: bytes) -> bool:
        """The same with an ordinary message as it came; False: it is another one."""
        message = plain_send(request)
        if message is not None:
            self._take(call, [message])
        return message is not None

    def _take(self, call: RpcCall, messages: list[SentMessage]) -> None:
        name = checked_topic(messages[0].topic)
        remote, now_ms = call.caller.peer.remote, call.now_ms
        out: list[Outgoing] = []
        for message in messages:
            if out and message.topic != name:
                raise RpcError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
            out.append(self._converter.convert(message, name, remote, now_ms))
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
        header: SendFields | SendMessageRequestHeaderV2
        if self._inside:
            header = made_fields(name, name, TBW102, first.properties.encode())
            header.queue_id = bundle.queue_id
            header.sys_flag = first.sys_flag
            header.born_timestamp = first.born_ms
            header.batch = several
        else:
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
                self._entries[number] = [
                    SendResultEntry.FromString(entry) for entry in _entries(bundle, answer)
                ]
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
            reply = stored(_entries(bundle, answer))
        except _UNREADABLE:
            call.refuse(Code.INTERNAL_SERVER_ERROR, UNREADABLE)
        else:
            call.reply_bytes(reply)
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


def _entries(bundle: _Bundle, answer: BrokerAnswer) -> list[bytes]:
    """An entry for each message that is stored: where it is."""
    sent = sent_of(answer.ext) if answer.ext else SendAnswer()
    offset = int(sent.queue_offset)
    first = bundle.messages[0]
    transaction = sent.transaction_id or ""
    if first.kind == "TRANSACTION":
        transaction = _transaction_id(bundle.broker, sent.msg_id, offset)
    entries = [entry_of(first.message_id, transaction, offset, sent.recall_handle or "")]
    for message in bundle.messages[1:]:
        offset += 1
        entries.append(entry_of(message.message_id, message.message_id, offset))
    return entries


def _transaction_id(broker: str, offset_id: str, queue_offset: int) -> str:
    try:
        _, log_offset = decode_offset_message_id(offset_id)
    except ValueError:
        return ""
    return Half(broker, log_offset, queue_offset).id
