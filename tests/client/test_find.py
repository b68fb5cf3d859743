"""Finding stored messages, in virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from roquette.errors import BrokerError, ClientError, ConfigError, RouteNotFound
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation


def test_messages_are_found_by_key_id_and_place() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        for ip, name in (("10.0.1.1", "broker-a"), ("10.0.1.2", "broker-b")):
            await cluster.add_broker(ip, name)
        mq = await cluster.client("10.0.2.1")
        await mq.session.route("TBW102")
        receipts = []
        for number in range(12):
            receipts.append(await mq.send("orders", f"{number}", key=["all", f"order-{number}"]))
            await asyncio.sleep(1)
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a", "broker-b"}

        assert [m.body for m in await mq.find("orders", "all")] == [b"%d" % n for n in range(12)]
        (one,) = await mq.find("orders", "order-7")
        (same,) = await mq.find("orders", receipts[7].message_id)
        assert one == same
        assert one.queue == receipts[7].queue
        assert (await mq.message_at(receipts[7].offset_message_id)).body == b"7"
        assert await mq.find("orders", "nothing") == []
        assert len(await mq.find("orders", "all", most=2)) == 4  # of each broker
        half = one.stored_at - timedelta(milliseconds=1)
        assert [m.body for m in await mq.find("orders", "all", since=half)] == [
            b"%d" % n for n in range(7, 12)
        ]
        assert len(await mq.find("orders", "all", until=half)) == 7
        assert await mq.find("orders", "all", until=datetime.fromtimestamp(1, UTC)) == []

        cluster.kill("10.0.1.2")
        left = await mq.find("orders", "all")
        assert 0 < len(left) < 12
        with pytest.raises(ClientError):
            await mq.find("orders", "nothing")
        with pytest.raises(BrokerError, match="can not find message by the offset"):
            await mq.message_at("0A00010100002A9F" + "0000000000FFFFFF")
        with pytest.raises(RouteNotFound):
            await mq.find("nothing", "x")
        with pytest.raises(ConfigError, match="most="):
            await mq.find("orders", "x", most=0)
        with pytest.raises(ConfigError, match="is not an offset message id"):
            await mq.message_at("what")

    simulate(scenario)
