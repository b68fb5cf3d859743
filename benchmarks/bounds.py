"""Memory of a server whose tables are full: python -m benchmarks.bounds

Each table of the broker and of the name server is filled to its bound by its own functions, with names of 30 characters,
and the growth of the process is printed.
"""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from roquette.broker.floor.tables import bounds
from roquette.broker.floor.tables.bounds import BoundSettings, LockTable
from roquette.broker.floor.tables.consumers import ConsumerTable, ProducerTable
from roquette.broker.floor.tables.groups import GroupTable
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.broker.floor.tables.topics import TopicTable
from roquette.message.message import MessageQueue
from roquette.nameserver.floor import config as name_server_bounds
from roquette.nameserver.floor.identity import BrokerIdentity, Registration
from roquette.nameserver.floor.route_table import RouteTable
from roquette.wire.bodies import DataVersion, TopicConfig


def resident() -> int:
    """Bytes of the process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def name(number: int) -> str:
    """A name of 30 characters."""
    return f"a-name-of-thirty-ch-{number:010}"


def groups() -> Any:
    table = GroupTable(0)
    for number in range(BoundSettings().max_subscription_groups - len(table.all())):
        table.find(name(number), 0)
    return table


def topics() -> Any:
    table = TopicTable(0)
    for number in range(BoundSettings().max_auto_created_topics):
        table.ensure(name(number), queues=4, perm=6, now_ms=0)
    return table


def offsets() -> Any:
    table = OffsetTable(0)
    for number in range(BoundSettings().max_consumer_offsets):
        table.commit(name(number // 8), name(number // 80), number % 8, number + 1_000_000)
        table.told()
    return table


def pulled() -> Any:
    table = OffsetTable(0)
    for number in range(bounds.PULLED * 8):
        table.commit_pull(name(number // 8), "T", number % 8, number + 1_000_000)
    return table


def consumers() -> Any:
    table = ConsumerTable()
    for number in range(bounds.CHANNELS):
        table.register(
            name(number),
            cast(Any, SimpleNamespace(id=number // 20)),
            client_id=f"10.0.0.1@{number // 20}",
            language="JAVA",
            version=1,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=[],
            now_ms=0,
        )
    return table


def producers() -> Any:
    table = ProducerTable()
    for number in range(bounds.CHANNELS):
        peer = cast(Any, SimpleNamespace(id=number // 20))
        who = f"10.0.0.1@{number // 20}"
        table.register(name(number), peer, client_id=who, language="JAVA", version=1, now_ms=0)
    return table


def locks() -> Any:
    table = LockTable()
    for number in range(bounds.LOCKS):
        queue = MessageQueue(name(number // 8), "broker-a", number % 8)
        table.lock(name(number // 80), "10.0.0.1@7", [queue], 0)
    return table


def routes() -> Any:
    table = RouteTable()
    of_each = 100_000
    for number in range(name_server_bounds.TOPICS // of_each):
        said = Registration(
            identity=BrokerIdentity("c", f"broker-{number}", f"10.0.0.{number}:10911", 0),
            topics={name(n): TopicConfig(topic_name=name(n)) for n in range(of_each)},
            data_version=DataVersion(counter=1, state_version=0, timestamp=0),
            connection=number,
            now_ms=0,
        )
        table.register(said)
    return table


def main() -> None:
    """Print a line for each table."""
    steps: tuple[Callable[[], Any], ...] = (
        groups, topics, offsets, pulled, consumers, producers, locks, routes,
    )  # fmt: skip
    for step in steps:
        if os.fork():  # each in a process of its own: what another freed is not used again
            os.wait()
            continue
        before = resident()
        kept = step()
        print(f"{step.__name__:10} {(resident() - before) / 1e6:6.0f} MB", flush=True)
        del kept
        os._exit(0)


if __name__ == "__main__":
    main()
