"""Routes, registrations, controllers, clients and replicas."""

import msgspec

from roquette.wire.json_body import Int32, Int64

# Routes, cluster and name-server settings: 100 to 106, 205, 219, 327.


class GetRouteInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    accept_standard_json_only: bool | None = None
    outside: bool | None = None  # of ours: brokers ask for both addresses of each broker


class PutKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str
    key: str


class GetKVConfigResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    value: str | None = None


class DeleteKVConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    namespace: str


class WipeWritePermOfBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str


class WipeWritePermOfBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str


class AddWritePermOfBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    add_topic_count: Int32


# Brokers and name servers: 103, 104, 322, 901, 904, 905.


class RegisterBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0
    outside_addr: str | None = None  # of ours


class RegisterBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    changed: bool


class GetBrokerMemberGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class NotifyMinBrokerIdChangeRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


# Requests to a controller: 1002, 1004 to 1006, 1011, and two of ours, 13001 and 13002.


def _cluster_of(key: str) -> str:
    return key.partition("/")[2].rpartition("/")[0]


class GetRegisterRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """several: other name servers are asked for the same record."""

    key: str
    several: bool = False

    @property
    def cluster_name(self) -> str:
        """Of the group whose record it is: rights are asked for it."""
        return _cluster_of(self.key)


class PutRegisterIfRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """The value is the body. revision: of the content to be replaced; 0: there is none. several: as in
    GET_REGISTER."""

    key: str
    revision: Int64
    several: bool = False

    @property
    def cluster_name(self) -> str:
        """Of the group whose record it is: rights are asked for it."""
        return _cluster_of(self.key)


class RegisterResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Of GET_REGISTER: what stands there, the value in the body; 0: nothing does. Of PUT_REGISTER_IF: the new
    revision; 0: the content is another one."""

    revision: Int64


class ElectMasterRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    invoke_time: Int64 | None = None


class ElectMasterResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str | None = None


class GetReplicaInfoResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetMetaDataResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class CleanControllerBrokerDataRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 = 0


# Clients and their groups: 35, 38, 40, 203, 204, 307, 309.


class UnregisterClientRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str | None = None


class GetConsumerConnectionListRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    consumer_group: str


class GetProducerConnectionListRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    producer_group: str


class GetConsumerRunningInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class ResetOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    group: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool


class GetConsumerStatusRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    group: str
    client_addr: str | None = None


# Request of a replica of ours to its master: 13003.


class FollowTablesRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """what: `tables`, `offsets`, `orders`, `users`, `deleted` or `queues`. since: of the last answer; empty: the first
    request. once: random digits of the asker; `users` are sealed for it, and told to nobody without."""

    what: str
    since: str = ""
    once: str = ""


class FollowTablesResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """since: for the next request. whole: the body is a table, not changes of it. log_end: it is to be taken when the
    replica's log reaches up to there. lacks: tables, split by commas, that the master has never had."""

    since: str
    whole: bool = False
    log_end: Int64 = 0
    lacks: str = ""
