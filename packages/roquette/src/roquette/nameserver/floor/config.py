"""Settings of a name server, under Apache's keys (NamesrvConfig, NettyServerConfig)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from roquette.base import bounds
from roquette.base.bounds import Bound
from roquette.base.config import to_properties
from roquette.base.options import OptionKind, live, matching, option, options_of
from roquette.remoting.settings import MetricsSettings

ENVIRONMENT: Final = matching(r"[\w.-]{1,64}", "1 to 64 letters, digits, dots, - and _")
_CAPACITY: Final = OptionKind(least=1, most=10_000_000)


@dataclass(slots=True, frozen=True, kw_only=True)
class NamesrvConfig(MetricsSettings):
    """Settings of a name server: where it listens and how it treats brokers."""

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
    max_registered_topics: int = live(
        1_000_000,
        "Pairs of broker and topic from which on topics of registrations are left out; ours, Apache's has no bound.",
        least=1,
        most=100_000_000,
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
    """Return what GET_NAMESRV_CONFIG tells: every setting, and what holds here of Apache's keys that are none of ours.

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
    """Return those of `keys` that may not be changed by a request: paths, addresses, sizes fixed at the start."""
    known = options_of(NamesrvConfig)
    return [key for key in keys if key in _LOCKED_KEYS or (key in known and not known[key].mutable)]


# Every table of the name server whose keys its peers choose has its bound here. Memory at the bound: docs/reference/limits.md.


BROKERS: Final = 10_000  # registered brokers, by cluster and address
MAPPINGS: Final = 100_000  # pairs of broker and topic with mapped queues
FILTER_SERVERS: Final = 100  # of one broker
KV_ENTRIES: Final = 100_000  # namespaces and keys of the KV config
KV_CHARACTERS: Final = 16 << 20  # of all of them, with their values
NAME: Final = 1_024  # characters of a name, an address, a zone
WATCHES: Final = 100_000  # pairs of client and topic that is watched
WATCHED_TOPICS: Final = 5_000  # of one client
WATCH_BYTES: Final = 1 << 20  # of a request for them
CACHED_ROUTES: Final = 20_000  # encoded answers that are kept,
CACHED_BYTES: Final = 64 << 20  # and their size
LEFT_BROKERS: Final = 1_000  # that left, or are refused, and are remembered


class NameServerBounds(bounds.TableBounds):
    """The bounds of one name server's tables. `settings` gives those in force."""

    def __init__(self, settings: Callable[[], NamesrvConfig] = NamesrvConfig) -> None:
        silent = "those that send no heartbeat go by themselves"
        self.brokers = Bound("registered brokers", BROKERS, silent)
        self.topics = Bound(
            "pairs of broker and topic",
            lambda: settings().max_registered_topics,
            "delete topics nobody uses (mqadmin deleteTopic), or raise maxRegisteredTopics",
        )
        self.mappings = Bound("topics with mapped queues", MAPPINGS, silent)
        self.watches = Bound(
            "watched routes", WATCHES, "clients that are refused ask for routes every 30 s"
        )
        unused = "delete what nobody uses (mqadmin deleteKvConfig)"
        self.kv_entries = Bound("namespaces and keys of the KV config", KV_ENTRIES, unused)
        self.kv_characters = Bound("characters of the KV config", KV_CHARACTERS, unused)
