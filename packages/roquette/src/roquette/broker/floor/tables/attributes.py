"""Attributes of topics and groups: which there are, how a request changes them, what is refused. Pure.

Apache: AttributeParser, AttributeUtil, TopicAttributes, SubscriptionGroupAttributes; refusals carry their texts.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roquette.errors import Refused
from roquette.wire.codes import ResponseCode

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
    """What the attributes are after `changes` (AttributeUtil.alterCurrentAttributes).

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
