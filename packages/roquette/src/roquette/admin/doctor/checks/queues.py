"""Checks of the queues of groups: who consumes each, and whether it gets on."""

from collections.abc import Iterable, Iterator
from typing import Final

from roquette.admin.cluster import span_words
from roquette.admin.doctor.checks.groups import (
    RECENT_MS,
    dead_queues,
    divides_queues,
    readable_queues,
    subscribed_topics,
)
from roquette.admin.doctor.examination import MIN_LAG
from roquette.admin.doctor.findings import Looks, Sign, change_setting, command
from roquette.admin.facts import About, ClusterFacts, GroupFacts, GroupPosition, whole
from roquette.base.options import counted
from roquette.message.message import MessageQueue, unread
from roquette.message.names import DLQ_PREFIX, is_users_group, pipeline_of_group
from roquette.wire.bodies import ProcessQueueInfo

SETTLED_MS: Final = 60_000  # a group whose members are younger may still divide its queues
STALL_S: Final = 30.0  # a handler that does not finish a message for so long is stuck
STUCK_MS: Final = 120_000
CATCH_UP_S: Final = 10.0
_NAMED: Final = 4


def queue_words(queues: Iterable[MessageQueue]) -> str:
    """The first of them, and how many more there are."""
    listed = [f"{queue.broker_name}/{queue.queue_id}" for queue in sorted(queues)]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def _positions(facts: ClusterFacts) -> dict[tuple[str, MessageQueue], GroupPosition]:
    return {(at.group, at.queue): at for at in facts.positions()}


def _settled(facts: ClusterFacts, group: GroupFacts) -> bool:
    """Return True when its members have been there long enough to have divided the queues."""
    started = [
        member.running.properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
        for member in group.members
        if member.running is not None
    ]
    return all(facts.at_ms - (whole(text) or facts.at_ms) > SETTLED_MS for text in started)


def _unassigned(facts: ClusterFacts, group: GroupFacts) -> set[MessageQueue]:
    """Queues of a group that no member has."""
    taken = {queue for member in group.members for queue in member.queues()}
    return {
        queue
        for topic in subscribed_topics(group)
        for queue in readable_queues(facts, topic)
        if queue not in taken and MessageQueue(topic, queue.broker_name, -1) not in taken
    }


def _waiting(looks: Looks, group: GroupFacts) -> dict[str, set[MessageQueue]]:
    """By topic, queues with messages that no member has: in both looks, or of a settled group."""
    if not divides_queues(group):
        return {}
    queues = _unassigned(looks.now, group)
    if looks.before is not None:
        earlier = next((each for each in looks.before.groups if each.group == group.group), None)
        if earlier is None or not divides_queues(earlier) or looks.seconds < STALL_S:
            return {}
        queues &= _unassigned(looks.before, earlier)
    elif not _settled(looks.now, group):
        return {}
    found: dict[str, set[MessageQueue]] = {}
    for queue, lag in _lags(looks.now, group.group, queues).items():
        if lag > 0:
            found.setdefault(queue.topic, set()).add(queue)
    return found


def _lags(facts: ClusterFacts, group: str, queues: set[MessageQueue]) -> dict[MessageQueue, int]:
    """Return how many messages wait for a group in each queue: all of them where it has no offset."""
    ends = {queue: e for b in facts.masters() for queue, e in b.queues.items() if queue in queues}
    found = {queue: unread(None, e.min_offset, e.max_offset) for queue, e in ends.items()}
    return found | {
        at.queue: at.lag for at in facts.positions() if at.group == group and at.queue in queues
    }


def _wait(facts: ClusterFacts, group: str, queues: set[MessageQueue]) -> str:
    return f"{counted(sum(_lags(facts, group, queues).values()), 'message')} waiting"


