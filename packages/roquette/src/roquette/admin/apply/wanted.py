"""What a file wants of a cluster: its YAML read into values, every word checked, with the line of what is wrong.

topics:
  orders:
    queues: 8
    perm: RW
    order: false
  payments:
    write_queues: 4
    read_queues: 8
    cluster: DefaultCluster
groups:
  billing:
    retries: 16
    consumeTimeoutMinute: 30
    attributes: {priority.factor: 50}
brokers:
  "*":
    fileReservedTime: 72
"""

import json
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from roquette.base.options import did_you_mean
from roquette.base.yaml_text import Mapping, Scalar, fault, read_yaml
from roquette.errors import ConfigError
from roquette.message.names import PERM_READ, PERM_WRITE, client_group_error, topic_error
from roquette.wire.bodies.tables import GroupRetryPolicy, SubscriptionGroupConfig

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
    """What a file wants. Blocks.

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

    def mapping(self, value: Any, what: str, known: set[str] | None = None) -> Mapping:
        if value is None:
            return Mapping()
        if not isinstance(value, Mapping):
            raise fault(
                self._where, getattr(value, "line", 1), f"{what} must be a mapping, name: value"
            )
        for key in value:
            if known is not None and key not in known:
                words = f"{what} has no {key}; known are {', '.join(sorted(known))}"
                raise fault(self._where, getattr(key, "line", value.line), words)
        return value

    def items(self, parts: Mapping, name: str) -> list[tuple[str, Any]]:
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

    def _number(self, words: Mapping, name: str, least: int, most: int) -> int | None:
        def read(text: str) -> int | None:
            digits = text.removeprefix("-")
            number = int(text) if digits.isdecimal() and len(digits) < 10 else None
            return number if number is not None and least <= number <= most else None

        return self._value(words, name, read, f"a number from {least} to {most}")

    def _choice(self, words: Mapping, name: str, choices: dict[str, T]) -> T | None:
        def read(text: str) -> T | None:
            return choices.get(text, choices.get(text.upper(), choices.get(text.lower())))

        return self._value(words, name, read, f"one of {', '.join(choices)}")

    def _value(
        self, words: Mapping, name: str, read: Callable[[str], T | None], form: str
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
