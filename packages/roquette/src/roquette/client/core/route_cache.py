"""From a topic's route to queues: which may be written, which read, and where their brokers are. Pure."""

from collections.abc import Sequence

from roquette.client.core.bounds import check_queues
from roquette.message.message import MessageQueue
from roquette.message.names import PERM_READ, PERM_WRITE
from roquette.wire.bodies import MASTER_ID, TopicRouteData, canonical


class TopicRoute:
    """One topic's route, worked out once per change (MQClientInstance.topicRouteData2Topic*Info).

    Raises:
        RemoteProtocolError: it names more queues than any topic has.

    Attributes:
        publish: queues that take messages: their broker has a master and write permission.
        subscribe: queues that can be read, sorted.
        addresses: broker name -> broker id -> address.
    """

    __slots__ = ("addresses", "data", "ordered", "publish", "subscribe", "topic")

    def __init__(self, topic: str, data: TopicRouteData) -> None:
        self.topic = topic
        self.data = data
        self.addresses = {
            broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas
        }
        self.ordered = bool(data.order_topic_conf)
        check_queues(topic, (queue.write_queue_nums for queue in data.queue_datas))
        check_queues(topic, (queue.read_queue_nums for queue in data.queue_datas))
        self.publish = self._ordered_queues() if data.order_topic_conf else self._writable()
        self.subscribe = sorted(
            MessageQueue(topic, queue.broker_name, number)
            for queue in data.queue_datas
            if queue.perm & PERM_READ
            for number in range(queue.read_queue_nums)
        )

    def _writable(self) -> list[MessageQueue]:
        return [
            MessageQueue(self.topic, queue.broker_name, number)
            for queue in sorted(self.data.queue_datas, key=lambda q: q.broker_name)
            if queue.perm & PERM_WRITE and MASTER_ID in self.addresses.get(queue.broker_name, {})
            for number in range(queue.write_queue_nums)
        ]

    def _ordered_queues(self) -> list[MessageQueue]:
        """orderTopicConf `broker:count;broker:count` replaces the queues of the route."""
        counts: list[tuple[str, int]] = []
        for word in (self.data.order_topic_conf or "").split(";"):
            name, _, count = word.partition(":")
            if name and count.isdecimal():
                counts.append((name, int(count[:19])))
        check_queues(self.topic, (count for _, count in counts))
        return ordered_queues(self.topic, counts)

    def master_of(self, broker_name: str) -> str | None:
        """Address of a broker name's master, if it has one."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    def address_for_read(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Address of the wanted member, else of any other."""
        members = self.addresses.get(broker_name)
        if not members:
            return None
        return members.get(broker_id) or members[min(members)]

    def has_replicas(self, broker_name: str) -> bool:
        """Return True when another member of a broker name may become, or becomes now, its master."""
        members = self.addresses.get(broker_name, {})
        return len(members) > 1 or (bool(members) and MASTER_ID not in members)

    def replica_of(self, broker_name: str) -> int:
        """The smallest id of a member that is not the master; the master's when there is none."""
        return min((i for i in self.addresses.get(broker_name, {}) if i), default=MASTER_ID)

    def names_other_master(self, known: "TopicRoute | None") -> bool:
        """Return True when the route names a master that `known` does not."""
        return known is None or any(
            master is not None and master != known.master_of(name)
            for name, master in ((name, self.master_of(name)) for name in self.addresses)
        )

    def same_as(self, other: "TopicRoute") -> bool:
        """True when both say the same, whatever the order of their parts."""
        return canonical(self.data) == canonical(other.data)


def ordered_queues(topic: str, counts: Sequence[tuple[str, int]]) -> list[MessageQueue]:
    """Queues 0 .. count-1 of each broker, in the given order: a list that no change of the route changes."""
    return [MessageQueue(topic, name, number) for name, count in counts for number in range(count)]


def route_from_template(topic: str, template: TopicRouteData, default_queues: int) -> TopicRoute:
    """The route of a topic that does not exist yet: TBW102's, with at most `default_queues` queues (document A)."""
    queues = [
        type(queue)(
            broker_name=queue.broker_name,
            read_queue_nums=min(default_queues, queue.read_queue_nums),
            write_queue_nums=min(default_queues, queue.write_queue_nums),
            perm=queue.perm,
            topic_sys_flag=queue.topic_sys_flag,
        )
        for queue in template.queue_datas
    ]
    return TopicRoute(topic, TopicRouteData(queue_datas=queues, broker_datas=template.broker_datas))
