"""The broker's settings: Apache's BrokerConfig (with the few of NettyServerConfig), as far as they act here.

The store's own keys (paths, flush, retention, delay levels) live in `store/config.py`.
"""

import dataclasses
from collections.abc import Callable, Mapping

from roquette.base.config import (
    refuse_unknown,
    setting,
    to_properties,
    update,
)
from roquette.base.foreign_keys import BROKER
from roquette.broker.tables.bounds import Bounds, BoundSettings
from roquette.store.config import StoreConfig
from roquette.wire.bodies import DataVersion


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BoundSettings):
    """One immutable picture of the settings; `LiveConfig` holds the current one."""

    broker_name: str = setting("", "Name of the broker set; empty takes the host's name.")
    broker_cluster_name: str = setting("DefaultCluster", "Cluster this broker belongs to.")
    broker_id: int = setting(0, "0 is the master, others are replicas.")
    broker_role: str = setting("ASYNC_MASTER", "Only masters so far; SLAVE is refused at start.")
    broker_ip1: str = setting(
        "", "Address told to clients; empty takes the bind address.", java="brokerIP1"
    )
    bind_address: str = setting("0.0.0.0", "Address to listen on.")
    listen_port: int = setting(10911, "Main port; 0 takes a free one.")
    namesrv_addr: str = setting(
        "",
        "Name servers, host:port separated by semicolons.",
        mutable=True,
        form=r"[^\s/\\]*(:\d{1,5})?([;,][^\s/\\]*:\d{1,5})*[;,]?",
    )
    broker_permission: int = setting(6, "4 read, 2 write, 6 both.", mutable=True, least=0, most=6)
    auto_create_topic_enable: bool = setting(
        True, "A send to an unknown topic creates it.", mutable=True
    )
    auto_create_topic_on_all_brokers: bool = setting(
        True,
        "A topic created by a send is created on every writable master of the cluster.",
        mutable=True,
    )
    default_topic_queue_nums: int = setting(8, "Queues of TBW102, the template of new topics.")
    cluster_topic_enable: bool = setting(True, "The topic named like the cluster is readable.")
    broker_topic_enable: bool = setting(True, "The topic named like the broker is readable.")
    auto_create_subscription_group: bool = setting(
        True, "An unknown consumer group is created when first seen.", mutable=True
    )
    trace_topic_enable: bool = setting(False, "Create the message trace topic at start.")
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", "Name of the message trace topic.")
    trace_on: bool = setting(True, "Tell clients that traces are wanted (TRACE_ON).", mutable=True)
    region_id: str = setting("DefaultRegion", "Value of MSG_REGION.")
    revive_queue_num: int = setting(8, "Queues of POP's revive topic.")
    pop_polling_size: int = setting(1024, "Pops of one topic, group and queue that may wait.")
    max_pop_polling_size: int = setting(100_000, "Pops that may wait in all.")
    pop_ck_max_buffer_size: int = setting(
        200_000, "Unfinished check-points of POP kept in memory; others wait in the revive log."
    )
    pop_from_retry_probability: int = setting(
        20, "Of 100 pops, those that look at the retry topic first.", mutable=True, most=100
    )
    enable_retry_topic_v2: bool = setting(
        False,
        "Name pop retry topics %RETRY%group+topic instead of %RETRY%group_topic.",
        mutable=True,
    )
    retrieve_message_from_pop_retry_topic_v1: bool = setting(
        True, "With enableRetryTopicV2, look into the older retry topics too.", mutable=True
    )
    init_pop_offset_by_check_msg_in_mem: bool = setting(
        True,
        "A new group that starts at the end gets all of a queue that is still in memory.",
        mutable=True,
    )
    use_message_filter_for_notification: bool = setting(
        True, "Notifications tell of messages their expression lets through only.", mutable=True
    )
    pop_response_return_actual_retry_topic: bool = setting(
        False, "Popped retries keep the retry topic's name.", mutable=True
    )
    default_message_request_mode: str = setting(
        "PULL", "PULL or POP, for groups nobody set a mode for.", mutable=True, form="PULL|POP"
    )
    default_pop_share_queue_num: int = setting(
        -1,
        "How many clients' queues a popping client shares; 0 or less: all.",
        mutable=True,
        least=-1,
        most=2**31 - 1,
    )
    server_load_balancer_enable: bool = setting(
        True, "QUERY_ASSIGNMENT divides the queues; off: everybody gets all.", mutable=True
    )
    long_polling_enable: bool = setting(
        True, "Hold pulls that find nothing for as long as they ask.", mutable=True
    )
    short_polling_time_mills: int = setting(
        1000,
        "How long a pull is held when long polling is off, ms.",
        mutable=True,
        least=1,
        most=2**31 - 1,
    )
    max_held_pulls: int = setting(100_000, "Pulls held at once; further ones are answered at once.")
    reject_pull_consumer_enable: bool = setting(
        False, "Refuse pull consumers that are in no group of push consumers.", mutable=True
    )
    lite_pull_message_enable: bool = setting(True, "Serve LITE_PULL_MESSAGE (361).", mutable=True)
    use_server_side_reset_offset: bool = setting(
        True,
        "Offsets are reset in the broker, effective with each queue's next pull; else by the clients.",
        mutable=True,
    )
    enable_mixed_message_type: bool = setting(
        False, "Topics may have the message type MIXED.", mutable=True
    )
    clear_retry_topic_when_delete_topic: bool = setting(
        True, "With a topic, the retry topics POP made for it are deleted.", mutable=True
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False,
        "Take consumeEnable from groups that are further behind than consumerFallbehindThreshold.",
        mutable=True,
    )
    consumer_fallbehind_threshold: int = setting(
        16 << 30,
        "How many bytes of the log a group may be behind before it is disabled.",
        mutable=True,
        most=2**63 - 1,
    )
    slave_read_enable: bool = setting(
        False, "Send readers that are far behind to a replica.", mutable=True
    )
    enable_property_filter: bool = setting(
        True, "Allow SQL92 filters (on by default here).", mutable=True
    )
    filter_support_retry: bool = setting(
        False, "Filter retry topics by the selectors of the topics before them.", mutable=True
    )
    reject_transaction_message: bool = setting(False, "Refuse half messages.", mutable=True)
    transaction_time_out: int = setting(
        6_000,
        "Age at which the producer of a half message is first asked about it, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    transaction_check_interval: int = setting(
        30_000,
        "How often producers are asked about half messages, ms.",
        mutable=True,
        least=100,
        most=1 << 40,
    )
    transaction_check_max: int = setting(
        15,
        "Checks after which a half message goes to TRANS_CHECK_MAX_TIME_TOPIC.",
        mutable=True,
        least=1,
        most=2**31 - 1,
    )
    store_reply_message_enable: bool = setting(
        True, "Keep the answers of request-reply in the log, too.", mutable=True
    )
    recall_message_enable: bool = setting(False, "Serve recalls of timer messages.", mutable=True)
    allow_recall_when_broker_not_writeable: bool = setting(
        True, "Serve recalls without write permission too.", mutable=True
    )
    start_accept_send_request_time_stamp: int = setting(
        0, "Refuse sends before this time, epoch ms."
    )
    register_name_server_period: int = setting(
        30_000, "Registration interval, ms (10 to 60 s).", mutable=True, least=1, most=1 << 40
    )
    register_broker_timeout_mills: int = setting(24_000, "Time for one registration, ms.")
    enable_split_registration: bool = setting(
        False,
        "Register in parts of splitRegistrationSize topics; more than 4,000 topics are split in any case.",
        mutable=True,
    )
    split_registration_size: int = setting(
        800, "Topics of one part of a registration.", mutable=True, least=1, most=4_000
    )
    compressed_register: bool = setting(False, "Register in the compressed form.", mutable=True)
    flush_consumer_offset_interval: int = setting(5_000, "How often offsets are written, ms.")
    flush_delay_offset_interval: int = setting(10_000, "How often delay progress is written, ms.")
    send_thread_pool_queue_capacity: int = setting(
        10_000, "Sends that may wait.", mutable=True, least=1, most=10_000_000
    )
    pull_thread_pool_queue_capacity: int = setting(
        100_000, "Pulls and pops that may wait.", mutable=True, least=1, most=10_000_000
    )
    lite_pull_thread_pool_queue_capacity: int = setting(
        100_000, "Lite pulls that may wait.", mutable=True, least=1, most=10_000_000
    )
    query_thread_pool_queue_capacity: int = setting(
        20_000, "Queries that may wait.", mutable=True, least=1, most=10_000_000
    )
    client_manager_thread_pool_queue_capacity: int = setting(
        1_000_000, "Client registrations that may wait.", mutable=True, least=1, most=10_000_000
    )
    consumer_manager_thread_pool_queue_capacity: int = setting(
        1_000_000, "Offset requests that may wait.", mutable=True, least=1, most=10_000_000
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        50_000, "Heartbeats that may wait.", mutable=True, least=1, most=10_000_000
    )
    admin_broker_thread_pool_queue_capacity: int = setting(
        10_000, "Admin requests that may wait.", mutable=True, least=1, most=10_000_000
    )
    ack_thread_pool_queue_capacity: int = setting(
        100_000, "Acknowledgements that may wait.", mutable=True, least=1, most=10_000_000
    )
    end_transaction_pool_queue_capacity: int = setting(
        100_000, "Ends of transactions that may wait.", mutable=True, least=1, most=10_000_000
    )
    reply_thread_pool_queue_capacity: int = setting(
        10_000, "Answers of request-reply that may wait.", mutable=True, least=1, most=10_000_000
    )
    load_balance_thread_pool_queue_capacity: int = setting(
        100_000, "Queue assignments that may wait.", mutable=True, least=1, most=10_000_000
    )
    broker_fast_failure_enable: bool = setting(
        True, "Refuse requests that have waited too long (waitTimeMillsIn...).", mutable=True
    )
    wait_time_mills_in_send_queue: int = setting(
        200, "A send that has waited so long is refused, ms.", mutable=True, least=1, most=1 << 40
    )
    wait_time_mills_in_pull_queue: int = setting(
        5_000,
        "A pull or pop that has waited so long is refused, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    wait_time_mills_in_lite_pull_queue: int = setting(
        5_000,
        "A lite pull that has waited so long is refused, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000,
        "A heartbeat that has waited so long is refused, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    wait_time_mills_in_ack_queue: int = setting(
        3_000,
        "An acknowledgement that has waited so long is refused, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    wait_time_mills_in_transaction_queue: int = setting(
        3_000,
        "The end of a transaction that has waited so long is refused, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    wait_time_mills_in_admin_broker_queue: int = setting(
        5_000,
        "An admin request that has waited so long is refused, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    channel_expired_timeout: int = setting(
        120_000,
        "A consumer without a heartbeat for so long is gone, ms.",
        mutable=True,
        least=1,
        most=1 << 40,
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "Tell members of a group when others come or go.", mutable=True
    )
    validate_system_topic_when_update_topic: bool = setting(
        True,
        "Refuse changes of the system's topics; their deletion is always refused.",
        mutable=True,
    )
    server_channel_max_idle_time_seconds: int = setting(
        120, "Idle connections are closed after, s."
    )
    frame_timeout_seconds: int = setting(
        30, java="frameTimeoutSeconds", help="A frame may come below 1 KiB/s so long, s.", least=1
    )
    max_unfinished_frame_bytes: int = setting(
        128 << 20, java="maxUnfinishedFrameBytes", help="Of all half frames.", least=32 << 20
    )
    max_unsent_bytes: int = setting(
        256 << 20, java="maxUnsentBytes", help="Of all answers not taken.", least=32 << 20
    )
    max_connections: int = setting(
        20_000,
        "Connections both ports accept together; further ones are closed. Fewer where the limit of open files "
        "leaves no room for as many beside the store's.",
    )


