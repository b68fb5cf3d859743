"""A replica's life: bytes of a master's log in pieces that end anywhere, syncs, flushes, retention, stops and kills."""

import contextlib

from tests.store.crash_workload import HOST, Message, Workload

from roquette.errors import StoreError
from roquette.store.message_store import MessageStore
from roquette_testing.faulty_files import FaultyFiles

LARGEST_PIECE = 5000


class ReplicaWorkload(Workload):
    """`store` follows `master`, which never dies: one life, of which the replica has a part."""

    def __init__(self, seed: int, **changes: object) -> None:
        self.master: MessageStore | None = None
        super().__init__(seed, **changes)

    def open(self) -> None:
        if self.master is None:
            self.master = MessageStore(self.config, FaultyFiles(), HOST)
            self.master.open(self.now_ms)
        self.store = MessageStore(self.config, self.files, HOST)
        before = len(self.life.messages)
        report = self.store.open(self.now_ms)
        end, size = report.max_physical_offset, self.config.segment_size
        assert not before or end % size == 0 or end in {m.end for m in self.life.messages}
        self.files.mark(("acked", end))

    @property
    def writer(self) -> MessageStore:
        assert self.master is not None
        return self.master

    def note(self, message: Message) -> None:
        message.data = self.writer.read_log(message.physical, message.end)
        self.life.messages.append(message)

    def close(self) -> None:
        self.store.close(self.now_ms)
        self.open()

    def kill(self) -> None:
        self.files.kill()
        self.open()

    def feed(self) -> None:
        """Some pieces of what the replica lacks, cut where the master would, or anywhere."""
        rng = self.random
        for _ in range(rng.randrange(1, 5)):
            start = self.store.raw_end if rng.random() < 0.9 else self.store.max_physical_offset
            size = rng.choice((1, 7, 8, 9, 100, 512, 1000, LARGEST_PIECE))
            data = self.writer.read_raw(start, rng.randrange(1, size + 1))
            if data:
                self.store.append_raw(start, data)
        self.store.take_arrivals()

    def write(self) -> None:
        self.store.write_pending()

    def meanwhile(self, share: float) -> None:
        if self.random.random() < share:
            with contextlib.suppress(StoreError):
                self.feed()

    def doom(self) -> None:
        super().doom()
        for topic in self.life.gone:
            if topic not in self.writer.topics():
                self.store.delete_topic(topic)

    def harvest_until(self, wrote: int) -> None:
        """The master's bytes are known already."""

    def step(self) -> None:
        self.operations += 1
        dice = self.random.random()
        if dice < 0.25:
            self.append()
        elif dice < 0.27:
            self.batch()
        elif dice < 0.55:
            self.feed()
        elif dice < 0.70:
            self.write()
        elif dice < 0.83:
            self.sync()
        elif dice < 0.88:
            self.flush_queues()
        elif dice < 0.92:
            self.allocate()
        elif dice < 0.93:
            self.delete_head()
        elif dice < 0.96:
            self.doom()
        elif dice < 0.98:
            self.close()
        else:
            self.kill()
        self.files.look()