def unassigned(looks: Looks) -> Iterator[Sign]:
    """Queues with messages that no member of a group consumes."""
    for group in looks.now.groups:
        if any(member.orderly for member in group.members):
            continue  # theirs are locked
        for topic, queues in sorted(_waiting(looks, group).items()):
            yield Sign(
                About(group=group.group, topic=topic),
                f"{counted(len(queues), 'queue')} without a consumer among {counted(len(group.members), 'member')}: {queue_words(queues)}; "
                f"{_wait(looks.now, group.group, queues)}",
                "members disagree about who is in the group: equal client ids, different subscriptions, "
                "or a broker that some of them cannot reach",
                f"{command('group', 'show', group.group)} says who has what; restart the member that does not know the others",
            )


def locked(looks: Looks) -> Iterator[Sign]:
    """Queues of an orderly group that nobody got the lock of."""
    positions = _positions(looks.now)
    for group in looks.now.groups:
        if not any(member.orderly for member in group.members):
            continue
        found = _waiting(looks, group)
        if _settled(looks.now, group):
            for member in group.members:
                for queue, state in member.running.mq_table.items() if member.running else ():
                    at = positions.get((group.group, queue))
                    if member.orderly and not state.locked and at is not None and at.lag > 0:
                        found.setdefault(queue.topic, set()).add(queue)
        for topic, queues in sorted(found.items()):
            yield Sign(
                About(group=group.group, topic=topic),
                f"{counted(len(queues), 'queue')} locked by somebody else: {queue_words(queues)}; "
                f"{_wait(looks.now, group.group, queues)}",
                "messages are consumed in order under a lock, which a member that is gone, or still thinks it has "
                "the queue, holds: it ends 60 s after its last renewal",
                "stop the member that holds it (the broker's log names it), or wait for the minute",
            )


def _same(
    before: ClusterFacts | None, group: str, client_id: str, queue: MessageQueue
) -> int | None:
    """Return where a member was in a queue at the look before."""
    for each in before.groups if before is not None else ():
        for member in each.members if each.group == group else ():
            if member.client_id == client_id and member.running is not None:
                state = member.running.mq_table.get(queue)
                return None if state is None or not state.cached_msg_count else state.commit_offset
    return None


def stalled(looks: Looks) -> Iterator[Sign]:
    """Queues whose consumer has messages and does not finish them."""
    positions = _positions(looks.now)
    for group in looks.now.groups:
        for member in group.members:
            found: dict[str, dict[MessageQueue, str]] = {}
            for queue, state in member.running.mq_table.items() if member.running else ():
                at = positions.get((group.group, queue))
                if at is None or at.lag == 0:
                    continue
                earlier = _same(looks.before, group.group, member.client_id, queue)
                words = _stall(looks, state, earlier)
                if words:
                    found.setdefault(queue.topic, {})[queue] = words
            stacks = command("client", "stacks", group.group, "--client", member.client_id)
            for topic, queues in sorted(found.items()):
                yield Sign(
                    About(group=group.group, topic=topic),
                    f"{member.client_id}: {queue_words(queues)}: {next(iter(queues.values()))}; "
                    f"{_wait(looks.now, group.group, set(queues))}",
                    "the consumer holds messages and does not finish them: a handler that waits for ever, "
                    "or a process that stands still",
                    f"{stacks} shows where it is; restart it",
                )


def _stall(looks: Looks, state: ProcessQueueInfo, earlier: int | None) -> str:
    held = state.cached_msg_count
    if held and looks.seconds >= STALL_S and earlier == state.commit_offset:
        return f"at {earlier} for {looks.seconds:.0f} s with {counted(held, 'message')} in hand"
    idle_ms = looks.now.at_ms - state.last_consume_timestamp
    if held and state.last_consume_timestamp > 0 and idle_ms > STUCK_MS:
        return f"none begun for {idle_ms // 1000} s with {counted(held, 'message')} in hand"
    idle_ms = looks.now.at_ms - state.last_pull_timestamp
    if not held and state.last_pull_timestamp > 0 and idle_ms > STUCK_MS:
        return f"not pulled from for {idle_ms // 1000} s"
    return ""


