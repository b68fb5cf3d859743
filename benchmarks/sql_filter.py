"""What SQL92 costs the broker: CPU per message beyond the unfiltered pull, through the whole path without sockets.

A queue of a million messages is read to its end by one reader after the other, bytes in and bytes out. Runs in either
environment: `.venv/bin/python benchmarks/sql_filter.py`, `.venv-compiled/bin/python ...`; --count N for fewer messages.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.instruction_bench import Sink
from benchmarks.micro import BODY, HOST, NOW_MS, frames
from roquette.apps.features import broker_features
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker
from roquette.filter import sql_eval
from roquette.message.record_layout import Draft
from roquette.store.format.config import StoreConfig
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.headers import PullMessageRequestHeader

LIMIT_US = 3.0
READERS = (
    ("unfiltered", "TAG", "*"),
    ("tags, none wanted", "TAG", "TagZ"),
    ("SQL92, all wanted: price > 0", "SQL92", "price > 0"),
    ("SQL92, half wanted: parity = 'odd'", "SQL92", "parity = 'odd'"),
    ("SQL92, none wanted: price > 100000", "SQL92", "price > 100000"),
    (
        "SQL92, two properties, 1 in 40 wanted",
        "SQL92",
        "price BETWEEN 100 AND 149 AND region IN ('eu-1', 'eu-2')",
    ),
    (
        "SQL92, four conditions, half wanted",
        "SQL92",
        "(parity = 'odd' AND price >= 0) OR (region CONTAINS 'us' AND weight > 1.5)",
    ),
)


def fill(broker: Broker, count: int) -> None:
    """Messages as an application sends them: four properties of its own beside the usual ones."""
    store = broker.store
    for number in range(count):
        text = (
            f"UNIQ_KEY\x017F000001ABCD0DA14E0C0000{number:08X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
            f"price\x01{number % 1000}\x02parity\x01{'odd' if number & 1 else 'even'}\x02"
            f"region\x01eu-{number % 4}\x02weight\x01{number % 7}.25\x02"
        )
        store.append(Draft("Bench", 0, text.encode(), BODY, NOW_MS, HOST), NOW_MS)
        if number % 64 == 0:
            store.write_pending()
            store.take_arrivals()
    store.write_pending()
    store.take_arrivals()


def request(kind: str, expression: str, offset: int) -> bytes:
    """One pull as a frame."""
    header = PullMessageRequestHeader(
        consumer_group="bench",
        topic="Bench",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=kind,
    )
    return frames(11, [encode_ext(header)], b"")


async def read_all(broker: Broker, kind: str, expression: str) -> float:
    """CPU seconds to read the queue to its end."""
    sink = Sink()
    protocol = broker._listeners._servers[0]._new_protocol()
    protocol.connection_made(sink)
    spent, offset, end = 0, 0, broker.store.max_offset("Bench", 0)
    while offset < end:
        data = request(kind, expression, offset)
        start = time.process_time_ns()
        protocol.data_received(data)
        while not sink.written:
            await asyncio.sleep(0)
        spent += time.process_time_ns() - start
        reply = WireConnection().receive_data(sink.taken())[0]
        assert reply.code in (0, 20), reply
        offset = int(ext_dict(reply.ext)["nextBeginOffset"])
    return spent / 1e9


async def measure(folder: Path, count: int, rounds: int) -> None:
    """Print a line per reader; the exit code says whether the limit holds."""
    config = BrokerConfig(
        broker_name="bench", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0
    )
    store = StoreConfig(root_dir=str(folder), segment_size=256 << 20, index_enable=False)
    broker = Broker(
        config, store, broker_features, files=OsFiles(), clock=SystemClock(), entropy=Entropy(1)
    )
    await broker.start()
    broker.tables.topics.ensure("Bench", queues=1, perm=6, now_ms=NOW_MS)
    fill(broker, count)
    gc.freeze()
    form = "compiled" if (sql_eval.__file__ or "").endswith(".so") else "interpreted"
    print(f"{form}, {count} messages, best of {rounds}: broker CPU per message")
    plain = 0.0
    for title, kind, expression in READERS:
        best = min([await read_all(broker, kind, expression) for _ in range(rounds)])
        each = best / count * 1e6
        plain = plain or each
        print(f"  {title:40} {each:6.3f} µs  {each - plain:+6.3f}", flush=True)
        if form == "compiled" and each - plain > LIMIT_US:
            print(f"    above the limit of {LIMIT_US} µs")
    await broker.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquette-bench-sql-") as name:
        asyncio.run(measure(Path(name), chosen.count, chosen.rounds))


if __name__ == "__main__":
    main()
