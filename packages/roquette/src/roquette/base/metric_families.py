"""Every metric that a server shows: one row for its name, kind and meaning.

Apache has two vocabularies: that of rocketmq-exporter (labels cluster, broker, topic, group) and that of 5.x brokers
(cluster, node_type, node_id, topic, consumer_group); boards for Kafka have a third. What we add has names of the second
form. Boards and alerts (`base/metric_boards.py`) are made from these rows, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

# Metrics as Prometheus reads them (text format 0.0.4), made in slices. Pure.


KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE: Final = 250  # samples of one piece: a millisecond
NO_LIMIT: Final = 1 << 62
DROPPED: Final = "rocketmq_metrics_series_dropped"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    """Family of samples: a metric's name, type and meaning.

    Attributes:
        kind: counter, gauge or summary (whose samples are NAME_sum and NAME_count).
    """

    name: str
    kind: str
    meaning: str


Sample = tuple[str, float]
"""Labels (of `labels`), and the value."""


class MetricTable(NamedTuple):
    """A metric that has `size` samples; making one costs, so those without room are not made."""

    family: Family
    size: int
    samples: Iterable[Sample]


def one(family: Family, value: float) -> MetricTable:
    """A metric of one sample, without labels of its own."""
    return MetricTable(family, 1, [("", value)])


def escaped(value: str) -> str:
    """A label's value as it stands between quotation marks."""
    if value.isalnum():
        return value
    return value.translate(_ESCAPES).encode("utf-8", "replace").decode()


def labels(pairs: Mapping[str, object]) -> str:
    """Write the labels that stand between the braces."""
    return ",".join(f'{key}="{escaped(str(value))}"' for key, value in pairs.items())


