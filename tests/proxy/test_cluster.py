"""The backend of CLUSTER before our brokers, in virtual time: what becomes of requests, topics, groups and producers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.test_name_servers import create_topic, until

from roquette.base.entropy import Entropy
from roquette.errors import Refused
from roquette.proxy.backend import TopicFacts
from roquette.proxy.cluster import ClusterBackend, ClusterConfig
from roquette.proxy.service import BrokerAnswer, Caller, Part, Proxy
from roquette.proxy.statuses import PROXY_TIMEOUT
from roquette.remoting.request import Peer, RequestContext
from roquette.wire.bodies.clients import HeartbeatData, ProducerData
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import ext_dict
from roquette.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetMaxOffsetRequestHeader,
    PopMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from roquette.wire.proto.definition_pb2 import Endpoints
from roquette_testing.cluster import SimCluster, simulate

NS, BROKER, OTHER, PROXY = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.3.1"


class Asked(Part):
    """Notes what brokers ask of clients."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, bytes, bytes]] = []

    def asked(
        self, peer: Peer | None, code: int, ext: bytes, body: bytes, answer: Callable[[BrokerAnswer], None]
    ) -> bool:  # fmt: skip
        self.requests.append((code, ext, body))
        return True


async def begin(cluster: SimCluster, **broker: Any) -> ClusterBackend:
    """A name server, a broker with the topic `orders`, and the backend on a host of its own."""
    await cluster.add_namesrv(NS)
    await cluster.add_broker(BROKER, "broker-a", **broker)
    await create_topic(cluster, "orders", BROKER)
    return await cluster.run_on(PROXY, backend(cluster))


async def backend(cluster: SimCluster) -> ClusterBackend:
    config = ClusterConfig(name_servers=cluster.name_servers, local_host=PROXY)
    clock, entropy = cluster.host(PROXY).clock, Entropy(7, process_id=1)
    made = ClusterBackend(config, clock, entropy, PROXY, "DefaultCluster")
    await made.start()
    return made


async def ask(backend: ClusterBackend, code: int, header: Any, body: bytes = b"") -> BrokerAnswer:
    found: asyncio.Future[BrokerAnswer] = asyncio.get_running_loop().create_future()
    backend.ask(backend.own, "broker-a", code, header, body, found.set_result)
    return await found


async def topic(backend: ClusterBackend, name: str) -> TopicFacts | None:
    found: asyncio.Future[TopicFacts | None] = asyncio.get_running_loop().create_future()
    backend.route(backend.own, name, Endpoints(), found.set_result)
    return await found


async def group(backend: ClusterBackend, name: str) -> SubscriptionGroupConfig | None:
    found: asyncio.Future[SubscriptionGroupConfig | None] = (
        asyncio.get_running_loop().create_future()
    )
    backend.group(backend.own, name, found.set_result)
    return await found


OFFSET = GetMaxOffsetRequestHeader(topic="orders", queue_id=0)


def send(text: bytes, properties: str = "") -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="orders", topic="orders", default_topic="TBW102",
        default_topic_queue_nums=4, queue_id=0, sys_flag=0, born_timestamp=1, flag=0,
        properties=properties, reconsume_times=0, unit_mode=False, batch=False,
    )  # fmt: skip


def pop(poll_ms: int) -> PopMessageRequestHeader:
    return PopMessageRequestHeader(
        consumer_group="g", topic="orders", queue_id=-1, max_msg_nums=32, invisible_time=60_000,
        poll_time=poll_ms, init_mode=1, exp_type="TAG", exp="*",
    )  # fmt: skip


