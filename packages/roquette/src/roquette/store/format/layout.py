"""Directory and file names of a store, as Apache lays them out (StorePathConfigHelper)."""

import datetime
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from roquette.base.files import Files, ReadFiles, read_all
from roquette.errors import StoreError

NAME_DIGITS: Final = 20
REPLICAS_AHEAD: Final = "replicasAhead.json"  # below config/, ours: who has what this log has lost
_DAY_MS: Final = 86_400_000
SECTOR: Final = 512  # bytes that a disk writes whole
_YEAR_9999_MS: Final = 253_370_764_800_000


class StoreLayout:
    """Paths under one root. The commit log may live elsewhere."""

    def __init__(self, root: str, commit_log: str | None = None) -> None:
        self.root = os.path.expanduser(root)
        self.commit_log_apart = commit_log is not None  # it may have a disk of its own
        self.commit_log = (
            os.path.expanduser(commit_log) if commit_log else os.path.join(self.root, "commitlog")
        )
        # Segments made ahead wait beside the log, not in it: Apache reads every name there as an
        # offset, and half-made files must not count as log.
        self.ahead = self.commit_log.rstrip("/") + ".ahead"
        self.consume_queues = os.path.join(self.root, "consumequeue")
        self.index = os.path.join(self.root, "index")
        self.index_building = os.path.join(self.root, "index.building")  # the index is half made
        self.checkpoint = os.path.join(self.root, "checkpoint")
        self.abort = os.path.join(self.root, "abort")
        self.lock = os.path.join(self.root, "lock")
        self.reserve = os.path.join(self.root, "reserve")  # ours: Apache does not look at it
        self.lost = os.path.join(self.root, "repair.lost")  # damaged bytes that were filled
        self.replaced = os.path.join(self.root, "replaced")  # logs, and ends of them, set aside
        if commit_log:  # by renames, so on the log's disk
            self.replaced = f"{self.commit_log.rstrip('/')}.replaced"
        self.repair_pending = os.path.join(self.root, "repair.swap")  # ours: see offline.swap
        self.config = os.path.join(self.root, "config")
        self.timer_wheel = os.path.join(self.root, "timerwheel")
        self.timer_log = os.path.join(self.root, "timerlog")
        self.timer_checkpoint = os.path.join(self.config, "timercheck")

    def topic(self, topic: str) -> str:
        """The directory of a topic's consume queues."""
        return os.path.join(self.consume_queues, topic)

    def queue(self, topic: str, queue_id: int) -> str:
        """The directory of one consume queue."""
        return os.path.join(self.consume_queues, topic, str(queue_id))


def offset_name(offset: int) -> str:
    """The file name of a start offset: 20 decimal digits (Apache: UtilAll.offset2FileName)."""
    return f"{offset:020d}"


def parse_offset_name(name: str) -> int | None:
    """The start offset a file name stands for; None if it is not a segment name."""
    return int(name) if len(name) == NAME_DIGITS and name.isdecimal() else None


def index_name(now_ms: int) -> str:
    """yyyyMMddHHmmssSSS in local time (Apache: UtilAll.timeMillisToHumanString).

    A time that no calendar has, as a damaged record may say, is the nearest that one has.
    """
    now_ms = min(max(now_ms, _DAY_MS), _YEAR_9999_MS)
    moment = datetime.datetime.fromtimestamp(now_ms / 1000)
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"


# Stores of other kinds, recognised by what they leave on the disk, before anything is opened or changed.
# Apache's broker can keep queues and configuration in RocksDB, replicate its log with DLedger, and give queues other shapes. A store that was written so would seem to be empty, or to have lost its offsets, to who reads plain files only.


log = logging.getLogger("roquette.store")

_ANEW: Final = "move it away, and the queues are made anew from the log"
_MANIFEST: Final = "MANIFEST-"


class ForeignKind(Enum):
    """Kind of store that is not ours."""

    DLEDGER = auto()
    ROCKSDB_QUEUES = auto()
    ROCKSDB_CONFIG = auto()
    ROCKSDB = auto()
    """Of neither queues nor configuration: 5.5 always makes one, and seldom uses it."""
    BATCH_QUEUES = auto()
    EXTENDED_QUEUES = auto()
    COMPACTION = auto()


@dataclass(frozen=True, slots=True)
class ForeignPart:
    """Something of another kind, and its directory. `empty`: a DLedger directory without a log."""

    kind: ForeignKind
    path: str
    empty: bool = False


