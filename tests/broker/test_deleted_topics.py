"""A topic that was deleted and made again, over crashes: it has its own messages, all of them, and none of the older one's."""

import asyncio
from typing import Any

import pytest
from tests.broker.conftest import RawClient, send_ext
from tests.broker.promise_cases import TOPIC

from roquette.base.bounds import Bound
from roquette.broker.floor.config_files import ConfigFiles
from roquette.broker.floor.deletions import FILE, DeletedTopics, DeletedTopicTable
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.faulty_files import FaultyFiles

IP = "10.0.1.1"


async def ask(code: int, ext: dict[str, Any], body: bytes = b"") -> None:
    client = RawClient(*await asyncio.open_connection(IP, 10911))
    reply = await client.call(code, ext, body)
    assert reply.code == 0, reply.remark


async def put(queue: int) -> None:
    await ask(310, send_ext(queue_id=queue), b"m")


def ends(cluster: SimCluster) -> list[int]:
    store = cluster.hosts[IP].service.store
    return [store.max_offset("T", queue) for queue in range(2)]


async def broker(cluster: SimCluster) -> None:
    await cluster.add_namesrv("10.0.0.1")
    await cluster.add_broker(IP, "broker-a")
    await ask(17, TOPIC | {"topic": "T"})


@pytest.mark.promise("Answers", "a deleted topic stays deleted")
def test_a_topic_that_was_made_again_begins_with_nothing_of_the_older_one() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await broker(cluster)
        for queue in (0, 0, 1, 1):
            await put(queue)
        await ask(215, {"topic": "T"})
        await ask(17, TOPIC | {"topic": "T"})
        await put(0)
        for _ in range(2):
            cluster.kill(IP)
            await cluster.restart(IP)
            assert ends(cluster) == [1, 0]

    simulate(scenario)


class Store:
    """What `DeletedTopics` asks of one."""

    def __init__(self, begin: int, end: int) -> None:
        self.min_physical_offset, self.max_physical_offset = begin, end
        self.dropped: list[tuple[str, int]] = []

    def drop_queues_before(self, topic: str, end: int) -> None:
        self.dropped.append((topic, end))


def kept(**marks: int) -> ConfigFiles:
    files = FaultyFiles()
    files.make_dirs("/c")
    config = ConfigFiles(files, "/c")
    config.save(FILE, DeletedTopicTable(marks))
    return config


def table(store: Any, config: ConfigFiles) -> DeletedTopics:
    made = DeletedTopics(config, store, Bound("deleted topics", 2, "wait"))
    made.load()
    return made


def test_what_comes_where_a_loss_of_power_has_cut_the_log_is_of_a_later_topic() -> None:
    store, config = Store(0, 100), kept(T=150)
    assert table(store, config).marks == {"T": 100}
    assert store.dropped == [("T", 100)]
    store.max_physical_offset = 200
    assert table(store, config).marks == {"T": 100}, "for ever"


def test_a_replica_has_its_masters_marks_and_obeys_when_its_log_has_come_so_far() -> None:
    store = Store(0, 100)
    marks = table(store, kept(expired=10, undone=60))
    store.dropped.clear()
    marks.follow({"a": 90, "b": 150}, begin=20)
    assert marks.marks == {"expired": 10, "a": 90, "b": 150}, (
        "the master knows no deletion of `undone`"
    )
    assert marks.due == 150 and ("b", 150) in store.dropped
    store.max_physical_offset = 150
    marks.obey()
    assert marks.due > 1 << 62
    changes = marks.changes
    marks.follow({"a": 90, "b": 150}, begin=20)
    assert marks.changes == changes, "nothing new"
    marks.follow({str(number): 200 + number for number in range(9)}, begin=20)
    assert list(marks.marks) == ["5", "6", "7", "8"], "twice the bound, the newest"
    marks.made("5")
    store.min_physical_offset = 206
    assert marks.marks == {"7": 207, "8": 208}
