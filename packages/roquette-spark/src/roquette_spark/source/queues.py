"""Queues of a read: which there are, their bounds and records, and start and end positions as offsets of these queues."""

import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from roquette.base.options import did_you_mean
from roquette.client.calls import PullFilter
from roquette.errors import ClientError, ConfigError, CorruptRecord, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from roquette.message.record import decode_record
from roquette_spark.values.offsets import DataLoss, Lives, Offsets
from roquette_spark.values.options import ReadOptions, read_options
from roquette_spark.values.positions_json import EARLIEST, GROUP, LATEST, Position
from roquette_spark.workers.reader import BlockingReader, ReaderConfig

_POOL_SIZE = 8  # clusters (or groups, or time limits) one process reads at a time


_pool: dict[tuple[int, ReaderConfig], BlockingReader] = {}


def open_reader(options: ReadOptions) -> BlockingReader:
    """The reader of this process for the cluster, group and limits of these options.

    One per process, on purpose: Spark reuses its Python workers, so the connections are reused too.
    """
    tls, credentials = options.access
    config = ReaderConfig(
        namesrv_addr=options.namesrv_addr,
        group=options.request_group,
        timeout_ms=options.pull_timeout_ms,
        connect_timeout_ms=options.connect_timeout_ms,
        pull_batch_size=options.pull_batch_size,
        pulls_in_flight=options.pulls_in_flight,
        retries=options.fetch_retries,
        retry_interval_ms=options.fetch_retry_interval_ms,
        tls=tls,
        credentials=credentials,
    )
    key = os.getpid(), config  # a process that was forked must not share its parent's connections
    reader = _pool.pop(key, None)
    if reader is None:
        if len(_pool) >= _POOL_SIZE:
            _pool.pop(next(iter(_pool))).close()
        reader = BlockingReader(config)
    _pool[key] = reader  # in order of use: the first is closed when the pool is full
    return reader


def pull_filter(options: ReadOptions) -> PullFilter:
    """Return the filter of what the broker is to leave out."""
    if options.filter_sql:
        return PullFilter(options.filter_sql, "SQL92")
    return PullFilter(options.tags, "TAG")


def reader_of(
    namesrv: str, topics: Sequence[str], options: Mapping[str, str] | None = None
) -> BlockingReader:
    """A reader of these topics. Raises ConfigError for a malformed address, name or option."""
    given = {"namesrvAddr": namesrv, "subscribe": ",".join(topics), **(options or {})}
    return open_reader(read_options(given))


def queue_bounds(
    namesrv: str,
    topics: Sequence[str],
    since_ms: int | None = None,
    until_ms: int | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[Offsets, Offsets]:
    """First offset and end (exclusive) of every queue, asked without Spark; sorted by topic as given, then queue.

    Args:
        since_ms, until_ms: only what was stored then or later, and before; by the broker's clock.
        options: more options of the source, such as access keys.

    Raises:
        ClientError: no name server or broker answers, or a topic does not exist.
    """
    reader = reader_of(namesrv, topics, options)
    queues = [queue for topic in topics for queue in reader.queues(topic)]
    start, end = reader.min_offsets(queues), reader.max_offsets(queues)
    for queue in queues:
        low, high = start[queue], end[queue]
        if since_ms is not None:
            start[queue] = max(low, min(high, reader.offset_by_time(queue, since_ms)))
        if until_ms is not None:
            end[queue] = max(start[queue], min(high, reader.offset_by_time(queue, until_ms)))
    return start, end


# Queues of a read, and start and end positions, as options give them, to offsets of these queues.


log = logging.getLogger("roquette_spark")
_MOST_NAMED = 5  # queues in one line


def find_queues(
    reader: BlockingReader, options: ReadOptions
) -> tuple[list[MessageQueue], list[str | MessageQueue]]:
    """The readable queues that options choose, sorted, and which chosen topics or queues do not exist."""
    topics: Iterable[str] = options.topics
    if options.topic_pattern:
        topics = matching_topics(reader.topics(), options.topic_pattern)
    wanted = {MessageQueue(*place) for place in options.assigned}
    if wanted:
        topics = sorted({queue.topic for queue in wanted})
    found: list[MessageQueue] = []
    missing: list[str | MessageQueue] = []
    for topic in topics:
        try:
            found += reader.queues(topic)
        except RouteNotFound:
            if not options.topic_pattern and not wanted:
                missing.append(topic)
    if wanted:
        missing += sorted(wanted.difference(found))
        found = [queue for queue in found if queue in wanted]
    return sorted(found), missing


def matching_topics(topics: Iterable[str], pattern: str) -> list[str]:
    """Topics whose whole name matches. Those of the system never do, those of retries only by a pattern with %."""
    matches = re.compile(pattern).fullmatch
    return [
        topic
        for topic in topics
        if matches(topic)
        and not is_system_topic(topic)
        and ("%" in pattern or not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))
    ]


