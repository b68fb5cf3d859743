"""Clusters as files: the topics, groups, users, rules and settings that are wanted, the differences from what is there, and the steps that end them."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec

from roquette.admin.catalogue import OWN, kind_of
from roquette.admin.cluster import cluster_info, masters_of
from roquette.admin.groups import group_table
from roquette.base.options import did_you_mean
from roquette.base.yaml_text import Scalar, YamlMapping, fault, read_yaml
from roquette.client.calls import Ask, Call, Operation, ask_all
from roquette.client.operator_calls import (
    broker_settings,
    change_broker_settings,
    group_configs,
    put_group,
    put_topic,
    topic_configs,
)
from roquette.errors import ConfigError
from roquette.message.names import (
    PERM_READ,
    PERM_WRITE,
    client_group_error,
    is_users_group,
    perm_text,
    reply_topic,
    topic_error,
)
from roquette.wire.bodies.tables import GroupRetryPolicy, SubscriptionGroupConfig, TopicConfig

# Wants of a cluster's file: its YAML read into values, every word checked, with the line of what is wrong.
# topics: orders: queues: 8 perm: RW order: false payments: write_queues: 4 read_queues: 8 cluster: DefaultCluster groups: billing: retries: 16 consumeTimeoutMinute: 30 attributes: {priority.factor: 50} brokers: "*": fileReservedTime: 72


T = TypeVar("T")

EVERY_BROKER: Final = "*"
_PERMS: Final = {"RW": PERM_READ | PERM_WRITE, "R": PERM_READ, "W": PERM_WRITE, "NONE": 0}
_MOST_QUEUES: Final = 65_536


class WantedTopic(msgspec.Struct, frozen=True):
    """A topic on every master of a cluster, or of all; None: as it is, or the default of a new one.

    Attributes:
        perm: 2 write, 4 read, 6 both, 0 neither.
    """

    topic: str
    cluster: str | None = None
    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    order: bool | None = None


class WantedGroup(msgspec.Struct, frozen=True):
    """A consumer group on every master; what is not named is as it is, or the default of a new one.

    Attributes:
        settings: fields of SubscriptionGroupConfig. `attributes`: "" takes one away.
    """

    group: str
    settings: dict[str, Any] = {}
    attributes: dict[str, str] = {}


class WantedCluster(msgspec.Struct, frozen=True):
    """The whole file. `settings`: by broker name, or "*" for all, under Apache's keys."""

    topics: list[WantedTopic]
    groups: list[WantedGroup]
    settings: dict[str, dict[str, str]]

    def brokers(self) -> list[str]:
        """Names of the brokers that the file names."""
        return [name for name in self.settings if name != EVERY_BROKER]


def read_wanted(data: bytes, where: str) -> WantedCluster:
    """Read what a file wants. Blocks.

    Args:
        where: the file, for errors.

    Raises:
        ConfigError: it is not YAML, or has a word or a value that is not known, with its line.
    """
    root = read_yaml(data, where)
    found = _Reader(where)
    parts = found.mapping(root, "the file", {"topics", "groups", "brokers"})
    return WantedCluster(
        [found.topic(name, words) for name, words in found.items(parts, "topics")],
        [found.group(name, words) for name, words in found.items(parts, "groups")],
        {
            name: found.settings(words, f"broker {name}")
            for name, words in found.items(parts, "brokers")
        },
    )


