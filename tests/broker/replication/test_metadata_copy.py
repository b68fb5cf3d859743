"""A replica's tables are its master's, over the requests that brokers make, and a restart as master finds them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.conftest import RawClient, send_ext
from tests.broker.promise_cases import TOPIC

from roquette.apps.features import broker_features, replica_features
from roquette.broker.floor.config_files import DELAYS, DelayProgress
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature
from roquette.broker.floor.tables.offset_journal import Change
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.broker.pop.assignment import AssignmentFeature
from roquette.broker.replication.follower import SlaveReplication
from roquette.broker.replication.metadata_copy import MetadataCopy
from roquette.broker.replication.table_feed import KEPT, OffsetFeed
from roquette.broker.service import Features
from roquette.message.record_layout import Draft
from roquette.store.format.checkpoint import decode_timer_checkpoint
from roquette.wire.header_codec import ext_dict
from roquette_testing.cluster import SimCluster, simulate

MASTER, REPLICA = "10.0.1.1", "10.0.1.2"


def tables_only(core: BrokerCore) -> list[Feature]:
    """A replica whose log the test writes."""
    return [one for one in replica_features(core) if not isinstance(one, SlaveReplication)]


class Pair:
    """A master and its replica."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    async def begin(self, features: Features) -> None:
        await self.cluster.add_namesrv("10.0.0.1")
        await self.cluster.add_broker(MASTER, "broker-a")
        await self.cluster.add_broker(REPLICA, "broker-a", features=features, broker_id=1)
        self.master = await self.client(MASTER)
        self.replica = await self.client(REPLICA)
        await self.until(lambda: not self.copy.missing)

    async def client(self, ip: str) -> RawClient:
        return RawClient(*await asyncio.open_connection(ip, 10911))

    def tables(self, ip: str) -> Any:
        return self.cluster.hosts[ip].service.core.tables

    @property
    def copy(self) -> MetadataCopy:
        return self.cluster.hosts[REPLICA].service.feature(MetadataCopy)

    async def until(self, done: Callable[[], bool], seconds: float = 5.0) -> float:
        """Wait until something is so; returns how long it took."""
        began = self.cluster.loop.time()
        while not done():
            assert self.cluster.loop.time() - began < seconds
            await asyncio.sleep(0.001)
        return self.cluster.loop.time() - began

    async def ask(self, code: int, ext: dict[str, Any], body: Any = b"") -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await self.master.call(code, ext, data)
        assert reply.code == 0, reply.remark
        return reply

    async def commit(self, offset: int, group: str = "g", topic: str = "T") -> None:
        where = {"consumerGroup": group, "topic": topic, "queueId": 0}
        await self.ask(15, where | {"commitOffset": offset})

    def offset(self, ip: str, group: str = "g", topic: str = "T") -> int:
        return int(self.tables(ip).offsets.query(group, topic, 0))

    async def promote(self) -> None:
        """The replica stops in order and is a master then."""
        host = self.cluster.hosts[REPLICA]
        await self.cluster.run_on(REPLICA, host.service.stop())
        host.service = None
        await self.cluster.add_broker(REPLICA, "broker-a", features=broker_features)

    def lengthen(self, beyond: int = 0, topic: str = "T") -> None:
        """The replica's log gets as long as the master's is, or longer."""
        broker = self.cluster.hosts[REPLICA].service
        master = self.cluster.hosts[MASTER].service
        end = 0 if master is None else master.store.max_physical_offset
        while broker.store.max_physical_offset < end + beyond:
            draft = Draft(topic, 0, b"", b"m", 1_700_000_000_000, bytes(8))
            broker.store.append(draft, broker.core.clock.now_ms())
        broker.end_turn()


def run(
    scenario: Callable[[Pair], Awaitable[None]], seed: int = 1, features: Features = tables_only
) -> None:
    async def main(cluster: SimCluster) -> None:
        pair = Pair(cluster)
        await pair.begin(features)
        await scenario(pair)

    simulate(main, seed=seed)


@pytest.mark.promise("Replication", "topics, groups and offsets follow at once")
def test_topics_groups_and_modes_come_at_once_and_go() -> None:
    async def scenario(pair: Pair) -> None:
        mine, theirs = pair.tables(REPLICA), pair.tables(MASTER)
        await pair.ask(17, TOPIC | {"topic": "T"})
        await pair.ask(200, {}, {"groupName": "g", "retryMaxTimes": 3})
        await pair.ask(353, {"group": "g", "topic": "T", "readable": "false"})
        mode = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 1}
        await pair.ask(401, {}, mode)
        took = await pair.until(
            lambda: mine.topics.find("T") is not None and mine.groups.forbidden("g", "T")
        )
        assert took < 0.1
        assert mine.topics.find("T").shown == theirs.topics.find("T").shown
        assert mine.groups.known("g").retry_max_times == 3
        modes = pair.cluster.hosts[REPLICA].service.feature(AssignmentFeature).modes
        await pair.until(lambda: "T" in modes.to_wrapper().message_request_mode_map)
        assert mine.topics.to_table() == theirs.topics.to_table()
        # A change of one, and deletions.
        await pair.ask(17, TOPIC | {"topic": "T", "readQueueNums": 7})
        await pair.until(lambda: mine.topics.find("T").read_queues == 7)
        await pair.ask(215, {"topic": "T"})
        await pair.ask(207, {"groupName": "g", "cleanOffset": "true"})
        await pair.until(lambda: mine.topics.find("T") is None and mine.groups.known("g") is None)
        await pair.until(lambda: not modes.to_wrapper().message_request_mode_map.get("T"))
        assert mine.topics.data_version == theirs.topics.data_version

    run(scenario)


