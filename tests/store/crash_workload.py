"""Everything a store does, some thousand times, on files that write it all down; with what was promised meanwhile.

The names of the marks in the journal are those of the fields of `Owed`.
"""

import contextlib
import random
from bisect import bisect_right
from dataclasses import dataclass, field

from tests.records import append_batch, append_message

from roquette.base.javatypes import java_hash
from roquette.broker.floor.config_files import ConfigFiles
from roquette.errors import StoreError
from roquette.message.record import encode_batch, encode_blank
from roquette.store.format.config import FlushDiskType, StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.reput import parse_delay_levels
from roquette.store.upkeep.retention import DiskUsage
from roquette.wire.bodies import ConsumerOffsetSerializeWrapper
from roquette_testing.recorded_files import RecordedFiles

ROOT = "/s"
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BORN = bytes([127, 0, 0, 1, 0, 0, 0xC3, 0x50])
BORN_V6 = bytes(range(16)) + bytes([0, 0, 0xC3, 0x50])
START_MS = 1_700_000_000_000
LONG_TOPIC = "long-" + "x" * 140
TOPICS = ("A", "B", "%RETRY%g", LONG_TOPIC)
SYSTEM_TOPICS = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_REVIVE_LOG_c")
JSON_FILES = ("consumerOffset.json", "delayOffset.json", "topics.json")


def crash_config(**changes: object) -> StoreConfig:
    """Files so small that everything rolls."""
    values: dict[str, object] = {
        "root_dir": ROOT,
        "segment_size": 16_384,
        "queue_file_size": 20 * 64,
        "max_hash_slots": 97,
        "max_index_entries": 500,
        "delete_when": "",
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
    }
    return StoreConfig(**(values | changes))  # type: ignore[arg-type]


@dataclass(slots=True)
class Message:
    """One that the store has taken."""

    topic: str
    queue_id: int
    queue_offset: int  # -1: in no queue
    physical: int
    size: int
    tags_code: int
    key: str
    body: bytes
    indexed: bool = True
    data: bytes = b""

    @property
    def end(self) -> int:
        return self.physical + self.size


@dataclass(slots=True)
class Life:
    """The log as it was written between two ends of the process without loss of what was written."""

    segment_size: int
    messages: list[Message] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)  # topics that were ever deleted
    image: bytes = b""
    ends: list[int] = field(default_factory=list)
    queues: dict[tuple[str, int], list[Message]] = field(default_factory=dict)

    def settle(self) -> None:
        """Make what checks need: the log's bytes, and its queues."""
        image = bytearray()
        for message in self.messages:
            if message.physical > len(image):  # a blank fills the file before
                image += encode_blank(message.physical - len(image)).ljust(
                    message.physical - len(image), b"\0"
                )
            image += message.data
            self.ends.append(message.end)
            if message.queue_offset >= 0:
                key = (message.topic, message.queue_id)
                self.queues.setdefault(key, []).append(message)
        self.image = bytes(image)

    def count_until(self, end: int) -> int:
        """Messages that end at or before an offset."""
        return bisect_right(self.ends, end)


@dataclass(slots=True)
class Owed:
    """What a reader may count on at some moment."""

    life: int = 0
    acked: int = 0  # the log up to here
    floor: int = 0  # but what was before may be deleted
    saved: dict[str, int] = field(default_factory=dict)  # JSON files: the version on the disk
    saving: dict[str, int] = field(default_factory=dict)  # and the newest there may be

    def note(self, mark: tuple[str, object]) -> None:
        """A mark of the journal has come."""
        name, value = mark
        if name in ("saved", "saving"):
            file, version = value  # type: ignore[misc]
            getattr(self, name)[file] = version
        else:
            setattr(self, name, value)


