"""What a name server remembers of brokers: every rule of registration and of its end."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from roquette.nameserver.floor.identity import BrokerIdentity, Registered, Registration
from roquette.nameserver.floor.route_table import RouteTable
from roquette.wire.bodies import DataVersion, QueueData, TopicConfig, TopicQueueMappingInfo

V1 = DataVersion(counter=1, timestamp=100)
V2 = DataVersion(counter=2, timestamp=200)
A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def topics(*names: str, **fields: Any) -> dict[str, TopicConfig]:
    return {
        n: TopicConfig(**{"topic_name": n, "read_queue_nums": 4, "write_queue_nums": 4} | fields)
        for n in names
    }


def register(
    table: RouteTable,
    given: dict[str, TopicConfig],
    *,
    name: str = "a",
    address: str = A,
    broker_id: int = 0,
    version: DataVersion = V1,
    cluster: str = "c",
    connection: int = 1,
    now_ms: int = 0,
    **more: Any,
) -> Registered | None:
    said = Registration(
        identity=BrokerIdentity(cluster, name, address, broker_id),
        topics=given,
        data_version=version,
        connection=connection,
        now_ms=now_ms,
        ha_address=more.pop("ha_address", "ha-" + address),
        **more,
    )
    return table.register(said)


def queues(table: RouteTable, topic: str) -> dict[str, tuple[int, int, int]]:
    route = table.find_route(topic)
    if route is None:
        return {}
    return {
        q.broker_name: (q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queue_datas
    }


def addresses(table: RouteTable, name: str = "a") -> dict[int, str]:
    return table.find_members(name)


def empty(table: RouteTable) -> bool:
    """Nothing is left anywhere, not even inside."""
    hidden = ("_topics", "_told", "_brokers", "_clusters", "_filters", "_mappings", "live")
    return not any(getattr(table, name) for name in hidden) and not table.live._by_connection


# Registration


def test_a_master_enters_its_topics() -> None:
    table = RouteTable()
    result = register(table, topics("T", "U"))

    assert result is not None
    assert (result.master_address, result.ha_address) == (None, None)
    route = table.find_route("T")
    assert route is not None
    assert route.queue_datas == [QueueData("a", 4, 4, 6, 0)]
    assert [b.broker_addrs for b in route.broker_datas] == [{0: A}]
    assert table.topics() == ["T", "U"]
    assert table.cluster_info(0).cluster_addr_table == {"c": ["a"]}


def test_an_unknown_topic_has_no_route() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    assert table.find_route("nope") is None


def test_an_unknown_broker_with_a_single_topic_is_refused() -> None:
    table = RouteTable()
    assert register(table, topics("T")) is None
    assert empty(table)
    assert register(table, {}) is not None, "none at all is a broker without topics"
    assert register(table, topics("T"), version=V2) is not None, "now it is known"
    assert queues(table, "T") == {"a": (4, 4, 6)}


def test_a_part_adds_to_what_is_known() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("V"), version=V2)
    assert table.topics() == ["T", "U", "V"]


def test_chunks_of_a_split_registration_add_up() -> None:
    table = RouteTable()
    for start in range(0, 2000, 800):
        register(table, topics(*(f"T{i}" for i in range(start, min(start + 800, 2000)))))
    assert len(table.topics()) == 2000


def test_a_new_version_rewrites() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", write_queue_nums=8, perm=4), version=V2)
    assert queues(table, "T") == {"a": (4, 8, 4)}
    assert queues(table, "U") == {"a": (4, 4, 6)}


def test_two_registrations_of_one_instant_lose_nothing() -> None:
    """Apache ignores the second change of one data version; the topic keeps old queues for ever."""
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", write_queue_nums=8), version=V2)
    register(table, topics("U", write_queue_nums=8), version=V2)
    register(table, topics("N"), version=V2)
    assert queues(table, "T") == queues(table, "U") == {"a": (4, 8, 6)}
    assert queues(table, "N") == {"a": (4, 4, 6)}


def test_a_wiped_write_permission_survives_heartbeats_and_ends_with_a_change() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", "U"), name="b", address=B, connection=2)

    assert table.wipe_write_perm("a") == 2
    assert queues(table, "T") == {"a": (4, 4, 4), "b": (4, 4, 6)}
    register(table, topics("T", "U"))
    assert queues(table, "T")["a"] == (4, 4, 4)
    register(table, topics("T", "U"), version=V2)
    assert queues(table, "T")["a"] == (4, 4, 6)


def test_add_write_permission_sets_exactly_6() -> None:
    table = RouteTable()
    register(table, topics("T", "U", perm=7))
    table.wipe_write_perm("a")
    assert queues(table, "T") == {"a": (4, 4, 5)}
    assert table.add_write_perm("a") == 2
    assert queues(table, "T") == {"a": (4, 4, 6)}
    assert table.wipe_write_perm("nobody") == 0


def test_a_replica_with_a_master_learns_of_it_and_writes_no_topics() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    result = register(
        table, topics("T", "X", "Y"), address=B, broker_id=1, connection=2, version=V2
    )
    assert result is not None
    assert (result.master_address, result.ha_address) == (A, "ha-" + A)
    assert addresses(table) == {0: A, 1: B}
    assert table.topics() == ["T", "U"]


def test_a_replica_without_a_master_learns_of_none() -> None:
    table = RouteTable()
    result = register(table, topics("T", "U"), address=B, broker_id=1)
    assert result is not None
    assert result.master_address is None
    assert table.topics() == [], "an old replica does not speak for its group"


def test_the_first_replica_of_5x_speaks_for_a_group_without_master() -> None:
    table = RouteTable()
    register(table, topics("T", "U"), broker_id=2, address=B, modern=True)
    assert queues(table, "T") == {"a": (4, 4, 6)}
    register(table, topics("X", "Y"), broker_id=3, address=A, modern=True)
    assert table.topics() == ["T", "U"], "only the smallest id does"


def test_a_replica_that_becomes_master_has_one_entry() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", "U"), address=B, broker_id=1, connection=2)
    table.connection_lost(1, 0)
    register(table, topics("T", "U"), address=B, broker_id=0, connection=2, version=V2)
    assert addresses(table) == {0: B}


def test_an_id_held_with_a_higher_state_version_is_kept() -> None:
    table = RouteTable()
    elected = DataVersion(counter=1, timestamp=1, state_version=5)
    register(table, topics("T", "U"), version=elected)
    result = register(table, topics("X", "Y"), address=B, connection=2, version=V2)
    assert result is not None
    assert result.master_address is None
    assert addresses(table) == {0: A}
    assert table.topics() == ["T", "U"]
    assert table.live.find_data_version("c", B) is None
    later = DataVersion(counter=1, timestamp=1, state_version=6)
    register(table, topics("T", "U"), address=B, connection=2, version=later)
    assert addresses(table) == {0: B}


def test_a_renamed_broker_leaves_its_old_name() -> None:
    table = RouteTable()
    register(table, topics("T", "U"), name="old")
    register(table, topics("T", "U"), name="new")
    assert queues(table, "T") == {"new": (4, 4, 6)}
    assert table.cluster_info(0).cluster_addr_table == {"c": ["new"]}


def test_absent_topics_are_deleted_only_when_told_to() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", "V"), version=V2)
    assert table.topics() == ["T", "U", "V"]
    register(table, topics("T", "V"), delete_absent=True)
    assert table.topics() == ["T", "V"]


def test_filter_servers_come_with_the_route() -> None:
    table = RouteTable()
    register(table, topics("T", "U"), filter_servers=["10.0.0.1:30000"])
    route = table.find_route("T")
    assert route is not None
    assert route.filter_server_table == {A: ["10.0.0.1:30000"]}
    register(table, topics("T", "U"), filter_servers=[])
    route = table.find_route("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_static_topic_mappings_are_carried() -> None:
    table = RouteTable()
    mapping = TopicQueueMappingInfo(topic="T", bname="a", total_queues=8)
    register(table, topics("T", "U"), mappings={"T": mapping})
    route = table.find_route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"a": mapping}


# Ends


def test_expiry_is_by_the_brokers_own_timeout() -> None:
    table = RouteTable()
    register(table, topics("T", "U"), now_ms=1000)
    register(
        table, topics("T", "U"), name="b", address=B, connection=2, now_ms=1000, timeout_ms=10_000
    )
    assert table.expire(11_000) == []
    assert [(b.identity.broker_name, b.connection) for b in table.expire(11_001)] == [("b", 2)]
    assert table.expire(121_000) == []
    assert [b.identity.broker_name for b in table.expire(121_001)] == ["a"]
    assert empty(table)


def test_signs_of_life_postpone_expiry() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    table.live.touch("c", A, connection=1, now_ms=100_000)
    assert table.expire(130_000) == []
    table.live.touch("c", "unknown", connection=1, now_ms=1)
    assert len(table.expire(220_001)) == 1


def test_a_lost_connection_takes_all_that_came_over_it() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", "U"), name="b", address=B)
    assert [b.identity.broker_name for b in table.connection_lost(1, 0)] == ["a", "b"]
    assert empty(table)
    assert table.connection_lost(1, 0) == []


def test_a_stale_loss_leaves_a_fresh_registration() -> None:
    table = RouteTable()
    register(table, topics("T", "U"), connection=1)
    register(table, topics("T", "U"), connection=2)
    assert table.connection_lost(1, 0) == []
    assert queues(table, "T") == {"a": (4, 4, 6)}


def test_only_its_own_connection_keeps_a_broker_alive_until_it_is_silent() -> None:
    table = RouteTable()
    register(table, topics("T", "U"), connection=1)
    assert not table.live.touch("c", A, connection=2, now_ms=75_000)
    assert table.live.touch("c", A, connection=2, now_ms=75_001), (
        "it was silent: the other one has it"
    )
    assert table.connection_lost(1, 0) == []
    assert len(table.connection_lost(2, 0)) == 1


def test_unregistering_removes_at_once() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", "W"), name="b", address=B, connection=2)
    assert table.unregister(BrokerIdentity("c", "a", A, 0), connection=1, now_ms=1)
    assert queues(table, "T") == {"b": (4, 4, 6)}
    assert table.topics() == ["T", "W"]
    b = BrokerIdentity("c", "b", B, 0)
    assert not table.unregister(b, connection=3, now_ms=75_000)
    assert table.unregister(b, connection=3, now_ms=75_001), "a newer connection, when it is silent"
    assert empty(table)


def test_a_stale_unregistration_leaves_a_fresh_registration() -> None:
    """Apache's issue 11043: the good-bye of the old process wipes what the new one has registered."""
    table = RouteTable()
    register(table, topics("T", "U"), connection=1)
    register(table, topics("T", "U"), connection=2)
    for now_ms in (1, 100_000):
        a = BrokerIdentity("c", "a", A, 0)
        assert not table.unregister(a, connection=1, now_ms=now_ms)
        assert queues(table, "T") == {"a": (4, 4, 6)}
        other = BrokerIdentity("c", "other", A, 0)
        assert not table.unregister(other, connection=9, now_ms=now_ms)
        elsewhere = BrokerIdentity("c", "a", B, 0)
        assert not table.unregister(elsewhere, connection=9, now_ms=now_ms)


