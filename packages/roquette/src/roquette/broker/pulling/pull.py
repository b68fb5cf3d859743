"""Pull messages of one queue (11, 361): check, scan, answer or hold. HOT.

Apache: PullMessageProcessor, DefaultPullMessageResultHandler; refusals carry their texts.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from roquette.broker.floor.config import LiveConfig
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import MasterSource, words_of_master
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.tables.consumers import ConsumerTable
from roquette.broker.floor.tables.filters import (
    RetryPredicate,
    SubscriptionFilters,
    is_tag_type,
)
from roquette.broker.floor.tables.groups import GroupTable
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.broker.floor.tables.topics import Topic, TopicTable
from roquette.broker.pulling.cold_reads import ColdPulls
from roquette.broker.pulling.hold_table import HeldPull, HoldTable
from roquette.errors import ExpressionError, Refused
from roquette.message.names import PERM_READ, RETRY_PREFIX, is_users_group
from roquette.remoting.request import Held, Outcome, Reply, RequestContext, Task
from roquette.store.format.results import Found, GetStatus
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import MATCH_ALL, QueueRead, ReadRequest, RecordFilter
from roquette.wire.bodies import SubscriptionGroupConfig
from roquette.wire.codes import FAQ, RequestCode, ResponseCode
from roquette.wire.headers import PullMessageRequestHeader

COMMIT_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
CLASS_FILTER_FLAG: Final = 8
MAX_HOLD_MS: Final = 600_000
DEFAULT_MAX_BYTES: Final = 1 << 30

FORBIDDEN_BROKER: Final = 1
FORBIDDEN_GROUP: Final = 2
FORBIDDEN_TOPIC: Final = 3
FORBIDDEN_BROADCASTING: Final = 4
FORBIDDEN_SUBSCRIPTION: Final = 5

# Store status -> (code, code when the asked offset was 0): composeResponseHeader.
FOUND: Final = int(ResponseCode.SUCCESS)
NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
RETRY_IMMEDIATELY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
OFFSET_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
CODES: Final = {
    GetStatus.FOUND: (FOUND, FOUND),
    GetStatus.NO_MATCHED_MESSAGE: (RETRY_IMMEDIATELY, RETRY_IMMEDIATELY),
    GetStatus.MESSAGE_WAS_REMOVING: (RETRY_IMMEDIATELY, RETRY_IMMEDIATELY),
    GetStatus.NO_MATCHED_LOGIC_QUEUE: (OFFSET_MOVED, NOT_FOUND),
    GetStatus.NO_MESSAGE_IN_QUEUE: (OFFSET_MOVED, NOT_FOUND),
    GetStatus.OFFSET_FOUND_NULL: (NOT_FOUND, NOT_FOUND),
    GetStatus.OFFSET_OVERFLOW_ONE: (NOT_FOUND, NOT_FOUND),
    GetStatus.OFFSET_OVERFLOW_BADLY: (OFFSET_MOVED, OFFSET_MOVED),
    GetStatus.OFFSET_TOO_SMALL: (OFFSET_MOVED, OFFSET_MOVED),
    GetStatus.OFFSET_RESET: (OFFSET_MOVED, OFFSET_MOVED),
}
STATUS_NAMES: Final = {status: status.value for status in GetStatus}

_quote = msgspec.json.Encoder().encode
_REPLY: Final = (
    b'{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d",'
    b'"offsetDelta":"0","topicSysFlag":"%d","groupSysFlag":"%d"}'
)


class PullProcessor:
    """Serves the pulls.

    Attributes:
        cold: what is counted of cold reads, and the pulls that wait for that.
    """

    def __init__(
        self, core: BrokerCore, holds: HoldTable, source: MasterSource | None = None
    ) -> None:
        """`source`: the master of a replica, or None."""
        tables = core.tables
        self._source: MasterSource | None = source
        self._live: LiveConfig = core.live
        self._store: MessageStore = core.store
        self._topics: TopicTable = tables.topics
        self._groups: GroupTable = tables.groups
        self._consumers: ConsumerTable = tables.consumers
        self._offsets: OffsetTable = tables.offsets
        self._filters: SubscriptionFilters = tables.filters
        self._stats: BrokerStats = core.stats
        self._broker_address: str = core.address.host
        self._read_cold: Callable[[QueueRead], Awaitable[Found]] = core.read_cold
        self._holds: HoldTable = holds
        self.cold: ColdPulls = ColdPulls(core)

    def pull_message(
        self, ctx: RequestContext, header: PullMessageRequestHeader, body: bytes
    ) -> Outcome:
        """PULL_MESSAGE and LITE_PULL_MESSAGE."""
        config = self._live.current
        if not config.broker_permission & PERM_READ:
            raise _forbidden(
                FORBIDDEN_BROKER, f"the broker[{self._broker_address}] pulling message is forbidden"
            )
        if (
            ctx.command.code == RequestCode.LITE_PULL_MESSAGE
            and not config.lite_pull_message_enable
        ):
            raise _forbidden(
                FORBIDDEN_BROKER,
                f"the broker[{self._broker_address}] for lite pull consumer is forbidden",
            )
        if self._source is not None:
            self._check_replica(self._source)
        group = self._groups.find(header.consumer_group, ctx.now_ms)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _forbidden(
                FORBIDDEN_GROUP, f"subscription group no permission, {header.consumer_group}"
            )
        topic = self._find_topic(ctx, header)
        queue_id: int = header.queue_id
        sys_flag: int = header.sys_flag
        if sys_flag & SUBSCRIPTION_FLAG:
            if self._live.current.reject_pull_consumer_enable:
                self._reject_puller(ctx, header)
            chosen = self._filter_from_request(header)
        else:
            chosen = self._filter_from_heartbeat(ctx, header, group)
        if sys_flag & CLASS_FILTER_FLAG:
            chosen = MATCH_ALL  # class filters are obsolete: the client filters
        elif chosen.predicate is not None:
            chosen = self._for_topic(chosen, header)
        if self._offsets.pending_resets:
            offset = self._offsets.take_reset(header.consumer_group, topic.name, queue_id)
            if offset is not None:
                return self._reset(topic, queue_id, offset, group)
        if ctx.may_hold:
            if sys_flag & COMMIT_FLAG:
                self._offsets.commit(
                    header.consumer_group,
                    topic.name,
                    queue_id,
                    header.commit_offset,
                    ctx.now_ms,
                    ctx.peer.remote,
                )
            self._offsets.commit_pull(
                header.consumer_group, topic.name, queue_id, header.queue_offset
            )
        return self._read(ctx, header, topic, group, chosen)

    def _check_replica(self, source: MasterSource) -> None:
        """A replica is read when that is allowed, or when there is no master (PullMessageProcessor.rejectRequest)."""
        if source.master_address and not self._live.current.slave_read_enable:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"slaveReadEnable=false: this slave broker is not read{words_of_master(source)}",
            )

    def _find_topic(self, ctx: RequestContext, header: PullMessageRequestHeader) -> Topic:
        """The topic, if it may be read and has the queue."""
        topic = self._topics.find(header.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! {FAQ}",
            )
        if not topic.perm & PERM_READ:
            raise _forbidden(
                FORBIDDEN_TOPIC, f"the topic[{header.topic}] pulling message is forbidden"
            )
        if not 0 <= header.queue_id < topic.read_queues:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{ctx.peer.remote}]",
            )
        return topic

    def _read(
        self,
        ctx: RequestContext,
        header: PullMessageRequestHeader,
        topic: Topic,
        group: SubscriptionGroupConfig,
        chosen: RecordFilter,
    ) -> Outcome:
        slowed = self.cold.slow_down(ctx, header)
        if isinstance(slowed, HeldPull):
            return Held(slowed)
        found = self._store.begin_read(
            ReadRequest(
                topic.name,
                header.queue_id,
                header.queue_offset,
                header.max_msg_nums if slowed is None else slowed,
                header.max_msg_bytes or DEFAULT_MAX_BYTES,
                chosen,
            )
        )
        if isinstance(found, QueueRead):
            return Task(self._cold(header, topic, group, found))
        code, code_at_zero = CODES[found.status]
        if header.queue_offset == 0:
            code = code_at_zero
        if self._source is not None:
            code = self._of_replica(self._source, header, found, code)
        if code == NOT_FOUND and ctx.may_hold and header.sys_flag & SUSPEND_FLAG:
            pull = self._hold(ctx, header, topic, chosen)
            if self._holds.hold(pull):
                return Held(pull)
        return self._answer(header, topic, group, found, code)

    def _of_replica(
        self, source: MasterSource, header: PullMessageRequestHeader, found: Found, code: int
    ) -> int:
        """The code of a replica's answer. It may lack what the master has: it corrects no offset, and who is not far
        behind goes to the master (offsetCheckInSlave=false, composeResponseHeader); without a master it waits here."""
        known = bool(source.master_address)
        if code == OFFSET_MOVED and (known or found.status is not GetStatus.OFFSET_TOO_SMALL):
            found.next_begin_offset = header.queue_offset
            return RETRY_IMMEDIATELY if known else NOT_FOUND
        if known and code != FOUND and not found.cold:
            return RETRY_IMMEDIATELY
        return code

    def _answer(
        self,
        header: PullMessageRequestHeader,
        topic: Topic,
        group: SubscriptionGroupConfig,
        found: Found,
        code: int,
    ) -> Reply:
        """The response to what the store has found; counts it, too."""
        suggested = 0
        if self._live.current.slave_read_enable:
            suggested = group.which_broker_when_consume_slowly if found.cold else group.broker_id
            if self._source is not None and not found.cold:
                suggested = 0  # the master, always
        ext = _REPLY % (
            suggested,
            found.next_begin_offset,
            found.min_offset,
            found.max_offset,
            topic.sys_flag,
            group.group_sys_flag,
        )
        count: int = found.count
        self._stats.get(count)
        if count:
            self._stats.group_get(topic.name, header.consumer_group, count, found.size)
            self.cold.count(header, found.size)
        return Reply(ext, found.runs or None, code, STATUS_NAMES[found.status])

    def _reset(
        self, topic: Topic, queue_id: int, offset: int, group: SubscriptionGroupConfig
    ) -> Reply:
        """An operator reset the queue: this pull is answered with where to go on."""
        ext = _REPLY % (
            group.broker_id if self._live.current.slave_read_enable else 0,
            offset,
            self._store.min_offset(topic.name, queue_id),
            self._store.max_offset(topic.name, queue_id),
            topic.sys_flag,
            group.group_sys_flag,
        )
        return Reply(ext, None, OFFSET_MOVED, STATUS_NAMES[GetStatus.OFFSET_RESET])

    async def _cold(
        self,
        header: PullMessageRequestHeader,
        topic: Topic,
        group: SubscriptionGroupConfig,
        read: QueueRead,
    ) -> Reply:
        """Read records that may have to come from the disk in the executor, and filter them there."""
        found = await self._read_cold(read)
        return self._answer(header, topic, group, found, CODES[found.status][0])

    def _hold(
        self,
        ctx: RequestContext,
        header: PullMessageRequestHeader,
        topic: Topic,
        chosen: RecordFilter,
    ) -> HeldPull:
        config = self._live.current
        wait_ms: int = min(header.suspend_timeout_millis, MAX_HOLD_MS)
        if not config.long_polling_enable:
            wait_ms = config.short_polling_time_mills
        return HeldPull(
            topic.name,
            header.queue_id,
            header.queue_offset,
            chosen.codes,
            ctx.steady_ms + wait_ms,
            chosen.predicate,
        )

    def _filter_from_request(self, header: PullMessageRequestHeader) -> RecordFilter:
        """The filter of a pull that has one."""
        kind = header.expression_type
        if not is_tag_type(kind) and not self._live.current.enable_property_filter:
            raise _no_property_filter(kind)
        try:
            return self._filters.build(header.subscription, kind)
        except ExpressionError as error:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from None

    def _reject_puller(self, ctx: RequestContext, header: PullMessageRequestHeader) -> None:
        """rejectPullConsumerEnable: only members of a group pull, and tools; a push consumer's group is let through."""
        name: str = header.consumer_group
        online = self._consumers.find(name)
        if online is not None and (
            online.consume_type != "CONSUME_ACTIVELY" or ctx.peer.id in online.channels
        ):
            return
        if is_users_group(name):
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}",
            )

    def _for_topic(self, chosen: RecordFilter, header: PullMessageRequestHeader) -> RecordFilter:
        """On a retry topic selectors do not fit, unless filterSupportRetry asks those of the topics before."""
        if not (self._live.current.filter_support_retry and header.topic.startswith(RETRY_PREFIX)):
            return chosen
        group = header.topic[len(RETRY_PREFIX) :]
        return RecordFilter(None, RetryPredicate(self._consumers.filter_of, group))

    def _filter_from_heartbeat(
        self,
        ctx: RequestContext,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
    ) -> RecordFilter:
        """Return the filter that the group's heartbeats subscribed to."""
        online = self._consumers.find(header.consumer_group)
        if online is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}"
            )
        if not group.consume_broadcast_enable and online.broadcasting:
            raise _forbidden(
                FORBIDDEN_BROADCASTING,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        if self._groups.forbidden(header.consumer_group, header.topic):
            raise _forbidden(
                FORBIDDEN_SUBSCRIPTION,
                f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]",
            )
        data = online.subscriptions.get(header.topic)
        if data is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}"
            )
        if data.sub_version < header.sub_version:
            online.want_subscriptions(ctx.peer)
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        chosen = online.filters.get(header.topic)
        if chosen is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if chosen.predicate is not None and not self._live.current.enable_property_filter:
            raise _no_property_filter(data.expression_type)
        return chosen


def _no_property_filter(kind: str | None) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {kind}",
    )


def _forbidden(kind: int, remark: str) -> Refused:
    """A refusal that also says which of five things is forbidden (ForbiddenType)."""
    return Refused(int(ResponseCode.NO_PERMISSION), remark, b'{"forbiddenType":"%d"}' % kind)
