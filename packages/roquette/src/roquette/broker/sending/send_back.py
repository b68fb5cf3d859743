"""A consumer returns a message it could not process (36). Apache: consumerSendMsgBack."""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.retries import (
    DLQ_QUEUES,
    RETRY_PERM,
    plain_properties,
    plan_send_back,
    retry_limit,
)
from roquette.broker.floor.sound_records import sound_record
from roquette.broker.floor.tables.topics import Topic
from roquette.errors import Refused
from roquette.message.draft import draft_of
from roquette.message.names import PERM_WRITE, judged_topic, retry_topic
from roquette.message.properties import ORIGIN_GROUP, RETRY_TOPIC, decode_properties
from roquette.message.sysflag import TOPIC_UNIT_SUB
from roquette.remoting.outcomes import Later, Outcome, Reply, Task
from roquette.remoting.request import RequestContext
from roquette.store.format.results import Appended
from roquette.wire.codes import FAQ, ResponseCode
from roquette.wire.headers import ConsumerSendMsgBackRequestHeader


class SendBackProcessor:
    """Puts a returned message on its group's retry topic, or on its dead-letter topic."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._store = core.store
        self._writer = core.writer
        self._topics = core.tables.topics
        self._groups = core.tables.groups
        self._stats = core.stats
        self._entropy = core.entropy
        self._broker_address = core.address.host
        self._answers_wait = core.log_sync.answers_wait
        self._log_sync = core.log_sync
        self._saved = core.saved

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
            return Task(self._after_creation(done.end_offset, done.size))
        return Later(done.end_offset, Reply()) if self._answers_wait else Reply()

    async def _after_creation(self, end_offset: int, size: int) -> Reply:
        """The retry or dead-letter topic is new: it must be in its file before anybody relies on it."""
        saved = await self._saved.topics_saved()
        code = await self._log_sync.safe(end_offset, size) if self._answers_wait else 0
        return Reply(code=code if saved else ResponseCode.FLUSH_DISK_TIMEOUT)

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
        if ctx.may_touch is not None:
            said = decode_properties(record.properties).get(ORIGIN_GROUP, "")
            ctx.may_touch(judged_topic(record.topic, header.group, said))
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
