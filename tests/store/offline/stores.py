"""Small stores on disk for the tests of the offline tools, and ways to damage them."""

from pathlib import Path

from tests.records import append_message

from roquette.base.files import OsFiles, OsReadFiles
from roquette.base.javatypes import java_hash
from roquette.message.compression import Compression, compress
from roquette.message.record_layout import StoredRecord
from roquette.store.audit.findings import DAMAGE
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import CheckReport, FsckOptions, check_store
from roquette.store.offline.store_dir import StoreDir, find_store, walk_files

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BORN_V6 = bytes(15) + b"\1" + (50000).to_bytes(4, "big")
START_MS = 1_700_000_000_000
SEGMENT = 8192
READER = OsReadFiles()
TOPICS = ("Orders", "Payments")


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        segment_size=SEGMENT,
        queue_file_size=20 * 16,
        max_hash_slots=17,
        max_index_entries=120,
        delete_when="",
    )


def append(store: MessageStore, number: int, topic: str | None = None) -> None:
    """Message `number`: two topics, three queues, tags, keys; some compressed, some from IPv6 hosts."""
    body = f"body of message {number} ".encode() * (number % 5 + 1)
    sys_flag = 0
    if number % 7 == 3:
        sys_flag, body = Compression.ZLIB.sys_flag, compress(body, Compression.ZLIB)
    born = BORN_V6 if number % 5 == 4 else HOST
    tag = f"tag{number % 3}"
    keys = f"key{number} all"
    properties = (
        f"KEYS\x01{keys}\x02UNIQ_KEY\x01UNIQ{number:028}\x02TAGS\x01{tag}\x02step\x01{number}\x02"
    )
    append_message(
        store,
        topic or TOPICS[number % 2],
        number % 3,
        number,
        sys_flag,
        START_MS + number * 100,
        born,
        0,
        properties,
        java_hash(tag),
        body,
        START_MS + number * 100,
        keys,
        f"UNIQ{number:028}",
    )


def make_store(root: Path, count: int = 150, close: bool = True) -> MessageStore:
    """A store of some log, queue and index files, closed cleanly (or as a killed broker leaves it)."""
    store = MessageStore(config(root), OsFiles(), HOST)
    store.open(START_MS)
    for number in range(count):
        append(store, number)
    store.write_pending()
    if close:
        store.close(START_MS + count * 100)
    return store


def write_config(root: Path) -> None:
    """JSON files as brokers leave them, number keys without quotes."""
    folder = root / "config"
    folder.mkdir(exist_ok=True)
    table = ",".join(f'"{name}":{{"topicName":"{name}","attributes":{{}}}}' for name in TOPICS)
    (folder / "topics.json").write_text(f'{{"topicConfigTable":{{{table}}}}}')
    offsets = '{\n\t"offsetTable":{"Orders@billing":{0:25,1:7\n\t\t}\n\t}\n}'
    (folder / "consumerOffset.json").write_text(offsets)


def records(root: Path) -> list[StoredRecord]:
    store = find_store(READER, str(root))
    found = walk_files(READER, store.log, store.segment_size)
    return [record for record in found if isinstance(record, StoredRecord)]


def fsck(root: Path, **options: object) -> CheckReport:
    return check_store(READER, opened(root), FsckOptions(**options))  # type: ignore[arg-type]


def opened(root: Path) -> StoreDir:
    return find_store(READER, str(root))


def faults(report: CheckReport) -> list[tuple[str, str, int]]:
    """(kind, file below the store, byte) of all damage."""
    return [
        (item.kind, item.file.removeprefix(report.store + "/"), item.position)
        for item in report.findings
        if item.severity == DAMAGE
    ]


def poke(path: Path, position: int, data: bytes) -> None:
    """Overwrite some bytes."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def log_file(root: Path, offset: int) -> Path:
    """The log file that holds a physical offset."""
    return root / "commitlog" / f"{offset - offset % SEGMENT:020d}"
