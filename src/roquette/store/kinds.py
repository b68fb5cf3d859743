"""Stores of other kinds, told by what they leave on the disk, before anything is opened or changed.

Apache's broker can keep queues and configuration in RocksDB, replicate its log
with DLedger, and give queues other shapes. A store that was written so would seem to be empty, or to have
lost its offsets, to who reads plain files only.
"""

import logging
import os

from roquette.base.files import Files
from roquette.errors import StoreError
from roquette.store.layout import StoreLayout

log = logging.getLogger("roquette.store")

_ANEW = "move it away, and the queues are made anew from the log"


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
    said = _replicated(files, layout) or _rocksdb(files, layout) or _queues(files, layout)
    if said is not None:
        raise StoreError(f"{said}; nothing was changed")


def _replicated(files: Files, layout: StoreLayout) -> str | None:
    for name in files.list_dir(layout.root):
        if name.startswith("dledger-") and _holds_files(files, os.path.join(layout.root, name)):
            return (
                f"{os.path.join(layout.root, name)} is the log of a DLedger group, which is not served here: "
                "copy the messages out with a consumer of Apache's broker, or give another storePathRootDir"
            )
    return None


def _rocksdb(files: Files, layout: StoreLayout) -> str | None:
    """RocksDB directories: consume queues, configuration."""
    for name in files.list_dir(layout.root):
        path = os.path.join(layout.root, name)
        if not is_rocksdb(files, path):
            continue
        if name.startswith("consumequeue"):
            return f"{path} holds consume queues in RocksDB (storeType=defaultRocksDB), which are not served here: {_ANEW}"
        log.warning("not read: %s is a RocksDB database", path)  # 5.5 always makes one
    for name in files.list_dir(layout.config):
        path = os.path.join(layout.config, name)
        if is_rocksdb(files, path):
            return (
                f"{path} holds topics, groups or offsets in RocksDB, which is not read here: export them to "
                f"JSON files in {layout.config} (mqadmin rocksDBConfigToJson) and move the directory away"
            )
    return None


def _queues(files: Files, layout: StoreLayout) -> str | None:
    """Queues of other shapes than 20-byte units."""
    batch = os.path.join(layout.root, "batchconsumequeue")
    if topic := _first_name(files, batch):
        return (
            f"{os.path.join(batch, topic)} is a queue of batches (queue.type=BatchCQ), which is not served here: "
            "consume that topic with Apache's broker and delete it there"
        )
    extended = os.path.join(layout.root, "consumequeue_ext")
    if _first_name(files, extended):
        return (
            f"{extended} holds extensions of consume queues (enableConsumeQueueExt=true), which are not served "
            f"here: move it and {layout.consume_queues} away, and the queues are made anew from the log"
        )
    compacted = os.path.join(layout.root, "compaction", "compactionLog")
    if topic := _first_name(files, compacted):
        return (
            f"{os.path.join(compacted, topic)} is the log of a compaction topic (cleanup.policy=COMPACTION), which "
            "is not served here: set the topic to DELETE at Apache's broker, then move the compaction directory away"
        )
    return None


def is_rocksdb(files: Files, directory: str) -> bool:
    """Is it a RocksDB directory? Its file CURRENT names the manifest."""
    try:
        return files.read_bytes(os.path.join(directory, "CURRENT")).startswith(b"MANIFEST-")
    except (
        FileNotFoundError,
        NotADirectoryError,
        IsADirectoryError,
    ):  # the last: a topic of that name
        return False


def _first_name(files: Files, directory: str) -> str | None:
    names = files.list_dir(directory)
    return names[0] if names else None


def _holds_files(files: Files, directory: str) -> bool:
    return any(files.list_dir(os.path.join(directory, name)) for name in ("data", "index"))