class Workload:
    """One run. `lives` is what was written; the marks in the files' journal say what is owed when."""

    def __init__(self, seed: int, files: RecordedFiles | None = None, **changes: object) -> None:
        self.random = random.Random(seed)
        self.config = crash_config(**changes)
        self.files = files if files is not None else RecordedFiles(directories=[ROOT])
        self.now_ms = START_MS
        self.counter = 0
        self.versions = dict.fromkeys(JSON_FILES, 0)
        self.lives = [Life(self.config.segment_size)]
        self.unread: list[Message] = []  # their bytes are not yet known
        self.operations = 0
        self.doomed = 0
        self.open()

    # Life

    def open(self) -> None:
        self.store = MessageStore(self.config, self.files, HOST)
        self.json = ConfigFiles(self.files, self.store.layout.config)
        report = self.store.open(self.now_ms)
        assert report.max_physical_offset == max(
            (m.end for m in self.life.messages), default=0
        ) or (report.max_physical_offset % self.config.segment_size == 0)
        self.files.mark(("acked", report.max_physical_offset))

    @property
    def writer(self) -> MessageStore:
        """Who appends: the store that is looked at, unless it follows another one."""
        return self.store

    @property
    def life(self) -> Life:
        return self.lives[-1]

    def close(self) -> None:
        self.store.close(self.now_ms)
        self.harvest()
        self.files.mark(("acked", self.life.messages[-1].end if self.life.messages else 0))
        self.open()

    def kill(self) -> None:
        """SIGKILL: what was handed to the system stays, and the rest never was."""
        wrote = self.store.wrote
        self.harvest_until(wrote)
        before = self.life
        left = [m for m in before.messages if m.end <= wrote]
        self.lives.append(Life(before.segment_size, left, set(before.gone)))
        self.unread = []
        self.files.mark(("life", len(self.lives) - 1))
        self.files.kill()
        self.open()

    # Steps

    def message(self, topic: str, queue_id: int, **more: object) -> None:
        rng = self.random
        self.counter += 1
        key = f"key{self.counter}"
        body = rng.randbytes(rng.choice((0, 5, 60, 60, 200, 600, 3000)))
        tag = rng.choice(("T", "U", "tag of some length"))
        properties = f"UNIQ_KEY\x01{key}\x02TAGS\x01{tag}\x02KEYS\x01a b\x02"
        tags_code = java_hash(tag)
        if (level := int(str(more.get("level", 0)))) > 0:
            properties += f"DELAY\x01{level}\x02"
            tags_code = self.now_ms + parse_delay_levels(self.config.delay_levels)[level - 1]
        if rng.random() < 0.1:
            properties += "P\x01" + "v" * rng.randrange(1500) + "\x02"
        sys_flag = int(str(more.get("sys_flag", 0)))
        born = BORN_V6 if rng.random() < 0.1 else BORN
        done = append_message(self.writer, topic, queue_id, 0, sys_flag, self.now_ms, born, 0, properties, tags_code, body,
            self.now_ms, "a b", key, int(str(more.get("prepared_offset", 0))),
        )  # fmt: skip
        in_queue = sys_flag & 0xC not in (0x4, 0xC)
        self.note(
            Message(
                topic, queue_id, done.queue_offset if in_queue else -1, done.physical_offset,
                done.size, tags_code, key, body, sys_flag & 0xC != 0xC,
            )
        )  # fmt: skip

    def note(self, message: Message) -> None:
        self.life.messages.append(message)
        self.unread.append(message)

    def append(self) -> None:
        rng = self.random
        dice = rng.random()
        self.now_ms += rng.randrange(0, 1500)
        if rng.random() < 0.005:
            self.now_ms -= 50_000  # somebody has set the clock
        if dice < 0.75:
            self.message(rng.choice(TOPICS), rng.randrange(3))
        elif dice < 0.83:
            level = rng.randrange(1, 5)
            self.message("SCHEDULE_TOPIC_XXXX", level - 1, level=level)
        elif dice < 0.88 and self.life.messages:
            original = rng.choice(self.life.messages)
            self.message("A", rng.randrange(3), prepared_offset=-1 - original.physical)
        elif dice < 0.97:
            self.message(rng.choice(SYSTEM_TOPICS), 0)
        else:
            self.message("B", rng.randrange(3), sys_flag=rng.choice((0x4, 0x8, 0xC)))

    def batch(self) -> None:
        rng = self.random
        topic, queue_id = rng.choice(TOPICS), rng.randrange(3)
        parts: list[tuple[str, bytes]] = []
        for _ in range(rng.randrange(2, 12)):
            self.counter += 1
            parts.append((f"key{self.counter}", rng.randbytes(rng.choice((1, 80, 700)))))
        encoded = encode_batch(
            [(0, body, f"UNIQ_KEY\x01{key}\x02".encode()) for key, body in parts]
        )
        first = self.writer.max_offset(topic, queue_id)
        try:
            done = append_batch(
                self.writer, topic, queue_id, 0, self.now_ms, BORN, 0, encoded, self.now_ms
            )
        except StoreError:  # some may be in, and readers will see them
            count = self.store.max_offset(topic, queue_id) - first
            units = self.store.queue_units(topic, queue_id, first, count) if count else None
            for number, (physical, size, code) in enumerate(units or []):
                key, body = parts[number]
                self.note(Message(topic, queue_id, first + number, physical, size, code, key, body))
            raise
        fixed = done.size - sum(len(b) + len(f"UNIQ_KEY\x01{k}\x02") for k, b in parts)
        for number, (key, body) in enumerate(parts):
            size = fixed // len(parts) + len(body) + len(f"UNIQ_KEY\x01{key}\x02")
            physical = done.messages[number].physical_offset
            self.note(
                Message(topic, queue_id, done.queue_offset + number, physical, size, 0, key, body)
            )

    def harvest(self) -> None:
        self.harvest_until(self.store.wrote)

    def harvest_until(self, wrote: int) -> None:
        """Learn the bytes of what was handed to the system, as readers would get them."""
        while self.unread and self.unread[0].end <= wrote:
            message = self.unread.pop(0)
            message.data = self.store.read_log(message.physical, message.end)
            assert len(message.data) == message.size

    def write(self) -> None:
        self.store.write_pending()
        self.harvest()

    def sync(self) -> None:
        plan = self.store.plan_sync()
        if plan is None:
            return
        self.harvest()
        self.meanwhile(0.3)
        plan.run()
        self.files.mark(("acked", self.store.synced(plan)))

    def flush_queues(self) -> None:
        plan = self.store.plan_queue_flush(None if self.random.random() < 0.4 else self.now_ms)
        if plan is not None:
            self.meanwhile(0.3)
            plan.run()
            self.store.queues_flushed(plan)

    def allocate(self) -> None:
        plan = self.store.plan_allocation()
        if plan is not None:
            self.meanwhile(0.2)
            plan.run()
            self.store.allocated(plan)

    def meanwhile(self, share: float) -> None:
        """Something may come while a plan runs; it is not covered by it."""
        if self.random.random() < share:
            with contextlib.suppress(StoreError):
                self.append()

    def delete_head(self) -> None:
        self.write()
        plan = self.store.plan_retention(self.now_ms, DiskUsage(100, 11))  # 89 % used: forced
        if plan is not None:
            self.files.mark(("floor", self.store.min_physical_offset))
            if self.random.random() < 0.8:
                plan.run()

    def save_json(self) -> None:
        name = self.random.choice(JSON_FILES)
        version = self.versions[name] = self.versions[name] + 1
        table = {f"T{n}@g{n}": {0: version} for n in range(60)}
        self.files.mark(("saving", (name, version)))
        self.json.save(name, ConsumerOffsetSerializeWrapper(offset_table=table))
        self.files.mark(("saved", (name, version)))

    def doom(self) -> None:
        """A topic is made, or deleted, or made again."""
        rng = self.random
        topic = f"doomed{self.doomed % 3}"
        if rng.random() < 0.7:
            for _ in range(rng.randrange(1, 6)):
                self.message(topic, rng.randrange(2))
            return
        self.life.gone.add(topic)
        self.writer.delete_topic(topic)
        self.doomed += rng.randrange(2)

    def step(self) -> None:
        self.operations += 1
        dice = self.random.random()
        if dice < 0.62:
            self.append()
        elif dice < 0.66:
            self.batch()
        elif dice < 0.74:
            self.write()
        elif dice < 0.85:
            self.sync()
        elif dice < 0.89:
            self.flush_queues()
        elif dice < 0.925:
            self.allocate()
        elif dice < 0.935:
            self.delete_head()
        elif dice < 0.965:
            self.save_json()
        elif dice < 0.99:
            self.doom()
        elif dice < 0.995:
            self.close()
        else:
            self.kill()
        self.files.look()

    def run(self, operations: int) -> None:
        """So many operations, then the books are made up."""
        while self.operations < operations:
            self.step()
        self.settle()

    def finish(self, operations: int) -> None:
        """So many operations, and all that was appended is on the disk."""
        while self.operations < operations:
            self.step()
        self.store.flush_all()
        self.settle()

    def settle(self) -> None:
        """Nothing more comes."""
        self.harvest_until(self.store.wrote)
        for message in self.unread:
            self.life.messages.remove(message)
        self.unread = []
        for life in self.lives:
            life.settle()
