"""Requests that clients send, operators' tools too, as values: what is sent, and what the answer means. Pure.

Requests of operators alone are in `operator_calls`, POP's in `pop_requests`, sends in `send_request`: no other place knows
the header and the body of a request we send. `BrokerApi.call` runs a `Call` on the event loop, `BlockingConnections.call`
without one. What asks several servers is an `Operation`, at the end.
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from roquette.client.core.route_cache import broker_error
from roquette.errors import (
    ClientError,
    ConnectError,
    CorruptRecord,
    RemoteProtocolError,
    RequestTimeout,
    RouteNotFound,
)
from roquette.message.message import MessageQueue
from roquette.message.names import TBW102
from roquette.message.sysflag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from roquette.wire.bodies.clients import (
    ConsumerConnection,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from roquette.wire.bodies.progress import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    TopicStatsTable,
)
from roquette.wire.bodies.route import ClusterInfo, KVTable, TopicList, TopicRouteData
from roquette.wire.bodies.tables import (
    SubscriptionGroupWrapper,
    TopicConfigAndMappingSerializeWrapper,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext, encode_ext
from roquette.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetRouteInfoRequestHeader,
    GetTopicStatsInfoRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PutKVConfigRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    RecallMessageRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from roquette.wire.json_body import decode_body, encode_body

T = TypeVar("T")


class Call(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One request and the meaning of its answer.

    Attributes:
        read: the value of an answer.
        header: the ext fields; None: none.
        also: codes besides SUCCESS whose answers `read` understands; every other one is a refusal.
    """

    code: int
    read: Callable[[Command], T]
    header: msgspec.Struct | None = None
    body: bytes = b""
    also: frozenset[int] = frozenset()

    @property
    def ext(self) -> bytes:
        """The header as it is sent."""
        return b"" if self.header is None else encode_ext(self.header)

    def result(self, answer: Command, address: str) -> T:
        """Read the result from the answer of the server at `address`.

        Raises:
            BrokerError: a refusal, with its code. RouteNotFound: of a topic's route.
            RemoteProtocolError: the answer cannot be decoded.
        """
        if answer.code and answer.code not in self.also:  # 0 is SUCCESS
            raise broker_error(answer.code, answer.remark, address)
        try:
            return self.read(answer)
        except (RemoteProtocolError, CorruptRecord) as error:
            raise RemoteProtocolError(f"{address}: {error}") from None


def nothing(answer: Command) -> None:
    """For answers that say "done" and no more."""


def body_of(kind: type[T]) -> Callable[[Command], T]:
    """For answers whose value is their body."""
    return lambda answer: decode_body(kind, answer.body)


def offset_in(header: type[Any]) -> Callable[[Command], int]:
    """For answers whose header has an offset; brokers say -1 of a queue without files, which begins at 0."""
    return lambda answer: max(0, decode_ext(header, answer.ext).offset)


# name servers


def route(topic: str) -> Call[TopicRouteData]:
    """Ask for the route of a topic. Raises RouteNotFound when the name server does not know the topic."""

    def read(answer: Command) -> TopicRouteData:
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise RouteNotFound(topic)
        return decode_body(TopicRouteData, answer.body)

    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    return Call(code, read, header, also=frozenset((ResponseCode.TOPIC_NOT_EXIST,)))


def watch_routes(topics: list[str]) -> Call[None]:
    """Have a name server of ours tell this connection when routes of these topics change."""
    return Call(RequestCode.WATCH_ROUTES, nothing, body=encode_body(TopicList(topic_list=topics)))


def cluster_info() -> Call[ClusterInfo]:
    """Every broker, and which clusters they form."""
    return Call(RequestCode.GET_BROKER_CLUSTER_INFO, body_of(ClusterInfo))


def topic_names() -> Call[list[str]]:
    """The topics a name server knows, sorted; those of the system and of retries among them."""
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    return Call(code, lambda answer: sorted(set(decode_body(TopicList, answer.body).topic_list)))


def forget_topic(topic: str) -> Call[None]:
    """Remove a topic's route from a name server."""
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic)
    return Call(RequestCode.DELETE_TOPIC_IN_NAMESRV, nothing, header)


def get_config(namespace: str, key: str) -> Call[str]:
    """A value of a name server's key-value configuration; "" when there is none."""

    def read(answer: Command) -> str:
        return decode_ext(GetKVConfigResponseHeader, answer.ext).value or ""

    header = GetKVConfigRequestHeader(namespace=namespace, key=key)
    missing = frozenset((ResponseCode.QUERY_NOT_FOUND,))
    return Call(RequestCode.GET_KV_CONFIG, read, header, also=missing)