def test_a_broker_is_asked_without_a_route_and_found_again_after_its_restart() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster)
        code = RequestCode.GET_MAX_OFFSET
        assert (await cluster.run_on(PROXY, ask(proxy, code, OFFSET))).code == 0
        cluster.kill(BROKER)
        lost = await cluster.run_on(PROXY, ask(proxy, code, OFFSET))
        assert lost.code == ResponseCode.SYSTEM_ERROR and BROKER in lost.remark
        await cluster.restart(BROKER)
        await asyncio.sleep(1)
        assert (await cluster.run_on(PROXY, ask(proxy, code, OFFSET))).code == 0
        cluster.pause(BROKER, 10)
        late = await cluster.run_on(PROXY, ask(proxy, code, OFFSET))
        assert late.code == PROXY_TIMEOUT
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


def test_unknown_brokers_are_named_in_the_answer_and_name_servers_asked_once_a_second() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster)

        async def many() -> None:
            found: list[BrokerAnswer] = []
            for _ in range(100):
                proxy.ask(
                    proxy.own, "broker-z", RequestCode.GET_MAX_OFFSET, OFFSET, b"", found.append
                )
            await until(cluster, lambda: len(found) == 100, 5)
            assert {(one.code, one.remark) for one in found} == {(1, "cannot find broker broker-z")}

        await cluster.run_on(PROXY, many())
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


def test_topics_have_route_and_type_and_a_change_of_route_is_seen_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster)
        found = await cluster.run_on(PROXY, topic(proxy, "orders"))
        assert found is not None and found.kind == "NORMAL"
        assert [one.broker_name for one in found.route.queue_datas] == ["broker-a"]
        await cluster.add_broker(OTHER, "broker-b")
        await create_topic(cluster, "orders", OTHER)
        await asyncio.sleep(3)
        found = await cluster.run_on(PROXY, topic(proxy, "orders"))
        assert found is not None
        assert sorted(one.broker_name for one in found.route.queue_datas) == [
            "broker-a",
            "broker-b",
        ]
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


def test_a_topic_that_is_not_there_is_one_to_be_made_where_brokers_make_topics() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster)
        found = await cluster.run_on(PROXY, topic(proxy, "new"))
        assert found is not None and found.kind == "UNSPECIFIED" and found.route.queue_datas
        await create_topic(cluster, "new", BROKER, queues=7)
        await asyncio.sleep(2)
        found = await cluster.run_on(PROXY, topic(proxy, "new"))
        assert found is not None and found.route.queue_datas[0].write_queue_nums == 7
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


def test_no_topic_is_made_where_brokers_make_none() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster, auto_create_topic_enable=False)
        assert await cluster.run_on(PROXY, topic(proxy, "new")) is None
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


def test_a_group_brokers_do_not_have_is_left_to_them_and_one_of_dead_brokers_is_unknown() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster)
        found = await cluster.run_on(PROXY, group(proxy, "g"))
        assert found is not None and found.group_name == "g"
        cluster.kill(BROKER)
        assert await cluster.run_on(PROXY, group(proxy, "g")) == found
        assert await cluster.run_on(PROXY, group(proxy, "other")) is None
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


def test_a_held_pop_is_waited_for_and_what_a_cancelled_one_got_is_told() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster)
        code = RequestCode.POP_MESSAGE
        start = cluster.loop.time()
        nothing = await cluster.run_on(PROXY, ask(proxy, code, pop(20_000)))
        assert nothing.code == ResponseCode.POLLING_TIMEOUT and cluster.loop.time() - start > 19
        answers: list[BrokerAnswer] = []

        async def cancel_while_held() -> None:
            waits = proxy.ask(proxy.own, "broker-a", code, pop(20_000), b"", answers.append)
            await asyncio.sleep(1)
            waits.cancel()
            gone: list[BrokerAnswer] = []
            proxy.ask(proxy.own, "broker-a", 30, OFFSET, b"", gone.append).cancel()
            assert (await ask(proxy, RequestCode.SEND_MESSAGE_V2, send(b""), b"hello")).code == 0
            await until(cluster, lambda: bool(answers), 5)
            assert answers[0].code == 0 and b"hello" in answers[0].body and not gone

        await cluster.run_on(PROXY, cancel_while_held())
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


