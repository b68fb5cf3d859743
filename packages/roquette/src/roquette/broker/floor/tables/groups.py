"""The consumer groups this broker knows by configuration. Pure: time comes in, who follows `changed` hears of changes.

The rules are those of Apache's SubscriptionGroupManager. Who is connected is in `consumers.py`.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec import structs

from roquette.base.bounds import Bound, unbounded
from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.broker.floor.tables.bounds import BoundSettings, BrokerBounds
from roquette.errors import Refused
from roquette.message import names
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX
from roquette.wire.bodies import (
    DataVersion,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
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
        """Return True when the group may not read the topic."""
        topics = self._forbidden.get(group)
        return topics is not None and bool(topics.get(topic, 0) & READ_FORBIDDEN)

    def readable(self, group: str, topic: str) -> bool:
        """Return True when the group may read the topic."""
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


# Attributes of topics and groups: which there are, how a request changes them, what is refused. Pure.
# Apache: AttributeParser, AttributeUtil, TopicAttributes, SubscriptionGroupAttributes; refusals carry their texts.


MESSAGE_TYPE = "message.type"
PRIORITY_FACTOR = (
    "priority.factor"  # of a group: in how many of 100 pops the highest priority comes first
)
COMMIT_BACKWARD = "roquette.commit.backward"  # of a group: what becomes of a smaller offset
ACCEPT, REFUSE = "ACCEPT", "REFUSE"
LONG_MAX = (1 << 63) - 1
_LONG = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: whether it may change after creation, and what says no to a value."""

    changeable: bool
    error: Callable[[str], str | None]


def _one_of(*values: str) -> Callable[[str], str | None]:
    def error(value: str) -> str | None:
        return None if value in values else f"value is not in set: [{', '.join(values)}]"

    return error


def _in_range(low: int, high: int) -> Callable[[str], str | None]:
    def error(value: str) -> str | None:
        if not _LONG.fullmatch(value) or not -LONG_MAX - 1 <= int(value) <= LONG_MAX:
            return f'For input string: "{value}"'
        return None if low <= int(value) <= high else f"value is not in range({low}, {high})"

    return error


def _boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "boolean attribute format is wrong."


def _any(value: str) -> str | None:
    return None


