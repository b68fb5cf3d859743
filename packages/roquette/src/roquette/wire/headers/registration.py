"""Brokers and name servers: 103, 104, 322, 901, 904, 905."""

import msgspec

from roquette.wire.numbers import Int32, Int64


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
