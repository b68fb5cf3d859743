"""The consumer groups this broker knows by configuration. Pure: time comes in, who follows `changed` hears of changes.

The rules are those of Apache's SubscriptionGroupManager. Who is connected is in `consumers.py`.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import structs

from roquette.broker.floor.tables.bounds import BoundSettings, BrokerBounds
from roquette.message import names
from roquette.wire.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from roquette.wire.codes import ResponseCode

SYSTEM_GROUPS = (
    names.TOOLS_CONSUMER_GROUP,
    names.FILTERSRV_CONSUMER_GROUP,
    names.SELF_TEST_CONSUMER_GROUP,
    names.ONS_HTTP_PROXY_GROUP,
    names.ONSAPI_PULL_GROUP,
    names.ONSAPI_PERMISSION_GROUP,
    names.ONSAPI_OWNER_GROUP,
    names.TRANS_GROUP,
)
READ_FORBIDDEN = 1 << 2  # PermName.INDEX_PERM_READ


def _yes() -> bool:
    return True


class GroupTable:
    """Group configurations by name.

    Args:
        auto_create: whether an unknown group is created when first seen (autoCreateSubscriptionGroup).
        bounds: of the groups, and of the topics they may not read.

    Attributes:
        changed: called with the group's name after each change, empty: after one of all. The broker persists then.
    """

    def __init__(
        self,
        now_ms: int,
        auto_create: Callable[[], bool] = _yes,
        *,
        bounds: BrokerBounds | None = None,
    ) -> None:
        self._groups: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS
        }
        self._forbidden: dict[str, dict[str, int]] = {}
        self._forbidden_count = 0
        bounds = bounds or BrokerBounds(BoundSettings)
        self.bound, self._pairs = bounds.groups, bounds.forbidden
        self._auto_create = auto_create
        self.changed: list[Callable[[str], None]] = []
        self.data_version = DataVersion(counter=0, state_version=0, timestamp=now_ms)

    def find(self, name: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The group's configuration, created when that is allowed and the name is good.

        Raises:
            Refused: there is no room for another group.
        """
        group = self._groups.get(name)
        if group is None and self._auto_create() and names.group_error(name) is None:
            self.bound.check(
                len(self._groups),
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist and is not created",
            )
            group = self.put(SubscriptionGroupConfig(group_name=name), now_ms)
        return group

    def make_room(self, wanted: Iterable[str]) -> None:
        """An operator wants these groups: raises Refused when the new ones among them do not fit."""
        new = len({name for name in wanted if name not in self._groups})
        if new:
            self.bound.check(
                len(self._groups) + new - 1,
                ResponseCode.SYSTEM_ERROR,
                f"{new} new groups are not created",
                known=True,
            )

    def known(self, name: str) -> SubscriptionGroupConfig | None:
        """The group's configuration, or None; nothing is created."""
        return self._groups.get(name)

    def all(self) -> list[SubscriptionGroupConfig]:
        """Every group, in the order of creation."""
        return list(self._groups.values())

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> SubscriptionGroupConfig:
        """Create a group or replace its configuration."""
        self._groups[config.group_name] = config
        self._step(config.group_name, now_ms)
        return config

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget a group; False when there is none."""
        if self._groups.pop(name, None) is None:
            return False
        self._forbidden_count -= len(self._forbidden.pop(name, ()))
        self._step(name, now_ms)
        return True

    def forbidden(self, group: str, topic: str) -> bool:
        """Whether the group may not read the topic."""
        topics = self._forbidden.get(group)
        return topics is not None and bool(topics.get(topic, 0) & READ_FORBIDDEN)

    def readable(self, group: str, topic: str) -> bool:
        """Whether the group may read the topic."""
        return not self.forbidden(group, topic)

    def set_readable(self, group: str, topic: str, readable: bool, now_ms: int) -> None:
        """Allow or forbid a group to read a topic (SubscriptionGroupManager.updateForbidden).

        Apache forgets what the group may not read elsewhere when one topic is allowed again; here it stays.
        """
        bits = self._forbidden.get(group, {}).get(topic, 0)
        wanted = bits & ~READ_FORBIDDEN if readable else bits | READ_FORBIDDEN
        if wanted > 0 and not bits:
            what = f"group {group} is not forbidden to read topic {topic}"
            self._pairs.check(self._forbidden_count, ResponseCode.SYSTEM_ERROR, what)
        if wanted != bits:
            self.set_forbidden(group, topic, wanted, now_ms)

    def forget_topic(self, topic: str, now_ms: int) -> None:
        """A topic was deleted: so are the bans on reading it."""
        for group in [name for name, topics in self._forbidden.items() if topic in topics]:
            self.set_forbidden(group, topic, 0, now_ms)

    def disable_consume(self, name: str, now_ms: int) -> bool:
        """Take a group's right to consume (disableConsume); False when it had none."""
        config = self._groups.get(name)
        if config is None or not config.consume_enable:
            return False
        self.put(structs.replace(config, consume_enable=False), now_ms)
        return True

    def set_forbidden(self, group: str, topic: str, bits: int, now_ms: int) -> None:
        """Replace the forbidden bits of one group and topic; 0 clears."""
        topics = self._forbidden.setdefault(group, {})
        before = len(topics)
        if bits > 0:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        self._forbidden_count += len(topics) - before
        if not topics:
            del self._forbidden[group]
        self._step(group, now_ms)

    def load(
        self,
        groups: Iterable[SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]] | None,
        version: DataVersion | None,
    ) -> None:
        """Take over what a file held; no version step, nobody is notified."""
        for config in groups:
            self._groups[config.group_name] = config
        for group, topics in (forbidden or {}).items():
            self._forbidden[group] = dict(topics)
        self._forbidden_count = sum(map(len, self._forbidden.values()))
        if version is not None:
            self.data_version = version

    def replace(self, table: SubscriptionGroupWrapper) -> list[str]:
        """Become another broker's table; returns the groups that are gone."""
        before, self._groups = self._groups, dict(table.subscription_group_table)
        self._forbidden = {group: dict(topics) for group, topics in table.forbidden_table.items()}
        self._forbidden_count = sum(map(len, self._forbidden.values()))
        self.data_version = table.data_version
        for follow in self.changed:
            follow("")
        return [name for name in before if name not in self._groups]

    def to_wrapper(self) -> SubscriptionGroupWrapper:
        """The shape of subscriptionGroup.json and of GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(self._groups),
            forbidden_table={group: dict(topics) for group, topics in self._forbidden.items()},
            data_version=self.data_version,
        )

    def _step(self, name: str, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        for follow in self.changed:
            follow(name)
