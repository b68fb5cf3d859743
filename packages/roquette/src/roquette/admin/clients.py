"""Who is connected: producers, and members of consumer groups with what each is doing."""

from typing import Annotated, Any, ClassVar

import msgspec

from roquette.admin.catalogue import OWN, Names, groups
from roquette.admin.cluster import masters_of, require_one
from roquette.admin.command import PAGE, Flag, Like, Limit, Printed, Report, command, more_words
from roquette.admin.groups import settings_of_group
from roquette.client import calls
from roquette.client.group_requests import all_producers
from roquette.client.inspection_calls import running_info
from roquette.client.operations import Operation, ask_all
from roquette.errors import BrokerError, ConfigError
from roquette.message.names import is_system_group
from roquette.wire.bodies import ConsumerRunningInfo
from roquette.wire.codes import version_text


class ClientRow(msgspec.Struct, frozen=True):
    """One client of one group.

    Attributes:
        kind: producer or consumer. `brokers`: how many masters it is connected to.
    """

    client: str
    kind: str
    group: str
    address: str
    language: str
    version: str
    brokers: int

    NARROW: ClassVar = ("brokers", "version", "language", "kind")


class MemberRow(msgspec.Struct, frozen=True):
    """A member of a group and the subscription that the group's brokers know of it."""

    client: str
    address: str
    language: str
    version: str
    queues: int
    messages: int
    error: str = ""

    NARROW: ClassVar = ("version", "language")


class StacksRow(msgspec.Struct, frozen=True):
    """Where a member's threads or handlers are; `error`: why it does not tell."""

    client: str
    stacks: str
    error: str = ""


def _listed(
    found: tuple[list[ClientRow], int], group: str | None, **_: object
) -> Report[list[ClientRow]]:
    empty = "no client is connected" + (f" in group {group}" if group else "")
    return Report(found[0], notes=more_words(found[1], "groups"), empty=empty)


@command(shows=_listed, watched=True)
def list_clients(
    *, group: str | None = None, like: Like = "", limit: Limit = PAGE, system: bool = False
) -> Operation[tuple[list[ClientRow], int]]:
    """List producers and consumers with their addresses, languages and versions.

    Producers are seen from Apache's 5.x and from ours; one that has not sent for two minutes is forgotten.

    Args:
        group: Only this group's.
        system: Also the system's own.

    Returns:
        By kind, group and id, those of the first groups with the word in their names; and how many groups were left out.
    """
    masters = yield from masters_of()
    known, more = Names({OWN: [group or ""]}, {group or "": masters}), 0
    names = [group or ""]
    if group is None:
        known = yield from groups()
        names, more = known.page(like, limit, None if system else OWN)
    asked = [(name, address) for name in names for _, address in known.places[name]]
    online = yield from ask_all((address, calls.group_connections(name)) for name, address in asked)
    if group is not None and not any(isinstance(each.error, BrokerError) for each in online):
        require_one(online)  # a refusal is an answer: no member is online there
    found: dict[tuple[str, str, str], ClientRow] = {}
    for (name, _), answer in zip(asked, online, strict=True):
        for each in answer.value.connection_set if answer.value else ():
            words = (each.language or "", version_text(each.version))
            _add(found, ClientRow(each.client_id, "consumer", name, each.client_addr, *words, 1))
    told = yield from ask_all((address, all_producers()) for _, address in masters)
    senders = [(name, one) for each in told if each.value for name, one in each.value.data.items()]
    if group is None:
        sending = {name for name, _ in senders if system or not is_system_group(name)}
        names, left_out = Names({OWN: list(sending)}).page(like, limit)
        more += left_out
    chosen = set(names)
    for name, producers in senders:
        for one in producers if name in chosen else ():
            words = (one.language or "", version_text(one.version))
            _add(found, ClientRow(one.client_id, "producer", name, one.remote_ip, *words, 1))
    return [found[key] for key in sorted(found)], more


def _add(found: dict[tuple[str, str, str], ClientRow], row: ClientRow) -> None:
    key = row.kind, row.group, row.client
    before = found.get(key)
    brokers = 1 if before is None else before.brokers + 1
    found[key] = msgspec.structs.replace(row, brokers=brokers)


def _members(
    group: str, *, stacks: bool
) -> Operation[list[tuple[ClientRow, ConsumerRunningInfo | None, str]]]:
    """The members of a group, each with its answer or why there is none."""
    masters = yield from masters_of()
    rows = [row for row in (yield from list_clients(group=group))[0] if row.kind == "consumer"]
    if not rows:
        raise ConfigError(
            f"group {group} has no member that is online: 'roquette group list' shows the groups"
        )
    found: list[tuple[ClientRow, ConsumerRunningInfo | None, str]] = []
    for row in rows:
        answers = yield from ask_all(
            (address, running_info(group, row.client, stacks=stacks)) for _, address in masters
        )
        told = next((answer.value for answer in answers if answer.value is not None), None)
        found.append((row, told, "" if told is not None else answers[0].reason))
    return found


def members(group: str) -> Operation[list[MemberRow]]:
    """The members of a group that are online, with the queues each has and the messages that wait in it.

    Raises:
        ConfigError: none is online.
    """
    return [
        MemberRow(
            row.client,
            row.address,
            row.language,
            row.version,
            -1 if info is None else len(info.mq_table) + len(info.mq_pop_table),
            -1 if info is None else sum(each.cached_msg_count for each in info.mq_table.values()),
            reason,
        )
        for row, info, reason in (yield from _members(group, stacks=False))
    ]


@command(watched=True)
def show_group(group: str, *, settings: bool = False) -> Operation[list[Any]]:
    """Show a group's members that are online: how many queues each has and how many messages wait in it.

    Args:
        settings: Its settings on each broker; roquette apply --group changes them.
    """
    if settings:
        return (yield from settings_of_group(group))
    return (yield from members(group))


def _printed(rows: list[StacksRow], **_: object) -> Report[list[StacksRow]]:
    running = [row.error or row.stacks.rstrip() or "    no handler is running" for row in rows]
    texts = (f"{row.client}:\n{text}" for row, text in zip(rows, running, strict=True))
    return Report(rows, [Printed(text) for text in texts])


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
    found = [
        StacksRow(row.client, info.jstack or "" if info is not None else "", reason)
        for row, info, reason in (yield from _members(group, stacks=True))
        if client in (None, row.client)
    ]
    if not found:
        raise ConfigError(f"group {group} has no member {client}: 'roquette client ls' shows them")
    return found
