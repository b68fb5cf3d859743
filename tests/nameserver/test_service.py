"""A name server over the memory network: every code by frames, both ends of a registration, the KV file."""

import asyncio
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.exposition import read_exposition

from roquette.base.clock import LoopClock
from roquette.base.descriptors import SHORTAGE
from roquette.errors import ConfigError, ConnectError
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.floor.identity import BrokerIdentity, Registered, Registration
from roquette.nameserver.floor.route_table import STEP, RouteTable
from roquette.nameserver.service import NameServer
from roquette.remoting.client import RemotingClient
from roquette.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
    encode_register_broker_body,
)
from roquette.wire.command import Command
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette.wire.json_body import decode_body, encode_body
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.sim_loop import SimLoop, run

HOST, ADDRESS = "10.0.0.1", "10.0.0.1:9876"
BROKER = "10.0.1.1:10911"
GOLDEN_SETTINGS = Path(__file__).parents[1] / "golden" / "settings" / "cases.json"
KV_PATH = "/kv/kvConfig.json"


def body_of(*names: str, counter: int = 1, **fields: Any) -> bytes:
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table={n: TopicConfig(topic_name=n, **fields) for n in names},
        data_version=DataVersion(counter=counter),
    )
    return encode_register_broker_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))


class Case:
    """A started name server, and a broker and a client made of bare calls."""

    def __init__(self, loop: SimLoop, files: FaultyFiles, **settings: Any) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.files = files
        values: dict[str, Any] = {"bind_address": HOST, "kv_config_path": KV_PATH} | settings
        self.server = NameServer(NamesrvConfig(**values), files=files, clock=self.clock)
        self.broker = RemotingClient(self.clock, local_host="10.0.1.1")
        self.client = RemotingClient(self.clock, local_host="10.0.2.1")

    async def call(self, code: int, body: bytes = b"", /, **ext: Any) -> Command:
        return await self.client.invoke(
            ADDRESS, code, encode_dict({k: str(v) for k, v in ext.items()}), body
        )

    async def register(self, body: bytes | None = None, **changes: Any) -> Command:
        ext = {
            "brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c", "brokerId": 0,
            "haServerAddr": "10.0.1.1:10912", "enableActingMaster": "false",
        } | changes  # fmt: skip
        return await self.broker.invoke(
            ADDRESS,
            103,
            encode_dict({k: str(v) for k, v in ext.items()}),
            body_of("T", "U") if body is None else body,
        )

    async def route(self, topic: str = "T") -> Command:
        return await self.call(105, topic=topic)


@pytest.fixture
def namesrv() -> Callable[..., SimLoop]:
    def start(scenario: Callable[[Case], Any], *, files: Any = None, **settings: Any) -> SimLoop:
        async def main(loop: SimLoop) -> None:
            case = Case(loop, files or FaultyFiles(1), **settings)
            assert await case.server.start() == 9876
            await scenario(case)
            await case.broker.close()
            await case.client.close()
            await case.server.stop()

        return run(main)

    return start


Run = Callable[..., Any]


def test_routes_of_many_brokers_are_written_as_one_would_be(namesrv: Run) -> None:
    """What is kept of each broker is made anew when something changes, and the text is that of the whole route."""

    async def scenario(case: Case) -> None:
        routes = case.server.core.routes

        async def same() -> None:
            for topic in ("T", "U"):
                found = routes.find_route(topic)
                assert found is not None
                if topic == "T":
                    found.order_topic_conf = "broker-a:4"
                assert (await case.route(topic)).body == encode_body(found)

        await case.call(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
        await case.register()
        await same()
        for number in range(3):
            place = {"brokerName": f"b-{number}", "brokerAddr": f"10.0.1.{number + 2}:10911"}
            await case.register(**place, brokerId=number)
            await same()

    namesrv(scenario, order_message_enable=True)


def test_a_route_is_found_and_looks_as_java_wants_it(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        assert (await case.register()).code == 0
        answer = await case.route()
        assert answer.code == 0
        assert json.loads(answer.body) == {
            "brokerDatas": [
                {
                    "brokerAddrs": {"0": BROKER},
                    "brokerName": "broker-a",
                    "cluster": "c",
                    "enableActingMaster": False,
                }
            ],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": "broker-a",
                    "perm": 6,
                    "readQueueNums": 16,
                    "topicSysFlag": 0,
                    "writeQueueNums": 16,
                }
            ],
        }

    namesrv(scenario)


