"""The topics of this broker: names, queue counts, permissions. Pure: time comes in, who follows `changed` hears of changes.

The rules are those of Apache's TopicConfigManager.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from roquette.base.bounds import Bound, unbounded
from roquette.message import names
from roquette.wire.bodies import DataVersion, TopicConfig
from roquette.wire.codes import ResponseCode

AUTO_CREATED_MS = 60_000
_GROUPS_OWN = (names.RETRY_PREFIX, names.DLQ_PREFIX)


class Topic:
    """One topic as the request path needs it. `find` hands out the live object: do not change it."""

    __slots__ = (
        "attributes",
        "auto_created_ms",
        "batched",
        "filter_type",
        "may_send",
        "name",
        "open",
        "order",
        "perm",
        "put_bytes",
        "put_count",
        "queue_limit",
        "read_queues",
        "shown",
        "special",
        "sys_flag",
        "write_queues",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.name: str = config.topic_name
        self.open: bool = True  # clients may send: the name, the topic and the broker allow it
        self.put_count: int = 0  # messages since start; stats take their samples
        self.put_bytes: int = 0  # of the log
        self.batched: int = 0  # messages that came with others, all but the first of each batch
        self.assign(config)

    def assign(self, config: TopicConfig) -> None:
        """Take over new settings; counters stay."""
        self.auto_created_ms: int = (
            0  # when a first message made it; 0 when settings came otherwise
        )
        self.read_queues: int = config.read_queue_nums
        self.write_queues: int = config.write_queue_nums
        self.perm: int = config.perm
        self.order: bool = bool(config.order)
        self.sys_flag: int = config.topic_sys_flag
        self.filter_type: str = config.topic_filter_type or "SINGLE_TAG"
        self.attributes: dict[str, str] = dict(config.attributes or {})
        self.queue_limit: int = max(self.read_queues, self.write_queues)
        self.may_send: bool = self.name not in names.NOT_ALLOWED_SEND
        self.special: bool = (  # a send must look closer
            self.name.startswith(names.RETRY_PREFIX)
            or self.filter_type != "SINGLE_TAG"
            or self.attributes.get("cleanup.policy") == "COMPACTION"
        )
        self.shown: TopicConfig = self.to_config()  # never changed, only replaced

    def to_config(self) -> TopicConfig:
        """The wire's picture of the topic."""
        return TopicConfig(
            topic_name=self.name,
            read_queue_nums=self.read_queues,
            write_queue_nums=self.write_queues,
            perm=self.perm,
            topic_filter_type=self.filter_type,
            topic_sys_flag=self.sys_flag,
            order=self.order,
            attributes=dict(self.attributes),
        )

    def is_young(self, now_ms: int) -> bool:
        """Return True when a first message made the topic within the last minute, and no request has set it since."""
        return self.auto_created_ms > 0 and 0 <= now_ms - self.auto_created_ms < AUTO_CREATED_MS

    def __str__(self) -> str:
        attributes = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.name}, readQueueNums={self.read_queues}, "
            f"writeQueueNums={self.write_queues}, perm={names.perm_text(self.perm)}, "
            f"topicFilterType={self.filter_type}, topicSysFlag={self.sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


Created = Callable[[Topic, str], Awaitable[bool]]
"""Waits until a topic that a send has made, after a template, is on the disk and known; False: it was not written."""


