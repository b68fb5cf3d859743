"""Half messages in the store: put, committed, rolled back, put again, discarded, and found again after a crash.

Everything that ends a half message is two records that follow each other: first the one that goes on (the
committed message, the copy, the discarded one), whose prepared offset names the half message, then the op
message, which says that the half message ended. Nothing can come between them, so a crash can at most part the
last two records of the log, and `load` looks at the last one. That is why op messages are not collected for
transactionOpBatchInterval here: Apache commits twice after a crash within it.

Pure but for the store. Apache: TransactionalMessageBridge, TransactionalMessageServiceImpl.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from roquette.broker.floor.set_aside import sound_record, sound_record_at, sound_records
from roquette.broker.floor.waiting import keep_place
from roquette.broker.floor.writer import MessageWriter
from roquette.errors import MessageIllegal, Refused, StoreError
from roquette.message import names, properties, sysflag
from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record_layout import Draft, StoredRecord, draft_of
from roquette.store.format.results import Appended, Found, GetStatus
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import ReadRequest
from roquette.wire.codes import ResponseCode

# Half messages of one transaction: a copy of one that was put again without a word of where it came from.
# Apache's broker puts open half messages again when it checks and when it stops, with prepared offset 0, and lets its progress pass the first one. What stays the same is the unique id (`__transactionId__`), the born time and the body. Pure but for the store.


_MOST = 64  # copies looked at: more than transactionCheckMax allows by default


def copies_of(store: MessageStore, half: StoredRecord) -> list[StoredRecord]:
    """The other half messages of its transaction, the newest first."""
    found = [
        other
        for other in _of_key(store, names.TRANS_HALF_TOPIC, half)
        if other.physical_offset != half.physical_offset
    ]
    return sorted(found, key=lambda other: -other.queue_offset)


def committed(store: MessageStore, half: StoredRecord) -> bool:
    """Return True when a half message of its transaction was committed."""
    topic = decode_properties(half.properties).get(properties.REAL_TOPIC, "")
    return any(
        record.sys_flag & sysflag.TRANSACTION_MASK == sysflag.TRANSACTION_COMMIT
        for place in (topic, names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
        for record in _of_key(store, place, half)
    )


def _of_key(store: MessageStore, topic: str, half: StoredRecord) -> list[StoredRecord]:
    key = decode_properties(half.properties).get(properties.UNIQ_KEY)
    if not key:
        return []
    found: list[StoredRecord] = []
    for data in store.query(topic, key, _MOST, 0, 1 << 62):
        record = sound_record(data)
        if (
            record is not None
            and record.topic == topic
            and record.born_timestamp_ms == half.born_timestamp_ms
            and record.body_crc == half.body_crc
            and decode_properties(record.properties).get(properties.UNIQ_KEY) == key
        ):
            found.append(record)
    return found


# The half messages that have ended, and how far both transaction queues are worked off. Pure.
# A half message is known by its queue offset in RMQ_SYS_TRANS_HALF_TOPIC. It *ends* when it is committed, rolled back, discarded, or put again under another offset (a check puts a copy): from then on only the copy counts. Everything before `base` has ended. What ended behind it is one bit each, in pages that go when `base` has passed, so that memory follows the traffic between the oldest open half message and the newest one, an eighth of a byte each.
# Apache: TransactionalMessageServiceImpl.check keeps removeMap, opMsgMap and doneOpOffset instead, rebuilt in each pass.


PAGE_BITS: Final = 4096
MAX_COPIES: Final = 65_536
MAX_MARKS: Final = 64
_FULL: Final = (1 << PAGE_BITS) - 1


class HalfState:
    """The open and the ended half messages of one broker, without their content."""

    def __init__(self) -> None:
        self.base = 0
        self.op_offset = 0  # ops before this queue offset speak only of half messages before `base`
        self._pages: dict[int, int] = {}  # page number -> bits of the ended
        self._copies: OrderedDict[int, int] = OrderedDict()  # physical offset -> its copy's
        self._marks: list[tuple[int, int]] = []  # (end of the half queue, end of the op queue then)

    def load(self, base: int, op_offset: int) -> None:
        """Start over: everything before `base` has ended, nothing else is known."""
        self.base, self.op_offset = base, op_offset
        self._pages.clear()
        self._copies.clear()
        self._marks.clear()

    def end(self, queue_offset: int) -> None:
        """A half message has ended; saying it twice is harmless."""
        if queue_offset >= self.base:
            page, bit = divmod(queue_offset, PAGE_BITS)
            self._pages[page] = self._pages.get(page, 0) | 1 << bit

    def ended(self, queue_offset: int) -> bool:
        """Return True when a half message has ended."""
        if queue_offset < self.base:
            return True
        page, bit = divmod(queue_offset, PAGE_BITS)
        return bool(self._pages.get(page, 0) >> bit & 1)

    def open_before(self, limit: int) -> int:
        """Return how many half messages before `limit` have not ended."""
        first, bit = divmod(self.base, PAGE_BITS)
        ended = 0
        for page, bits in self._pages.items():
            if page >= first:
                ended += (bits >> bit if page == first else bits).bit_count()
        return max(0, limit - self.base - ended)

    def next_open(self, queue_offset: int, limit: int) -> int:
        """The first offset from `queue_offset` on that has not ended; `limit` when none before it is open."""
        offset = max(queue_offset, self.base)
        while offset < limit:
            page, bit = divmod(offset, PAGE_BITS)
            bits = self._pages.get(page, 0) >> bit
            if bits == _FULL >> bit:
                offset += PAGE_BITS - bit
                continue
            ones = (
                bits ^ (bits + 1)
            ).bit_length() - 1  # how many ended ones follow each other here
            return min(offset + ones, limit)
        return limit

    def advance(self, limit: int) -> None:
        """Move `base` over what has ended, up to `limit` (the end of the half queue)."""
        base = self.next_open(self.base, limit)
        for page in range(self.base // PAGE_BITS, base // PAGE_BITS):
            self._pages.pop(page, None)
        self.base = base
        while self._marks and self._marks[0][0] <= base:
            self.op_offset = self._marks.pop(0)[1]

    def skip(self, base: int) -> None:
        """The log no longer holds what is before `base`."""
        for page in [page for page in self._pages if (page + 1) * PAGE_BITS <= base]:
            del self._pages[page]
        self.base = max(self.base, base)

    def mark(self, half_end: int, op_end: int) -> None:
        """Mark where both queues end now: the ops there are will not be needed when `base` has come to `half_end`."""
        if self._marks and self._marks[-1][0] == half_end:
            self._marks[-1] = (half_end, op_end)
            return
        self._marks.append((half_end, op_end))
        if len(self._marks) > MAX_MARKS:
            del self._marks[1::2]

    def copied(self, physical_offset: int, copy_offset: int) -> None:
        """The half message at a physical offset goes on as a copy at another one."""
        self._copies[physical_offset] = copy_offset
        if len(self._copies) > MAX_COPIES:
            self._copies.popitem(last=False)

    def newest(self, physical_offset: int) -> int:
        """Return where the newest copy of a half message is, if it was copied and that is still remembered."""
        while (copy := self._copies.get(physical_offset)) is not None:
            physical_offset = copy
        return physical_offset

    @property
    def pages(self) -> int:
        """Pages kept, for those who watch memory."""
        return len(self._pages)


log = logging.getLogger("roquette.broker.transactions")

TASK = "transaction-checks"
REMOVE_TAG = "d"
_OP_PROPERTIES = encode_properties({properties.WAIT: "true", properties.TAGS: REMOVE_TAG}).encode()
_READ_COUNT = 32
_READ_BYTES = 262_144
HALF_QUEUE = 0
_NO_TRANSACTION = ~sysflag.TRANSACTION_MASK
_TIMERS = (properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_MS, properties.TIMER_DELAY_SEC)
_RENEWED = (properties.TRANSACTION_CHECK_TIMES, properties.TRAN_PREPARED_QUEUE_OFFSET)


class HalfMessages:
    """The two transaction queues of one broker.

    Args:
        host: this broker's address as records carry it.
        delivered: told topic and record size of every committed message.
    """

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        host: bytes,
        delivered: Callable[[str, int], None],
    ) -> None:
        self.state = HalfState()
        self._store = store
        self._writer = writer
        self.aside = writer.aside
        self.committed = self.rolled_back = 0  # since the start
        self._host = host
        self._delivered = delivered
        self._owed: list[int] = []  # ended, with an op message that the store did not take yet
        self._found_end = 0  # half messages before it were there at the start: whoever put them

    # Start.

    def load(self, half_offset: int, op_offset: int, last_record_offset: int, now_ms: int) -> None:
        """Find out which half messages are open, from where the group CID_RMQ_SYS_TRANS was.

        Args:
            half_offset, op_offset: its progress in both queues, -1 when there is none.
            last_record_offset: physical offset of the log's last record, -1 when it is empty.
        """
        base = self._within(names.TRANS_HALF_TOPIC, half_offset)
        self.state.load(base, self._within(names.TRANS_OP_HALF_TOPIC, op_offset))
        self._owed.clear()
        self._found_end = self.end_offset
        self._read_ops()
        self.state.advance(self._store.max_offset(names.TRANS_HALF_TOPIC, HALF_QUEUE))
        if last_record_offset >= 0:
            self._mend(last_record_offset, now_ms)

    def _within(self, topic: str, offset: int) -> int:
        low = self._store.min_offset(topic, HALF_QUEUE)
        return min(max(offset, low), self._store.max_offset(topic, HALF_QUEUE))

    def _read_ops(self) -> None:
        """Everything the op queue says of half messages that are not known to have ended."""
        limit = self._store.max_offset(names.TRANS_HALF_TOPIC, HALF_QUEUE)
        offset = self.state.op_offset
        end = self._store.max_offset(names.TRANS_OP_HALF_TOPIC, HALF_QUEUE)
        while offset < end:
            found = self._read(names.TRANS_OP_HALF_TOPIC, offset)
            for record in self._sound(names.TRANS_OP_HALF_TOPIC, offset, found):
                for ended in op_offsets(record):
                    if ended < limit:
                        self.state.end(ended)
            if found.next_begin_offset <= offset:
                break
            offset = found.next_begin_offset

    def _mend(self, last_record_offset: int, now_ms: int) -> None:
        """Write the op message that a crash has kept from following the log's last record."""
        last = self.record_at(last_record_offset)
        if last is None or last.prepared_offset >= last.physical_offset:
            return
        named = decode_properties(last.properties)
        goes_on = (
            last.sys_flag & sysflag.TRANSACTION_MASK == sysflag.TRANSACTION_COMMIT
            or last.topic == names.TRANS_CHECK_MAX_TIME_TOPIC
            or (last.topic == names.TRANS_HALF_TOPIC and any(name in named for name in _RENEWED))
        )
        half = self.find(last.prepared_offset) if goes_on else None
        if half is None or self.state.ended(half.queue_offset):
            return
        key = named.get(properties.UNIQ_KEY)
        if key == decode_properties(half.properties).get(properties.UNIQ_KEY):
            log.info("half message had ended offset=%d: its op was lost", half.queue_offset)
            self._ended(half, now_ms)

    # Half messages.

    def put_half(self, draft: Draft, named: dict[str, str], now_ms: int) -> Appended:
        """Store a message that no consumer sees yet (parseHalfMessageInner).

        Its delay, if it has one, begins when it is committed.

        Raises:
            Refused: the store does not take it.
        """
        named = dict(named)
        key = named.get(properties.UNIQ_KEY)
        if key:
            named[properties.TRANSACTION_ID] = key
        keep_place(named, draft.topic, draft.queue_id)
        draft.topic = names.TRANS_HALF_TOPIC
        draft.sys_flag &= _NO_TRANSACTION
        try:
            return self._append(draft, named, now_ms)
        except StoreError as error:
            raise self._writer.refusal(error) from None

    def find(self, physical_offset: int) -> StoredRecord | None:
        """The half message at a place of the log, ended or not."""
        record = self.record_at(physical_offset)
        return record if record is not None and record.topic == names.TRANS_HALF_TOPIC else None

    def newest(self, half: StoredRecord) -> StoredRecord | None:
        """The newest form of a half message: itself, or the copy that a check has put; None if it has ended.

        Copies put before the start are found by the transaction's id: Apache's broker puts half messages again.
        """
        place = self.state.newest(half.physical_offset)
        now = half if place == half.physical_offset else self.find(place)
        if now is None or self.state.ended(now.queue_offset):
            now = self._open_copy(half)
        elif now.queue_offset < self._found_end and committed(self._store, now):
            now = None
        return now

    def was_committed(self, half: StoredRecord) -> bool:
        """Return True when a half message that has ended was committed."""
        return committed(self._store, half)

    def _open_copy(self, half: StoredRecord) -> StoredRecord | None:
        if half.queue_offset >= self._found_end:
            return None
        for copy in copies_of(self._store, half):
            if not self.state.ended(copy.queue_offset):
                return None if committed(self._store, half) else copy
        return None

    def _end_copies(self, half: StoredRecord, now_ms: int) -> None:
        """A transaction has ended: so have the copies of its half message that were there at the start."""
        if half.queue_offset < self._found_end:
            for copy in copies_of(self._store, half):
                if not self.state.ended(copy.queue_offset):
                    self._ended(copy, now_ms)

    def read(self, offset: int) -> tuple[list[StoredRecord], int]:
        """Some half messages from a queue offset on, and the offset to go on with; itself at the end."""
        found = self._read(names.TRANS_HALF_TOPIC, offset)
        if found.status is GetStatus.OFFSET_TOO_SMALL:
            log.warning("half messages expired from=%d to=%d", offset, found.min_offset)
            self.state.skip(found.min_offset)
        records = self._sound(names.TRANS_HALF_TOPIC, offset, found)
        return records, max(found.next_begin_offset, offset)

    def _read(self, topic: str, offset: int) -> Found:
        return self._store.read_queue(
            ReadRequest(topic, HALF_QUEUE, offset, _READ_COUNT, _READ_BYTES)
        )

    def _sound(self, topic: str, offset: int, found: Found) -> list[StoredRecord]:
        return sound_records(self._store, topic, HALF_QUEUE, offset, found)

    @property
    def end_offset(self) -> int:
        """The queue offset the next half message gets."""
        return self._store.max_offset(names.TRANS_HALF_TOPIC, HALF_QUEUE)

    # What ends them. Each raises Refused when the store does not take it; the half message is open then.

    def commit(self, half: StoredRecord, now_ms: int) -> None:
        """Put the message to its real topic (EndTransactionProcessor.endMessageTransaction).

        Its properties keep TRAN_MSG, as Apache stores them, unless it is delayed.
        """
        named = decode_properties(half.properties)
        topic, queue_id = real_place(named)
        del named[properties.REAL_TOPIC], named[properties.REAL_QID]
        if properties.DELAY in named or any(name in named for name in _TIMERS):
            named.pop(properties.TRAN_MSG, None)
        self._pay(now_ms)
        draft = draft_of(half)
        draft.topic, draft.queue_id = topic, queue_id
        draft.sys_flag = half.sys_flag & _NO_TRANSACTION | sysflag.TRANSACTION_COMMIT
        draft.prepared_offset = half.physical_offset
        draft.own = True
        done = self._writer.put(draft, named, now_ms)
        self._ended(half, now_ms)
        self._end_copies(half, now_ms)
        self._delivered(topic, done.size)
        self.committed += 1

    def roll_back(self, half: StoredRecord, now_ms: int) -> None:
        """The message is never shown to anybody."""
        self._pay(now_ms)
        self._put_op(half.queue_offset, now_ms)
        self.state.end(half.queue_offset)
        self._end_copies(half, now_ms)
        self.rolled_back += 1

    def discard(self, half: StoredRecord, now_ms: int) -> None:
        """Move the message where its owner can see it (DefaultTransactionalMessageCheckListener)."""
        self._renew(
            names.TRANS_CHECK_MAX_TIME_TOPIC, half, decode_properties(half.properties), now_ms
        )

    def renew(self, half: StoredRecord, changes: dict[str, str], now_ms: int) -> StoredRecord:
        """Put the message again at the end of the half queue; the copy counts from now on.

        Raises:
            MessageIllegal: the changes make it break a limit.
        """
        named = decode_properties(half.properties) | changes
        done = self._renew(names.TRANS_HALF_TOPIC, half, named, now_ms)
        self.state.copied(half.physical_offset, done.physical_offset)
        copy = StoredRecord(names.TRANS_HALF_TOPIC, encode_properties(named), half.body)
        copy.size = done.size
        copy.magic = half.magic
        copy.body_crc = half.body_crc
        copy.flag = half.flag
        copy.queue_offset = done.queue_offset
        copy.physical_offset = done.physical_offset
        copy.sys_flag = half.sys_flag
        copy.born_timestamp_ms, copy.born_host = half.born_timestamp_ms, half.born_host
        copy.store_timestamp_ms, copy.store_host = now_ms, self._host
        copy.reconsume_times = half.reconsume_times
        copy.prepared_offset = half.physical_offset
        return copy

    def resume(self, record: StoredRecord, now_ms: int) -> bool:
        """Start the checks of a message again; False if it has ended (AdminBrokerProcessor).

        Args:
            record: a half message, or a discarded one.
        """
        changes = {properties.TRANSACTION_CHECK_TIMES: "0"}
        if record.topic == names.TRANS_HALF_TOPIC:
            half = self.newest(record)
            if half is None:
                return False
            try:
                self.renew(half, changes, now_ms)
            except MessageIllegal as error:
                raise self._writer.refusal(error) from None
            return True
        named = decode_properties(record.properties) | changes
        if self._resumed(record, named):
            return False
        try:
            draft = draft_of(record)
            draft.topic = names.TRANS_HALF_TOPIC
            draft.prepared_offset = 0
            done = self._append(draft, named, now_ms)
        except StoreError as error:
            raise self._writer.refusal(error) from None
        self.state.copied(record.physical_offset, done.physical_offset)
        return True

    def _resumed(self, record: StoredRecord, named: dict[str, str]) -> bool:
        """Return True when a discarded message is in the half queue again, or was."""
        if self.state.newest(record.physical_offset) != record.physical_offset:
            return True
        key = named.get(properties.UNIQ_KEY, "")
        for data in self._store.query(names.TRANS_HALF_TOPIC, key, 64, 0, 1 << 62):
            half = sound_record(data)
            if half is None:
                continue
            same = decode_properties(half.properties).get(properties.UNIQ_KEY) == key
            if same and half.physical_offset > record.physical_offset:
                return True
        return False

    # Records.

    def _renew(
        self, topic: str, half: StoredRecord, named: dict[str, str], now_ms: int
    ) -> Appended:
        self._pay(now_ms)
        try:
            draft = draft_of(half)
            draft.topic = topic
            draft.prepared_offset = half.physical_offset
            draft.own = True
            done = self._append(draft, named, now_ms)
        except MessageIllegal:
            raise
        except StoreError as error:
            raise self._writer.refusal(error) from None
        self._ended(half, now_ms)
        return done

    def _append(self, draft: Draft, named: dict[str, str], now_ms: int) -> Appended:
        """Append to queue 0 of a topic, past all delays."""
        draft.queue_id = HALF_QUEUE
        draft.properties = encode_properties(named).encode()
        return self._store.append(draft, now_ms)

    def _ended(self, half: StoredRecord, now_ms: int) -> None:
        """End a half message whose outcome is in the log: the op message follows, now or as soon as the store takes it."""
        self.state.end(half.queue_offset)
        self._owed.append(half.queue_offset)
        try:
            self._pay(now_ms)
        except Refused as refusal:
            log.warning("op message waits offset=%d: %s", half.queue_offset, refusal.remark)

    def _pay(self, now_ms: int) -> None:
        while self._owed:
            self._put_op(self._owed[0], now_ms)
            del self._owed[0]

    def _put_op(self, queue_offset: int, now_ms: int) -> None:
        body = b"%d," % queue_offset
        draft = Draft(
            names.TRANS_OP_HALF_TOPIC, HALF_QUEUE, _OP_PROPERTIES, body, now_ms, self._host
        )
        try:
            self._store.append(draft, now_ms)
        except StoreError as error:
            raise self._writer.refusal(error) from None

    def record_at(self, physical_offset: int) -> StoredRecord | None:
        """Whatever record begins at a place of the log."""
        return sound_record_at(self._store, physical_offset)


def real_place(named: dict[str, str]) -> tuple[str, int]:
    """Topic and queue a half message is for.

    Raises:
        Refused: its properties do not say; it is not one of ours.
    """
    topic, queue_id = named.get(properties.REAL_TOPIC), named.get(properties.REAL_QID, "")
    if not topic or not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the half message is for {topic}/{queue_id}, which is no queue",
        )
    return topic, int(queue_id)


def op_offsets(record: StoredRecord) -> list[int]:
    """Queue offsets of the half messages that an op message says have ended (fillOpRemoveMap)."""
    if decode_properties(record.properties).get(properties.TAGS) != REMOVE_TAG:
        log.error("op message without its tag offset=%d", record.queue_offset)
        return []
    return [int(part) for part in record.body.split(b",") if part.isdigit() and len(part) < 19]
