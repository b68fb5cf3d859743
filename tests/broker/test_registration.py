"""What name servers are told: all of them, at start, on changes before the answer, periodically, at the end."""

import asyncio
import itertools

import pytest

from roquette.base.clock import LoopClock
from roquette.base.files import OsFiles
from roquette.base.lifecycle import Tasks
from roquette.broker.cluster.feature import ClusterFeature
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.request import Reply, Row
from roquette.remoting.server import Server
from roquette.wire.bodies import TopicConfig, decode_register_broker_body
from roquette.wire.header_codec import ext_dict

NS = "10.0.1.1"


class FakeNameServer:
    """Remembers what brokers say."""

    def __init__(self, loop, host=NS):
        self.loop, self.host = loop, host
        self.seen: list[tuple[float, dict, object]] = []
        self.gone: list[dict] = []
        self.beats: list[tuple[float, dict]] = []
        self.sizes: list[int] = []
        self.answer = Reply()
        clock = LoopClock(loop)
        rows = [
            Row(103, self.register, None, 0),
            Row(104, self.unregister, None, 0),
            Row(904, self.beat, None, 0),
        ]
        dispatcher = Dispatcher(rows, [LaneLimits("all", 1000)], clock, loop, Tasks())
        self.server = Server(dispatcher, clock)

    async def start(self):
        await self.server.start(self.host, 9876)
        return self

    def register(self, ctx, header, body):
        self.sizes.append(len(body))
        compressed = ext_dict(ctx.command.ext)["compressed"] == "true"
        data = decode_register_broker_body(body, compressed=compressed, version=479)
        wrapper = data.topic_config_serialize_wrapper
        self.seen.append((self.loop.time(), ext_dict(ctx.command.ext), wrapper))
        return self.answer

    def unregister(self, ctx, header, body):
        self.gone.append(ext_dict(ctx.command.ext))
        return Reply()

    def beat(self, ctx, header, body):
        self.beats.append((self.loop.time(), ext_dict(ctx.command.ext)))
        return Reply()

    def topics(self, index=-1):
        return self.seen[index][2].topic_config_table


def test_registration_at_start_carries_every_topic_and_unregistration_follows(run_broker):
    kept = []

    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        kept.append(server)
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        _, header, wrapper = server.seen[0]

        assert header == {
            "brokerName": "broker-a",
            "brokerAddr": "10.0.0.1:10911",
            "clusterName": "DefaultCluster",
            "haServerAddr": "10.0.0.1:10912",
            "brokerId": "0",
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": header["bodyCrc32"],
        }
        assert int(header["bodyCrc32"]) > 0
        assert {"TBW102", "broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"} <= set(
            wrapper.topic_config_table
        )
        assert wrapper.topic_config_table["TBW102"].perm == 7

    run_broker(scenario)

    assert kept[0].gone[0]["brokerName"] == "broker-a"