def find_foreign_parts(files: ReadFiles, root: str, config: str) -> Iterator[ForeignPart]:
    """Everything of other kinds in a store's directory. Reads only; raises OSError.

    Args:
        config: directory of the JSON files.
    """
    names = files.list_dir(root)
    for name in names:
        path = f"{root}/{name}"
        if name.startswith("dledger-"):
            parts = (f"{path}/data", f"{path}/index")
            yield ForeignPart(
                ForeignKind.DLEDGER, path, empty=not any(files.list_dir(part) for part in parts)
            )
    for name in names:
        path = f"{root}/{name}"
        if name != "commitlog" and is_rocksdb(files, path):
            yield ForeignPart(
                ForeignKind.ROCKSDB_QUEUES
                if name.startswith("consumequeue")
                else ForeignKind.ROCKSDB,
                path,
            )
    for name in files.list_dir(config):
        if is_rocksdb(files, f"{config}/{name}"):
            yield ForeignPart(ForeignKind.ROCKSDB_CONFIG, f"{config}/{name}")
    for topic in files.list_dir(f"{root}/batchconsumequeue"):
        yield ForeignPart(ForeignKind.BATCH_QUEUES, f"{root}/batchconsumequeue/{topic}")
    if files.list_dir(f"{root}/consumequeue_ext"):
        yield ForeignPart(ForeignKind.EXTENDED_QUEUES, f"{root}/consumequeue_ext")
    compacted = f"{root}/compaction/compactionLog"
    for topic in files.list_dir(compacted):
        yield ForeignPart(ForeignKind.COMPACTION, f"{compacted}/{topic}")


def is_rocksdb(files: ReadFiles, directory: str) -> bool:
    """Is it a RocksDB directory? Its file CURRENT names the manifest. Raises OSError."""
    names = files.list_dir(directory)
    current = f"{directory}/CURRENT"
    if "CURRENT" not in names or files.file_size(current) < 0:  # a topic may have that name
        return False
    start = read_all(files, current, len(_MANIFEST))
    return start == _MANIFEST.encode() or any(name.startswith(_MANIFEST) for name in names)


def pending_words(root: str) -> str:
    """Say why a store that a repair has changed in part is not used."""
    return (
        f"{root}: a repair was interrupted while its result took the place of the old files: "
        f"`roquette store repair {root} --in-place` ends it"
    )


def refuse_other_kinds(files: Files, layout: StoreLayout) -> None:
    """Look at a directory that is to be opened; reads only.

    Raises:
        StoreError: it holds a store of a kind that is not served here. One line: what, where, what to do.
    """
    if "," in layout.commit_log:
        raise StoreError(
            f"storePathCommitLog={layout.commit_log} names several directories: give it one, "
            "and move all commit log files there"
        )
    if files.exists(layout.repair_pending):
        raise StoreError(pending_words(layout.root))
    for strange in find_foreign_parts(files, layout.root, layout.config):
        if strange.kind is ForeignKind.ROCKSDB:
            log.warning("not read: %s is a RocksDB database", strange.path)
        elif not strange.empty:
            raise StoreError(f"{_refusal(strange, layout)}; nothing was changed")


def _refusal(strange: ForeignPart, layout: StoreLayout) -> str:
    path = strange.path
    match strange.kind:
        case ForeignKind.DLEDGER:
            return (
                f"{path} is the log of a DLedger group, which is not served here: "
                "copy the messages out with a consumer of Apache's broker, or give another storePathRootDir"
            )
        case ForeignKind.ROCKSDB_QUEUES:
            return f"{path} holds consume queues in RocksDB (storeType=defaultRocksDB), which are not served here: {_ANEW}"
        case ForeignKind.ROCKSDB_CONFIG:
            return (
                f"{path} holds topics, groups or offsets in RocksDB, which is not read here: export them to "
                f"JSON files in {layout.config} (mqadmin rocksDBConfigToJson) and move the directory away"
            )
        case ForeignKind.BATCH_QUEUES:
            return (
                f"{path} is a queue of batches (queue.type=BatchCQ), which is not served here: "
                "consume that topic with Apache's broker and delete it there"
            )
        case ForeignKind.EXTENDED_QUEUES:
            return (
                f"{path} holds extensions of consume queues (enableConsumeQueueExt=true), which are not served "
                f"here: move it and {layout.consume_queues} away, and the queues are made anew from the log"
            )
        case _:
            return (
                f"{path} is the log of a compaction topic (cleanup.policy=COMPACTION), which "
                "is not served here: set the topic to DELETE at Apache's broker, then move the compaction directory away"
            )