def require_queues(reader: BlockingReader, options: ReadOptions) -> list[MessageQueue]:
    """The queues that options choose; a table or a new stream needs all of them.

    Raises:
        ConfigError: a topic or an assigned queue does not exist, or a pattern matches nothing.
    """
    found, missing = find_queues(reader, options)
    if missing:
        raise missing_error(reader, options, missing[0])
    if not found:
        raise ConfigError(
            f"rocketmq: no topic at {options.namesrv_addr} matches subscribePattern "
            f"{options.topic_pattern!r}"
            if options.topic_pattern
            else f"rocketmq: no queue of {', '.join(options.topics)} can be read: "
            "is the topic's read permission off, or its broker down?"
        )
    return found


def missing_error(
    reader: BlockingReader, options: ReadOptions, what: str | MessageQueue
) -> ConfigError:
    """One line about a topic or queue that is not there, with the nearest names that are."""
    if isinstance(what, MessageQueue):
        return ConfigError(
            f"rocketmq: option assign names {name_of(what)}, which does not exist or cannot be read"
        )
    try:
        hint = did_you_mean(what, reader.topics())
    except ClientError:
        hint = ""
    hint = hint or "; create it, or check option subscribe"
    return ConfigError(f"rocketmq: topic {what} does not exist at {options.namesrv_addr}{hint}")


def resolve(
    reader: BlockingReader,
    queues: Sequence[MessageQueue],
    position: Position,
    *,
    ends: Mapping[MessageQueue, int] | None = None,
) -> Offsets:
    """The offset of each queue.

    Args:
        ends: what counts as latest, where that is already known; otherwise the brokers are asked.

    Raises:
        ConfigError: offsets that people wrote name a queue that does not exist, or lack one (as with Spark's Kafka
            source, which wants each partition); a time has no message.
    """
    named = named_queues(position)
    _check_named(queues, named, position)
    times = _times_of(queues, position)
    offsets: Offsets = {}
    for queue in queues:
        if queue in times:
            continue
        offsets[queue] = named.get(queue, position.default)
        if offsets[queue] == GROUP:
            committed = reader.committed_offset(queue)
            offsets[queue] = EARLIEST if committed is None else committed
    # Ends are asked for once: two questions could see two ends of one queue.
    wanting_end = [q for q in queues if q in times or offsets[q] == LATEST]
    unknown = [queue for queue in wanting_end if ends is None or queue not in ends]
    latest = {**(ends or {}), **(reader.max_offsets(unknown) if unknown else {})}
    earliest = reader.min_offsets([q for q, offset in offsets.items() if offset == EARLIEST])
    for queue in queues:
        if queue in times:
            offsets[queue] = _by_time(reader, queue, times[queue], latest[queue], position)
        elif offsets[queue] == LATEST:
            offsets[queue] = latest[queue]
        elif offsets[queue] == EARLIEST:
            offsets[queue] = earliest[queue]
    return {queue: offsets[queue] for queue in queues}


def named_queues(position: Position) -> Offsets:
    """The queues that a position names, with offsets, EARLIEST or LATEST."""
    return {MessageQueue(*place[:3]): place[3] for place in position.queues}


def _check_named(
    queues: Collection[MessageQueue], named: Collection[MessageQueue], position: Position
) -> None:
    unknown = sorted(set(named).difference(queues))
    if unknown:
        raise ConfigError(
            f"rocketmq: offsets are given for {name_of(unknown[0])}, which does not exist"
        )
    lacking = sorted(set(queues).difference(named)) if named and not position.saved else []
    if lacking:
        starting = position.default == EARLIEST
        option = "startingOffsets" if starting else "endingOffsets"
        more = f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
        raise ConfigError(
            f"rocketmq: option {option} must give an offset for each queue; it lacks "
            f"{', '.join(map(name_of, lacking[:_MOST_NAMED]))}{more} "
            f"({'-2 is the earliest offset, ' if starting else ''}-1 {'' if starting else 'is '}the latest)"
        )


