"""Follows the revive log: joins check-points with acknowledgements, and lets come again what was not acknowledged.

Apache: PopReviveService, one a revive queue. There is no clock here: `step` gets the time, `service.py` calls it.

The log is read in order. A check-point stays in the queue's table until all its messages are acknowledged or its
invisible time is over; then the others are put to the group's pop retry topic, followed by an acknowledgement that says
so: who reads the log after a crash does not repeat it. Progress (CID_RMQ_SYS_REVIVE_GROUP in consumerOffset.json) is the
offset before the oldest check-point that is not finished, as Apache's is the last one that is.

Memory is bounded: a table takes `limit` check-points. Behind them the log is read for acknowledgements only, and again
from there once half of the table is free.
"""

import heapq
import logging
from collections import deque
from functools import partial

import msgspec

from roquette.base.javatypes import java_hash
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.set_aside import sound_record, sound_record_at, sound_records
from roquette.broker.floor.timer_rules import wait_no_more
from roquette.broker.floor.writer import MessageWriter
from roquette.broker.pop.checkpoint import (
    ACK_INTERVAL_MS,
    GRACE_MS,
    REVIVE_GROUP,
    TAGS,
    Ack,
    CheckPoint,
    Entry,
    OrderEntry,
    decode,
    encode,
)
from roquette.broker.pop.order import OrderTable, next_offset
from roquette.broker.pop.receipt import PopReceipt
from roquette.errors import Refused, StoreError, is_transient
from roquette.message import names, properties
from roquette.message.properties import decode_properties, encode_properties, property_value
from roquette.message.record_layout import Draft, StoredRecord, draft_of
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import ReadRequest

# Check-points whose messages are out: what is acknowledged of them, and which are due. Pure, bounded by its user.
# Apache keeps such a table twice (PopBufferMergeService, PopReviveService); here there is one per revive queue, filled from the revive log only, so that what it holds is always on record: docs/decisions/0012-pop-state-from-the-log.md.


_SLACK = 1_000  # entries of finished check-points that the orders may keep besides twice the table's size


class InFlightTable:
    """The unfinished check-points of one revive queue."""

    __slots__ = ("_by_key", "_due", "_order", "_places", "_points")

    def __init__(self) -> None:
        self._points: dict[int, CheckPoint] = {}  # by revive offset, ascending
        self._places: dict[int, int] = {}  # revive offset -> physical offset
        self._by_key: dict[tuple[str | None, str | None, int, int, int], CheckPoint] = {}
        self._order: deque[int] = deque()
        self._due: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(
        self, point: CheckPoint, revive_offset: int, place: int = 0, popped_ms: int | None = None
    ) -> None:
        """Take in a check-point at the physical offset `place`; revive offsets only grow.

        `popped_ms`: the time of its pop by the clock that `due` is asked by; its own by default.

        Of two with one key the first gets the acknowledgements: the other's messages come again, none is lost.
        """
        point.revive_offset = revive_offset
        self._points[revive_offset] = point
        self._places[revive_offset] = place
        self._by_key.setdefault(point.key, point)
        self._order.append(revive_offset)
        popped_ms = point.pop_time if popped_ms is None else popped_ms
        heapq.heappush(self._due, (popped_ms + point.invisible_time, revive_offset))
        if point.done:
            self.remove(point)

    def acknowledge(self, ack: Ack) -> bool:
        """Note an acknowledgement; False when its check-point is not here, or has no such message."""
        point = self._by_key.get(ack.key)
        if point is None:
            return False
        known = False
        for offset in ack.acknowledged:
            index = point.index_of(offset)
            if index >= 0:
                point.bit_map |= 1 << index
                known = True
        if point.done:
            self.remove(point)
        return known

    def due(self, now_ms: int) -> CheckPoint | None:
        """The check-point with the oldest end of invisible time, when that is at or before `now_ms`."""
        while self._due and self._due[0][1] not in self._points:
            heapq.heappop(self._due)
        if not self._due or self._due[0][0] > now_ms:
            return None
        return self._points[self._due[0][1]]

    def place_of(self, point: CheckPoint) -> int:
        """The physical offset of a check-point; its messages come before it."""
        return self._places[point.revive_offset]

    def remove(self, point: CheckPoint) -> None:
        """A check-point is finished."""
        del self._points[point.revive_offset]
        del self._places[point.revive_offset]
        if self._by_key.get(point.key) is point:
            del self._by_key[point.key]
        bound = 2 * len(self._points) + _SLACK
        if len(self._order) > bound:
            self._order = deque(self._points)
        if len(self._due) > bound:
            self._due = [entry for entry in self._due if entry[1] in self._points]
            heapq.heapify(self._due)

    def first_offset(self) -> int | None:
        """The revive offset of the oldest unfinished check-point: progress ends before it."""
        while self._order and self._order[0] not in self._points:
            self._order.popleft()
        return self._order[0] if self._order else None

    def points(self) -> list[CheckPoint]:
        """All of them, oldest first."""
        return list(self._points.values())


