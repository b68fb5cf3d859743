"""What must hold of a store after any crash: the promises, looked at one by one."""

import random
from bisect import bisect_left

from tests.records import append_message, read_queue
from tests.store.crash_workload import (
    BORN,
    HOST,
    JSON_FILES,
    ROOT,
    TOPICS,
    Life,
    Message,
    Owed,
)

from roquette.base.files import Files
from roquette.broker.floor.config_files import ConfigFiles
from roquette.message.record import decode_record
from roquette.store.format.config import StoreConfig
from roquette.store.format.results import GetStatus
from roquette.store.message_store import MessageStore
from roquette.store.recovery import RecoveryReport
from roquette.wire.bodies import ConsumerOffsetSerializeWrapper

LATER_MS = 1_800_000_000_000
SAMPLE = 12


class Check:
    """One opening of one state."""

    def __init__(
        self, files: Files, config: StoreConfig, life: Life, owed: Owed, rng: random.Random
    ) -> None:
        self.files = files
        self.config = config
        self.life = life
        self.owed = owed
        self.random = rng
        self.store = MessageStore(config, files, HOST)
        self.report: RecoveryReport = self.store.open(LATER_MS)
        self.end = self.store.max_physical_offset
        self.count = life.count_until(self.end)

    def run(self, *, thorough: bool) -> None:
        """All of it; `thorough` also goes on with the store, closes it and opens it again."""
        self.log()
        self.queues()
        self.samples()
        self.json()
        if thorough:
            self.goes_on()

    def log(self) -> None:
        store, image = self.store, self.life.image
        assert self.end >= self.owed.acked, f"acknowledged up to {self.owed.acked}, {self.end} left"
        assert store.min_physical_offset <= self.owed.floor or not self.count, (
            "the log's head is gone"
        )
        assert self.end <= len(image) or self.end % self.config.segment_size == 0
        assert self.report.max_physical_offset == store.synced_offset == self.end
        position = store.min_physical_offset
        while position < self.end:
            stop = min(
                self.end, position - position % self.config.segment_size + self.config.segment_size
            )
            found = store.read_log(position, stop)
            wanted = image[position:stop].ljust(stop - position, b"\0")
            if stop > len(image):  # the last thing written is a blank
                head = max(position, len(image))
                found, wanted = found[: head - position], wanted[: head - position]
            assert found == wanted, f"the log differs from what was written in {position}..{stop}"
            position = stop

    def queues(self) -> None:
        store, life = self.store, self.life
        low = store.min_physical_offset
        for (topic, queue_id), messages in life.queues.items():
            if topic in life.gone:
                self.gone_queue(topic, queue_id)
                continue
            held = bisect_left(messages, self.end + 1, key=lambda m: m.end)
            last = store.max_offset(topic, queue_id)
            assert last == held, f"{topic}/{queue_id} ends at {last}, the log has {held}"
            first = bisect_left(messages, low, key=lambda m: m.physical)
            if first >= held:
                continue
            assert store.min_offset(topic, queue_id) == first
            units = store.queue_units(topic, queue_id, first, held - first)
            assert units == [(m.physical, m.size, m.tags_code) for m in messages[first:held]], (
                f"{topic}/{queue_id}: other units than written"
            )
        for topic in store.topics():
            for queue_id in store.queues_of(topic):
                known = (topic, queue_id) in life.queues
                assert known or store.max_offset(topic, queue_id) == 0, (topic, queue_id)

    def gone_queue(self, topic: str, queue_id: int) -> None:
        """Of a topic that was deleted once: what is there is right; how much of it is not promised.

        Where the queue begins anew, or messages of it are lost to the log, the unit beside them stands in their places
        (`Reput._start`, `ConsumeQueue.skip_to`).
        """
        store = self.store
        by_place = {m.physical: m for m in self.life.queues[(topic, queue_id)]}
        first, last = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        units = store.queue_units(topic, queue_id, first, last - first) or []
        for number, (physical, size, _) in enumerate(units):
            if size == 0x7FFFFFFF or physical < store.min_physical_offset:
                continue
            message = by_place[physical]
            place = message.queue_offset - first
            same = units[min(place, number) : max(place, number) + 1]
            assert message.size == size and place in range(len(units))
            assert {unit[0] for unit in same} == {physical}

    def samples(self) -> None:
        """Some messages as a reader gets them, and by their keys."""
        store, messages = self.store, self.life.messages[: self.count]
        first = bisect_left(messages, store.min_physical_offset, key=lambda m: m.physical)
        kept = messages[first:]
        picked = kept[-SAMPLE:] + self.random.sample(kept, min(SAMPLE, len(kept)))
        for message in picked:
            if message.topic in self.life.gone:
                continue
            if message.indexed:
                found = store.query(message.topic, message.key, 64, 0, 1 << 62)
                assert message.data in found, f"{message.key} is not found by its key"
            if message.queue_offset >= 0:
                self.read(message)

    def read(self, message: Message) -> None:
        found = read_queue(
            self.store, message.topic, message.queue_id, message.queue_offset, 1, 1, None
        )
        assert found.status is GetStatus.FOUND, (message.key, found.status)
        assert found.runs == [message.data]
        record = decode_record(found.runs[0], 0, True)
        assert (record.body, record.topic) == (message.body, message.topic)

    def json(self) -> None:
        files = ConfigFiles(self.files, f"{ROOT}/config")
        for name in JSON_FILES:
            saved, saving = self.owed.saved.get(name, 0), self.owed.saving.get(name, 0)
            found = files.load(name, ConsumerOffsetSerializeWrapper)
            if found is None:
                assert saved == 0, f"{name} is gone"
                continue
            versions = {v for queues in found.offset_table.values() for v in queues.values()}
            assert len(versions) == 1, f"{name} is a mix of {versions}"
            version = versions.pop()
            assert saved <= version <= saving, f"{name} is of {version}, {saved} was saved"

    def goes_on(self) -> None:
        """Appends get offsets never used, and a clean stop keeps everything."""
        store = self.store
        before = {
            (t, q): store.max_offset(t, q) for t in store.topics() for q in store.queues_of(t)
        }
        for queue_id in range(3):
            topic = self.random.choice(TOPICS)
            known = before.get((topic, queue_id), 0)
            done = append_message(
                store, topic, queue_id, 0, 0, 0, BORN, 0, "", 7, b"after", LATER_MS + 1
            )
            assert done.queue_offset == known
            assert done.physical_offset >= self.end
            before[(topic, queue_id)] = known + 1
        end = store.max_physical_offset
        store.close(LATER_MS + 2)
        store = MessageStore(self.config, self.files, HOST)
        report = store.open(LATER_MS + 3)
        assert not report.abnormal
        assert report.max_physical_offset == end
        after = {(t, q): store.max_offset(t, q) for t in store.topics() for q in store.queues_of(t)}
        wanted = {key: offset for key, offset in before.items() if offset}
        assert {key: offset for key, offset in after.items() if offset} == wanted
