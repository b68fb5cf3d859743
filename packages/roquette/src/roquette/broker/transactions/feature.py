"""Transactions: their ends by request, and checks of those whose producers stay silent."""

import asyncio
import enum
import logging
from dataclasses import dataclass
from functools import partial

from roquette.access.model import Action
from roquette.base import metric_families as m
from roquette.base.metric_families import MetricTable, one
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start
from roquette.broker.floor.tables.consumers import ClientChannel
from roquette.broker.transactions.half_messages import HALF_QUEUE, TASK, HalfMessages, real_place
from roquette.errors import MessageIllegal, Refused, RefusedForNow
from roquette.message import names, properties, sysflag
from roquette.message.message_id import decode_offset_message_id, offset_message_id
from roquette.message.properties import decode_properties
from roquette.message.record import encode_record
from roquette.message.record_layout import StoredRecord, draft_of, place_of
from roquette.remoting.promises import Promise
from roquette.remoting.request import Later, Reply, RequestContext, Row, Silent, row
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader

# Asks producers what became of their half messages: the plan of one pass, and the beat that drives it.
# Each transactionCheckInterval a pass goes once over the open half messages. One that is old enough is put again with its number of checks, and a producer of its group is asked (CHECK_TRANSACTION_STATE, one way). One that was asked for too often, or is older than the log keeps, goes to TRANS_CHECK_MAX_TIME_TOPIC. Apache: TransactionalMessageCheckService, TransactionalMessageServiceImpl.check.


log = logging.getLogger("roquette.broker.transactions")

STEP_COUNT = 64  # half messages worked off before the loop gets a turn
STEP_BYTES = 1 << 20
MAX_BEHIND = 1 << 22  # half messages behind one that waits: with more, it is put again
HOUR_MS = 3_600_000


class CheckVerdict(enum.Enum):
    """Verdict of a pass over an open half message."""

    CHECK = "ask its producer"
    DISCARD = "move it to TRANS_CHECK_MAX_TIME_TOPIC"
    IMMUNE = "leave it: its own time is not over"
    FRESH = "leave it and all behind: it is too young"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """The settings that decide."""

    timeout_ms: int
    check_max: int
    reserved_ms: int


