"""What `roquette store repair` makes of a damaged store is opened, served and extended by Apache's 5.5.0 broker.

The stores are ours and Apache's own; which messages are sound is known from what was acknowledged and what was
damaged, not from our tools.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.interop.peers import Server, start_apache_broker, start_namesrv, start_roquette_broker
from tests.interop.store_books import PACKED, PLAIN, PULL, QUEUES, Books, Desk, Sent
from tests.real_servers import MAIN, pull_fields
from tests.records import encode_record

from roquette.message.record import decode_record, decode_records, record_size
from roquette.message.record_layout import StoredRecord

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SEGMENT = 128 << 10
SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": str(20 * 25),
    "maxHashSlotNum": "500",
    "maxIndexNum": "300",
    "timerWheelEnable": "false",
}
SENT = 320  # four segments, and three files of each queue
LATE_S = 60.0

Place = tuple[str, int, int]  # topic, queue id, queue offset


@dataclass
class Wreck:
    """A closed store in which things are broken. `lost`: messages that are beyond repair."""

    root: Path
    raw: dict[Place, bytes]  # all that was acknowledged, as it was served
    lost: set[Place] = field(default_factory=set)

    def record(self, place: Place) -> StoredRecord:
        """One of the messages."""
        return decode_record(self.raw[place], 0, True)

    def poke(self, place: Place, at: int, data: bytes) -> None:
        """Overwrite bytes of a record: it is lost."""
        physical = self.record(place).physical_offset + at
        path = self.root / "commitlog" / f"{physical - physical % SEGMENT:020d}"
        with path.open("r+b") as file:
            file.seek(physical % SEGMENT)
            file.write(data)
        self.lost.add(place)

    def flip(self, place: Place) -> None:
        """Turn one bit of a record's body."""
        record = self.record(place)
        at = self.raw[place].find(record.body)
        self.poke(place, at, bytes([record.body[0] ^ 4]))

    def plain(self, number: int) -> Place:
        """Where the n-th message of the plain topic lies."""
        return PLAIN, number % 4, number // 4

    def queue_files(self, queue: int) -> list[Path]:
        """Of the plain topic."""
        return sorted((self.root / "consumequeue" / PLAIN / str(queue)).iterdir())


def torn_tail(wreck: Wreck) -> None:
    last = max(wreck.raw, key=lambda place: wreck.record(place).physical_offset)
    wreck.poke(last, 40, b"\xff" * 60)


def flipped_bodies(wreck: Wreck) -> None:
    for number in (30, 130, 131, 135, 200):
        wreck.flip(wreck.plain(number))


def flipped_first_bodies(wreck: Wreck) -> None:
    wreck.flip(wreck.plain(0))
    wreck.flip(wreck.plain(2))
    wreck.flip(wreck.plain(6))


def scribbled_headers(wreck: Wreck) -> None:
    for number in (50, 90, 94):
        wreck.poke(wreck.plain(number), 0, b"\x55" * 60)


def long_scribble(wreck: Wreck) -> None:
    for number in range(140, 180):
        wreck.poke(wreck.plain(number), 0, b"\x55" * 60)


def small_holes(wreck: Wreck) -> None:
    """Torn bytes too few for a record, then a record nobody reads: the message before them takes them in."""
    ends = {r.physical_offset + r.size: place for place in wreck.raw if (r := wreck.record(place))}
    for number, size in ((60, 1), (100, 36), (150, 72), (220, 91)):
        place = wreck.plain(number)
        record = wreck.record(place)
        start, stored = record.physical_offset + size, record.store_timestamp_ms
        spare = bytes(record.size - size - record_size(0, 1, 0, 8, 8))
        host = record.store_host
        rolled_back = encode_record(
            b"X", 0, 0, 0, start, 12, stored, host, stored, host, 0, 0, spare, b""
        )
        wreck.poke(place, 0, b"\xff" * size + rolled_back)
        before = wreck.raw[ends[record.physical_offset]]
        text = len(wreck.record(ends[record.physical_offset]).properties.encode())
        wreck.raw[ends[record.physical_offset]] = (
            (len(before) + size).to_bytes(4, "big")
            + before[4 : -text - 2]
            + (text + size).to_bytes(2, "big")
            + before[-text:]
            + b"\2" * size
        )


def lost_segment(wreck: Wreck) -> None:
    (wreck.root / "commitlog" / f"{SEGMENT:020d}").unlink()
    for place in wreck.raw:
        if SEGMENT <= wreck.record(place).physical_offset < 2 * SEGMENT:
            wreck.lost.add(place)


def lost_queue(wreck: Wreck) -> None:
    shutil.rmtree(wreck.root / "consumequeue" / PLAIN / "0")


