"""Consumer groups: which exist, and how far behind they are."""

import msgspec

from roquette.admin.cluster import masters_of
from roquette.client.session import Session
from roquette.errors import BrokerError, ConfigError
from roquette.message.names import PREDEFINED_GROUPS, SYSTEM_GROUP_PREFIX
from roquette.wire.bodies import (
    ConsumerConnection,
    ConsumeStats,
    SubscriptionGroupWrapper,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
)
from roquette.wire.json_body import decode_body


class GroupRow(msgspec.Struct, frozen=True):
    """One consumer group. `lag` counts messages not yet consumed, over all its topics and queues."""

    group: str
    members: int
    model: str
    topics: int
    lag: int


class LagRow(msgspec.Struct, frozen=True):
    """A group's place in one queue. `last_consumed_ms`: store time of its last consumed message."""

    topic: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed_ms: int


async def list_groups(session: Session, *, system: bool = False) -> list[GroupRow]:
    """Every group known to any master, sorted by name."""
    masters = await masters_of(session, cluster=None, broker=None)
    names: set[str] = set()
    for _, address in masters:
        reply = await session.api.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        names |= set(decode_body(SubscriptionGroupWrapper, reply.body).subscription_group_table)
    wanted = [
        n
        for n in sorted(names)
        if system or not (n in PREDEFINED_GROUPS or n.startswith(SYSTEM_GROUP_PREFIX))
    ]
    return [await _row(session, masters, name) for name in wanted]


async def _row(session: Session, masters: list[tuple[str, str]], group: str) -> GroupRow:
    members: set[str] = set()
    model = ""
    for _, address in masters:
        reply = await session.api.ask(
            address,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequestHeader(consumer_group=group),
        )
        if reply.code == ResponseCode.SUCCESS:
            online = decode_body(ConsumerConnection, reply.body)
            members |= {c.client_id for c in online.connection_set}
            model = (online.message_model or "").lower()
    rows = await _stats(session, masters, group, None)
    return GroupRow(
        group, len(members), model, len({r.topic for r in rows}), sum(r.lag for r in rows)
    )


async def group_lag(session: Session, group: str, topic: str | None = None) -> list[LagRow]:
    """Per queue, how far behind a group is.

    Raises:
        ConfigError: no broker has offsets of the group.
    """
    rows = await _stats(session, await masters_of(session, cluster=None, broker=None), group, topic)
    if not rows:
        raise ConfigError(
            f"group {group} has consumed nothing yet: 'roquette group list' shows the groups there are"
        )
    return rows


async def _stats(
    session: Session, masters: list[tuple[str, str]], group: str, topic: str | None
) -> list[LagRow]:
    rows: list[LagRow] = []
    for _, address in masters:
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        try:
            reply = await session.api.call(address, RequestCode.GET_CONSUME_STATS, header)
        except BrokerError:
            continue
        for queue, place in decode_body(ConsumeStats, reply.body).offset_table.items():
            lag = max(0, place.broker_offset - place.consumer_offset)
            rows.append(
                LagRow(
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    place.broker_offset,
                    place.consumer_offset,
                    lag,
                    place.last_timestamp,
                )
            )
    return sorted(rows, key=lambda row: (row.topic, row.broker, row.queue))
