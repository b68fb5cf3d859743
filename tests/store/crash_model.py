"""A store under random load, cut off at random moments, compared with what it promised."""

from tests.records import append_message, read_queue

from roquette.base.entropy import Entropy
from roquette.message.record import decode_record
from roquette.store.format.config import StoreConfig
from roquette.store.format.results import GetStatus
from roquette.store.message_store import MessageStore
from roquette.store.recovery import RecoveryReport
from roquette.store.upkeep.retention import DiskUsage
from roquette_testing.faulty_files import FaultyFiles

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BORN = bytes([127, 0, 0, 1, 0, 0, 0xC3, 0x50])
START_MS = 1_700_000_000_000


def small_config(**changes: object) -> StoreConfig:
    """Files so small that a few messages roll them all."""
    values: dict[str, object] = {
        "root_dir": "/s",
        "segment_size": 4096,
        "queue_file_size": 20 * 16,
        "max_hash_slots": 17,
        "max_index_entries": 60,
        "delete_when": "",
    }
    return StoreConfig(**(values | changes))  # type: ignore[arg-type]


class Sent:
    """A message the model remembers."""

    def __init__(self, topic: str, queue_id: int, key: str, body: bytes) -> None:
        self.properties = f"UNIQ_KEY\x01{key}\x02TAGS\x01T\x02KEYS\x01a b\x02"
        self.topic = topic
        self.queue_id = queue_id
        self.key = key
        self.body = body
        self.queue_offset = -1
        self.physical_offset = -1
        self.end_offset = -1


class CrashModel:
    """Drives one store through several lives."""

    def __init__(self, seed: int) -> None:
        self.random = Entropy(seed).random
        self.files = FaultyFiles(seed)
        self.now_ms = START_MS
        self.sent: list[Sent] = []
        self.acked: list[Sent] = []
        self.counter = 0
        self.floor = 0  # what retention has forgotten may or may not come back
        self.store = MessageStore(small_config(), self.files, HOST)
        self.store.open(self.now_ms)

    def append(self) -> None:
        self.now_ms += self.random.randrange(0, 2000)
        self.counter += 1
        queue_id = self.random.randrange(3)
        topic = self.random.choice(("A", "B"))
        body = self.random.randbytes(self.random.choice((0, 5, 50, 300)))
        sent = Sent(topic, queue_id, f"key{self.counter}", body)
        done = append_message(
            self.store,
            topic,
            queue_id,
            0,
            0,
            self.now_ms,
            BORN,
            0,
            sent.properties,
            84,
            body,
            self.now_ms,
            "a b",
            sent.key,
        )
        sent.queue_offset, sent.physical_offset = done.queue_offset, done.physical_offset
        sent.end_offset = done.end_offset
        self.sent.append(sent)

    def sync(self) -> None:
        plan = self.store.plan_sync()
        if plan is not None:
            if self.random.random() < 0.3:
                self.append()  # comes while the sync runs: not covered by it
            plan.run()
            end = self.store.synced(plan)
            self.acked = [sent for sent in self.sent if sent.end_offset <= end]

    def flush_queues(self) -> None:
        now = None if self.random.random() < 0.5 else self.now_ms
        plan = self.store.plan_queue_flush(now)
        if plan is not None:
            plan.run()
            self.store.queues_flushed(plan)

    def allocate(self) -> None:
        plan = self.store.plan_allocation()
        if plan is not None:
            if self.random.random() < 0.2:
                self.append()
            plan.run()
            self.store.allocated(plan)

    def delete_head(self) -> None:
        plan = self.store.plan_retention(self.now_ms, DiskUsage(100, 11))  # 89 % used: forced
        if plan is not None and self.random.random() < 0.8:
            plan.run()
        self.floor = self.store.min_physical_offset

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.70:
            self.append()
        elif kind < 0.80:
            self.store.write_pending()
        elif kind < 0.90:
            self.sync()
        elif kind < 0.95:
            self.flush_queues()
        elif kind < 0.99:
            self.allocate()
        else:
            self.delete_head()

    def end_life(self) -> None:
        """Stop, die or lose power; then open again and check every promise."""
        kind = self.random.random()
        written = self.store.wrote
        if kind < 0.15:
            self.store.close(self.now_ms)
            self.acked = list(self.sent)
        elif kind < 0.35:
            self.files.kill()  # written data is in the page cache and stays
            self.acked = [sent for sent in self.sent if sent.end_offset <= written]
        else:
            self.files = self.files.crash(self.random)
        self.store = MessageStore(small_config(), self.files, HOST)
        report = self.store.open(self.now_ms)
        self.check(report)
        end = self.store.max_physical_offset
        self.sent = [s for s in self.sent if s.end_offset <= end and self.is_whole(s)]
        self.acked = list(self.sent)  # recovery made durable what it found

    def is_whole(self, sent: Sent) -> bool:
        """Was it acknowledged, or did it come through whole by luck?

        The CRC covers bodies only: an unsynced record may come back with torn properties.
        """
        data = self.store.record_at(sent.physical_offset)
        return sent in self.acked or (
            data is not None and decode_record(data, 0, True).properties == sent.properties
        )

    def check(self, report: RecoveryReport) -> None:
        store = self.store
        floor = max(self.floor, store.min_physical_offset)
        for sent in self.acked:
            if sent.physical_offset < floor:
                continue
            data = store.record_at(sent.physical_offset)
            assert data is not None, f"acknowledged {sent.key} is lost"
            record = decode_record(data, 0, True)
            assert record.body == sent.body
            found = read_queue(store, sent.topic, sent.queue_id, sent.queue_offset, 1, 1, None)
            assert found.runs == [data], f"acknowledged {sent.key} is not in its queue"
            assert data in store.query(sent.topic, sent.key, 64, 0, 1 << 60), sent.key
        for topic in store.topics():
            for queue_id in store.queues_of(topic):
                self.check_queue(topic, queue_id)
        assert report.max_physical_offset == store.max_physical_offset == store.synced_offset

    def check_queue(self, topic: str, queue_id: int) -> None:
        store = self.store
        offset = store.min_offset(topic, queue_id)
        end = store.max_offset(topic, queue_id)
        while offset < end:
            found = read_queue(store, topic, queue_id, offset, 1, 1, None)
            assert found.status is GetStatus.FOUND, (topic, queue_id, offset, found.status)
            record = decode_record(found.runs[0], 0, True)
            assert (record.topic, record.queue_id, record.queue_offset) == (topic, queue_id, offset)
            offset += 1
        known = [s for s in self.acked if (s.topic, s.queue_id) == (topic, queue_id)]
        assert all(sent.queue_offset < end for sent in known), "a queue offset would be used again"

    def live(self, lives: int, steps: int) -> None:
        for _ in range(lives):
            for _ in range(self.random.randrange(1, steps)):
                self.step()
            self.end_life()
