"""One store, Apache's brokers and ours in turns: each opens, serves and extends what the other wrote (acceptance 2).

Queues are compared byte for byte before and after every change of hands.
"""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop.driver import Driver
from tests.interop.peers import Server, start_apache_broker, start_namesrv, start_roquette_broker
from tests.interop.store_books import GROUP, LONG, PLAIN, SCHEDULE, SIX, Books, Desk
from tests.records import append_message

from roquette.base.files import OsFiles
from roquette.message.record import decode_record, decode_records
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

VERSIONS = ("4.9.8", "5.5.0")  # of the client
BROKERS = {
    "4.9.8": "4.9.7",
    "5.5.0": "5.5.0",
}  # the store of 4.9.7 is that of 4.9.8, whose broker Maven has not
# Files so small that every turn crosses the edges of some, log, queue and index.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(128 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 25),
    "maxHashSlotNum": "500",
    "maxIndexNum": "300",
}
SETTINGS = {
    **SMALL_FILES,
    "transactionTimeOut": "600000",
    "transactionCheckInterval": "600000",
    "autoCreateTopicEnable": "true",
}
V6_STORE = bytes.fromhex("fd000000000000000000000000000001") + (10911).to_bytes(4, "big")
V6_BORN = bytes.fromhex("fd000000000000000000000000000002") + (51000).to_bytes(4, "big")


class Ward:
    """A store directory and whoever has it."""

    def __init__(self, folder: Path, namesrv: Server, java: Driver, name: str) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.namesrv = namesrv
        self.java = java
        self.name = name
        self.old = java.version == "4.9.8"
        self.books = Books()
        self.broker: Server | None = None

    def start(self, flavour: str, **settings: str) -> Desk:
        """Open the store with a broker of a flavour."""
        paths = {"storePathRootDir": str(self.store)}
        paths["storePathCommitLog"] = str(self.store / "commitlog")
        folder = self.folder / f"turn{self.books.turn}"
        wanted = {**SETTINGS, **paths, "timerWheelEnable": str(not self.old).lower(), **settings}
        if flavour == "apache":
            self.broker = start_apache_broker(
                folder, self.namesrv.address, settings=wanted, version=BROKERS[self.java.version]
            )
        else:
            self.broker = start_roquette_broker(folder, self.namesrv.address, settings=wanted)
        return Desk(self.broker, self.books, old=self.old)

    def stop(self, desk: Desk, *, clean: bool = True) -> None:
        """Close it, or die."""
        broker = self.broker
        assert broker is not None
        desk.close()
        if clean:
            assert broker.stop() in (0, 143), broker.process.tail()
            assert not (self.store / "abort").exists()
        else:
            broker.process.kill()
            assert (self.store / "abort").exists()
        self.broker = None

    def wait_persisted(self) -> None:
        """Brokers write consumer offsets every few seconds."""
        wanted = re.compile(rf'"{PLAIN}@{GROUP}":\{{[^}}]*"?1"?:{self.books.committed}\b')
        path = self.store / "config" / "consumerOffset.json"
        deadline = time.monotonic() + 60
        while not path.exists() or not wanted.search("".join(path.read_text().split())):
            assert time.monotonic() < deadline, path.read_text()
            time.sleep(0.2)

    def discard(self) -> None:
        """End whatever runs."""
        if self.broker is not None:
            self.broker.process.kill()

    def consume(self) -> None:
        """Apache's client reads everything of a topic."""
        reader = f"{self.name}_{self.books.turn}"
        common = {"name": reader, "namesrv": self.namesrv.address}
        self.java("lite", **common, group=f"G_{reader}", topic=PLAIN)
        try:
            wanted = [message for message in self.books.sent if message.topic == PLAIN]
            found = self.java("poll", name=reader, min=len(wanted), timeout=60_000)["messages"]
            assert sorted(m["keys"] for m in found) == sorted(m.named["KEYS"] for m in wanted)
        finally:
            self.java("stop", name=reader)


@pytest.fixture
def ward(
    tmp_path: Path,
    drivers: Callable[[str], Driver],
    request: pytest.FixtureRequest,
    name: str,
) -> Any:
    """A store for the version the test is parametrized with."""
    namesrv = start_namesrv("roquette", tmp_path / "namesrv")
    ward = Ward(tmp_path, namesrv, drivers(request.param), name)
    try:
        yield ward
    finally:
        ward.discard()
        namesrv.discard()
        shutil.rmtree(ward.store, ignore_errors=True)


