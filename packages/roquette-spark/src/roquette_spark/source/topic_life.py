"""Detects that a topic was deleted and created again: by store time and log position of the message before an offset.

An offset alone is not enough: a new topic of the same name gives the same offsets again. Messages that have expired, or
that only a replica has, are not compared: what is unknown is no error.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from roquette.errors import CorruptRecord
from roquette.message.message import MessageQueue
from roquette.message.record import decode_record
from roquette_spark.source.offsets import Lives, Offsets
from roquette_spark.source.positions import bounds_of, name_of, report_data_loss
from roquette_spark.source.queues import BlockingQueueReader

_ANEW = "{name} was made anew since its offset {offset} was read (the message before it is another one); {what}"
_OLDER = (
    "{name} ends at {end}, before offset {offset} that was read, and its messages are older than those: was its "
    "store lost in part, or restored? {what}"
)


@dataclass(frozen=True, slots=True)
class Restart:
    """Offset at which a queue of another life is read on, and the reason, in words."""

    offset: int
    why: str


def lives_before(reader: BlockingQueueReader, positions: Mapping[MessageQueue, int]) -> Lives:
    """`MS.POSITION` of the message before each offset; a queue is missing if no broker knows it. One round trip."""
    wanted = {queue: offset - 1 for queue, offset in positions.items() if offset > 0}
    found: Lives = {}
    for queue, data in (reader.messages_at(wanted) if wanted else {}).items():
        with contextlib.suppress(CorruptRecord):  # who reads it will say so
            record = decode_record(data, 0, False)
            if record.queue_offset == wanted[queue]:
                found[queue] = f"{record.store_timestamp_ms}.{record.physical_offset}"
    return found


def find_restarts(
    reader: BlockingQueueReader, positions: Offsets, seen: Lives, ends: Offsets
) -> dict[MessageQueue, Restart]:
    """Queues whose message before the position is not the one that was seen there.

    Args:
        positions: of the queues to look at; each has an end and was seen.
    """
    reached = {queue: min(offset, ends[queue]) for queue, offset in positions.items()}
    now = lives_before(reader, reached)
    found: dict[MessageQueue, Restart] = {}
    for queue, life in now.items():
        position, end, name = positions[queue], ends[queue], name_of(queue)
        shorter = end < position
        if life == seen[queue]:
            continue
        if shorter and _stored_ms(life) <= _stored_ms(seen[queue]):
            what = "failOnDataLoss=false goes on with what comes there"
            why = _OLDER.format(name=name, end=end, offset=position, what=what)
            found[queue] = Restart(end, why)
            continue
        low = bounds_of(reader, [queue], fail_on_data_loss=False).get(queue, 0)
        what = "failOnDataLoss=false reads it from its beginning"
        found[queue] = Restart(low, _ANEW.format(name=name, offset=position, what=what))
    return found


def check_lives(reader: BlockingQueueReader, positions: Offsets, seen: Lives, why: str) -> None:
    """The messages before these positions must be those that were seen.

    Args:
        why: what to do, for the error.

    Raises:
        DataLoss: a topic was created again.
    """
    known = {queue: positions[queue] for queue in seen if queue in positions}
    for queue, life in sorted(lives_before(reader, known).items()):
        if life != seen[queue]:
            report_data_loss(_ANEW.format(name=name_of(queue), offset=known[queue], what=why), True)


def suspects(positions: Offsets, seen: Lives, ends: Offsets, *, all_queues: bool) -> Offsets:
    """Queues to compare: all of them at a start, later those that have moved."""
    return {
        queue: positions[queue]
        for queue in seen
        if queue in positions and queue in ends and (all_queues or ends[queue] != positions[queue])
    }


def _stored_ms(life: str) -> int:
    return int(life.partition(".")[0])
