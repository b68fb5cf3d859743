"""Bodies in which Apache's controllers tell of a broker group."""

import msgspec

from roquette.wire.bodies.route import BrokerMemberGroup
from roquette.wire.numbers import Int32, Int64


class SyncStateSet(msgspec.Struct, rename="camel"):
    """The members in step, by id."""

    sync_state_set: list[Int64] = []
    sync_state_set_epoch: Int32 = 0


class ReplicaIdentity(msgspec.Struct, rename="camel"):
    """A member."""

    broker_name: str = ""
    broker_id: Int64 = 0
    broker_address: str = ""
    alive: bool = False


class ReplicasInfo(msgspec.Struct, rename="camel"):
    """A group."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 = 0
    sync_state_set_epoch: Int32 = 0
    in_sync_replicas: list[ReplicaIdentity] = []
    not_in_sync_replicas: list[ReplicaIdentity] = []


class BrokerReplicasInfo(msgspec.Struct, rename="camel"):
    """Groups by name of their brokers."""

    replicas_info_table: dict[str, ReplicasInfo] = {}


class ElectMasterResponseBody(msgspec.Struct, rename="camel"):
    """As brokers read it; and the fields of a BrokerMemberGroup beside, which is what mqadmin reads."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Int64] = []
    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[int, str] | None = None
