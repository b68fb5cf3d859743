"""The broker's settings: Apache's BrokerConfig (with the few of NettyServerConfig), as far as they act here.

The store's own keys (paths, flush, retention, delay levels) live in `store/format/config.py`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from roquette.base.config import to_properties, with_changes
from roquette.base.foreign_keys import BROKER
from roquette.base.options import (
    INT32,
    INT64,
    MILLISECONDS,
    live,
    matching,
    option,
    split_addresses,
)
from roquette.broker.floor.tables.bounds import CAPACITY, BoundSettings, BrokerBounds
from roquette.message import names
from roquette.remoting.settings import MetricsSettings
from roquette.store.format.config import StoreConfig
from roquette.wire.bodies import DataVersion, TopicConfig

SCHEDULE_QUEUES: Final = 18
BENCHMARK_QUEUES: Final = 1024
CLUSTER_TOPIC_QUEUES: Final = 16
ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
ADDRESSES: Final = matching(
    r"[^\s/\\]*(:\d{1,5})?([;,][^\s/\\]*:\d{1,5})*[;,]?", "host:port;host:port"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """Replication: how many have a message before it is acknowledged, and how brokers of one name find each other."""

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BoundSettings, ReplicationSettings, MetricsSettings):
    """One immutable picture of the settings; `LiveConfig` holds the current one."""

    broker_name: str = option("", "Name of the broker set; empty takes the host's name.")
    broker_cluster_name: str = option("DefaultCluster", "Cluster this broker belongs to.")
    broker_id: int = option(0, "0 is the master, others are replicas.")
    broker_ip1: str = option(
        "", "Address or name told to clients; empty takes the bind address.", name="brokerIP1"
    )
    outside_addr: str = option(
        "",
        "HOST:PORT at which clients from outside reach this broker, told at a name server's outsideListenPort.",
        kind=matching(r"([^\s/\\;,]+:\d{1,5})?", "host:port"),
    )
    bind_address: str = option("0.0.0.0", "Address to listen on.")
    listen_port: int = option(10911, "Main port; 0 takes a free one.")
    namesrv_addr: str = live("", "Name servers, host:port separated by semicolons.", kind=ADDRESSES)
    broker_permission: int = live(6, "4 read, 2 write, 6 both.", least=0, most=6)
    auto_create_topic_enable: bool = live(True, "A send to an unknown topic creates it.")
    auto_create_topic_on_all_brokers: bool = live(
        True, "A topic created by a send is created on every writable master of the cluster."
    )
    default_topic_queue_nums: int = option(8, "Queues of TBW102, the template of new topics.")
    cluster_topic_enable: bool = option(True, "The topic named like the cluster is readable.")
    broker_topic_enable: bool = option(True, "The topic named like the broker is readable.")
    auto_create_subscription_group: bool = live(
        True, "An unknown consumer group is created when first seen."
    )
    trace_topic_enable: bool = option(False, "Create the message trace topic at start.")
    msg_trace_topic_name: str = option(names.TRACE_TOPIC, "Name of the message trace topic.")
    trace_on: bool = live(True, "Tell clients that traces are wanted (TRACE_ON).")
    region_id: str = option("DefaultRegion", "Value of MSG_REGION.")
    revive_queue_num: int = option(8, "Queues of POP's revive topic.")
    pop_polling_size: int = option(1024, "Pops of one topic, group and queue that may wait.")
    max_pop_polling_size: int = option(100_000, "Pops that may wait in all.")
    pop_ck_max_buffer_size: int = option(
        200_000, "Unfinished check-points of POP kept in memory; others wait in the revive log."
    )
    pop_from_retry_probability: int = live(
        20, "Of 100 pops, those that look at the retry topic first.", most=100
    )
    enable_retry_topic_v2: bool = live(
        False, "Name pop retry topics %RETRY%group+topic instead of %RETRY%group_topic."
    )
    retrieve_message_from_pop_retry_topic_v1: bool = live(
        True, "With enableRetryTopicV2, look into the older retry topics too."
    )
    init_pop_offset_by_check_msg_in_mem: bool = live(
        True, "A new group that starts at the end gets all of a queue that is still in memory."
    )
    use_message_filter_for_notification: bool = live(
        True, "Notifications tell of messages their expression lets through only."
    )
    pop_response_return_actual_retry_topic: bool = live(
        False, "Popped retries keep the retry topic's name."
    )
    default_message_request_mode: str = live(
        "PULL", "PULL or POP, for groups nobody set a mode for.", choices=("PULL", "POP")
    )
    default_pop_share_queue_num: int = live(
        -1,
        "How many clients' queues a popping client shares; 0 or less: all.",
        least=-1,
        most=2**31 - 1,
    )
    server_load_balancer_enable: bool = live(
        True, "QUERY_ASSIGNMENT divides the queues; off: everybody gets all."
    )
    long_polling_enable: bool = live(True, "Hold pulls that find nothing for as long as they ask.")
    short_polling_time_mills: int = live(
        1000, "How long a pull is held when long polling is off, ms.", kind=INT32
    )
    max_held_pulls: int = option(100_000, "Pulls held at once; further ones are answered at once.")
    reject_pull_consumer_enable: bool = live(
        False, "Refuse pull consumers that are in no group of push consumers."
    )
    lite_pull_message_enable: bool = live(True, "Serve LITE_PULL_MESSAGE (361).")
    use_server_side_reset_offset: bool = live(
        True,
        "Offsets are reset in the broker, effective with each queue's next pull; else by the clients.",
    )
    enable_mixed_message_type: bool = live(False, "Topics may have the message type MIXED.")
    clear_retry_topic_when_delete_topic: bool = live(
        True, "With a topic, the retry topics POP made for it are deleted."
    )
    disable_consume_if_consumer_read_slowly: bool = live(
        False,
        "Take consumeEnable from groups that are further behind than consumerFallbehindThreshold.",
    )
    consumer_fallbehind_threshold: int = live(
        16 << 30,
        "How many bytes of the log a group may be behind before it is disabled.",
        kind=INT64,
    )
    cg_cold_read_threshold: int = live(
        3 << 20,
        "Bytes of cold messages a group may read in 5 s, with coldDataFlowControlEnable.",
        kind=INT64,
    )
    global_cold_read_threshold: int = live(
        100 << 20, "The same of all groups together.", kind=INT64
    )
    cold_ctr_strategy_enable: bool = live(
        False, "The broker itself raises and lowers groups' thresholds of cold messages."
    )
    use_pid_cold_ctr_strategy: bool = live(
        True,
        "It goes by the last ten intervals, not by the last one alone.",
        name="usePIDColdCtrStrategy",
    )
    slave_read_enable: bool = live(False, "Send readers that are far behind to a replica.")
    enable_property_filter: bool = live(True, "Allow SQL92 filters (on by default here).")
    filter_support_retry: bool = live(
        False, "Filter retry topics by the selectors of the topics before them."
    )
    reject_transaction_message: bool = live(False, "Refuse half messages.")
    transaction_time_out: int = live(
        6_000,
        "Age at which the producer of a half message is first asked about it, ms.",
        kind=MILLISECONDS,
    )
    transaction_check_interval: int = live(
        30_000, "How often producers are asked about half messages, ms.", least=100, most=1 << 40
    )
    transaction_check_max: int = live(
        15, "Checks after which a half message goes to TRANS_CHECK_MAX_TIME_TOPIC.", kind=INT32
    )
    store_reply_message_enable: bool = live(
        True, "Keep the answers of request-reply in the log, too."
    )
    recall_message_enable: bool = live(False, "Serve recalls of timer messages.")
    allow_recall_when_broker_not_writeable: bool = live(
        True, "Serve recalls without write permission too."
    )
    start_accept_send_request_time_stamp: int = option(
        0, "Refuse sends before this time, epoch ms."
    )
    register_name_server_period: int = live(
        30_000, "Registration interval, ms (10 to 60 s).", kind=MILLISECONDS
    )
    register_broker_timeout_mills: int = live(
        24_000, "Time for one registration, ms.", least=1_000, most=600_000
    )
    enable_split_registration: bool = live(
        False,
        "Register in parts of splitRegistrationSize topics; more than 4,000 topics are split in any case.",
    )
    split_registration_size: int = live(
        800, "Topics of one part of a registration.", least=1, most=4_000
    )
    compressed_register: bool = live(False, "Register in the compressed form.")
    flush_consumer_offset_interval: int = live(
        5_000, "How often offsets are written, ms.", least=100, most=600_000
    )
    flush_delay_offset_interval: int = live(
        10_000, "How often delay progress is written, ms.", least=100, most=600_000
    )
    send_thread_pool_queue_capacity: int = live(10_000, "Sends that may wait.", kind=CAPACITY)
    pull_thread_pool_queue_capacity: int = live(
        100_000, "Pulls and pops that may wait.", kind=CAPACITY
    )
    lite_pull_thread_pool_queue_capacity: int = live(
        100_000, "Lite pulls that may wait.", kind=CAPACITY
    )
    query_thread_pool_queue_capacity: int = live(20_000, "Queries that may wait.", kind=CAPACITY)
    client_manager_thread_pool_queue_capacity: int = live(
        1_000_000, "Client registrations that may wait.", kind=CAPACITY
    )
    consumer_manager_thread_pool_queue_capacity: int = live(
        1_000_000, "Offset requests that may wait.", kind=CAPACITY
    )
    heartbeat_thread_pool_queue_capacity: int = live(
        50_000, "Heartbeats that may wait.", kind=CAPACITY
    )
    admin_broker_thread_pool_queue_capacity: int = live(
        10_000, "Admin requests that may wait.", kind=CAPACITY
    )
    ack_thread_pool_queue_capacity: int = live(
        100_000, "Acknowledgements that may wait.", kind=CAPACITY
    )
    end_transaction_pool_queue_capacity: int = live(
        100_000, "Ends of transactions that may wait.", kind=CAPACITY
    )
    reply_thread_pool_queue_capacity: int = live(
        10_000, "Answers of request-reply that may wait.", kind=CAPACITY
    )
    load_balance_thread_pool_queue_capacity: int = live(
        100_000, "Queue assignments that may wait.", kind=CAPACITY
    )
    broker_fast_failure_enable: bool = live(
        True, "Refuse requests that have waited too long (waitTimeMillsIn...)."
    )
    wait_time_mills_in_send_queue: int = live(
        200, "A send that has waited so long is refused, ms.", kind=MILLISECONDS
    )
    wait_time_mills_in_pull_queue: int = live(
        5_000, "A pull or pop that has waited so long is refused, ms.", kind=MILLISECONDS
    )
    wait_time_mills_in_lite_pull_queue: int = live(
        5_000, "A lite pull that has waited so long is refused, ms.", kind=MILLISECONDS
    )
    wait_time_mills_in_heartbeat_queue: int = live(
        31_000, "A heartbeat that has waited so long is refused, ms.", kind=MILLISECONDS
    )
    wait_time_mills_in_ack_queue: int = live(
        3_000, "An acknowledgement that has waited so long is refused, ms.", kind=MILLISECONDS
    )
    wait_time_mills_in_transaction_queue: int = live(
        3_000, "The end of a transaction that has waited so long is refused, ms.", kind=MILLISECONDS
    )
    wait_time_mills_in_admin_broker_queue: int = live(
        5_000, "An admin request that has waited so long is refused, ms.", kind=MILLISECONDS
    )
    channel_expired_timeout: int = live(
        120_000, "A consumer without a heartbeat for so long is gone, ms.", kind=MILLISECONDS
    )
    notify_consumer_ids_changed_enable: bool = live(
        True, "Tell members of a group when others come or go."
    )
    validate_system_topic_when_update_topic: bool = live(
        True, "Refuse changes of the system's topics; their deletion is always refused."
    )
    server_channel_max_idle_time_seconds: int = option(120, "Idle connections are closed after, s.")
    frame_timeout_seconds: int = option(30, "A frame may come below 1 KiB/s so long, s.", least=1)
    max_unfinished_frame_bytes: int = option(128 << 20, "Of all half frames.", least=32 << 20)
    max_unsent_bytes: int = option(256 << 20, "Of all answers not taken.", least=32 << 20)
    max_kept_bytes: int = option(
        512 << 20,
        "Of all that is kept for peers: the two above, requests that wait, open calls. A peer with more than a quarter, or "
        "than its share where all have more, is not read until half is gone.",
        least=128 << 20,
    )
    max_waiting_send_bytes: int = live(
        256 << 20,
        "Sends of so many bytes may wait for replicas or the disk at once; further ones are answered SYSTEM_BUSY.",
        least=1 << 20,
        most=1 << 40,
    )
    max_connections: int = option(
        20_000,
        "Connections both ports accept together; further ones are closed. Fewer where the limit of open files "
        "leaves no room for as many beside the store's.",
    )


class LiveConfig:
    """The current settings of broker and store. Processors keep this holder and read `current` each time.

    Attributes:
        changed: called with the names of the Java keys after each change, in order.
        fixed: settings of ports and accounts, which are shown beside these.
    """

    __slots__ = ("_version", "bounds", "changed", "current", "fixed", "store")

    def __init__(self, current: BrokerConfig, store: StoreConfig, now_ms: int) -> None:
        self.current: BrokerConfig = current
        self.store: StoreConfig = store
        self.bounds = BrokerBounds(lambda: self.current)
        self.changed: list[Callable[[list[str]], None]] = []
        self.fixed: dict[str, str] = {}
        self._version = DataVersion(counter=0, state_version=0, timestamp=now_ms)

    def offset_interval_s(self) -> float:
        """Seconds between two writings of the offsets, now."""
        return self.current.flush_consumer_offset_interval / 1000

    def properties(self) -> dict[str, str]:
        """Every setting under Apache's key, as GET_BROKER_CONFIG shows them."""
        return self.fixed | to_properties(self.current) | to_properties(self.store)

    def update(self, changes: Mapping[str, str]) -> None:
        """Apply `changes` (Java keys), all or none of them.

        brokerPermission is told to the name servers also when it stays: that undoes a wiped write permission.

        Raises:
            ConfigError: a key is unknown, may not change while the broker runs, or its value does not fit.
        """
        current, store = with_changes((self.current, self.store), changes, BROKER)
        same = current is self.current and store is self.store
        if same and "brokerPermission" not in changes:
            return
        self.current, self.store = current, store
        self._version = DataVersion(
            counter=self._version.counter + 1,
            state_version=0,
            timestamp=self._version.timestamp,
        )
        for follow in self.changed:
            follow(sorted(changes))

    def version(self) -> DataVersion:
        """Moves at every change."""
        return self._version