RIVALS = {
    "the same once more": BrokerIdentity("c", "a", A, 0),
    "another address, the same id": BrokerIdentity("c", "a", B, 0),
    "another id, the same address": BrokerIdentity("c", "a", A, 1),
    "another name, the same address": BrokerIdentity("c", "b", A, 0),
    "another cluster, the same name and address": BrokerIdentity("d", "a", A, 0),
    "another cluster, the same name": BrokerIdentity("d", "a", B, 1),
}
FREE = {
    "another broker": BrokerIdentity("c", "b", B, 0),
    "a replica": BrokerIdentity("c", "a", B, 1),
    "another cluster and name": BrokerIdentity("d", "b", A, 0),
}


@pytest.mark.parametrize("identity", RIVALS.values(), ids=RIVALS)
def test_the_place_of_a_living_broker_is_taken(identity: BrokerIdentity) -> None:
    table = RouteTable()
    register(table, topics("T", "U"), connection=7, now_ms=1_000)
    assert table.rival(identity, connection=7, now_ms=2_000) is None, "it may change itself"
    assert table.rival(identity, connection=8, now_ms=76_000) == 7
    assert table.rival(identity, connection=8, now_ms=76_001) is None, "silent"
    assert table.live.touch("c", A, connection=7, now_ms=60_000, beats=True)
    assert table.rival(identity, connection=8, now_ms=70_000) == 7
    assert table.rival(identity, connection=8, now_ms=70_001) is None, "no beat for 10 s"
    table.connection_lost(7, 0)
    assert table.rival(identity, connection=8, now_ms=60_000) is None


