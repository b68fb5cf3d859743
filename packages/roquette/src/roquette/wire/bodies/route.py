"""Routes and cluster membership, as name servers tell them."""

from typing import Final

import msgspec

from roquette.wire.bodies.tables import TopicQueueMappingInfo
from roquette.wire.json_body import Int32, Int64

MASTER_ID: Final = 0  # every other id is a replica's


class QueueData(msgspec.Struct, rename="camel", frozen=True):
    """Queues of a topic on one broker: their number, and what may be done with them."""

    broker_name: str = ""
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class BrokerData(msgspec.Struct, rename="camel"):
    """A broker name and its members' addresses by id; id 0 is the master.

    `outside_addrs`: where clients from outside reach them, for brokers that ask (of ours).
    """

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = {}
    enable_acting_master: bool = False  # Apache's; no name server of ours sets it
    zone_name: str | None = None
    outside_addrs: dict[int, str] | None = None


class TopicRouteData(msgspec.Struct, rename="camel"):
    """Route of a topic: the places of its queues."""

    queue_datas: list[QueueData] = msgspec.field(default_factory=list)
    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


def canonical(data: TopicRouteData) -> tuple[object, ...]:
    """A route in a form that compares equal when it means the same."""
    return (
        tuple(
            sorted(
                (q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm, q.topic_sys_flag)
                for q in data.queue_datas
            )
        ),
        tuple(
            sorted(
                (b.broker_name, b.cluster, tuple(sorted(b.broker_addrs.items())))
                for b in data.broker_datas
            )
        ),
        data.order_topic_conf or "",
    )


ENDED: Final = "ended"
SILENT: Final = "silent"
LOST: Final = "lost"
REFUSED: Final = "refused"
ABSENT: Final = "absent"


class BrokerLeft(msgspec.Struct, rename="camel", frozen=True):
    """A broker that a name server had, or does not take.

    Attributes:
        why: ENDED: in order; SILENT: its heartbeat is overdue; LOST: its connection has ended; REFUSED: another one has its
            place, `peer` is the host it calls from; ABSENT, which no name server says: nobody has seen it.
    """

    cluster: str = ""
    broker_name: str = ""
    broker_id: Int64 = 0
    broker_addr: str = ""
    why: str = LOST
    ago_ms: Int64 = 0
    peer: str = ""


class ClusterInfo(msgspec.Struct, rename="camel"):
    """Every broker, and which clusters they form. `brokers_left`: ours, Apache's tools pass over it; None: not known."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}
    brokers_left: list[BrokerLeft] | None = None


class BrokerMemberGroup(msgspec.Struct, rename="camel"):
    """The members of one broker name."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = {}


class GetBrokerMemberGroupResponseBody(msgspec.Struct, rename="camel"):
    """Answer of GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None


class TopicList(msgspec.Struct, rename="camel"):
    """Names of topics; `broker_addr` is one broker that can be asked further."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None


class GroupList(msgspec.Struct, rename="camel"):
    """Names of consumer groups."""

    group_list: list[str] = msgspec.field(default_factory=list)


class KVTable(msgspec.Struct, rename="camel"):
    """A table of texts."""

    table: dict[str, str] = {}


class KVConfigFile(msgspec.Struct, rename="camel"):
    """kvConfig.json of a name server."""

    config_table: dict[str, dict[str, str]] = {}


# Bodies in which Apache's controllers tell of a broker group.


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


# Replication, as GET_BROKER_HA_STATUS shows it (Apache: HARuntimeInfo).


class ReplicaStatus(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """One replica, as its master sees it. `diff`: bytes it is behind."""

    addr: str
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class FollowerStatus(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """A replica, as it sees itself. Times are epoch ms."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0
    is_activated: bool = msgspec.field(default=False, name="activated")


class HaStatus(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Answer of GET_BROKER_HA_STATUS."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[ReplicaStatus] = []
    ha_client_runtime_info: FollowerStatus = msgspec.field(default_factory=FollowerStatus)
