"""Consumer groups: which exist, and how far behind they are."""

import msgspec

from roquette.admin.cluster import masters_of, require_one
from roquette.client import calls, group_requests
from roquette.client.operations import Operation, ask_all
from roquette.errors import BrokerError, ConfigError
from roquette.message.names import PREDEFINED_GROUPS, SYSTEM_GROUP_PREFIX


class GroupRow(msgspec.Struct, frozen=True):
    """One consumer group. `lag` counts messages not yet consumed, over all its topics and queues.

    Attributes:
        error: of which brokers the numbers lack the share, and why.
    """

    group: str
    members: int
    model: str
    topics: int
    lag: int
    error: str = ""


class LagRow(msgspec.Struct, frozen=True):
    """A group's place in one queue. `last_consumed_ms`: store time of its last consumed message.

    Attributes:
        error: why a broker does not tell; then this is its only row, and the numbers are -1.
    """

    topic: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed_ms: int
    error: str = ""


def group_names(*, system: bool = False) -> Operation[list[str]]:
    """Names of every group known to any master, sorted; the system's own on request."""
    return (yield from _names((yield from masters_of()), system))


def list_groups(*, system: bool = False) -> Operation[list[GroupRow]]:
    """Every group known to any master, sorted by name."""
    masters = yield from masters_of()
    found: list[GroupRow] = []
    for name in (yield from _names(masters, system)):
        found.append((yield from _group(masters, name)))
    return found


def _names(masters: list[tuple[str, str]], system: bool) -> Operation[list[str]]:
    answers = yield from ask_all((address, calls.groups_of_broker()) for _, address in masters)
    require_one(answers)
    names = {name for answer in answers for name in answer.value or ()}
    own = {name for name in names if name.startswith(SYSTEM_GROUP_PREFIX)} | PREDEFINED_GROUPS
    return sorted(names if system else names - own)


def _group(masters: list[tuple[str, str]], group: str) -> Operation[GroupRow]:
    members: set[str] = set()
    model = ""
    for online in (
        yield from ask_all((address, calls.group_connections(group)) for _, address in masters)
    ):
        if online.value is not None:  # else no member is online there
            members |= {connection.client_id for connection in online.value.connection_set}
            model = (online.value.message_model or "").lower()
    rows = yield from _lag(masters, group, None)
    told = [row for row in rows if not row.error]
    return GroupRow(
        group,
        len(members),
        model,
        len({row.topic for row in told}),
        sum(row.lag for row in told),
        "; ".join(f"{row.broker}: {row.error}" for row in rows if row.error),
    )


def delete_group(group: str, *, with_offsets: bool) -> Operation[list[str]]:
    """Remove a group from every master; the names of those that had it.

    Raises:
        ConfigError: members are online, or no master knows the group.
        ClientError: a master does not answer, or refuses: it is still there on that one.
    """
    masters = yield from masters_of()
    online = yield from ask_all((address, calls.group_connections(group)) for _, address in masters)
    members = {c.client_id for each in online if each.value for c in each.value.connection_set}
    if members:
        raise ConfigError(
            f"group {group} has {len(members)} members online, which would make it again: stop {', '.join(sorted(members)[:3])} first"
        )
    listed = yield from ask_all((address, calls.groups_of_broker()) for _, address in masters)
    have = [place for place, each in zip(masters, listed, strict=True) if group in each.get()]
    if not have:
        raise ConfigError(
            f"no broker knows group {group}: 'roquette group list' shows those there are"
        )
    answers = yield from ask_all(
        (address, group_requests.delete_group(group, with_offsets=with_offsets))
        for _, address in have
    )
    for answer in answers:
        answer.get()
    return [name for name, _ in have]


def group_lag(group: str, topic: str | None = None) -> Operation[list[LagRow]]:
    """Per queue, how far behind a group is.

    Raises:
        ConfigError: no broker has offsets of the group.
        ClientError: no broker answers.
    """
    masters = yield from masters_of()
    rows = yield from _lag(masters, group, topic)
    if not rows:
        raise ConfigError(
            f"group {group} has consumed nothing yet: 'roquette group list' shows the groups there are"
        )
    return rows


def _lag(masters: list[tuple[str, str]], group: str, topic: str | None) -> Operation[list[LagRow]]:
    answers = yield from ask_all(
        (address, calls.consume_stats(group, topic)) for _, address in masters
    )
    if not any(
        isinstance(answer.error, BrokerError) for answer in answers
    ):  # it knows no such group
        require_one(answers)
    rows: list[LagRow] = []
    for (broker, _), answer in zip(masters, answers, strict=True):
        if answer.error is not None and not isinstance(answer.error, BrokerError):
            rows.append(LagRow("", broker, -1, -1, -1, -1, -1, answer.reason))
        for queue, at in (answer.value or {}).items():
            rows.append(
                LagRow(
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    at.broker_offset,
                    at.consumer_offset,
                    max(0, at.broker_offset - at.consumer_offset),
                    at.last_timestamp,
                )
            )
    return sorted(rows, key=lambda row: (row.error != "", row.topic, row.broker, row.queue))
