"""An order topic in virtual time: while a broker is dead its keys wait for it, and all others go on."""

import pytest

from roquette.client import calls
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

NAMESRV, A, B, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1"


async def placed(mq: Client, keys: range) -> dict[int, str]:
    return {
        key: (await mq.send("orders", b"x", shard_key=f"order-{key}")).queue.broker_name
        for key in keys
    }


@pytest.mark.parametrize("ordered", [True, False])
def test_a_dead_brokers_keys_fail_in_an_order_topic_and_move_in_others(ordered: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        server = await cluster.add_namesrv(NAMESRV, order_message_enable=True)
        assert server is not None
        await cluster.add_broker(A, "broker-a")
        await cluster.add_broker(B, "broker-b")
        mq = await cluster.client(CLIENT, send_timeout=1)
        for address in (A, B):
            create = calls.create_topic("orders", queues=4, order=ordered)
            await mq.session.api.call(f"{address}:10911", create)
        if ordered:
            conf = calls.put_config("ORDER_TOPIC_CONFIG", "orders", "broker-a:4;broker-b:4")
            await mq.session.ask_name_servers(conf)
        await mq.session.route("orders", fresh=True)
        keys = range(20)
        before = await placed(mq, keys)
        assert set(before.values()) == {"broker-a", "broker-b"}

        cluster.kill(A)
        moved, failed, words = 0, 0, set()
        for key in keys:
            try:
                receipt = await mq.send("orders", b"y", shard_key=f"order-{key}")
            except ClientError as error:
                failed += 1
                words.add(str(error))
                assert before[key] == "broker-a"
            else:
                moved += receipt.queue.broker_name != before[key]
        dead = list(before.values()).count("broker-a")
        if ordered:
            assert (moved, failed) == (0, dead)
            assert any("broker-a" in text or A in text for text in words), words
            await cluster.restart(A)
            await mq.session.route("orders", fresh=True)
            assert await placed(mq, keys) == before
        else:
            assert failed == 0
            assert moved >= dead

    simulate(scenario)
