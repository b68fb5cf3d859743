"""All consume queues: topic -> queue id -> ConsumeQueue."""

import os

from mypy_extensions import i64

from roquette.base.files import Files
from roquette.errors import StoreError
from roquette.message.record import record_size
from roquette.store.format.config import check_topic
from roquette.store.format.layout import StoreLayout, offset_name, parse_offset_name
from roquette.store.format.patch import Patch
from roquette.store.format.unit import (
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    TopicKeys,
    encode_unit,
    passing_unit,
)
from roquette.store.queues.consume_queue import ConsumeQueue, OpenFiles, count_valid

_SCAN_UNITS = 4096


class TopicQueues:
    """Values that the store keeps ready per topic: its bytes, a record's size, its key hashes, its queues."""

    __slots__ = ("fixed_size", "keys", "name", "queues", "topic")

    def __init__(self, topic: str) -> None:
        self.topic: str = topic
        self.name: bytes = topic.encode()
        self.fixed_size: int = record_size(0, len(self.name), 0, 0, 0)
        self.keys: TopicKeys = TopicKeys(topic)
        self.queues: dict[int, ConsumeQueue] = {}


class ConsumeQueues:
    """The queues of a store. `dirty` lists those written since their last sync."""

    def __init__(self, files: Files, layout: StoreLayout, units_per_file: int) -> None:
        self._files = files
        self.open_files = OpenFiles(files)
        self._layout = layout
        self.units_per_file = units_per_file
        self.topics: dict[str, TopicQueues] = {}
        self.dirty: list[ConsumeQueue] = []
        self.new_directories: dict[str, None] = {}

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue, if it has ever had a message."""
        known = self.topics.get(topic)
        return known.queues.get(queue_id) if known is not None else None

    def topic(self, topic: str) -> TopicQueues:
        """The topic's entry, made when new."""
        known = self.topics.get(topic)
        if known is None:
            check_topic(topic)
            known = self.topics[topic] = TopicQueues(topic)
        return known

    def create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A new, empty queue."""
        directory = self._layout.queue(topic, queue_id)
        queue = ConsumeQueue(self.open_files, directory, topic, queue_id, self.units_per_file)
        self.topic(topic).queues[queue_id] = queue
        self.new_directories[self._layout.topic(topic)] = None
        self.new_directories[self._layout.consume_queues] = None
        return queue

    def all(self) -> list[ConsumeQueue]:
        """Every queue, by topic and queue id."""
        return [
            entry.queues[queue_id]
            for _, entry in sorted(self.topics.items())
            for queue_id in sorted(entry.queues)
        ]

    def count_units(self) -> int:
        """The queues' next offsets together."""
        total: i64 = 0
        for entry in self.topics.values():
            for queue in entry.queues.values():
                total += queue.next_offset
        return total

    def pass_over(self, holes: list[Patch], segment_size: int) -> int:
        """Put units that both brokers pass over in the places of lost messages; returns how many these are.

        So the queues go on behind all offsets that were ever given.
        """
        lost = 0
        for queue in self.all():
            for hole in holes:
                first = queue.first_behind(hole.base + hole.position)
                last = queue.first_behind(hole.base + hole.end)
                if first < last:
                    _pass_over(queue, first, last, segment_size)
                    self.mark_dirty(queue)
                    lost += last - first
        return lost

    def load(self, trusted: int | None) -> None:
        """Find the queues on disk and where each ends.

        Args:
            trusted: after a crash, the physical offset up to which units were synced: those behind
                are looked at one by one, and held for unsynced. None after a clean stop.

        Raises:
            StoreError: files are of another size than configured.
        """
        for topic in self._files.list_dir(self._layout.consume_queues):
            for name in self._files.list_dir(self._layout.topic(topic)):
                if name.isdecimal():
                    self._load_queue(topic, int(name), trusted)
        if trusted is None:
            self.new_directories = {}

    def _load_queue(self, topic: str, queue_id: int, trusted: int | None) -> None:
        directory = self._layout.queue(topic, queue_id)
        file_size = self.units_per_file * UNIT_SIZE
        starts = [
            start
            for name in self._files.list_dir(directory)
            if (start := parse_offset_name(name)) is not None
        ]
        for start in starts:
            self._check_size(os.path.join(directory, offset_name(start)), start, file_size)
        if not starts:
            return
        count = 1
        while count < len(starts) and starts[count] == starts[0] + count * file_size:
            count += 1
        queue = self.create(topic, queue_id)
        queue.attach(starts[0] // UNIT_SIZE, count)
        for start in starts[count:]:  # behind a hole: a crash lost the file between
            self._files.remove(queue.file_path(start // UNIT_SIZE))
            queue.directory_dirty = True
        last_base = queue.limit - self.units_per_file
        if trusted is not None:
            first = last_base
            while first > queue.first_base and not 0 <= queue.physical_at(first) < trusted:
                first -= self.units_per_file
            first = max(queue.first_base, first - self.units_per_file)
            queue.settle(_find_end_of_sound(queue, first))
            queue.flushed_offset = min(first, queue.next_offset)
            queue.directory_dirty = True
            self.mark_dirty(queue)
        else:
            queue.settle(_find_end_of_written(queue, last_base))

    def _check_size(self, path: str, start: int, file_size: int) -> None:
        """A shorter file is what a crash left, or one of smaller settings that has no successor."""
        file = self._files.open_file(path)
        found = file.size
        file.close()
        if found > file_size or start % file_size:
            raise StoreError(
                f"{path} has {found} bytes, mappedFileSizeConsumeQueue is {file_size}: "
                "set it back to the value this store was made with"
            )

    def mark_dirty(self, queue: ConsumeQueue) -> None:
        """Remember that a queue has something to sync."""
        if not queue.dirty:
            queue.dirty = True
            self.dirty.append(queue)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic and delete its queues' files; a name without an entry is no path to anything."""
        entry = self.topics.pop(topic, None)
        if entry is None:
            return
        for queue in entry.queues.values():
            queue.forget()
        self.dirty = [queue for queue in self.dirty if queue.topic != topic]
        self._files.remove_tree(self._layout.topic(topic))

    def go_on_from(
        self, topic: str, queue_id: int, offset: int, log_end: int, segment_size: int
    ) -> None:
        """Let a queue give no offset before that one, though the log has nothing, or nothing any more, of what was there;
        not one that has messages behind `log_end`."""
        queue = self.find(topic, queue_id) or self.create(topic, queue_id)
        if queue.next_offset < offset and queue.physical_at(queue.next_offset - 1) < log_end:
            if queue.file_count:
                queue.skip_to(offset, -1, segment_size)
            else:
                queue.start_at(offset)
            self.mark_dirty(queue)

    def drop_before(self, topic: str, log_end: int) -> bool:
        """Drop those queues of a topic that have nothing behind an offset of the log; whether there were any."""
        entry = self.topics.get(topic)
        queues = list(entry.queues.values()) if entry is not None else []
        old = [queue for queue in queues if queue.physical_at(queue.next_offset - 1) < log_end]
        if old and len(old) == len(queues):
            self.drop_topic(topic)
        else:
            for queue in old:
                self.reset(queue)
        return bool(old)

    def reset(self, queue: ConsumeQueue) -> ConsumeQueue:
        """Delete a queue's files, so that it can be rebuilt from the log."""
        queue.forget()
        self.dirty = [other for other in self.dirty if other is not queue]
        self._files.remove_tree(queue.directory)
        return self.create(queue.topic, queue.queue_id)

    def close(self) -> None:
        """Release all maps and files."""
        for queue in self.all():
            queue.close()


def _find_end_of_sound(queue: ConsumeQueue, first: int) -> int:
    """The first unit from `first` on that a crash has torn, or the end of the last file."""
    floor = 0
    if first > queue.first_base:
        before = queue.read_units(first - 1, 1)
        if count_valid(before, 0) == 1:
            floor = queue.end_physical_at(first - 1)
    offset = first
    while offset < queue.limit:
        units = queue.read_units(offset, _SCAN_UNITS)
        sound = count_valid(units, floor)
        offset += sound
        if sound * UNIT_SIZE < len(units):
            break
        floor = queue.end_physical_at(offset - 1)
    return offset


def _find_end_of_written(queue: ConsumeQueue, last_base: int) -> int:
    """After a clean stop: units, then zeros. The place where zeros begin, by halving."""
    low, high = last_base, queue.limit
    while low < high:
        middle = (low + high) // 2
        if count_valid(queue.read_units(middle, 1), 0):
            low = middle + 1
        else:
            high = middle
    return low


def _pass_over(queue: ConsumeQueue, first: int, last: int, segment_size: int) -> None:
    before, after = queue.read_units(first - 1, 1), queue.read_units(last, 1)
    if before:
        unit = passing_unit(before, queue.physical_at(last), segment_size)
    elif after and 0 <= queue.physical_at(last) < segment_size:
        unit = after  # Apache's broker would pass over the record with a filler in front, see `ConsumeQueue.skip_to`
    else:
        unit = encode_unit(0, FILLER_SIZE, 0)
    physical, size, code = UNIT.unpack(unit)
    for offset in range(first, last):
        queue.mend(offset, physical, size, code)
