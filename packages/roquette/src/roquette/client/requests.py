"""Request and reply: a message whose sender waits for an answer, over the brokers.

Apache: DefaultMQProducerImpl.request, MessageUtil.createReplyMessage, ClientRemotingProcessor.receiveReplyMessage. A
reply goes to a broker, which passes it on over the connection that the requester has there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from roquette.base.javatypes import whole_number
from roquette.client.calls import Call, nothing
from roquette.client.consumer_options import Encode, body_of
from roquette.client.core.process_queue import Waits
from roquette.client.session import Session
from roquette.errors import ClientError, CorruptRecord
from roquette.message import properties as names
from roquette.message.compression import decompress
from roquette.message.message import MAX_BODY_SIZE, Message, MessageQueue, ReceivedMessage
from roquette.message.names import reply_topic
from roquette.message.properties import decode_properties, encode_properties
from roquette.message.sysflag import COMPRESSED
from roquette.remoting.request import Outcome, Reply, RequestContext, Row
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.headers import ReplyMessageRequestHeader, SendMessageRequestHeaderV2

log = logging.getLogger("roquette.client")

REPLY_TYPE: Final = "reply"  # MixAll.REPLY_MESSAGE_FLAG
_REPLY_MS: Final = 3_000

A = TypeVar("A")

Answer: TypeAlias = bytes | str | A | None
"""What a server answers; None: nothing, the requester waits in vain."""

Server = Callable[[ReceivedMessage], Awaitable[Answer[A]] | Answer[A]]
"""Answers a request."""


class Replies:
    """The requests of one client that wait for their replies."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._met: dict[str, int] = {}  # topics, and to how many brokers their requests went

    def row(self) -> Row:
        """Its place in the table of what this client serves."""
        return Row(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replied, ReplyMessageRequestHeader, 0
        )

    async def meet(self, session: Session, topic: str) -> None:
        """Brokers pass replies on to whom heartbeats have named: those of the topic must know us first."""
        route = await session.publish_route(topic)
        if self._met.get(topic) != len(route.addresses):
            await session.heartbeat()
            self._met[topic] = len(route.addresses)

    async def wait(self, correlation_id: str) -> ReceivedMessage:
        """The reply to what was expected."""
        return await self._waiting[correlation_id]

    def expect(self, correlation_id: str) -> None:
        """A reply to this may come from now on."""
        self._waiting[correlation_id] = asyncio.get_running_loop().create_future()

    def forget(self, correlation_id: str) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(correlation_id, None)

    def _replied(
        self, ctx: RequestContext, header: ReplyMessageRequestHeader, body: bytes
    ) -> Outcome:
        """PUSH_REPLY_MESSAGE_TO_CLIENT."""
        named = decode_properties(header.properties or "")
        future = self._waiting.get(named.get(names.CORRELATION_ID, ""))
        if future is None or future.done():
            log.debug("a reply that nobody waits for any more topic=%s", header.topic)
            return Reply()
        try:
            whole = decompress(body, header.sys_flag, MAX_BODY_SIZE)
        except CorruptRecord as error:
            log.warning("a reply cannot be read broker=%s error=%s", ctx.peer.remote, error)
            return Reply(
                code=ResponseCode.SYSTEM_ERROR, remark=f"the reply cannot be read: {error}"
            )
        future.set_result(_message(header, named, whole))
        return Reply()


def _message(
    header: ReplyMessageRequestHeader, named: dict[str, str], body: bytes
) -> ReceivedMessage:
    """A reply, which lies nowhere, as a message."""
    return ReceivedMessage(
        topic=header.topic,
        queue=MessageQueue(header.topic, "", max(0, header.queue_id)),
        body=body,
        properties=named,
        tag=named.get(names.TAGS),
        keys=tuple(named.get(names.KEYS, "").split()),
        message_id=named.get(names.UNIQ_KEY, ""),
        offset_message_id="",
        queue_offset=-1,
        physical_offset=-1,
        born_timestamp_ms=header.born_timestamp,
        store_timestamp_ms=header.store_timestamp,
        born_host=header.born_host,
        store_host=header.store_host,
        reconsume_times=header.reconsume_times or 0,
        flag=header.flag,
        sys_flag=header.sys_flag & ~COMPRESSED,
        body_crc=0,
        store_size=0,
        prepared_offset=0,
    )


def as_request(message: Message, correlation_id: str, client_id: str, timeout: float) -> Message:
    """The message with what a reply needs."""
    more = {
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: client_id,
        names.TTL: str(int(timeout * 1000)),
    }
    return replace(message, properties={**message.properties, **more})


class ReplyHandler:
    """The handler of a server's consumer: answers requests, and accepts every message, since a retry would come too late."""

    def __init__(
        self,
        session: Session,
        producer_group: str,
        server: Server[Any],
        encode: Encode[Any] | None = None,
    ) -> None:
        self._encode = encode
        self._session = session
        self._group = producer_group
        self._server = server
        self._waits = Waits()

    async def __call__(self, message: ReceivedMessage) -> None:
        """Run the server and send what it answers; its error goes to the log, and the requester gets nothing."""
        requester = message.properties.get(names.REPLY_TO_CLIENT)
        late = self._is_late(message)  # asked of each message: it learns from them
        if requester is not None and late:
            log.info("request skipped, its sender waits no longer id=%s", message.message_id)
            return
        try:
            answer = self._server(message)
            found = await answer if isinstance(answer, Awaitable) else answer
            reply = None if found is None else body_of(found, self._encode)
        except Exception:
            log.exception("no reply: the server failed id=%s", message.message_id)
            return
        if requester is None:
            log.debug("not a request, nothing is replied id=%s", message.message_id)
        elif reply is not None:
            await self._reply(message, reply)

    def _is_late(self, message: ReceivedMessage) -> bool:
        text = message.properties.get(names.TTL, "")
        waited_ms = self._waits.waited_ms(
            message.queue.broker_name,
            message.store_timestamp_ms,
            self._session.clock.steady_ms(),
        )
        return 0 <= whole_number(text, 2**63 - 1) < waited_ms

    async def _reply(self, message: ReceivedMessage, body: bytes) -> None:
        found = message.properties
        cluster = found.get(names.CLUSTER)
        if cluster is None:
            log.warning("no reply: the request has no property CLUSTER id=%s", message.message_id)
            return
        topic = reply_topic(cluster)
        now_ms = self._session.clock.now_ms()
        named = {
            names.MSG_TYPE: REPLY_TYPE,
            names.CORRELATION_ID: found.get(names.CORRELATION_ID, ""),
            names.REPLY_TO_CLIENT: found[names.REPLY_TO_CLIENT],
            names.TTL: found.get(names.TTL, str(_REPLY_MS)),
            names.UNIQ_KEY: found.get(names.CORRELATION_ID, ""),
            names.WAIT: "true",
        }
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=topic,
            default_topic=self._session.config.create_topic_key,
            default_topic_queue_nums=self._session.config.default_topic_queues,
            queue_id=0,
            sys_flag=0,
            born_timestamp=now_ms,
            flag=0,
            properties=encode_properties(named),
            reconsume_times=0,
            unit_mode=False,
            bname=message.queue.broker_name,
        )
        call = Call(RequestCode.SEND_REPLY_MESSAGE_V2, nothing, header, body)
        try:  # by the broker that the request came through: it knows the requester
            address = self._session.master_of(message.queue)
            await self._session.api.call(address, call, timeout_ms=_REPLY_MS)
        except ClientError as error:
            log.warning("the reply did not arrive id=%s error=%s", message.message_id, error)