def _times_of(queues: Sequence[MessageQueue], position: Position) -> dict[MessageQueue, int]:
    """The time asked for, of each queue that has one: its own before its broker's before its topic's."""
    if position.timestamp_ms is not None:
        return dict.fromkeys(queues, position.timestamp_ms)
    by_place = {place[:3]: place[3] for place in position.times}
    found: dict[MessageQueue, int] = {}
    used = set()
    for queue in queues:
        for place in (
            (queue.topic, queue.broker_name, queue.queue_id),
            (queue.topic, queue.broker_name, -1),
            (queue.topic, "", -1),
        ):
            if place in by_place:
                used.add(place)
                found.setdefault(queue, by_place[place])
    unused = sorted(set(by_place) - used)
    if unused:
        topic, broker, queue_id = unused[0]
        where = (
            topic
            + (f" {broker}" if broker else "")
            + (f" queue {queue_id}" if queue_id >= 0 else "")
        )
        raise ConfigError(f"rocketmq: a time is given for {where}, which does not exist")
    return found


def _by_time(
    reader: BlockingReader, queue: MessageQueue, at_ms: int, latest: int, position: Position
) -> int:
    offset = reader.offset_by_time(queue, at_ms)
    if offset < latest:
        return offset
    if not position.latest_without_match:
        raise ConfigError(
            f"rocketmq: {name_of(queue)} has no message stored at {at_ms} or later; "
            "startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return latest


def check_available(
    reader: BlockingReader, start: Offsets, end: Offsets, *, fail_on_data_loss: bool
) -> Offsets:
    """The start of each queue that has something to read, moved up to what the broker still has, or DataLoss.

    A queue that is gone altogether is left out, or DataLoss.
    """
    work = [queue for queue in start if end[queue] > start[queue]]
    lowest = bounds_of(reader, work, fail_on_data_loss=fail_on_data_loss)
    found: Offsets = {}
    for queue in work:
        if queue not in lowest:
            continue
        low = lowest[queue]
        if start[queue] < low:
            report_data_loss(
                f"{name_of(queue)}: offset {start[queue]} is gone, the oldest is {low}; "
                "failOnDataLoss=false starts there",
                fail_on_data_loss,
            )
        found[queue] = max(start[queue], low)
    return found


def bounds_of(
    reader: BlockingReader, queues: Sequence[MessageQueue], *, fail_on_data_loss: bool
) -> Offsets:
    """The oldest offsets; queues that no name server knows any more are left out, or DataLoss."""
    try:
        return reader.min_offsets(queues)
    except RouteNotFound:
        pass
    found: Offsets = {}
    for queue in queues:
        try:
            found |= reader.min_offsets([queue])
        except RouteNotFound:
            report_data_loss(missing_queue_text(queue), fail_on_data_loss)
    return found


def missing_queue_text(queue: MessageQueue, offset: int = 0, end: int | None = None) -> str:
    """Return the words for a queue that was there before.

    Args:
        offset: up to where it was read.
        end: where it ended; None: nobody knows.
    """
    left = 0 if end is None else end - offset
    unread = f" with {left} messages that were not read" if left > 0 else ""
    return (
        f"{name_of(queue)} is gone{unread}: its broker is down, or the queue or its topic was removed, or taken out of "
        "the query; failOnDataLoss=false goes on without it"
    )


def report_data_loss(what: str, fail_on_data_loss: bool) -> None:
    """Data that was to be read is not there: an error, or a line in the log."""
    if fail_on_data_loss:
        raise DataLoss(f"rocketmq: {what}")
    log.warning("%s", what)


def name_of(queue: MessageQueue) -> str:
    """A queue in words."""
    return f"{queue.topic} {queue.broker_name} queue {queue.queue_id}"


# Patterns of topics that leave retries and dead letters out unless they name them. Pure.


_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)


def closed_pattern(pattern: str) -> str:
    """A pattern for `subscribePattern` that takes retries and dead letters only where `pattern` says their prefix."""
    closed = "".join(f"(?!{prefix})" for prefix in _PREFIXES if prefix not in pattern)
    return f"{closed}(?:{pattern})"


