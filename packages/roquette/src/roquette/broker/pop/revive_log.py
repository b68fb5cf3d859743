"""Appends check-points and acknowledgements to the revive log, in the form of Apache's broker.

Apache sends them through its timer and reads them when they are due; here they go to their revive queue at once, with
the properties they would have there after the timer, so that either broker can go on with the other's store.
"""

from roquette.base.javatypes import java_hash
from roquette.broker.floor.writer import MessageWriter
from roquette.broker.pop.checkpoint import ACK_INTERVAL_MS, CheckPoint, Entry, OrderEntry, encode
from roquette.errors import StoreError
from roquette.message import names, properties
from roquette.message.draft import Draft
from roquette.message.properties import encode_properties
from roquette.store.message_store import MessageStore


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
        deliver = str(deliver_ms)
        named = {
            properties.TAGS: entry.tag,
            properties.UNIQ_KEY: entry.unique_key,
            properties.TIMER_DELIVER_MS: deliver,
            properties.TIMER_OUT_MS: deliver,
        }
        draft = Draft(
            self.topic,
            revive_qid,
            encode_properties(named).encode(),
            encode(entry),
            now_ms,
            self._host,
        )
        try:
            done = self._store.append(draft, now_ms)
        except StoreError as error:
            raise self._writer.refusal(error) from None
        return done.end_offset

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
