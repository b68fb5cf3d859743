"""Bytes of a member's log that rot, in `group_chaos`, and what must become of them.

Others have the messages whole: the member mends what it can prove to be rotten. Until then nobody has to get those
messages from it, or may get them with another body; what stands beside them must come as ever. Damage that nothing proves (a
queue, a time, a property alone) is not drawn: it stays, see decision 37.
"""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.group_chaos_books import log_of, name_of, records_of

from roquette.message.record_layout import StoredRecord
from roquette.message.record_view import SOUND, RecordView
from roquette.store.format.layout import offset_name

if TYPE_CHECKING:
    from tests.simulation.group_chaos import GroupChaos

FRAME = (
    0,
    4,
    28,
    84,
)  # size, magic number, place and the body's length, of a record with two IPv4 hosts


@dataclass
class Rot:
    """Some messages of one member.

    Attributes:
        place: where the first of them begins. sound: their bytes as they were. spoilt: as they are.
    """

    place: int
    sound: bytes
    spoilt: bytes
    records: list[StoredRecord]
    segment: int

    def befall(self, world: "GroupChaos", ip: str, when: str) -> bool:
        """It is so from now on."""
        base = self.place - self.place % self.segment
        files = world.files(ip)
        (path,) = (p for p in files.snapshot()[0] if p.endswith(f"/commitlog/{offset_name(base)}"))
        files.open_file(path).pwrite(self.spoilt, self.place - base)
        world.rotten[ip] = self
        world.spoilt |= {name_of(record.body) for record in self.records}
        world.spoilt_places |= {(r.topic, r.queue_id, r.queue_offset) for r in self.records}
        world.drawn[f"damage: {when}"] += 1
        return True

    def is_over(self, store: Any) -> bool:
        """Has the member those bytes again, or are they too old for it?"""
        end = self.place + len(self.sound)
        if store.min_physical_offset > self.place:
            return True
        return store.wrote >= end and log_of(store, self.place, end) == self.sound

    def mended(self, data: bytes, start: int) -> bytes:
        """Bytes of its log from `start` on, as they would be."""
        first, last = max(self.place, start), min(self.place + len(self.sound), start + len(data))
        if first >= last:
            return data
        return (
            data[: first - start]
            + self.sound[first - self.place : last - self.place]
            + data[last - start :]
        )


def rot(world: "GroupChaos", ip: str, rng: Random) -> Rot | None:
    """Draw some; None: there is nothing to rot, or other damage is under way."""
    broker = world.alive[ip].broker
    if world.rotten or world.lossy or broker is None or not hasattr(broker, "store"):
        return None
    store = broker.store
    begin = max(store.min_physical_offset, world.looked_from)
    end = min(store.confirmed, store.wrote, store.synced_offset, len(world.confirmed))
    log = records_of(store, begin, end, lambda topic: True)
    if not log:
        return None
    hit = rng.choice(log)
    at, size = _extent(hit, rng)
    segment = store.config.segment_size
    last = min(at + size, end, at - at % segment + segment)
    records = [r for r in log if r.physical_offset < last and r.physical_offset + r.size > at]
    place, until = records[0].physical_offset, records[-1].physical_offset + records[-1].size
    sound = log_of(store, place, until)
    spoilt = sound[: at - place] + rng.randbytes(last - at) + sound[last - place :]
    found = Rot(place, sound, spoilt, records, segment)
    return found if all(_is_proven(found, record) for record in records) else None


def _extent(record: StoredRecord, rng: Random) -> tuple[int, int]:
    """Where bytes are others, and how many."""
    place = record.physical_offset
    how = rng.random()
    if how < 0.3 and not record.sys_flag & 0x30:
        return place + rng.choice(FRAME) + rng.randrange(4), 1
    if how < 0.6 and record.body:
        return place + 88 + rng.randrange(len(record.body)), 1
    return place + rng.randrange(record.size), rng.choice((8, 600))


def _is_proven(rot: Rot, record: StoredRecord) -> bool:
    """Does that record show that it has rotted?"""
    view, at = RecordView(), record.physical_offset - rot.place
    data = rot.spoilt[at:]
    return view.examine(data, 0, record.physical_offset, True) != SOUND or view.size != record.size
