"""Facts of a healthy cluster, written down: two name servers, two brokers, a topic, a group of two consumers."""

from roquette.admin.facts import (
    BrokerFacts,
    ClusterFacts,
    DelayLevel,
    GroupFacts,
    MemberFacts,
    NameServerFacts,
)
from roquette.message.message import MessageQueue
from roquette.wire.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerRunningInfo,
    ProcessQueueInfo,
    QueueData,
    SubscriptionData,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
)

NOW_MS = 1_700_000_000_000
BOOT_MS = NOW_MS - 86_400_000
CLUSTER, TOPIC, GROUP = "DefaultCluster", "orders", "billing"
ADDRESSES = {"broker-a": "192.168.1.11:10911", "broker-b": "192.168.1.12:10911"}
QUEUES = 2  # on each broker
SETTINGS = {
    "autoCreateTopicEnable": "false",
    "authenticationEnabled": "true",
    "flushDiskType": "SYNC_FLUSH",
    "brokerRole": "ASYNC_MASTER",
    "diskMaxUsedSpaceRatio": "75",
    "fileReservedTime": "72",
    "deleteWhen": "04",
}
RUNTIME = {
    "bootTimestamp": str(BOOT_MS),
    "runtime": "[ 1 days, 0 hours, 0 minutes, 0 seconds ]",
    "brokerVersionDesc": "V5_5_0",
    "commitLogDiskRatio": "0.4",
    "commitLogDirCapacity": "Total : 100.0 GiB, Free : 60.0 GiB.",
    "commitLogMinOffset": "0",
    "commitLogMaxOffset": str(1 << 30),
    "earliestMessageTimeStamp": str(NOW_MS - 86_400_000),
    "openDescriptors": "120",
    "descriptorLimit": "65536",
    "wrongProtocolConnections": "0",
    "messagesRefused": "no",
    "timerReadBehind": "0",
    "task_timer": "failures=0 wellAgo=0.1s setAside=0 lastError=none",
}


def route() -> TopicRouteData:
    """Of the topic."""
    return TopicRouteData(
        queue_datas=[QueueData(name, QUEUES, QUEUES, 6) for name in ADDRESSES],
        broker_datas=[BrokerData(CLUSTER, name, {0: at}) for name, at in ADDRESSES.items()],
    )


def name_server(address: str) -> NameServerFacts:
    """One that knows everything."""
    return NameServerFacts(
        address=address,
        cluster=ClusterInfo(
            {name: BrokerData(CLUSTER, name, {0: at}) for name, at in ADDRESSES.items()},
            {CLUSTER: list(ADDRESSES)},
            [],
        ),
        topics=[TOPIC],
        routes={TOPIC: route()},
    )


def broker(name: str, consumed: int, end: int) -> BrokerFacts:
    """A master; each queue of the topic has `end` messages, of which the group has done `consumed`."""
    topics = {TOPIC: TopicConfig(TOPIC, QUEUES, QUEUES, 6)}
    topics[f"%RETRY%{GROUP}"] = TopicConfig(f"%RETRY%{GROUP}", 1, 1, 6)
    ends = {MessageQueue(TOPIC, name, i): TopicOffset(0, end, NOW_MS) for i in range(QUEUES)}
    ends[MessageQueue(f"%RETRY%{GROUP}", name, 0)] = TopicOffset(0, 3, NOW_MS)
    return BrokerFacts(
        cluster=CLUSTER,
        name=name,
        broker_id=0,
        address=ADDRESSES[name],
        ahead_ms=(-500, 500),
        runtime=dict(RUNTIME),
        settings=dict(SETTINGS),
        topics=topics,
        groups=[GROUP, "TOOLS_CONSUMER"],
        offsets={
            (GROUP, TOPIC): dict.fromkeys(range(QUEUES), consumed),
            (GROUP, f"%RETRY%{GROUP}"): {0: 3},
        },
        queues=ends,
        delays=[DelayLevel(1, 1_000, 10, 12, 10)],
    )


def member(client_id: str, owns: str, at: int) -> MemberFacts:
    """A consumer that has the queues of one broker."""
    state = {
        MessageQueue(TOPIC, owns, i): ProcessQueueInfo(
            commit_offset=at, cached_msg_count=1, last_pull_timestamp=NOW_MS - 20_000
        )
        for i in range(QUEUES)
    }
    return MemberFacts(
        client_id=client_id,
        addresses={name: [f"192.168.1.{len(client_id)}:50{i}"] for i, name in enumerate(ADDRESSES)},
        running=ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(NOW_MS - 3_600_000),
            },
            subscription_set=[SubscriptionData(topic=TOPIC, sub_string="A||B")],
            mq_table=state,
        ),
    )


def healthy(after_s: int = 0) -> ClusterFacts:
    """A look at it; traffic has gone on for `after_s` seconds."""
    done, end = 1000 + 10 * after_s, 1002 + 10 * after_s
    return ClusterFacts(
        at_ms=NOW_MS + after_s * 1000,
        steady_ms=5_000_000 + after_s * 1000,
        name_servers=[name_server("192.168.1.1:9876"), name_server("192.168.1.2:9876")],
        brokers=[broker(name, done, end) for name in ADDRESSES],
        groups=[
            GroupFacts(
                group=GROUP,
                members=[member("one", "broker-a", done), member("other", "broker-b", done)],
                subscriptions={
                    TOPIC: SubscriptionData(topic=TOPIC, sub_string="A||B"),
                    f"%RETRY%{GROUP}": SubscriptionData(topic=f"%RETRY%{GROUP}"),
                },
                probes=[],
            )
        ],
    )