def begin(store: Path, books: Books, *, old: bool) -> None:
    """A store that begins with messages of IPv6 hosts and of a long topic, written without a broker."""
    config = StoreConfig(
        root_dir=str(store),
        segment_size=int(SMALL_FILES["mappedFileSizeCommitLog"]),
        queue_file_size=int(SMALL_FILES["mappedFileSizeConsumeQueue"]),
        max_hash_slots=int(SMALL_FILES["maxHashSlotNum"]),
        max_index_entries=int(SMALL_FILES["maxIndexNum"]),
    )
    ours = MessageStore(config, OsFiles(), V6_STORE)
    ours.open(1)
    for n in range(40):
        named = f"UNIQ_KEY\x01s{n}\x02"
        now_ms = 1_700_000_000_000 + n
        append_message(
            ours,
            SIX,
            n % 2,
            0,
            0,
            now_ms,
            V6_BORN,
            0,
            named,
            0,
            b"six-%d" % n,
            now_ms,
            uniq_key=f"s{n}",
        )
    places = []
    for n in range(0 if old else 30):
        named = f"UNIQ_KEY\x01l{n}\x02"
        now_ms = 1_700_000_000_050 + n
        done = append_message(
            ours, LONG, 0, 0, 0, now_ms, V6_BORN, 0, named, 0, b"long-%d" % n, now_ms
        )
        places.append(done.physical_offset)
    ours.write_pending()
    for place in places:
        raw = ours.record_at(place)
        assert raw is not None and decode_record(raw, 0, True).topic == LONG
        books.long[place] = raw
    ours.close(1_700_000_000_100)
    # A store with messages and without topics.json counts as damaged, and is not opened.
    (store / "config").mkdir(exist_ok=True)
    topic = {"topicName": SIX, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    version = {"counter": 1, "timestamp": 1_700_000_000_000}
    table = {"dataVersion": version, "topicConfigTable": {SIX: topic}}
    (store / "config" / "topics.json").write_text(json.dumps(table))


def turn(ward: Ward, desk: Desk, *, java: bool = False) -> None:
    """One broker's life: what it found is whole, what is late comes, it takes more and keeps that."""
    desk.check()
    desk.check_settings()
    desk.end_halves()
    desk.check_queries()
    desk.check_late()
    desk.give()
    desk.check()
    desk.check_queries()
    if java:
        ward.consume()


# The long form gives the store back to Apache's once more.
@pytest.mark.promise("The log", "a store passes between Apache's brokers and ours, byte for byte")
@pytest.mark.parametrize("last", ["ours", pytest.param("apaches", marks=pytest.mark.long)])
@pytest.mark.parametrize("ward", VERSIONS, indirect=True)
def test_a_store_goes_from_hand_to_hand(ward: Ward, last: str) -> None:
    """Ours, Apache's, ours, and Apache's; every stop is clean."""
    begin(ward.store, ward.books, old=ward.old)
    desk = ward.start("roquette")
    desk.prepare()
    turn(ward, desk)
    ward.stop(desk)
    crc = {} if ward.old else {"enabledAppendPropCRC": "true"}
    desk = ward.start("apache", **crc)
    turn(ward, desk, java=last == "apaches")
    ward.stop(desk)
    desk = ward.start("roquette")
    turn(ward, desk, java=True)
    if last == "apaches":
        ward.stop(desk)
        desk = ward.start("apache")
        turn(ward, desk)
    assert len(list((ward.store / "commitlog").iterdir())) > 2
    assert len(list((ward.store / "consumequeue" / PLAIN / "0").iterdir())) > 1
    assert len(list((ward.store / "index").iterdir())) > 1


def lose_queues(store: Path, old: bool) -> None:
    """What a power cut may leave: the newest queue files lose their ends, nothing but the log is whole.

    Not those of delayed messages before Apache's 4.9: it makes their queues anew before it knows its delays, and
    delivers at once what has hours to wait (DefaultMessageStore.load).
    """
    for directory in sorted((store / "consumequeue").glob("*/*")):
        if old and directory.parent.name == SCHEDULE:
            continue
        *_, last = sorted(directory.iterdir())
        data = last.read_bytes()
        units = len(data.rstrip(b"\0")) // 20
        keep = units // 2 * 20
        last.write_bytes(data[:keep] + bytes(len(data) - keep))
    (store / "checkpoint").unlink(missing_ok=True)  # it would vouch for them


@pytest.mark.long
@pytest.mark.parametrize("lossy", [False, True], ids=["kept", "half-flushed"])
@pytest.mark.parametrize("first", ["roquette", "apache"])
@pytest.mark.parametrize("ward", VERSIONS, indirect=True)
def test_a_store_goes_from_hand_to_hand_by_kill_9(ward: Ward, first: str, lossy: bool) -> None:
    """Every broker dies; with `lossy`, half of each newest queue file was never written, either."""
    second = {"apache": "roquette", "roquette": "apache"}[first]
    ward.books.exact = False
    if first == "roquette":
        begin(ward.store, ward.books, old=ward.old)
    for n, flavour in enumerate((first, second, first, second)):
        desk = ward.start(flavour)
        if n == 0:
            desk.prepare()
        turn(ward, desk)
        ward.wait_persisted()
        ward.stop(desk, clean=False)
        if lossy:
            lose_queues(ward.store, ward.old)


@pytest.mark.long
@pytest.mark.parametrize("ward", VERSIONS, indirect=True)
def test_apaches_store_first(ward: Ward) -> None:
    """Apache's, ours, Apache's, ours, and every broker has an IPv6 address."""
    for n, flavour in enumerate(("apache", "roquette", "apache", "roquette")):
        desk = ward.start(flavour, brokerIP1="fd00::1")
        if n == 0:
            desk.prepare()
        turn(ward, desk)
        [last] = decode_records(desk.books.seen[PLAIN, 0][-1])
        assert last.sys_flag & 0x20 and last.store_host[:16] == V6_STORE[:16]
        ward.stop(desk)
