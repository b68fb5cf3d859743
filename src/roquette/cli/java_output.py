"""Sub-commands of Apache's mqadmin that `roquette mqadmin` does itself, with Apache's output: their flags. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from roquette.base.javatypes import whole_number
from roquette.cli.java_flags import Flags, need
from roquette.errors import ConfigError

if TYPE_CHECKING:
    from roquette.client.operations import Operation

Say = Callable[[str], None]
Run = Callable[[Flags, Sequence[str], Say], "Operation[None]"]


def _place(flags: Flags) -> dict[str, str | None]:
    """Where: -b goes before -c, as there."""
    if "b" not in flags and "c" not in flags:
        raise ConfigError("mqadmin: -b or -c is missing")
    broker = flags.get("b")
    if broker is not None and ":" not in broker:
        raise ConfigError(f"mqadmin: -b {broker[:40]} is not an address, host:port")
    return {"broker": broker, "cluster": None if broker else flags["c"]}


def _whole(flags: Flags, letter: str, usual: int) -> int:
    text = flags.get(letter, str(usual)).strip()
    if whole_number(text.removeprefix("-"), 2**63 - 1) < 0:
        raise ConfigError(f"mqadmin: -{letter} {text[:40]} is not a number")
    return int(text)


def _true(flags: Flags, letter: str, usual: bool = False) -> bool:
    return flags[letter].strip().lower() == "true" if letter in flags else usual


def _attributes(text: str) -> dict[str, str]:
    """`+a=b,-c` as AttributeParser.parseToMap reads it: the signs belong to the names."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.strip().partition("=")
        if not name.startswith("+" if equals else "-") or len(name) < 2 or name in found:
            raise ConfigError(f"mqadmin: attribute {part[:40]} is not +name=value or -name")
        found[name] = value
    return found


def _update_topic(flags: Flags, name_servers: Sequence[str], say: Say) -> "Operation[None]":
    from roquette.admin.java_tools import update_topic
    from roquette.message.names import topic_error

    name = need(flags, "t")
    error = topic_error(name)
    if error is not None:
        raise ConfigError(error)
    config = {
        "topicName": name,
        "readQueueNums": _whole(flags, "r", 8),
        "writeQueueNums": _whole(flags, "w", 8),
        "perm": _whole(flags, "p", 6),
        "topicSysFlag": _true(flags, "u") | _true(flags, "s") << 1,
        "order": _true(flags, "o"),
        "attributes": _attributes(flags.get("a", "")),
    }
    return update_topic(name_servers, config, say, **_place(flags))


def _update_group(flags: Flags, name_servers: Sequence[str], say: Say) -> "Operation[None]":
    from roquette.admin.java_tools import update_group

    config: dict[str, object] = {
        "groupName": need(flags, "g"),
        "consumeEnable": _true(flags, "s", True),
        "consumeFromMinEnable": _true(flags, "m"),
        "consumeBroadcastEnable": _true(flags, "d"),
        "consumeMessageOrderly": _true(flags, "o"),
        "retryQueueNums": _whole(flags, "q", 1),
        "retryMaxTimes": _whole(flags, "r", 16),
        "brokerId": _whole(flags, "i", 0),
        "whichBrokerWhenConsumeSlowly": _whole(flags, "w", 1),
        "notifyConsumerIdsChangedEnable": _true(flags, "a", True),
        "attributes": _attributes(flags.get("A", "")),
    }
    if "p" in flags:
        try:
            config["groupRetryPolicy"] = json.loads(flags["p"])
        except ValueError as error:
            raise ConfigError(f"mqadmin: -p is not a retry policy in JSON: {error}") from None
    return update_group(config, say, **_place(flags))


def _broker_status(flags: Flags, name_servers: Sequence[str], say: Say) -> "Operation[None]":
    from roquette.admin.java_tools import broker_status

    return broker_status(say, **_place(flags))


def _wipe(flags: Flags, name_servers: Sequence[str], say: Say) -> "Operation[None]":
    from roquette.admin.java_tools import set_write_permission

    return set_write_permission(name_servers, need(flags, "b"), say, writable=False)


def _add(flags: Flags, name_servers: Sequence[str], say: Say) -> "Operation[None]":
    from roquette.admin.java_tools import set_write_permission

    return set_write_permission(name_servers, need(flags, "b"), say, writable=True)


_TOPIC_LONG: Final = {"attributes": "a", "unit": "u", "hasUnitSub": "s"}
_GROUP_LONG: Final = {
    "consumeEnable": "s",
    "consumeFromMinEnable": "m",
    "consumeBroadcastEnable": "d",
    "consumeMessageOrderly": "o",
    "retryQueueNums": "q",
    "retryMaxTimes": "r",
    "groupRetryPolicy": "p",
    "brokerId": "i",
    "whichBrokerWhenConsumeSlowly": "w",
    "notifyConsumerIdsChanged": "a",
    "attributes": "A",  # has no letter there
}

DIRECT: Final[Mapping[str, tuple[str, Mapping[str, str], Run]]] = {
    "updateTopic": ("tcbrwpoaus", _TOPIC_LONG, _update_topic),
    "updateSubGroup": ("gcbsmdoqrpiwaA", _GROUP_LONG, _update_group),
    "brokerStatus": ("bc", {}, _broker_status),
    "wipeWritePerm": ("b", {}, _wipe),
    "addWritePerm": ("b", {}, _add),
}
"""Sub-command -> its letters, long names that are its own, and what it does."""