@pytest.mark.parametrize("said", ["true", "false", None])
def test_a_replica_stays_a_replica_whatever_its_registration_says_of_acting(
    namesrv: Run, said: str | None
) -> None:
    """Apache's brokers of 5.x say whether they would act as master; those before it have no such field."""

    async def scenario(case: Case) -> None:
        place = {"brokerName": "b", "brokerAddr": BROKER, "clusterName": "c", "brokerId": 1}
        more = {} if said is None else {"enableActingMaster": said}
        await case.call(103, body_of("T", "U"), haServerAddr="h", **place, **more)
        answer = await case.route()
        if said is None:
            assert answer.code == 17, "its topics come from a master alone"
            return
        route = json.loads(answer.body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"1": BROKER}
        assert route["queueDatas"][0]["perm"] == 6

    namesrv(scenario)


def test_metrics_and_health(namesrv: Run) -> None:
    async def get(path: str) -> tuple[bytes, str]:
        reader, writer = await asyncio.open_connection("10.0.0.9", 5557)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return head.split()[1], body.decode()

    async def scenario(case: Case) -> None:
        await case.register(body_of("T", "U"))
        status, text = await get("/metrics")
        found = {sample.name: sample.value for sample in read_exposition(text)}
        assert status == b"200"
        assert found["rocketmq_namesrv_brokers"] == 1
        assert found["rocketmq_namesrv_topics"] == len(case.server.core.routes.topics())
        assert found["rocketmq_namesrv_connections"] >= 1
        assert found["rocketmq_kept_bytes_limit"] == 512 << 20
        assert await get("/healthz") == (b"200", "ok\n")

    namesrv(scenario, metrics_listen="10.0.0.9:5557")