@pytest.mark.parametrize("identity", FREE.values(), ids=FREE)
def test_other_places_are_free(identity: BrokerIdentity) -> None:
    table = RouteTable()
    register(table, topics("T", "U"), connection=7)
    assert table.rival(identity, connection=8, now_ms=0) is None


def test_a_group_keeps_its_topics_while_a_member_lives() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", "U"), address=B, broker_id=1, connection=2)
    table.connection_lost(1, 0)
    assert queues(table, "T") == {"a": (4, 4, 6)}
    assert addresses(table) == {1: B}
    table.connection_lost(2, 0)
    assert empty(table)


# Operators


def test_deleting_topics() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    register(table, topics("T", "U"), name="b", address=B, cluster="d", connection=2)
    table.delete_topic("T", "d")
    assert queues(table, "T") == {"a": (4, 4, 6)}
    table.delete_topic("T", "unknown")
    table.delete_topic("U")
    assert table.topics() == ["T"]
    register(table, topics("T", "U"))
    assert table.topics() == ["T", "U"], "a broker that has it brings it back"


def test_registering_a_topic_needs_known_brokers() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    table.register_topic("N", [QueueData("a", 2, 2, 6, 0), QueueData("nobody", 2, 2, 6, 0)])
    assert queues(table, "N") == {"a": (2, 2, 6)}
    table.connection_lost(1, 0)
    assert empty(table)