class LiveConfig:
    """The current settings of broker and store. Processors keep this holder and read `current` each time.

    Attributes:
        changed: called with the names of the Java keys after each change, in order.
    """

    __slots__ = ("_version", "bounds", "changed", "current", "store")

    def __init__(self, current: BrokerConfig, store: StoreConfig, now_ms: int) -> None:
        self.current: BrokerConfig = current
        self.store: StoreConfig = store
        self.bounds = Bounds(lambda: self.current)
        self.changed: list[Callable[[list[str]], None]] = []
        self._version = DataVersion(counter=0, state_version=0, timestamp=now_ms)

    def properties(self) -> dict[str, str]:
        """Every setting under Apache's key, as GET_BROKER_CONFIG shows them."""
        return to_properties(self.current) | to_properties(self.store)

    def update(self, changes: Mapping[str, str]) -> None:
        """Apply `changes` (Java keys), all or none of them.

        Raises:
            ConfigError: a key is unknown, may not change while the broker runs, or its value does not fit.
        """
        where = "the request"
        for key, text in changes.items():
            BROKER.refuse(key, text, where)
        refuse_unknown(changes, (BrokerConfig, StoreConfig), BROKER, where)
        current = update(self.current, changes)
        store = update(self.store, changes)
        if current is self.current and store is self.store:
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
    found = dict.fromkeys(
        part.strip() for part in config.namesrv_addr.replace(",", ";").split(";") if part.strip()
    )
    return list(found)