def test_an_unknown_topic_is_17_with_apaches_words(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        answer = await case.route("nope")
        assert answer.code == 17
        assert answer.remark == (
            "No topic route info in name server for the topic: nope\n"
            "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        )

    namesrv(scenario)


def test_kept_answers_follow_every_change(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        first = await case.route()
        assert (await case.route()).body == first.body
        await case.register(body_of("T", "U", counter=2, write_queue_nums=2))
        assert (
            decode_body(TopicRouteData, (await case.route()).body).queue_datas[0].write_queue_nums
            == 2
        )
        await case.call(205, brokerName="broker-a")
        assert decode_body(TopicRouteData, (await case.route()).body).queue_datas[0].perm == 4
        await case.call(216, topic="T")
        assert (await case.route()).code == 17

    namesrv(scenario)


def test_registrations_are_checked(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        body = body_of("T", "U")
        bad = await case.register(body, bodyCrc32=5)
        assert (bad.code, bad.remark) == (1, "crc32 not match")
        good = await case.register(body, bodyCrc32=zlib.crc32(body) & 0x7FFFFFFF)
        assert good.code == 0
        garbage = await case.register(b"[1]")
        assert garbage.code == 1
        assert (garbage.remark or "").startswith("Failed to decode RegisterBrokerBody")
        one = await case.register(body_of("N"), brokerName="new", brokerAddr="10.0.1.9:1")
        assert (one.code, one.remark) == (1, "register broker failed")

    namesrv(scenario)


def test_a_compressed_registration(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={"T": TopicConfig(topic_name="T"), "U": TopicConfig(topic_name="U")}
        )
        body = encode_register_broker_body(
            RegisterBrokerBody(topic_config_serialize_wrapper=wrapper), compressed=True
        )
        assert (await case.register(body, compressed="true")).code == 0
        assert (await case.route()).code == 0

    namesrv(scenario)


def test_a_replica_is_told_its_master(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        answer = await case.register(brokerId=1, brokerAddr="10.0.1.2:10911")
        assert ext_dict(answer.ext) == {"haServerAddr": "10.0.1.1:10912", "masterAddr": BROKER}
        members = await case.call(901, clusterName="c", brokerName="broker-a")
        assert json.loads(members.body) == {
            "brokerMemberGroup": {
                "brokerAddrs": {"0": BROKER, "1": "10.0.1.2:10911"},
                "brokerName": "broker-a",
                "cluster": "c",
            }
        }

    namesrv(scenario)


def test_unregistering_is_done_when_answered(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        ext = {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c", "brokerId": "0"}
        assert (await case.broker.invoke(ADDRESS, 104, encode_dict(ext))).code == 0
        assert (await case.route()).code == 17

    namesrv(scenario)


def test_a_closed_connection_removes_routes_at_once(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        before = case.loop.time()
        await case.broker.close()
        await asyncio.sleep(0.05)
        assert (await case.route()).code == 17
        assert case.loop.time() - before < 0.1

    namesrv(scenario)


def test_a_silent_broker_is_removed_after_120_s_by_a_scan_every_5_s(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        case.loop.network.isolate("10.0.1.1")
        await asyncio.sleep(119)
        assert (await case.route()).code == 0
        await asyncio.sleep(7)
        assert (await case.route()).code == 17
        assert 125 < case.loop.time() < 127

    namesrv(scenario, server_channel_max_idle_time_seconds=1000)


@pytest.mark.promise(
    "Security", "a broker whose registrations are refused for others' requests is not expired"
)
def test_a_broker_whose_registrations_are_refused_for_others_requests_lives(namesrv: Run) -> None:
    """Before, its routes were gone after 125 s, though it registered every ten."""

    async def scenario(case: Case) -> None:
        await case.register()
        assert (await case.route()).code == 0
        broker, other = case.server.peers()
        dispatcher = case.server._server._dispatcher
        beat = {"clusterName": "c", "brokerAddr": BROKER, "brokerName": "broker-a"}
        said = Command(code=904, opaque=1, flag=2, ext=encode_dict(beat))
        for _ in range(20):
            await asyncio.sleep(10)
            dispatcher.receive(other, [Command(code=106, opaque=1, flag=2)] * 8)
            before = dispatcher.refused
            dispatcher.receive(broker, [said])
            assert dispatcher.refused == before + 1
            await case.broker.invoke(ADDRESS, 106)  # no sign of life, but its connection is in use
            assert (await case.route()).code == 0
        for _ in range(13):
            await asyncio.sleep(10)
            await case.broker.invoke(ADDRESS, 106)
        assert (await case.route()).code == 17, "a broker that says nothing of itself is gone"

    busy = {"default_thread_pool_queue_capacity": 2}
    namesrv(scenario, server_channel_max_idle_time_seconds=1000, **busy)


def test_a_brokers_own_heartbeat_time_out_is_honoured(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register(heartbeatTimeoutMillis=20_000)
        for _ in range(6):
            await asyncio.sleep(10)
            await case.broker.invoke(
                ADDRESS,
                904,
                encode_dict({"clusterName": "c", "brokerAddr": BROKER, "brokerName": "broker-a"}),
            )
        assert (await case.route()).code == 0
        await asyncio.sleep(26)
        assert (await case.route()).code == 17

    namesrv(scenario)


def test_data_versions_are_compared(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        ext = {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c", "brokerId": 0}
        unknown = await case.call(322, encode_body(DataVersion(counter=1)), **ext)
        assert ext_dict(unknown.ext) == {"changed": "true"}
        assert unknown.body == b""
        await case.register()
        same = await case.call(322, encode_body(DataVersion(counter=1)), **ext)
        assert ext_dict(same.ext) == {"changed": "false"}
        other = await case.call(322, encode_body(DataVersion(counter=2)), **ext)
        assert ext_dict(other.ext) == {"changed": "true"}
        assert decode_body(DataVersion, other.body).counter == 1

    namesrv(scenario)


def test_write_permission_and_lists(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        assert ext_dict((await case.call(205, brokerName="broker-a")).ext) == {
            "wipeTopicCount": "2"
        }
        assert ext_dict((await case.call(327, brokerName="broker-a")).ext) == {"addTopicCount": "2"}
        assert json.loads((await case.call(206)).body) == {"topicList": ["T", "U"]}
        assert json.loads((await case.call(224, cluster="c")).body) == {"topicList": ["T", "U"]}
        assert json.loads((await case.call(304)).body) == {
            "brokerAddr": BROKER,
            "topicList": ["c", "broker-a"],
        }
        for code in (311, 312, 313):
            assert json.loads((await case.call(code)).body) == {"topicList": []}
        assert json.loads((await case.call(106)).body)["clusterAddrTable"] == {"c": ["broker-a"]}
        route = TopicRouteData(
            queue_datas=decode_body(TopicRouteData, (await case.route()).body).queue_datas
        )
        assert (await case.call(217, encode_body(route), topic="N")).code == 0
        assert (await case.route("N")).code == 0
        assert (await case.call(3999)).code == 3

    namesrv(scenario)


def test_lists_can_be_disabled(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        for code, ext in ((206, {}), (224, {"cluster": "c"}), (311, {})):
            answer = await case.call(code, **ext)
            assert (answer.code, answer.remark) == (1, "disable")

    namesrv(scenario, enable_all_topic_list=False, enable_topic_list=False)


def test_zones_keep_clients_at_home(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register(__ZONE_NAME="east")
        await case.register(brokerName="broker-b", brokerAddr="10.0.1.2:10911", __ZONE_NAME="west")
        everywhere = decode_body(TopicRouteData, (await case.route()).body)
        assert [b.zone_name for b in everywhere.broker_datas] == ["east", "west"]
        at_home = decode_body(
            TopicRouteData,
            (await case.call(105, topic="T", __ZONE_MODE="true", __ZONE_NAME="WEST")).body,
        )
        assert [b.broker_name for b in at_home.broker_datas] == ["broker-b"]
        assert [q.broker_name for q in at_home.queue_datas] == ["broker-b"]

    namesrv(scenario)


def test_a_new_name_server_may_wait_before_it_answers(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        answer = await case.route()
        assert (answer.code, answer.remark) == (1, "name server not ready")
        await asyncio.sleep(46)
        assert (await case.route()).code == 0

    namesrv(scenario, need_wait_for_service=True)


# KV config and settings


def test_kv_config_is_kept_over_a_restart(namesrv: Run) -> None:
    files = FaultyFiles(1)

    async def before(case: Case) -> None:
        await case.call(100, namespace="n", key="k", value="v")
        await case.call(100, namespace="n", key="gone", value="x")
        await case.call(102, namespace="n", key="gone")
        missing = await case.call(100, key="k", value="v")
        assert (missing.code, missing.remark) == (1, "namespace or key is null")
        assert json.loads(files.read_bytes(KV_PATH)) == {"configTable": {"n": {"k": "v"}}}

    async def after(case: Case) -> None:
        assert ext_dict((await case.call(101, namespace="n", key="k")).ext) == {"value": "v"}
        gone = await case.call(101, namespace="n", key="gone")
        assert (gone.code, gone.remark) == (22, "No config item, Namespace: n Key: gone")
        assert json.loads((await case.call(219, namespace="n")).body) == {"table": {"k": "v"}}
        none = await case.call(219, namespace="z")
        assert (none.code, none.remark) == (22, "No config item, Namespace: z")

    namesrv(before, files=files)
    namesrv(after, files=files)


def test_concurrent_kv_changes_are_all_on_disk_when_answered(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        calls = [case.call(100, namespace="n", key=str(i), value="v") for i in range(50)]
        answers = await asyncio.gather(*calls)
        assert {a.code for a in answers} == {0}
        assert len(json.loads(case.files.read_bytes(KV_PATH))["configTable"]["n"]) == 50
        assert case.files.calls["rename"] < 50, "waiting changes share a write"

    namesrv(scenario)


def test_a_kv_change_that_is_not_on_disk_is_not_acknowledged(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        case.files.fail("rename")
        answer = await case.call(100, namespace="n", key="k", value="v")
        assert answer.code == 1
        assert "could not be saved" in (answer.remark or "")

    namesrv(scenario)


def test_an_unreadable_kv_file_stops_the_start(namesrv: Run) -> None:
    files = FaultyFiles(1)
    files.write_atomic(KV_PATH, b"not json")

    async def scenario(case: Case) -> None: ...

    with pytest.raises(ConfigError, match="kvConfigPath"):
        namesrv(scenario, files=files)


def test_order_config(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        assert (await case.register()).body == b""
        await case.call(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
        assert json.loads((await case.register()).body) == {"table": {"T": "broker-a:4"}}
        assert json.loads((await case.route()).body)["orderTopicConf"] == "broker-a:4"
        await case.call(318, b"orderMessageEnable=false\nreturnOrderTopicConfigToBroker=false")
        assert "orderTopicConf" not in json.loads((await case.route()).body)
        assert (await case.register()).body == b""

    namesrv(scenario, order_message_enable=True)


def test_settings_are_shown_and_some_may_be_changed(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        shown = (await case.call(319)).body.decode()
        assert "listenPort=9876\n" in shown
        assert "enableTopicList=true\n" in shown

        assert "unknown key" in (await case.call(318, b"unknownKey=1")).remark
        assert (await case.call(318, b"enableTopicList=false")).code == 0
        assert "enableTopicList=false\n" in (await case.call(319)).body.decode()

        for line in (b"kvConfigPath=/etc/passwd", b"listenPort=1", b"configBlackList="):
            answer = await case.call(318, line + b"\nenableTopicList=true")
            assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        assert (await case.call(318, b"waitSecondsForService=soon")).code == 1
        assert (await case.call(318, b"\xff\xfe")).code == 1
        assert "enableTopicList=false\n" in (await case.call(319)).body.decode()

    namesrv(scenario)


def test_a_stopped_name_server_is_gone(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.server.stop()
        with pytest.raises(ConnectError):
            await case.route()
        again = NameServer(case.server.core.config, files=case.files, clock=case.clock)
        assert await again.start() == 9876
        assert (await case.route()).code == 17
        await again.stop()

    namesrv(scenario)


MANY = [f"T{number}" for number in range(3 * STEP)]


def test_a_large_registration_lets_others_in_between(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        assert (await case.register()).code == 0
        large = asyncio.ensure_future(case.register(body_of(*MANY, counter=2)))
        asked = 0
        while not large.done():
            assert (await case.route()).code == 0
            asked += 1
        assert asked > 1, "routes are answered meanwhile"
        assert large.result().code == 0
        assert len(case.server.core.routes.topics()) == len(MANY) + 2

    namesrv(scenario)


def test_registrations_of_a_connection_are_taken_in_their_order(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        first = case.register(body_of(*MANY, counter=1, perm=6))
        later = case.register(body_of("T7", "T8", counter=2, perm=4))
        assert [answer.code for answer in await asyncio.gather(first, later)] == [0, 0]
        assert b'"perm":4' in (await case.route("T8")).body
        assert b'"perm":6' in (await case.route("T9")).body

    namesrv(scenario)


def test_a_broker_that_goes_while_it_registers_is_gone(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        for seconds in (0.0, 0.001, 0.003, 0.005, 0.01):
            large = asyncio.ensure_future(case.register(body_of(*MANY)))
            await asyncio.sleep(seconds)
            await case.broker.close()
            await asyncio.gather(large, return_exceptions=True)
            await asyncio.sleep(1)
            assert case.server.core.routes.topics() == []
            case.broker = RemotingClient(case.clock, local_host="10.0.1.1")

    namesrv(scenario)


def test_a_stepwise_registration_ends_when_a_newer_one_came() -> None:
    routes = RouteTable()
    who = BrokerIdentity("c", "broker-a", BROKER, 0)

    def register(counter: int, perm: int, names: list[str], stepwise: bool) -> Registered:
        topics = {name: TopicConfig(topic_name=name, perm=perm) for name in names}
        said = Registration(
            identity=who,
            topics=topics,
            data_version=DataVersion(counter=counter),
            connection=1,
            now_ms=1,
        )
        found = routes.register(said, stepwise=stepwise)
        assert found is not None
        return found

    older = register(1, 6, MANY, stepwise=True)
    assert len(routes.topics()) == STEP
    register(2, 4, MANY, stepwise=False)
    assert list(older.rest) == []
    found = routes.find_route(MANY[-1])
    assert found is not None
    assert found.queue_datas[0].perm == 4


def test_bodies_beyond_what_a_request_needs_are_refused(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        for code, ext in ((322, {"brokerId": 0}), (217, {"topic": "T"})):
            names = {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c"}
            for body, words in (
                (b"{'a':[" + b"[]," * 30_000 + b"]}", "not plain JSON, 65536 are allowed"),
                (b'{"a":"' + b"x" * 600_000 + b'"}', "of 600008 bytes, 524288 are allowed"),
            ):
                answer = await case.call(code, body, **ext, **names)
                assert answer.code == 1 and words in (answer.remark or ""), answer.remark
        answer = await case.call(318, b"a=b\n" * 10_000)
        assert answer.remark == "settings of 40000 bytes, 32768 are allowed at once"

    namesrv(scenario)


@pytest.mark.parametrize("error", sorted(SHORTAGE))
@pytest.mark.parametrize("call", ["open", "open_to_sync", "read"])
def test_a_shortage_loses_no_kv_config(namesrv: Run, call: str, error: int) -> None:
    for nth in range(1, 8):
        files = FaultyFiles(1)

        async def scenario(case: Case, files: FaultyFiles = files, nth: int = nth) -> None:
            assert (await case.call(100, namespace="n", key="old", value="1")).code == 0
            files.fail(call, nth, error)
            answer = await case.call(100, namespace="n", key="k", value="v")
            assert answer.code == 0 or "could not be saved" in (answer.remark or "")
            files.work_again()
            assert (await case.call(100, namespace="n", key="last", value="1")).code == 0
            assert files.sync_error is None

        async def after(case: Case) -> None:
            table = json.loads((await case.call(219, namespace="n")).body)["table"]
            assert table == {"old": "1", "k": "v", "last": "1"}

        namesrv(scenario, files=files)
        files.fail("read", 1, error)
        with pytest.raises(ConfigError, match="kvConfigPath"):  # never an older content instead
            namesrv(after, files=files)
        files.work_again()
        namesrv(after, files=files)


ELSEWHERE = "alive on another connection"


@pytest.mark.promise(
    "Security", "asking for a broker's version is no sign of life; nobody moves a living broker"
)
@pytest.mark.parametrize(
    ("code", "changes"),
    [(103, {}), (103, {"brokerAddr": "10.6.6.6:1"}), (103, {"brokerName": "b"}),
     (103, {"clusterName": "d"}), (103, {"brokerId": 1}), (104, {}), (904, {})],
)  # fmt: skip
def test_a_stranger_moves_no_living_broker(
    namesrv: Run, code: int, changes: dict[str, Any]
) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        for _ in range(20):
            fields = {
                "brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c", "brokerId": 0,
                "haServerAddr": "", "heartbeatTimeoutMillis": 120_000,
            } | changes  # fmt: skip
            answer = await case.call(code, body_of("X", "Y"), **fields)
            assert answer.code == 1
            assert ELSEWHERE in (answer.remark or "")
            await asyncio.sleep(10)
            await case.register()
        route = decode_body(TopicRouteData, (await case.route()).body)
        assert route.broker_datas[0].broker_addrs == {0: BROKER}
        assert (await case.route("X")).code == 17
        case.client.drop(ADDRESS)
        await asyncio.sleep(1)
        assert (await case.route()).code == 0

    namesrv(scenario)


@pytest.mark.parametrize("gap_s", [0.0, 0.01, 0.4])
def test_a_broker_that_comes_back_before_its_old_connection_ends_is_let_in(
    namesrv: Run, gap_s: float
) -> None:
    async def scenario(case: Case) -> None:
        old = RemotingClient(case.clock, local_host="10.0.1.1")
        ours, case.broker = case.broker, old
        await case.register()
        case.broker = ours
        again = asyncio.ensure_future(case.register(brokerAddr="10.0.1.1:20911"))
        await asyncio.sleep(gap_s)
        await old.close()
        assert (await again).code == 0
        route = decode_body(TopicRouteData, (await case.route()).body)
        assert route.broker_datas[0].broker_addrs == {0: "10.0.1.1:20911"}

    namesrv(scenario)


def test_a_broker_gone_without_a_word_leaves_its_place_when_it_was_silent(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        gone = RemotingClient(case.clock, local_host="10.0.3.3")
        ours, case.broker = case.broker, gone
        await case.register()
        case.broker = ours
        case.loop.network.isolate("10.0.3.3")
        await asyncio.sleep(60)
        assert ELSEWHERE in ((await case.register()).remark or "")
        await asyncio.sleep(15)
        assert (await case.register()).code == 0

    namesrv(scenario)


def test_few_wait_for_the_place_of_a_living_broker(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register()
        fields = {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c", "brokerId": 0}
        answers = await asyncio.gather(*(case.call(104, **fields) for _ in range(500)))
        assert {answer.code for answer in answers} <= {1, 2}
        assert (await case.route()).code == 0

    namesrv(scenario)


def settings_in(reply: Command) -> dict[str, str]:
    assert reply.code == 0, reply.remark
    return dict(line.split("=", 1) for line in reply.body.decode().splitlines())


def test_settings_are_shown_under_all_of_apaches_keys(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        shown = settings_in(await case.call(319))
        apaches = json.loads(GOLDEN_SETTINGS.read_text())["NamesrvConfig"]
        assert not set(apaches) - set(shown)
        assert (shown["productEnvName"], shown["clusterTest"]) == ("center", "false")
        assert shown["enableControllerInNamesrv"] == "false"

    namesrv(scenario)


def test_what_is_harmless_changes_while_it_runs(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        changed = {
            "productEnvName": "test-7",
            "scanNotActiveBrokerInterval": "100",
            "clientRequestThreadPoolQueueCapacity": "7",
        }
        body = "".join(f"{key}={value}\n" for key, value in changed.items()).encode()
        assert (await case.call(318, body)).code == 0
        assert settings_in(await case.call(319)).items() >= changed.items()
        for wrong in ("productEnvName=a b", "scanNotActiveBrokerInterval=99", "clusterTest=true"):
            refused = await case.call(318, f"{wrong}\n".encode())
            assert refused.code == 1 and wrong.split("=")[0] in (refused.remark or "")
        assert settings_in(await case.call(319)).items() >= changed.items()

    namesrv(scenario)


def test_the_scan_follows_its_interval(namesrv: Run) -> None:
    async def scenario(case: Case) -> None:
        await case.register(body_of("T"), heartbeatTimeoutMillis=1_000)
        assert (await case.call(318, b"scanNotActiveBrokerInterval=200\n")).code == 0
        await asyncio.sleep(5)  # the pause that had begun
        await case.register(body_of("T"), heartbeatTimeoutMillis=1_000)
        await asyncio.sleep(1.5)
        assert (await case.call(105, topic="T")).code == 17

    namesrv(scenario)