class TopicTable:
    """Topics by name, with a data version that moves at every change.

    Attributes:
        data_version: what name servers compare; a new object at every change.
        changed: called with the topic's name after each change. The broker persists and registers then.
        bound, retry_bound: of ordinary topics, and of those that groups have.
    """

    def __init__(
        self,
        now_ms: int,
        *,
        bound: Bound | None = None,
        retry_bound: Bound | None = None,
    ) -> None:
        self._topics: dict[str, Topic] = {}
        self._shown: dict[str, TopicConfig] = {}  # of each topic: a table to be copied at once
        self._retry_count: int = 0  # how many of them are groups' own: retry and dead-letter topics
        self.bound: Bound = bound or unbounded()
        self.retry_bound: Bound = retry_bound or unbounded()
        self._writable: bool = True
        self.data_version = DataVersion(counter=0, state_version=0, timestamp=now_ms)
        self.changed: list[Callable[[str], None]] = []

    def find(self, name: str) -> Topic | None:
        """The topic, or None."""
        return self._topics.get(name)

    def all(self) -> list[Topic]:
        """Every topic, in the order of creation."""
        return list(self._topics.values())

    def set_writable(self, writable: bool) -> None:
        """Set whether the broker's own permission lets clients send at all (brokerPermission)."""
        self._writable = writable
        for topic in self._topics.values():
            self._judge(topic)

    def _judge(self, topic: Topic) -> None:
        topic.open = self._writable and topic.may_send and bool(topic.perm & names.PERM_WRITE)

    def load(self, configs: Iterable[TopicConfig], version: DataVersion | None) -> None:
        """Take over what a file held; no version step, nobody is notified."""
        for config in configs:
            self._set(config)
        if version is not None:
            self.data_version = version

    def add_system(self, configs: Iterable[TopicConfig]) -> None:
        """Add the topics every broker has, unless they are there; no version step, nobody is notified."""
        for config in configs:
            if config.topic_name not in self._topics:
                self._set(config)

    def put(self, config: TopicConfig, now_ms: int) -> Topic:
        """Create a topic or change its settings (TopicConfigManager.updateTopicConfig)."""
        topic = self._set(config)
        self._step(topic.name, now_ms)
        return topic

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget a topic; False when there is none."""
        if self._topics.pop(name, None) is None:
            return False
        del self._shown[name]
        self._retry_count -= name.startswith(_GROUPS_OWN)
        self._step(name, now_ms)
        return True

    def auto_create(
        self,
        name: str,
        *,
        default_topic: str,
        queues: int,
        sys_flag: int,
        enabled: bool,
        now_ms: int,
        attributes: Mapping[str, str] | None = None,
    ) -> Topic | None:
        """Create a topic on the first send, after the template `default_topic`; None when that is not allowed.

        The template must let others inherit; TBW102 does so only while `autoCreateTopicEnable` is set
        (TopicConfigManager.createTopicInSendMessageMethod).

        Raises:
            Refused: there is no room for another topic.
        """
        template = self._topics.get(default_topic)
        if template is None or not template.perm & names.PERM_INHERIT:
            return None
        if default_topic == names.TBW102 and not enabled:
            return None
        count = max(0, min(queues, template.write_queues))
        if count == 0:
            return None  # Apache makes a topic without queues here, which nobody can use
        self.make_room([name])
        topic = self.put(
            TopicConfig(
                topic_name=name,
                read_queue_nums=count,
                write_queue_nums=count,
                perm=template.perm & ~names.PERM_INHERIT,
                topic_filter_type=template.filter_type,
                topic_sys_flag=sys_flag,
                attributes=dict(attributes or {}),
            ),
            now_ms,
        )
        topic.auto_created_ms = now_ms
        return topic

    def make_room(self, wanted: Iterable[str], *, by_operator: bool = False) -> None:
        """Raises Refused when the new names among `wanted` do not fit."""
        new = {name for name in wanted if name not in self._topics}
        retry = {name for name in new if name.startswith(_GROUPS_OWN)}
        others = len(self._topics) - self._retry_count
        for bound, had, more in (
            (self.retry_bound, self._retry_count, retry),
            (self.bound, others, new - retry),
        ):
            if more:
                bound.check(
                    had + len(more) - 1,
                    ResponseCode.SYSTEM_ERROR if by_operator else ResponseCode.TOPIC_NOT_EXIST,
                    f"topic[{min(more)}] not exist and is not created",
                    known=by_operator,
                )

    def merge_auto_created(self, config: TopicConfig, now_ms: int) -> None:
        """Take over a topic that another broker's first message made: `config` is created when absent; one of
        our own that is as young gets the larger queue counts, so that all brokers end with the same, whoever
        asks whom first; any other stays."""
        topic = self._topics.get(config.topic_name)
        if topic is not None:
            if not topic.is_young(now_ms):
                return
            ours = topic.to_config()
            wanted = topic.to_config()
            wanted.read_queue_nums = max(ours.read_queue_nums, config.read_queue_nums)
            wanted.write_queue_nums = max(ours.write_queue_nums, config.write_queue_nums)
            if wanted == ours:
                return
            config = wanted
        self.make_room([config.topic_name])
        self.put(config, now_ms).auto_created_ms = now_ms

    def ensure(
        self,
        name: str,
        *,
        queues: int,
        perm: int,
        sys_flag: int = 0,
        order: bool = False,
        needed: bool = False,
        now_ms: int,
    ) -> Topic:
        """The topic, created when absent: retry and dead-letter topics (createTopicInSendMessageBackMethod).

        Raises:
            Refused: there is no room for another one, and what comes there is not `needed`: here already.
        """
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if not needed:
            self.make_room([name])
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=sys_flag,
            order=order,
        )
        return self.put(config, now_ms)

    def set_order(self, name: str, now_ms: int) -> None:
        """Make a topic one of order, unless it is; unknown names are skipped (updateOrderTopicConfig)."""
        topic = self._topics.get(name)
        if topic is not None and not topic.order:
            config = topic.to_config()
            config.order = True
            self.put(config, now_ms)

    def touch(self, now_ms: int) -> None:
        """Move the data version without a change of a topic: what is announced of all of them changed."""
        self.data_version = self.data_version.next(now_ms)

    def begin_epoch(self, epoch: int, now_ms: int) -> None:
        """The version says from now on in which epoch of the group the broker speaks (stateVersion)."""
        version = self.data_version
        if version.state_version != epoch:
            self.data_version = DataVersion(
                counter=version.counter + 1, state_version=epoch, timestamp=now_ms
            )

    def to_table(self) -> dict[str, TopicConfig]:
        """Name -> settings, as topics.json and registrations carry them."""
        return self._shown.copy()

    def _set(self, config: TopicConfig) -> Topic:
        topic = self._topics.get(config.topic_name)
        if topic is None:
            topic = self._topics[config.topic_name] = Topic(config)
            self._retry_count += topic.name.startswith(_GROUPS_OWN)
        else:
            topic.assign(config)
        self._shown[topic.name] = topic.shown
        self._judge(topic)
        return topic

    def _step(self, name: str, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        for follow in self.changed:
            follow(name)