def group_setting(word: str, value: object) -> tuple[str, Any]:
    """A field of SubscriptionGroupConfig, of Apache's name for it or ours, and its value, of a text or a mapping.

    Raises:
        ConfigError: there is no such setting, or it cannot have this value.
    """
    name = _SHORT.get(word, word)
    if name not in _SETTINGS:
        known = sorted({*_SHORT, *_SETTINGS})
        there = did_you_mean(word, known)
        raise ConfigError(f"a group has no setting {word}{there}; known are {', '.join(known)}")
    field, kind = _SETTINGS[name]
    try:
        if kind is GroupRetryPolicy:  # a mapping of the file's remembers its lines
            value = msgspec.json.decode(value if isinstance(value, str) else json.dumps(value))
        found = msgspec.convert(value, kind, strict=False)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{word} is {str(value)[:80]}: {error}") from None
    if isinstance(value, dict) and not (_POLICY.issuperset(value) and found.type in _POLICIES):
        raise ConfigError(
            f"{word} is {str(value)[:80]}: it has {', '.join(sorted(_POLICY))}; type is {' or '.join(_POLICIES)}"
        )
    return field, found


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where

    def mapping(self, value: Any, what: str, known: set[str] | None = None) -> YamlMapping:
        if value is None:
            return YamlMapping()
        if not isinstance(value, YamlMapping):
            raise fault(
                self._where, getattr(value, "line", 1), f"{what} must be a mapping, name: value"
            )
        for key in value:
            if known is not None and key not in known:
                words = f"{what} has no {key}; known are {', '.join(sorted(known))}"
                raise fault(self._where, getattr(key, "line", value.line), words)
        return value

    def items(self, parts: YamlMapping, name: str) -> list[tuple[str, Any]]:
        return list(self.mapping(parts.get(name), name).items())

    def topic(self, name: str, value: Any) -> WantedTopic:
        words = self.mapping(
            value,
            f"topic {name}",
            {"queues", "read_queues", "write_queues", "perm", "order", "cluster"},
        )
        if error := topic_error(name):
            raise fault(self._where, getattr(value, "line", 1), error)
        both = self._number(words, "queues", 1, _MOST_QUEUES)
        if both is not None and ("read_queues" in words or "write_queues" in words):
            raise fault(
                self._where,
                words.line,
                f"topic {name} has queues, or read_queues and write_queues, not both",
            )
        cluster = words.get("cluster")
        return WantedTopic(
            str(name),
            None if cluster is None else str(cluster),
            both or self._number(words, "read_queues", 1, _MOST_QUEUES),
            both or self._number(words, "write_queues", 0, _MOST_QUEUES),
            self._choice(words, "perm", _PERMS),
            self._choice(words, "order", _BOOLEANS),
        )

    def group(self, name: str, value: Any) -> WantedGroup:
        words = self.mapping(value, f"group {name}")
        line = getattr(value, "line", 1)
        if error := client_group_error(name):
            raise fault(self._where, line, error)
        named = self.settings(words.pop("attributes", None), f"attributes of group {name}")
        found = WantedGroup(str(name), {}, named)
        for word, text in words.items():
            line = getattr(text, "line", words.line)
            try:
                field, setting = group_setting(word, text)
            except ConfigError as error:
                raise fault(self._where, line, str(error)) from None
            if field in found.settings:
                raise fault(self._where, line, f"group {name} has {word} under two names")
            found.settings[field] = setting
        return found

    def settings(self, value: Any, what: str) -> dict[str, str]:
        words = self.mapping(value, what)
        for key, text in words.items():
            if not isinstance(text, Scalar):
                raise fault(self._where, words.line, f"{key} of {what} must be one value")
        return {str(key): str(text) for key, text in words.items()}

    def _number(self, words: YamlMapping, name: str, least: int, most: int) -> int | None:
        def read(text: str) -> int | None:
            digits = text.removeprefix("-")
            number = int(text) if digits.isdecimal() and len(digits) < 10 else None
            return number if number is not None and least <= number <= most else None

        return self._value(words, name, read, f"a number from {least} to {most}")

    def _choice(self, words: YamlMapping, name: str, choices: dict[str, T]) -> T | None:
        def read(text: str) -> T | None:
            return choices.get(text, choices.get(text.upper(), choices.get(text.lower())))

        return self._value(words, name, read, f"one of {', '.join(choices)}")

    def _value(
        self, words: YamlMapping, name: str, read: Callable[[str], T | None], form: str
    ) -> T | None:
        text = words.get(name)
        if text is None:
            return None
        found = read(str(text)) if isinstance(text, Scalar) else None
        if found is None:
            raise fault(
                self._where, getattr(text, "line", words.line), f"{name} is {text}, not {form}"
            )
        return found


_BOOLEANS: Final = {"true": True, "false": False}
_SHORT: Final = {
    "retries": "retryMaxTimes",
    "retry_queues": "retryQueueNums",
    "consume": "consumeEnable",
    "broadcast": "consumeBroadcastEnable",
}
_POLICIES: Final = ("CUSTOMIZED", "EXPONENTIAL")
_POLICY: Final = {field.encode_name for field in msgspec.structs.fields(GroupRetryPolicy)}
_SETTINGS: Final[dict[str, tuple[str, Any]]] = {
    field.encode_name: (field.name, field.type)
    for field in msgspec.structs.fields(SubscriptionGroupConfig)
    if field.name not in ("group_name", "subscription_data_set", "attributes")
} | {
    "retryMaxTimes": ("retry_max_times", Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)]),
    "retryQueueNums": ("retry_queue_nums", Annotated[int, msgspec.Meta(ge=0, le=_MOST_QUEUES)]),
}


# Steps from what is there to what a file wants; each says what it does to messages. Pure.


_NEW_QUEUES: Final = 8


class Effect(StrEnum):
    """Effect of a step on messages and clients.

    Attributes:
        SAFE: nothing is lost, nobody is refused.
        REFUSES: senders or consumers are refused from then on.
        LOSSY: messages would be out of reach; such a step is never taken, and `how` says the way without loss.
        DRIFT: it is in the cluster and not in the file; nothing is done.
    """

    SAFE = "safe"
    REFUSES = "refuses"
    LOSSY = "lossy"
    DRIFT = "drift"


