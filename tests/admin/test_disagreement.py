"""What name servers disagree about, in virtual time."""

import asyncio

import pytest

from roquette.admin.settings import ABSENT, differences
from roquette.errors import ClientError
from roquette_testing.cluster import SimCluster, simulate

ONE, TWO = "10.0.0.1", "10.0.0.2"
A, B = "10.0.1.1", "10.0.1.2"
SERVERS = [f"{ONE}:9876", f"{TWO}:9876"]


def test_agreement_differences_and_silence() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(ONE)
        await cluster.add_namesrv(TWO)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client("10.0.2.1")
        await mq.send("orders", b"1")
        await asyncio.sleep(60)
        run = mq.session.run
        assert await run(differences(SERVERS)) == []

        await cluster.add_broker(B, "broker-b", namesrv_addr=SERVERS[0])
        await asyncio.sleep(60)
        rows = await run(differences(SERVERS))
        brokers = {row.name_server: row.says for row in rows if row.kind == "broker"}
        assert brokers == {SERVERS[0]: f"DefaultCluster: 0={B}:10911", SERVERS[1]: ABSENT}
        assert {row.subject for row in rows if row.kind == "broker"} == {"broker-b"}
        system = {
            row.subject: row
            for row in rows
            if row.kind == "topic" and row.name_server == SERVERS[0]
        }
        assert "orders" not in system  # both say the same of it
        assert "broker-b 1 write 1 read RWX" in system["broker-b"].says

        cluster.isolate(TWO)
        rows = await run(differences(SERVERS))
        assert [(row.kind, row.subject) for row in rows] == [("name server", SERVERS[1])]
        assert rows[0].error
        cluster.isolate(ONE)
        with pytest.raises(ClientError):
            await run(differences(SERVERS))

    simulate(scenario)