def test_lists() -> None:
    table = RouteTable()
    assert table.system_topics() == ([], None)
    register(table, topics("T", "U"))
    register(
        table,
        topics("X", topic_sys_flag=1)
        | topics("Y", topic_sys_flag=3)
        | topics("Z", topic_sys_flag=2),
        name="b",
        address=B,
        cluster="d",
        connection=2,
    )
    assert table.topics_of_cluster("c") == ["T", "U"]
    assert table.topics_of_cluster("nope") == []
    assert table.system_topics() == (["c", "a", "d", "b"], A)
    assert table.topics_with_flags(unit=True) == ["X", "Y"]
    assert table.topics_with_flags(unit_sub=True) == ["Y", "Z"]
    assert table.topics_with_flags(unit=False, unit_sub=True) == ["Z"]


def test_data_versions() -> None:
    table = RouteTable()
    assert table.live.find_data_version("c", A) is None
    register(table, topics("T", "U"))
    assert table.live.find_data_version("c", A) == V1


def test_the_revision_moves_with_what_lookups_show_and_not_with_heartbeats() -> None:
    table = RouteTable()
    register(table, topics("T", "U"))
    before = table.revision
    register(table, topics("T", "U"))
    register(table, topics("T", "U"), version=V2)
    table.live.touch("c", A, connection=1, now_ms=5)
    assert table.revision == before
    register(table, topics("T", perm=4), version=V2)
    assert table.revision > before


