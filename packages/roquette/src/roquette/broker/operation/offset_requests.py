"""Offsets by request: committed (14, 15), by time (29), ends of a queue (30, 31), age of its start (32).

Apache: ConsumerManageProcessor, AdminBrokerProcessor.
"""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane
from roquette.broker.floor.tables.attributes import COMMIT_BACKWARD
from roquette.broker.floor.tables.offsets import MAX_QUEUE_ID
from roquette.errors import Refused
from roquette.remoting.outcomes import Outcome, Reply
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.store.format.results import Found
from roquette.store.queue_read import ReadRequest
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)


class OffsetProcessor(Feature):
    """Serves offsets; unknown topics and queues have the offset 0, as in Apache."""

    def __init__(self, core: BrokerCore) -> None:
        self._saved = core.saved
        self._store = core.store
        self._topics = core.tables.topics
        self._groups = core.tables.groups
        self._offsets = core.tables.offsets
        self._backward = core.tables.backward_commits

    def rows(self) -> list[Row]:
        """What it serves."""
        code, lane, nothing = RequestCode, Lane.ADMIN, Promise.NOTHING
        return [
            row(
                code.QUERY_CONSUMER_OFFSET,
                self.query_consumer_offset,
                QueryConsumerOffsetRequestHeader,
                Lane.CONSUMER_MANAGER,
                nothing,
            ),
            row(
                code.UPDATE_CONSUMER_OFFSET,
                self.update_consumer_offset,
                UpdateConsumerOffsetRequestHeader,
                Lane.CONSUMER_MANAGER,
                Promise.JOURNAL,
            ),
            row(
                code.SEARCH_OFFSET_BY_TIMESTAMP,
                self.search_offset,
                SearchOffsetRequestHeader,
                lane,
                nothing,
            ),
            row(code.GET_MAX_OFFSET, self.max_offset, GetMaxOffsetRequestHeader, lane, nothing),
            row(code.GET_MIN_OFFSET, self.min_offset, GetMinOffsetRequestHeader, lane, nothing),
            row(
                code.GET_EARLIEST_MSG_STORETIME,
                self.earliest_store_time,
                GetEarliestMsgStoretimeRequestHeader,
                lane,
                nothing,
            ),
        ]

    def query_consumer_offset(
        self, ctx: RequestContext, header: QueryConsumerOffsetRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_CONSUMER_OFFSET. A group that never committed starts at 0 while 0 is still fresh."""
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return _offset(offset)
        if header.set_zero_if_not_found is False:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        first = self._store.begin_read(ReadRequest(header.topic, header.queue_id, 0, 1, 1))
        if isinstance(first, Found) and first.count and first.min_offset <= 0:
            return _offset(0)
        raise Refused(
            ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
        )

    def update_consumer_offset(
        self, ctx: RequestContext, header: UpdateConsumerOffsetRequestHeader, body: bytes
    ) -> Outcome:
        """UPDATE_CONSUMER_OFFSET. A smaller offset than the committed one is accepted."""
        group, topic = header.consumer_group, header.topic
        if self._groups.known(group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.find(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= header.queue_id <= MAX_QUEUE_ID:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"QueueId is {header.queue_id}, topic is {topic}"
            )
        if self._offsets.unsafe is not None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"no offset is committed now: the journal of offsets cannot be written ({self._offsets.unsafe})",
            )
        queue_id, offset = header.queue_id, header.commit_offset
        if self._offsets.has_reset(group, topic, queue_id):
            return Reply(remark="Offset has been previously reset")
        if not self._offsets.commit(group, topic, queue_id, offset, ctx.now_ms, ctx.peer.remote):
            why = f"group[{group}] has the attribute {COMMIT_BACKWARD}=REFUSE"
            if self._backward.never:
                why = "a replica takes no smaller one"
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"offset {offset} is behind the committed one, and {why}: topic[{topic}] "
                f"queueId[{queue_id}] stays at {self._offsets.query(group, topic, queue_id)}",
            )
        return self._saved.committed(Reply())

    def search_offset(
        self, ctx: RequestContext, header: SearchOffsetRequestHeader, body: bytes
    ) -> Reply:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message stored at or after a time, or the last before it."""
        upper = (header.boundary_type or "lower").lower() == "upper"
        return _offset(
            self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        )

    def max_offset(
        self, ctx: RequestContext, header: GetMaxOffsetRequestHeader, body: bytes
    ) -> Reply:
        """GET_MAX_OFFSET."""
        return _offset(self._store.max_offset(header.topic, header.queue_id))

    def min_offset(
        self, ctx: RequestContext, header: GetMinOffsetRequestHeader, body: bytes
    ) -> Reply:
        """GET_MIN_OFFSET."""
        return _offset(self._store.min_offset(header.topic, header.queue_id))

    def earliest_store_time(
        self, ctx: RequestContext, header: GetEarliestMsgStoretimeRequestHeader, body: bytes
    ) -> Reply:
        """GET_EARLIEST_MSG_STORETIME; -1 for an empty queue."""
        first = self._store.min_offset(header.topic, header.queue_id)
        timestamp_ms = self._store.store_time(header.topic, header.queue_id, first)
        return Reply(b'{"timestamp":"%d"}' % timestamp_ms)


def _offset(offset: int) -> Reply:
    return Reply(b'{"offset":"%d"}' % offset)
