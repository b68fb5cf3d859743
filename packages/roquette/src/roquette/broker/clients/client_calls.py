"""Requests forwarded to a client: running info (307), direct consumption (309), consumer status (223).

Apache: AdminBrokerProcessor.callConsumer, Broker2Client.getConsumeStatus; refusals carry their texts.
"""

import asyncio
import logging

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane, check_resets
from roquette.broker.floor.set_aside import topic_of
from roquette.broker.floor.tables.consumers import ClientChannel
from roquette.errors import ClientError, Refused
from roquette.message.message import MessageQueue
from roquette.message.message_id import decode_offset_message_id
from roquette.remoting.promises import Promise
from roquette.remoting.request import Peer, Reply, RequestContext, Row, Task, row
from roquette.wire.bodies import GetConsumerStatusBody
from roquette.wire.codes import RequestCode, ResponseCode, version_text
from roquette.wire.command import Command
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from roquette.wire.json_body import decode_body, encode_body
from roquette.wire.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

log = logging.getLogger("roquette.broker")

CLIENT_CALL_MS = 10_000
STATUS_CALL_MS = 5_000
CALLS_SINCE = 62  # V3_1_8_SNAPSHOT: older clients do not know 307 and 309


class ClientCallProcessor(Feature):
    """Asks a consumer on its own connection, and hands its answer back."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._store = core.store
        self._topics = core.tables.topics
        self._groups = core.tables.groups
        self._consumers = core.tables.consumers

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                self.running_info,
                GetConsumerRunningInfoRequestHeader,
                Lane.ADMIN,
                Promise.NOTHING,
            ),
            row(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                self.consume_directly,
                ConsumeMessageDirectlyResultRequestHeader,
                Lane.ADMIN,
                Promise.NOTHING,
            ),
            row(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                self.consumer_status,
                GetConsumerStatusRequestHeader,
                Lane.ADMIN,
                Promise.NOTHING,
            ),
        ]

    def running_info(
        self, ctx: RequestContext, header: GetConsumerRunningInfoRequestHeader, body: bytes
    ) -> Task:
        """GET_CONSUMER_RUNNING_INFO."""
        channel = self._channel(header.consumer_group, header.client_id)
        ext = encode_dict(_unsigned(ctx))
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        return Task(_ask(channel, code, header.consumer_group, ext, body))

    def consume_directly(
        self,
        ctx: RequestContext,
        header: ConsumeMessageDirectlyResultRequestHeader,
        body: bytes,
    ) -> Task:
        """CONSUME_MESSAGE_DIRECTLY: a client processes one stored message, outside of its queue's order."""
        fields = _unsigned(ctx) | {"brokerName": self._live.current.broker_name}
        topic = self._topics.find(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.sys_flag)
        group = self._groups.find(header.consumer_group, ctx.now_ms)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        record = self._record(header.msg_id or "")
        if ctx.may_touch is not None:
            ctx.may_touch(topic_of(record))
        channel = self._channel(header.consumer_group, header.client_id or "")
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return Task(_ask(channel, code, header.consumer_group, encode_dict(fields), record))

    def _record(self, message_id: str) -> bytes:
        try:
            _, offset = decode_offset_message_id(message_id)
        except ValueError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the message id {message_id!r} is wrong: {error}"
            ) from None
        record = self._store.record_at(offset)
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return record

    def _channel(self, group: str, client_id: str) -> ClientChannel:
        online = self._consumers.find(group)
        channel = online.channel_of(client_id) if online is not None else None
        if channel is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if channel.version < CALLS_SINCE:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_text(channel.version)}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        return channel

    def consumer_status(
        self, ctx: RequestContext, header: GetConsumerStatusRequestHeader, body: bytes
    ) -> Task:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: where each member is in its queues; silent ones are left out."""
        online = self._consumers.find(header.group)
        if online is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        asked: list[ClientChannel] = []
        only = (header.client_addr or "").strip()
        for channel in online.channels.values():
            check_resets(channel.version)
            if not only or only == channel.client_id:
                asked.append(channel)
        ext = encode_dict({"topic": header.topic, "group": header.group})
        return Task(_statuses(asked, ext))


async def _statuses(asked: list[ClientChannel], ext: bytes) -> Reply:
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    calls: list[tuple[str, asyncio.Future[Command]]] = []  # an id may have several connections
    for channel in asked:
        try:
            call = channel.peer.invoke(code, ext, b"", STATUS_CALL_MS)
            calls.append((channel.client_id, call))
        except ClientError as error:
            log.warning("consumer status: not asked id=%s error=%s", channel.client_id, error)
    if calls:
        await asyncio.wait([call for _, call in calls], timeout=STATUS_CALL_MS / 1000)
    table: dict[str, dict[MessageQueue, int]] = {}
    for client_id, call in calls:
        if not call.done():
            call.cancel()
            log.warning("consumer status: no answer client_id=%s", client_id)
            continue
        try:
            answer = call.result()
            if answer.code == ResponseCode.SUCCESS and answer.body:
                status = decode_body(GetConsumerStatusBody, answer.body)
                table[client_id] = status.message_queue_table
        except ClientError as error:
            log.warning("consumer status: no answer client_id=%s error=%s", client_id, error)
    return Reply(b"", encode_body(GetConsumerStatusBody(consumer_table=table)))


def _unsigned(ctx: RequestContext) -> dict[str, str]:
    """The fields of a request that is passed on, but for those that prove who asked: they are for the broker alone."""
    fields = ext_dict(ctx.command.ext)
    for name in (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE):
        fields.pop(name, None)
    return fields


async def _ask(
    channel: ClientChannel, code: RequestCode, group: str, ext: bytes, body: bytes
) -> Reply:
    peer: Peer = channel.peer
    try:
        async with asyncio.timeout(CLIENT_CALL_MS / 1000):
            answer = await peer.invoke(code, ext, body, CLIENT_CALL_MS)
    except (ClientError, TimeoutError):
        raise Refused(
            ResponseCode.CONSUME_MSG_TIMEOUT,
            f"consumer <{group}> <{channel.client_id}> Timeout: no answer within {CLIENT_CALL_MS} ms",
        ) from None
    return Reply(answer.ext, answer.body, answer.code, answer.remark)