@pytest.mark.promise("Replication", "topics, groups and offsets follow at once")
def test_offsets_follow_within_milliseconds_and_survive_both_ends() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.ask(17, TOPIC | {"topic": "T"})
        await pair.ask(200, {}, {"groupName": "g"})
        for offset in (5, 9, 4):
            await pair.commit(offset)
            assert await pair.until(lambda wanted=offset: pair.offset(REPLICA) == wanted) < 0.05  # type: ignore[misc]
        # The replica is killed: its journal has them.
        pair.cluster.kill(REPLICA)
        await pair.commit(6)
        pair.cluster.kill(MASTER)
        await pair.cluster.restart(REPLICA)
        assert pair.offset(REPLICA) == 4
        # The master is back, with another life: the whole table.
        await pair.cluster.restart(MASTER)
        pair.master = await pair.client(MASTER)
        await pair.until(lambda: pair.offset(REPLICA) == 6, 60)
        await pair.commit(7)
        assert await pair.until(lambda: pair.offset(REPLICA) == 7) < 0.05

    run(scenario)


def test_a_restart_as_master_finds_everything_and_corrects_what_the_log_lacks() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.ask(17, TOPIC | {"topic": "T"})
        for group, offset in (("g", 2), ("h", 50)):
            await pair.ask(200, {}, {"groupName": group})
            await pair.commit(offset, group)
        await pair.until(lambda: pair.offset(REPLICA, "h") == 50)
        await asyncio.sleep(3)
        pair.cluster.kill(MASTER)
        pair.lengthen(beyond=500)
        pair.lengthen(beyond=1000, topic="Late")  # its table had not come yet
        end = pair.cluster.hosts[REPLICA].service.store.max_offset("T", 0)
        assert 2 < end < 50
        await pair.promote()
        for _ in range(2):  # the second start is that of any master
            tables = pair.tables(REPLICA)
            assert pair.offset(REPLICA) == 2
            assert pair.offset(REPLICA, "h") == end
            assert tables.topics.find("Late") is not None
            assert tables.topics.find("T").read_queues == 2
            assert tables.groups.known("g") is not None
            tables.offsets.commit("g", "U", 0, 9, client="c")
            pair.cluster.hosts[REPLICA].service.end_turn()
            pair.cluster.kill(REPLICA)
            await pair.cluster.restart(REPLICA)
            assert pair.offset(REPLICA, "g", "U") == 9

    run(scenario)


def test_what_speaks_of_the_log_waits_for_it() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.ask(200, {}, {"groupName": "g"})
        for number in range(2):
            await pair.ask(310, send_ext(), b"m%d" % number)
        reset = {
            "topic": "T",
            "group": "g",
            "queueId": 0,
            "offset": 1,
            "timestamp": -1,
            "isForce": "true",
        }
        await pair.ask(222, reset)
        await pair.until(lambda: pair.tables(REPLICA).topics.find("T") is not None)
        await asyncio.sleep(3)
        core = pair.cluster.hosts[REPLICA].service.core
        assert pair.offset(REPLICA) == -1
        before = core.files.load(DELAYS, DelayProgress)
        assert before is None or before.log_offset == 0
        pair.lengthen()
        await pair.until(lambda: pair.offset(REPLICA) == 1)
        assert pair.tables(REPLICA).offsets.has_reset("g", "T", 0)
        end = pair.cluster.hosts[MASTER].service.store.max_physical_offset
        assert pair.tables(REPLICA).offsets.followed == end

        def saved() -> bool:
            progress = core.files.load(DELAYS, DelayProgress)
            return progress is not None and progress.log_offset == end

        await pair.until(saved, 10)

    run(scenario)


def test_an_older_master_without_tables_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(pair: Pair) -> None:
        await pair.ask(17, TOPIC | {"topic": "T"})
        mine = pair.tables(REPLICA)
        await pair.until(lambda: mine.topics.find("T") is not None)
        theirs = pair.tables(MASTER).topics
        kept, theirs._topics = theirs._topics, {}
        theirs.touch(0)
        await pair.commit_nothing()
        await asyncio.sleep(3)
        assert mine.topics.find("T") is not None
        theirs._topics = kept

    monkeypatch.setattr(Pair, "commit_nothing", lambda self: self.ask(28, {}), raising=False)
    run(scenario)