class There(msgspec.Struct, frozen=True):
    """State of one master: what it has.

    Attributes:
        settings: under their keys.
    """

    broker: str
    cluster: str
    address: str
    topics: dict[str, TopicConfig]
    groups: dict[str, SubscriptionGroupConfig]
    settings: dict[str, str]


class PlanStep(msgspec.Struct, frozen=True):
    """One difference on one broker, and what is done about it.

    Attributes:
        kind: topic, group or setting. `now`: "" when it is not there.
        effect: see Effect. `how`: what to do instead, or what it means.
        topic, group, setting: what the broker is told; None of all for what is not done. `attributes`: the group's changes.
    """

    kind: str
    subject: str
    broker: str
    address: str
    now: str
    wanted: str
    effect: Effect
    how: str = ""
    topic: TopicConfig | None = None
    group: SubscriptionGroupConfig | None = None
    attributes: dict[str, str] = {}
    setting: tuple[str, str] | None = None


def plan(wanted: WantedCluster, there: list[There]) -> list[PlanStep]:
    """The steps from what is there to what is wanted, topics first; [] when they are the same but for drift."""
    steps: list[PlanStep] = []
    for place in there:
        for topic in wanted.topics:
            if topic.cluster in (None, place.cluster):
                steps += _topic(topic, place)
        for group in wanted.groups:
            steps += _group(group, place)
        steps += _settings(wanted.settings, place)
    return [*steps, *_drift(wanted, there)]


def unknown(wanted: WantedCluster, there: list[There]) -> list[str]:
    """Names of clusters and brokers in the file that are not there."""
    clusters = {topic.cluster for topic in wanted.topics if topic.cluster is not None}
    missing = [f"cluster {name}" for name in sorted(clusters - {place.cluster for place in there})]
    brokers = set(wanted.brokers()) - {place.broker for place in there}
    return missing + [f"broker {name}" for name in sorted(brokers)]


def _topic(wanted: WantedTopic, place: There) -> Iterator[PlanStep]:
    now = place.topics.get(wanted.topic)
    before = now or TopicConfig(wanted.topic, _NEW_QUEUES, _NEW_QUEUES, PERM_READ | PERM_WRITE)
    after = msgspec.structs.replace(
        before,
        read_queue_nums=_or(wanted.read_queues, before.read_queue_nums),
        write_queue_nums=_or(wanted.write_queues, before.write_queue_nums),
        perm=_or(wanted.perm, before.perm),
        order=_or(wanted.order, before.order),
    )
    if now == after:
        return
    effect, how = Effect.SAFE, ""
    if after.read_queue_nums < after.write_queue_nums:
        effect = Effect.LOSSY
        how = f"what goes to queue {after.read_queue_nums} and on would be read by nobody: read_queues must not be less"
    elif now and after.read_queue_nums < now.read_queue_nums:
        effect = Effect.LOSSY
        how = f"roquette topic resize {wanted.topic} --queues {after.read_queue_nums} --wait"
    elif now and (gone := now.perm & ~after.perm):
        effect = Effect.REFUSES
        how = " and ".join(
            words
            for bit, words in (
                (PERM_WRITE, "senders are refused"),
                (PERM_READ, "consumers get nothing"),
            )
            if gone & bit
        )
    told = None if effect is Effect.LOSSY else after
    words = (_topic_words(now) if now else "", _topic_words(after))
    yield PlanStep(
        "topic", wanted.topic, place.broker, place.address, *words, effect, how, topic=told
    )


def _topic_words(config: TopicConfig) -> str:
    order = " order" if config.order else ""
    return f"{config.write_queue_nums} write {config.read_queue_nums} read {perm_text(config.perm)}{order}"


def _group(wanted: WantedGroup, place: There) -> Iterator[PlanStep]:
    now = place.groups.get(wanted.group)
    before = now or SubscriptionGroupConfig(group_name=wanted.group)
    named = {**before.attributes, **wanted.attributes}
    named = {name: value for name, value in named.items() if value}
    after = msgspec.structs.replace(before, attributes=named, **wanted.settings)
    if now == after:
        return
    effect, how = Effect.SAFE, ""
    if now and now.consume_enable and not after.consume_enable:
        effect, how = Effect.REFUSES, "its members are refused"
    elif now and now.consume_broadcast_enable and not after.consume_broadcast_enable:
        effect, how = Effect.REFUSES, "its members that broadcast are refused"
    elif now and after.retry_max_times < now.retry_max_times:
        how = "messages that have failed more often become dead letters at their next failure"
    words = (_group_words(now, after) if now else "", _group_words(after, before))
    changes = {
        name: value
        for name, value in wanted.attributes.items()
        if value != before.attributes.get(name, "")
    }
    yield PlanStep(
        *("group", wanted.group, place.broker, place.address, *words, effect, how),
        group=after,
        attributes=changes,
    )