# Appends check-points and acknowledgements to the revive log, in the form of Apache's broker.
# Apache sends them through its timer and reads them when they are due; here they go to their revive queue at once, with the properties they would have there after the timer, so that either broker can go on with the other's store.


def entry_properties(entry: Entry, deliver_ms: int) -> str:
    """The properties of an entry's message."""
    deliver = str(deliver_ms)
    named = {
        properties.TAGS: entry.tag,
        properties.UNIQ_KEY: entry.unique_key,
        properties.TIMER_DELIVER_MS: deliver,
        properties.TIMER_OUT_MS: deliver,
    }
    return encode_properties(named)


_quote = msgspec.json.Encoder().encode


def ack_texts(
    group: str, topic: str, queue_id: int, offset: int, receipt: PopReceipt
) -> tuple[str, bytes]:
    """Properties and body of the acknowledgement of one message: those of its `Ack`, which is not made. Most entries are these."""
    broker, popped = receipt.broker_name, receipt.pop_time
    due = popped + receipt.invisible_time
    named = (
        f"TAGS\x01ack\x02UNIQ_KEY\x01{topic}@{queue_id}@{offset}@{group}@{popped}@{broker}@ack\x02"
        f"TIMER_DELIVER_MS\x01{due}\x02TIMER_OUT_MS\x01{due}\x02"
    )
    if named.count(properties.PROPERTY_SEPARATOR) != 4:  # somebody's names want to add one
        ack = Ack(
            ack_offset=offset, group=group, topic=topic, queue_id=queue_id, pop_time=popped,
            broker_name=broker,
        )  # fmt: skip
        named = entry_properties(ack, due)
    body = b'{"ao":%d,"so":%d,"c":%b,"t":%b,"q":%d,"pt":%d,"bn":%b}' % (
        offset,
        receipt.start_offset,
        _quote(group),
        _quote(topic),
        queue_id,
        popped,
        _quote(broker),
    )
    return named, body


