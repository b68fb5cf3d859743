"""Send a message or a batch: check, append, answer (10, 310, 320). HOT.

Apache: SendMessageProcessor, AbstractSendMessageProcessor.msgCheck; refusals carry their texts.
"""

from typing import Final

import msgspec
from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64, u8

from roquette.base.digits import write_decimal, write_hex
from roquette.base.entropy import Entropy
from roquette.base.javatypes import java_text, parse_java_bool, whole_number
from roquette.base.plain_text import TRUE, plain_end
from roquette.broker.floor.config import LiveConfig
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.log_sync import LogSync, ReplicaState
from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.tables.bounds import LockTable
from roquette.broker.floor.tables.groups import GroupTable
from roquette.broker.floor.tables.topics import Created, Topic, TopicTable
from roquette.broker.floor.timer_rules import DLQ_QUEUES, RETRY_PERM, retry_limit
from roquette.broker.floor.writer import MessageWriter, Put, delay_level
from roquette.errors import Refused, StoreError, StoreFull
from roquette.message.message_id import RecallHandle, UniqueIds
from roquette.message.names import (
    PERM_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    dlq_topic,
    topic_error,
)
from roquette.message.properties import (
    KEYS,
    MAX_PRIORITY,
    PRIORITY,
    SHARDING_KEY,
    TRANSIENT_PREFIX,
    UNIQ_KEY,
    KeySpans,
    decode_properties,
    encode_properties,
)
from roquette.message.record_layout import Draft
from roquette.message.sysflag import INNER_BATCH, MULTI_TAGS, TRANSACTION_MASK, TRANSACTION_PREPARED
from roquette.remoting.request import Later, Outcome, Reply, RequestContext, Task
from roquette.store.format.results import Appended
from roquette.store.message_store import MessageStore
from roquette.wire.codes import FAQ, ResponseCode
from roquette.wire.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from roquette.wire.send_fields import SendFields, fields_of

SPECIAL: Final = frozenset(
    (
        "TRAN_MSG",
        "DELAY",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DELAY_MS",
        "POP_CK",
        PRIORITY,
        "INNER_NUM",
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
    )
)
"""Properties that need more than being stored; all others take the short way."""

_OTHER_KINDS: Final = frozenset(
    ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", SHARDING_KEY)
)
"""What makes a message with a priority one of another kind (TopicMessageType.parseFromMessageProperty)."""

SPECIAL_FLAGS: Final = 0xFC  # transaction bits, host bits, inner batches
HOST_FLAGS: Final = 0x30
UNIT_TOPIC: Final = 0x1
UNIT_SUB_TOPIC: Final = 0x2
MAX_BATCH_TOPIC: Final = 127
TOO_MANY_WAIT: Final = (
    "[REJECTREQUEST]system busy, start flow control for a while: sends of more than maxWaitingSendBytes wait for "
    "replicas or the disk"
)

_quote = msgspec.json.Encoder().encode
Header = SendFields | SendMessageRequestHeader | SendMessageRequestHeaderV2


def _meaning(fields: SendFields, topic: Topic) -> dict[str, str] | None:
    """The properties of a message that needs more than being stored; None: it does not."""
    named = decode_properties(java_text(fields.properties))
    if topic.special or fields.sys_flag & SPECIAL_FLAGS or not SPECIAL.isdisjoint(named):
        return named
    return named if any(name.startswith(TRANSIENT_PREFIX) for name in named) else None


def _write_quoted(text: BytesWriter, key: bytes) -> None:
    """Append a unique id as JSON."""
    if plain_end(key, 0, len(key)) < len(key):  # ids are of digits and letters
        text.write(_quote(java_text(key)))
        return
    text.append(u8(34))
    text.write(key)
    text.append(u8(34))


def _write_queue(text: BytesWriter, queue_id: i64, queue_offset: i64) -> None:
    """Append the queue's part of a reply, which ends the ids before it."""
    text.write(b'","queueId":"')
    write_decimal(text, queue_id)
    text.write(b'","queueOffset":"')
    write_decimal(text, queue_offset)