def _group_words(config: SubscriptionGroupConfig, other: SubscriptionGroupConfig) -> str:
    """Its settings and attributes that another has not, or has otherwise, under Apache's names."""
    mine, others = group_table(config), group_table(other)
    rows = {name: mine.get(name, "") for name in {**others, **mine}}
    changed = [f"{name}={value}" for name, value in rows.items() if value != others.get(name, "")]
    return " ".join(changed) or "as a new one"


def _settings(wanted: Mapping[str, Mapping[str, str]], place: There) -> Iterator[PlanStep]:
    for key, value in {**wanted.get(EVERY_BROKER, {}), **wanted.get(place.broker, {})}.items():
        now = place.settings.get(key)
        if now == value:
            continue
        how = "" if now is not None else "the broker shows no such setting, and may refuse it"
        yield PlanStep(
            "setting",
            key,
            place.broker,
            place.address,
            now or "",
            value,
            Effect.SAFE,
            how,
            setting=(key, value),
        )


def _drift(wanted: WantedCluster, there: list[There]) -> Iterator[PlanStep]:
    topics, groups = {each.topic for each in wanted.topics}, {each.group for each in wanted.groups}
    clusters = {place.cluster for place in there}
    own = {*clusters, *map(reply_topic, clusters), *(place.broker for place in there)}
    for place in there:
        for name, topic in sorted(place.topics.items()):
            if wanted.topics and name not in topics and kind_of(name, own) == OWN:
                yield _left(place, "topic", name, _topic_words(topic))
        for name, group in sorted(place.groups.items()):
            if wanted.groups and name not in groups and is_users_group(name):
                new = SubscriptionGroupConfig(group_name=name)
                yield _left(place, "group", name, _group_words(group, new))


def _left(place: There, kind: str, name: str, now: str) -> PlanStep:
    how = f"not in the file; roquette {kind} delete {name} removes it"
    return PlanStep(kind, name, place.broker, place.address, now, "", Effect.DRIFT, how)


def _or(value: T | None, before: T) -> T:
    return before if value is None else value


# Seeing what every master has, and taking the steps of a plan.


class StepRow(msgspec.Struct, frozen=True):
    """A step as it is shown. `error`: why the broker did not do it."""

    kind: str
    subject: str
    broker: str
    now: str
    wanted: str
    effect: str
    how: str
    error: str = ""


def what_is_there(wanted: WantedCluster) -> Operation[list[There]]:
    """Topics, groups and settings of every master, those of them that are wanted somehow.

    Raises:
        ClientError: a master does not answer: a plan without it would be half of one.
        ConfigError: no master is known.
    """
    masters = yield from masters_of()
    known = (yield from cluster_info()).cluster_addr_table
    clusters = {name: cluster for cluster, names in known.items() for name in names}
    addresses = [address for _, address in masters]
    topics = yield from _asked(wanted.topics, addresses, topic_configs())
    groups = yield from _asked(wanted.groups, addresses, group_configs())
    settings = yield from _asked(wanted.settings, addresses, broker_settings())
    return [
        There(name, clusters.get(name, ""), address, topics[i], groups[i], settings[i])
        for i, (name, address) in enumerate(masters)
    ]


def _asked(
    wanted: Collection[object], addresses: list[str], call: Call[dict[str, T]]
) -> Operation[list[dict[str, T]]]:
    if not wanted:
        return [{} for _ in addresses]
    answers = yield from ask_all((address, call) for address in addresses)
    return [answer.get() for answer in answers]


def carry_out(steps: Sequence[PlanStep], *, refuses: bool) -> Operation[list[StepRow]]:
    """Take the safe steps, and with `refuses` those that refuse senders or consumers; what was taken.

    Settings come first, so that topics are made under them. A broker that does not do one does the others.
    """
    effects = {Effect.SAFE, Effect.REFUSES} if refuses else {Effect.SAFE}
    order = {"setting": 0, "topic": 1, "group": 2}
    taken = [step for step in steps if step.effect in effects]
    taken.sort(key=lambda step: order[step.kind])
    answers = yield [Ask(step.address, _call(step)) for step in taken]
    return [
        msgspec.structs.replace(row, error=answer.reason)
        for row, answer in zip(rows(taken), answers, strict=True)
    ]


def _call(step: PlanStep) -> Call[None]:
    if step.topic is not None:
        return put_topic(step.topic)
    if step.group is not None:
        return put_group(step.group, attributes=step.attributes)
    assert step.setting is not None
    return change_broker_settings(dict([step.setting]))


def rows(steps: Iterable[PlanStep]) -> list[StepRow]:
    """Steps as they are shown."""
    return [
        StepRow(
            step.kind, step.subject, step.broker, step.now, step.wanted, str(step.effect), step.how
        )
        for step in steps
    ]
