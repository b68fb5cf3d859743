"""Members of consumer groups that are online: what each does, which queues are its own, where it is in its code."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from roquette.admin.cluster import masters_of, require_one
from roquette.admin.command import Flag, OperationReport, Printed, command
from roquette.client import calls
from roquette.client.calls import Operation, ask_all
from roquette.client.operator_calls import running_info
from roquette.errors import BrokerError, ConfigError
from roquette.message.message import MessageQueue
from roquette.message.names import pipeline_of_group
from roquette.wire.bodies import ConsumerRunningInfo
from roquette.wire.codes import version_text

MOST_WAYS: Final = 3
"""Brokers by which a member is asked about itself, one after the other until it answers."""

Place = tuple[str, str, str]
"""A group at a broker: group, broker, address."""


class MemberRow(msgspec.Struct, frozen=True):
    """A member of a group: how many queues it has, and how many messages wait in it; -1: it does not tell, `error`: why."""

    client: str
    address: str
    language: str
    version: str
    queues: int
    messages: int
    error: str = ""

    NARROW: ClassVar = ("version", "language")


class OnlineGroup(NamedTuple):
    """Members of a group, by client id.

    Attributes:
        members: those that were asked. more: how many were not. running: what each of them tells of itself.
        model: CLUSTERING, BROADCASTING, "" when nobody is online.
        filters: by topic, each that a broker, or a member, knows of it: more than one is a conflict.
    """

    members: list[MemberRow]
    more: int
    running: dict[str, ConsumerRunningInfo]
    model: str
    filters: dict[str, set[str]]

    @property
    def owners(self) -> dict[MessageQueue, str]:
        """The member that says that a queue is its own."""
        told = self.running.items()
        return {q: client for client, now in told for q in (*now.mq_table, *now.mq_pop_table)}


class StacksRow(msgspec.Struct, frozen=True):
    """Row of a member's threads or handlers: where they are; `error`: why it does not tell."""

    client: str
    stacks: str
    error: str = ""


def online_of(
    places: Sequence[Place],
    *,
    each: int | None = None,
    most: int | None = None,
    client: str | None = None,
    stacks: bool = False,
) -> Operation[dict[str, OnlineGroup]]:
    """Who is online of groups: a request of each place, and one of each member, or more where it does not answer.

    Args:
        each: members that are asked of each group, the first by name. most: of all groups. None: all.
        client: only this member is asked. stacks: they tell where they are in their code, too.

    Raises:
        ClientError: no broker answers.
    """
    told = yield from ask_all(
        (address, calls.group_connections(name)) for name, _, address in places
    )
    if not any(isinstance(answer.error, BrokerError) for answer in told):
        require_one(told)  # a refusal is an answer: no member is online there
    model = dict.fromkeys((name for name, _, _ in places), "")
    filters: dict[str, dict[str, set[str]]] = {name: {} for name in model}
    known: dict[tuple[str, str], tuple[str, str, str]] = {}
    ways: dict[tuple[str, str], list[str]] = {}
    for (name, _, address), answer in zip(places, told, strict=True):
        if (online := answer.value) is None:
            continue
        model[name] = model[name] or online.message_model or ""
        for data in online.subscription_table.values():
            filters[name].setdefault(data.topic, set()).add(data.sub_string or "*")
        for one in online.connection_set:
            words = (one.client_addr, one.language or "", version_text(one.version))
            known.setdefault((name, one.client_id), words)
            ways.setdefault((name, one.client_id), []).append(address)
    names = {name: sorted(key for key in known if key[0] == name) for name in model}
    asked = [key for keys in names.values() for key in keys[:each] if client in (None, key[1])]
    asked = asked[:most]
    running: dict[str, dict[str, ConsumerRunningInfo]] = {name: {} for name in model}
    why: dict[tuple[str, str], str] = {}
    for way in range(MOST_WAYS):
        left = [key for key in asked if key[1] not in running[key[0]] and len(ways[key]) > way]
        answers = yield from ask_all(
            (ways[key][way], running_info(*key, stacks=stacks)) for key in left
        )
        for (name, one_id), info in zip(left, answers, strict=True):
            why.setdefault((name, one_id), info.reason)
            if info.value is not None:
                running[name][one_id] = info.value
                for data in info.value.subscription_set:
                    filters[name].setdefault(data.topic, set()).add(data.sub_string or "*")
    rows: dict[str, list[MemberRow]] = {name: [] for name in model}
    for key in asked:
        now = running[key[0]].get(key[1])
        count = (-1, -1, why[key])
        if now is not None:
            waiting = sum(queue.cached_msg_count for queue in now.mq_table.values())
            count = (len(now.mq_table) + len(now.mq_pop_table), waiting, "")
        rows[key[0]].append(MemberRow(key[1], *known[key], *count))
    return {
        name: OnlineGroup(
            rows[name], len(keys) - len(rows[name]), running[name], model[name], filters[name]
        )
        for name, keys in names.items()
    }


def _members(
    group: str, client: str | None = None, *, stacks: bool = False
) -> Operation[OnlineGroup]:
    """The members of a group, or one of them; raises ConfigError when none is online, or not that one."""
    masters = yield from masters_of()
    places = [(group, *place) for place in masters]
    found = (yield from online_of(places, client=client, stacks=stacks))[group]
    if not found.members and found.more:
        raise ConfigError(f"group {group} has no member {client}: 'roquette client ls' shows them")
    if not found.members:
        words = "'roquette group list' shows the groups"
        if pipeline_of_group(group):
            words = f"it is a pipeline's, and 'roquette group lag {group}' says how far that is"
        raise ConfigError(f"group {group} has no member that is online: {words}")
    return found


def members(group: str) -> Operation[list[MemberRow]]:
    """The members of a group that are online, with the queues each has and the messages that wait in it.

    Raises:
        ConfigError: none is online.
    """
    return (yield from _members(group)).members


def _printed(rows: list[StacksRow], **_: object) -> OperationReport[list[StacksRow]]:
    running = [row.error or row.stacks.rstrip() or "    no handler is running" for row in rows]
    texts = (f"{row.client}:\n{text}" for row, text in zip(rows, running, strict=True))
    return OperationReport(rows, [Printed(text) for text in texts])


@command(shows=_printed)
def stacks(
    group: str, *, client: Annotated[str | None, Flag("--client ID")] = None
) -> Operation[list[StacksRow]]:
    """Show where the members of a group are in their code: threads of Java's clients, running handlers of ours.

    Args:
        client: Only this member.

    Raises:
        ConfigError: none is online, or not that one.
    """
    found = yield from _members(group, client, stacks=True)
    texts = {name: now.jstack or "" for name, now in found.running.items()}
    return [StacksRow(row.client, texts.get(row.client, ""), row.error) for row in found.members]