def filtered_out(looks: Looks) -> Iterator[Sign]:
    """Topics of which a group's filter passes nothing that came lately."""
    for group in looks.now.groups:
        for topic in subscribed_topics(group):
            probes = [probe for probe in group.probes if probe.queue.topic == topic]
            if probes and not any(probe.passes for probe in probes):
                yield Sign(
                    About(group=group.group, topic=topic),
                    f"filter {probes[0].expression}: none of the newest {probes[0].looked_at} messages passes "
                    f"in each of {counted(len(probes), 'queue')}: {queue_words(probe.queue for probe in probes)}",
                    "producers give messages no such tag or property, or another member's subscription replaced this one: "
                    "the group's offsets move on, and it is given nothing",
                    f"compare the tags: {command('msg', 'tail', topic, '--offset', '-5')}; mend the expression or the producer",
                )


def illegal_offset(looks: Looks) -> Iterator[Sign]:
    """Offsets of groups outside of their queues."""
    beyond: dict[tuple[str, str], list[GroupPosition]] = {}
    for at in looks.now.positions():
        if is_users_group(at.group) and at.offset > at.ends.max_offset:
            beyond.setdefault((at.group, at.queue.topic), []).append(at)
    for (group, topic), positions in sorted(beyond.items()):
        first = min(positions, key=lambda at: at.queue)
        others = {at.queue.queue_id for at in positions} - {first.queue.queue_id}
        yield Sign(
            About(group=group, topic=topic),
            f"{counted(len(positions), 'queue')}: {queue_words(at.queue for at in positions)}; the first is at {first.offset}, "
            f"the queue ends at {first.ends.max_offset}",
            "the queue lost messages after they were consumed (a restored or lost store), or an offset was set by hand: "
            "new messages before this offset are not given to the group",
            f"{command('group', 'seek', group, '--topic', topic, '--queue', first.queue.queue_id, '--to', 'last')}"
            + (f", the same for queues {', '.join(map(str, sorted(others)))}" if others else ""),
        )


def behind_retention(looks: Looks) -> Iterator[Sign]:
    """Groups with members whose next messages are deleted already."""
    online = {group.group for group in looks.now.groups}
    lost: dict[tuple[str, str], list[GroupPosition]] = {}
    for at in looks.now.positions():
        if at.group in online and 0 <= at.offset < at.ends.min_offset:
            lost.setdefault((at.group, at.queue.topic), []).append(at)
    for (group, topic), positions in sorted(lost.items()):
        count = sum(at.ends.min_offset - at.offset for at in positions)
        broker = looks.now.master(positions[0].queue.broker_name)
        assert broker is not None  # it told the ends
        hours = whole(broker.settings.get("fileReservedTime", "")) or 72
        longer = change_setting(broker, "fileReservedTime", 2 * max(1, hours))
        yield Sign(
            About(group=group, topic=topic),
            f"{counted(count, 'message')} of {counted(len(positions), 'queue')} deleted before they were consumed: "
            f"{queue_words(at.queue for at in positions)}",
            "the group is slower than messages are deleted, or was away for longer than they are kept",
            f"{longer} keeps messages longer, until its next start (--all: everywhere); and add consumers",
        )


