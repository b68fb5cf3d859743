"""Command lines of Apache's mqadmin in the words of `roquette`. Pure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from roquette.base.javatypes import whole_number
from roquette.errors import ConfigError

_LONG: Final = {
    "namesrvAddr": "n",
    "topic": "t",
    "clusterName": "c",
    "brokerAddr": "b",
    "brokerName": "b",
    "readQueueNums": "r",
    "writeQueueNums": "w",
    "perm": "p",
    "body": "p",
    "order": "o",
    "offset": "o",
    "group": "g",
    "groupName": "g",
    "consumerGroup": "g",
    "producerGroup": "g",
    "timestamp": "s",
    "force": "f",
    "msgId": "i",
    "queueId": "i",
    "msgKey": "k",
    "keys": "k",
    "key": "k",
    "value": "v",
}

Flags = Mapping[str, str]


def need(flags: Flags, letter: str) -> str:
    """A flag's value; raises ConfigError when it is missing."""
    if letter not in flags:
        raise ConfigError(f"mqadmin: -{letter} is missing")
    return flags[letter]


def _some(flags: Flags, names: Mapping[str, str]) -> list[str]:
    return [
        word for letter, name in names.items() if letter in flags for word in (name, flags[letter])
    ]


def _reset(flags: Flags) -> list[str]:
    text = need(flags, "s")
    if text in ("now", "currentTimeMillis"):
        place = "@now"
    elif text == "-1":
        place = "last"
    elif whole_number(text, 2**63 - 1) >= 0:
        place = f"@{text}"
    else:
        try:
            place = "@" + datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").isoformat()
        except ValueError:
            raise ConfigError(
                f"mqadmin: -s {text[:40]} is not now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
            ) from None
    seek = ["group", "seek", need(flags, "g"), "--topic", need(flags, "t")]
    return [*seek, "--to", place, "--yes"]


def _set_brokers(flags: Flags) -> list[str]:
    change = f"{need(flags, 'k')}={need(flags, 'v')}"
    if "b" not in flags and "c" not in flags:
        raise ConfigError("mqadmin: -b or -c is missing")
    return ["broker", "config", "set", change, *_some(flags, {"b": "--broker", "c": "--cluster"})]


_COMMANDS: Final[dict[str, tuple[str, Callable[[Flags], list[str]]]]] = {
    "deleteTopic": (
        "tc",
        lambda f: ["topic", "delete", need(f, "t"), "--yes", *_some(f, {"c": "--cluster"})],
    ),
    "topicList": ("", lambda _: ["topic", "list", "--system"]),
    "topicRoute": ("t", lambda f: ["topic", "describe", need(f, "t")]),
    "topicStatus": ("t", lambda f: ["topic", "describe", need(f, "t")]),
    "clusterList": ("", lambda _: ["cluster"]),
    "consumerProgress": (
        "gt",
        lambda f: (
            ["group", "lag", f["g"], *_some(f, {"t": "--topic"})] if "g" in f else ["group", "list"]
        ),
    ),
    "consumerConnection": ("g", lambda f: ["client", "ls", "--group", need(f, "g")]),
    "producerConnection": ("gt", lambda f: ["client", "ls", "--group", need(f, "g")]),
    "resetOffsetByTime": ("gtsf", _reset),
    "queryMsgById": (
        "it",
        lambda f: ["msg", "get", need(f, "i"), *_some(f, {"t": "--topic"})],
    ),
    "queryMsgByUniqueKey": (
        "it",
        lambda f: ["msg", "get", need(f, "i"), "--topic", need(f, "t")],
    ),
    "queryMsgByKey": ("kt", lambda f: ["msg", "find", need(f, "k"), "--topic", need(f, "t")]),
    "queryMsgByOffset": (
        "tbio",
        lambda f: [
            *("msg", "get", f"{need(f, 'b')}:{need(f, 'i')}:{need(f, 'o')}"),
            *("--topic", need(f, "t")),
        ],
    ),
    "sendMessage": (
        "tpkc",
        lambda f: [
            *("produce", need(f, "t"), need(f, "p")),
            *_some(f, {"k": "--key", "c": "--tag"}),
        ],
    ),
    "updateBrokerConfig": ("bckv", _set_brokers),
    "getBrokerConfig": (
        "b",
        lambda f: ["broker", "config", "get", *_some(f, {"b": "--broker"})],
    ),
    "updateNamesrvConfig": (
        "kv",
        lambda f: ["namesrv", "config", "set", f"{need(f, 'k')}={need(f, 'v')}"],
    ),
    "getNamesrvConfig": ("", lambda _: ["namesrv", "config", "get"]),
    "deleteSubGroup": ("g", lambda f: ["group", "delete", need(f, "g"), "--yes"]),
}

TRANSLATED: Final = tuple(sorted(_COMMANDS))
"""The sub-commands for which there is one of ours."""


def flags_of(
    words: Sequence[str], known: str, own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Values by letter; raises ConfigError for a flag that is not known here, without a value or given twice.

    `own`: letters of long names that only this sub-command has.
    """
    long = {**_LONG, **(own or {})}
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name = word.lstrip("-")
        letter = name if len(name) == 1 else long.get(name, "")
        if not word.startswith("-") or not letter or letter not in known + "n":
            there = " ".join(f"-{each}" for each in "n" + known)
            raise ConfigError(f"mqadmin: {word[:40]} is not understood here; {there} are")
        if letter in found:
            raise ConfigError(f"mqadmin: -{letter} is given twice")
        value = next(rest, None)
        if value is None:
            raise ConfigError(f"mqadmin: -{letter} has no value")
        found[letter] = value
    return found


def translate(command: str, words: Sequence[str]) -> list[str]:
    """Our words for one of TRANSLATED and its flags. Raises ConfigError: they are not understood."""
    known, ours = _COMMANDS[command]
    flags = flags_of(words, known)
    return [*ours(flags), *(["-n", flags["n"]] if "n" in flags else [])]
