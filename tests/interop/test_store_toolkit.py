"""`roquette store` on stores that Apache's brokers 5.5.0 and 4.9.7 made: nothing invented, everything found."""

import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.peers import Server, call, start_apache_broker, start_namesrv

from roquette.base.files import OsFiles, OsReadFiles, StoreGuard
from roquette.errors import StoreError
from roquette.message.record import encode_batch
from roquette.message.record_layout import StoredRecord
from roquette.store.audit.findings import DAMAGE
from roquette.store.offline.fsck import CheckReport, FsckOptions, check_store
from roquette.store.offline.overview import overview
from roquette.store.offline.repair import repair
from roquette.store.offline.repair_plan import plan_repair
from roquette.store.offline.store_dir import find_store, walk_files

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

READER = OsReadFiles()
SEGMENT = 256 << 10
SENT = 150
VERSIONS = ("5.5.0", "4.9.7")
LATER_S = 600


@dataclass
class Made:
    """A running broker of Apache's, and its store."""

    version: str
    server: Server
    store: Path
    running: CheckReport | None = None


def start(version: str, folder: Path, namesrv: str) -> Server:
    """A broker with small files and the timer on."""
    settings = {
        "mappedFileSizeCommitLog": str(SEGMENT),
        "mappedFileSizeConsumeQueue": str(20 * 300),
        "maxHashSlotNum": "500",
        "maxIndexNum": "2000",
        "maxMessageSize": "65536",
        "mappedFileSizeTimerLog": str(1 << 20),
        "timerWheelEnable": "true",
    }
    return start_apache_broker(
        folder, namesrv, name=f"broker-{version}", settings=settings, version=version
    )


def send(
    address: str, number: int, topic: str, body: bytes, properties: str, sys_flag: int = 0, batch: bool = False
) -> None:  # fmt: skip
    """One SEND_MESSAGE request; the answer must be a success."""
    fields = {
        "producerGroup": "toolkit",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(number % 4),
        "sysFlag": str(sys_flag),
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": str(number),
        "properties": properties,
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "true" if batch else "false",
    }
    answer = call(address, 10, fields, body)
    assert answer is not None and answer[0]["code"] == 0, answer


def fill(address: str, version: str) -> dict[str, int]:
    """Messages of every kind: tags, keys, compressed, batches, delayed, long topics, timer messages.

    What is delayed comes within seconds or minutes later, when all is over; how many of some topics come.
    """
    long_topic = "L" * 120
    come = {"Plain": 0, "Timed": 0}
    for number in range(SENT):
        unique = f"UNIQ_KEY\x01{version.replace('.', ''):0>8}{number:024}\x02"
        keys = f"{unique}KEYS\x01key{number} all\x02TAGS\x01tag{number % 3}\x02WAIT\x01true\x02"
        body = f"message {number} ".encode() * 40
        if number % 10 == 3:
            send(address, number, "Plain", zlib.compress(body), keys, sys_flag=1)
            come["Plain"] += 1
        elif number % 10 == 5:
            level = number % 18 + 1 if number % 18 >= 6 else 1
            send(address, number, "Plain", body, f"{keys}DELAY\x01{level}\x02")
            come["Plain"] += level == 1
        elif number % 10 == 7:
            send(address, number, long_topic, body, keys)
        elif number % 10 == 9 and version == "5.5.0":
            due = int(time.time() * 1000) + (1500 if number < 50 else LATER_S * 1000)
            send(address, number, "Timed", body, f"{keys}TIMER_DELIVER_MS\x01{due}\x02")
            come["Timed"] += number < 50
        elif number % 10 == 1:
            entries = [
                (n, body, f"TAGS\x01b{n}\x02KEYS\x01batch{n}\x02".encode()) for n in range(9)
            ]
            send(address, number, "Batch", encode_batch(entries), unique, batch=True)
        else:
            send(address, number, "Plain", body, keys)
            come["Plain"] += 1
    offsets = {"consumerGroup": "g", "topic": "Plain", "queueId": "0", "commitOffset": "5"}
    assert call(address, 15, offsets) is not None
    return come


def there(address: str, topic: str) -> int:
    """Messages in the four queues of a topic (GET_MAX_OFFSET)."""
    count = 0
    for queue in range(4):
        answer = call(address, 30, {"topic": topic, "queueId": str(queue)})
        assert answer is not None
        count += 0 if answer[0]["code"] else int(answer[0]["extFields"]["offset"])
    return count


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Made]]:
    """Both brokers, filled, looked at while they ran, and stopped cleanly at the same time."""
    root = tmp_path_factory.mktemp("toolkit")
    namesrv = start_namesrv("roquette", root / "namesrv")
    found: dict[str, Made] = {}
    try:
        for version in VERSIONS:
            folder = root / version
            server = start(version, folder, namesrv.address)
            found[version] = Made(version, server, folder / "store")
        for one in found.values():
            end = time.monotonic() + 60
            while call(one.server.address, 28) is None:
                assert time.monotonic() < end, one.server.process.tail()
                time.sleep(0.1)
            for topic, count in fill(one.server.address, one.version).items():
                end = time.monotonic() + 60
                while there(one.server.address, topic) < count:  # then nothing is written any more
                    assert time.monotonic() < end, (topic, count)
                    time.sleep(0.1)
        time.sleep(2)  # timer files, too, are written every second
        for one in found.values():
            with pytest.raises(StoreError, match="is locked"):
                StoreGuard(str(one.store / "lock"))
            one.running = look(one.store)
            one.server.process.popen.terminate()
        for one in found.values():
            assert one.server.process.popen.wait(90) is not None
        yield found
    finally:
        for one in found.values():
            one.server.process.kill()
        namesrv.discard()


