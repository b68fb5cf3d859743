"""Replication, as GET_BROKER_HA_STATUS shows it (Apache: HARuntimeInfo)."""

import msgspec

from roquette.wire.numbers import Int32, Int64


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