def judge(named: dict[str, str], age_ms: int, rules: CheckRules) -> CheckVerdict:
    """Judge what becomes of an open half message (needDiscard, needSkip and the immunity rules of `check`).

    Args:
        age_ms: how long ago it was stored, by steady time. Apache compares the producer's clock with the broker's,
            and so discards what is seconds old when one of them was set.
    """
    try:
        real_place(named)
    except Refused:
        return CheckVerdict.DISCARD  # nobody could commit it
    checks = _number(named.get(properties.TRANSACTION_CHECK_TIMES))
    if checks >= rules.check_max:
        return CheckVerdict.DISCARD
    if age_ms > rules.reserved_ms:
        return CheckVerdict.DISCARD
    if checks > 0:
        return CheckVerdict.CHECK  # a copy: its time was over when it was checked first
    own = named.get(properties.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if own is None:
        return CheckVerdict.CHECK if age_ms > rules.timeout_ms else CheckVerdict.FRESH
    seconds = _number(own)
    immunity_ms = rules.timeout_ms if seconds == -1 else seconds * 1000
    return CheckVerdict.CHECK if age_ms > immunity_ms else CheckVerdict.IMMUNE


def immunity_over(half: StoredRecord, age_ms: int, timeout_ms: int) -> bool:
    """Return True when only a check may end a half message now (EndTransactionProcessor.rejectCommitOrRollback)."""
    own = decode_properties(half.properties).get(properties.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if not own:
        return False
    immunity_ms = max(_number(own) * 1000, timeout_ms)
    return age_ms > immunity_ms


def _number(text: str | None) -> int:
    """As Apache's getLong and getInt read: -1 for what is no number."""
    try:
        return int(text or "")
    except ValueError:
        return -1


class CheckPlan:
    """One pass after the other over the open half messages; time is an argument, the store is not slow."""

    def __init__(self, core: BrokerCore, transactions: HalfMessages) -> None:
        self._transactions = transactions
        self._live = core.live
        self._producers = core.tables.producers
        self._access = core.access
        self._topics = core.tables.topics
        self._store_host = core.address.store_host
        self._times = core.clock.times
        self._cursor = 0
        self._end = 0
        self.checked = 0  # producers asked since start
        self.discarded = 0

    def begin(self, op_end: int) -> None:
        """Start a pass over what there is now; `op_end` is the end of the op queue."""
        state = self._transactions.state
        self._end = self._transactions.end_offset
        self._cursor = state.base
        state.mark(self._end, op_end)

    def step(self, now_ms: int, steady_ms: int, rules: CheckRules) -> bool:
        """Work off some half messages; False when the pass is over.

        Raises:
            RefusedForNow: the store takes nothing at present; the pass ends where it is.
        """
        state = self._transactions.state
        count = size = 0
        while count < STEP_COUNT and size < STEP_BYTES:
            self._cursor = state.next_open(self._cursor, self._end)
            if self._cursor >= self._end:
                return False
            records, following = self._transactions.read(self._cursor)
            for half in records:
                if half.queue_offset >= self._end:
                    return False
                if not state.ended(half.queue_offset):
                    count, size = count + 1, size + half.size
                    try:
                        more = self._work_off(half, now_ms, steady_ms, rules)
                    except Exception as error:  # noqa: BLE001 - `SetAside` judges
                        again = partial(self._work_off, half, now_ms, steady_ms, rules)
                        done = self._transactions.aside.again(TASK, half, error, again, now_ms)
                        more = done is not False
                    if not more:
                        return False
                self._cursor = half.queue_offset + 1
            if not records:
                if following <= self._cursor:
                    return False
                self._cursor = following
        return True

    def finish(self) -> None:
        """The pass is over: what has ended in front is forgotten."""
        self._transactions.state.advance(self._end)

    def _work_off(self, half: StoredRecord, now_ms: int, steady_ms: int, rules: CheckRules) -> bool:
        """Do what is due with one half message; False when all behind it are too young."""
        named = decode_properties(half.properties)
        verdict = judge(named, self._times.age_ms(half, steady_ms), rules)
        if verdict is CheckVerdict.DISCARD:
            self._discard(half, named, now_ms)
        elif verdict is CheckVerdict.CHECK:
            self._check(half, named, now_ms)
        elif half.queue_offset < self._end - MAX_BEHIND:
            # Apache puts immune ones again in every pass; here only when too much waits behind them.
            first = named.get(properties.TRAN_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
            self._renew(half, {properties.TRAN_PREPARED_QUEUE_OFFSET: first}, now_ms)
        return verdict is not CheckVerdict.FRESH

    def _check(self, half: StoredRecord, named: dict[str, str], now_ms: int) -> None:
        """Count the check, and ask; without a producer it counts as well, as Apache does.

        Who may not publish to the topic is no producer of it, whatever its heartbeat says: it would read the message.
        """
        group, (topic, _) = named.get(properties.PGROUP, ""), real_place(named)

        def may(channel: ClientChannel) -> bool:
            return self._access.permits(channel.account, channel.peer, topic, Action.PUB)

        channel = self._producers.choose(group, may)
        if channel is None and any(map(may, self._producers.channels(group))):
            return  # there are some, but none reads: asking would only fill memory
        times = max(_number(named.get(properties.TRANSACTION_CHECK_TIMES)), 0) + 1
        changes = {properties.TRANSACTION_CHECK_TIMES: str(times)}
        now = self._renew(half, changes, now_ms)
        if channel is None:
            log.warning("no producer to check with group=%s", group)
        else:
            self._ask(channel, now)

    def _renew(self, half: StoredRecord, changes: dict[str, str], now_ms: int) -> StoredRecord:
        try:
            return self._transactions.renew(half, changes, now_ms)
        except MessageIllegal as error:
            log.error("half message stays where it is offset=%d: %s", half.queue_offset, error)
            return half

    def _ask(self, channel: ClientChannel, half: StoredRecord) -> None:
        """CHECK_TRANSACTION_STATE with the message as it will be (sendCheckMessage).

        It names the message's own topic, which a client repeats in its answer: Apache's names that of half messages, and
        whoever answers needs a right to it.
        """
        named = decode_properties(half.properties)
        topic, queue_id = real_place(named)
        ext = {
            "topic": topic,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "offsetMsgId": offset_message_id(self._store_host, half.physical_offset),
            "bname": self._live.current.broker_name,
        }
        key = named.get(properties.UNIQ_KEY)
        if key is not None:
            ext["msgId"] = ext["transactionId"] = key
        draft = draft_of(half)
        draft.queue_id = queue_id
        place = place_of(half)
        place.topic = topic.encode()
        body = encode_record(draft, place)
        channel.peer.notify(RequestCode.CHECK_TRANSACTION_STATE, encode_dict(ext), body)
        self.checked += 1

    def _discard(self, half: StoredRecord, named: dict[str, str], now_ms: int) -> None:
        name = names.TRANS_CHECK_MAX_TIME_TOPIC
        perm = names.PERM_READ | names.PERM_WRITE
        self._topics.ensure(name, queues=1, perm=perm, needed=True, now_ms=now_ms)
        try:
            self._transactions.discard(half, now_ms)
        except MessageIllegal as error:
            log.error("half message stays where it is offset=%d: %s", half.queue_offset, error)
            return
        self.discarded += 1
        log.error(
            "half message discarded to=%s topic=%s key=%s",
            name,
            named.get(properties.REAL_TOPIC),
            named.get(properties.UNIQ_KEY),
        )


class TransactionChecks:
    """The beat: passes at their interval, and the progress of CID_RMQ_SYS_TRANS after each."""

    def __init__(self, core: BrokerCore, transactions: HalfMessages) -> None:
        self.plan = CheckPlan(core, transactions)
        self._transactions = transactions
        self._store = core.store
        self._offsets = core.tables.offsets
        self._topics = core.tables.topics
        self._live = core.live
        self._log_sync = core.log_sync
        self._clock = core.clock
        self._shell = core.shell
        self._ended_ms = core.clock.steady_ms()

    def load(self, last_record_offset: int) -> None:
        """Find the open half messages; after the store and the tables are there."""
        now_ms = self._clock.now_ms()
        half, op = (
            self._offsets.query(names.TRANS_GROUP, topic, HALF_QUEUE)
            for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC)
        )
        self._transactions.load(half, op, last_record_offset, now_ms)
        if self._store.max_offset(names.TRANS_CHECK_MAX_TIME_TOPIC, 0) > 0:
            perm = names.PERM_READ | names.PERM_WRITE
            name = names.TRANS_CHECK_MAX_TIME_TOPIC
            self._topics.ensure(name, queues=1, perm=perm, needed=True, now_ms=now_ms)

    async def tick(self) -> None:
        """Often: run a pass when it is time, transactionCheckInterval after the last one ended."""
        due_ms = self._ended_ms + self._live.current.transaction_check_interval
        if self._clock.steady_ms() >= due_ms:
            try:
                self.plan.begin(self._store.max_offset(names.TRANS_OP_HALF_TOPIC, HALF_QUEUE))
                await self._run()
            finally:
                self.plan.finish()
                self._ended_ms = self._clock.steady_ms()
            await self._save()

    async def _run(self) -> None:
        while True:
            now_ms, current = self._clock.now_ms(), self._live.current
            rules = CheckRules(
                timeout_ms=current.transaction_time_out,
                check_max=current.transaction_check_max,
                reserved_ms=self._live.store.file_reserved_hours * HOUR_MS,
            )
            try:
                more = self.plan.step(now_ms, self._clock.steady_ms(), rules)
            except RefusedForNow as refusal:
                log.warning("half messages wait reason=%s", refusal.remark)
                more = False
            self._shell.end_turn()
            if not more:
                return
            await asyncio.sleep(0)

    async def _save(self) -> None:
        """Hand the progress over to be persisted: it may reach the disk only after the log it speaks of."""
        state = self._transactions.state
        reached = {
            names.TRANS_HALF_TOPIC: state.base,
            names.TRANS_OP_HALF_TOPIC: state.op_offset,
        }
        moved = {
            topic: offset
            for topic, offset in reached.items()
            if offset != self._offsets.query(names.TRANS_GROUP, topic, HALF_QUEUE)
        }
        if moved and await self._log_sync.all_on_disk():
            for topic, offset in moved.items():
                self._offsets.commit(
                    names.TRANS_GROUP, topic, HALF_QUEUE, offset, self._clock.now_ms()
                )


# Ends a transaction (37), and restarts its checks (323). Both answer when what they wrote is as safe as a send.
# Apache: EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage.


_NOT_FOUND = "Find prepared transaction message failed"
_COMMITTED = "The half message has been committed already"
_ENDED = "The half message has been rolled back or discarded already"
_NOT_RESUMED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_NO_HALF = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


class TransactionProcessor:
    """Requests 37 and 323."""

    def __init__(self, core: BrokerCore, transactions: HalfMessages) -> None:
        self._core = core
        self._live = core.live
        self._transactions = transactions
        self._times = core.clock.times

    def end_transaction(
        self, ctx: RequestContext, header: EndTransactionRequestHeader, body: bytes
    ) -> Reply | Later | Silent:
        """END_TRANSACTION: commit or roll back; whoever does not know gets no answer and is asked later.

        A half message ends once. Who ends it again (Apache commits again) is refused, and told how it ended.
        """
        kind = header.commit_or_rollback
        if kind not in (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK):
            return Silent()
        half = self._transactions.find(header.commit_log_offset)
        if half is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        _admit(ctx, half)
        timeout_ms = self._live.current.transaction_time_out
        age_ms = self._times.age_ms(half, ctx.steady_ms)
        if not header.from_transaction_check and immunity_over(half, age_ms, timeout_ms):
            return Reply(code=ResponseCode.ILLEGAL_OPERATION)
        _check(half, header)
        now = self._transactions.newest(half)
        if now is None:
            how = _COMMITTED if self._transactions.was_committed(half) else _ENDED
            raise Refused(ResponseCode.SYSTEM_ERROR, how)
        if kind == sysflag.TRANSACTION_COMMIT:
            self._transactions.commit(now, ctx.now_ms)
        else:
            self._transactions.roll_back(now, ctx.now_ms)
        return self._logged()

    def resume_check(
        self, ctx: RequestContext, header: ResumeCheckHalfMessageRequestHeader, body: bytes
    ) -> Reply | Later:
        """RESUME_CHECK_HALF_MESSAGE: a half message, most often a discarded one, is checked from the start.

        Apache takes any record and makes a half message of it, as often as it is asked.
        """
        try:
            _, physical_offset = decode_offset_message_id(header.msg_id or "")
        except ValueError:
            raise Refused(ResponseCode.SYSTEM_ERROR, _NO_HALF) from None
        record = self._transactions.record_at(physical_offset)
        if (
            record is None
            or record.topic not in (names.TRANS_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC)
            or properties.REAL_TOPIC not in decode_properties(record.properties)
        ):
            raise Refused(ResponseCode.SYSTEM_ERROR, _NO_HALF)
        _admit(ctx, record)
        if not self._transactions.resume(record, ctx.now_ms):
            raise Refused(ResponseCode.SYSTEM_ERROR, _NOT_RESUMED)
        return self._logged()

    def _logged(self) -> Reply | Later:
        """The answer, once the log up to now is as safe as its flush mode says."""
        core = self._core
        return (
            Later(core.store.max_physical_offset, Reply())
            if core.log_sync.answers_wait
            else Reply()
        )


def _admit(ctx: RequestContext, half: StoredRecord) -> None:
    """Whoever ends a half message must have a right to its topic, whatever topic the request names."""
    if ctx.may_touch is not None:
        ctx.may_touch(decode_properties(half.properties).get(properties.REAL_TOPIC, ""))


def _check(half: StoredRecord, header: EndTransactionRequestHeader) -> None:
    """The request must name the half message by all it knows of it (checkPrepareMessage)."""
    if decode_properties(half.properties).get(properties.PGROUP) != header.producer_group:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if half.physical_offset != header.commit_log_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")


BEAT_S = 0.1


class TransactionFeature(Feature):
    """Serves the ends of transactions, and asks for them.

    Attributes:
        transactions: the half messages, which sends put.
        checks: the beat that asks producers.
    """

    def __init__(self, core: BrokerCore) -> None:
        self.transactions = HalfMessages(
            core.store, core.writer, core.address.store_host, core.delivered
        )
        self.checks = TransactionChecks(core, self.transactions)
        self._ends = TransactionProcessor(core, self.transactions)

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.END_TRANSACTION,
                self._ends.end_transaction,
                EndTransactionRequestHeader,
                Lane.END_TRANSACTION,
                Promise.LOG,
            ),
            row(
                RequestCode.RESUME_CHECK_HALF_MESSAGE,
                self._ends.resume_check,
                ResumeCheckHalfMessageRequestHeader,
                Lane.ADMIN,
                Promise.LOG,
            ),
        ]

    def beats(self) -> list[Beat]:
        """Checks."""
        return [Beat("transaction-checks", BEAT_S, self.checks.tick)]

    def measures(self, now_ms: int) -> list[MetricTable]:
        """Open half messages, and how transactions ended."""
        known = self.transactions
        waiting = known.state.open_before(known.end_offset)
        return [
            one(m.HALF, waiting),
            one(m.COMMITS, known.committed),
            one(m.ROLLBACKS, known.rolled_back),
        ]

    def load(self, start: Start) -> None:
        """Find the open half messages."""
        self.checks.load(start.last_record_offset)
