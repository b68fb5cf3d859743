"""GET_BROKER_RUNTIME_INFO, and the rates other answers carry: they move with the traffic."""

import asyncio

from tests.broker.conftest import HOST, PORT

from roquette.wire.bodies import ConsumeStats, TopicStatsTable
from roquette.wire.json_body import decode_body


async def table_of(client):
    reply = await client.call(28, {})
    return decode_body(dict, reply.body)["table"]


def test_traffic_shows_in_the_table_and_in_rates(run_broker):
    async def scenario(case):
        client = await case.client()
        for _ in range(12):
            await asyncio.sleep(5)
            for queue in range(4):
                await client.produce(e=queue)
            assert (await client.pull(queue_id=0, offset=0)).code == 0
            offset = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 5}
            assert (await client.call(15, offset)).code == 0
        table = await table_of(client)
        assert table["putMessageTimesTotal"] == "48"
        assert table["putMessageDistributeTime"].startswith("[<=0ms]:44 ")  # the last minute
        assert (table["putLatency99"], table["putLatency999"]) == ("0.00", "0.00")
        assert all(0.7 <= float(rate) <= 0.81 for rate in table["putTps"].split())
        assert table["commitLogDirCapacity"].startswith("Total : ")
        (path,) = [key for key in table if key.startswith("commitLogDiskRatio_")]
        assert path.endswith("/store/commitlog")
        assert table[path] == table["commitLogDiskRatio"]
        assert table["ackThreadPoolQueueCapacity"] == "100000"
        assert table["EndTransactionQueueSize"] == "0"

        topic = decode_body(TopicStatsTable, (await client.call(202, {"topic": "T"})).body)
        assert 0.6 <= topic.topic_put_tps <= 1.0
        group = decode_body(ConsumeStats, (await client.call(208, {"consumerGroup": "g"})).body)
        assert 0.6 <= group.consume_tps <= 3.0
        assert group.offset_table

    run_broker(scenario)


def test_who_speaks_something_else_is_counted_at_both_ports(run_broker):
    async def scenario(case):
        client = await case.client()
        table = await table_of(client)
        assert (table["wrongProtocolConnections"], table["wrongProtocolLast"]) == ("0", "")
        assert int(table["descriptorLimit"]) > int(table["openDescriptors"]) > 3

        reader, writer = await asyncio.open_connection(HOST, PORT)
        writer.write(b"EHLO mail.example.org\r\n")
        while await reader.read(100):
            pass
        table = await table_of(client)
        assert table["wrongProtocolConnections"] == "1"
        assert ":" in table["wrongProtocolLast"]

    run_broker(scenario)
