"""Messages that a broker has still to give to a group of one topic: unread, coming again, delayed, timed, popped and not done.

`admin.left` asks brokers the same from outside, for all groups at once, and errs to the side of waiting; this looks into
the broker, for one group and topic. Open transactions count there, since a broker that goes must wait for them, and not
here: a half message is not sent yet.
"""

from roquette.broker.pop.feature import PopFeature
from roquette.broker.service import Broker
from roquette.broker.timers.delay_feature import DelayFeature
from roquette.message import properties as names
from roquette.message.message import ReceivedMessage, unread
from roquette.message.names import SCHEDULE_TOPIC, TIMER_TOPIC, pop_retry_topic, retry_topic
from roquette_testing.seeds import stored


def still_to_come(broker: Broker, topic: str, group: str) -> int:
    """Count these messages; for a moment after a pop or its acknowledgement, one more for each."""
    topics = {
        topic,
        retry_topic(group),
        *(pop_retry_topic(topic, group, v2=bool(v2)) for v2 in (0, 1)),
    }
    unread = sum(_unread(broker, each, topic, group) for each in topics)
    waiting = _delayed(broker, topic, topics) + _timed(broker, topic)
    return unread + waiting + _popped(broker, topics, group)


def _is_of(message: ReceivedMessage, topic: str) -> bool:
    """Return True if it was sent to the topic: a group's retries are of all its topics, and name theirs."""
    return message.properties.get(names.RETRY_TOPIC, topic) == topic


def _unread(broker: Broker, name: str, topic: str, group: str) -> int:
    store, offsets = broker.store, broker.tables.offsets
    begins = {queue: offsets.query(group, name, queue) for queue in store.queues_of(name)}
    if name == retry_topic(group):
        return sum(_is_of(message, topic) for message in stored(broker, name, begins))
    return sum(
        unread(begin, store.min_offset(name, queue), store.max_offset(name, queue))
        for queue, begin in begins.items()
    )


def _delayed(broker: Broker, topic: str, topics: set[str]) -> int:
    """In the delay levels, where what comes again waits, too."""
    levels = broker.feature(DelayFeature).levels.progress()
    begins = {level - 1: done for level, (done, _) in levels.items()}
    return sum(
        message.properties.get(names.REAL_TOPIC) in topics and _is_of(message, topic)
        for message in stored(broker, SCHEDULE_TOPIC, begins)
    )


def _timed(broker: Broker, topic: str) -> int:
    """In the timer, or on the way into it: neither delivered nor recalled. What waits for long stands there again."""
    waiting: set[str] = set()
    recalled: set[str] = set()
    for message in stored(broker, TIMER_TOPIC):
        if message.properties.get(names.REAL_TOPIC) == topic:
            recall = names.TIMER_DEL_UNIQKEY in message.properties
            (recalled if recall else waiting).add(message.properties.get(names.UNIQ_KEY, ""))
    if waiting := waiting - recalled:
        waiting -= {
            message.properties.get(names.UNIQ_KEY, "")
            for message in stored(broker, topic)
            if names.TIMER_DEQUEUE_MS in message.properties
        }
    return len(waiting)


def _popped(broker: Broker, topics: set[str], group: str) -> int:
    """Handed out and not acknowledged, and what was not looked at yet."""
    reviver = broker.feature(PopFeature).pop.reviver
    return reviver.behind() + sum(
        len(point.unacknowledged())
        for point in reviver.in_flight()
        if point.topic in topics and point.group == group
    )