class Interleavings(RuleBasedStateMachine):
    """Brokers start, stop, reconnect, fall silent and are told of late, in any order.

    The model: the connection a broker registered over decides, until it is lost or was silent for 75 s; the broker
    is routed exactly as long as that registration stands.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = 0
        self.connections = 0
        self.model: dict[str, tuple[int, int]] = {}  # address -> (connection, last sign of life)
        self.used: dict[str, list[int]] = {A: [], B: []}  # connections each broker ever had

    ADDRESS = st.sampled_from([A, B])

    def identity(self, address: str) -> BrokerIdentity:
        return BrokerIdentity("c", "a" if address == A else "b", address, 0)

    def silent(self, known: tuple[int, int]) -> bool:
        return self.now_ms - known[1] > 75_000

    @rule(address=ADDRESS, reconnect=st.booleans())
    def register(self, address: str, reconnect: bool) -> None:
        if reconnect or not self.used[address]:
            self.connections += 1
            self.used[address].append(self.connections)
        connection = self.used[address][-1]
        known = self.model.get(address)
        rival = self.table.rival(self.identity(address), connection=connection, now_ms=self.now_ms)
        taken = known is not None and connection != known[0] and not self.silent(known)
        assert rival == (known[0] if known is not None and taken else None)
        if taken:
            return
        register(
            self.table,
            topics("T", "U"),
            name=self.identity(address).broker_name,
            address=address,
            connection=connection,
            now_ms=self.now_ms,
        )
        self.model[address] = (connection, self.now_ms)

    @rule(address=ADDRESS, data=st.data())
    def late_loss(self, address: str, data: st.DataObject) -> None:
        """Any connection the broker ever had is found dead; a fresh one must not be used again."""
        if not self.used[address]:
            return
        connection = data.draw(st.sampled_from(self.used[address]))
        self.used[address].remove(connection)
        self.table.connection_lost(connection, 0)
        if address in self.model and self.model[address][0] == connection:
            del self.model[address]

    @rule(address=ADDRESS, data=st.data())
    def late_unregistration(self, address: str, data: st.DataObject) -> None:
        if not self.used[address]:
            return
        connection = data.draw(st.sampled_from(self.used[address]))
        done = self.table.unregister(
            self.identity(address), connection=connection, now_ms=self.now_ms
        )
        known = self.model.get(address)
        newer = known is not None and self.silent(known) and connection > known[0]
        assert done == (known is not None and (newer or connection == known[0]))
        if done:
            del self.model[address]

    @rule(address=ADDRESS, data=st.data())
    def heartbeat(self, address: str, data: st.DataObject) -> None:
        if not self.used[address]:
            return
        connection = data.draw(st.sampled_from(self.used[address]))
        own = self.table.live.touch("c", address, connection=connection, now_ms=self.now_ms)
        known = self.model.get(address)
        assert own == (known is None or connection == known[0] or self.silent(known))
        if known is not None and own:
            self.model[address] = (connection, self.now_ms)

    @rule(step=st.integers(1, 130_000))
    def time_passes(self, step: int) -> None:
        self.now_ms += step
        self.table.expire(self.now_ms)
        for address, (_, seen) in list(self.model.items()):
            if seen + 120_000 < self.now_ms:
                del self.model[address]

    @invariant()
    def routes_are_exactly_the_living(self) -> None:
        names = sorted(self.identity(address).broker_name for address in self.model)
        assert sorted(queues(self.table, "T")) == names
        assert sorted(queues(self.table, "U")) == names
        assert sorted(self.table.cluster_info(0).broker_addr_table) == names
        if not names:
            assert empty(self.table)


TestInterleavings = Interleavings.TestCase


class Strangers(RuleBasedStateMachine):
    """Whatever others say of brokers over connections of their own, a living broker stays as it registered (a claim by
    a higher epoch aside: test_epochs.py)."""

    NAMES = st.sampled_from(["a", "b", "evil"])
    ADDRESSES = st.sampled_from([A, B, "10.6.6.6:1"])

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.mapping = TopicQueueMappingInfo(topic="T", bname="a", total_queues=8)
        register(
            self.table,
            topics("T", "U"),
            connection=5,
            zone="z",
            modern=True,
            mappings={"T": self.mapping},
            filter_servers=["10.0.0.1:1"],
        )

    @rule(
        name=NAMES,
        address=ADDRESSES,
        broker_id=st.sampled_from([0, 1, 2, -1, 2**63 - 1]),
        cluster=st.sampled_from(["c", "d"]),
        connection=st.sampled_from([3, 8, 9]),
        modern=st.booleans(),
        state=st.sampled_from([0, 9]),
        leave=st.booleans(),
        absent=st.booleans(),
    )
    def speak(
        self,
        name: str,
        address: str,
        broker_id: int,
        cluster: str,
        connection: int,
        modern: bool,
        state: int,
        leave: bool,
        absent: bool,
    ) -> None:
        identity = BrokerIdentity(cluster, name, address, broker_id)
        if self.table.rival(identity, connection=connection, now_ms=10) is not None:
            return  # refused by the processor, which asks first
        if leave:
            self.table.unregister(identity, connection=connection, now_ms=10)
            return
        register(
            self.table,
            topics("V", "W"),
            name=name,
            address=address,
            broker_id=broker_id,
            cluster=cluster,
            connection=connection,
            version=DataVersion(counter=1, timestamp=9, state_version=state),
            now_ms=10,
            modern=modern,
            mappings={"T": TopicQueueMappingInfo(topic="T", bname="a", total_queues=1)},
            filter_servers=[],
            delete_absent=absent,
        )

    @rule(cluster=st.sampled_from(["c", "d"]), address=ADDRESSES, connection=st.integers(6, 9))
    def beat(self, cluster: str, address: str, connection: int) -> None:
        self.table.live.touch(cluster, address, connection=connection, now_ms=10)

    @rule(connection=st.sampled_from([3, 8, 9]))
    def hang_up(self, connection: int) -> None:
        self.table.connection_lost(connection, 0)

    @invariant()
    def the_living_broker_is_as_it_was(self) -> None:
        for topic in ("T", "U"):
            route = self.table.find_route(topic)
            assert route is not None
            assert [q for q in route.queue_datas if q.broker_name == "a"] == [
                QueueData("a", 4, 4, 6, 0)
            ]
        (a,) = [b for b in route.broker_datas if b.broker_name == "a"]
        assert (a.cluster, a.zone_name) == ("c", "z")
        assert a.broker_addrs[0] == A
        assert [i for i, address in a.broker_addrs.items() if address == A] == [0]
        route = self.table.find_route("T")
        assert route is not None
        assert route.topic_queue_mapping_by_broker == {"a": self.mapping}
        assert route.filter_server_table[A] == ["10.0.0.1:1"]
        assert "a" in self.table.cluster_info(0).cluster_addr_table["c"]


TestStrangers = Strangers.TestCase
