"""How fast `roquette store fsck` goes through a store of 1 KiB messages, by its parts.

usage: python -m benchmarks.fsck [--gib N] [--body BYTES] [--jobs N]

The store is made first, in a temporary directory, and read once, so that the page cache is warm. CPU seconds are
told beside wall seconds: on a machine that does other things they are what the check itself costs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from roquette.base.files import OsFiles, OsReadFiles
from roquette.message.record_layout import Draft
from roquette.store.audit.findings import Findings
from roquette.store.format import log_reader as scan_module
from roquette.store.format.config import StoreConfig
from roquette.store.format.log_reader import END, LogReader
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import LogTask
from roquette.store.offline.index_check import IndexTask, find_specs
from roquette.store.offline.store_dir import find_store

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
START_MS = 1_700_000_000_000


def make(root: str, size: int, body_size: int) -> int:
    """A store of 8 queues, every message with a unique id and a tag; returns the number of messages."""
    store = MessageStore(StoreConfig(root_dir=root, delete_when=""), OsFiles(), HOST)
    store.open(START_MS)
    body = os.urandom(body_size)
    count = 0
    while store.max_physical_offset < size:
        for _ in range(1000):
            key = f"7F000001{count:024X}"
            text = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
            at = START_MS + count
            store.append(Draft("bench", count % 8, text.encode(), body, at, HOST), at)
            count += 1
        store.write_pending()
        store.take_arrivals()
    store.close(START_MS + count)
    return count


def warm(root: str) -> None:
    """Read everything once."""
    for path in Path(root).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def timed(name: str, size: int, work: Callable[[], object]) -> None:
    """Run once and print what it took."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(
        f"{name:32} {cpu:7.2f} s CPU {size / cpu / 1e6:7.0f} MB/s   {wall:7.2f} s {size / wall / 1e6:7.0f} MB/s"
    )


def scan(path: str, check_crc: bool) -> None:
    """Only the records of one file."""
    source = OsReadFiles().open_file(path)
    scanner = LogReader(source, 0, check_crc)
    while scanner.advance() != END:
        pass
    source.close()


def main() -> None:
    """Make a store, check it, remove it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--jobs", type=int, default=0)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquette-fsck-") as root:
        count = make(root, int(words.gib * (1 << 30)), words.body)
        warm(root)
        files = OsReadFiles()
        store = find_store(files, root)
        specs = find_specs(files, store, None, False, Findings())
        first = store.log[0]
        size = LogTask(files, store, [], False)(first).bytes
        total = int(words.gib * (1 << 30))
        print(f"{count} messages, {scan_module.__file__}")
        timed("first file: headers", size, lambda: scan(first.path, False))
        timed("first file: and CRCs", size, lambda: scan(first.path, True))
        timed("first file: and queues", size, lambda: LogTask(files, store, [], True)(first))
        timed("first file: and index", size, lambda: LogTask(files, store, specs, True)(first))
        chains = IndexTask(files, store, 1 << 62, False)
        timed("index in itself", total, lambda: [chains(spec) for spec in specs])
        command = [str(Path(sys.executable).with_name("roquette")), "store", "fsck", root]
        began = time.perf_counter()
        subprocess.run([*command, "-j", str(words.jobs)], check=True)
        wall = time.perf_counter() - began
        print(f"{'roquette store fsck':32} {wall:7.2f} s {total / wall / 1e6:7.0f} MB/s")


if __name__ == "__main__":
    main()
