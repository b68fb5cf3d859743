"""A consumer returns a message it could not process (36). Apache: consumerSendMsgBack."""

from collections.abc import Awaitable, Callable

from roquette.base.entropy import Entropy
from roquette.broker.config import LiveConfig
from roquette.broker.operation.stats import BrokerStats
from roquette.broker.records.retries import (
    DLQ_QUEUES,
    RETRY_PERM,
    plain_properties,
    plan_send_back,
    retry_limit,
)
from roquette.broker.records.sound_records import sound_record
from roquette.broker.records.writer import MessageWriter
from roquette.broker.sending.send import FAQ
from roquette.broker.tables.groups import GroupTable
from roquette.broker.tables.topics import Topic, TopicTable
from roquette.errors import Refused
from roquette.message.draft import draft_of
from roquette.message.names import PERM_WRITE, retry_topic
from roquette.message.properties import RETRY_TOPIC
from roquette.message.sysflag import TOPIC_UNIT_SUB
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Later, Outcome, Reply, Task
from roquette.store.message_store import MessageStore
from roquette.store.results import Appended
from roquette.wire.codes import ResponseCode
from roquette.wire.headers import ConsumerSendMsgBackRequestHeader


class SendBackProcessor:
    """Puts a returned message on its group's retry topic, or on its dead-letter topic.

    Args:
        durable: waits for a log offset to be on the disk; False when that took too long.
        topics_saved: waits until new topics are in their file; False when that failed.
    """

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        writer: MessageWriter,
        topics: TopicTable,
        groups: GroupTable,
        stats: BrokerStats,
        entropy: Entropy,
        *,
        broker_address: str,
        sync_flush: bool,
        durable: Callable[[int], Awaitable[bool]],
        topics_saved: Callable[[], Awaitable[bool]],
    ) -> None:
        self._live = live
        self._store = store
        self._writer = writer
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._entropy = entropy
        self._broker_address = broker_address
        self._sync_flush = sync_flush
        self._durable = durable
        self._topics_saved = topics_saved

    def send_back(
        self, ctx: RequestContext, header: ConsumerSendMsgBackRequestHeader, body: bytes
    ) -> Outcome:
        """CONSUMER_SEND_MSG_BACK. With synchronous flush the answer waits for the disk, unlike Apache's: the
        consumer moves on after it, so the copy must be as safe as the message was, and its topic known."""
        version = self._topics.data_version
        group = self._groups.find(header.group, ctx.now_ms)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group} {FAQ}",
            )
        if not self._live.current.broker_permission & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_address}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return Reply()
        topic = self._topics.ensure(
            retry_topic(header.group),
            queues=group.retry_queue_nums,
            perm=RETRY_PERM,
            sys_flag=TOPIC_UNIT_SUB if header.unit_mode else 0,
            now_ms=ctx.now_ms,
        )
        if not topic.perm & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden"
            )
        limit = retry_limit(group.retry_max_times, header.max_reconsume_times, ctx.command.version)
        done = self._put(ctx, header, topic, limit)
        if self._topics.data_version is not version:
            return Task(self._after_creation(done.end_offset))
        return Later(done.end_offset, Reply()) if self._sync_flush else Reply()

    async def _after_creation(self, end_offset: int) -> Reply:
        """The retry or dead-letter topic is new: it must be in its file before anybody relies on it."""
        saved = await self._topics_saved()
        if self._sync_flush:
            saved = await self._durable(end_offset) and saved
        return Reply(code=ResponseCode.SUCCESS if saved else ResponseCode.FLUSH_DISK_TIMEOUT)

    def _put(
        self,
        ctx: RequestContext,
        header: ConsumerSendMsgBackRequestHeader,
        topic: Topic,
        limit: int,
    ) -> Appended:
        data = self._store.record_at(header.offset)
        if data is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        record = sound_record(data)
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the message at offset {header.offset} is damaged on the broker's disk: send it anew",
            )
        plan = plan_send_back(record, header.group, wanted_level=header.delay_level, limit=limit)
        if plan.dead:
            topic = self._topics.ensure(
                plan.topic, queues=DLQ_QUEUES, perm=RETRY_PERM, now_ms=ctx.now_ms
            )
        self._stats.sent_back(plan.named.get(RETRY_TOPIC, record.topic), header.group)
        queue_id = self._entropy.below(max(1, topic.write_queues))

        def put(named: dict[str, str]) -> Appended:
            draft = draft_of(record)
            draft.topic, draft.queue_id = topic.name, queue_id
            draft.prepared_offset = 0
            draft.reconsume_times = plan.reconsume_times
            draft.own = True
            return self._writer.put(draft, named, ctx.now_ms)

        try:
            return put(plan.named)
        except Refused as refusal:
            if refusal.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            return put(plain_properties(record))  # no room for more: it comes again at once