TOPIC_ATTRIBUTES: dict[str, Attribute] = {
    "queue.type": Attribute(False, _one_of("BatchCQ", "SimpleCQ")),
    "cleanup.policy": Attribute(False, _one_of("COMPACTION", "DELETE")),
    MESSAGE_TYPE: Attribute(
        True,
        _one_of(
            *("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"),
            *("PRIORITY", "LITE", "MIXED"),
        ),
    ),
    "reserve.time": Attribute(True, _in_range(-1, LONG_MAX)),
    "lite.topic.expiration": Attribute(True, _in_range(-1, 43_200)),
}
GROUP_ATTRIBUTES: dict[str, Attribute] = {
    PRIORITY_FACTOR: Attribute(True, _in_range(0, 100)),
    "lite.bind.topic": Attribute(True, _any),
    "lite.sub.model": Attribute(True, _one_of("Shared", "Exclusive")),
    "lite.sub.reset.offset.exclusive": Attribute(True, _boolean),
    "lite.sub.reset.offset.unsubscribe": Attribute(True, _boolean),
    "lite.sub.client.quota": Attribute(True, _in_range(-1, LONG_MAX)),
    "lite.sub.client.max.event.cnt": Attribute(True, _in_range(10, LONG_MAX)),
    "lite.sub.wildcard": Attribute(True, _any),
    COMMIT_BACKWARD: Attribute(True, _one_of(ACCEPT, REFUSE)),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """`+key=value,-key` as signed key -> value (AttributeParser.parseToMap).

    Raises:
        Refused: it is not of that form, or names a key twice.
    """
    changes: dict[str, str] = {}
    for part in (text or "").rstrip(",").split(",") if text else ():
        key, equals, value = part.partition("=")
        if equals:
            value = value.split("=")[0]
            if "+" not in key:
                raise _refused(f"add/alter attribute format is wrong: {key}")
            if not value:
                raise _refused(f"add/alter attribute format is wrong: {part}")
        elif "-" not in key:
            raise _refused(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise _refused(f"key duplication: {key}")
        changes[key] = value
    return changes


def altered(
    known: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
) -> dict[str, str]:
    """Return the attributes as they are after `changes` (AttributeUtil.alterCurrentAttributes).

    Args:
        known: the attributes there are.
        current: attributes before; None when topic or group is new.
        changes: `+key` -> value sets, `-key` removes.

    Raises:
        Refused: an unknown key, a value out of bounds, a change of what never changes.
    """
    before = dict(current or {})
    after = dict(before)
    seen: set[str] = set()
    for signed in changes:
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise _refused("kv string format wrong.")
        if key in seen:
            raise _refused(f"alter duplication key. key: {key}")
        seen.add(key)
        if current is None and sign != "+":
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        if sign == "-" and key not in before:
            raise _refused(f"attempt to delete a nonexistent key: {key}")
        if sign not in ("+", "-"):
            raise _refused(f"wrong format key: {key}")
    for signed, value in changes.items():
        sign, key = signed[0], signed[1:]
        attribute = known.get(key)
        if attribute is None:
            raise _refused(f"unsupported key: {key}")
        if current is not None and not attribute.changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del after[key]
            continue
        error = attribute.error(value)
        if error is not None:
            raise _refused(error)
        after[key] = value
    return after


def _refused(text: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, text)


# Commits that move a group back: logged, counted, and refused where the group's attribute says so.
# Apache accepts them and logs each (ConsumerOffsetManager.commitOffset). The group attribute `roquette.commit.backward=REFUSE` keeps the larger offset; resets by an operator still move back.


log = logging.getLogger("roquette.broker")


class BackwardCommitPolicy:
    """Judges smaller offsets.

    Attributes:
        accepted, refused: how many there were since the start.
        never: none is accepted: a replica, whose master says what is committed.
    """

    def __init__(self, groups: GroupTable, clock: Clock) -> None:
        self._groups = groups
        self._log = RateLimited(log, clock)
        self.never = False
        self.accepted = 0
        self.refused = 0

    def permits(
        self, group: str, topic: str, queue_id: int, offset: int, old: int, client: str
    ) -> bool:
        """Return True when `offset` may replace the larger `old`."""
        config = self._groups.known(group)
        allowed = not self.never and (
            config is None or (config.attributes or {}).get(COMMIT_BACKWARD) != REFUSE
        )
        if allowed:
            self.accepted += 1
        else:
            self.refused += 1
        self._log.warning(
            f"{topic}@{group}",
            "commit moves back group=%s topic=%s queue_id=%d offset=%d committed=%d client=%s %s",
            group,
            topic,
            queue_id,
            offset,
            old,
            client or "-",
            "accepted" if allowed else "refused",
        )
        return allowed


# The choice whether a group pulls or pops a topic, and who gets which queues when the broker assigns them. Pure.
# Apache: MessageRequestModeManager, QueryAssignmentProcessor, AllocateMessageQueueAveragely and ...ByCircle.


PULL = "PULL"
POP = "POP"
ANY_QUEUE = -1


class RequestModes:
    """Topic -> group -> mode; who sets a mode has checked that both exist.

    Attributes:
        changes: how often modes were set or forgotten.
    """

    def __init__(self, bound: Bound | None = None) -> None:
        self.bound = bound or unbounded()
        self._count = 0
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self.changes = 0

    def put(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set the mode of a topic and group; raises Refused when there is no room for one more."""
        if mode.consumer_group not in self._modes.get(mode.topic, ()):
            self.bound.check(self._count, ResponseCode.SYSTEM_ERROR, "the request mode is not set")
            self._count += 1
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.changes += 1

    def find(
        self, topic: str, group: str, *, default_mode: str, default_share: int
    ) -> SetMessageRequestModeRequestBody:
        """The mode in force; a retry topic without one is pulled."""
        found = self._modes.get(topic, {}).get(group)
        if found is not None:
            return found
        mode = PULL if topic.startswith(RETRY_PREFIX) else default_mode
        return SetMessageRequestModeRequestBody(
            topic=topic,
            consumer_group=group,
            mode=mode,
            pop_share_queue_num=default_share if mode == POP else 0,
        )

    def forget(self, *, topic: str | None = None, group: str | None = None) -> bool:
        """A topic or a group is gone; True when something was known of it."""
        before = self._count
        if topic is not None:
            self._count -= len(self._modes.pop(topic, ()))
        else:
            for groups in self._modes.values():
                self._count -= groups.pop(group or "", None) is not None
        self.changes += self._count != before
        return self._count != before

    def load(self, modes: Mapping[str, Mapping[str, SetMessageRequestModeRequestBody]]) -> None:
        """Take over what a file held."""
        self._modes = {topic: dict(groups) for topic, groups in modes.items()}
        self._count = sum(map(len, self._modes.values()))

    def to_wrapper(self) -> MessageRequestModeSerializeWrapper:
        """The shape of messageRequestMode.json and of GET_ALL_MESSAGE_REQUEST_MODE."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self._modes)


def average(queues: list[MessageQueue], clients: list[str], client: str) -> list[MessageQueue]:
    """AVG: neighbours, as even as possible. Empty for a client that is not a member."""
    if client not in clients:
        return []
    index, rest = clients.index(client), len(queues) % len(clients)
    extra = rest > 0 and index < rest
    size = max(1, len(queues) // len(clients) + (1 if extra and len(queues) > len(clients) else 0))
    start = index * size if extra else index * size + rest
    return queues[start : start + size]


def circle(queues: list[MessageQueue], clients: list[str], client: str) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: every n-th queue."""
    return queues[clients.index(client) :: len(clients)] if client in clients else []


STRATEGIES = {"AVG": average, "AVG_BY_CIRCLE": circle}


def assign(
    mode: SetMessageRequestModeRequestBody,
    strategy: str,
    queues: list[MessageQueue],
    clients: list[str],
    client: str,
) -> list[MessageQueue] | None:
    """The queues of one client of a group; None: it keeps what it has.

    Popping clients share: each gets every queue of a broker (queue id -1), or with `popShareQueueNum` its own queues
    and those of so many clients after it (allocate4Pop).
    """
    allocate = STRATEGIES.get(strategy)
    if allocate is None or not clients or not queues:
        return None
    if not client:
        return None  # "currentCID is empty"
    queues, clients = sorted(queues), sorted(clients)
    if mode.mode != POP:
        return allocate(queues, clients, client)
    share = mode.pop_share_queue_num
    if share <= 0 or share >= len(clients) - 1:
        return list(dict.fromkeys(MessageQueue(q.topic, q.broker_name, ANY_QUEUE) for q in queues))
    if client not in clients:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for step in range(share + 1):
        for queue in allocate(queues, clients, clients[(index + step) % len(clients)]):
            found[queue] = None
    return list(found)
