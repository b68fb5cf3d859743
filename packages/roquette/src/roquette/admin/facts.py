"""Facts that one examination of a cluster found: plain values, which checks read and tests write down.

Times are milliseconds since 1970 by the clock of who examines, unless a field says whose they are.
"""

from collections.abc import Iterator, Sequence

import msgspec

from roquette.admin.cluster import gone_of
from roquette.message.message import MessageQueue, unread
from roquette.message.names import (
    DLQ_PREFIX,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    is_system_topic,
    is_users_group,
)
from roquette.wire.bodies import (
    BrokerLeft,
    ClusterInfo,
    ConsumerRunningInfo,
    SubscriptionData,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
)


def whole(text: str) -> int | None:
    """The number a server wrote, if it is one."""
    try:
        return int(text)
    except ValueError:
        return None


def is_of_group(topic: str) -> bool:
    """Return True when a topic holds a group's retries or dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


class About(msgspec.Struct, frozen=True):
    """What a finding is about. `other`: what is none of the rest, or a part of it."""

    broker: str = ""
    broker_id: int = 0
    group: str = ""
    topic: str = ""
    client: str = ""
    other: str = ""

    @property
    def words(self) -> str:
        """What people call it."""
        kinds = (
            f"broker {self.broker}" + (f" (id {self.broker_id})" if self.broker_id else ""),
            f"group {self.group}",
            f"topic {self.topic}",
            f"client {self.client}",
            self.other,
        )
        names = (self.broker, self.group, self.topic, self.client, self.other)
        return ", ".join(kind for kind, name in zip(kinds, names, strict=True) if name)


class NameServerFacts(msgspec.Struct, kw_only=True):
    """One name server.

    Attributes:
        error: why it did not answer, "" when it did.
        cluster: every broker it knows.
        routes: of each topic that was compared; None: it knows none.
        drained: names of brokers of which it has a drain's note.
    """

    address: str
    error: str = ""
    cluster: ClusterInfo = msgspec.field(default_factory=ClusterInfo)
    topics: list[str] = []
    routes: dict[str, TopicRouteData | None] = {}
    drained: list[str] = []


class DelayLevel(msgspec.Struct, frozen=True):
    """One delay level of a broker.

    Attributes:
        delay_ms: how long its messages wait.
        delivered, end: offsets of its queue: delivered up to, and its end.
        due: messages before this offset should have been delivered some time ago.
    """

    level: int
    delay_ms: int
    delivered: int
    end: int
    due: int = 0


class BrokerFacts(msgspec.Struct, kw_only=True):
    """One broker process under the address that clients are told.

    Attributes:
        error: why it did not answer, "" when it did; `connected`: whether a connection could be made at all.
        ahead_ms: at least and at most how far its clock is ahead of ours; None: not known.
        runtime: GET_BROKER_RUNTIME_INFO. settings: GET_BROKER_CONFIG.
        refused: what it did not tell, and why.
        topics, groups: what it has configurations of; of masters only, as all that follows.
        offsets: by (group, topic), the committed offset of each queue id.
        queues: ends of the queues of the users' topics, retries and dead letters among them.
        delays: its delay levels.
        half_born_ms: when the oldest half message was sent that is still open; 0: none is, or not known.
        waits: by (group, topic), for how many ms the next message has been there; of groups that are away, or behind.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    error: str = ""
    connected: bool = True
    ahead_ms: tuple[int, int] | None = None
    runtime: dict[str, str] = {}
    settings: dict[str, str] = {}
    refused: list[str] = []
    topics: dict[str, TopicConfig] = {}
    groups: list[str] = []
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    queues: dict[MessageQueue, TopicOffset] = {}
    delays: list[DelayLevel] = []
    half_born_ms: int = 0
    waits: dict[tuple[str, str], int] = {}

    @property
    def about(self) -> About:
        """This broker, as findings are about it."""
        return About(broker=self.name, broker_id=self.broker_id)

    @property
    def label(self) -> str:
        """The name by which findings call it."""
        return self.about.words

    def number(self, key: str) -> int | None:
        """A whole number of the run-time table."""
        return whole(self.runtime.get(key, ""))


