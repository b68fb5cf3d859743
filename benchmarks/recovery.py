"""How long a broker takes from start to ready on a big store, after kill -9 and after a clean stop.

Runs in either environment: `.venv/bin/python benchmarks/recovery.py`, `.venv-compiled/bin/python ...`. A process
fills a store as a broker would at full speed (log and queues synced beside it, files made ahead) and is killed
in the middle of its appends, or closes the store. Then a broker starts on it.

    --gigabytes 10 --body 1024    the store
    --end kill,stop               what ends the filling; both need the store once only
    --directory DIR               where; it is removed at the end
    --cold                        drop the store from the page cache before each start
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from roquette.base.files import OsFiles
from roquette.message.record_layout import Draft
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
TOPIC, QUEUES, TURN = "BenchRecovery", 8, 200
DISK = (
    "diskMaxUsedSpaceRatio=95",
    "diskSpaceWarningLevelRatio=98",
    "diskSpaceCleanForciblyRatio=97",
)


def fill(directory: str, size: int, body: int, clean: bool) -> None:
    """Append until somebody kills this process, or up to the size and close."""
    store = MessageStore(StoreConfig(root_dir=directory), OsFiles(), HOST)
    store.open(now_ms())
    data, n = os.urandom(body), 0
    flushed = synced = time.monotonic()
    told = False
    while not (clean and told):
        stamp = now_ms()
        for _ in range(TURN):
            key = f"7F000001{n:024X}"
            named = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02"
            store.append(Draft(TOPIC, n % QUEUES, named.encode(), data, stamp, HOST), stamp)
            n += 1
        store.write_pending()
        store.take_arrivals()
        now = time.monotonic()
        if now - synced > 0.5:
            synced = now
            if plan := store.plan_sync():
                plan.run()
                store.synced(plan)
            if ahead := store.plan_allocation():
                ahead.run()
                store.allocated(ahead)
        if now - flushed > 1:
            flushed = now
            if flush := store.plan_queue_flush(stamp):
                flush.run()
                store.queues_flushed(flush)
        if store.max_physical_offset >= size and not told:
            told = True
            print(n, flush=True)
    store.close(now_ms())


def now_ms() -> int:
    """The time of day."""
    return int(time.time() * 1000)


def start(directory: str, cold: bool) -> dict[str, Any]:
    """Start a broker on the store, stop it cleanly; seconds to ready and memory, MB."""
    if cold:
        drop_cache(Path(directory))
    words = [word for setting in DISK for word in ("--set", setting)]
    main = "from roquette.apps.main import main; main()"
    command = [sys.executable, "-c", main, "broker", "--listen", "127.0.0.1:0"]
    with tempfile.TemporaryFile("w+") as said:
        began = time.monotonic()
        child = subprocess.Popen(
            [*command, "--store", directory, *words], stdout=subprocess.PIPE, stderr=said, text=True
        )
        assert child.stdout is not None
        peaks = [0]
        sampler = threading.Thread(target=sample, args=(child.pid, peaks), daemon=True)
        sampler.start()
        line = child.stdout.readline()
        took = time.monotonic() - began
        after = anonymous_kb(child.pid)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=120)
        sampler.join()
        said.seek(0)
        log = said.read()
    if not line.startswith("ready"):
        raise SystemExit(f"the broker ended with {child.returncode}:\n{log}")
    report = next((line for line in log.splitlines() if "report=" in line), "")
    return {
        "seconds": round(took, 2),
        "anonymous_mb_peak": round(peaks[0] / 1024, 1),
        "anonymous_mb_ready": round(after / 1024, 1),
        "progress_lines": sum("recovery: read" in line for line in log.splitlines()),
        "report": report.partition("report=")[2],
    }


def sample(pid: int, peaks: list[int]) -> None:
    """Keep the most memory a process has until it ends."""
    while found := anonymous_kb(pid):
        peaks[0] = max(peaks[0], found)
        time.sleep(0.01)


def anonymous_kb(pid: int) -> int:
    """RssAnon of a process; 0 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = text.partition("RssAnon:")[2].split()
    return int(found[0]) if found else 0


def drop_cache(directory: Path) -> None:
    """Have the system forget what it has cached of the files."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def measure(directory: str, arguments: argparse.Namespace) -> None:
    """Fill, end, start; one line of JSON for every start."""
    size = int(arguments.gigabytes * (1 << 30))
    for end in arguments.end.split(","):
        if end == "kill":
            began = time.monotonic()
            words = ["--fill", directory, "--gigabytes", str(arguments.gigabytes)]
            child = subprocess.Popen(
                [sys.executable, __file__, *words, "--body", str(arguments.body)],
                stdout=subprocess.PIPE,
            )
            assert child.stdout is not None
            count = int(child.stdout.readline())
            time.sleep(0.7)  # it goes on: death comes in the middle of appends
            child.kill()
            child.wait()
            took = time.monotonic() - began
            print(json.dumps({"filled": count, "bytes": size, "seconds": round(took, 1)}))
        elif not Path(directory, "checkpoint").exists():
            fill(directory, size, arguments.body, clean=True)
        print(
            json.dumps({"after": end, "body": arguments.body, **start(directory, arguments.cold)})
        )


def main() -> int:
    """Measure, or be the process that fills."""
    parser = argparse.ArgumentParser(prog="benchmarks/recovery.py", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--end", default="kill,stop")
    parser.add_argument("--directory")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        fill(arguments.fill, int(arguments.gigabytes * (1 << 30)), arguments.body, clean=False)
        return 0
    directory = tempfile.mkdtemp(prefix="roquette-recovery-", dir=arguments.directory)
    try:
        measure(directory, arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
