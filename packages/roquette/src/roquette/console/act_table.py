"""The acts there are: commands of `admin` that change something, and what is special about each."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from roquette.admin import (
    access,
    catalogue,
    drain,
    groups,
    replication,
    resize,
    seek,
    settings,
    topics,
)
from roquette.admin.explain import explain_message
from roquette.admin.stored import purge, resend_letters, resend_message
from roquette.base.options import counted
from roquette.console.acts import Act, Values
from roquette.console.ask import ViewAsk
from roquette.errors import ConfigError
from roquette.message.names import topic_error

Rows = Sequence[msgspec.Struct]


async def _topic_there(ask: ViewAsk, values: Values) -> Rows:
    """What there is of that name already."""
    if error := topic_error(values["topic"]):
        raise ConfigError(error)
    rows = await ask.cluster.run(catalogue.topic_rows([values["topic"]]))
    return [row for row in rows if row.brokers > 0]


async def _topic_rows(ask: ViewAsk, values: Values) -> Rows:
    return await ask.cluster.run(catalogue.topic_rows([values["topic"]]))


async def _lag_rows(ask: ViewAsk, values: Values) -> Rows:
    return await ask.cluster.run(groups.group_lag(values["group"]))


async def _brokers(ask: ViewAsk, values: Values) -> Rows:
    states = await ask.cluster.brokers()
    name = values.get("name") or values.get("group")
    return [state for state in states if state.broker == name]


async def _settings(ask: ViewAsk, values: Values) -> Rows:
    rows = await ask.cluster.run(settings.settings_of_brokers(None, broker=values.get("broker")))
    return [row for row in rows if row.key in values["changes"]]


def _pinned(values: Values, now_ms: int) -> Values:
    """A time that is counted from now stays the one that was shown."""
    if not values.get("to", "").startswith("@-"):
        return values
    return {**values, "to": f"@{seek.parse_place(values['to'], now_ms).number}"}


def _never(rows: Sequence[Any]) -> int:
    return sum(max(row.delta, 0) for row in rows)


def _seek_words(rows: Sequence[Any]) -> str:
    again = -sum(min(row.delta, 0) for row in rows)
    return f"{again:,} again, {_never(rows):,} never"


def _seek_loses(rows: Sequence[Any]) -> str:
    never = _never(rows)
    return f"The group never gets {counted(never, 'message')}." if never else ""


def _seek_back(typed: Values, rows: Sequence[Any]) -> list[tuple[str, ...]]:
    head = ("group", "seek", typed["group"], "--topic", typed["topic"])
    return [
        (*head, "--to", str(row.committed), "--queue", str(row.queue), "--broker", row.broker)
        for row in rows
        if row.committed >= 0
    ]


def _set_back(typed: Values, rows: Sequence[Any]) -> list[tuple[str, ...]]:
    where = ("--broker", typed["broker"]) if typed.get("broker") else ("--all",)
    old = {f"{row.key}={row.value}" for row in rows}
    return [("broker", "config", "set", *sorted(old), *where)] if old else []


_RULE: Final = "user actions resources source replace"


_TOPIC_GONE: Final = "Its messages and every group's place in it are gone for good."
_GROUP_GONE: Final = "Where the group was in each queue is gone for good."
_SEEK: Final = "group topic to like queue broker"
_CREATE: Final = "topic queues perm order cluster broker attribute"
_DRAIN: Final = "name wait force"
_RESTORE: Final = "broker restore {name}"
_GROUP: Final = "group keep_offsets"
_PROMOTE: Final = "group member accept_data_loss"
_SET: Final = "changes broker every"
_RESIZE: Final = "topic queues read_queues wait force"
_LETTERS_GONE: Final = "The dead letters are gone for good."
_USER_GONE: Final = "The user may do nothing any more."
_RULES_GONE: Final = "What the rules allowed is refused from now on."

ACTS: Final[dict[str, Act]] = {
    act.words.replace(" ", "-"): act
    for act in (
        Act(
            "topic create",
            topics.create_topic,
            _CREATE,
            before=_topic_there,
            back="topic delete {topic}",
        ),
        Act("topic resize", resize.resize_topic, _RESIZE, job=True, before=_topic_rows),
        Act("topic delete", topics.delete_topic, "topic", _TOPIC_GONE, "topic", before=_topic_rows),
        Act("explain", explain_message, "message", job=True),
        Act("msg resend", resend_message, "message topic to"),
        Act(
            "group seek",
            seek.seek_group,
            _SEEK,
            _seek_loses,
            pins=_pinned,
            button=_seek_words,
            back=_seek_back,
        ),
        Act("group delete", groups.delete_group, _GROUP, _GROUP_GONE, "group", before=_lag_rows),
        Act("dlq resend", resend_letters, "group at to"),
        Act("dlq purge", purge, "group", _LETTERS_GONE, "group"),
        Act("broker drain", drain.drain_broker, _DRAIN, job=True, before=_brokers, back=_RESTORE),
        Act("broker restore", drain.restore, "name", before=_brokers),
        Act("broker promote", replication.promote, _PROMOTE, job=True, before=_brokers),
        Act("broker config set", settings.change_brokers, _SET, before=_settings, back=_set_back),
        Act("namesrv config set", settings.change_name_servers, "changes"),
        Act("user delete", access.delete_user, "name", _USER_GONE, "name"),
        Act("acl allow", access.allow, _RULE, back="acl rm {user}"),
        Act("acl deny", access.deny, _RULE, back="acl rm {user}"),
        Act("acl rm", access.remove, "user resource default", _RULES_GONE),
    )
}
"""By the words of the command, with hyphens."""