def put_config(namespace: str, key: str, value: str) -> Call[None]:
    """Set a value of a name server's key-value configuration."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    return Call(RequestCode.PUT_KV_CONFIG, nothing, header)


# membership


def heartbeat(data: HeartbeatData) -> Call[None]:
    """Tell a broker which client this is, with its groups and subscriptions."""
    return Call(RequestCode.HEART_BEAT, nothing, body=encode_body(data))


def unregister(
    client_id: str, *, producer_group: str | None = None, consumer_group: str | None = None
) -> Call[None]:
    """Leave a group at once."""
    header = UnregisterClientRequestHeader(
        client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
    )
    return Call(RequestCode.UNREGISTER_CLIENT, nothing, header)


def members(group: str) -> Call[list[str]]:
    """Sorted client ids; a broker refuses when no member of the group is online there."""

    def read(answer: Command) -> list[str]:
        return sorted(decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list)

    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    return Call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, read, header)


def lock(group: str, client_id: str, queues: list[MessageQueue]) -> Call[list[MessageQueue]]:
    """Lock queues for one member; returns those it holds now."""
    request = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=queues)

    def read(answer: Command) -> list[MessageQueue]:
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    return Call(RequestCode.LOCK_BATCH_MQ, read, body=encode_body(request))


def unlock(group: str, client_id: str, queues: list[MessageQueue]) -> Call[None]:
    """Give locks back."""
    request = UnlockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=queues)
    return Call(RequestCode.UNLOCK_BATCH_MQ, nothing, body=encode_body(request))


# offsets


def min_offset(queue: MessageQueue) -> Call[int]:
    """The queue's oldest offset."""
    header = GetMinOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )
    return Call(RequestCode.GET_MIN_OFFSET, offset_in(GetMinOffsetResponseHeader), header)


def max_offset(queue: MessageQueue) -> Call[int]:
    """The offset the queue's next message will get."""
    header = GetMaxOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )
    return Call(RequestCode.GET_MAX_OFFSET, offset_in(GetMaxOffsetResponseHeader), header)


def offset_by_time(queue: MessageQueue, timestamp_ms: int) -> Call[int]:
    """The offset of the first message stored at a time or later; the maximum if there is none."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=timestamp_ms,
        bname=queue.broker_name,
    )
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return Call(code, offset_in(SearchOffsetResponseHeader), header)


def committed_offset(
    group: str, queue: MessageQueue, *, zero_if_new: bool = True
) -> Call[int | None]:
    """Ask for the offset a group goes on from in a queue, or None when it has committed nothing there.

    Args:
        zero_if_new: the broker may answer 0 for a group without an offset while the queue's first
            messages are still in memory, so that queues added to a topic are read from their start.
    """

    def read(answer: Command) -> int | None:
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = decode_ext(QueryConsumerOffsetResponseHeader, answer.ext).offset
        return None if offset < 0 else offset

    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=None if zero_if_new else False,
        bname=queue.broker_name,
    )
    missing = frozenset((ResponseCode.QUERY_NOT_FOUND,))
    return Call(RequestCode.QUERY_CONSUMER_OFFSET, read, header, also=missing)


def commit(group: str, queue: MessageQueue, offset: int) -> Call[None]:
    """Store a group's offset. Answered, unlike Java's one-way commit: whoever asks next sees it."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        bname=queue.broker_name,
    )
    return Call(RequestCode.UPDATE_CONSUMER_OFFSET, nothing, header)


# consuming


class PullFilter(NamedTuple):
    """Filter of a pull: its broker leaves out what does not match. `kind` is "TAG" or "SQL92"."""

    expression: str = "*"
    kind: str = "TAG"

    @property
    def takes_all(self) -> bool:
        """True if every message passes."""
        return self.kind == "TAG" and self.expression in {"", "*"}


EVERYTHING: Final = PullFilter()


class Pulled(NamedTuple):
    """The answer to one pull: whole records (none is possible) and where to pull next.

    Attributes:
        moved: the offset asked for lies outside the queue.
        suggested_broker_id: the member of the broker name to pull from next.
        again: it gave nothing, and asks to be asked again at once.
    """

    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    moved: bool = False
    suggested_broker_id: int = 0
    again: bool = False


