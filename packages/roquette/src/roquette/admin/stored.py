"""Stored messages: found by key, id or place, and sent again; a group's dead letters.

Plain coroutines over a client, which reads and sends; most others of this room are operations.
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from roquette.admin.cluster import cluster_info, masters_of
from roquette.admin.command import Flag, OperationPlan, OperationReport, command
from roquette.admin.newest import (
    READER,
    Before,
    BeforePlace,
    MessageRow,
    NewestPage,
    newest,
    page_words,
    parse_before,
    row_of,
)
from roquette.admin.seek import parse_place
from roquette.admin.topics import delete_topic, describe_topic
from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.base.options import counted
from roquette.client import calls
from roquette.client.calls import ANY_NAME_SERVER, Operation, ask, ask_all
from roquette.client.client import Client
from roquette.client.core.route_cache import TopicRoute
from roquette.errors import (
    ClientError,
    ConfigError,
    MessageIllegal,
    RoquetteError,
    RouteNotFound,
)
from roquette.message.message import Message, MessageQueue, ReceivedMessage
from roquette.message.message_id import decode_offset_message_id, host_text
from roquette.message.names import dlq_topic
from roquette.message.properties import SYSTEM

MOST: Final = 64
"""Messages of one key that a broker is asked for: what it gives at most (maxMsgsNumBatch), unless it is set otherwise."""

RESENT_OF: Final = "RESENT_OF"
"""Property of what was sent again: the id that it had. An application's: consumers see it, and none needs it."""


class ResentRow(msgspec.Struct, frozen=True):
    """One message that was sent again: its old id, and where the new one is; `error`: why it was not."""

    id: str
    topic: str
    new_id: str = ""
    error: str = ""