class ReviveLog:
    """The topic rmq_sys_REVIVE_LOG_<cluster>.

    Args:
        host: this broker's address, as records carry it.
    """

    def __init__(
        self, store: MessageStore, writer: MessageWriter, cluster: str, queues: int, host: bytes
    ) -> None:
        self.topic = names.REVIVE_LOG_PREFIX + cluster
        self.queues = queues
        self._store = store
        self._writer = writer
        self._host = host
        self._next = -1

    def next_queue(self) -> int:
        """The revive queue of the next pop: they take turns."""
        self._next = (self._next + 1) % self.queues
        return self._next

    def append(self, entry: Entry, revive_qid: int, *, deliver_ms: int, now_ms: int) -> int:
        """Append an entry; returns the log's end after it.

        Args:
            deliver_ms: when Apache's timer would deliver it.

        Raises:
            Refused: the store does not take messages.
        """
        named = entry_properties(entry, deliver_ms)
        return self._put(revive_qid, named.encode(), encode(entry), now_ms)

    def _put(self, revive_qid: int, named: bytes, body: bytes, now_ms: int) -> int:
        draft = Draft(self.topic, revive_qid, named, body, now_ms, self._host)
        try:
            done = self._store.append(draft, now_ms)
        except StoreError as error:
            raise self._writer.refusal(error) from None
        return done.end_offset

    def append_ack(
        self, group: str, topic: str, queue_id: int, offset: int, receipt: PopReceipt, now_ms: int
    ) -> int:
        """Append the acknowledgement of one message; returns the log's end after it. Raises Refused."""
        named, body = ack_texts(group, topic, queue_id, offset, receipt)
        return self._put(receipt.revive_qid, named.encode(), body, now_ms)

    def append_check_point(self, point: CheckPoint, revive_qid: int, now_ms: int) -> int:
        """Append a check-point; returns the log's end after it. Raises Refused."""
        deliver = point.revive_time - ACK_INTERVAL_MS
        return self.append(point, revive_qid, deliver_ms=deliver, now_ms=now_ms)

    def append_order(self, entry: OrderEntry, now_ms: int) -> int:
        """Append what orderly pops hold of a queue, always to the same revive queue; returns the log's end after it.

        Raises:
            Refused: the store does not take messages.
        """
        place = (java_hash(f"{entry.topic}@{entry.group}") + entry.queue_id) % self.queues
        return self.append(entry, place, deliver_ms=now_ms, now_ms=now_ms)


log = logging.getLogger("roquette.broker.pop")

SNAPSHOT_GROUP = "CID_RMQ_SYS_REVIVE_SNAPSHOT"
"""Its offsets say how far the revive log was when consumerOffset.json was written: see `Reviver.recover`."""

TASK = "revive"
_READ_COUNT = 32
_READ_BYTES = 262_144
_READ_BUDGET = 512  # entries read per step, so that the loop is never held for long
_REVIVE_BUDGET = 128  # messages put to retry topics per step; those of one check-point more at most
_RETRY_QUEUES = 1
_PERM = names.PERM_READ | names.PERM_WRITE


class _Queue:
    """One revive queue: what is out, and how far the log was read."""

    __slots__ = (
        "former_end",
        "frozen",
        "in_flight",
        "noted",
        "number",
        "ordered",
        "pictured",
        "read_offset",
        "scan_offset",
    )

    def __init__(self, number: int, read_offset: int) -> None:
        self.number = number
        self.in_flight = InFlightTable()
        self.read_offset = read_offset  # everything before is in the table, or done
        self.former_end = (
            0  # entries before it are of former lives of the broker, or of another master
        )
        self.frozen = False  # the table is full
        self.scan_offset = 0  # while frozen: acknowledgements before it were seen
        self.noted = False  # the offsets have a snapshot
        self.pictured = self.ordered = 0  # what the file of orderly pops will have, and has


