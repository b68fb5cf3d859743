"""ReceiveMessage: a pop that the broker holds (Apache: ReceiveMessageActivity, ReceiveMessageResponseStreamWriter).

The answer is a status, the messages, and the time of delivery, in one write; every failure is a status and that time.
"""

from collections.abc import Iterable
from typing import Any, Final

from roquette.base.clock import Clock
from roquette.errors import CorruptRecord
from roquette.message import properties
from roquette.message.properties import decode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord
from roquette.proxy.backend import Backend, RequestUnderWay, TopicFacts
from roquette.proxy.delivered import to_message
from roquette.proxy.encoding import delivered, delivery_time
from roquette.proxy.receipts import check_invisible
from roquette.proxy.renewals import (
    UNRENEWED_MS,
    Renewals,
    ack,
    forward,
    give_back,
    kind_of,
    read_handle,
)
from roquette.proxy.routes import is_readable, no_route
from roquette.proxy.service import BrokerAnswer, Part, ProxyBeat, Rpc, RpcCall
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import RpcError, code_of, status
from roquette.proxy.validators import check_expression, group_of, topic_of
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import BadHeader, HeaderDecoder
from roquette.wire.headers import PopMessageRequestHeader, PopMessageResponseHeader
from roquette.wire.proto.definition_pb2 import Code, FilterType, Resource
from roquette.wire.proto.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse

MOST_MESSAGES: Final = 32  # of one pop
INIT_MAX: Final = 1  # a new group begins at the end (ConsumeInitMode.MAX)
MARGIN_MS: Final = 100  # an answer leaves so long before the deadline
END_S: Final = 1.0  # between looks at receives that wait for a place
BACKLOG: Final = 4 << 20  # bytes a client may have unread: it gets no further messages
TOO_LITTLE_TIME: Final = (
    "The deadline time remaining is not enough for polling, please check network condition"
)
_TOLD_SINCE: Final = "5.0.3"  # the first clients that know ILLEGAL_POLLING_TIME
_ext: Final = HeaderDecoder(PopMessageResponseHeader)
_OK: Final = ReceiveMessageResponse(status=status(Code.OK, "OK")).SerializeToString()
_NOTHING: Final = frozenset((ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND))


class _Poll:
    """One receive under way: what of its request is needed for its answer."""

    __slots__ = (
        "ask", "broker", "call", "done", "group", "header", "invisible_ms", "most_tries", "owner", "renews",
        "tags", "topic", "until_ms",
    )  # fmt: skip

    header: PopMessageRequestHeader
    until_ms: int  # steady: it waits no longer

    def __init__(self, owner: "Receiving", call: RpcCall, topic: str, group: str) -> None:
        self.owner = owner
        self.call = call
        self.topic = topic
        self.group = group
        self.broker = ""
        self.invisible_ms = 0
        self.renews = False
        self.tags: frozenset[str] | None = None
        self.most_tries = 0
        self.ask: RequestUnderWay | None = None
        self.done = False

    # Methods, not closures: a held poll costs little.

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.owner.leave(self)
        if self.ask is not None:
            self.ask.cancel()

    def answered(self, answer: BrokerAnswer) -> None:
        """The broker has answered."""
        self.owner.answered(self, answer)


