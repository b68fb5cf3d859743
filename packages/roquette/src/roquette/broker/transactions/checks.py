"""Asks producers what became of their half messages: the plan of one pass, and the beat that drives it.

Each transactionCheckInterval a pass goes once over the open half messages. One that is old enough is put again
with its number of checks, and a producer of its group is asked (CHECK_TRANSACTION_STATE, one way). One that was
asked for too often, or is older than the log keeps, goes to TRANS_CHECK_MAX_TIME_TOPIC.
Apache: TransactionalMessageCheckService, TransactionalMessageServiceImpl.check.
"""

import asyncio
import enum
import logging
from dataclasses import dataclass
from functools import partial

from roquette.access.model import Action
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.tables.consumers import ClientChannel
from roquette.broker.transactions.half_messages import HALF_QUEUE, TASK, HalfMessages, real_place
from roquette.errors import MessageIllegal, Refused, RefusedForNow
from roquette.message import names, properties
from roquette.message.draft import draft_of, place_of
from roquette.message.message_id import offset_message_id
from roquette.message.properties import decode_properties
from roquette.message.record import encode_record
from roquette.message.record_layout import StoredRecord
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import encode_dict

log = logging.getLogger("roquette.broker.transactions")

STEP_COUNT = 64  # half messages worked off before the loop gets a turn
STEP_BYTES = 1 << 20
MAX_BEHIND = 1 << 22  # half messages behind one that waits: with more, it is put again
HOUR_MS = 3_600_000


class CheckVerdict(enum.Enum):
    """What a pass does with an open half message."""

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
    """What becomes of an open half message (needDiscard, needSkip and the immunity rules of `check`).

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
    """Whether only a check may end a half message now (EndTransactionProcessor.rejectCommitOrRollback)."""
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