def _totals(facts: ClusterFacts) -> dict[tuple[str, str], tuple[int, int]]:
    """By (group, topic): lag, and the sum of its offsets."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for at in facts.positions():
        lag, done = found.get((at.group, at.queue.topic), (0, 0))
        found[at.group, at.queue.topic] = lag + at.lag, done + max(0, at.offset)
    return found


def lag_growing(looks: Looks) -> Iterator[Sign]:
    """Groups that consume less than is sent. A pipeline's that has not moved is between two batches, or RQ-D048's."""
    if looks.before is None or looks.seconds <= 0:
        return
    before, online = _totals(looks.before), {group.group: group for group in looks.now.groups}
    for (group, topic), (lag, done) in sorted(_totals(looks.now).items()):
        lag_before, done_before = before.get((group, topic), (lag, done))
        rate = (done - done_before) / looks.seconds
        grown = lag - lag_before
        if (
            not is_users_group(group)
            or grown < max(MIN_LAG, lag_before // 10)
            or lag < rate * CATCH_UP_S
            or (pipeline_of_group(group) and done == done_before)
        ):
            continue
        members = len(online[group].members) if group in online else 0
        yield Sign(
            About(group=group, topic=topic),
            f"{lag_before} to {lag} messages in {looks.seconds:.0f} s; {rate:.1f}/s consumed by {counted(members, 'member')}",
            "consumers are slower than producers"
            if members
            else "no consumer of the group is online",
            "add consumers, at most one for each queue, or more concurrency"
            if members
            else "give its pipeline larger batches, a shorter interval, or more cores"
            if pipeline_of_group(group)
            else f"start its consumers, or {command('group', 'delete', group)} if it is not used any more",
        )


# Checks of what waits for groups: out of reach, for who is away, and for longer than it is kept; dead letters, too.


AWAY_MS: Final = 600_000
"""A group may be away for so long: it is deployed, or a job that runs again and again."""
PIPELINE_AWAY_MS: Final = 26 * 3_600_000
"""A pipeline's: it may run once a day, and takes its time."""
_HOUR_MS: Final = 3_600_000


def out_of_reach(looks: Looks) -> Iterator[Sign]:
    """Messages in queues beyond those that consumers are told of."""
    topics: dict[str, list[GroupPosition]] = {}
    for (_, topic), positions in looks.now.behind().items():
        for at in positions:
            broker = looks.now.master(at.queue.broker_name)
            config = None if broker is None else broker.topics.get(topic)
            if config is not None and at.queue.queue_id >= config.read_queue_nums:
                topics.setdefault(topic, []).append(at)
    for topic, found in sorted(topics.items()):
        configs = [b.topics[topic] for b in looks.now.masters() if topic in b.topics]
        write = max(config.write_queue_nums for config in configs)
        read = max(write, *(at.queue.queue_id + 1 for at in found))
        yield Sign(
            About(topic=topic),
            f"{sum(at.lag for at in found)} messages wait in queues that nobody reads: "
            f"{queue_words({at.queue for at in found})}; of group {', '.join(sorted({at.group for at in found}))}",
            "the topic was given fewer queues to read while messages were in the others",
            f"{command('topic', 'resize', topic, '--queues', write, '--read-queues', read)}; "
            f"when they are read: {command('topic', 'resize', topic, '--queues', write, '--wait')}",
        )


def nobody_there(looks: Looks) -> Iterator[Sign]:
    """Groups without a member for which messages wait; in both looks at the same place, when there are two."""
    earlier = () if looks.before is None else looks.before.positions()
    before = {(at.group, at.queue): at.offset for at in earlier}
    for (group, topic), positions in looks.now.behind().items():
        waited_ms = max(broker.waits.get((group, topic), 0) for broker in looks.now.masters())
        moves = any(before.get((at.group, at.queue), at.offset) != at.offset for at in positions)
        pipeline = pipeline_of_group(group)
        most_ms = PIPELINE_AWAY_MS if pipeline else AWAY_MS
        if group not in looks.now.offline or waited_ms < most_ms or moves:
            continue
        why = "its processes are gone, or nobody uses it any more; or a pipeline commits to it, and has not run since"
        if pipeline:
            why = f"by its name a pipeline ({pipeline}) commits to it, and no run has since: it is not started any more, or fails"
        yield Sign(
            About(group=group, topic=topic),
            f"{sum(at.lag for at in positions)} messages wait in {len(positions)} queues, the first for "
            f"{span_words(waited_ms)}; no member is online",
            why,
            _with_or_without_them(group, topic, "last"),
        )


