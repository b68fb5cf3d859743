"""Request-reply: a reply goes to the client that asked, over the connection it has here (324, 325, 326).

Apache: ReplyMessageProcessor.
"""

import asyncio
import logging

from roquette.broker.floor.core import BrokerCore
from roquette.broker.sending.send import Header, SendProcessor
from roquette.errors import ClientError, Refused, StoreError
from roquette.message import properties
from roquette.message.draft import Draft
from roquette.message.message_id import host_text, offset_message_id
from roquette.message.properties import decode_properties, encode_properties
from roquette.message.sysflag import COMPRESSED, COMPRESSION_MASK
from roquette.remoting.outcomes import Reply, Task
from roquette.remoting.request import Peer, RequestContext
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict

log = logging.getLogger("roquette.broker.reply")

PUSH_TIMEOUT_MS = 10_000


class ReplyProcessor:
    """Requests 324 and 325."""

    def __init__(self, core: BrokerCore, send: SendProcessor) -> None:
        self._core = core
        self._live = core.live
        self._store = core.store
        self._writer = core.writer
        self._producers = core.tables.producers
        self._send = send
        self._store_host = core.address.store_host

    def send_reply(self, ctx: RequestContext, header: Header, body: bytes) -> Task:
        """SEND_REPLY_MESSAGE and its V2: forward it, store it, and answer how the forwarding went."""
        topic, queue_id = self._send.admit(ctx, header)
        return Task(self._pass_on(ctx, header, topic.name, queue_id, body))

    async def _pass_on(
        self, ctx: RequestContext, header: Header, topic: str, queue_id: int, body: bytes
    ) -> Reply:
        remark = await self._push(ctx, header, body)
        place = ("0", 0) if remark is None else None
        if self._live.current.store_reply_message_enable:
            place = await self._keep(ctx, header, topic, queue_id, body) or place
        fields = {
            "MSG_REGION": self._live.current.region_id,
            "TRACE_ON": "true" if self._live.current.trace_on else "false",
        }
        if place is not None:
            fields |= {
                "msgId": place[0],
                "queueId": str(queue_id),
                "queueOffset": str(place[1]),
            }
        code = ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR
        return Reply(encode_dict(fields), None, code, remark)

    async def _push(self, ctx: RequestContext, header: Header, body: bytes) -> str | None:
        """PUSH_REPLY_MESSAGE_TO_CLIENT; what went wrong, in Apache's words."""
        named = decode_properties(header.properties or "")
        client_id = named.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        channel = self._producers.find_client(client_id)
        if channel is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        named[properties.PUSH_REPLY_TIME] = str(ctx.now_ms)
        ext = encode_dict(self._push_fields(ctx, header, encode_properties(named)))
        if channel.peer.paused or not await _accepted(channel.peer, ext, body):
            return f"push reply message to {client_id}fail."
        return None

    def _push_fields(self, ctx: RequestContext, header: Header, text: str) -> dict[str, str]:
        return {
            "bornHost": host_text(ctx.peer.host),
            "storeHost": host_text(self._store_host),
            "storeTimestamp": str(ctx.now_ms),
            "producerGroup": header.producer_group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_topic_queue_nums),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_timestamp),
            "flag": str(header.flag),
            "properties": text,
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "true" if header.unit_mode else "false",
        }

    async def _keep(
        self, ctx: RequestContext, header: Header, topic: str, queue_id: int, body: bytes
    ) -> tuple[str, int] | None:
        """Store the reply as it came; that it cannot be stored is no failure for the replier."""
        text: str = header.properties or ""
        if not body:
            log.warning("reply not kept: it has no body topic=%s", topic)
            return None
        draft = Draft(topic, queue_id, text.encode(), body, header.born_timestamp, ctx.peer.host)
        draft.flag = header.flag
        draft.sys_flag = header.sys_flag & (COMPRESSED | COMPRESSION_MASK)
        draft.reconsume_times = header.reconsume_times
        try:
            self._store.check_send()
            done = self._store.append(draft, ctx.now_ms)
        except StoreError as error:
            log.warning("reply not kept topic=%s error=%s", topic, error)
            return None
        self._core.delivered(topic, done.size)
        if self._core.log_sync.answers_wait:
            await self._core.log_sync.safe(done.end_offset, done.size)
        return offset_message_id(self._store_host, done.physical_offset), done.queue_offset


async def _accepted(peer: Peer, ext: bytes, body: bytes) -> bool:
    """Whether the client took the reply."""
    try:
        async with asyncio.timeout(PUSH_TIMEOUT_MS / 1000):
            answer = await peer.invoke(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body, PUSH_TIMEOUT_MS
            )
    except (ClientError, TimeoutError, Refused) as error:
        log.warning("reply not passed on peer=%s error=%s", peer.remote, error)
        return False
    if answer.code != ResponseCode.SUCCESS:
        log.warning("reply refused peer=%s remark=%s", peer.remote, answer.remark)
    return bool(answer.code == ResponseCode.SUCCESS)