def name_servers(config: BrokerConfig) -> list[str]:
    """Addresses of the name servers, in order, each once."""
    return split_addresses(config.namesrv_addr)


def system_topics(config: BrokerConfig, *, timer_wheel: bool = False) -> list[TopicConfig]:
    """The topics a broker has from its start (TopicConfigManager.init)."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    read_write = names.PERM_READ | names.PERM_WRITE
    inherit = names.PERM_INHERIT
    rows: list[tuple[str, int, int]] = [(names.SELF_TEST_TOPIC, 1, read_write)]
    if config.auto_create_topic_enable:
        rows.append((names.TBW102, config.default_topic_queue_nums, read_write | inherit))
    rows += [
        (names.BENCHMARK_TOPIC, BENCHMARK_QUEUES, read_write),
        (
            cluster,
            CLUSTER_TOPIC_QUEUES,
            inherit | (read_write if config.cluster_topic_enable else 0),
        ),
        (broker, 1, inherit | (read_write if config.broker_topic_enable else 0)),
        (names.OFFSET_MOVED_EVENT, 1, read_write),
        (names.SCHEDULE_TOPIC, SCHEDULE_QUEUES, read_write),
    ]
    if config.trace_topic_enable:
        rows.append((config.msg_trace_topic_name, 1, read_write))
    rows += [
        (names.reply_topic(cluster), 1, read_write),
        (f"rmq_sys_REVIVE_LOG_{cluster}", config.revive_queue_num, read_write),
        (f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, inherit),
        (names.TRANS_HALF_TOPIC, 1, read_write),
        (names.TRANS_OP_HALF_TOPIC, 1, read_write),
    ]
    if timer_wheel:
        rows.append((names.TIMER_TOPIC, 1, read_write))
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name, queues, perm in rows
    ]
