"""Change the number of a topic's queues without losing a message.

Queues that go are closed for producers first (writeQueueNums), clients hear of it, and only when every group has
read them to their ends, and no delayed message or open transaction can still come to them, they are closed for
consumers, too (readQueueNums). The certificate says which offsets prove it.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Final

import msgspec

from roquette.admin.cluster import TRANS_GROUP, Holdings, configs_of, look_at, masters_of
from roquette.admin.command import Flag, IgnoredGroups, OperationReport, Settle, Timeout, command
from roquette.admin.drain import SETTLE_S, Pace, Run, ShowRows, unseen
from roquette.base.options import counted
from roquette.client import calls, operator_calls
from roquette.client.calls import Operation, ask, ask_all
from roquette.errors import ClientError, ConfigError
from roquette.message.message import MessageQueue, unread
from roquette.message.names import SCHEDULE_TOPIC, TOOLS_CONSUMER_GROUP, TRANS_HALF_TOPIC
from roquette.message.properties import REAL_QID, REAL_TOPIC, decode_properties
from roquette.message.record import decode_records
from roquette.wire.bodies.tables import TopicConfig

MOST_SCANNED: Final = 20_000
"""Delayed messages and half messages of a queue that are looked at; of more, all count as messages of the topic."""

_PULLED: Final = 32


class TopicOnBroker(msgspec.Struct, frozen=True):
    """A topic on one broker, as it is."""

    broker: str
    address: str
    config: TopicConfig


class ProofRow(msgspec.Struct, frozen=True):
    """One group in one queue that goes. `proven`: the group is at the end, and nothing more can come.

    Attributes:
        coming: delayed messages and half messages that may still be put to the broker's queues that go.
        unread: messages that wait for the group.
    """

    broker: str
    queue: int
    group: str
    end_offset: int
    group_offset: int
    coming: int
    proven: bool
    unread: int = 0


def places_of(topic: str) -> Operation[list[TopicOnBroker]]:
    """The masters that have the topic; raises ConfigError when none has it, ClientError when one does not answer."""
    masters = yield from masters_of()
    answers = yield from configs_of(topic, [address for _, address in masters])
    found = [
        TopicOnBroker(broker, address, config)
        for (broker, address), answer in zip(masters, answers, strict=True)
        if (config := answer.get()) is not None
    ]
    if not found:
        raise ConfigError(
            f"no broker has a topic {topic}: 'roquette topic list' shows those there are"
        )
    return found


def check(places: Sequence[TopicOnBroker], write: int, read: int, *, force: bool) -> None:
    """Raise ConfigError for an order that loses messages, or that nobody can mean."""
    topic = places[0].config.topic_name
    if read < write and not force:
        raise ConfigError(
            f"{topic} with {read} queues to read and {write} to write loses what goes to queue {read} and on: "
            "give no fewer to read than to write, or say --force"
        )
    moved = any(place.config.order and place.config.write_queue_nums != write for place in places)
    if moved and not force:
        raise ConfigError(
            f"{topic} is an order topic: with another number of queues its keys go to other queues, and messages of one "
            "key are no longer in order; say --force when none are under way"
        )


def put(places: Sequence[TopicOnBroker], write: int, read: int) -> Operation[list[TopicOnBroker]]:
    """Change the topic's numbers on these brokers; the places as they are then."""
    changed = [
        TopicOnBroker(
            place.broker,
            place.address,
            msgspec.structs.replace(place.config, write_queue_nums=write, read_queue_nums=read),
        )
        for place in places
    ]
    asks = ((place.address, operator_calls.put_topic(place.config)) for place in changed)
    for place, answer in zip(changed, (yield from ask_all(asks)), strict=True):
        if answer.error is not None:
            raise ClientError(f"{place.broker} did not change the topic: {answer.reason}")
    return changed


def set_numbers(
    topic: str, write: int, read: int, *, force: bool
) -> Operation[list[TopicOnBroker]]:
    """Change both numbers at once, on every broker that has the topic.

    Raises:
        ConfigError: it would lose messages: fewer queues to read than to write, or than there are.
    """
    places = yield from places_of(topic)
    check(places, write, read, force=force)
    most = max(place.config.read_queue_nums for place in places)
    if read < most and not force:
        raise ConfigError(
            f"{topic} has {most} queues to read: what is unread in queue {read} and on would be out of reach; "
            "give --wait without --read-queues, or say --force"
        )
    return (yield from put(places, write, read))


