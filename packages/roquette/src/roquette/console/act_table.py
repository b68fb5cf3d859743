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
from roquette.admin.stored import purge, resend_letters, resend_message
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


def _seek_words(rows: Rows) -> str:
    again, never = _again_and_never(rows)
    return f"{again:,} again, {never:,} never"


def _again_and_never(rows: Sequence[Any]) -> tuple[int, int]:
    return -sum(min(row.delta, 0) for row in rows), sum(max(row.delta, 0) for row in rows)


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


ACTS: Final[dict[str, Act]] = {
    act.words.replace(" ", "-"): act
    for act in (
        Act(
            "topic create",
            topics.create_topic,
            "topics",
            ("topic", "queues", "perm", "order", "cluster", "broker", "attribute"),
            before=_topic_there,
            back=lambda typed, _: [("topic", "delete", typed["topic"])],
        ),
        Act(
            "topic resize",
            resize.resize_topic,
            "topics",
            ("topic", "queues", "read_queues", "wait", "force"),
            job=True,
            before=_topic_rows,
        ),
        Act(
            "topic delete",
            topics.delete_topic,
            "topics",
            ("topic",),
            loses="Its messages and every group's place in it are gone for good.",
            typed="topic",
            before=_topic_rows,
        ),
        Act(
            "msg resend",
            resend_message,
            "messages",
            ("message", "topic", "to"),
        ),
        Act(
            "group seek",
            seek.seek_group,
            "groups",
            ("group", "topic", "to", "like", "queue", "broker"),
            pins=_pinned,
            button=_seek_words,
            back=_seek_back,
        ),
        Act(
            "group delete",
            groups.delete_group,
            "groups",
            ("group", "keep_offsets"),
            loses="Where the group was in each queue is gone for good.",
            typed="group",
            before=_lag_rows,
        ),
        Act("dlq resend", resend_letters, "dead", ("group", "at", "to")),
        Act(
            "dlq purge",
            purge,
            "dead",
            ("group",),
            loses="The dead letters are gone for good.",
            typed="group",
        ),
        Act(
            "broker drain",
            drain.drain_broker,
            "brokers",
            ("name", "wait", "force"),
            job=True,
            before=_brokers,
            back=lambda typed, _: [("broker", "restore", typed["name"])],
        ),
        Act("broker restore", drain.restore, "brokers", ("name",), before=_brokers),
        Act(
            "broker promote",
            replication.promote,
            "brokers",
            ("group", "member", "accept_data_loss"),
            job=True,
            before=_brokers,
        ),
        Act(
            "broker config set",
            settings.change_brokers,
            "brokers",
            ("changes", "broker", "every"),
            before=_settings,
            back=_set_back,
        ),
        Act("namesrv config set", settings.change_name_servers, "names", ("changes",)),
        Act(
            "user delete",
            access.delete_user,
            "access",
            ("name",),
            loses="The user may do nothing any more.",
            typed="name",
        ),
        Act(
            "acl allow",
            access.allow,
            "access",
            ("user", "actions", "resources", "source", "replace"),
            back=lambda typed, _: [("acl", "rm", typed["user"])],
        ),
        Act(
            "acl deny",
            access.deny,
            "access",
            ("user", "actions", "resources", "source", "replace"),
            back=lambda typed, _: [("acl", "rm", typed["user"])],
        ),
        Act(
            "acl rm",
            access.remove,
            "access",
            ("user", "resource", "default"),
            loses="What the rules allowed is refused from now on.",
        ),
    )
}
"""By the words of the command, with hyphens."""