class Reviver:
    """All revive queues of one broker."""

    def __init__(self, core: BrokerCore, revive_log: ReviveLog, orders: OrderTable) -> None:
        live, tables = core.live, core.tables
        self._live = live
        self._store = core.store
        self._writer = core.writer
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._log = revive_log
        self._orders = orders
        self._times = core.clock.times
        queues = max(1, live.current.revive_queue_num)
        self._limit = max(2, live.current.pop_ck_max_buffer_size // queues)
        self._host = core.address.store_host
        self._queues: list[_Queue] = []
        self._cut: StoredRecord | None = None  # the log's last record of the life before
        self._turn = 0  # which queue comes first in a step
        self._reads = self._revivals = 0  # what is left of a step's budgets
        self.revived = 0

    def recover(self, now_ms: int, steady_ms: int, last_record_offset: int) -> None:
        """Begin where the offsets say. Pops made after the offsets were written are found in the log: without
        that their messages would be handed out again before their invisible time is over.

        Args:
            last_record_offset: physical offset of the log's last record, -1 when it is empty. A crash may have kept
                from it the acknowledgement that follows copies of messages, or a check-point that replaces another.
        """
        topic = self._log.topic
        self._cut = None
        if last_record_offset >= 0:
            self._cut = sound_record_at(self._store, last_record_offset)
        self._queues = []
        for number in range(self._log.queues):
            committed = self._offsets.query(REVIVE_GROUP, topic, number)
            low = self._store.min_offset(topic, number)
            high = self._store.max_offset(topic, number)
            queue = _Queue(number, min(max(committed + 1, low), high))
            queue.former_end = high
            self._queues.append(queue)
            snapshot = self._offsets.query(SNAPSHOT_GROUP, topic, number)
            queue.noted = snapshot >= 0
            if snapshot < 0:  # a new store, or Apache's
                snapshot = committed + 1
            queue.ordered = snapshot
            if snapshot < high:
                self._replay(number, max(snapshot, low), now_ms, steady_ms)

    def _replay(self, number: int, offset: int, now_ms: int, steady_ms: int) -> None:
        while True:
            records, following = self._read(number, offset)
            for record in records:
                try:
                    self._replay_one(record, now_ms, steady_ms)
                except Exception as error:  # noqa: BLE001 - `SetAside` judges
                    again = partial(self._replay_one, record, now_ms, steady_ms)
                    self._writer.aside.again(TASK, record, error, again, now_ms)
            if following == offset:
                return
            offset = following

    def _replay_one(self, record: StoredRecord, now_ms: int, steady_ms: int) -> None:
        entry = _entry(record)
        if isinstance(entry, CheckPoint):
            last = self._message(str(entry.topic), entry.queue_id, entry.end_offset - 1)
            if last is not None and last.physical_offset < record.physical_offset:
                self._advance(entry, entry.end_offset, record, now_ms)
        elif isinstance(entry, OrderEntry):
            place = (str(entry.topic), str(entry.group), entry.queue_id)
            self._orders.restore(*place, entry.info, steady_ms)
            self._advance(entry, next_offset(entry.info), record, now_ms)

    def _advance(
        self, entry: CheckPoint | OrderEntry, offset: int, record: StoredRecord, now_ms: int
    ) -> None:
        """Go on behind a pop, unless the offsets knew of it: then they may have been reset since."""
        place = (str(entry.group), str(entry.topic), entry.queue_id)
        if record.physical_offset < self._offsets.log_end:
            return
        end = self._store.max_offset(str(entry.topic), entry.queue_id)
        if self._offsets.query(*place) < offset <= end:
            self._offsets.commit(*place, offset, now_ms)

    def snapshot(self, now_ms: int, *, settled: bool) -> None:
        """The offsets are about to be written: note how far the revive log is in them and in the file of orderly pops.

        Args:
            settled: that file has all there is. Else what came after it must be found in the log.
        """
        for queue in self._queues:
            if settled:
                queue.ordered = self._end_of(queue)
            if queue.ordered > 0:
                self._commit(SNAPSHOT_GROUP, queue.number, queue.ordered, now_ms)

    def picture_orders(self) -> None:
        """The file of orderly pops gets what they are now."""
        for queue in self._queues:
            queue.pictured = self._end_of(queue)

    def orders_written(self) -> None:
        """It is on the disk."""
        for queue in self._queues:
            queue.ordered = queue.pictured

    def step(self, now_ms: int, steady_ms: int) -> bool:
        """Read what is new, revive what is due; True when there is more than one step may do.

        Raises:
            RefusedForNow: the store takes nothing at present; nothing is forgotten.
        """
        more = False
        self._reads, self._revivals = _READ_BUDGET, _REVIVE_BUDGET
        self._turn += 1
        for step in range(len(self._queues)):
            queue = self._queues[(self._turn + step) % len(self._queues)]
            done = self._follow(queue, now_ms, steady_ms)
            if (
                done
                and (queue.scan_offset if queue.frozen else queue.read_offset) < queue.former_end
            ):
                continue  # who was master before may have revived it: that is not confirmed, so not shown, yet
            more = not (done and self._revive_due(queue, now_ms, steady_ms)) or more
            first = queue.in_flight.first_offset()
            progress = (queue.read_offset if first is None else first) - 1
            if progress >= 0:
                if not queue.noted:  # what is committed runs ahead of it from now on
                    self._commit(SNAPSHOT_GROUP, queue.number, queue.ordered, now_ms)
                    queue.noted = True
                self._commit(REVIVE_GROUP, queue.number, progress, now_ms)
        return more

    def out(self) -> int:
        """Return how many check-points are in memory."""
        return sum(len(queue.in_flight) for queue in self._queues)

    def behind(self) -> int:
        """Entries of the revive log that are not read yet."""
        return sum(max(0, self._end_of(queue) - queue.read_offset) for queue in self._queues)

    def read_on(self, now_ms: int, steady_ms: int) -> None:
        """Read what was written since the last step, as much as one reads: for who looks at what is out."""
        self._reads = _READ_BUDGET
        try:
            for queue in self._queues:
                self._follow(queue, now_ms, steady_ms)
        except Exception as error:
            if not is_transient(error):  # else the next step meets it again, and says so
                raise

    def in_flight(self) -> list[CheckPoint]:
        """The check-points in memory."""
        return [point for queue in self._queues for point in queue.in_flight.points()]

    def _commit(self, group: str, number: int, offset: int, now_ms: int) -> None:
        if self._offsets.query(group, self._log.topic, number) != offset:
            self._offsets.commit(group, self._log.topic, number, offset, now_ms)

    def _end_of(self, queue: _Queue) -> int:
        return self._store.max_offset(self._log.topic, queue.number)

    # Reading

    def _follow(self, queue: _Queue, now_ms: int, steady_ms: int) -> bool:
        """Read on; True when nothing unread could still acknowledge what is in the table."""
        if queue.frozen and len(queue.in_flight) <= self._limit // 2:
            queue.frozen = False
        while True:
            offset = queue.scan_offset if queue.frozen else queue.read_offset
            if offset >= self._end_of(queue):
                return True
            if self._reads <= 0:
                return False
            records, following = self._read(queue.number, offset)
            if following == offset:
                return True  # the rest is not on the disk yet (SYNC_FLUSH)
            for record in records:
                self._take(queue, record, now_ms, steady_ms)
            if queue.frozen:
                queue.scan_offset = max(queue.scan_offset, following)
            else:
                queue.read_offset = following
            self._reads -= max(1, len(records))

    def _take(self, queue: _Queue, record: StoredRecord, now_ms: int, steady_ms: int) -> None:
        try:
            self._note(queue, record, now_ms, steady_ms)
        except Exception as error:  # noqa: BLE001 - `SetAside` judges
            again = partial(self._note, queue, record, now_ms, steady_ms)
            self._writer.aside.again(TASK, record, error, again, now_ms)
        if not queue.frozen:
            queue.read_offset = record.queue_offset + 1
            if len(queue.in_flight) >= self._limit:
                queue.frozen = True
                queue.scan_offset = queue.read_offset
                log.warning(
                    "revive queue %d: %d check-points in memory, the others wait in the log",
                    queue.number,
                    len(queue.in_flight),
                )

    def _note(self, queue: _Queue, record: StoredRecord, now_ms: int, steady_ms: int) -> None:
        entry = _entry(record)
        if isinstance(entry, Ack):
            queue.in_flight.acknowledge(entry)
        elif isinstance(entry, CheckPoint) and not queue.frozen:
            place = record.physical_offset
            popped_ms = self._times.moment(entry.pop_time, place, steady_ms)
            if self._cut is not None and self._cut.physical_offset == place:
                self._replace_older(queue, entry, now_ms)
            queue.in_flight.add(entry, record.queue_offset, place, popped_ms)
        elif (
            entry is None
            and property_value(record.properties, properties.TAGS) in TAGS
            and not queue.frozen
        ):
            words = "it is no sound check-point or acknowledgement"
            self._writer.aside.put(TASK, record, words, now_ms)

    def _replace_older(self, queue: _Queue, point: CheckPoint, now_ms: int) -> None:
        """Write the acknowledgements that a crash may have kept from following the log's last record: what it holds
        is held by no older check-point."""
        held = {point.offset_at(index) for index in range(point.num)}
        for older in queue.in_flight.points():
            both = [offset for offset in older.unacknowledged() if offset in held]
            place = (older.topic, older.group, older.queue_id)
            if both and place == (point.topic, point.group, point.queue_id):
                self._acknowledge(older, both, queue, now_ms)

    def _acknowledge(
        self, point: CheckPoint, offsets: list[int], queue: _Queue, now_ms: int
    ) -> None:
        """Put on record that a check-point holds these no more."""
        ack = Ack(
            start_offset=point.start_offset,
            group=point.group,
            topic=point.topic,
            queue_id=point.queue_id,
            pop_time=point.pop_time,
            broker_name=point.broker_name,
            offsets=offsets,
        )
        self._log.append(ack, queue.number, deliver_ms=now_ms, now_ms=now_ms)

    def _read(
        self, number: int, offset: int, count: int = _READ_COUNT
    ) -> tuple[list[StoredRecord], int]:
        """Entries from an offset on, and where to go on; the same offset when there is nothing (yet).

        An unreadable record is skipped; the rest of the batch is still read.
        """
        found = self._store.read_queue(
            ReadRequest(self._log.topic, number, offset, count, _READ_BYTES)
        )
        if not found.count:
            return [], max(offset, found.next_begin_offset)
        records = sound_records(self._store, self._log.topic, number, offset, found)
        return records, found.next_begin_offset

    # Reviving

    def _revive_due(self, queue: _Queue, now_ms: int, steady_ms: int) -> bool:
        """True when nothing else is due."""
        while True:
            point = queue.in_flight.due(steady_ms - GRACE_MS)
            if point is None:
                return True
            if self._revivals <= 0:
                return False
            self._revivals -= max(1, self._revive_or_set_aside(queue, point, now_ms))
            queue.in_flight.remove(point)

    def _revive_or_set_aside(self, queue: _Queue, point: CheckPoint, now_ms: int) -> int:
        try:
            return self._revive(queue, point, now_ms)
        except Exception as error:
            if is_transient(error):
                raise
            words = f"{point.topic}/{point.queue_id}@{point.start_offset}: {error!r}"
            place = (self._log.topic, queue.number, point.revive_offset)
            self._writer.aside.put_place(
                TASK, *place, queue.in_flight.place_of(point), words, now_ms
            )
            return 0

    def _revive(self, queue: _Queue, point: CheckPoint, now_ms: int) -> int:
        """Put the unacknowledged messages of a check-point to the retry topic; how many (reviveMsgFromCk)."""
        topic, group = point.topic, point.group
        assert topic is not None
        assert group is not None
        if self._topics.find(names.origin_of_retry_topic(topic, group)) is None:
            log.warning("check-point dropped: no topic %s", topic)
            return 0
        try:
            known = self._groups.find(group, now_ms) is not None
        except Refused:
            known = False
        if not known:
            log.warning("check-point dropped: no group %s", group)
            return 0
        revived: list[int] = []
        place = queue.in_flight.place_of(point)
        for offset in self._left(point, place):
            record = self._popped(point, offset, place)
            if record is None:
                log.warning("message %s/%d/%d is gone", topic, point.queue_id, offset)
            else:
                try:
                    self._put_retry(point, record, now_ms)
                except Exception as error:  # noqa: BLE001 - `SetAside` judges
                    again = partial(self._put_retry, point, record, now_ms)
                    self._writer.aside.again(TASK, record, error, again, now_ms)
            point.bit_map |= 1 << point.index_of(offset)  # a refused one goes on from here
            revived.append(offset)
        everything = [point.offset_at(index) for index in range(point.num)]
        self._acknowledge(point, everything, queue, now_ms)
        self.revived += len(revived)
        return len(revived)

    def _left(self, point: CheckPoint, place: int) -> list[int]:
        """Queue offsets of the messages to revive: not those whose copies are the end of the log, as a crash has left it,
        without the acknowledgement that follows them."""
        offsets = point.unacknowledged()
        last = self._cut
        if last and last.topic.startswith(names.RETRY_PREFIX) and place < last.physical_offset:
            for index, offset in enumerate(offsets):
                record = self._popped(point, offset, place)
                if record is not None and self._is_copy(last, point, record):
                    return offsets[index + 1 :]
        return offsets

    def _is_copy(self, last: StoredRecord, point: CheckPoint, record: StoredRecord) -> bool:
        topic, named, draft = self._copy_of(point, record)
        return (
            (last.topic, last.reconsume_times) == (topic, draft.reconsume_times)
            and (last.born_timestamp_ms, last.body) == (record.born_timestamp_ms, record.body)
            and decode_properties(last.properties) == named
        )

    def _popped(self, point: CheckPoint, offset: int, place: int) -> StoredRecord | None:
        """A message of a check-point. A topic of the same name may be another one by now: what was popped stands before
        the check-point in the log."""
        record = self._message(str(point.topic), point.queue_id, offset)
        return record if record is not None and record.physical_offset <= place else None

    def _message(self, topic: str, queue_id: int, offset: int) -> StoredRecord | None:
        found = self._store.read_queue(ReadRequest(topic, queue_id, offset, 1, _READ_BYTES))
        if not found.count:
            return None
        record = sound_record(b"".join(found.runs))
        return record if record is not None and record.queue_offset == offset else None

    def _copy_of(
        self, point: CheckPoint, record: StoredRecord
    ) -> tuple[str, dict[str, str], Draft]:
        """The topic, properties and the rest of a message's copy (reviveRetry)."""
        topic, group = str(point.topic), str(point.group)
        if not topic.startswith(names.RETRY_PREFIX):
            v2 = self._live.current.enable_retry_topic_v2
            topic = names.pop_retry_topic(topic, group, v2=v2)
        named = decode_properties(record.properties)
        named.pop(properties.DELAY, None)
        wait_no_more(named)
        if record.reconsume_times == 0 or properties.FIRST_POP_TIME not in named:
            named[properties.FIRST_POP_TIME] = str(point.pop_time)
        named[properties.ORIGIN_GROUP] = group
        draft = draft_of(record)
        draft.topic, draft.queue_id = topic, 0
        draft.prepared_offset = 0
        draft.born_host = self._host
        draft.reconsume_times += 0 if point.suspend else 1
        draft.own = True
        return topic, named, draft

    def _put_retry(self, point: CheckPoint, record: StoredRecord, now_ms: int) -> None:
        """One message to the group's pop retry topic."""
        topic, named, draft = self._copy_of(point, record)
        group = str(point.group)
        found = self._topics.ensure(
            topic, queues=_RETRY_QUEUES, perm=_PERM, needed=True, now_ms=now_ms
        )
        if self._offsets.query(group, topic, 0) < 0:
            self._offsets.commit(group, topic, 0, self._store.min_offset(topic, 0), now_ms)
        self._writer.put(draft, named, now_ms)
        found.put_count += 1


def _entry(record: StoredRecord) -> Entry | None:
    return decode(decode_properties(record.properties).get(properties.TAGS), record.body)