class SendProcessor:
    """Serves the sends: answers wait for the disk under SYNC_FLUSH, unless a message says WAIT=false."""

    def __init__(self, core: BrokerCore, put_half: Put, created: Created) -> None:
        """`put_half`, `created`: see `SendFeature`."""
        address, entropy = core.address, core.entropy
        self._live: LiveConfig = core.live
        self._store: MessageStore = core.store
        self._writer: MessageWriter = core.writer
        self._topics: TopicTable = core.tables.topics
        self._groups: GroupTable = core.tables.groups
        self._locks: LockTable = core.tables.locks
        self._stats: BrokerStats = core.stats
        self._put_half: Put = put_half
        self._entropy: Entropy = entropy
        self._ids: UniqueIds = UniqueIds(
            address.store_host[:-4], entropy.process_id, entropy.below(1 << 32)
        )
        self._broker_address: str = address.host
        self._answers_wait: bool = core.log_sync.answers_wait
        self._replicas: ReplicaState = core.replicas
        self._created: Created = created
        self._log_sync: LogSync = core.log_sync
        self._accept_from_ms: int = core.live.current.start_accept_send_request_time_stamp
        self._host_hex: bytes = address.store_host.hex().upper().encode()
        self._next_id: bytes = b"," + self._host_hex  # begins each id of a batch but the first
        self._spans: KeySpans = KeySpans()  # of the message that is being sent
        self._text: BytesWriter = BytesWriter()  # of its reply
        self._settings_changed([])
        core.live.changed.append(self._settings_changed)

    def _settings_changed(self, keys: list[str]) -> None:
        """Make the replies' templates: regionId and traceOn are in each."""
        config = self._live.current
        trace_on = "true" if config.trace_on else "false"
        self._own: dict[str, str] = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": trace_on,
            "CLUSTER": config.broker_cluster_name,
        }
        self._added: bytes = encode_properties(self._own).encode()
        region = b'"MSG_REGION":%b,"TRACE_ON":"%b"' % (_quote(config.region_id), trace_on.encode())
        self._refusal_ext: bytes = b"{" + region + b"}"
        # How SendMessageResponseHeader begins in every reply.
        self._reply_head: bytes = b"{" + region + b',"msgId":"' + self._host_hex

    def send_message(self, ctx: RequestContext, header: Header, body: bytes) -> Outcome:
        """SEND_MESSAGE and SEND_MESSAGE_V2; a header that says `batch` makes the body a batch."""
        fields = header if isinstance(header, SendFields) else fields_of(header)
        if fields.batch:
            return self.send_batch(ctx, fields, body)
        if ctx.now_ms < self._accept_from_ms:
            raise self._refuse(ResponseCode.SYSTEM_ERROR, self._not_yet())
        if (
            self._store.send_refusal is not None
            or self._replicas.refusal is not None
            or self._log_sync.full
        ):
            raise self._not_now()
        topic = self._topics.find(fields.topic)
        created = topic is None
        if topic is None or not topic.open:
            topic = self._check_topic(ctx, fields, topic)
        queue_id = fields.queue_id
        if queue_id >= topic.queue_limit:
            raise self._bad_queue(ctx, topic, int(queue_id))
        if queue_id < 0:
            queue_id = self._any_queue(ctx, topic)
        if not body:
            raise self._illegal()
        spans = self._spans
        spans.scan(fields.properties)
        named: dict[str, str] | None = None
        if spans.marked or topic.special or fields.sys_flag & SPECIAL_FLAGS:
            named = _meaning(fields, topic)
        outcome: Outcome
        if named is None:
            outcome = self._send_plain(ctx, fields, topic, queue_id, body)
        else:
            outcome = self._send_special(ctx, fields, topic, int(queue_id), named, body)
        if created:
            return Task(self._after_creation(topic, fields.default_topic, outcome, len(body)))
        return outcome

    def _send_plain(
        self, ctx: RequestContext, fields: SendFields, topic: Topic, queue_id: i64, body: bytes
    ) -> Reply | Later:
        """A message whose properties are stored as they are; `_spans` has looked at them."""
        spans = self._spans
        text = fields.properties
        if text and text[-1] != 2:
            text += b"\x02"
        if spans.uniq_end == spans.uniq_start:
            text += b"UNIQ_KEY\x01" + self._ids.next_id(ctx.now_ms).encode() + b"\x02"
            spans.scan(text)
        uniq_key = text[spans.uniq_start : spans.uniq_end]
        draft = self._draft(ctx, fields, topic, queue_id, body)
        draft.properties = text + self._added
        draft.spans = spans  # what is added behind them is none of what they are for
        try:
            done = self._store.append(draft, ctx.now_ms)
        except StoreError as error:
            raise self._failed(error) from None
        waits = True
        if spans.wait_end > spans.wait_start:
            waits = (
                spans.wait_end - spans.wait_start == 4
                and read_i32_be(text, spans.wait_start) == TRUE
            ) or text[spans.wait_start : spans.wait_end].lower() == b"true"
        return self._answer(topic, queue_id, done, uniq_key, waits)

    def _draft(
        self, ctx: RequestContext, fields: SendFields, topic: Topic, queue_id: i64, body: bytes
    ) -> Draft:
        draft = Draft(topic.name, queue_id, b"", body, fields.born_timestamp, ctx.peer.host)
        draft.flag = fields.flag
        draft.sys_flag = fields.sys_flag
        draft.reconsume_times = fields.reconsume_times
        return draft

    def _answer(
        self, topic: Topic, queue_id: i64, done: Appended, uniq_key: bytes, waits: bool
    ) -> Reply | Later:
        """`uniq_key`: of the message. `waits`: its sender wants to know that it is safe."""
        topic.put_count += 1
        topic.put_bytes += done.size
        self._stats.put(1, done.size)
        text = self._text
        text.truncate(0)
        text.write(self._reply_head)
        write_hex(text, done.physical_offset)
        _write_queue(text, queue_id, done.queue_offset)
        text.write(b'","transactionId":')
        _write_quoted(text, uniq_key)
        text.write(b"}")
        reply = Reply(text.getvalue())
        return Later(done.end_offset, reply) if self._answers_wait and waits else reply

    # Topics: the checks of msgCheck, in its order.

    def admit(self, ctx: RequestContext, fields: SendFields) -> tuple[Topic, int]:
        """Topic and queue of a message, as `send_message` finds them; for those that store it another way."""
        if ctx.now_ms < self._accept_from_ms:
            raise self._refuse(ResponseCode.SYSTEM_ERROR, self._not_yet())
        topic = self._topics.find(fields.topic)
        if topic is None or not topic.open:
            topic = self._check_topic(ctx, fields, topic)
        queue_id = int(fields.queue_id)
        if queue_id >= topic.queue_limit:
            raise self._bad_queue(ctx, topic, queue_id)
        return topic, queue_id if queue_id >= 0 else self._any_queue(ctx, topic)

    def _any_queue(self, ctx: RequestContext, topic: Topic) -> int:
        if topic.write_queues <= 0:  # one that is being emptied has queues to read alone
            raise self._bad_queue(ctx, topic, -1)
        return self._entropy.below(topic.write_queues)

    def _check_topic(self, ctx: RequestContext, fields: SendFields, topic: Topic | None) -> Topic:
        if not self._live.current.broker_permission & PERM_WRITE:
            raise self._refuse(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_address}] sending message is forbidden",
            )
        if topic is None:
            error = topic_error(fields.topic, self._live.store.max_topic_length)
            if error is not None:
                raise self._refuse(ResponseCode.INVALID_PARAMETER, error)
            topic = self._create_topic(ctx, fields)
        if not topic.may_send:
            raise self._refuse(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{fields.topic}] is forbidden.",
            )
        if not topic.perm & PERM_WRITE:
            raise self._refuse(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic.name}] sending message is forbidden",
            )
        return topic

    def _create_topic(self, ctx: RequestContext, fields: SendFields) -> Topic:
        """A send to an unknown topic: create it after its template, or refuse."""
        name = fields.topic
        retry = name.startswith(RETRY_PREFIX)
        sys_flag = 0
        if fields.unit_mode:
            sys_flag = UNIT_SUB_TOPIC if retry else UNIT_TOPIC
        topic = self._topics.auto_create(
            name,
            default_topic=fields.default_topic,
            queues=fields.default_topic_queue_nums,
            sys_flag=sys_flag,
            enabled=self._live.current.auto_create_topic_enable,
            now_ms=ctx.now_ms,
        )
        if topic is None and retry:
            topic = self._topics.ensure(
                name, queues=1, perm=RETRY_PERM, sys_flag=sys_flag, now_ms=ctx.now_ms
            )
        if topic is None:
            raise self._refuse(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}"
            )
        return topic

    async def _after_creation(
        self, topic: Topic, template: str, outcome: Outcome, size: int
    ) -> Reply:
        """The first send to a topic is answered when name servers and other brokers know it, or had their time.

        A topic that could not be written answers as data that is not on the disk: a restart may lose it.
        """
        saved = await self._created(topic, template)
        code = 0
        if isinstance(outcome, Later):
            code = await self._log_sync.safe(outcome.end_offset, size) or self._replicas.receipt
            outcome = outcome.reply
        assert isinstance(outcome, Reply), outcome
        if code or not saved:
            outcome.code = code or ResponseCode.FLUSH_DISK_TIMEOUT
        return outcome

    # Messages with a special property, or to a special topic.

    def _send_special(
        self,
        ctx: RequestContext,
        fields: SendFields,
        topic: Topic,
        queue_id: int,
        named: dict[str, str],
        body: bytes,
    ) -> Reply | Later:
        sys_flag = fields.sys_flag & ~HOST_FLAGS
        reconsume_times = fields.reconsume_times
        named = {k: v for k, v in named.items() if not k.startswith(TRANSIENT_PREFIX)}
        named.pop("POP_CK", None)
        named.update(self._own)
        uniq_key = named.setdefault(UNIQ_KEY, "") or self._ids.next_id(ctx.now_ms)
        named[UNIQ_KEY] = uniq_key
        if topic.name.startswith(RETRY_PREFIX):
            moved = self._dead_letter(ctx, fields, topic.name, reconsume_times)
            if moved is not None:
                topic, queue_id = moved, self._entropy.below(DLQ_QUEUES)
                named["DELAY"] = "-1"
        if (priority := whole_number(named.get(PRIORITY, ""), MAX_PRIORITY)) >= 0:
            if _OTHER_KINDS.isdisjoint(named) and not parse_java_bool(named.get("TRAN_MSG")):
                queue_id = min(priority, topic.write_queues - 1)
            else:
                del named[PRIORITY]
        if topic.attributes.get("cleanup.policy") == "COMPACTION" and not named.get(KEYS):
            raise self._refuse(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        if "INNER_NUM" in named or sys_flag & INNER_BATCH:
            raise self._illegal()
        level = self._delay_level(named)
        half = self._is_half(named, sys_flag, retried=reconsume_times > 0 and level > 0)
        if topic.filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        draft = self._draft(ctx, fields, topic, queue_id, body)
        draft.sys_flag = sys_flag
        put = self._put_half if half else self._writer.put
        try:
            done = put(draft, named, ctx.now_ms)
        except Refused as refusal:
            self._stats.put_failed.total += 1
            raise self._refuse(refusal.code, refusal.remark) from None
        if half:
            topic = self._topics.find(TRANS_HALF_TOPIC) or topic  # it counts where it is
        elif "TIMER_OUT_MS" in named:
            topic = self._topics.find(TIMER_TOPIC) or topic
        elif level > 0:
            topic = self._topics.find(SCHEDULE_TOPIC) or topic
        waits = named.get("WAIT", "true").lower() == "true"
        outcome = self._answer(topic, queue_id, done, uniq_key.encode(), waits)
        if "TIMER_OUT_MS" in named and not half:
            self._attach_handle(outcome, named, uniq_key)
        return outcome

    def _attach_handle(self, outcome: Reply | Later, named: dict[str, str], uniq_key: str) -> None:
        """Tell the sender by which handle the message can be recalled (attachRecallHandle)."""
        out_ms, topic = named["TIMER_OUT_MS"], named.get("REAL_TOPIC")
        if topic is None or topic.startswith(RETRY_PREFIX) or not out_ms.isdecimal():
            return
        handle = RecallHandle(
            topic=topic,
            broker_name=self._live.current.broker_name,
            timestamp=str(int(out_ms) + 1),  # within the slot
            uniq_key=uniq_key,
        )
        reply = outcome.reply if isinstance(outcome, Later) else outcome
        reply.ext = reply.ext[:-1] + b',"recallHandle":%b}' % _quote(handle.encode())

    def _delay_level(self, named: dict[str, str]) -> int:
        try:
            return delay_level(named)
        except Refused as refusal:
            raise self._refuse(refusal.code, refusal.remark) from None

    def _is_half(self, named: dict[str, str], sys_flag: int, *, retried: bool) -> bool:
        """Return True for a half message; `retried`: old clients' retries keep the mark of what was one."""
        half = parse_java_bool(named.get("TRAN_MSG")) and not retried
        # The bits without the property: Apache stores a message that no consumer will ever see, and reports success.
        hidden = sys_flag & TRANSACTION_MASK == TRANSACTION_PREPARED and not (half or retried)
        if hidden or (half and self._live.current.reject_transaction_message):
            raise self._refuse(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_address}] sending transaction message is forbidden",
            )
        return half

    def _dead_letter(
        self, ctx: RequestContext, fields: SendFields, retry_name: str, reconsume_times: int
    ) -> Topic | None:
        """The dead-letter topic, when a message sent to a retry topic has had its tries (handleRetryAndDLQ)."""
        group_name = retry_name[len(RETRY_PREFIX) :]
        group = self._groups.find(group_name, ctx.now_ms)
        if group is None:
            raise self._refuse(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name} {FAQ}",
            )
        limit = retry_limit(group.retry_max_times, fields.max_reconsume_times, ctx.command.version)
        if reconsume_times <= limit and not self._locks.any_held(group_name, ctx.steady_ms):
            return None
        return self._topics.ensure(
            dlq_topic(group_name), queues=DLQ_QUEUES, perm=RETRY_PERM, now_ms=ctx.now_ms
        )

    # Batches.

    def send_batch(self, ctx: RequestContext, header: Header, body: bytes) -> Outcome:
        """SEND_BATCH_MESSAGE: many messages of one queue, consecutive offsets, one answer."""
        fields = header if isinstance(header, SendFields) else fields_of(header)
        if (
            self._store.send_refusal is not None
            or self._replicas.refusal is not None
            or self._log_sync.full
        ):
            raise self._not_now()
        created = self._topics.find(fields.topic) is None
        topic, queue_id = self.admit(ctx, fields)
        name = topic.name
        if name.startswith(RETRY_PREFIX):
            raise self._refuse(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {name}"
            )
        if len(name) > MAX_BATCH_TOPIC:
            raise self._refuse(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(name)}"
            )
        common = decode_properties(java_text(fields.properties))
        outcome = self._append_batch(ctx, fields, topic, queue_id, common, body)
        if created:
            return Task(self._after_creation(topic, fields.default_topic, outcome, len(body)))
        return outcome

    def _append_batch(
        self,
        ctx: RequestContext,
        fields: SendFields,
        topic: Topic,
        queue_id: int,
        common: dict[str, str],
        body: bytes,
    ) -> Reply | Later:
        if "DELAY" in common and self._delay_level(common) > 0:
            raise self._illegal()
        if not body or len(body) > self._live.store.max_message_size:
            raise self._illegal()
        draft = self._draft(ctx, fields, topic, queue_id, body)
        draft.sys_flag &= ~SPECIAL_FLAGS
        if topic.filter_type == "MULTI_TAG":
            draft.sys_flag |= MULTI_TAGS
        try:
            done = self._store.append_batch(draft, ctx.now_ms)
        except StoreError as error:
            raise self._failed(error) from None
        count = len(done.messages)
        text = self._text
        text.truncate(0)
        before = self._reply_head
        for message in done.messages:
            text.write(before)
            write_hex(text, message.physical_offset)
            before = self._next_id
        _write_queue(text, queue_id, done.queue_offset)
        topic.put_count += count
        topic.put_bytes += done.size
        topic.batched += count - 1
        self._stats.put(count, done.size)
        uniq_key = common.get(UNIQ_KEY)
        text.write(b'"}' if uniq_key is None else b'","transactionId":%b}' % _quote(uniq_key))
        reply = Reply(text.getvalue())
        if self._answers_wait and common.get("WAIT", "true").lower() == "true":
            return Later(done.end_offset, reply)
        return reply

    # Refusals: each carries MSG_REGION and TRACE_ON, as every answer to a send does.

    def _refuse(self, code: int, remark: str) -> Refused:
        return Refused(int(code), remark, self._refusal_ext)

    def _illegal(self) -> Refused:
        refusal = self._writer.illegal()
        return self._refuse(refusal.code, refusal.remark)

    def _failed(self, error: StoreError) -> Refused:
        self._stats.put_failed.total += 1
        refusal = self._writer.refusal(error)
        return self._refuse(refusal.code, refusal.remark)

    def _not_now(self) -> Refused:
        """Before anything is made for the message, a topic for example."""
        if self._replicas.refusal is not None:
            return self._refuse(ResponseCode.SYSTEM_ERROR, self._replicas.refusal)
        if self._log_sync.full:
            return self._refuse(ResponseCode.SYSTEM_BUSY, TOO_MANY_WAIT)
        return self._failed(StoreFull(self._store.send_refusal))

    def _bad_queue(self, ctx: RequestContext, topic: Topic, queue_id: int) -> Refused:
        return self._refuse(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, {topic} Producer: {ctx.peer.remote}",
        )

    def _not_yet(self) -> str:
        return f"broker unable to service, until {self._accept_from_ms}"