def prove(
    place: TopicOnBroker, first: int, ignored: Collection[str] = ()
) -> Operation[list[ProofRow]]:
    """Ask where every group is in the queues of a broker that go, from number `first` on, and what may still come to them.

    What may come is asked before where the groups are, and where they are before the ends: so each row errs to
    the side of waiting.

    Raises:
        ConfigError: no group reads the topic, and messages in these queues would be out of reach.
    """
    topic = place.config.topic_name
    before = yield from look_at(place.address, [topic])
    coming = yield from _coming(place, first, before)
    found = yield from look_at(place.address, [topic])
    groups = sorted(group for group, read in found.pairs if read == topic and group not in ignored)
    rows: list[ProofRow] = []
    for queue, at in sorted(found.ends[topic].items()):
        if not first <= queue < place.config.read_queue_nums:
            continue
        if not groups and (count := unread(None, at.min_offset, at.max_offset)):
            raise ConfigError(
                f"no group reads {topic}, and {count} messages in queue {queue} of {place.broker} "
                "would be out of reach; say --force if nobody wants them"
            )
        for group in groups or [""]:
            offset = found.places.get((group, topic), {}).get(queue, at.min_offset)
            left = unread(offset, at.min_offset, at.max_offset) if group else 0
            proven = coming == 0 and not left
            rows.append(
                ProofRow(place.broker, queue, group, at.max_offset, offset, coming, proven, left)
            )
    return rows


def _coming(place: TopicOnBroker, first: int, found: Holdings) -> Operation[int]:
    """Messages that the broker itself may still put to the topic's queues from `first` on."""
    topic, count = place.config.topic_name, 0
    waiting = [
        (SCHEDULE_TOPIC, queue, found.delays.get(queue + 1, 0))
        for queue in found.ends[SCHEDULE_TOPIC]
    ]
    half = found.places.get((TRANS_GROUP, TRANS_HALF_TOPIC), {})
    waiting += [
        (TRANS_HALF_TOPIC, queue, half.get(queue, 0)) for queue in found.ends[TRANS_HALF_TOPIC]
    ]
    for name, queue, progress in waiting:
        at = found.ends[name][queue]
        start = max(at.min_offset, progress)
        if at.max_offset - start > MOST_SCANNED:
            count += at.max_offset - start
        elif at.max_offset > start:
            source = MessageQueue(name, place.broker, queue)
            count += yield from _count(place.address, source, start, at.max_offset, topic, first)
    return count + found.by_topic.get(topic, 0) + found.entering


def _count(
    address: str, source: MessageQueue, start: int, end: int, topic: str, first: int
) -> Operation[int]:
    """Of the messages of a system queue in start <= offset < end, those that go to a topic's queues from `first` on."""
    offset, count = start, 0
    while offset < end:
        call = calls.pull(TOOLS_CONSUMER_GROUP, source, offset, _PULLED)
        pulled = yield from ask(address, call)
        for record in decode_records(pulled.records):
            properties = decode_properties(record.properties)
            queue = properties.get(REAL_QID, "0")
            if properties.get(REAL_TOPIC) == topic and int(queue) >= first:
                count += 1
        # A broker that does not go on would be asked for ever.
        if pulled.next_offset <= offset:
            break
        offset = pulled.next_offset
    return count


def begin(topic: str, queues: int, *, force: bool = False) -> Operation[list[TopicOnBroker]]:
    """The first step: brokers get the queues they lack, and nobody sends to those that go.

    Returns:
        The places with queues that go: fewer to write than to read.

    Raises:
        ConfigError: the order would lose order.
    """
    places = yield from places_of(topic)
    check(places, queues, queues, force=force)
    fewer = [place for place in places if place.config.read_queue_nums > queues]
    yield from put([place for place in places if place not in fewer], queues, queues)
    going: list[TopicOnBroker] = []
    for place in fewer:
        going += yield from put([place], queues, place.config.read_queue_nums)
    return going


