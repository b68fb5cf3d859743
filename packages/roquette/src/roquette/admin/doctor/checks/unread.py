"""Checks of what waits for groups: out of reach, for who is away, and for longer than it is kept; dead letters, too."""

from collections.abc import Iterator
from typing import Final

from roquette.admin.cluster import span_words
from roquette.admin.doctor.checks.groups import RECENT_MS, dead_queues
from roquette.admin.doctor.checks.queues import queue_words
from roquette.admin.doctor.findings import Looks, Sign, change_setting, command
from roquette.admin.facts import GroupPosition, whole
from roquette.message.message import unread
from roquette.message.names import DLQ_PREFIX

AWAY_MS: Final = 600_000
"""A group may be away for so long: it is deployed, or a job that runs again and again."""
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
            f"topic {topic}",
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
        if group not in looks.now.offline or waited_ms < AWAY_MS or moves:
            continue
        yield Sign(
            f"group {group}, topic {topic}",
            f"{sum(at.lag for at in positions)} messages wait in {len(positions)} queues, the first for "
            f"{span_words(waited_ms)}; no member is online",
            "its processes are gone, or nobody uses it any more",
            f"start its consumers; {_without_them(group, topic, 'last')}",
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
            f"group {group}, topic {topic}",
            f"{count} messages were deleted before they were consumed; no member is online",
            "the group was away for longer than messages are kept (fileReservedTime), or the disk was full",
            f"start its consumers, which go on with what is left; {_without_them(group, topic, 'first')}",
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
                f"group {group}, topic {topic}",
                f"the first message that waits on {broker.name} has been there for {span_words(waited_ms)}, and may be "
                f"deleted in {left} (fileReservedTime={kept_h})",
                "the group is away, or slower than messages are deleted",
                f"{change_setting(broker, 'fileReservedTime', kept_h * 3)}; "
                f"and add consumers, after a look at those there are: {command('group', 'show', group)}",
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
            f"group {group}",
            f"{sum(count for count, _ in counts)} dead letters that nobody has read; the last came {span_words(age_ms)} ago",
            "its handlers failed for these messages as often as they may be tried again, and nobody looked",
            f"{command('dlq', 'ls', group, '--seen')}; to send them again: {command('dlq', 'resend', group)}; "
            f"to delete them: {command('dlq', 'purge', group)}",
        )


def _without_them(group: str, topic: str, place: str) -> str:
    seek = command("group", "seek", group, "--topic", topic, "--to", place)
    return f"without them: {seek}; or for ever: {command('group', 'delete', group)}"