def look(root: Path, **options: bool) -> CheckReport:
    return check_store(READER, find_store(READER, str(root)), FsckOptions(**options))


def records(root: Path) -> list[StoredRecord]:
    store = find_store(READER, str(root))
    found = walk_files(READER, store.log, store.segment_size)
    return [record for record in found if isinstance(record, StoredRecord)]


versions = pytest.mark.parametrize("version", VERSIONS)


@versions
def test_a_store_that_was_closed_has_no_findings(made: dict[str, Made], version: str) -> None:
    report = look(made[version].store)

    assert report.findings == []
    assert report.records > SENT
    assert look(made[version].store, quick=True).findings == []


@versions
def test_a_running_broker_has_no_damage(made: dict[str, Made], version: str) -> None:
    report = made[version].running

    assert report is not None
    assert [item for item in report.findings if item.kind != "abort"] == []


@versions
def test_what_the_store_is_shows(made: dict[str, Made], version: str) -> None:
    found = overview(READER, find_store(READER, str(made[version].store)))

    assert found.written_by == ("5.x" if version == "5.5.0" else "Apache 4.x")
    assert found.closed and found.warnings == []
    topics = {row.topic for row in found.queues}
    assert {"Plain", "Batch", "SCHEDULE_TOPIC_XXXX"} <= topics
    assert ("rmq_sys_wheel_timer" in topics) == (version == "5.5.0")


def record_of(root: Path) -> tuple[StoredRecord, str, int]:
    """A plain record in the middle, its file and byte."""
    plain = [one for one in records(root) if one.topic == "Plain" and one.sys_flag == 0]
    record = plain[len(plain) // 2]
    base = record.physical_offset - record.physical_offset % SEGMENT
    return record, f"commitlog/{base:020d}", record.physical_offset - base


def poke(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def damaged_log(at: int, data: bytes) -> Callable[[Path], tuple[str, int]]:
    def work(root: Path) -> tuple[str, int]:
        _, name, byte = record_of(root)
        poke(root / name, byte + at, data)
        return name, byte

    return work


def unit_of(root: Path) -> tuple[str, int]:
    record, _, _ = record_of(root)
    byte = record.queue_offset * 20
    return (
        f"consumequeue/{record.topic}/{record.queue_id}/{byte - byte % 6000:020d}",
        byte % 6000,
    )


def damaged_unit(at: int) -> Callable[[Path], tuple[str, int]]:
    def work(root: Path) -> tuple[str, int]:
        name, byte = unit_of(root)
        old = (root / name).read_bytes()[byte + at]
        poke(root / name, byte + at, bytes([old ^ 0x11]))
        return name, byte + {7: 0, 11: 8, 19: 12}[at]

    return work


def damaged_index(root: Path) -> tuple[str, int]:
    path = sorted((root / "index").iterdir())[0]
    place = 40 + 500 * 4 + 20 * 20
    poke(path, place + 4, b"\x7f")
    return f"index/{path.name}", place + 4


def torn_json(root: Path) -> tuple[str, int]:
    path = root / "config" / "topics.json"
    path.write_text(path.read_text()[:40])
    return "config/topics.json", -2


def damaged_timer(root: Path) -> tuple[str, int]:
    path = sorted((root / "timerlog").iterdir())[0]
    poke(path, 24 + 8, b"\x01")
    return f"timerlog/{path.name}", 0


KINDS: dict[str, Callable[[Path], tuple[str, int]]] = {
    "size": damaged_log(0, b"\x7f"),
    "magic": damaged_log(4, b"\0"),
    "crc": damaged_log(120, b"\xff"),
    "offset": damaged_log(28, b"\1"),
    "unit_orphan": damaged_unit(7),
    "unit_size": damaged_unit(11),
    "unit_tag": damaged_unit(19),
    "index_orphan": damaged_index,
    "json": torn_json,
    "timer": damaged_timer,
}


@versions
@pytest.mark.parametrize("kind", KINDS)
def test_injected_damage_is_named_with_file_and_byte_and_mended(
    made: dict[str, Made], version: str, kind: str, tmp_path: Path
) -> None:
    if kind == "timer" and version == "4.9.7":
        pytest.skip("4.9 has no timer files")
    root = Path(shutil.copytree(made[version].store, tmp_path / "store"))
    name, byte = KINDS[kind](root)

    found = [
        (item.kind, item.file.removeprefix(f"{root}/"), item.position)
        for item in look(root).findings
        if item.severity == DAMAGE
    ]

    assert any(one[:2] == (kind, name) and byte in (one[2], -2) for one in found), found
    sound = len(records(root))
    if kind == "json":
        return
    store = find_store(READER, str(root))
    mended = repair(READER, OsFiles(), store, plan_repair(READER, store), str(tmp_path / "mended"))
    report = check_store(READER, mended, FsckOptions())
    assert [item for item in report.findings if item.severity == DAMAGE] == []
    assert sum(one.topic != "LOST_TO_DAMAGE" for one in records(tmp_path / "mended")) == sound
