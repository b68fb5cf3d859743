"""What a page of names tells, asked of brokers: rates."""

import asyncio

from roquette import StartFrom
from roquette.admin.catalogue import group_rows, groups, topic_rows
from roquette.admin.topics import create_topic, describe_topic
from roquette.message.message import ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

NAME_SERVER, A, B, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1"


def test_rates_of_topics_and_groups_are_those_of_their_brokers() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAME_SERVER)
        for ip, name in ((A, "broker-a"), (B, "broker-b")):
            await cluster.add_broker(ip, name)
        mq = await cluster.client(CLIENT)
        run = mq.session.run
        await run(create_topic(mq.session.name_servers, "orders", queues=1))
        await run(create_topic(mq.session.name_servers, "idle", queues=1))
        await asyncio.sleep(1)
        got: list[ReceivedMessage] = []
        await mq.subscribe("orders", group="g", handler=got.append, start_from=StartFrom.FIRST)
        for _ in range(60):
            for queue in await mq.queues("orders"):
                await mq.send("orders", b"x", queue=queue)
            await asyncio.sleep(1)
        rows = {row.topic: row for row in await run(topic_rows(["orders", "idle"]))}
        assert 1.6 <= rows["orders"].in_tps <= 2.4 and rows["idle"].in_tps == 0
        assert rows["orders"].messages == 120
        described = await run(describe_topic("orders"))
        assert [0.8 <= broker.in_tps <= 1.2 for broker in described.brokers] == [True, True]
        (group,) = await run(group_rows(["g"], await run(groups())))
        assert len(got) == 120 and 1.6 <= group.out_tps <= 2.4
        assert (group.members, group.lag) == (1, 0)

        cluster.partition(CLIENT, A)
        cluster.partition(CLIENT, B)
        (row,) = await run(topic_rows(["orders"]))
        assert (row.messages, row.last_ms, row.in_tps) == (-1, -1, -1.0) and A in row.error

    simulate(scenario)