def test_a_deleted_topics_queues_go_unless_they_are_a_later_topics() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.ask(310, send_ext(), b"m0")
        pair.lengthen()
        store = pair.cluster.hosts[REPLICA].service.store
        await pair.until(lambda: pair.tables(REPLICA).topics.find("T") is not None)
        await pair.ask(215, {"topic": "T"})
        await pair.until(lambda: pair.tables(REPLICA).topics.find("T") is None)
        assert list(store.queues_of("T")) == []
        # The log brings records of the next topic of the name before the deletion is heard of.
        await pair.ask(310, send_ext(), b"m0")
        await pair.until(lambda: pair.tables(REPLICA).topics.find("T") is not None)
        pair.lengthen(beyond=500)
        await pair.ask(215, {"topic": "T"})
        await pair.until(lambda: pair.tables(REPLICA).topics.find("T") is None)
        assert list(store.queues_of("T")) == [0]

    run(scenario)


def test_an_answer_to_everybody_who_waits_when_the_master_stops() -> None:
    async def scenario(pair: Pair) -> None:
        began = pair.cluster.loop.time()
        await pair.cluster.run_on(MASTER, pair.cluster.hosts[MASTER].service.stop())
        assert pair.cluster.loop.time() - began < 2

    run(scenario)


def test_what_is_not_followed_is_refused() -> None:
    async def scenario(pair: Pair) -> None:
        reply = await pair.master.call(13003, {"what": "x"})
        assert (reply.code, reply.remark) == (29, "what[x] is not followed")
        reply = await pair.replica.call(13003, {"what": "offsets"})
        assert (reply.code, ext_dict(reply.ext)) == (16, {})

    run(scenario)


def test_timers_wait_on_after_a_take_over_and_none_comes_twice() -> None:
    async def scenario(pair: Pair) -> None:
        store = pair.cluster.hosts[MASTER].service.store
        for number, delay in enumerate((500, 60_000, 90_000, 700)):
            named = {"UNIQ_KEY": f"0A{number}", "TIMER_DELAY_MS": str(delay), "WAIT": "true"}
            await pair.ask(310, send_ext(properties=named), b"m%d" % number)
        await asyncio.sleep(25)
        replica = pair.cluster.hosts[REPLICA].service
        data = pair.cluster.hosts[REPLICA].files.read_bytes(replica.store.layout.timer_checkpoint)
        found = decode_timer_checkpoint(data)
        # The second message waits, the first is delivered.
        assert (found.queue_offset, found.ours) == (1, True)
        assert 0 < found.commit_offset < store.max_physical_offset
        assert store.max_offset("T", 0) == 2
        pair.cluster.kill(MASTER)
        await pair.promote()
        store = pair.cluster.hosts[REPLICA].service.store
        assert store.max_offset("T", 0) == 2
        await asyncio.sleep(100)
        assert store.max_offset("T", 0) == 4

    run(scenario, features=replica_features)


def change(**offsets: int) -> Change:
    return Change(0, [], {key: {0: offset} for key, offset in offsets.items()}, {})


def test_the_feed_joins_what_is_asked_for_and_forgets_the_oldest() -> None:
    feed = OffsetFeed()
    for number in range(3):
        feed.put(change(a=number, **{f"k{number}": number}), 0)
    assert feed.since(3) is None and feed.since(-1) is None and feed.since(4) is None
    assert feed.since(1) == Change(0, [], {"a": {0: 2}, "k1": {0: 1}, "k2": {0: 2}}, {})
    for number in range(KEPT):
        feed.put(change(a=number), 0)
    assert feed.since(2) is None
    assert feed.since(3) == change(a=KEPT - 1)
    feed.put(Change(9, ["x"], {}, {}), 9)
    feed.put(change(a=1), 0)
    after = feed.since(feed.next - 2)
    assert after == Change(9, ["x"], {"a": {0: 1}}, {})


def test_a_table_follows_and_notes_it_for_its_journal() -> None:
    table = OffsetTable(0)
    table.commit("g", "T", 0, 1, client="c")
    table.commit("g", "T", 1, 1, client="c")
    table.told()
    table.followed = -1
    table.follow(Change(7, ["T@g"], {"T@g": {0: 9}, "U@g": {2: 3}}, {"U@g": {2: 3}}))
    assert table.of_topic("g", "T") == {0: 9}
    assert table.has_reset("g", "U", 2) and table.pending_resets == 1
    assert table.change(100) == Change(7, ["T@g"], {"T@g": {0: 9}, "U@g": {2: 3}}, {"U@g": {2: 3}})
    count = table._count
    table.count()
    assert table._count == count == 2
    assert table.difference("U@g", {2: 3}, {2: 3}) is None
    assert table.difference("U@g", {}, {}) == Change(0, ["U@g"], {}, {})
    assert table.cut(lambda topic, queue: 5) == 1 and table.query("g", "T", 0) == 5