def lost_queues(wreck: Wreck) -> None:
    shutil.rmtree(wreck.root / "consumequeue")


def cut_queue(wreck: Wreck) -> None:
    wreck.queue_files(1)[-1].unlink()
    path = wreck.queue_files(1)[-1]
    path.write_bytes(path.read_bytes()[:210])


def flipped_entry(wreck: Wreck) -> None:
    for queue, number, byte in ((2, 0, 66), (3, 1, 48), (3, 1, 139)):
        path = wreck.queue_files(queue)[number]
        data = bytearray(path.read_bytes())
        data[byte] ^= 0x11
        path.write_bytes(data)


def lost_index(wreck: Wreck) -> None:
    shutil.rmtree(wreck.root / "index")


DAMAGE: dict[str, Callable[[Wreck], None]] = {
    "torn-tail": torn_tail,
    "bodies": flipped_bodies,
    "first-bodies": flipped_first_bodies,
    "headers": scribbled_headers,
    "long-stretch": long_scribble,
    "small-holes": small_holes,
    "segment": lost_segment,
    "queue": lost_queue,
    "queues": lost_queues,
    "queue-cut": cut_queue,
    "entry": flipped_entry,
    "index": lost_index,
}
GROUPS = {
    "log": ["torn-tail", "bodies", "headers"],
    "stretches": ["first-bodies", "long-stretch"],
    "small": ["small-holes"],
    "segment": ["segment"],
    "queues": ["queues", "index"],
    "parts": ["queue", "queue-cut", "entry"],
}


class Yard:
    """Starts brokers on stores."""

    def __init__(self, folder: Path, namesrv: Server) -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.running: Server | None = None
        self.turn = 0

    def start(self, flavour: str, store: Path) -> Server:
        """A broker that has opened a store."""
        self.turn += 1
        folder = self.folder / f"turn{self.turn}"
        settings = {**SETTINGS, "storePathRootDir": str(store)}
        settings["storePathCommitLog"] = str(store / "commitlog")
        begin = {"apache": start_apache_broker, "roquette": start_roquette_broker}[flavour]
        self.running = begin(folder, self.namesrv.address, settings=settings)
        return self.running

    def stop(self, *, clean: bool = True) -> None:
        """Close the store; or end the broker at once, as a crash would."""
        assert self.running is not None
        if clean:
            assert self.running.stop() in (0, 143), self.running.process.tail()
        else:
            self.running.process.kill()
        self.running = None

    def end(self) -> None:
        """Whatever runs still."""
        if self.running is not None:
            self.running.process.kill()
        self.namesrv.discard()


def served(desk: Desk, topic: str, queue: int) -> dict[int, bytes]:
    """The raw records of a queue, pulled as a client pulls: it goes on where the broker says."""
    low, high = desk.bounds(topic, queue)
    found: dict[int, bytes] = {}
    while low < high:
        head, data = desk.connection.call(PULL, pull_fields(topic, queue, low))
        assert head["code"] in (0, 19, 20, 21), (topic, queue, low, head)
        position = 0
        for record in decode_records(data, check_crc=True):
            assert (record.topic, record.queue_id) == (topic, queue)
            found[record.queue_offset] = data[position : position + record.size]
            position += record.size
        following = int(head["extFields"]["nextBeginOffset"])
        assert following > low, (topic, queue, low, head)
        low = following
    return found


def fill(desk: Desk) -> None:
    """Plain messages over four queues, a compressed one and a batch."""
    desk.prepare()
    for n in range(SENT):
        named = {"KEYS": f"k{n} all", "UNIQ_KEY": f"u{n}", "TAGS": f"t{n % 3}"}
        desk.keep(PLAIN, n % 4, b"%d-" % n + b"." * (n * 97 % 3000), named)
        if n % 40 == 7:
            desk.keep(PACKED, n % 2, b"packed-%d" % n, {"UNIQ_KEY": f"p{n}", "KEYS": f"q{n}"})


def all_served(desk: Desk, wanted: int) -> dict[Place, bytes]:
    """Everything that can be pulled, once so many messages can: Apache's queues follow a little later."""
    end = time.monotonic() + LATE_S
    while True:
        found = {
            (topic, queue, offset): raw
            for topic in (PLAIN, PACKED)
            for queue in range(QUEUES[topic])
            for offset, raw in served(desk, topic, queue).items()
        }
        if len(found) >= wanted or time.monotonic() > end:
            return found
        time.sleep(0.2)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("repaired")
    yard = Yard(folder, start_namesrv("roquette", folder / "namesrv"))
    yield yard
    yard.end()


