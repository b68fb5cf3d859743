"""Brokers with enableSlaveActingMaster are told when the smallest id of their name changes."""

import asyncio

from tests.nameserver.test_route_table import A, B, register, topics
from tests.nameserver.test_service import Case, Run, namesrv  # noqa: F401

from roquette.base.lifecycle import Tasks
from roquette.nameserver.member_notices import MemberNotices
from roquette.nameserver.route_table import RouteTable
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.lanes import LaneLimits
from roquette.remoting.outcomes import Silent
from roquette.remoting.request import Row
from roquette.remoting.server import Server
from roquette.wire.header_codec import ext_dict

C = "10.0.0.3:10911"


def test_who_is_told_what() -> None:
    table = RouteTable()
    notices = MemberNotices(table)
    table.members_changed = notices.changed

    def told() -> list[tuple[list[str], tuple[object, ...]]]:
        return [
            (who, (n.min_broker_id, n.min_broker_addr, n.offline_broker_addr, n.ha_broker_addr))
            for who, n in notices.take()
        ]

    register(table, topics("T", "U"), enable_acting_master=True)
    register(table, {}, address=B, broker_id=1, connection=2, enable_acting_master=True)
    register(table, {}, address=C, broker_id=2, connection=3, enable_acting_master=True)
    assert told() == [], "the first look at them"
    table.connection_lost(1)
    assert told() == [([B, C], (1, B, A, "ha-" + B))]
    table.connection_lost(3)
    assert told() == [], "not the smallest"
    register(table, topics("T", "U"), connection=4, enable_acting_master=True)
    assert told() == [([B], (0, A, None, "ha-" + A))], "it knows it itself"
    for connection in (2, 4):
        table.connection_lost(connection)
    assert told() == []
    assert not notices._members


def test_without_acting_master_nobody_is_told() -> None:
    table = RouteTable()
    notices = MemberNotices(table)
    table.members_changed = notices.changed
    register(table, topics("T", "U"))
    register(table, {}, address=B, broker_id=1, connection=2)
    notices.take()
    table.connection_lost(1)
    assert notices.take() == []


def test_it_is_sent_to_the_brokers_port(namesrv: Run) -> None:  # noqa: F811
    async def scenario(case: Case) -> None:
        seen: list[dict[str, str]] = []

        def notice(ctx: object, header: None, body: bytes) -> Silent:
            seen.append(ext_dict(ctx.command.ext))  # type: ignore[attr-defined]
            return Silent()

        rows = [Row(905, notice, None, 0)]
        dispatcher = Dispatcher(rows, [LaneLimits("all", 9)], case.clock, case.loop, Tasks())
        replica = Server(dispatcher, case.clock)
        await replica.start("10.0.7.7", 10911)
        await case.register(enableActingMaster="true")
        fields = {"brokerName": "broker-a", "clusterName": "c", "enableActingMaster": "true"}
        address = "10.0.7.7:10911"
        await case.call(103, b"", brokerAddr=address, brokerId=1, haServerAddr="h", **fields)
        await asyncio.sleep(1)
        assert seen == []
        await case.broker.close()
        await asyncio.sleep(1)
        assert seen == [
            {
                "minBrokerId": "1",
                "brokerName": "broker-a",
                "minBrokerAddr": address,
                "offlineBrokerAddr": "10.0.1.1:10911",
                "haBrokerAddr": "h",
            }
        ]
        await replica.stop()

    namesrv(scenario, notify_min_broker_id_changed=True)
