"""What a cluster is busy with: rates of topics and groups, from two looks. Pure."""

from collections import Counter

import msgspec

from roquette.admin.doctor.facts import Facts
from roquette.message.names import REPLY_TOPIC_SUFFIX, is_users_group


class TopRow(msgspec.Struct, frozen=True):
    """A topic, or a group in a topic.

    Attributes:
        in_per_s: messages that came to the topic. out_per_s: by how much the group's offsets moved, seeks too.
        lag: messages that the group has before it.
    """

    topic: str
    group: str
    in_per_s: float
    out_per_s: float
    lag: int


def busiest(before: Facts, now: Facts) -> list[TopRow]:
    """Topics with each of their groups: those first that have most to do, by rates, then by lag."""
    seconds = max((now.steady_ms - before.steady_ms) / 1000, 0.001)
    ends = {queue: at.max_offset for b in before.masters() for queue, at in b.queues.items()}
    places = {(at.group, at.queue): at.offset for at in before.positions()}
    came: Counter[str] = Counter()
    done: Counter[tuple[str, str]] = Counter()
    lag: Counter[tuple[str, str]] = Counter()
    for broker in now.masters():
        for queue, at in broker.queues.items():
            came[queue.topic] += at.max_offset - ends.get(queue, at.max_offset)
    for place in filter(lambda place: is_users_group(place.group), now.positions()):
        key = place.queue.topic, place.group
        done[key] += place.offset - places.get((place.group, place.queue), place.offset)
        lag[key] += place.lag
    read = {topic for topic, _ in lag} | {name for b in now.brokers for name in (b.name, b.cluster)}
    alone = [t for t in came if not (t in read or t.endswith(REPLY_TOPIC_SUFFIX))]
    rows = [
        TopRow(topic, group, came[topic] / seconds, done[topic, group] / seconds, lag[topic, group])
        for topic, group in [*lag, *((topic, "") for topic in alone)]
    ]
    return sorted(rows, key=lambda r: (-r.in_per_s - r.out_per_s, -r.lag, r.topic, r.group))
