"""The timer: memory with many messages waiting, lateness when many fall due, catching up after a stop.

Runs in either environment: `.venv/bin/python benchmarks/timer.py`, `.venv-compiled/bin/python ...`. The broker is
in this process, on a real loop, a real clock and real files; messages are put as a send puts them.

    --pending 10000000   how many wait for the memory figure (several minutes; 0: not measured)
    --rate 20000         messages a second that fall due, for --seconds 20
    --catch-up 500000    how many are due when the broker starts again
"""

import argparse
import asyncio
import gc
import json
import os
import random
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from roquette.apps.features import broker_features
from roquette.apps.running import settle_memory
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.executor import use_worker_threads
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker
from roquette.broker.timers.feature import TimerFeature
from roquette.message.properties import property_value
from roquette.message.record_layout import Draft
from roquette.store.format.config import StoreConfig

BODY = b"x" * 128
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
TOPIC, TIMER_TOPIC = "Bench", "rmq_sys_wheel_timer"
QUEUES = 8
CHUNK = 500  # messages put between two turns of the loop
_HEAD = struct.Struct(">q")


def resident_mb(field: str) -> float:
    """A line of this process's status: RssAnon is memory that no file backs."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(field + ":")[1].split()[0]) / 1024


async def begin(folder: Path) -> Broker:
    """A broker on `folder`."""
    broker = Broker(
        BrokerConfig(broker_name="bench", bind_address="127.0.0.1", listen_port=0),
        StoreConfig(root_dir=str(folder), disk_warning_ratio=99, disk_max_used_ratio=98,
                    disk_clean_forcibly_ratio=99),
        broker_features, files=OsFiles(),
        clock=SystemClock(),
        entropy=Entropy(),
    )  # fmt: skip
    await broker.start()
    settle_memory()
    return broker


async def fill(broker: Broker, times_ms: Any, count: int) -> float:
    """Put `count` messages, each due at the next of `times_ms`; returns seconds taken until all are in the wheel."""
    began = time.perf_counter()
    clock, put = SystemClock(), broker.core.writer.put
    for start in range(0, count, CHUNK):
        now_ms = clock.now_ms()
        for number in range(start, min(start + CHUNK, count)):
            named = {
                "UNIQ_KEY": f"7F000001ABCD0DA14E0C{number:012X}",
                "WAIT": "true",
                "TAGS": "TagA",
                "TIMER_DELIVER_MS": str(next(times_ms)),
            }
            put(Draft(TOPIC, number % QUEUES, b"", BODY, now_ms, HOST), named, now_ms)
        broker.end_turn()
        await asyncio.sleep(0)
        assert broker.feature(TimerFeature).timer is not None
        while broker.feature(TimerFeature).timer.timers.behind() > 20_000:
            await asyncio.sleep(0)
    assert broker.feature(TimerFeature).timer is not None
    while broker.feature(TimerFeature).timer.timers.behind():
        await asyncio.sleep(0.01)
    return time.perf_counter() - began


def delivered(broker: Broker) -> int:
    """Messages in the real topic."""
    return sum(broker.store.max_offset(TOPIC, queue) for queue in range(QUEUES))


def lateness(broker: Broker) -> list[int]:
    """For each delivered message: ms after the time asked for."""
    asked: list[int] = []
    for queue in range(QUEUES):
        for offset in range(broker.store.max_offset(TOPIC, queue)):
            units = broker.store.queue_units(TOPIC, queue, offset, 1)
            assert units is not None
            data = broker.store.read_log(units[0][0], units[0][0] + units[0][1])
            (stored_ms,) = _HEAD.unpack_from(data, 56)
            text = data[-400:].decode("latin1")
            deliver_ms = int(property_value(text, "TIMER_DELIVER_MS") or 0)
            asked.append(stored_ms - deliver_ms)
    return sorted(asked)


def line(values: list[int]) -> dict[str, int]:
    """Smallest, median, p99 and largest."""
    return {
        "min": values[0],
        "p50": values[len(values) // 2],
        "p99": values[len(values) * 99 // 100],
        "max": values[-1],
    }


async def measure_pending(folder: Path, count: int) -> dict[str, Any]:
    """Memory with `count` messages waiting, spread over three days; then after a restart."""
    broker = await begin(folder)
    before = resident_mb("RssAnon")
    start_ms = SystemClock().now_ms()
    rng = random.Random(1)
    times = iter(lambda: start_ms + rng.randrange(3_600_000, 3 * 86_400_000 - 7_200_000), None)
    took = await fill(broker, times, count)
    await asyncio.sleep(3)
    after = resident_mb("RssAnon")
    assert broker.feature(TimerFeature).timer is not None
    pending = broker.feature(TimerFeature).timer.timers.storage.wheel.pending
    await broker.stop()
    del broker
    gc.collect()
    began = time.perf_counter()
    broker = await begin(folder)
    restart_s = time.perf_counter() - began
    assert broker.feature(TimerFeature).timer is not None
    assert broker.feature(TimerFeature).timer.timers.storage.wheel.pending == pending == count
    await broker.stop()
    return {
        "pending": count,
        "put a second": round(count / took),
        "anonymous MB before": round(before, 1),
        "anonymous MB after": round(after, 1),
        "restart s": round(restart_s, 2),
    }


async def measure_rate(folder: Path, rate: int, seconds: int) -> dict[str, Any]:
    """Lateness while `rate` messages a second fall due."""
    broker = await begin(folder)
    count = rate * seconds
    rng = random.Random(2)
    first_ms = SystemClock().now_ms() + 15_000 + count // 12
    times = iter([first_ms + rng.randrange(seconds * 1000) for _ in range(count)])
    await fill(broker, times, count)
    ahead_s = first_ms / 1000 - time.time()
    assert ahead_s > 0, f"filling took {-ahead_s:.1f} s too long"
    cpu = time.process_time()
    await asyncio.sleep(ahead_s + seconds + 5)
    spent = time.process_time() - cpu
    assert delivered(broker) == count, (delivered(broker), count)
    asked = lateness(broker)
    await broker.stop()
    return {
        "due a second": rate,
        "seconds": seconds,
        "ms after the time asked for": line(asked),
        "CPU µs a message": round(spent * 1e6 / count, 1),
    }


async def measure_catch_up(folder: Path, count: int) -> dict[str, Any]:
    """How fast a broker that was stopped delivers what fell due meanwhile."""
    broker = await begin(folder)
    rng = random.Random(3)
    span_ms = max(10_000, count // 20)
    first_ms = SystemClock().now_ms() + 10_000 + count // 12
    times = iter([first_ms + rng.randrange(span_ms) for _ in range(count)])
    await fill(broker, times, count)
    assert delivered(broker) == 0, "filling took too long"
    await broker.stop()
    await asyncio.sleep(max(0.0, (first_ms + span_ms) / 1000 - time.time() + 1.1))
    began = time.perf_counter()
    broker = await begin(folder)
    started = time.perf_counter()
    while delivered(broker) < count:
        await asyncio.sleep(0.005)
    done = time.perf_counter()
    await broker.stop()
    return {
        "due": count,
        "delivered a second": round(count / (done - started)),
        "start s": round(started - began, 2),
    }


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All that was asked for."""
    threads = use_worker_threads(asyncio.get_running_loop())
    found: dict[str, Any] = {}
    if arguments.rate:
        found["due"] = await measure_rate(folder / "due", arguments.rate, arguments.seconds)
        print(json.dumps(found["due"]), flush=True)
    if arguments.catch_up:
        found["catch-up"] = await measure_catch_up(folder / "catch-up", arguments.catch_up)
        print(json.dumps(found["catch-up"]), flush=True)
    if arguments.pending:
        found["pending"] = await measure_pending(folder / "pending", arguments.pending)
        print(json.dumps(found["pending"]), flush=True)
    threads.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=0)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--catch-up", type=int, default=500_000)
    parser.add_argument("--folder", default=None, help="where the stores are made")
    arguments = parser.parse_args()
    os.environ.setdefault("ROQUETTE_LOG_LEVEL", "WARNING")
    with tempfile.TemporaryDirectory(prefix="roquette-bench-timer-", dir=arguments.folder) as name:
        uvloop.run(measure(arguments, Path(name)))


if __name__ == "__main__":
    main()
