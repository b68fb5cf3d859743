"""The settings of replication, under Apache's keys and with Apache's defaults (MessageStoreConfig, BrokerConfig)."""

import dataclasses
from typing import Final

from roquette.base.options import INT64, MILLISECONDS, live, option

ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """How many have a message before it is acknowledged, and how brokers of one name find each other."""

    broker_role: str = option(
        "ASYNC_MASTER",
        "ASYNC_MASTER, SYNC_MASTER (answers wait for replicas) or SLAVE. With enableControllerMode "
        "the group decides who is master, and this whether answers wait.",
        choices=ROLES,
    )
    ha_listen_port: int = option(0, "Port for replicas; 0: the one above listenPort.")
    ha_master_address: str = option(
        "",
        "The master's host:port for replicas; empty takes what the name servers say. For SLAVE only.",
    )
    in_sync_replicas: int = live(
        1,
        "Brokers, the master among them, that have a message before it is acknowledged.",
        least=1,
        most=100,
    )
    min_in_sync_replicas: int = live(
        1, "With fewer brokers in step than this a SYNC_MASTER refuses messages.", least=1, most=100
    )
    all_ack_in_sync_state_set: bool = live(
        False, "A message is acknowledged when all brokers in step have it, however many."
    )
    slave_timeout: int = live(
        3_000,
        "An answer waits so long for replicas, ms; then FLUSH_SLAVE_TIMEOUT.",
        kind=MILLISECONDS,
    )
    ha_send_heartbeat_interval: int = option(
        5_000, "A silent replication connection gets a sign of life after, ms.", least=100
    )
    ha_housekeeping_interval: int = option(
        20_000, "A replication connection that is silent so long is closed, ms.", least=500
    )
    ha_transfer_batch_size: int = option(
        1 << 20,
        "Bytes of the log in one unit to a replica (Apache: 32 KiB, with which its replicas are slower).",
        least=1_024,
        most=1 << 20,
    )
    ha_max_gap_not_in_sync: int = live(
        256 << 20, "A replica further behind, bytes, is not in step.", kind=INT64
    )
    ha_max_time_slave_not_catchup: int = option(
        15_000, "A replica that has not caught up for so long leaves the set, ms.", least=100
    )
    enable_controller_mode: bool = option(
        False, "Brokers of one name elect their master; who it is stands at controllerAddr."
    )
    total_replicas: int = option(
        1,
        "A group begins when so many brokers are there, all of them empty: so a lost record is not begun anew by one.",
        least=1,
        most=100,
    )
    controller_addr: str = option(
        "",
        "Where the group's record stands: name servers with a controller, host:port;host:port (one only "
        "where it is embedded), or etcd://host:port,host:port. docs/howto/controller.md.",
    )
    broker_heartbeat_interval: int = option(
        1_000,
        "A broker of a group that elects tells name servers that it lives each, ms.",
        least=100,
    )
