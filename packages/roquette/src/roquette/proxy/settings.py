"""Settings of the proxy, under Apache's keys (rmq-proxy.json); LOCAL reads them from the broker's settings."""

import logging
from dataclasses import dataclass
from importlib.util import find_spec

from roquette.base.options import OptionKind, option
from roquette.errors import ConfigError

log = logging.getLogger("roquette.proxy")

PORT = OptionKind(wanted="a port, 0 for none", least=0, most=65_535)


@dataclass(slots=True, frozen=True, kw_only=True)
class ProxySettings:
    """Limits of the v5 protocol."""

    grpc_server_port: int = option(
        0,
        "A further port for gRPC clients, beside the broker's own, which speaks gRPC too.",
        kind=PORT,
    )
    remoting_listen_port: int = option(
        0, "A further port for every protocol; Apache's proxy has remoting at 8080.", kind=PORT
    )
    grpc_enable: bool = option(True, "Serve the v5 gRPC protocol on the listening ports.")
    max_user_property_size: int = option(
        16_384, "Bytes of a message's user properties, tag and keys together."
    )
    user_property_max_num: int = option(128, "User properties of a message.")
    max_message_group_size: int = option(64, "Bytes of a message group.")
    max_delay_time_mills: int = option(86_400_000, "How far ahead a delivery time may be, in ms.")
    max_transaction_recovery_second: int = option(
        3_600, "Longest orphaned_transaction_recovery_duration, in seconds."
    )
    enable_topic_message_type_check: bool = option(
        True, "Refuse messages of another type than their topic's message.type."
    )
    default_invisible_time_mills: int = option(
        60_000, "Invisible time of messages whose receipts are renewed here, in ms."
    )
    min_invisible_time_mills_for_recv: int = option(
        10_000, "Shortest invisible time a receive may ask for, in ms."
    )
    max_invisible_time_mills: int = option(43_200_000, "Longest invisible time, in ms.")
    grpc_client_producer_max_attempts: int = option(3, "Attempts of a producer's send.")
    grpc_client_producer_backoff_initial_millis: int = option(10, "First pause of a producer, ms.")
    grpc_client_producer_backoff_max_millis: int = option(1_000, "Longest such pause, ms.")
    grpc_client_producer_backoff_multiplier: int = option(2, "How the pause grows.")
    grpc_client_consumer_min_long_polling_timeout_millis: int = option(
        5_000, "Shortest time a receive waits, in ms."
    )
    grpc_client_consumer_max_long_polling_timeout_millis: int = option(
        20_000, "Longest time a receive waits, in ms."
    )
    grpc_client_consumer_long_polling_batch_size: int = option(
        32, "Messages of one receive at most."
    )
    grpc_client_idle_time_mills: int = option(
        120_000, "A connection without a call for so long is told to go, in ms."
    )
    grpc_shutdown_time_seconds: int = option(30, "How long calls in hand may take at the end.")
    enable_proxy_auto_renew: bool = option(True, "Renew receipts of consumers that ask for it.")
    use_delay_level: bool = option(False, "Give delayed messages a delay level, for old brokers.")
    grpc_max_streams: int = option(4_096, "Calls under way on one connection.")
    grpc_max_polls_per_client: int = option(256, "Receives of one client that wait at one time.")
    grpc_max_polls_per_group: int = option(20_000, "Receives of one group that wait at one time.")


@dataclass(slots=True, frozen=True, kw_only=True)
class ClusterSettings:
    """Of a proxy in a process of its own (`roquette proxy`)."""

    bind_address: str = option("0.0.0.0", "The address to listen on; 0.0.0.0 is all of them.")
    listen_port: int = option(
        8_081, "The port; 0 takes a free one. rmq-proxy.json calls it grpcServerPort."
    )
    namesrv_addr: str = option(
        "", "Name servers, host:port;host:port.", unset="the environment's NAMESRV_ADDR"
    )
    rocketmq_cluster_name: str = option(
        "DefaultCluster",
        "Brokers of this cluster are asked about consumer groups.",
        name="rocketMQClusterName",
    )
    proxy_store_path: str = option(
        "~/rmq-proxy", "The directory of a TLS pair of our own, and of users and rules."
    )
    max_connections: int = option(20_000, "Connections of all ports together.", least=1)
    max_message_size: int = option(4_194_304, "Bytes of a message's body.", least=1)


def has_http2(refusal: str) -> bool:
    """Return True when there is HTTP/2 here. Raises ConfigError, which begins with `refusal`: there is none; with "" that is logged."""
    if find_spec("ngh2") is not None:  # loaded for the first connection
        return True
    why = (
        "gRPC needs the package ngh2, which is not installed: it has wheels for CPython on Linux, macOS and Windows, "
        "x86-64 and ARM64"
    )
    if refusal:
        raise ConfigError(f"{refusal}: {why}")
    log.warning("v5 clients are not served: %s", why)
    return False