_OFFSET_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_AGAIN: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_EMPTY_PULLS: Final = frozenset(
    (
        int(ResponseCode.PULL_NOT_FOUND),
        _AGAIN,
        _OFFSET_MOVED,
    )
)


def pull(
    group: str,
    queue: MessageQueue,
    offset: int,
    count: int,
    wanted: PullFilter = EVERYTHING,
    *,
    sub_version: int = 0,
    hold_ms: int | None = None,
    commit: int = 0,
) -> Call[Pulled]:
    """Ask for up to `count` messages from an offset on.

    Args:
        sub_version: of the subscription a heartbeat announced (ms), so that brokers tell old ones from new.
        hold_ms: how long the broker waits for messages when there is none; None: it answers at once.
        commit: an offset to store for the group on the way; 0: none.
    """
    flags = PULL_SUBSCRIPTION
    if hold_ms is not None:
        flags |= PULL_SUSPEND
    if commit > 0:
        flags |= PULL_COMMIT_OFFSET
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=flags,
        commit_offset=commit,
        suspend_timeout_millis=hold_ms or 0,
        subscription=wanted.expression or "*",
        sub_version=sub_version,
        expression_type=wanted.kind,
        bname=queue.broker_name,
    )
    return Call(RequestCode.PULL_MESSAGE, _read_pull, header, also=_EMPTY_PULLS)


def _read_pull(answer: Command) -> Pulled:
    header = decode_ext(PullMessageResponseHeader, answer.ext)
    return Pulled(
        b"" if answer.code else answer.body,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        answer.code == _OFFSET_MOVED,
        header.suggest_which_broker_id,
        answer.code == _AGAIN,
    )


def send(header: SendMessageRequestHeaderV2, body: bytes) -> Call[None]:
    """Store a message, or a batch; what the answer's code says is the sender's business (STORED_CODES)."""
    code = RequestCode.SEND_BATCH_MESSAGE if header.batch else RequestCode.SEND_MESSAGE_V2
    return Call(code, nothing, header, body)


def recall(group: str, topic: str, handle: str) -> Call[None]:
    """Take back a message that waits to be delivered; `group` is its sender's."""
    header = RecallMessageRequestHeader(producer_group=group, topic=topic, recall_handle=handle)
    return Call(RequestCode.RECALL_MESSAGE, nothing, header)


def send_back(header: ConsumerSendMsgBackRequestHeader) -> Call[None]:
    """Give a message back to its broker, which delivers it again later."""
    return Call(RequestCode.CONSUMER_SEND_MSG_BACK, nothing, header)


# what operators ask and do


def runtime_info() -> Call[dict[str, str]]:
    """Ask a broker for its own state: version, rates, disk."""
    return Call(
        RequestCode.GET_BROKER_RUNTIME_INFO, lambda answer: decode_body(KVTable, answer.body).table
    )


def topics_of_broker() -> Call[list[str]]:
    """The topics a broker has, sorted."""

    def read(answer: Command) -> list[str]:
        found = decode_body(TopicConfigAndMappingSerializeWrapper, answer.body)
        return sorted(found.topic_config_table)

    return Call(RequestCode.GET_ALL_TOPIC_CONFIG, read, GetAllTopicConfigRequestHeader())


def topic_stats(topic: str) -> Call[TopicStatsTable]:
    """The topic's queues on a broker, sorted, with their ends, and how many messages a second come in."""

    def read(answer: Command) -> TopicStatsTable:
        found = decode_body(TopicStatsTable, answer.body)
        queues = sorted(found.offset_table.items(), key=itemgetter(0))
        return TopicStatsTable(dict(queues), found.topic_put_tps)

    header = GetTopicStatsInfoRequestHeader(topic=topic)
    return Call(RequestCode.GET_TOPIC_STATS_INFO, read, header)


def create_topic(topic: str, *, queues: int, perm: int = 6, order: bool = False) -> Call[None]:
    """Create a topic on a broker, or change it. `perm`: 2 write, 4 read, 6 both."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic=TBW102,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=order,
    )
    return Call(RequestCode.UPDATE_AND_CREATE_TOPIC, nothing, header)


def delete_topic(topic: str) -> Call[None]:
    """Delete a topic on a broker."""
    header = DeleteTopicRequestHeader(topic=topic)
    return Call(RequestCode.DELETE_TOPIC_IN_BROKER, nothing, header)


def groups_of_broker() -> Call[list[str]]:
    """The groups a broker has a configuration of, sorted."""

    def read(answer: Command) -> list[str]:
        return sorted(decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table)

    return Call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, read)


def group_connections(group: str) -> Call[ConsumerConnection]:
    """A group's members at a broker, which refuses when no member is online there."""
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    return Call(code, body_of(ConsumerConnection), header)