class Exposition:
    """One scrape's text.

    Args:
        most: samples of one table.
        in_all: samples of the scrape; a table gets what is left of them, so those that matter most come first.

    Attributes:
        dropped: samples that were left out, by metric.
        left: samples that may follow.
    """

    def __init__(self, most: int = NO_LIMIT, in_all: int = NO_LIMIT) -> None:
        self._most = most
        self.left = in_all
        self.dropped: dict[str, int] = {}

    def family(self, family: Family, samples: Iterable[Sample | None]) -> Iterator[bytes]:
        """The lines of a metric, in pieces of at most SLICE samples; a None among the samples ends a piece.

        A family without samples has no lines at all.
        """
        name = family.name
        lines = [f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n"]
        begun = 0
        for sample in samples:
            if sample is None:
                yield b""
                continue
            begun += 1
            lines.append(f"{name}{{{sample[0]}}} {sample[1]}\n")
            if begun % SLICE == 0:
                yield "".join(lines).encode()
                lines.clear()
        self.left -= begun
        if begun and lines:
            yield "".join(lines).encode()

    def table(self, table: MetricTable) -> Iterator[bytes]:
        """The lines of a metric that has a sample for each of many things: as many as there is room for."""
        fit = max(0, min(self._most, self.left, table.size))
        self.drop(table.family, table.size - fit)
        return self.family(table.family, islice(table.samples, fit))

    def drop(self, family: Family, count: int) -> None:
        """So many samples of a metric are left out."""
        if count:
            self.dropped[family.name] = self.dropped.get(family.name, 0) + count

    def summary(self, family: Family, text: str, total: float, count: int) -> bytes:
        """A sum and how many it is of: all that a summary without quantiles has."""
        name = family.name
        self.left -= 2
        return (
            f"# HELP {name} {family.meaning}\n# TYPE {name} summary\n"
            f"{name}_sum{{{text}}} {total}\n{name}_count{{{text}}} {count}\n"
        ).encode()


_C, _G = "counter", "gauge"
_ESTIMATE: Final = (
    "estimated from the ends of the queues seen every 10 s, never read from the log, ms"
)

# rocketmq-exporter's.
BROKER_TPS: Final = Family(
    "rocketmq_broker_tps", _G, "Messages put a second, over the last minute."
)
BROKER_QPS: Final = Family(
    "rocketmq_broker_qps", _G, "Messages got a second, over the last minute."
)
PRODUCER_TPS: Final = Family(
    "rocketmq_producer_tps", _G, "Messages put to a topic a second, over the last minute."
)
PRODUCER_SIZE: Final = Family(
    "rocketmq_producer_message_size", _G, "Bytes put to a topic a second, over the last minute."
)
PRODUCER_OFFSET: Final = Family(
    "rocketmq_producer_offset", _C, "The ends of a topic's queues, added up."
)
DLQ_OFFSET: Final = Family(
    "rocketmq_topic_dlq_offset", _C, "Messages that came to a group's dead-letter topic."
)
CONSUMER_TPS: Final = Family(
    "rocketmq_consumer_tps", _G, "Messages a group got of a topic a second, over the last minute."
)
CONSUMER_SIZE: Final = Family(
    "rocketmq_consumer_message_size", _G, "Bytes a group got of a topic a second, over a minute."
)
CONSUMER_OFFSET: Final = Family(
    "rocketmq_consumer_offset", _C, "A group's committed offsets of a topic, added up."
)
ACCUMULATION: Final = Family(
    "rocketmq_message_accumulation", _G, "Messages behind a group's committed offsets."
)
GROUP_DIFF: Final = Family(
    "rocketmq_group_diff", _G, "The same, with how many members are online and how they consume."
)
GROUP_COUNT: Final = Family("rocketmq_group_count", _G, "Members of a group that are online.")
LATENCY: Final = Family(
    "rocketmq_group_get_latency_by_storetime", _G, f"How old what a group takes is: {_ESTIMATE}."
)

# 5.x brokers'.
WATERMARK: Final = Family(
    "rocketmq_processor_watermark", _G, "Requests that wait in a lane of the broker."
)
PERMISSION: Final = Family("rocketmq_broker_permission", _G, "2 write, 4 read, 6 both.")
TOPIC_NUMBER: Final = Family("rocketmq_topic_number", _G, "Topics.")
GROUP_NUMBER: Final = Family("rocketmq_consumer_group_number", _G, "Consumer groups.")
MESSAGES_IN: Final = Family("rocketmq_messages_in_total", _C, "Messages put since the start.")
BYTES_IN: Final = Family("rocketmq_throughput_in_total", _C, "Bytes put since the start.")
MESSAGES_OUT: Final = Family("rocketmq_messages_out_total", _C, "Messages got since the start.")
BYTES_OUT: Final = Family("rocketmq_throughput_out_total", _C, "Bytes got since the start.")
PRODUCERS: Final = Family("rocketmq_producer_connections", _G, "Registrations of producers.")
CONSUMERS: Final = Family("rocketmq_consumer_connections", _G, "Connections of a group's members.")
LAG: Final = Family(
    "rocketmq_consumer_lag_messages",
    _G,
    "Messages that a group has not done: behind its offsets, or popped.",
)
LAG_LATENCY: Final = Family(
    "rocketmq_consumer_lag_latency", _G, f"How old what a group takes is: {_ESTIMATE}."
)
INFLIGHT: Final = Family(
    "rocketmq_consumer_inflight_messages",
    _G,
    "Messages that members have: pulled and not committed, or popped.",
)
READY: Final = Family(
    "rocketmq_consumer_ready_messages", _G, "Messages that no pull or pop has asked for."
)
STORAGE_SIZE: Final = Family("rocketmq_storage_size", _G, "Bytes of the commit log.")
FLUSH_BEHIND: Final = Family(
    "rocketmq_storage_flush_behind_bytes", _G, "Bytes of the log that no sync has covered."
)
HALF: Final = Family(
    "rocketmq_half_messages", _G, "Half messages: their transactions have not ended."
)
COMMITS: Final = Family(
    "rocketmq_commit_messages_total", _C, "Transactions committed since the start."
)
ROLLBACKS: Final = Family(
    "rocketmq_rollback_messages_total", _C, "Transactions rolled back since the start."
)
TIMING: Final = Family("rocketmq_timing_messages", _G, "Messages of a topic that wait for a time.")
TIMER_QUEUE_LAG: Final = Family(
    "rocketmq_timer_enqueue_lag", _G, "Timer messages that are not in the wheel yet."
)
TIMER_IN: Final = Family(
    "rocketmq_timer_enqueue_total", _C, "Messages put into the wheel since the start."
)
TIMER_OUT: Final = Family(
    "rocketmq_timer_dequeue_total", _C, "Messages the wheel has delivered since the start."
)
TIMER_LATE: Final = Family(
    "rocketmq_timer_dequeue_latency", _G, "How far delivery is behind the clock, ms."
)
POP_OUT: Final = Family(
    "rocketmq_pop_checkpoint_buffer_size", _G, "Pops that are not acknowledged as a whole."
)
REVIVE_LAG: Final = Family(
    "rocketmq_pop_revive_lag", _G, "Entries of the revive log that are not read yet."
)
REVIVED: Final = Family(
    "rocketmq_pop_revive_retry_messages_total",
    _C,
    "Messages put again since the start: nobody acknowledged them in time.",
)

# Of boards for Kafka.
KAFKA_LAG: Final = Family(
    "kafka_consumergroup_lag", _G, "rocketmq_consumer_lag_messages, as boards for Kafka name it."
)
KAFKA_GROUP_OFFSET: Final = Family(
    "kafka_consumergroup_current_offset",
    _G,
    "rocketmq_consumer_offset, as boards for Kafka name it.",
)
KAFKA_TOPIC_OFFSET: Final = Family(
    "kafka_topic_partition_current_offset", _G, "The end of each queue (metricsPerQueue=true)."
)

# Ours.
SENDS_FAILED: Final = Family("rocketmq_sends_failed_total", _C, "Sends that were not stored.")
SEND_BACKS: Final = Family(
    "rocketmq_send_back_total", _C, "Messages consumers gave back to be tried again."
)
DELETED_UNREAD: Final = Family(
    "rocketmq_deleted_unread_messages_total",
    _C,
    "Messages that were deleted for their age, or for space, before the group had read them.",
)
REFUSING: Final = Family(
    "rocketmq_refusing_messages", _G, "1 while sends are refused: a disk is full."
)
DISK_USED: Final = Family("rocketmq_disk_used_ratio", _G, "The used share of a disk, 0 to 1.")
FSYNC: Final = Family("rocketmq_fsync_seconds", "summary", "Syncs of the log and their seconds.")
LOOP_LAG: Final = Family(
    "rocketmq_event_loop_lag_seconds",
    _G,
    "The longest wait for the event loop, of the last minute.",
)
TASK_FAILURES: Final = Family(
    "rocketmq_task_failures_total", _C, "Errors of a background task; it goes on after each."
)
TASK_AGE: Final = Family(
    "rocketmq_task_well_age_seconds", _G, "Since a background task last went well."
)
TASK_ROW: Final = Family(
    "rocketmq_task_failures_in_row", _G, "Errors of a background task since it last went well."
)
BACKWARD_REFUSED: Final = Family(
    "rocketmq_offset_regressions_refused_total",
    _C,
    "Commits that would move a group back, refused.",
)
BACKWARD_ACCEPTED: Final = Family(
    "rocketmq_offset_regressions_total", _C, "Commits that moved a group back."
)
CONFLICTS: Final = Family(
    "rocketmq_subscription_conflicts", _G, "Groups whose members subscribe differently now."
)
DUPLICATES: Final = Family(
    "rocketmq_duplicate_client_ids_total", _C, "Client ids seen on two live connections of a group."
)
REPLICAS: Final = Family("rocketmq_replicas", _G, "Replicas that are connected to this master.")
REPLICAS_IN_STEP: Final = Family("rocketmq_replicas_in_step", _G, "Those of them that are in step.")
REPLICA_LAG: Final = Family(
    "rocketmq_replica_lag_bytes", _G, "Bytes the replica that is furthest behind lacks."
)
TROUBLES: Final = ("identity", "record", "disk", "office")  # kinds of what is wrong with a member
GROUP_TROUBLE: Final = Family(
    "rocketmq_group_trouble",
    _G,
    "1 while this member of a group has a trouble of that kind: identity, record, disk, office.",
)
KEPT: Final = Family(
    "rocketmq_kept_bytes", _G, "Bytes kept for peers now: answers, frames, requests that wait."
)
KEPT_MOST: Final = Family("rocketmq_kept_bytes_limit", _G, "maxKeptBytes.")
WAITING_SENDS: Final = Family(
    "rocketmq_waiting_send_bytes", _G, "Bytes of sends that wait for replicas or the disk now."
)
WAITING_SENDS_MOST: Final = Family("rocketmq_waiting_send_bytes_limit", _G, "maxWaitingSendBytes.")
REPLICAS_EXPECTED: Final = Family(
    "rocketmq_replicas_expected", _G, "Replicas this master should have in step (totalReplicas)."
)
REFUSING_ALONE: Final = Family(
    "rocketmq_refusing_for_replicas", _G, "1 while sends are refused: too few are in step."
)
TABLES_UNWRITTEN: Final = Family(
    "rocketmq_tables_unwritten", _G, "Files of tables whose last write failed."
)
SERIES_DROPPED: Final = Family(
    DROPPED, _G, "Series left out of a metric (metricsMaxSeries, metricsMaxSamples)."
)

DISK_ROOM: Final = Family(
    "rocketmq_disk_room_bytes",
    _G,
    "Bytes until messages are refused (diskSpaceWarningLevelRatio, diskFullFreeBytes).",
)
BROKER_CONNECTIONS: Final = Family(
    "rocketmq_broker_connections", _G, "Connections of clients and other servers."
)
REGISTERED: Final = Family(
    "rocketmq_registered", _G, "1 while that name server has taken the last registration."
)
ROLE: Final = Family(
    "rocketmq_broker_role",
    _G,
    "1 at the role the broker has, 0 at the other one.",
)
EPOCH: Final = Family("rocketmq_group_epoch", _G, "The newest epoch that a group's member knows.")
LEASE: Final = Family("rocketmq_group_lease_seconds", _G, "How long a group's master may answer.")
FOLLOWS: Final = Family(
    "rocketmq_follows_connected", _G, "1 while a replica is connected to its master."
)

# Of every server.
SERVER_READY: Final = Family("rocketmq_ready", _G, "1 while /readyz answers 200.")
TIME: Final = Family("rocketmq_time_seconds", _G, "The server's clock, seconds since 1970.")
REFUSALS: Final = Family(
    "rocketmq_refusals_total", _C, "Requests and connections refused since the start, by why."
)
CERTIFICATE_END: Final = Family(
    "rocketmq_certificate_end_seconds",
    _G,
    "When the certificates of a file end, seconds since 1970.",
)
BUILD: Final = Family("rocketmq_build_info", _G, "1, with the version and what runs it.")
CPU: Final = Family("process_cpu_seconds_total", _C, "User and system CPU time, in seconds.")
RESIDENT: Final = Family("process_resident_memory_bytes", _G, "Resident memory.")
VIRTUAL: Final = Family("process_virtual_memory_bytes", _G, "Virtual memory.")
BEGUN: Final = Family("process_start_time_seconds", _G, "When it began, seconds since 1970.")
OPEN_FDS: Final = Family("process_open_fds", _G, "Open file descriptors.")
MAX_FDS: Final = Family("process_max_fds", _G, "How many there may be.")

# Of name servers.
BROKERS: Final = Family("rocketmq_namesrv_brokers", _G, "Brokers that are registered.")
ROUTES: Final = Family("rocketmq_namesrv_topics", _G, "Topics that have a route.")
BROKER_UP: Final = Family(
    "rocketmq_namesrv_broker_up", _G, "1: it is registered; 0: it left within a day, or is refused."
)
HAS_MASTER: Final = Family(
    "rocketmq_namesrv_has_master", _G, "0 of a broker name whose replicas alone are registered."
)
CONNECTIONS: Final = Family(
    "rocketmq_namesrv_connections", _G, "Connections of clients and brokers."
)

FAMILIES: Final = {each.name: each for each in list(globals().values()) if isinstance(each, Family)}
"""By name."""
