"""Brokers and name servers: 103, 104, 322, 901, 904, 905."""

import msgspec


class RegisterBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's RegisterBrokerRequestHeader."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0


class RegisterBrokerResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's RegisterBrokerResponseHeader."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's UnRegisterBrokerRequestHeader."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersionRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's QueryDataVersionRequestHeader."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersionResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's QueryDataVersionResponseHeader."""

    changed: bool


class GetBrokerMemberGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's GetBrokerMemberGroupRequestHeader."""

    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's BrokerHeartbeatRequestHeader."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    heartbeat_timeout_mills: int | None = None
    election_priority: int | None = None


class NotifyMinBrokerIdChangeRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Apache's NotifyMinBrokerIdChangeRequestHeader."""

    min_broker_id: int | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
