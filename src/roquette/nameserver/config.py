"""Settings of a name server, under Apache's keys (NamesrvConfig, NettyServerConfig)."""

from collections.abc import Iterable
from dataclasses import dataclass

from roquette.base.config import fields_by_key, setting


@dataclass(slots=True, frozen=True, kw_only=True)
class NamesrvConfig:
    """Where a name server listens and how it treats brokers."""

    bind_address: str = setting("0.0.0.0", "The address to listen on; 0.0.0.0 is all of them.")
    listen_port: int = setting(9876, "The port; 0 takes a free one.")
    kv_config_path: str = setting(
        "~/namesrv/kvConfig.json",
        "The file that keeps the KV config; everything else lives in memory.",
    )
    order_message_enable: bool = setting(
        False, "Attach the order config of a topic to its route.", mutable=True
    )
    return_order_topic_config_to_broker: bool = setting(
        True, "Answer a registration with the ordered topics.", mutable=True
    )
    scan_not_active_broker_interval: int = setting(
        5_000, "Milliseconds between two looks for brokers whose heartbeat is overdue."
    )
    support_acting_master: bool = setting(
        False, "Show the first replica of a group without a master under id 0.", mutable=True
    )
    enable_all_topic_list: bool = setting(True, "Answer the list of all topics.", mutable=True)
    enable_topic_list: bool = setting(
        True, "Answer the lists of topics by cluster and unit.", mutable=True
    )
    need_wait_for_service: bool = setting(
        False,
        "Refuse routes for a while after the start, until brokers have registered.",
        mutable=True,
    )
    wait_seconds_for_service: int = setting(45, "Seconds of that while.", mutable=True, most=86_400)
    delete_topic_with_broker_registration: bool = setting(
        False,
        "Remove topics that a broker's registration leaves out; brokers must send all of them.",
        mutable=True,
    )
    client_request_thread_pool_queue_capacity: int = setting(
        50_000, "Route requests that may wait."
    )
    default_thread_pool_queue_capacity: int = setting(10_000, "Other requests that may wait.")
    server_channel_max_idle_time_seconds: int = setting(
        120, "Seconds without traffic after which a connection is closed."
    )
    frame_timeout_seconds: int = setting(
        30,
        java="frameTimeoutSeconds",
        help="Seconds a begun frame may come slower than 1 KiB a second; then its connection is cut.",
        least=1,
    )
    max_unfinished_frame_bytes: int = setting(
        128 << 20,
        java="maxUnfinishedFrameBytes",
        help="What frames that have not arrived whole may hold together; beyond it the oldest are refused.",
        least=32 << 20,
    )
    max_unsent_bytes: int = setting(
        256 << 20,
        java="maxUnsentBytes",
        help="What answers that peers do not take may hold together; beyond it the slowest peers are cut.",
        least=32 << 20,
    )


# Paths and lists that no request may touch (Apache's configBlackList names the first three).
_LOCKED_KEYS = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")


def forbidden_keys(keys: Iterable[str]) -> list[str]:
    """Which of `keys` may not be changed by a request: paths, addresses, sizes fixed at the start."""
    fields = fields_by_key(NamesrvConfig)
    return [
        key
        for key in keys
        if key in _LOCKED_KEYS or (key in fields and not fields[key].metadata["mutable"])
    ]
