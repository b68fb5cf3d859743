"""Settings of a name server, under Apache's keys (NamesrvConfig, NettyServerConfig)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from roquette.base.config import to_properties
from roquette.base.options import OptionKind, live, matching, option, options_of
from roquette.remoting.metrics_settings import MetricsSettings

ENVIRONMENT: Final = matching(r"[\w.-]{1,64}", "1 to 64 letters, digits, dots, - and _")
_CAPACITY: Final = OptionKind(least=1, most=10_000_000)


@dataclass(slots=True, frozen=True, kw_only=True)
class NamesrvConfig(MetricsSettings):
    """Where a name server listens and how it treats brokers."""

    bind_address: str = option("0.0.0.0", "The address to listen on; 0.0.0.0 is all of them.")
    listen_port: int = option(9876, "The port; 0 takes a free one.")
    outside_listen_port: int = option(
        0, "A second port: who asks there is told brokers' outsideAddr; 0 opens none."
    )
    kv_config_path: str = option(
        "~/namesrv/kvConfig.json",
        "The file that keeps the KV config; everything else lives in memory.",
    )
    order_message_enable: bool = live(False, "Attach the order config of a topic to its route.")
    return_order_topic_config_to_broker: bool = live(
        True, "Answer a registration with the ordered topics."
    )
    scan_not_active_broker_interval: int = live(
        5_000,
        "Milliseconds between two looks for brokers whose heartbeat is overdue.",
        least=100,
        most=600_000,
    )
    enable_all_topic_list: bool = live(True, "Answer the list of all topics.")
    enable_topic_list: bool = live(True, "Answer the lists of topics by cluster and unit.")
    need_wait_for_service: bool = live(
        False, "Refuse routes for a while after the start, until brokers have registered."
    )
    wait_seconds_for_service: int = live(45, "Seconds of that while.", most=86_400)
    delete_topic_with_broker_registration: bool = live(
        False,
        "Remove topics that a broker's registration leaves out; brokers must send all of them.",
    )
    client_request_thread_pool_queue_capacity: int = live(
        50_000, "Route requests that may wait.", kind=_CAPACITY
    )
    default_thread_pool_queue_capacity: int = live(
        10_000, "Other requests that may wait.", kind=_CAPACITY
    )
    product_env_name: str = live(
        "center",
        "Which environment this is: shown to tools and in the log, and of no further effect.",
        kind=ENVIRONMENT,
    )
    server_channel_max_idle_time_seconds: int = option(
        120, "Seconds without traffic after which a connection is closed."
    )
    frame_timeout_seconds: int = option(
        30,
        "Seconds a begun frame may come slower than 1 KiB a second; then its connection is cut.",
        least=1,
    )
    controller: str = option(
        "",
        "Keep the records of broker groups: embedded (in a file of this name server; brokers then name "
        "it alone as controllerAddr), in etcd://host:port,host:port/prefix, or managed: in an etcd whose "
        "members the name servers run. docs/howto/controller.md. Empty: no controller.",
    )
    controller_store_path: str = option(
        "~/namesrv/controller", "The directory of an embedded controller, or of a managed etcd."
    )
    controller_peers: str = option(
        "n0=127.0.0.1:2380:2379",
        "The members of a managed etcd, NAME=HOST:PEERPORT:CLIENTPORT;..., the same at all name servers.",
    )
    controller_self: str = option("n0", "Which of controllerPeers this name server runs.")
    controller_ca_file: str = option(
        "",
        "The authority, PEM, that signed the certificates of all members of a managed etcd: they and "
        "name servers then speak TLS to each other, and to nobody without a certificate of it.",
    )
    controller_cert_file: str = option(
        "",
        "The certificate, PEM, of this member, for servers and for clients (extended key usage).",
    )
    controller_key_file: str = option("", "The key of controllerCertFile.")
    controller_program: str = option("etcd", "The program of a managed etcd, 3.5.9 or newer.")
    max_unfinished_frame_bytes: int = option(
        128 << 20,
        "What frames that have not arrived whole may hold together; beyond it the oldest are refused.",
        least=32 << 20,
    )
    max_unsent_bytes: int = option(
        256 << 20,
        "What answers that peers do not take may hold together; beyond it the slowest peers are cut.",
        least=32 << 20,
    )
    max_kept_bytes: int = option(
        512 << 20,
        "What is kept for all peers: both of those, and requests that wait. A peer with more than a quarter of it, or "
        "than its share where all have more, is not read until half is gone.",
        least=128 << 20,
    )


def shown_settings(config: NamesrvConfig, fixed: Mapping[str, str]) -> dict[str, str]:
    """What GET_NAMESRV_CONFIG tells: every setting, and what holds here of Apache's keys that are none of ours.

    Args:
        fixed: settings of ports and accounts.
    """
    return {**_HOLDS, **fixed} | {
        **to_properties(config),
        "enableControllerInNamesrv": "true" if config.controller else "false",
    }


_HOLDS: Final = {
    "clientRequestThreadPoolNums": "1",
    "clusterTest": "false",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "configStorePath": "",
    "defaultThreadPoolNums": "1",
    "notifyMinBrokerIdChanged": "false",
    "rocketmqHome": "",
    "supportActingMaster": "false",
    "unRegisterBrokerQueueCapacity": "0",
}


# Paths and lists that no request may touch (Apache's configBlackList names the first three).
_LOCKED_KEYS = (
    "configBlackList",
    "configStorePath",
    "controllerCaFile",
    "controllerCertFile",
    "controllerKeyFile",
    "controllerProgram",
    "controllerStorePath",
    "kvConfigPath",
    "rocketmqHome",
)


def forbidden_keys(keys: Iterable[str]) -> list[str]:
    """Which of `keys` may not be changed by a request: paths, addresses, sizes fixed at the start."""
    known = options_of(NamesrvConfig)
    return [key for key in keys if key in _LOCKED_KEYS or (key in known and not known[key].mutable)]
