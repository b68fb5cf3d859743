"""The store against a list: whatever is done to it, it is the list that was appended to."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.records import append_batch, append_message, read_queue
from tests.store.crash_workload import BORN, HOST, ROOT, crash_config

from roquette.message.record import decode_records, encode_batch
from roquette.store.format.results import GetStatus
from roquette.store.message_store import MessageStore
from roquette_testing.faulty_files import FaultyFiles

QUEUES = [(topic, queue_id) for topic in ("A", "B") for queue_id in (0, 1)]
queues = st.sampled_from(QUEUES)
bodies = st.binary(max_size=700)


class ListModel(RuleBasedStateMachine):
    """A list for each queue."""

    @initialize()
    def begin(self) -> None:
        self.files = FaultyFiles()
        self.now_ms = 1_700_000_000_000
        self.lists: dict[tuple[str, int], list[bytes]] = {queue: [] for queue in QUEUES}
        self.written: dict[tuple[str, int], int] = dict.fromkeys(QUEUES, 0)
        self.open()

    def open(self) -> None:
        self.store = MessageStore(crash_config(segment_size=4096), self.files, HOST)
        self.store.open(self.now_ms)

    @rule(queue=queues, body=bodies, key=st.integers(0, 5))
    def append(self, queue: tuple[str, int], body: bytes, key: int) -> None:
        self.now_ms += 7
        done = append_message(
            self.store,
            *queue,
            0,
            0,
            0,
            BORN,
            0,
            f"KEYS\x01k{key}\x02",
            0,
            body,
            self.now_ms,
            f"k{key}",
        )
        assert done.queue_offset == len(self.lists[queue])
        self.lists[queue].append(body)

    @rule(queue=queues, parts=st.lists(bodies, min_size=1, max_size=6))
    def append_batch(self, queue: tuple[str, int], parts: list[bytes]) -> None:
        batch = encode_batch([(0, body, b"") for body in parts])
        done = append_batch(self.store, *queue, 0, 0, BORN, 0, batch, self.now_ms)
        assert (done.queue_offset, len(done.messages)) == (len(self.lists[queue]), len(parts))
        self.lists[queue] += parts

    @rule()
    def write(self) -> None:
        self.store.write_pending()
        self.written = {queue: len(bodies) for queue, bodies in self.lists.items()}

    @rule()
    def flush(self) -> None:
        self.store.flush_all()
        self.written = {queue: len(bodies) for queue, bodies in self.lists.items()}

    @rule()
    def reopen(self) -> None:
        self.store.close(self.now_ms)
        self.open()
        self.written = {queue: len(bodies) for queue, bodies in self.lists.items()}

    @rule(power=st.booleans())
    def die(self, power: bool) -> None:
        """What was handed to the system stays after a kill; what was synced stays after a power cut."""
        self.files.kill()
        if power:
            synced = {queue: len(bodies) for queue, bodies in self.lists.items()}
            self.store.flush_all()
            self.files = self.files.crash()
            self.files.write_back_share = 0.0
            self.written = synced
        self.open()
        for queue, kept in self.written.items():
            found = self.store.max_offset(*queue)
            assert kept <= found <= len(self.lists[queue])
            del self.lists[queue][found:]
        self.written = {queue: len(bodies) for queue, bodies in self.lists.items()}

    @rule(queue=queues, start=st.integers(0, 40), count=st.integers(1, 8))
    def read(self, queue: tuple[str, int], start: int, count: int) -> None:
        wanted = self.lists[queue]
        self.store.flush_all()  # a reader sees what is on the disk
        found = read_queue(self.store, *queue, start, count, 1 << 20, None)
        bodies = [record.body for record in decode_records(b"".join(found.runs), True)]
        if start < len(wanted):
            assert found.status is GetStatus.FOUND
            assert bodies == wanted[start : start + count]
            assert found.next_begin_offset == start + len(bodies)
        else:
            assert found.status is not GetStatus.FOUND
            assert not bodies

    @invariant()
    def ends(self) -> None:
        for queue, wanted in self.lists.items():
            assert self.store.max_offset(*queue) == len(wanted)
            assert self.store.min_offset(*queue) == 0


TestStoreIsAList = ListModel.TestCase
TestStoreIsAList.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
assert ROOT