def deleted_unread(looks: Looks) -> Iterator[Sign]:
    """Groups without a member whose next messages are deleted; those with members are RQ-D033's."""
    lost: dict[tuple[str, str], int] = {}
    for at in looks.now.positions():
        if at.group in looks.now.offline and 0 <= at.offset < at.ends.min_offset:
            pair = at.group, at.queue.topic
            lost[pair] = lost.get(pair, 0) + at.ends.min_offset - at.offset
    for (group, topic), count in sorted(lost.items()):
        yield Sign(
            About(group=group, topic=topic),
            f"{count} messages were deleted before they were consumed; no member is online",
            "the group was away for longer than messages are kept (fileReservedTime), or the disk was full",
            _with_or_without_them(group, topic, "first"),
        )


def deleted_soon(looks: Looks) -> Iterator[Sign]:
    """Messages that wait, and of whose time two thirds are over."""
    for group, topic in looks.now.behind():
        for broker in looks.now.masters():
            kept_h = whole(broker.settings.get("fileReservedTime", "")) or 0
            waited_ms = broker.waits.get((group, topic), 0)
            if kept_h <= 0 or waited_ms * 3 < kept_h * 2 * _HOUR_MS:
                continue
            left = span_words(max(0, kept_h * _HOUR_MS - waited_ms))
            yield Sign(
                About(group=group, topic=topic),
                f"the first message that waits on {broker.name} has been there for {span_words(waited_ms)}, and may be "
                f"deleted in {left} (fileReservedTime={kept_h})",
                "the group is away, or slower than messages are deleted",
                f"{change_setting(broker, 'fileReservedTime', kept_h * 3)}; and "
                + (
                    "run its pipeline, which goes on from its checkpoint"
                    if pipeline_of_group(group)
                    else f"add consumers, after a look at those there are: {command('group', 'show', group)}"
                ),
            )


def dead_unseen(looks: Looks) -> Iterator[Sign]:
    """Dead letters that nobody has read or noted as seen; those that come now are RQ-D017's, of groups that are gone RQ-D007's."""
    seen: dict[tuple[str, str, int], int] = {}
    for broker in looks.now.masters():
        for (_, topic), places in broker.offsets.items():
            for queue_id, place in places.items() if topic.startswith(DLQ_PREFIX) else ():
                key = topic, broker.name, queue_id
                seen[key] = max(seen.get(key, 0), place)
    known = {group for broker in looks.now.masters() for group in broker.groups}
    found: dict[str, list[tuple[int, int]]] = {}
    for queue, ends in dead_queues(looks.now).items():
        read_to = seen.get((queue.topic, queue.broker_name, queue.queue_id))
        if count := unread(read_to, ends.min_offset, ends.max_offset):
            found.setdefault(queue.topic, []).append((count, ends.last_update_timestamp))
    for topic, counts in sorted(found.items()):
        group = topic.removeprefix(DLQ_PREFIX)
        age_ms = looks.now.at_ms - max(at_ms for _, at_ms in counts)
        if group not in known or age_ms < RECENT_MS:
            continue
        yield Sign(
            About(group=group),
            f"{sum(count for count, _ in counts)} dead letters that nobody has read; the last came {span_words(age_ms)} ago",
            "its handlers failed for these messages as often as they may be tried again, and nobody looked",
            f"{command('dlq', 'ls', group, '--seen')}; to send them again: {command('dlq', 'resend', group)}; "
            f"to delete them: {command('dlq', 'purge', group)}",
        )


def _with_or_without_them(group: str, topic: str, place: str) -> str:
    """How the group goes on, or is left without its messages: a pipeline does not go on from the group's places."""
    delete = command("group", "delete", group)
    if pipeline_of_group(group):
        return (
            f"run its pipeline, which goes on from its checkpoint; if its tables are gone: {delete}"
        )
    seek = command("group", "seek", group, "--topic", topic, "--to", place)
    return f"start its consumers, or run its pipeline; without them: {seek}; or for ever: {delete}"
