"""Typed calls to name servers and brokers: headers in, values out, refusals as BrokerError."""

import msgspec

from roquette.client.core.retry_policy import broker_error
from roquette.errors import BrokerError, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.remoting.client import RemotingClient
from roquette.wire.bodies import (
    ClusterInfo,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    TopicRouteData,
    UnlockBatchRequestBody,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext, encode_ext
from roquette.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    GetRouteInfoRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from roquette.wire.json_body import decode_body, encode_body


class BrokerApi:
    """Every call by address. Methods raise ClientError; a refusal is a BrokerError with its code."""

    def __init__(self, remoting: RemotingClient, timeout_ms: int) -> None:
        self._remoting = remoting
        self._timeout_ms = timeout_ms

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: msgspec.Struct | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        """Send a request and return its answer when that is a success."""
        reply = await self.ask(address, code, header, body, timeout_ms=timeout_ms)
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark, address)
        return reply

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: msgspec.Struct | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        """Send a request and return its answer, whatever its code."""
        ext = b"" if header is None else encode_ext(header)
        return await self._remoting.invoke(
            address, code, ext, body, timeout_ms=timeout_ms or self._timeout_ms
        )

    # name servers

    async def route(self, address: str, topic: str) -> TopicRouteData:
        """GET_ROUTEINFO_BY_TOPIC at one name server; raises RouteNotFound."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        reply = await self.ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            raise RouteNotFound(topic, reply.remark or "")
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark, address)
        return decode_body(TopicRouteData, reply.body)

    async def cluster(self, address: str) -> ClusterInfo:
        """GET_BROKER_CLUSTER_INFO."""
        return decode_body(
            ClusterInfo, (await self.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)).body
        )

    # membership

    async def heartbeat(self, address: str, data: HeartbeatData) -> None:
        """HEART_BEAT: who we are and what we want."""
        await self.call(address, RequestCode.HEART_BEAT, None, encode_body(data))

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """UNREGISTER_CLIENT: leave a group at once."""
        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self.call(address, RequestCode.UNREGISTER_CLIENT, header)

    async def members(self, address: str, group: str) -> list[str]:
        """GET_CONSUMER_LIST_BY_GROUP: sorted client ids; empty when the group is not online there."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        reply = await self.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        if reply.code != ResponseCode.SUCCESS:
            return []
        return sorted(decode_body(GetConsumerListByGroupResponseBody, reply.body).consumer_id_list)

    # offsets

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        reply = await self.call(address, RequestCode.GET_MAX_OFFSET, header)
        return decode_ext(GetMaxOffsetResponseHeader, reply.ext).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        reply = await self.call(address, RequestCode.GET_MIN_OFFSET, header)
        return decode_ext(GetMinOffsetResponseHeader, reply.ext).offset

    async def offset_by_time(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after a time."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            bname=queue.broker_name,
        )
        reply = await self.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return decode_ext(SearchOffsetResponseHeader, reply.ext).offset

    async def consumer_offset(
        self, address: str, group: str, queue: MessageQueue, *, zero_if_new: bool = True
    ) -> int | None:
        """A group's committed offset, or None when it has none.

        Args:
            zero_if_new: the broker may answer 0 for a group without an offset while the queue's first
                messages are still in memory, so that queues added to a topic are read from their start.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=None if zero_if_new else False,
            bname=queue.broker_name,
        )
        reply = await self.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark, address)
        return decode_ext(QueryConsumerOffsetResponseHeader, reply.ext).offset

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Store a group's offset. Answered, unlike Java's one-way commit: whoever asks next sees it."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    # consuming

    async def send_back(self, address: str, header: ConsumerSendMsgBackRequestHeader) -> None:
        """CONSUMER_SEND_MSG_BACK: the broker delivers the message again later."""
        await self.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=5_000)

    async def lock(
        self, address: str, group: str, client_id: str, queues: list[MessageQueue]
    ) -> list[MessageQueue]:
        """LOCK_BATCH_MQ: the queues that are now ours alone."""
        body = encode_body(
            LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=queues)
        )
        reply = await self.call(address, RequestCode.LOCK_BATCH_MQ, None, body)
        return decode_body(LockBatchResponseBody, reply.body).lock_ok_mq_set

    async def unlock(
        self, address: str, group: str, client_id: str, queues: list[MessageQueue]
    ) -> None:
        """UNLOCK_BATCH_MQ."""
        body = encode_body(
            UnlockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=queues)
        )
        await self.call(address, RequestCode.UNLOCK_BATCH_MQ, None, body)


__all__ = ["BrokerApi", "BrokerError"]