def consume_stats(group: str, topic: str | None = None) -> Call[ConsumeStats]:
    """A group's place in each queue of a broker, or in those of one topic, and how many messages a second it takes."""
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    return Call(RequestCode.GET_CONSUME_STATS, body_of(ConsumeStats), header)


def committed_offsets() -> Call[dict[tuple[str, str], dict[int, int]]]:
    """By (group, topic): where each queue of it on a broker goes on, for every group."""

    def read(answer: Command) -> dict[tuple[str, str], dict[int, int]]:
        found: dict[tuple[str, str], dict[int, int]] = {}
        table = decode_body(ConsumerOffsetSerializeWrapper, answer.body).offset_table
        for key, offsets in table.items():
            topic, separator, group = key.partition("@")
            if separator:
                found[group, topic] = offsets
        return found

    return Call(RequestCode.GET_ALL_CONSUMER_OFFSET, read)


# Operations that ask several servers, step by step: pure generators of calls, which either runner drives.
# An operation yields the requests of one step and gets an answer for each: a value, or why there is none. So one broker
# that is frozen or dead costs its part of a result, not the result:
#
#     def topics_everywhere(addresses: Sequence[str]) -> Operation[list[str]]:
#         answers = yield from ask_all((address, topics_of_broker()) for address in addresses)
#         return sorted({topic for answer in answers for topic in answer.value or ()})
#
# `Session.run` drives it on the event loop, `BlockingConnections.run` without one.


ANY_NAME_SERVER: Final = ""
"""The address of whichever name server answers."""

HANDED_ON: Final = frozenset((int(RequestCode.GET_CONSUMER_RUNNING_INFO),))
"""Requests that a broker lets a client answer."""

AHEAD: Final = 64
"""Requests of one operation that a runner has in flight at one server."""


AT_ONCE: Final = 8_192
"""Requests of one step, at all servers: each is a task and an answer in memory."""


class Ask(NamedTuple):
    """One request of a step. A server that did not answer is not asked again by the same operation."""

    address: str
    call: Call[Any]

    def is_silence(self, error: ClientError | None) -> bool:
        """Return True when the server itself did not answer, not a client that it handed the request on to."""
        if isinstance(error, RequestTimeout):
            return self.call.code not in HANDED_ON
        return isinstance(error, ConnectError)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """Answer of one server; `error` is why there is none."""

    address: str
    value: T | None = None
    error: ClientError | None = None

    def get(self) -> T:
        """The value; raises `error`."""
        if self.error is not None:
            raise self.error
        return cast(T, self.value)

    @property
    def reason(self) -> str:
        """`error` in one line, "" when there is none."""
        return "" if self.error is None else " ".join(str(self.error).split())


Operation = Generator[list[Ask], list[Answer[Any]], T]


def ask_all(asks: Iterable[tuple[str, Call[T]]]) -> Operation[list[Answer[T]]]:
    """Requests of one kind, side by side, `AT_ONCE` in a step; the answers are in their order."""
    wanted = [Ask(address, call) for address, call in asks]
    answers: list[Answer[T]] = []
    for start in range(0, len(wanted), AT_ONCE):
        answers += yield wanted[start : start + AT_ONCE]
    return answers


def together(operations: Iterable[Operation[T]]) -> Operation[list[Answer[T]]]:
    """Operations side by side, in their order: a step asks what all of them ask next. One that fails costs its own result."""
    going = dict(enumerate(operations))
    found: dict[int, Answer[T]] = {}
    told: dict[int, Any] = dict.fromkeys(going)  # None begins a generator
    while True:
        asks: dict[int, list[Ask]] = {}
        for number, answers in told.items():
            try:
                asks[number] = going[number].send(answers)
            except StopIteration as end:
                found[number] = Answer("", end.value)
            except ClientError as error:
                found[number] = Answer("", error=error)
        if not asks:
            return [found[number] for number in going]
        rest = iter((yield [each for wanted in asks.values() for each in wanted]))
        told = {number: list(islice(rest, len(wanted))) for number, wanted in asks.items()}


def ask(address: str, call: Call[T]) -> Operation[T]:
    """One request; raises ClientError when it fails."""
    (answer,) = yield from ask_all([(address, call)])
    return answer.get()
