"""The configuration of a client; names say their units, defaults are those of Apache's Java client."""

from dataclasses import dataclass, replace

from roquette.base.options import option, options_of
from roquette.client.access import security_of
from roquette.client.core.namespace import namespace_error
from roquette.errors import ConfigError
from roquette.message.compression import Compression
from roquette.message.names import TBW102, client_topic_error
from roquette.remoting.security import Security
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Configuration of a client, checked; `client.settings` says what each means, and is what applications write.

    Attributes:
        name_servers: "host:port;host:port", or where such a list is found: "http://host:port/path" (asked again each two
            minutes), "dns://name:port" (each address of the name is a name server).
    """

    name_servers: str
    instance_name: str | None = None
    local_host: str | None = None
    namespace: str = ""
    namespace_v2: str = ""
    call_timeout_ms: int = option(3_000, least=1)
    connect_timeout_ms: int = option(3_000, least=1)
    poll_routes_ms: int = option(30_000, least=1)
    heartbeat_ms: int = option(30_000, least=1)
    persist_offsets_ms: int = option(5_000, least=1)
    rebalance_ms: int = option(20_000, least=1)
    compare_name_servers_ms: int = option(30_000, least=1)

    send_timeout_ms: int = option(3_000, least=1)
    send_attempts: int = option(3, least=1)
    linger_ms: int = option(0)
    compress_over_bytes: int = option(4_096)
    compression: Compression = Compression.ZLIB
    compression_level: int = option(5)
    max_message_size: int = option(4 * 1024 * 1024, least=1, most=16_000_000)  # of a frame's 16 MiB
    create_topic_key: str = TBW102
    default_topic_queues: int = option(4, least=1)
    retry_another_broker_when_not_store_ok: bool = False
    latency_fault_tolerance: bool = False
    detect_isolated_brokers: bool = False
    detect_interval_ms: int = option(2_000, least=1)
    detect_timeout_ms: int = option(200, least=1)
    max_in_flight: int = option(1_000, least=1)
    max_bytes_in_flight: int = option(100 * 1024 * 1024, least=1)
    max_delay_level: int = option(18)

    pull_batch: int = option(32, least=1)
    pull_hold_ms: int = option(15_000)
    pull_timeout_ms: int = option(30_000, least=1)
    pull_retry_ms: int = option(1_000)
    pull_threshold_count: int = option(1_000)
    pull_threshold_bytes: int = option(100 * 1024 * 1024)
    pull_threshold_topic_count: int = option(0)
    pull_threshold_topic_bytes: int = option(0)
    pull_threshold_span: int = option(2_000)
    prefetch_bytes: int = option(64 * 1024 * 1024)
    pull_pause_ms: int = option(50)
    orderly_suspend_ms: int = option(1_000)
    lock_interval_ms: int = option(20_000, least=1)
    consume_timeout_ms: int = option(900_000, least=1)
    offset_root: str | None = None
    trace: bool = False
    trace_topic: str | None = None

    tls: TlsOptions | None = None
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError: a number is missing or too small; with it something would never happen, or never stop."""
        for known in options_of(ClientConfig).values():
            if known.type is int:
                known.check(getattr(self, known.field), known.field)
        most = 9 if self.compression is Compression.ZLIB else 22
        if self.compression_level > most:
            raise ConfigError(f"compression_level={self.compression_level} is not 0 to {most}")

        for namespace in filter(None, (self.namespace, self.namespace_v2)):
            if error := namespace_error(namespace):
                raise ConfigError(error)
        if self.namespace and self.namespace_v2:
            raise ConfigError("namespace and namespace_v2 exclude each other: give one of them")
        if self.detect_isolated_brokers and not self.latency_fault_tolerance:
            raise ConfigError(
                "detect_isolated_brokers is without effect unless latency_fault_tolerance=True"
            )
        if self.trace_topic is not None and (error := client_topic_error(self.trace_topic)):
            raise ConfigError(f"trace_topic={self.trace_topic!r}: {error}")
        if self.trace_topic is not None and not self.trace:
            raise ConfigError(f"trace_topic={self.trace_topic} is without effect unless trace=True")

    @property
    def security(self) -> Security:
        """Of its connections. Raises ConfigError: a file cannot be used."""
        found = security_of(self.tls, self.credentials)
        return replace(found, namespace=self.namespace_v2) if self.namespace_v2 else found