@pytest.fixture(scope="module")
def made(yard: Yard) -> Callable[[str], tuple[Books, Wreck]]:
    """A store that a broker of a flavour has filled and closed, made once: books, and what it served."""
    known: dict[str, tuple[Books, Wreck]] = {}

    def make(flavour: str) -> tuple[Books, Wreck]:
        if flavour not in known:
            store = yard.folder / f"made-by-{flavour}"
            books = Books()
            desk = Desk(yard.start(flavour, store), books, old=False)
            fill(desk)
            raw = all_served(desk, len(books.sent))
            desk.close()
            yard.stop()
            assert set(raw) == {(m.topic, m.queue, m.offset) for m in books.sent}
            known[flavour] = books, Wreck(store, raw)
        return known[flavour]

    return make


def repaired(root: Path, target: Path) -> None:
    """Run the command, as people do."""
    words = ["store", "repair", str(root), "--to", str(target)]
    words += [
        "--hash-slots",
        SETTINGS["maxHashSlotNum"],
        "--index-entries",
        SETTINGS["maxIndexNum"],
    ]
    words += ["--queue-file-size", SETTINGS["mappedFileSizeConsumeQueue"]]
    done = subprocess.run([*MAIN, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def check_served(desk: Desk, wreck: Wreck, sent: list[Sent], late: dict[Place, bytes]) -> None:
    """Every sound message by pull, byte for byte, and by its keys; nothing else."""
    wanted = {place: raw for place, raw in wreck.raw.items() if place not in wreck.lost}
    found = all_served(desk, len(wanted) + len(late))
    assert {place for place in wanted if found.get(place) != wanted[place]} == set()
    assert {place: raw for place, raw in found.items() if place not in wanted} == late
    for message in sent:
        if (message.topic, message.queue, message.offset) in wreck.lost:
            continue
        for key, unique in (
            (message.named["UNIQ_KEY"], True),
            (message.named["KEYS"].split()[0], False),
        ):
            bodies = [one.body for one in desk.found(message.topic, key, unique=unique)]
            assert bodies == [message.body], (key, bodies)


def append(desk: Desk, ends: dict[tuple[str, int], int]) -> dict[Place, bytes]:
    """Two more messages to every queue, behind all that ever were; they are served, too."""
    given: dict[Place, bytes] = {}
    for (topic, queue), end in sorted(ends.items()):
        for n in (0, 1):
            body = b"late-%d" % (end + n)
            told = desk.send(topic, queue, body, {"KEYS": f"late{end + n}"})
            assert int(told["queueOffset"]) == end + n, (topic, queue, told)
            given[topic, queue, end + n] = body
        ends[topic, queue] = end + 2
    deadline = time.monotonic() + LATE_S
    while True:
        found: dict[Place, bytes] = {}
        for topic, queue in ends:
            for offset, raw in served(desk, topic, queue).items():
                if (topic, queue, offset) in given:
                    found[topic, queue, offset] = raw
        if len(found) == len(given) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert {place: decode_record(raw, 0, True).body for place, raw in found.items()} == given
    return found


def check_repair(
    yard: Yard, made: tuple[Books, Wreck], damage: list[str], folder: Path, *, clean: bool = True
) -> None:
    """Damage a copy, repair it to another; Apache's broker opens and extends that, then ours does."""
    books, whole = made
    wreck = Wreck(Path(shutil.copytree(whole.root, folder / "wreck")), dict(whole.raw))
    for name in damage:
        DAMAGE[name](wreck)
    target = folder / "mended"
    repaired(wreck.root, target)
    ends: dict[tuple[str, int], int] = {}
    for topic, queue, offset in wreck.raw:
        ends[topic, queue] = max(ends.get((topic, queue), 0), offset + 1)
    late: dict[Place, bytes] = {}
    for flavour in ("apache", "roquette"):
        desk = Desk(yard.start(flavour, target), Books(), old=False)
        check_served(desk, wreck, books.sent, late)
        late |= append(desk, ends)
        desk.close()
        yard.stop(clean=clean or flavour == "roquette")


def test_apaches_broker_goes_on_with_a_store_of_ours_that_was_broken_all_over(
    yard: Yard, made: Callable[[str], tuple[Books, Wreck]], tmp_path: Path
) -> None:
    damage = ["entry", "queue", "queue-cut", "index", "bodies", "headers", "torn-tail"]
    check_repair(yard, made("roquette"), damage, tmp_path, clean=False)


@pytest.mark.promise("Damage", "Apache's broker serves and extends a repaired store")
@pytest.mark.long
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("flavour", ["apache", "roquette"])
def test_apaches_broker_goes_on_after_every_repair(
    yard: Yard,
    made: Callable[[str], tuple[Books, Wreck]],
    flavour: str,
    group: str,
    tmp_path: Path,
) -> None:
    check_repair(yard, made(flavour), GROUPS[group], tmp_path)
