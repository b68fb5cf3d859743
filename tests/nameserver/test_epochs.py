"""A group that elects its master: the highest epoch has the place, whatever connections still seem open."""

import asyncio
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.nameserver.test_route_table import A, B, addresses, empty, queues, register, topics
from tests.nameserver.test_service import BROKER, Case, Run, namesrv  # noqa: F401

from roquette.errors import Refused
from roquette.nameserver.floor.identity import BrokerIdentity, Claim, Registered, Registration
from roquette.nameserver.floor.route_table import RouteTable
from roquette.remoting.client import RemotingClient
from roquette.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
    encode_register_broker_body,
)
from roquette.wire.json_body import decode_body


def version(epoch: int, counter: int = 1) -> DataVersion:
    return DataVersion(counter=counter, state_version=epoch, timestamp=100)


def elect(
    table: RouteTable, address: str, broker_id: int, epoch: int, connection: int, now_ms: int = 0
) -> Registered | None:
    """Register as the processor does: ask for a rival first. Raises Refused for one that stays."""
    identity = BrokerIdentity("c", "a", address, broker_id)
    claim = Claim(identity, epoch) if epoch else None
    if (
        table.rival(identity, connection=connection, now_ms=now_ms, claim=claim) is not None
        and table.epoch("c", "a") <= epoch
    ):
        raise Refused(1, "a rival stays")
    more: dict[str, Any] = {"version": version(epoch), "connection": connection, "now_ms": now_ms}
    return register(table, topics("T", "U"), address=address, broker_id=broker_id, **more)


def test_a_higher_epoch_takes_the_place_of_a_living_master() -> None:
    table = RouteTable()
    elect(table, A, 0, 5, connection=1)
    elect(table, B, 2, 5, connection=2)
    assert addresses(table) == {0: A, 2: B}
    elect(table, B, 0, 6, connection=2)
    assert addresses(table) == {0: B}
    assert queues(table, "T") == {"a": (4, 4, 6)}


def test_the_deposed_master_is_refused_over_its_old_connection_and_removes_nothing() -> None:
    table = RouteTable()
    elect(table, A, 0, 5, connection=1)
    elect(table, B, 0, 6, connection=2)
    with pytest.raises(Refused, match=r"not the master any more: it names epoch 5.* at 6"):
        elect(table, A, 0, 5, connection=1)
    assert not table.unregister(BrokerIdentity("c", "a", A, 0), connection=1, now_ms=1)
    assert table.connection_lost(1, 0) == []
    assert addresses(table) == {0: B}
    elect(table, A, 1, 6, connection=1)
    assert addresses(table) == {0: B, 1: A}


def test_replicas_keep_a_deposed_master_out_when_the_new_one_has_died() -> None:
    table = RouteTable()
    elect(table, A, 0, 5, connection=1)
    elect(table, B, 0, 6, connection=2)
    elect(table, "10.0.0.3:10911", 3, 6, connection=3)
    table.connection_lost(2, 0)
    with pytest.raises(Refused):
        elect(table, A, 0, 5, connection=1)
    table.connection_lost(3, 0)
    elect(table, A, 0, 5, connection=1)
    assert addresses(table) == {0: A}, (
        "nobody is left who knows better: no claim outlives its broker"
    )


def test_a_master_that_becomes_a_replica_leaves_the_masters_place() -> None:
    table = RouteTable()
    elect(table, A, 0, 5, connection=1)
    elect(table, B, 2, 5, connection=2)
    elect(table, A, 1, 6, connection=3)
    assert addresses(table) == {1: A, 2: B}
    elect(table, B, 0, 6, connection=4)
    result = elect(table, A, 1, 6, connection=3)
    assert addresses(table) == {0: B, 1: A}
    assert result is not None
    assert (result.master_address, result.ha_address) == (B, "ha-" + B)


@pytest.mark.parametrize(
    "identity",
    [
        BrokerIdentity("d", "a", B, 0),
        BrokerIdentity("c", "b", A, 0),
        BrokerIdentity("d", "a", A, 0),
    ],
    ids=["another cluster", "another name, the same address", "another cluster, the same address"],
)
def test_an_epoch_counts_in_its_own_group_only(identity: BrokerIdentity) -> None:
    table = RouteTable()
    elect(table, A, 0, 5, connection=1)
    claim = Claim(identity, 9)
    assert table.rival(identity, connection=2, now_ms=1, claim=claim) == 1


def test_nobody_is_deposed_for_an_address_that_another_name_has_in_another_cluster() -> None:
    table = RouteTable()
    register(table, topics("T", "U"), connection=5)
    register(table, topics("V", "W"), name="evil", cluster="d", connection=8)
    register(table, topics("V", "W"), name="evil", address=B, connection=8)
    assert len(table.connection_lost(5, 0)) == 1


@pytest.mark.parametrize(
    ("names", "epoch", "claimed"), [("T", 9, None), ("", 9, None), ("TU", 0, None), ("TU", 9, 9)]
)
def test_only_a_registration_of_more_than_one_topic_claims(
    names: str, epoch: int, claimed: int | None
) -> None:
    said = Registration(
        identity=BrokerIdentity("c", "a", B, 0),
        topics=topics(*names),
        data_version=version(epoch),
        connection=1,
        now_ms=0,
    )
    assert (said.claim and said.claim.epoch) == claimed