@command(asks="change {topic} to {queues} queues")
async def resize_topic(
    run: Run,
    tell: Callable[[str], None],
    topic: str,
    *,
    queues: Annotated[int, Flag(least=1)],
    read_queues: Annotated[int | None, Flag(least=1)] = None,
    wait: bool = False,
    settle: Settle = SETTLE_S,
    timeout: Timeout = 3600.0,
    ignore_group: IgnoredGroups = None,
    force: bool = False,
    show: ShowRows = unseen,
) -> OperationReport[list[ProofRow]]:
    """Change a topic's number of queues; prints the certificate that nothing is lost.

    Fewer queues: first nobody sends to those that go; with --wait they are taken away when every group has read them
    and nothing delayed can still come. Exit code 10 when something is left.

    Args:
        queues: Of the topic, on every broker that has it.
        read_queues: Set both numbers at once: this one to read, --queues to write.
        wait: Until every group has read the queues that go.
        force: Also orders that lose messages or order.
    """
    if read_queues is not None:
        places = await run(set_numbers(topic, queues, read_queues, force=force))
        count = counted(len(places), "broker")
        return OperationReport(
            notes=[f"{topic}: {queues} to write, {read_queues} to read on {count}"]
        )
    ignored, empty = ignore_group or [], f"{topic} has {queues} queues; none had to go"
    if wait:
        now = asyncio.get_running_loop().time
        pace = Pace(asyncio.sleep, now, tell, settle, timeout, show=show)
        rows = await resize(run, topic, queues, pace, force=force, ignored=ignored)
        return OperationReport(rows, empty=empty, healthy=all(row.proven for row in rows))
    going = await run(begin(topic, queues, force=force))
    rows = [row for place in going for row in await run(prove(place, queues, ignored))]
    note = (
        f"nobody sends to queue {queues} and on any more; --wait takes them away when they are read"
    )
    return OperationReport(rows, notes=[note] if rows else [], empty=empty)


async def resize(
    run: Run,
    topic: str,
    queues: int,
    pace: Pace,
    *,
    force: bool = False,
    ignored: Collection[str] = (),
) -> list[ProofRow]:
    """Give a topic so many queues on every broker that has it. Can be ended and begun again at any point.

    Returns:
        The certificate: a row for each queue that went and each group; all are proven when it is done, and those
        that are not say what `pace.timeout_s` was too short for.

    Raises:
        ConfigError: the order would lose messages. ClientError: a broker does not answer.
    """
    going = await run(begin(topic, queues, force=force))
    if not going:
        return []
    pace.tell(
        f"{', '.join(place.broker for place in going)}: nothing is sent to queue {queues} and on any more; "
        f"clients hear of it in {pace.settle_s:.0f} s"
    )
    await pace.pause(pace.settle_s)
    return await _close(run, going, queues, pace, force, ignored)


async def _close(
    run: Run,
    going: Sequence[TopicOnBroker],
    queues: int,
    pace: Pace,
    force: bool,
    ignored: Collection[str],
) -> list[ProofRow]:
    """Wait for the proof at each broker, and take its queues away; all that was proven, or was not in time."""
    end_s = pace.now() + pace.timeout_s
    proofs: dict[str, list[ProofRow]] = {}
    todo = list(going)
    told = ""
    while True:
        for place in list(todo):
            try:
                rows = await run(prove(place, queues, ignored))
            except ConfigError:
                # No group reads the queues; --force says that nobody wants what they hold.
                if not force:
                    raise
                rows = []
            proofs[place.broker] = rows
            if all(row.proven for row in rows) and await _take_away(run, place, queues, rows):
                pace.tell(f"{place.broker}: queue {queues} and on are gone, read to their ends")
                todo.remove(place)
        certificate = [row for _, rows in sorted(proofs.items()) for row in rows]
        pace.show(certificate)
        left = [row for row in certificate if not row.proven]
        if left and (text := _in_short(left)) != told:
            told = text
            pace.tell(text)
        if not todo or pace.now() >= end_s:
            return certificate
        await pace.pause(pace.look_s)


async def _take_away(run: Run, place: TopicOnBroker, queues: int, rows: Sequence[ProofRow]) -> bool:
    """Close the queues for consumers; open them again when one has grown behind its proof."""
    await run(put([place], queues, queues))
    # The proof is older than the change: a message may have come between the two.
    grown = await run(_grown(place, rows))
    if grown:
        await run(put([place], queues, place.config.read_queue_nums))
    return not grown


def _grown(place: TopicOnBroker, rows: Sequence[ProofRow]) -> Operation[bool]:
    ends = {row.queue: row.end_offset for row in rows}
    topic = place.config.topic_name
    answers = yield from ask_all(
        (place.address, calls.max_offset(MessageQueue(topic, place.broker, queue)))
        for queue in ends
    )
    return any(answer.get() > end for answer, end in zip(answers, ends.values(), strict=True))


def _in_short(rows: Sequence[ProofRow]) -> str:
    """Say what is waited for, in one line."""
    behind: dict[str, int] = {}
    coming: dict[str, int] = {}
    for row in rows:
        if row.group:
            behind[row.group] = behind.get(row.group, 0) + row.unread
        coming[row.broker] = row.coming
    words = [f"{count} unread of {group}" for group, count in behind.items() if count]
    if total := sum(coming.values()):
        words.append(f"{total} delayed or open")
    return "left: " + ", ".join(words or ["nothing"])