def test_an_auto_created_topic_is_known_before_the_send_is_answered(run_broker):
    async def scenario(case):
        servers = [await FakeNameServer(case.loop, f"10.0.1.{n}").start() for n in (1, 2)]
        case.broker.live.update({"namesrvAddr": "10.0.1.1:9876;10.0.1.2:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        client = await case.client()
        reply = await client.produce("New")

        assert reply.code == 0
        for server in servers:
            assert list(server.topics()) == ["New"]
            assert server.seen[-1][2].data_version == case.broker.tables.topics.data_version

    run_broker(scenario)


def test_a_dead_name_server_delays_the_answer_by_500_ms_at_most(run_broker):
    async def scenario(case):
        case.loop.network.isolate("10.0.1.9")
        case.broker.live.update({"namesrvAddr": "10.0.1.9:9876"})
        client = await case.client()
        started = case.loop.time()
        reply = await client.produce("New")
        again = case.loop.time()
        await client.produce("New")

        assert reply.code == 0
        assert again - started < 0.6
        assert case.loop.time() - again < 0.05

    run_broker(scenario)


def test_everything_is_told_again_every_period_and_to_new_name_servers(run_broker):
    async def scenario(case):
        first = await FakeNameServer(case.loop).start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await asyncio.sleep(65)
        second = await FakeNameServer(case.loop, "10.0.1.2").start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876;10.0.1.2:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()

        assert len(first.seen) == 3
        assert "TBW102" in first.topics()
        assert "TBW102" in second.topics()

    run_broker(scenario)


def test_a_refused_or_lost_registration_is_made_good(run_broker):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        server.answer = Reply(b"", None, 1, "register broker failed")
        client = await case.client()
        await client.produce("New")
        server.answer = Reply()
        await asyncio.sleep(3)

        assert {"New", "TBW102"} <= set(server.topics())

    run_broker(scenario)


def test_a_restarted_name_server_learns_all_at_once(run_broker):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        await server.server.stop()
        fresh = await FakeNameServer(case.loop).start()
        await asyncio.sleep(3)

        assert "TBW102" in fresh.topics()

    run_broker(scenario)


def test_the_brokers_permission_masks_every_topic_and_moves_the_version(run_broker):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        before = server.seen[-1][2].data_version
        case.broker.live.update({"brokerPermission": "4"})
        await case.broker.feature(ClusterFeature).registration.settled()

        assert server.topics()["TBW102"].perm == 4
        assert server.seen[-1][2].data_version != before

    run_broker(scenario)


def test_with_our_name_server_routes_come_at_once_and_go_at_the_stop(
    run_broker, tmp_path, raw_client
):
    async def scenario(case):
        config = NamesrvConfig(bind_address=NS, kv_config_path=str(tmp_path / "kv.json"))
        server = NameServer(config, files=OsFiles(), clock=case.clock)
        await server.start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        client = await case.client()
        await client.produce("New")
        asker = await raw_client(NS, 9876)
        route = await asker.call(105, {"topic": "New"})

        assert route.code == 0
        assert b"10.0.0.1:10911" in route.body
        await case.broker.feature(ClusterFeature).registration.stop()
        await asyncio.sleep(0.1)
        assert (await asker.call(105, {"topic": "New"})).code == 17
        await server.stop()

    run_broker(scenario)


def test_topics_the_name_servers_call_ordered_become_so(run_broker):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        client = await case.client()
        await client.produce("New")
        server.answer = Reply(b"", b'{"table":{"New":"broker-a:4"}}')
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await asyncio.sleep(1)

        assert case.broker.tables.topics.find("New").order is True

    run_broker(scenario)


def _many(broker, count):
    for number in range(count):
        broker.tables.topics._set(
            TopicConfig(topic_name=f"a-topic-with-a-name-of-some-length-{number:06}")
        )


@pytest.mark.promise("Background work", "a broker with very many topics stays registered")
@pytest.mark.parametrize(
    ("count", "settings", "parts"),
    [
        pytest.param(100_000, {}, 26, marks=pytest.mark.long),
        (4_500, {}, 2),
        (4_500, {"compressed_register": True}, 2),
        (2_000, {"enable_split_registration": True}, 3),
        (900, {}, 1),
        (30, {"enable_split_registration": True, "split_registration_size": 1}, 22),
    ],
)
def test_many_topics_are_registered_in_parts_and_stay(run_broker, count, settings, parts):
    """Frames stay far below 16 MiB, each part is some ms of work, and the broker stays registered."""

    async def scenario(case):
        fake = await FakeNameServer(case.loop).start()
        config = NamesrvConfig(
            bind_address="10.0.1.2", kv_config_path="/none", delete_topic_with_broker_registration=True
        )  # fmt: skip
        real = NameServer(config, files=OsFiles(), clock=case.clock)
        await real.start()
        _many(case.broker, count)
        case.broker.live.update({"namesrvAddr": f"{NS}:9876;10.0.1.2:9876"})
        await case.broker.feature(ClusterFeature).registration.settled(60)
        total = len(case.broker.tables.topics.all())
        wrappers = [seen[2] for seen in fake.seen]
        sizes = [len(w.topic_config_table) for w in wrappers]
        assert (len(sizes), sum(sizes)) == (parts, total)
        assert max(sizes) <= 4_000
        assert max(fake.sizes) < 2 << 20
        versions = [wrapper.data_version for wrapper in wrappers]
        assert all(a != b for a, b in itertools.pairwise(versions))
        assert versions[-1] == case.broker.tables.topics.data_version

        fake.seen.clear()
        await asyncio.sleep(130)  # beats, and the name server's scan for brokers that are gone
        assert len(fake.seen) >= 3 * parts
        assert all(seen[2].data_version == versions[-1] for seen in fake.seen)
        assert len([t for t in real.core.routes.topics() if t.startswith("a-topic")]) == count
        assert "broker-a" in real.core.routes.cluster_info(0).broker_addr_table
        health = {h.name: h for h in case.broker.tasks.health()}["register-10.0.1.2:9876"]
        assert (health.failures, health.age_s() < 61) == (0, True)
        await real.stop()

    settings = settings | {"register_name_server_period": 40_000}
    run_broker(scenario, broker=settings)


def test_a_registration_that_crashes_goes_on(run_broker):
    async def scenario(case):
        fake = await FakeNameServer(case.loop).start()
        register, failures = case.broker.feature(ClusterFeature).registration._outbound.register, []

        async def fails(*args, **more):
            if len(failures) < 3:
                failures.append(1)
                raise RuntimeError("unforeseen")
            return await register(*args, **more)

        case.broker.feature(ClusterFeature).registration._outbound.register = fails
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await asyncio.sleep(5)
        assert "TBW102" in fake.topics()
        (health,) = [h for h in case.broker.tasks.health() if h.name.startswith("register-")]
        assert (health.failures, health.in_row) == (3, 0)

    run_broker(scenario)


def _become(case, broker_id, epoch):
    identity = case.broker.core.identity
    identity.broker_id, identity.epoch = broker_id, epoch
    case.broker.feature(ClusterFeature).registration.identity_changed()


def test_a_change_of_id_or_epoch_is_registered_at_once(run_broker):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        registration = case.broker.feature(ClusterFeature).registration
        await registration.settled()
        began, before = case.loop.time(), server.seen[-1][2].data_version
        _become(case, 0, 7)
        await registration.settled()

        at, header, wrapper = server.seen[-1]
        assert at - began < 0.1
        assert header["brokerId"] == "0"
        assert wrapper.data_version.state_version == 7
        assert wrapper.data_version.counter > before.counter
        assert "TBW102" in wrapper.topic_config_table
        client = await case.client()
        await client.produce("New")
        assert server.seen[-1][2].data_version.state_version == 7
        assert case.broker.tables.topics.data_version.state_version == 7

    run_broker(scenario)


def test_a_replica_registers_its_own_id_and_learns_where_its_master_is(run_broker):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        server.answer = Reply(b'{"masterAddr":"10.0.0.9:10911","haServerAddr":"10.0.0.9:10912"}')
        registration = case.broker.feature(ClusterFeature).registration
        told = []
        registration.master_changed.append(
            lambda: told.append((registration.master_address, registration.ha_address))
        )
        version = case.broker.tables.topics.data_version
        _become(case, 2, 7)
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await registration.settled()
        await asyncio.sleep(65)

        assert {seen[1]["brokerId"] for seen in server.seen} == {"2"}
        assert {seen[2].data_version.state_version for seen in server.seen} == {7}
        assert case.broker.tables.topics.data_version == version, "that of the master's table"
        assert told == [("10.0.0.9:10911", "10.0.0.9:10912")], "once, not each time"
        second = await FakeNameServer(case.loop, "10.0.1.2").start()
        second.answer = Reply(b"{}")
        case.broker.live.update({"namesrvAddr": f"{NS}:9876;10.0.1.2:9876"})
        await asyncio.sleep(65)
        assert registration.master_address == "10.0.0.9:10911", "one of them knows it"
        server.answer = Reply(b"{}")
        await asyncio.sleep(65)
        assert (registration.master_address, len(told)) == ("", 2)

    run_broker(scenario)


@pytest.mark.parametrize("elects", [True, False])
def test_a_broker_of_a_group_that_elects_sends_beats(run_broker, elects):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        await asyncio.sleep(60)
        if not elects:
            assert server.beats == []
            return
        beats = [at for at, fields in server.beats if fields["brokerAddr"] == "10.0.0.1:10911"]
        assert len(beats) >= 100
        assert max(b - a for a, b in itertools.pairwise(beats)) < 0.75

    settings = {"enable_controller_mode": elects, "broker_heartbeat_interval": 500}
    run_broker(scenario, broker=settings | {"namesrv_addr": f"{NS}:9876"})


def test_a_broker_that_stays_says_no_good_bye(run_broker):
    kept = []

    async def scenario(case):
        kept.append(await FakeNameServer(case.loop).start())
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        case.broker.core.identity.stays = True

    run_broker(scenario)

    assert kept[0].gone == []


def test_a_replica_that_hears_of_its_group_asks_for_its_master_once_a_second(run_broker):
    async def scenario(case):
        server = await FakeNameServer(case.loop).start()
        case.broker.live.update({"namesrvAddr": f"{NS}:9876"})
        await case.broker.feature(ClusterFeature).registration.settled()
        client = await case.client()
        for broker_id, more in ((0, 0), (2, 1)):
            case.broker.core.identity.broker_id = broker_id
            before = len(server.seen)
            for _ in range(20):
                assert (await client.call(905, {"minBrokerId": 1})).code == 0
            await asyncio.sleep(0.2)
            assert len(server.seen) - before == more

    run_broker(scenario)
