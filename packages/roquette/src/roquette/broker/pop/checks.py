"""The checks that pop, peek, notification and polling info share, in Apache's order and words."""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.tables.topics import Topic
from roquette.errors import Refused
from roquette.message.names import PERM_READ
from roquette.remoting.request import RequestContext
from roquette.wire.codes import FAQ, ResponseCode


class PopChecks:
    """Checks that a request must pass before a queue is looked at.

    Attributes:
        broker_address: the advertised host, as refusals name it.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._topics = core.tables.topics
        self._groups = core.tables.groups
        self.broker_address = core.address.host

    def broker(self, what: str, ext: bytes) -> None:
        """The broker may be read. `what` is what the refusal calls the request."""
        if not self._live.current.broker_permission & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.broker_address}] {what} is forbidden",
                ext,
            )

    def topic_and_group(
        self, ctx: RequestContext, topic_name: str, queue_id: int, group_name: str, ext: bytes
    ) -> Topic:
        """Topic and group exist and may be read, and the queue is one (below 0: any)."""
        topic = self._known(topic_name, ext)
        if not topic.perm & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic_name}] peeking message is forbidden",
                ext,
            )
        if queue_id >= topic.read_queues:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, bad_queue(ctx, topic_name, queue_id, topic), ext
            )
        group = self._groups.find(group_name, ctx.now_ms)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist, {FAQ}",
                ext,
            )
        if not group.consume_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}", ext
            )
        return topic

    def _known(self, topic_name: str, ext: bytes) -> Topic:
        topic = self._topics.find(topic_name)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic_name}] not exist, apply first please! {FAQ}",
                ext,
            )
        return topic

    def acknowledged_queue(
        self, ctx: RequestContext, topic_name: str, queue_id: int, ext: bytes = b""
    ) -> Topic:
        """The queue a receipt names is one of ours."""
        topic = self._known(topic_name, ext)
        if not 0 <= queue_id < topic.read_queues:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, bad_queue(ctx, topic_name, queue_id, topic), ext
            )
        return topic


def bad_queue(ctx: RequestContext, topic_name: str, queue_id: int, topic: Topic) -> str:
    """Error text for an out-of-range queue id."""
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{ctx.peer.remote}]"
    )
