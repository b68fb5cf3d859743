"""Answers to what brokers ask a client: running info (307), its offsets (221), to continue elsewhere (220), and what else they may want to know."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from roquette.client.core.process_queue import ConsumeRates, ProcessQueue
from roquette.errors import CorruptRecord, Refused, RemoteProtocolError
from roquette.message.message import MessageQueue, ReceivedMessage, received
from roquette.message.names import RETRY_PREFIX
from roquette.message.record import decode_records
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Silent
from roquette.wire.bodies import (
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
    SubscriptionData,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from roquette.wire.json_body import decode_body, encode_body

# Requests of brokers to a client: running info (307), its offsets (221), to continue elsewhere (220), one message (309).
# Apache: ClientRemotingProcessor, MQClientInstance; refusals carry their texts.


log = logging.getLogger("roquette.client")


class InspectableConsumer(Protocol):
    """Consumer as operators ask it."""

    def running_info(self, jstack: bool) -> Outcome:
        """Answer to GET_CONSUMER_RUNNING_INFO."""
        ...

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets it has reached in its queues of a topic."""
        ...

    def continue_from(self, offsets: dict[MessageQueue, int]) -> None:
        """Drop what it holds of these queues and go on from the offsets."""
        ...

    def consume_directly(self, message: ReceivedMessage) -> Outcome:
        """Process one message now, whatever its queue is at."""
        ...


class OperatorRequests:
    """The processors of one session. `find` gives the consumer of a group."""

    def __init__(self, find: Callable[[str], InspectableConsumer | None]) -> None:
        self._find = find

    def rows(self) -> list[Row]:
        """Their places in the table of what this client serves."""
        code = RequestCode
        return [
            Row(
                code.GET_CONSUMER_RUNNING_INFO,
                self.running_info,
                GetConsumerRunningInfoRequestHeader,
                0,
            ),
            Row(
                code.GET_CONSUMER_STATUS_FROM_CLIENT, self.status, GetConsumerStatusRequestHeader, 0
            ),
            Row(code.RESET_CONSUMER_CLIENT_OFFSET, self.reset, ResetOffsetRequestHeader, 0),
            Row(
                code.CONSUME_MESSAGE_DIRECTLY,
                self.consume,
                ConsumeMessageDirectlyResultRequestHeader,
                0,
            ),
        ]

    def _consumer_of(self, group: str) -> InspectableConsumer:
        consumer = self._find(group)
        if consumer is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        return consumer

    def running_info(
        self, ctx: RequestContext, header: GetConsumerRunningInfoRequestHeader, body: bytes
    ) -> Outcome:
        """GET_CONSUMER_RUNNING_INFO."""
        return self._consumer_of(header.consumer_group).running_info(header.jstack_enable)

    def status(
        self, ctx: RequestContext, header: GetConsumerStatusRequestHeader, body: bytes
    ) -> Outcome:
        """GET_CONSUMER_STATUS_FROM_CLIENT; a group that is not here has no offsets."""
        consumer = self._find(header.group)
        offsets = {} if consumer is None else consumer.offsets_of(header.topic)
        return Reply(b"", encode_body(GetConsumerStatusBody(message_queue_table=offsets)))

    def reset(self, ctx: RequestContext, header: ResetOffsetRequestHeader, body: bytes) -> Outcome:
        """RESET_CONSUMER_CLIENT_OFFSET: one way."""
        consumer = self._find(header.group)
        try:
            table = decode_body(ResetOffsetBody, body).offset_table
        except RemoteProtocolError as error:
            log.warning("reset of offsets cannot be read group=%s error=%s", header.group, error)
            return Silent()
        log.info(
            "reset of offsets asked by=%s group=%s topic=%s queues=%d",
            ctx.peer.remote,
            header.group,
            header.topic,
            len(table),
        )
        if consumer is not None:
            consumer.continue_from({q: o for q, o in table.items() if q.topic == header.topic})
        return Silent()

    def consume(
        self,
        ctx: RequestContext,
        header: ConsumeMessageDirectlyResultRequestHeader,
        body: bytes,
    ) -> Outcome:
        """CONSUME_MESSAGE_DIRECTLY."""
        consumer = self._consumer_of(header.consumer_group)
        try:
            (record,) = decode_records(body)
            message = received(record, header.broker_name or "")
        except (CorruptRecord, ValueError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is no record: {error}") from None
        if message.topic.startswith(RETRY_PREFIX):
            message.topic = message.origin_topic  # a returned message shows what it was sent to
        return consumer.consume_directly(message)


def running_info(
    properties: dict[str, str],
    subscriptions: Mapping[str, SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueue],
    rates: ConsumeRates | None = None,
) -> ConsumerRunningInfo:
    """Describe what a consumer is doing, in Apache's form (its ConsumerRunningInfo); a reader has no rates."""
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=list(subscriptions.values()),
        mq_table={
            queue: ProcessQueueInfo(
                commit_offset=state.committable(),
                cached_msg_count=state.count,
                cached_msg_size_mib=state.size >> 20,
                locked=state.locked,
                droped=state.dropped,
                last_pull_timestamp=state.last_pull_ms,
            )
            for queue, state in queues.items()
        },
        status_table={
            topic: rates.status(topic) if rates is not None else ConsumeStatus()
            for topic in subscriptions
        },
    )
