"""Messages come in: sends, batches, returned messages, replies."""

import asyncio
import logging

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.broker.floor.set_aside import sound_record
from roquette.broker.floor.tables.topics import Created, Topic
from roquette.broker.floor.timer_rules import (
    DLQ_QUEUES,
    RETRY_PERM,
    plain_properties,
    plan_send_back,
    retry_limit,
)
from roquette.broker.floor.writer import Put
from roquette.broker.sending.send import SendProcessor
from roquette.errors import ClientError, Refused, StoreError
from roquette.message import properties
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.names import PERM_WRITE, judged_topic, retry_topic
from roquette.message.properties import (
    ORIGIN_GROUP,
    RETRY_TOPIC,
    decode_properties,
    encode_properties,
)
from roquette.message.record_layout import Draft, draft_of
from roquette.message.sysflag import COMPRESSED, COMPRESSION_MASK, TOPIC_UNIT_SUB
from roquette.remoting.promises import Promise
from roquette.remoting.request import Later, Outcome, Peer, Reply, RequestContext, Row, Task, row
from roquette.store.format.results import Appended
from roquette.wire.codes import FAQ, RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from roquette.wire.send_fields import fields_of

Header = SendMessageRequestHeader | SendMessageRequestHeaderV2

# Request-reply: a reply goes to the client that asked, over the connection it has here (324, 325, 326).
# Apache: ReplyMessageProcessor.


log = logging.getLogger("roquette.broker.reply")

PUSH_TIMEOUT_MS = 10_000


class ReplyProcessor:
    """Requests 324 and 325."""

    def __init__(self, core: BrokerCore, send: SendProcessor) -> None:
        self._core = core
        self._live = core.live
        self._store = core.store
        self._writer = core.writer
        self._producers = core.tables.producers
        self._send = send
        self._store_host = core.address.store_host

    def send_reply(self, ctx: RequestContext, header: Header, body: bytes) -> Task:
        """SEND_REPLY_MESSAGE and its V2: forward it, store it, and answer how the forwarding went."""
        topic, queue_id = self._send.admit(ctx, fields_of(header))
        return Task(self._pass_on(ctx, header, topic.name, queue_id, body))

    async def _pass_on(
        self, ctx: RequestContext, header: Header, topic: str, queue_id: int, body: bytes
    ) -> Reply:
        remark = await self._push(ctx, header, body)
        place = ("0", 0) if remark is None else None
        if self._live.current.store_reply_message_enable:
            place = await self._keep(ctx, header, topic, queue_id, body) or place
        fields = {
            "MSG_REGION": self._live.current.region_id,
            "TRACE_ON": "true" if self._live.current.trace_on else "false",
        }
        if place is not None:
            fields |= {
                "msgId": place[0],
                "queueId": str(queue_id),
                "queueOffset": str(place[1]),
            }
        code = ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR
        return Reply(encode_dict(fields), None, code, remark)

    async def _push(self, ctx: RequestContext, header: Header, body: bytes) -> str | None:
        """PUSH_REPLY_MESSAGE_TO_CLIENT; what went wrong, in Apache's words."""
        named = decode_properties(header.properties or "")
        client_id = named.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        channel = self._producers.find_client(client_id)
        if channel is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        named[properties.PUSH_REPLY_TIME] = str(ctx.now_ms)
        ext = encode_dict(self._push_fields(ctx, header, encode_properties(named)))
        if channel.peer.paused or not await _accepted(channel.peer, ext, body):
            return f"push reply message to {client_id}fail."
        return None

    def _push_fields(self, ctx: RequestContext, header: Header, text: str) -> dict[str, str]:
        return {
            "bornHost": host_text(ctx.peer.host),
            "storeHost": host_text(self._store_host),
            "storeTimestamp": str(ctx.now_ms),
            "producerGroup": header.producer_group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_topic_queue_nums),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_timestamp),
            "flag": str(header.flag),
            "properties": text,
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "true" if header.unit_mode else "false",
        }

    async def _keep(
        self, ctx: RequestContext, header: Header, topic: str, queue_id: int, body: bytes
    ) -> tuple[str, int] | None:
        """Store the reply as it came; that it cannot be stored is no failure for the replier."""
        text: str = header.properties or ""
        if not body:
            log.warning("reply not kept: it has no body topic=%s", topic)
            return None
        draft = Draft(topic, queue_id, text.encode(), body, header.born_timestamp, ctx.peer.host)
        draft.flag = header.flag
        draft.sys_flag = header.sys_flag & (COMPRESSED | COMPRESSION_MASK)
        draft.reconsume_times = header.reconsume_times
        try:
            self._store.check_send()
            done = self._store.append(draft, ctx.now_ms)
        except StoreError as error:
            log.warning("reply not kept topic=%s error=%s", topic, error)
            return None
        self._core.delivered(topic, done.size)
        if self._core.log_sync.answers_wait:
            await self._core.log_sync.safe(done.end_offset, done.size)
        return offset_message_id(self._store_host, done.physical_offset), done.queue_offset


async def _accepted(peer: Peer, ext: bytes, body: bytes) -> bool:
    """Send it, and return True when the client took the reply."""
    try:
        async with asyncio.timeout(PUSH_TIMEOUT_MS / 1000):
            answer = await peer.invoke(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body, PUSH_TIMEOUT_MS
            )
    except (ClientError, TimeoutError, Refused) as error:
        log.warning("reply not passed on peer=%s error=%s", peer.remote, error)
        return False
    if answer.code != ResponseCode.SUCCESS:
        log.warning("reply refused peer=%s remark=%s", peer.remote, answer.remark)
    return bool(answer.code == ResponseCode.SUCCESS)


# A consumer returns a message it could not process (36). Apache: consumerSendMsgBack.


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
            origin_group = decode_properties(record.properties).get(ORIGIN_GROUP, "")
            ctx.may_touch(judged_topic(record.topic, header.group, origin_group))
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


class SendFeature(Feature):
    """Serves what appends messages for clients."""

    def __init__(self, core: BrokerCore, put_half: Put, created: Created) -> None:
        """`put_half`: stores a message that no consumer sees yet. `created`: waits for a topic that a send has made."""
        self._send = SendProcessor(core, put_half, created)
        self._send_back = SendBackProcessor(core)
        self._reply = ReplyProcessor(core, self._send)

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        send, back, reply = self._send, self._send_back.send_back, self._reply.send_reply
        v1, v2, returned = (
            SendMessageRequestHeader,
            SendMessageRequestHeaderV2,
            ConsumerSendMsgBackRequestHeader,
        )
        code = RequestCode
        return [
            row(code.SEND_MESSAGE, send.send_message, v1, Lane.SEND, Promise.LOG),
            row(code.SEND_MESSAGE_V2, send.send_message, v2, Lane.SEND, Promise.LOG),
            row(code.SEND_BATCH_MESSAGE, send.send_batch, v2, Lane.SEND, Promise.LOG),
            row(code.CONSUMER_SEND_MSG_BACK, back, returned, Lane.SEND, Promise.LOG),
            row(code.SEND_REPLY_MESSAGE, reply, v1, Lane.REPLY, Promise.LOG),
            row(code.SEND_REPLY_MESSAGE_V2, reply, v2, Lane.REPLY, Promise.LOG),
        ]