class Receiving(Part):
    """Serves it. At most so many of a client and of a group as the settings say are asked of brokers at one time.

    The others wait their time here: a client whose receive is refused asks again at once (a push consumer of ordered messages has one for
    each queue, Apache's SDKs ask again after 20 ms).
    """

    def __init__(
        self, backend: Backend, settings: ProxySettings, clock: Clock, renewals: Renewals
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._renewals = renewals
        self._of_client: dict[str, int] = {}
        self._of_group: dict[str, int] = {}
        self._parked: dict[str, dict[_Poll, None]] = {}  # by client: those that wait for a place
        self._beginning = False
        self._turn = 0

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """ReceiveMessage."""
        yield Rpc(
            "ReceiveMessage",
            ReceiveMessageRequest,
            ReceiveMessageResponse,
            self._receive,
            streams=True,
        )

    def beats(self) -> Iterable[ProxyBeat]:
        """Those whose time is over."""
        yield ProxyBeat("receives", END_S, self.expire)

    def _receive(self, call: RpcCall, request: ReceiveMessageRequest) -> None:
        try:
            self._begin(call, request)
        except RpcError as error:
            self._fail(call, error.code, error.text)

    def _begin(self, call: RpcCall, request: ReceiveMessageRequest) -> None:
        polling_ms = self._polling_ms(call, request)
        queue = request.message_queue
        poll = _Poll(self, call, topic_of(queue.topic), group_of(request.group))
        settings = self._settings
        if settings.enable_proxy_auto_renew and request.auto_renew:
            poll.invisible_ms = settings.default_invisible_time_mills
            poll.renews = self._renewals.has_room(call.caller.client_id)
            if not poll.renews:
                poll.invisible_ms = min(UNRENEWED_MS, settings.max_invisible_time_mills)
        else:
            asked = request.invisible_duration
            poll.invisible_ms = asked.seconds * 1000 + asked.nanos // 1_000_000
            least, most = (
                settings.min_invisible_time_mills_for_recv,
                settings.max_invisible_time_mills,
            )
            check_invisible(poll.invisible_ms, least, most)
        kind, expression = _filter_of(request)
        if kind == "TAG":
            poll.tags = _tags_of(expression)
        poll.header = PopMessageRequestHeader(
            consumer_group=poll.group,
            topic=poll.topic,
            queue_id=-1,  # whatever the request says, as Apache: clients choose a broker only
            max_msg_nums=max(0, min(request.batch_size, MOST_MESSAGES)),
            invisible_time=poll.invisible_ms,
            poll_time=polling_ms,
            born_time=call.now_ms,
            init_mode=INIT_MAX,
            exp_type=kind,
            exp=expression,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        if self._renewals:
            self._renewals.seen(call.caller)
        poll.broker = queue.broker.name
        poll.until_ms = self._clock.steady_ms() + polling_ms
        call.on_cancel = poll.cancel
        if self._takes_place(poll):
            self._look(poll)
        else:
            self._park(poll)

    def _look(self, poll: _Poll) -> None:
        self._backend.topic(poll.call.caller, poll.topic, lambda topic: self._found(poll, topic))

    def _polling_ms(self, call: RpcCall, request: ReceiveMessageRequest) -> int:
        """Return how long the broker may hold the pop, ms. Raises RpcError."""
        settings = self._settings
        least = settings.grpc_client_consumer_min_long_polling_timeout_millis
        most = settings.grpc_client_consumer_max_long_polling_timeout_millis
        asked = most
        if request.HasField("long_polling_timeout"):
            timeout = request.long_polling_timeout
            asked = timeout.seconds * 1000 + timeout.nanos // 1_000_000
        asked = min(max(asked, least), most)
        if call.deadline_ms is None:
            return asked
        left = call.deadline_ms - self._clock.steady_ms()
        if left < least:
            old = not call.caller.version or call.caller.version < _TOLD_SINCE
            raise RpcError(Code.BAD_REQUEST if old else Code.ILLEGAL_POLLING_TIME, TOO_LITTLE_TIME)
        return min(asked, left - MARGIN_MS)

    def _takes_place(self, poll: _Poll) -> bool:
        """Count it, if there are not too many."""
        client, group = poll.call.caller.client_id, poll.group
        of_client, of_group = self._of_client.get(client, 0), self._of_group.get(group, 0)
        if (
            of_client >= self._settings.grpc_max_polls_per_client
            or of_group >= self._settings.grpc_max_polls_per_group
        ):
            return False
        self._of_client[client] = of_client + 1
        self._of_group[group] = of_group + 1
        return True

    def _leave_place(self, poll: _Poll) -> None:
        for table, name in (
            (self._of_client, poll.call.caller.client_id),
            (self._of_group, poll.group),
        ):
            if table[name] > 1:
                table[name] -= 1
            else:
                del table[name]

    def _park(self, poll: _Poll) -> None:
        """It waits for a place until its time is over."""
        self._parked.setdefault(poll.call.caller.client_id, {})[poll] = None

    def _unpark(self, poll: _Poll) -> bool:
        """Let a poll wait for a place no longer; True when it did."""
        client = poll.call.caller.client_id
        parked = self._parked.get(client, {})
        if poll not in parked:
            return False
        del parked[poll]
        if not parked:
            del self._parked[client]
        return True

    def leave(self, poll: _Poll) -> None:
        """A receive ends: it counts no more, and one of its client's that waits has its place."""
        if poll.done:
            return
        poll.done = True
        if self._unpark(poll):
            return
        self._leave_place(poll)
        after = next(iter(self._parked.get(poll.call.caller.client_id, ())), None)
        if after is None or self._beginning or not self._takes_place(after):
            return
        self._unpark(after)
        after.header.poll_time = max(0, after.until_ms - self._clock.steady_ms())
        self._beginning = True  # one may end at once: no more than one begins for it
        try:
            self._look(after)
        finally:
            self._beginning = False

    def expire(self) -> None:
        """End those that wait for a place and whose time is over before the next look."""
        self._end_parked(self._clock.steady_ms() + int(END_S * 1000))

    def stop(self) -> None:
        """End those that wait for a place."""
        self._end_parked(1 << 62)

    def _end_parked(self, until_ms: int) -> None:
        for poll in [poll for parked in self._parked.values() for poll in parked]:
            if poll.until_ms <= until_ms:
                self._end(poll, Code.MESSAGE_NOT_FOUND, "no new message")

    def _found(self, poll: _Poll, topic: TopicFacts | None) -> None:
        if poll.done:
            return
        if topic is None:
            self._end(poll, Code.TOPIC_NOT_FOUND, no_route(poll.topic))
            return
        names = [queues.broker_name for queues in topic.route.queue_datas if is_readable(queues)]
        if not names:
            self._end(poll, Code.FORBIDDEN, "no readable queue")
            return
        self._turn += 1
        if poll.broker not in names:
            poll.broker = names[self._turn % len(names)]
        self._backend.group(poll.call.caller, poll.group, lambda config: self._pop(poll, config))

    def _pop(self, poll: _Poll, config: SubscriptionGroupConfig | None) -> None:
        if poll.done:
            return
        header = poll.header
        if config is not None:
            header.order = config.consume_message_orderly
            poll.most_tries = config.retry_max_times + 1
        # Asked before the pop: messages popped for a peer that does not read are invisible for nothing.
        if poll.call.caller.peer.transport.get_write_buffer_size() > BACKLOG:
            self._end(poll, Code.TOO_MANY_REQUESTS, "the messages sent before are not read yet")
            return
        timeout = header.poll_time + 3_000
        poll.ask = self._backend.ask(
            poll.call.caller, poll.broker, RequestCode.POP_MESSAGE, header, b"",
            poll.answered, timeout,
        )  # fmt: skip

    def answered(self, poll: _Poll, answer: BrokerAnswer) -> None:
        """The broker has answered a pop."""
        code = answer.code
        if code == ResponseCode.SUCCESS:
            try:
                self._deliver(poll, answer)
            except (CorruptRecord, BadHeader) as error:
                self._end(poll, Code.INTERNAL_SERVER_ERROR, f"the broker's answer: {error}")
        elif code in _NOTHING:
            self._end(poll, Code.MESSAGE_NOT_FOUND, "no new message")
        # The broker holds no more: the client, told so, would ask again at once. It waits its time here.
        elif code == ResponseCode.POLLING_FULL and not poll.done:
            self._leave_place(poll)
            self._park(poll)
        elif code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            self._end(poll, Code.ILLEGAL_FILTER_EXPRESSION, answer.remark)
        else:
            self._end(poll, code_of(code), answer.remark)

    def _deliver(self, poll: _Poll, answer: BrokerAnswer) -> None:
        """Messages have come: those that fit go to the client, the others are acknowledged or are dead."""
        popped = _ext(answer.ext)
        starts = _starts_of(popped.start_offset_info)
        counts = _starts_of(popped.order_count_info) if popped.order_count_info else None
        topic = Resource(name=poll.topic)
        replies = [_OK]
        encoded = topic.SerializeToString()
        unread = poll.call.over
        words, of_topic, of_queue = "", "", -1  # of the receipts of the queue before
        for record in decode_records(answer.body):
            named = decode_properties(record.properties)
            queue_id = record.queue_id
            receipt = named.pop(properties.POP_CK, None)
            if receipt is None:
                if counts is not None or queue_id != of_queue or record.topic != of_topic:
                    of_queue, of_topic = queue_id, record.topic
                    kind = kind_of(of_topic)
                    place = f"{kind} {queue_id}"
                    if counts is not None:
                        own = counts.get(f"{kind} qo{queue_id}%{record.queue_offset}", 0)
                        tries = own or counts.get(place, 0)
                        record.reconsume_times = tries or record.reconsume_times
                    start = starts.get(place, -1)
                    if start < 0:  # the broker says none: each message is its own pop's first
                        start, of_queue = record.queue_offset, -1
                    words = (
                        f"{start} {popped.pop_time} {popped.invisible_time} {popped.revive_qid} {kind} "
                        f"{poll.broker} {queue_id} "
                    )
                receipt = f"{words}{record.queue_offset}"
            receipt = f"{receipt} {record.physical_offset}"
            if unread:
                give_back(self._backend, receipt, poll.topic, poll.group)
            elif self._is_wanted(poll, record, named, receipt):
                reply = delivered(record, encoded, receipt, named)
                if reply is None:
                    message = to_message(record, topic, receipt, named)
                    reply = ReceiveMessageResponse(message=message).SerializeToString()
                replies.append(reply)
                if poll.renews:
                    self._renewals.add(
                        poll.call.caller, poll.group, poll.topic, receipt, record.reconsume_times
                    )
        if len(replies) > 1:
            self.leave(poll)
            replies.append(delivery_time(self._clock.now_ms()))
            poll.call.send_bytes(replies)
            poll.call.finish()
        else:
            self._end(poll, Code.MESSAGE_NOT_FOUND, "no match message")

    def _is_wanted(
        self, poll: _Poll, record: StoredRecord, named: dict[str, str], receipt: str
    ) -> bool:
        """Does the client get it? (Apache: PopMessageResultFilterImpl)"""
        if poll.tags is not None and named.get(properties.TAGS) not in poll.tags:
            handle, own = read_handle(receipt), self._backend.own
            ack(self._backend, own, handle, poll.topic, poll.group, lambda ignored: None)
            return False
        if poll.most_tries and record.reconsume_times >= poll.most_tries:
            handle, own = read_handle(receipt), self._backend.own
            message_id = named.get(properties.UNIQ_KEY, "")
            forward(
                self._backend, own, handle, poll.topic, poll.group, message_id, lambda ignored: None
            )
            return False
        return True

    def _end(self, poll: _Poll, code: int, text: str) -> None:
        self.leave(poll)
        self._fail(poll.call, code, text)

    def _fail(self, call: RpcCall, code: int, text: str) -> None:
        reply = ReceiveMessageResponse(status=status(code, text)).SerializeToString()
        call.send_bytes([reply, delivery_time(self._clock.now_ms())])
        call.finish()


def _filter_of(request: ReceiveMessageRequest) -> tuple[str, str]:
    """Kind and text of the filter expression. Raises RpcError."""
    wanted = request.filter_expression
    check_expression(wanted.expression)
    if wanted.type != FilterType.SQL:
        return "TAG", wanted.expression or "*"
    if not wanted.expression:
        raise RpcError(Code.ILLEGAL_FILTER_EXPRESSION, "Expression can't be null! SQL92")
    return "SQL92", wanted.expression


def _tags_of(expression: str) -> frozenset[str] | None:
    """The tags that are wanted; None: all. Raises RpcError."""
    if expression == "*":
        return None
    tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
    return tags or None


def _starts_of(text: str | None) -> dict[str, int]:
    """`t queueId startOffset;...` as (t and queue id) -> start. Raises BadHeader."""
    found: dict[str, int] = {}
    for entry in (text or "").split(";"):
        place, mark, number = entry.rpartition(" ")
        if mark:
            found[place] = _number(number)
    return found


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadHeader(f"{text[:40]!r} is not a number") from None