def test_the_proxy_stands_for_its_clients_producer_groups_and_is_asked_about_transactions() -> None:
    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster, transaction_time_out=1_000, transaction_check_interval=1_000)
        part = Asked()
        proxy.proxy = Proxy([part], cluster.clock)
        data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="orders")])

        async def half() -> None:
            await topic(proxy, "orders")
            proxy.register(proxy.own, data)
            words = {"TRAN_MSG": "true", "PGROUP": "orders", "UNIQ_KEY": "K1"}
            text = "".join(f"{key}\x01{value}\x02" for key, value in words.items())
            header = send(b"", text)
            header.sys_flag = 4
            answer = await ask(proxy, RequestCode.SEND_MESSAGE_V2, header, b"half")
            assert answer.code == 0, answer.remark

        await cluster.run_on(PROXY, half())
        await until(cluster, lambda: bool(part.requests), 30)
        code, ext, body = part.requests[0]
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        assert b'"bname":"broker-a"' in ext and b"half" in body
        assert [*proxy.session._producer_groups] == ["orders"]
        await asyncio.sleep(200)  # nobody names the group any more
        assert not proxy.session._producer_groups
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)


@pytest.mark.promise(
    "Security",
    "a message that is named by its place is judged by its topic, through a proxy as well",
)
def test_a_place_in_the_log_is_proven_before_the_broker_is_asked_with_the_proxys_rights() -> None:
    """Messages sent back and ends of transactions name a message by its place: its topic is judged for the client."""

    async def scenario(cluster: SimCluster) -> None:
        proxy = await begin(cluster)
        judged: list[str] = []
        allowed = {"orders"}

        def touch(name: str) -> None:
            judged.append(name)
            if name not in allowed:
                raise Refused(ResponseCode.NO_PERMISSION, f"not {name}")

        def guard(job: RequestContext, header: Any) -> None:
            job.may_touch = touch

        async def all_of_it() -> None:
            await topic(proxy, "orders")
            sent = await ask(proxy, RequestCode.SEND_MESSAGE_V2, send(b""), b"another's")
            words = {"TRAN_MSG": "true", "PGROUP": "orders", "UNIQ_KEY": "K1"}
            text = "".join(f"{key}\x01{value}\x02" for key, value in words.items())
            half_header = send(b"", text)
            half_header.sys_flag = 4
            half = await ask(proxy, RequestCode.SEND_MESSAGE_V2, half_header, b"half")
            place, half_place = (
                int(ext_dict(each.ext)["msgId"][-16:], 16) for each in (sent, half)
            )
            queue_offset = int(ext_dict(half.ext)["queueOffset"])
            back = ConsumerSendMsgBackRequestHeader(
                offset=place, group="g", delay_level=-1, max_reconsume_times=0, origin_topic="mine"
            )
            end = EndTransactionRequestHeader(
                producer_group="orders", tran_state_table_offset=queue_offset, topic="mine",
                commit_log_offset=half_place, commit_or_rollback=8, msg_id="K1",
            )  # fmt: skip
            proxy._guard = guard
            caller = Caller(proxy.own.peer, "someone", proxy.own.asks)

            async def asked(code: int, header: Any) -> BrokerAnswer:
                found: asyncio.Future[BrokerAnswer] = asyncio.get_running_loop().create_future()
                proxy.ask(caller, "broker-a", code, header, b"", found.set_result)
                return await found

            allowed.clear()
            for code, header in ((RequestCode.CONSUMER_SEND_MSG_BACK, back), (RequestCode.END_TRANSACTION, end)):  # fmt: skip
                answer = await asked(code, header)
                assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not orders")
            allowed.add("orders")
            assert (await asked(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
            assert (await asked(RequestCode.END_TRANSACTION, end)).code == 0
            assert judged == ["orders"] * 4
            back.offset = 1 << 40
            assert (await asked(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code != 0
            assert len(judged) == 4

        await cluster.run_on(PROXY, all_of_it())
        await cluster.run_on(PROXY, proxy.close())

    simulate(scenario)