def fields_of(message: ReceivedMessage) -> dict[str, Any]:
    """Everything known of a message; a body that is not UTF-8 is `body_base64` instead of `body`."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "id": message.message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        **body,
        "properties": message.properties,
        "born_ms": message.born_timestamp_ms,
        "stored_ms": message.store_timestamp_ms,
        "reconsume_times": message.reconsume_times,
    }


Which = Annotated[
    str,
    Flag(
        "MESSAGE",
        "A message id, the id of a place in a log (32 or 56 hex digits), or BROKER:QUEUE:OFFSET.",
    ),
]
OfTopic = Annotated[
    str | None, Flag("--topic -t TOPIC", "Needed for an id its sender made, and for a place.")
]
Since = Annotated[
    str | None, Flag("--since TIME", "Only what died since then: @-1h or @2026-09-01T10:00.")
]
ManyAtMost = Annotated[int, Flag("--most", "Stop after so many.", 1)]


@command()
async def get_message(
    mq: Client, message: Which, *, topic: OfTopic = None
) -> OperationReport[list[dict[str, Any]]]:
    """Print one message with everything known of it, as JSON."""
    return OperationReport([fields_of(await get(mq, message, topic))], lines=True)


@command()
async def find_messages(
    mq: Client,
    key: Annotated[str, Flag("KEY", "A key, or a message id.")],
    *,
    topic: Annotated[str, Flag("--topic -t TOPIC")],
    most: Annotated[int, Flag("--most", "Of each broker.", 1)] = MOST,
    bodies: bool = False,
) -> OperationReport[list[Any]]:
    """List the messages of a topic that have a key. Exit code 1 when there is none.

    Args:
        bodies: One JSON object a line, with bodies.
    """
    found = await mq.find(topic, key, most=most)
    return OperationReport(
        [fields_of(message) if bodies else row_of(message) for message in found],
        lines=bodies,
        notes=full_words(found, most),
        empty=f"no message of {topic} has the key {key}",
        done=bool(found),
    )


@command(confirmed=True)
async def resend_message(
    mq: Client,
    message: Which,
    *,
    topic: OfTopic = None,
    to: Annotated[str | None, Flag("--to TOPIC")] = None,
) -> OperationPlan[list[ResentRow]]:
    """Send a message's body, tag, keys and properties again, as a new message: every group gets it.

    Args:
        to: Where to; default is where it was sent first.
    """
    found = await get(mq, message, topic)
    target = to or found.origin_topic

    async def does(mq: Client) -> OperationReport[list[ResentRow]]:
        row = await resend(mq, found, target)
        return OperationReport([row], done=not row.error)

    return OperationPlan(None, f"send message {found.message_id} again to topic {target}", does)


async def get(client: Client, where: str, topic: str | None) -> ReceivedMessage:
    """One message: by `BROKER:QUEUE:OFFSET` of a topic, by the id of its place, or by its own id in a topic.

    Raises:
        ConfigError: there is none, or what is given does not say which.
    """
    parts = where.rsplit(":", 2)
    if len(parts) == 3 and whole_number(parts[1], 2**31 - 1) >= 0 <= whole_number(
        parts[2], 2**63 - 1
    ):
        if topic is None:
            raise ConfigError(f"{where} is a place in a queue: say of which topic, --topic")
        return await _at(client, MessageQueue(topic, parts[0], int(parts[1])), int(parts[2]))
    if topic is not None:
        found = [m for m in await client.find(topic, where) if m.message_id == where]
        if found:
            return found[0]
    try:
        host, _ = decode_offset_message_id(where)
    except ValueError:
        hint = "" if topic else "; an id that its sender made (UNIQ_KEY) needs --topic"
        raise ConfigError(f"no message {where} is found{hint}") from None
    if host_text(host) not in await client.session.run(_addresses(topic)):
        raise ConfigError(f"no message {where} is found: it names no broker of the cluster")
    return await client.message_at(where)


def _addresses(topic: str | None) -> Operation[set[str]]:
    """The brokers of a topic, or of the whole cluster. An id is what somebody typed, and no other server is asked for it."""
    if topic is None:
        told = (yield from cluster_info()).broker_addr_table.values()
        return {address for each in told for address in each.broker_addrs.values()}
    route = TopicRoute(topic, (yield from ask(ANY_NAME_SERVER, calls.route(topic))))
    return {address for each in route.addresses.values() for address in each.values()}


async def _at(client: Client, queue: MessageQueue, offset: int) -> ReceivedMessage:
    before = {queue: offset + 1}
    page = await client.session.run(newest(queue.topic, 1, before=before, queue=queue))
    there = page.messages[0].queue_offset if page.messages else "no other"
    if there != offset:
        where = f"{queue.broker_name}:{queue.queue_id}"
        raise ConfigError(
            f"offset {offset} of {where} holds no message; before it there is {there}"
        )
    return page.messages[0]


def letters_of(
    group: str, most: int, since: datetime | None = None, before: Before | None = None
) -> Operation[NewestPage]:
    """A page of a group's newest dead letters before a place, of those stored since a time.

    Raises:
        ConfigError: the group has none. ClientError: no broker tells.
    """
    try:
        page = yield from newest(dlq_topic(group), most, before=before)
    except RouteNotFound as error:
        raise ConfigError(f"group {group} has no dead letters: {error}") from None
    since_ms = 0 if since is None else since.timestamp() * 1000
    recent = [m for m in page.messages if m.store_timestamp_ms >= since_ms]
    more = page.more and len(recent) == len(page.messages)
    return msgspec.structs.replace(page, messages=recent, more=more)


@command(confirmed=True)
def purge(name_servers: Sequence[str], group: str) -> Operation[OperationPlan[None]]:
    """Delete all dead letters of a group. They cannot be had back."""
    topic = dlq_topic(group)
    letters = counted((yield from describe_topic(topic)).messages, "dead letter")

    def does() -> Operation[OperationReport[None]]:
        change = yield from delete_topic(name_servers, topic)
        reasons = "; ".join(f"{broker}: {reason}" for broker, reason in change.failed.items())
        if reasons:
            raise ClientError(f"not deleted on {reasons}")
        return OperationReport(notes=[f"{letters} of {group} deleted"])

    return OperationPlan(None, f"delete {letters} of {group}", does())


def moment_of(since: str | None, clock: Clock) -> datetime | None:
    """The time that --since says; raises ConfigError for another place."""
    if since is None:
        return None
    place = parse_place(since, clock.now_ms())
    if place.kind != "time":
        raise ConfigError(f"--since {since} is no time: say @-1h or @2026-09-01T10:00")
    return datetime.fromtimestamp(place.number / 1000, UTC)


@command(confirmed=True)
async def resend_letters(
    mq: Client,
    clock: Clock,
    tell: Callable[[str], None],
    group: str,
    *,
    before: BeforePlace = None,
    since: Since = None,
    most: ManyAtMost = 1_000,
    at: Annotated[
        list[str] | None, Flag("--at BROKER:QUEUE:OFFSET", "Only this one; may be repeated.")
    ] = None,
    to: Annotated[str | None, Flag("--to TOPIC")] = None,
) -> OperationPlan[list[ResentRow]] | OperationReport[list[ResentRow]]:
    """Send dead letters again as new messages, which every group of the topic gets. They stay among the dead letters.

    Running it twice sends them twice: --since, --before or --at says which. Exit code 1 when one could not be sent: without --at none
    after it was tried, with it each has a row.

    Args:
        to: Where to; default is where each was sent first.
    """
    found: list[ReceivedMessage] = []
    missing: list[ResentRow] = []
    for which in at or ():
        try:
            found.append(await get(mq, which, dlq_topic(group)))
        except RoquetteError as error:
            missing.append(ResentRow(which, dlq_topic(group), error=str(error)))
    if not at:
        place = parse_before(before, dlq_topic(group), clock.now_ms())
        page = await mq.session.run(letters_of(group, most, moment_of(since, clock), place))
        found = page.messages[::-1]  # in the order in which they died
        for words in page_words(page):
            tell(words)
    if not found:
        when = " since then" if since else ""
        return OperationReport(
            missing, empty=f"group {group} has no dead letters{when}", done=not missing
        )
    topics = sorted({to or message.origin_topic for message in found})

    async def does(mq: Client) -> OperationReport[list[ResentRow]]:
        rows: list[ResentRow] = []
        for message in found:
            rows.append(await resend(mq, message, to or message.origin_topic))
            if rows[-1].error and not at:
                break
        sent = [row_of(m) for m, row in zip(found, rows, strict=False) if not row.error]
        rows += missing
        try:
            await mq.session.run(note_seen([] if at else sent))  # those before them may be unseen
        except ClientError as error:  # they are sent all the same
            tell(f"the doctor is not told that they were seen: {error}")
        return OperationReport(rows, done=not any(row.error for row in rows))

    letters = counted(len(found), "dead letter")
    return OperationPlan(None, f"send {letters} of {group} again to {', '.join(topics)}", does)


def note_seen(letters: Iterable[MessageRow]) -> Operation[None]:
    """Note of each queue that somebody has looked at these dead letters: the place of READER, which the doctor asks for.

    Raises:
        ClientError: a broker did not note it.
    """
    addresses = dict((yield from masters_of()))
    known = [row for row in letters if row.broker in addresses]  # in their order
    places = {MessageQueue(row.topic, row.broker, row.queue): row.offset + 1 for row in known}
    before = yield from ask_all(
        (addresses[queue.broker_name], calls.committed_offset(READER, queue, zero_if_new=False))
        for queue in places
    )
    answers = yield from ask_all(
        (told.address, calls.commit(READER, queue, max(place, told.get() or 0)))
        for told, (queue, place) in zip(before, places.items(), strict=True)
    )
    for answer in answers:
        answer.get()


async def resend(client: Client, message: ReceivedMessage, topic: str) -> ResentRow:
    """Send a message's body, tag, keys and the application's properties to a topic, as a new message."""
    properties = {name: text for name, text in message.properties.items() if name not in SYSTEM}
    again = Message(
        topic,
        message.body,
        tag=message.tag,
        keys=message.keys,
        properties={**properties, RESENT_OF: message.message_id},
        shard_key=message.shard_key,
    )
    try:
        receipt = await client.send(again)
    except (ClientError, MessageIllegal) as error:  # a tag, say, that other clients let through
        return ResentRow(message.message_id, topic, error=" ".join(str(error).split()))
    return ResentRow(message.message_id, topic, receipt.message_id)


def full_words(found: Iterable[ReceivedMessage], most: int) -> list[str]:
    """Name brokers that may have more messages of a key: those that gave as many as they were asked for, or give at all."""
    counts = Counter((message.topic, message.queue.broker_name) for message in found)
    return [
        f"{broker} gave {counted(count, 'message')} of {topic} and may have more: it was asked for {most}, "
        f"and gives {MOST} unless its maxMsgsNumBatch says otherwise"
        for (topic, broker), count in counts.items()
        if count >= min(most, MOST)
    ]
