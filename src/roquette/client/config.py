"""Settings of a client; names say their units, defaults are those of Apache's Java client."""

from dataclasses import dataclass, fields
from typing import Final

from roquette.errors import ConfigError
from roquette.message.compression import Compression

MAY_BE_ZERO: Final = frozenset(
    [
        "compress_over_bytes",
        "compression_level",
        "max_delay_level",
        "pull_hold_ms",
        "pull_retry_ms",
        "pull_pause_ms",
        "pull_threshold_count",
        "pull_threshold_bytes",
        "pull_threshold_span",
        "prefetch_bytes",
        "orderly_suspend_ms",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client behaves.

    Attributes:
        name_servers: "host:port;host:port".
        instance_name: part of the client id; None makes one per client.
        local_host: address to call from and to name in the client id; None finds it.
        send_attempts: 1 + retryTimesWhenSendFailed.
        max_in_flight: unanswered pipelined sends (`send_soon`) per client.
        max_delay_level: the highest delay level that the brokers have (their messageDelayLevel; Apache's has 18).
        prefetch_bytes: bodies pulled and not yet handled, of all consumers of a client; beyond it only queues that
            have none pull (one batch).
        consume_timeout_ms: how long a handler may take before its message goes back to the broker (not orderly).
        offset_root: where broadcasting consumers keep their offsets; None is ~/.rocketmq_offsets.
    """

    name_servers: str
    instance_name: str | None = None
    local_host: str | None = None
    call_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    poll_routes_ms: int = 30_000
    heartbeat_ms: int = 30_000
    persist_offsets_ms: int = 5_000
    rebalance_ms: int = 20_000
    compare_name_servers_ms: int = 30_000

    send_timeout_ms: int = 3_000
    send_attempts: int = 3
    compress_over_bytes: int = 4_096
    compression: Compression = Compression.ZLIB
    compression_level: int = 5
    max_message_size: int = 4 * 1024 * 1024
    create_topic_key: str = "TBW102"
    default_topic_queues: int = 4
    latency_fault_tolerance: bool = False
    max_in_flight: int = 1_000
    max_delay_level: int = 18

    pull_batch: int = 32
    pull_hold_ms: int = 15_000
    pull_timeout_ms: int = 30_000
    pull_retry_ms: int = 1_000
    pull_threshold_count: int = 1_000
    pull_threshold_bytes: int = 100 * 1024 * 1024
    pull_threshold_span: int = 2_000
    prefetch_bytes: int = 64 * 1024 * 1024
    pull_pause_ms: int = 50
    orderly_suspend_ms: int = 1_000
    lock_interval_ms: int = 20_000
    consume_timeout_ms: int = 900_000
    offset_root: str | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError: with a number that is none, or too small, something would never happen, or ever."""
        for known in fields(self):
            value = getattr(self, known.name)
            if known.type is not int:
                continue
            least = 0 if known.name in MAY_BE_ZERO else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"{known.name}={value!r} is not a whole number of at least {least}"
                )
        most = 9 if self.compression is Compression.ZLIB else 22
        if self.compression_level > most:
            raise ConfigError(f"compression_level={self.compression_level} is not 0 to {most}")
