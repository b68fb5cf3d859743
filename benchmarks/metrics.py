"""What a scrape costs a broker with very many topics, and whether anybody waits for it, or for anything else.

Runs in either environment: `.venv/bin/python benchmarks/metrics.py`, `.venv-compiled/bin/python ...`. The broker is in this process, on
a real loop and real files; a scrape goes through its pieces as a connection does, one each turn. Every topic has messages in
every queue and a group that has got some of them. Figures are CPU of the loop's thread, so other processes do not count.

    --topics 10000   each with four queues
    --samples 30000  metricsMaxSamples
    --seconds 65     how long the loop is watched besides: every beat of the broker comes at least once
"""

import argparse
import asyncio
import asyncio.events
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

from roquette.apps.features import broker_features
from roquette.apps.running import settle_memory
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.executor import use_worker_threads
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.operation.metrics import MetricsFeature
from roquette.broker.service import Broker
from roquette.message.record_layout import Draft
from roquette.store.format.config import StoreConfig
from roquette.wire.bodies import TopicConfig

QUEUES = 4
SCRAPES = 10
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
CHUNK = 100  # topics filled between two turns of the loop


class Meter:
    """CPU of each callback that the loop runs, seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        run = asyncio.events.Handle._run

        def timed(handle: Any) -> None:
            began = time.thread_time()
            run(handle)
            self.longest = max(self.longest, time.thread_time() - began)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]

    def take_ms(self) -> float:
        """The longest since the last call."""
        longest, self.longest = self.longest, 0.0
        return round(longest * 1000, 1)


async def begin(folder: Path, topics: int, samples: int) -> Broker:
    """A broker on `folder`, every queue of whose topics has a message."""
    broker = Broker(
        BrokerConfig(broker_name="bench", bind_address="127.0.0.1", listen_port=0,
                     metrics_max_samples=samples),
        StoreConfig(root_dir=str(folder), queue_file_size=4_000, segment_size=64 << 20,
                    disk_warning_ratio=99, disk_max_used_ratio=98, disk_clean_forcibly_ratio=99),
        broker_features, files=OsFiles(),
        clock=SystemClock(),
        entropy=Entropy(),
    )  # fmt: skip
    await broker.start()
    for number in range(topics):
        config = TopicConfig(
            topic_name=topic_name(number), read_queue_nums=QUEUES, write_queue_nums=QUEUES
        )
        broker.tables.topics.put(config, broker.core.clock.now_ms())
        for queue in range(QUEUES):
            use(broker, number, queue)
        if number % CHUNK == 0:
            broker.end_turn()
            await asyncio.sleep(0)
    broker.end_turn()
    settle_memory()
    return broker


def topic_name(number: int) -> str:
    """Of a topic; its group has a name of the same length."""
    return f"topic-{number:05}"


def use(broker: Broker, number: int, queue: int) -> None:
    """A message is put, another got, and an offset committed, as requests do it."""
    name, group, now_ms = topic_name(number), f"group-{number:05}", broker.core.clock.now_ms()
    broker.store.append(Draft(name, queue, b"", b"x" * 100, now_ms, HOST), now_ms)
    topic = broker.tables.topics.find(name)
    assert topic is not None
    topic.put_count += 1
    topic.put_bytes += 100
    broker.core.stats.group_get(name, group, 1, 100)
    broker.tables.offsets.commit(group, name, queue, 1, now_ms)


async def scrape(broker: Broker) -> tuple[float, float, bytes]:
    """CPU seconds, the longest piece (ms), and the text."""
    pieces, text = broker.feature(MetricsFeature)._scrape(), []
    spent = longest = 0.0
    while True:
        began = time.thread_time()
        piece = next(pieces, None)
        took = time.thread_time() - began
        spent += took
        longest = max(longest, took)
        if piece is None:
            return spent, longest * 1000, b"".join(text)
        text.append(piece)
        await asyncio.sleep(0)


async def main(options: argparse.Namespace) -> None:
    """Scrape, watch, print."""
    threads = use_worker_threads(asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as folder:
        broker = await begin(Path(folder), options.topics, options.samples)
        await asyncio.sleep(25)  # counters and ages are there
        found = [await scrape(broker) for _ in range(SCRAPES)]
        lines = [line for line in found[-1][2].splitlines() if not line.startswith(b"#")]
        meter = Meter()
        ends, number = time.monotonic() + options.seconds, 0
        while time.monotonic() < ends:
            number = (number + 7919) % options.topics
            use(broker, number, number % QUEUES)
            broker.end_turn()
            await asyncio.sleep(0.001)
        result = {
            "topics": options.topics,
            "samples": len(lines),
            "bytes": len(found[-1][2]),
            "scrape, CPU s": round(sorted(each[0] for each in found)[SCRAPES // 2], 3),
            "longest piece of a scrape, CPU ms": round(max(each[1] for each in found), 1),
            "longest callback of the loop, CPU ms": meter.take_ms(),
        }
        print(json.dumps(result, indent=1))
        await broker.stop()
    threads.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--seconds", type=float, default=65.0)
    logging.disable(logging.CRITICAL)
    asyncio.run(main(parser.parse_args()))