def why_left_out(topic: str, pattern: str) -> str:
    """Return the reason why `closed_pattern` and the source leave out a topic that `pattern` matches; "" when they do not."""
    if is_system_topic(topic):
        return "topics of the system are taken by --topics only"
    prefix = next((each for each in _PREFIXES if topic.startswith(each)), "")
    return f"the pattern does not say {prefix}" if prefix and prefix not in pattern else ""


# Detects that a topic was deleted and created again: by store time and log position of the message before an offset.
# An offset alone is not enough: a new topic of the same name gives the same offsets again. Messages that have expired, or that only a replica has, are not compared: what is unknown is no error.


_ANEW = "{name} was made anew since its offset {offset} was read (the message before it is another one); {what}"
_OLDER = (
    "{name} ends at {end}, before offset {offset} that was read, and its messages are older than those: was its "
    "store lost in part, or restored? {what}"
)
_REGROWN = "{name} lost messages before offset {offset} that was read, and has others there: was its store restored? {what}"


@dataclass(frozen=True, slots=True)
class Restart:
    """Offset at which a queue of another life is read on, and the reason, in words."""

    offset: int
    why: str


def lives_before(reader: BlockingReader, positions: Mapping[MessageQueue, int]) -> Lives:
    """`MS.POSITION` of the message before each offset; a queue is missing if no broker knows it. One round trip."""
    wanted = {queue: offset - 1 for queue, offset in positions.items() if offset > 0}
    found: Lives = {}
    for queue, data in (reader.messages_at(wanted) if wanted else {}).items():
        with contextlib.suppress(CorruptRecord):  # who reads it will say so
            record = decode_record(data, 0, False)
            if record.queue_offset == wanted[queue]:
                found[queue] = f"{record.store_timestamp_ms}.{record.physical_offset}"
    return found


def find_restarts(
    reader: BlockingReader, positions: Offsets, seen: Lives, ends: Offsets
) -> dict[MessageQueue, Restart]:
    """Queues whose message before the position is not the one that was seen there.

    Args:
        positions: of the queues to look at; each has an end and was seen.
    """
    reached = {queue: min(offset, ends[queue]) for queue, offset in positions.items()}
    now = lives_before(reader, reached)
    found: dict[MessageQueue, Restart] = {}
    for queue, life in now.items():
        position, end, name = positions[queue], ends[queue], name_of(queue)
        shorter = end < position
        if life == seen[queue]:
            continue
        if shorter and _stored_ms(life) <= _stored_ms(seen[queue]):
            what = "failOnDataLoss=false goes on with what comes there"
            why = _OLDER.format(name=name, end=end, offset=position, what=what)
            found[queue] = Restart(end, why)
            continue
        # Whatever is older than the message that was seen was read before it.
        low = bounds_of(reader, [queue], fail_on_data_loss=False).get(queue, 0)
        after = reader.offset_by_time(queue, _stored_ms(seen[queue]) + 1)
        resume = min(max(low, after), position)
        why, what = _ANEW, "failOnDataLoss=false reads it from its beginning"
        if resume > low:
            why, what = _REGROWN, f"failOnDataLoss=false reads on from offset {resume}"
        found[queue] = Restart(resume, why.format(name=name, offset=position, what=what))
    return found


def check_lives(reader: BlockingReader, positions: Offsets, seen: Lives, why: str) -> None:
    """The messages before these positions must be those that were seen.

    Args:
        why: what to do, for the error.

    Raises:
        DataLoss: a topic was created again.
    """
    known = {queue: positions[queue] for queue in seen if queue in positions}
    for queue, life in sorted(lives_before(reader, known).items()):
        if life != seen[queue]:
            report_data_loss(_ANEW.format(name=name_of(queue), offset=known[queue], what=why), True)


def suspects(positions: Offsets, seen: Lives, ends: Offsets, *, all_queues: bool) -> Offsets:
    """Queues to compare: all of them at a start, later those that have moved."""
    return {
        queue: positions[queue]
        for queue in seen
        if queue in positions and queue in ends and (all_queues or ends[queue] != positions[queue])
    }


def _stored_ms(life: str) -> int:
    return int(life.partition(".")[0])
