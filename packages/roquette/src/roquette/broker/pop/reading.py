"""Where a group pops next, and the records of a pop as they leave. Pure but for the store."""

from typing import Final

from librt.strings import read_i32_be

from roquette.base.entropy import Entropy
from roquette.base.javatypes import whole_number
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.set_aside import sound_record
from roquette.broker.floor.tables.groups import MESSAGE_TYPE, PRIORITY_FACTOR
from roquette.broker.floor.tables.topics import Topic
from roquette.broker.pop.order import OrderTable
from roquette.broker.pop.receipt import build_extra_info
from roquette.message import properties
from roquette.message.names import RETRY_PREFIX
from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import encode_record
from roquette.message.record_layout import MAX_PROPERTIES, QUEUE_OFFSET_AT, draft_of, place_of
from roquette.store.format.results import Found
from roquette.store.queue_read import ReadRequest
from roquette.wire.bodies import SubscriptionGroupConfig

INIT_MIN = 0


MOST_QUEUES: Final = 16_384  # of a topic, looked at by one request


def drawn_queues(count: int, draw: int, entropy: Entropy) -> list[int]:
    """Queue ids in the order in which a pop looks at them: all from one drawn by lot on; of very many, that many."""
    if count <= MOST_QUEUES:
        return [(draw + step) % count for step in range(count)]
    first = entropy.below(count)
    return [(first + step) % count for step in range(MOST_QUEUES)]


def highest_first(topic: Topic, group: SubscriptionGroupConfig | None, draw: int) -> list[int]:
    """Queue ids of a topic for priorities from the highest down, retries after them; none: it is another topic, or this pop,
    by the lot drawn of 100, is not among those that the group's `priority.factor` lets look at priorities."""
    if topic.attributes.get(MESSAGE_TYPE) != "PRIORITY" or topic.read_queues > MOST_QUEUES:
        return []
    said = ((group and group.attributes) or {}).get(PRIORITY_FACTOR)
    factor = whole_number(said, 100)
    return [] if 0 <= factor <= draw else list(range(topic.read_queues - 1, -1, -1))


class PopOffsets:
    """The next offset of each topic, group and queue."""

    def __init__(self, core: BrokerCore, orders: OrderTable) -> None:
        self._live = core.live
        self._store = core.store
        self._offsets = core.tables.offsets
        self._orders = orders

    def start(self, topic: str, group: str, queue_id: int, init_mode: int, now_ms: int) -> int:
        """Where a pop begins; a new group's place is committed at once (getPopOffset, getInitOffset).

        A pending reset is over with this, and with it what an orderly pop holds (resetPopOffset).

        Raises:
            Refused: there is no room for the place of a new group.
        """
        if self._offsets.pending_resets:
            reset = self._offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                self._orders.clear(topic, group, queue_id)
                return reset
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return offset
        low = self._store.min_offset(topic, queue_id)
        if init_mode == INIT_MIN or topic.startswith(RETRY_PREFIX):
            offset = low
        elif low <= 0 and self._in_memory(topic, queue_id):
            offset = 0
        else:  # the last message, so that a group that starts now sees that it works
            offset = max(0, self._store.max_offset(topic, queue_id) - 1)
        self._offsets.make_room(group, topic, [queue_id])
        self._offsets.commit(group, topic, queue_id, offset, now_ms)
        return offset

    def correct(self, topic: str, group: str, queue_id: int, offset: int, now_ms: int) -> None:
        """The queue does not reach the committed offset: go on from `offset`, backward too."""
        self._offsets.reset(group, topic, queue_id, offset, now_ms)
        self._offsets.take_reset(group, topic, queue_id)

    def peek(self, topic: str, group: str, queue_id: int) -> int:
        """Where it would begin; nothing is committed (PeekMessageProcessor.getPopOffset)."""
        offset = self._offsets.query(group, topic, queue_id)
        return offset if offset >= 0 else self._store.min_offset(topic, queue_id)

    def _in_memory(self, topic: str, queue_id: int) -> bool:
        if not self._live.current.init_pop_offset_by_check_msg_in_mem:
            return False
        found = self._store.begin_read(ReadRequest(topic, queue_id, 0, 1, 1))
        return isinstance(found, Found) and found.count > 0


def queue_offsets(runs: list[bytes]) -> list[int]:
    """Queue offsets of the records in `runs`."""
    found: list[int] = []
    for run in runs:
        position = 0
        while position < len(run):
            at = position + QUEUE_OFFSET_AT
            found.append(int.from_bytes(run[at : at + 8], "big", signed=True))
            position += int.from_bytes(run[position : position + 4], "big")
    return found


def as_of_topic(
    runs: list[bytes],
    topic: str,
    *,
    start: int,
    pop_time: int,
    invisible_time: int,
    revive_qid: int,
    broker_name: str,
) -> list[bytes]:
    """Records of a retry topic as records of the topic the client asked for, each with its receipt.

    A record whose properties have no room for the receipt leaves as it is; clients can make the receipt themselves.
    """
    name = topic.encode()
    found: list[bytes] = []
    for run in runs:
        position = 0
        while position < len(run):
            record = sound_record(run, position)
            if record is None:
                position += max(1, read_i32_be(run, position))
                continue
            named = decode_properties(record.properties)
            receipt = build_extra_info(
                start,
                pop_time,
                invisible_time,
                revive_qid,
                record.topic,
                broker_name,
                record.queue_id,
                record.queue_offset,
            )
            named.setdefault(properties.POP_CK, receipt)
            text = encode_properties(named).encode()
            if len(text) > MAX_PROPERTIES:
                found.append(run[position : position + record.size])
            else:
                draft = draft_of(record)
                draft.properties = text
                place = place_of(record)
                place.topic = name
                found.append(encode_record(draft, place))
            position += record.size
    return found
