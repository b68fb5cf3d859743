"""What a broker still has to deliver: unread messages of groups, delayed ones, open transactions, popped ones."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from roquette.admin.cluster import cluster_info, system_names
from roquette.client import calls
from roquette.client.operations import Answer, Operation, ask, ask_all
from roquette.client.operator_calls import delay_progress, readers_of, timer_metrics, topic_configs
from roquette.errors import BrokerError
from roquette.message.message import unread
from roquette.message.names import (
    DLQ_PREFIX,
    REVIVE_LOG_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    is_system_topic,
    is_users_group,
)
from roquette.wire.bodies import ConsumerConnection
from roquette.wire.bodies.progress import TopicOffset

T = TypeVar("T")

Ends = dict[str, dict[int, TopicOffset]]
"""By topic and queue: its ends on one broker."""

Places = dict[tuple[str, str], dict[int, int]]
"""By group and topic: where each queue goes on."""

TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_BROADCASTING: Final = "BROADCASTING"


class LeftRow(msgspec.Struct, frozen=True):
    """Messages that a broker still holds for somebody.

    Attributes:
        kind: unread (of a group), delayed, timed, open (half messages) or popped (not yet acknowledged).
        group: who is to get them; "" if that is not known yet.
        count: messages; of timed, open and popped ones at most as many.
    """

    kind: str
    group: str
    topic: str
    queue: int
    count: int


class Left(msgspec.Struct, frozen=True):
    """What is left on a broker.

    Attributes:
        rows: what has to go before the broker may.
        stays: what nobody waits for: dead letters, and topics that no group reads.
        unknown: what a broker cannot tell.
    """

    rows: list[LeftRow]
    stays: list[LeftRow]
    unknown: list[str]


class Holdings(msgspec.Struct, frozen=True):
    """One look at a broker: its queues and where every group is in them.

    Attributes:
        places: where groups go on, those of the system, too.
        pairs: (group, topic) of the groups that read.
        online: the members of each group that is connected; of a look at a few topics, of their groups.
        broadcasting: groups that keep their offsets at their members.
        own: topics named like clusters and brokers; of a look at a few topics, none.
        timed: in the timer. by_topic: of them, by topic. entering: on the way into it, of any topic.
    """

    ends: Ends
    places: Places
    pairs: set[tuple[str, str]]
    delays: dict[int, int]
    online: dict[str, ConsumerConnection]
    broadcasting: list[str]
    own: set[str]
    timed: int = 0
    by_topic: dict[str, int] = {}
    entering: int = 0


def look_at(address: str, topics: Sequence[str] | None = None) -> Operation[Holdings]:
    """Look at a broker, or at a few topics of it; raises ClientError when it does not answer.

    The ends are asked after the groups' places: what is read meanwhile counts as left, never the other way round.
    """
    places = yield from ask(address, calls.committed_offsets())
    if topics is None:
        groups = set((yield from ask(address, calls.groups_of_broker())))
    else:
        readers = yield from ask_all((address, readers_of(topic)) for topic in topics)
        groups = {group for answer in readers for group in _listed(answer)}
    named = sorted(filter(is_users_group, groups))
    connections = yield from ask_all((address, calls.group_connections(group)) for group in named)
    delays = (yield from ask(address, delay_progress())).offset_table
    table = yield from ask(address, calls.runtime_info())
    by_topic = yield from _by_topic(address)
    own: set[str] = set()
    if topics is None:
        topics = list((yield from ask(address, topic_configs())))
        own = system_names((yield from cluster_info()))
    wanted = sorted({*topics, SCHEDULE_TOPIC, TRANS_HALF_TOPIC})
    answers = yield from ask_all((address, calls.topic_stats(topic)) for topic in wanted)
    ends = {
        topic: {queue.queue_id: at for queue, at in _listed(answer)}
        for topic, answer in zip(wanted, answers, strict=True)
    }
    online = {
        group: answer.value
        for group, answer in zip(named, connections, strict=True)
        if answer.value is not None  # else no member is there
    }
    pairs, broadcasting = _readers(online, places)
    # The wheel counts a recall as a message less, also when it takes none away.
    timed = max(int(table.get("timerCongestNum", "0")), sum(by_topic.values()))
    entering = int(table.get("timerOffsetBehind", "0"))
    return Holdings(
        ends, places, pairs, delays, online, broadcasting, own, timed, by_topic, entering
    )


def _by_topic(address: str) -> Operation[dict[str, int]]:
    try:
        found = yield from ask(address, timer_metrics())
    except BrokerError:  # it has no timers
        return {}
    return {topic: count for topic, count in found.items() if count > 0}


def _listed(answer: Answer[list[T]]) -> list[T]:
    """What is said of a topic; nothing when it is gone meanwhile."""
    return [] if isinstance(answer.error, BrokerError) else answer.get()


def _readers(
    online: dict[str, ConsumerConnection], places: Places
) -> tuple[set[tuple[str, str]], list[str]]:
    pairs = {pair for pair in places if is_users_group(pair[0])}
    broadcasting: list[str] = []
    for group, members in online.items():
        if members.message_model == _BROADCASTING:
            broadcasting.append(group)
        else:
            pairs |= {(group, topic) for topic in members.subscription_table}
    return {pair for pair in pairs if pair[0] not in broadcasting}, broadcasting


def left_in(found: Holdings, ignored: Iterable[str] = ()) -> Left:
    """What `look_at` found, as rows; `ignored` groups are not waited for."""
    rows = [*_unread(found, set(ignored)), *_of_the_system(found)]
    read = {topic for _, topic in found.pairs}
    stays = [
        LeftRow("dead" if topic.startswith(DLQ_PREFIX) else "unread", "", topic, queue, count)
        for topic, queues in sorted(found.ends.items())
        if topic not in read and topic not in found.own and not is_system_topic(topic)
        for queue, at in sorted(queues.items())
        if (count := unread(None, at.min_offset, at.max_offset))
    ]
    unknown = [
        f"group {group} broadcasts: its members keep their offsets themselves"
        for group in found.broadcasting
    ]
    return Left(rows, stays, unknown)


def _unread(found: Holdings, ignored: set[str]) -> list[LeftRow]:
    rows: list[LeftRow] = []
    for group, topic in sorted(found.pairs):
        if group in ignored or is_system_topic(topic):
            continue
        places = found.places.get((group, topic), {})
        for queue, at in sorted(found.ends.get(topic, {}).items()):
            if count := unread(places.get(queue), at.min_offset, at.max_offset):
                rows.append(LeftRow("unread", group, topic, queue, count))
    return rows


def _of_the_system(found: Holdings) -> list[LeftRow]:
    rows = [
        LeftRow("delayed", "", SCHEDULE_TOPIC, queue, count)
        for queue, at in sorted(found.ends[SCHEDULE_TOPIC].items())
        if (count := unread(found.delays.get(queue + 1), at.min_offset, at.max_offset))
    ]
    if (count := found.timed + found.entering) > 0:
        rows.append(LeftRow("timed", "", "", -1, count))
    rows += _behind(found, "open", TRANS_HALF_TOPIC, TRANS_GROUP)
    for topic in sorted(found.ends):
        if topic.startswith(REVIVE_LOG_PREFIX):
            rows += _behind(found, "popped", topic, REVIVE_GROUP)
    return rows


def _behind(found: Holdings, kind: str, topic: str, group: str) -> list[LeftRow]:
    """What a group of the broker's own has not ended yet; that of POP commits the last offset that is done."""
    places = found.places.get((group, topic), {})
    done = {queue: place + (group == REVIVE_GROUP) for queue, place in places.items()}
    return [
        LeftRow(kind, "", topic, queue, count)
        for queue, at in sorted(found.ends.get(topic, {}).items())
        if (count := unread(done.get(queue), at.min_offset, at.max_offset))
    ]