class Elections(RuleBasedStateMachine):
    """Two brokers of one group are elected in turn, reconnect, fall silent, and are told of late, in any order.

    The model: who registered as master with the highest epoch is the master until its connection is lost, it is
    silent for too long, or it says over that connection that it leaves or is a replica. No word of another one over
    any other connection changes that, unless with a higher epoch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = 0
        self.connections = 0
        self.epoch = 1  # of the record: the newest there is
        self.known = {A: 1, B: 1}  # what each broker has read of it
        self.is_master = {A: False, B: False}  # what each broker believes
        self.used: dict[str, list[int]] = {A: [], B: []}
        self.master: tuple[str, int, int, int] | None = None  # address, epoch, connection, seen

    ADDRESS = st.sampled_from([A, B])

    @rule(address=ADDRESS)
    def elected(self, address: str) -> None:
        self.epoch += 1
        self.known[address], self.is_master[address] = self.epoch, True

    @rule(address=ADDRESS)
    def learns(self, address: str) -> None:
        """It reads the record: it is master only if that is its own epoch."""
        self.is_master[address] &= self.known[address] == self.epoch
        self.known[address] = self.epoch

    @rule(address=ADDRESS, reconnect=st.booleans(), data=st.data())
    def registers(self, address: str, reconnect: bool, data: st.DataObject) -> None:
        if reconnect or not self.used[address]:
            self.connections += 1
            self.used[address].append(self.connections)
        connection = data.draw(st.sampled_from(self.used[address]))
        epoch, as_master = self.known[address], self.is_master[address]
        broker_id = 0 if as_master else (1 if address == A else 2)
        before = self.table.epoch("c", "a")
        try:
            elect(self.table, address, broker_id, epoch, connection, self.now_ms)
        except Refused:
            highest = self.master is None or epoch > max(before, self.master[1])
            assert not (as_master and highest), "the newest master is let in at once"
            return
        if as_master:
            assert epoch >= before
            self.master = (address, epoch, connection, self.now_ms)
        elif self.master is not None and self.master[0] == address:
            self.master = None

    @rule(address=ADDRESS, data=st.data())
    def late_loss(self, address: str, data: st.DataObject) -> None:
        if not self.used[address]:
            return
        connection = data.draw(st.sampled_from(self.used[address]))
        self.used[address].remove(connection)
        self.table.connection_lost(connection, 0)
        if self.master is not None and self.master[2] == connection:
            self.master = None

    @rule(address=ADDRESS, broker_id=st.sampled_from([0, 1, 2]), data=st.data())
    def late_good_bye(self, address: str, broker_id: int, data: st.DataObject) -> None:
        if not self.used[address]:
            return
        connection = data.draw(st.sampled_from(self.used[address]))
        identity = BrokerIdentity("c", "a", address, broker_id)
        done = self.table.unregister(identity, connection=connection, now_ms=self.now_ms)
        if self.master is not None and self.master[0] == address and done:
            silent = self.now_ms - self.master[3] > 75_000
            assert connection == self.master[2] or silent, "only over its own connection"
            self.master = None

    @rule(address=ADDRESS, data=st.data())
    def beats(self, address: str, data: st.DataObject) -> None:
        if not self.used[address]:
            return
        connection = data.draw(st.sampled_from(self.used[address]))
        known = self.table.live.find("c", address) is not None
        own = self.table.live.touch("c", address, connection=connection, now_ms=self.now_ms)
        if known and own and self.master is not None and self.master[0] == address:
            self.master = (address, self.master[1], connection, self.now_ms)

    @rule(step=st.integers(1, 130_000))
    def time_passes(self, step: int) -> None:
        self.now_ms += step
        self.table.expire(self.now_ms)
        if self.master is not None and self.master[3] + 120_000 < self.now_ms:
            self.master = None

    @invariant()
    def the_route_shows_the_master(self) -> None:
        shown = addresses(self.table)
        assert shown.get(0) == (None if self.master is None else self.master[0])
        assert len(set(shown.values())) == len(shown), "one entry per address"
        live = {a for a in (A, B) if self.table.live.find("c", a) is not None}
        assert set(shown.values()) == live
        if not shown:
            assert empty(self.table)


TestElections = Elections.TestCase


def body_of(epoch: int) -> bytes:
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=topics("T", "U"), data_version=version(epoch)
    )
    return encode_register_broker_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))


def test_a_new_master_is_routed_at_once_while_the_old_ones_machine_is_gone(
    namesrv: Run,  # noqa: F811
) -> None:
    """SIGSTOP, a cut cable: the connection of the old master stays open and says nothing."""

    async def scenario(case: Case) -> None:
        gone, new = "10.0.3.3", "10.0.4.4:10911"
        old = RemotingClient(case.clock, local_host=gone)
        ours, case.broker = case.broker, old
        fields = {"brokerName": "broker-a", "clusterName": "c", "brokerId": 0, "haServerAddr": ""}
        await case.call(103, body_of(5), brokerAddr=f"{gone}:10911", **fields)
        case.broker = ours
        case.loop.network.isolate(gone)
        began = case.loop.time()
        assert (await case.call(103, body_of(6), brokerAddr=new, **fields)).code == 0
        assert case.loop.time() - began < 0.05
        route = decode_body(TopicRouteData, (await case.route()).body)
        assert route.broker_datas[0].broker_addrs == {0: new}
        refused = await case.call(103, body_of(5), brokerAddr=f"{gone}:10911", **fields)
        assert refused.code == 1
        assert "not the master any more" in (refused.remark or "")
        good_bye = await case.call(104, brokerAddr=f"{gone}:10911", **fields)
        assert good_bye.code == 0
        await asyncio.sleep(100)
        await case.call(103, body_of(6), brokerAddr=new, **fields)
        await asyncio.sleep(100)
        route = decode_body(TopicRouteData, (await case.route()).body)
        assert route.broker_datas[0].broker_addrs == {0: new}

    namesrv(scenario)