class MemberFacts(msgspec.Struct, kw_only=True):
    """One consumer of a group.

    Attributes:
        addresses: its connections, by the name of the broker.
        running: its own answer; None: it did not give one.
        silent: whether it was asked and nothing came in time; others say that they do not know the question.
    """

    client_id: str
    addresses: dict[str, list[str]] = {}
    running: ConsumerRunningInfo | None = None
    silent: bool = False

    @property
    def tells_queues(self) -> bool:
        """True when it says which queues are its own: readers that choose their queues, and v5 clients, do not."""
        running = self.running
        return running is not None and (
            running.properties.get("PROP_CONSUME_TYPE") != "CONSUME_ACTIVELY"
        )

    @property
    def orderly(self) -> bool:
        """True when it consumes each queue in order, under a lock."""
        running = self.running
        return running is not None and running.properties.get("PROP_CONSUMEORDERLY") == "true"

    def queues(self) -> set[MessageQueue]:
        """Those it consumes."""
        running = self.running
        return set() if running is None else {*running.mq_table, *running.mq_pop_table}


class FilterProbe(msgspec.Struct, frozen=True):
    """The newest messages of a queue under a group's filter: how many there were, and whether any passed."""

    queue: MessageQueue
    expression: str
    looked_at: int
    passes: bool


class GroupFacts(msgspec.Struct, kw_only=True):
    """A consumer group with members online. `subscriptions`: as a broker has them, by topic."""

    group: str
    model: str = "CLUSTERING"
    members: list[MemberFacts] = []
    subscriptions: dict[str, SubscriptionData] = {}
    probes: list[FilterProbe] = []


class ClusterFacts(msgspec.Struct, kw_only=True):
    """One look at a cluster.

    Attributes:
        at_ms, steady_ms: when it ended, in both times.
        groups: those with members online; `offline`: the users' others, by name.
        left_out: what the bounds of an examination left out, in words.
    """

    at_ms: int = 0
    steady_ms: int = 0
    name_servers: list[NameServerFacts] = []
    brokers: list[BrokerFacts] = []
    groups: list[GroupFacts] = []
    offline: list[str] = []
    left_out: list[str] = []

    def gone(self, expected: Sequence[str] = ()) -> list[BrokerLeft]:
        """Brokers that are not there (`gone_of`)."""
        return gone_of([server.cluster for server in self.name_servers], expected)

    def answering(self) -> list[BrokerFacts]:
        """Brokers that answered."""
        return [broker for broker in self.brokers if not broker.error]

    def masters(self) -> list[BrokerFacts]:
        """Masters that answered."""
        return [broker for broker in self.answering() if broker.broker_id == 0]

    def master(self, name: str) -> BrokerFacts | None:
        """The master of a broker name, if it answered."""
        return next((broker for broker in self.masters() if broker.name == name), None)

    def partial_topics(self) -> dict[str, tuple[list[BrokerFacts], list[BrokerFacts]]]:
        """The users' own topics only some of their cluster's masters have -> who has it, and who lacks it."""
        found: dict[str, tuple[list[BrokerFacts], list[BrokerFacts]]] = {}
        masters = [broker for broker in self.masters() if broker.topics]
        names = {name for broker in masters for name in (broker.name, broker.cluster)}
        for topic in sorted({topic for broker in masters for topic in broker.topics} - names):
            if is_system_topic(topic) or topic.endswith(REPLY_TOPIC_SUFFIX) or is_of_group(topic):
                continue
            has = [broker for broker in masters if topic in broker.topics]
            clusters = {broker.cluster for broker in has}
            lacks = [b for b in masters if b.cluster in clusters and topic not in b.topics]
            if lacks:
                found[topic] = has, lacks
        return found

    def behind(self) -> dict[tuple[str, str], list["GroupPosition"]]:
        """By (group, topic) of the users, where messages wait."""
        found: dict[tuple[str, str], list[GroupPosition]] = {}
        for at in self.positions():
            if at.lag and is_users_group(at.group):
                found.setdefault((at.group, at.queue.topic), []).append(at)
        return dict(sorted(found.items()))

    def positions(self) -> Iterator["GroupPosition"]:
        """Every queue whose ends are known, of each topic that a group has an offset of; -1: it has none in this one."""
        for broker in self.masters():
            queues: dict[str, list[tuple[MessageQueue, TopicOffset]]] = {}
            for queue, ends in broker.queues.items():
                queues.setdefault(queue.topic, []).append((queue, ends))
            for (group, topic), offsets in broker.offsets.items():
                for queue, ends in queues.get(topic, ()):
                    yield GroupPosition(group, queue, offsets.get(queue.queue_id, -1), ends)


class GroupPosition(msgspec.Struct, frozen=True):
    """A group's place in one queue, and the queue's ends, which were read later."""

    group: str
    queue: MessageQueue
    offset: int
    ends: TopicOffset

    @property
    def lag(self) -> int:
        """Messages that are not consumed."""
        return unread(self.offset, self.ends.min_offset, self.ends.max_offset)
