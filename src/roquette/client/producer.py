"""Sending: one message, one way, pipelined, in batches; retries go to another broker.

Apache: DefaultMQProducerImpl.sendDefaultImpl and sendKernelImpl.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roquette.client.core.latency import LatencyTable
from roquette.client.core.queue_selector import RoundRobin, by_key
from roquette.client.core.retry_policy import STORED_CODES, broker_error, may_retry
from roquette.client.core.route_cache import TopicRoute
from roquette.client.session import Session
from roquette.errors import (
    ClientClosed,
    ClientError,
    MessageIllegal,
    RequestTimeout,
    RouteNotFound,
)
from roquette.message.batch import encode_batch
from roquette.message.compression import compress
from roquette.message.message import Message, MessageQueue
from roquette.message.message_id import UniqueIds, host_bytes
from roquette.message.names import (
    RETRY_PREFIX,
    client_topic_error,
)
from roquette.message.properties import (
    MAX_RECONSUME_TIMES,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    RECONSUME_TIME,
    UNIQ_KEY,
    encode_properties,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext, encoder
from roquette.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

log = logging.getLogger("roquette.client")

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]

BATCH_BYTES = 1 << 20  # a batch request is split at about this size

_encode_header = encoder(SendMessageRequestHeaderV2)
_STATUS = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}


@dataclass(slots=True, frozen=True, kw_only=True)
class SendReceipt:
    """What the broker said of a message it stored.

    Attributes:
        status: SEND_OK, or which durability was not reached in time (the message is stored all the same).
        message_id: the unique id we gave it. `offset_message_id`: where it lies on its broker.
        queue_offset: its index in `queue`.
    """

    status: str
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int


class _Prepared:
    """A message ready for the wire: the same id and bytes on every attempt."""

    __slots__ = (
        "batch",
        "body",
        "flag",
        "max_reconsume",
        "message_ids",
        "properties",
        "reconsume",
        "sys_flag",
        "topic",
    )

    def __init__(self, topic: str, body: bytes, properties: str, message_ids: list[str]) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        self.message_ids = message_ids
        self.flag = 0
        self.sys_flag = 0
        self.batch = False
        self.reconsume = 0
        self.max_reconsume: int | None = None


class Producer:
    """Sends for one producer group over a shared session."""

    def __init__(self, session: Session, group: str) -> None:
        self.group = group
        self._session = session
        self._config = session.config
        self._latency = LatencyTable()
        self._turns: dict[str, RoundRobin] = {}
        self._slots = asyncio.Semaphore(session.config.max_in_flight)
        self._ids = UniqueIds(
            host_bytes(session.local_host, 0)[:-4],
            session.entropy.process_id,
            session.entropy.below(1 << 31),
        )
        session.add_producer_group(group)

    # what users call

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send and wait for the broker's answer.

        Raises:
            MessageIllegal: the message breaks a rule before anything is sent.
            RouteNotFound, BrokerError, ConnectError, RequestTimeout: after every attempt failed.
        """
        prepared = self._prepare(message)
        choose = self._chooser(message, queue, selector)
        return (await self._attempts(prepared, choose, timeout_ms))[0]

    async def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> "asyncio.Future[SendReceipt]":
        """Send without waiting for the answer, which the returned future gets.

        Waits only while `max_in_flight` sends are unanswered. Retries as `send` does; then order between
        messages is not kept.
        """
        prepared = self._prepare(message)
        choose = self._chooser(message, queue, selector)
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[SendReceipt] = loop.create_future()
        route = self._session.known_route(message.topic)
        if route is not None and route.publish:
            target = choose(route.publish, None)
            address = route.master_of(target.broker_name)
            peer = self._session.remoting.peer(address) if address is not None else None
            if peer is not None and address is not None:
                reply = peer.invoke(
                    _code(prepared),
                    self._header(prepared, target),
                    prepared.body,
                    self._config.send_timeout_ms,
                )
                reply.add_done_callback(
                    lambda done: self._answered(done, result, prepared, choose, target, address)
                )
                return result
        self._session.tasks.start("send", self._send_into(result, prepared, choose))
        return result

    def _answered(
        self,
        reply: "asyncio.Future[Command]",
        result: "asyncio.Future[SendReceipt]",
        prepared: _Prepared,
        choose: "Chooser",
        target: MessageQueue,
        address: str,
    ) -> None:
        """The fast path's answer: done, or one more try in a task of its own."""
        if reply.cancelled() or result.done():
            self._slots.release()
            return
        error: BaseException | None = reply.exception()
        if error is None:
            try:
                receipts = self._receipts(reply.result(), prepared, target, address)
            except ClientError as refusal:
                error = refusal
            else:
                self._slots.release()
                result.set_result(receipts[0])
                return
        if isinstance(error, ClientError) and may_retry(error, 1, self._config.send_attempts, 1):
            self._session.tasks.start(
                "send", self._send_into(result, prepared, choose, avoid=target.broker_name)
            )
            return
        self._slots.release()
        result.set_exception(error)

    async def _send_into(
        self,
        result: "asyncio.Future[SendReceipt]",
        prepared: _Prepared,
        choose: "Chooser",
        avoid: str | None = None,
    ) -> None:
        try:
            receipts = await self._attempts(prepared, choose, None, avoid)
            if not result.done():
                result.set_result(receipts[0])
        except ClientError as error:
            if not result.done():
                result.set_exception(error)
        except asyncio.CancelledError:
            if (
                not result.done()
            ):  # not cancelled: whoever awaits it would take that for its own end
                result.set_exception(ClientClosed("the client was closed"))
                result.exception()
            raise
        finally:
            self._slots.release()
            if not result.done():
                result.cancel()

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer: whether it arrived stays unknown."""
        prepared = self._prepare(message)
        route = await self._publish_route(message.topic)
        target = self._chooser(message, queue, None)(route.publish, None)
        address = route.master_of(target.broker_name) or self._session.master_of(target)
        header = self._header(prepared, target)
        await self._session.remoting.oneway(address, _code(prepared), header, prepared.body)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send many messages of one topic in as few requests as their size allows; a receipt for each.

        Raises:
            MessageIllegal: topics differ, or a message has a delay or goes to a retry topic.
        """
        if not messages:
            return []
        first = messages[0]
        for message in messages:
            if message.topic != first.topic or message.wait_store_ok != first.wait_store_ok:
                raise MessageIllegal(
                    "the messages of one batch must have the same topic and wait_store_ok"
                )
            if message.delay_level or message.topic.startswith(RETRY_PREFIX):
                raise MessageIllegal("a batch takes neither delayed messages nor a retry topic")
        receipts: list[SendReceipt] = []
        chunk: list[tuple[int, bytes, bytes]] = []
        ids: list[str] = []
        size = 0
        choose = self._chooser(first, queue, None)
        limit = min(BATCH_BYTES, self._config.max_message_size)
        for message in messages:
            properties, message_id = self._properties(message)
            entry = (message.flag, self._checked_body(message), properties.encode())
            weight = len(entry[1]) + len(entry[2]) + 32
            if chunk and size + weight > limit:
                receipts += await self._send_chunk(first.topic, chunk, ids, choose, timeout_ms)
                chunk, ids, size = [], [], 0
            chunk.append(entry)
            ids.append(message_id)
            size += weight
        return receipts + await self._send_chunk(first.topic, chunk, ids, choose, timeout_ms)

    async def _send_chunk(
        self,
        topic: str,
        chunk: list[tuple[int, bytes, bytes]],
        ids: list[str],
        choose: "Chooser",
        timeout_ms: int | None,
    ) -> list[SendReceipt]:
        prepared = _Prepared(
            topic, encode_batch(chunk), f"WAIT{NAME_SEPARATOR}true{PROPERTY_SEPARATOR}", ids
        )
        prepared.batch = True
        return await self._attempts(prepared, choose, timeout_ms)

    # one send, step by step

    def _prepare(self, message: Message) -> _Prepared:
        body = self._checked_body(message)
        properties, message_id = self._properties(message)
        prepared = _Prepared(message.topic, body, properties, [message_id])
        prepared.flag = message.flag
        if len(body) > self._config.compress_over_bytes:
            packed = compress(body, self._config.compression, self._config.compression_level)
            if len(packed) < len(body):
                prepared.body = packed
                prepared.sys_flag = self._config.compression.sys_flag
        if message.topic.startswith(RETRY_PREFIX):
            prepared.reconsume = int(message.properties.get(RECONSUME_TIME, "0"))
            most = message.properties.get(MAX_RECONSUME_TIMES)
            prepared.max_reconsume = int(most) if most else None
        return prepared

    def _checked_body(self, message: Message) -> bytes:
        error = client_topic_error(message.topic)
        if error is not None:
            raise MessageIllegal(error)
        body = message.body
        if not body:
            raise MessageIllegal("the message body length is zero")
        if len(body) > self._config.max_message_size:
            raise MessageIllegal(
                f"the message body size over max value, MAX: {self._config.max_message_size}, is {len(body)}"
            )
        return body

    def _properties(self, message: Message) -> tuple[str, str]:
        properties = message.property_map()
        message_id = properties.get(UNIQ_KEY)
        if message_id is None:
            message_id = self._ids.next_id(self._session.clock.now_ms())
            properties[UNIQ_KEY] = message_id
        for name, value in message.properties.items():
            if NAME_SEPARATOR in name + value or PROPERTY_SEPARATOR in name + value:
                raise MessageIllegal(
                    f"property {name!r} holds a control character RocketMQ uses as separator"
                )
        return encode_properties(properties), message_id

    def _chooser(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None
    ) -> "Chooser":
        if queue is not None:
            return lambda queues, avoid: queue
        if selector is not None:
            return lambda queues, avoid: selector(queues, message)
        if message.sharding_key:
            key = message.sharding_key
            return lambda queues, avoid: by_key(queues, key)
        turn = self._turns.get(message.topic)
        if turn is None:
            turn = self._turns[message.topic] = RoundRobin(self._session.entropy.below(1 << 16))
        return turn.pick

    async def _publish_route(self, topic: str) -> TopicRoute:
        route = await self._session.publish_route(topic)
        if not route.publish:
            route = await self._session.route(topic, fresh=True)
        if not route.publish:
            raise RouteNotFound(topic, f"topic {topic} has no writable queue on any master")
        return route

    async def _attempts(
        self,
        prepared: _Prepared,
        choose: "Chooser",
        timeout_ms: int | None,
        avoid: str | None = None,
    ) -> list[SendReceipt]:
        loop = asyncio.get_running_loop()
        budget = timeout_ms or self._config.send_timeout_ms
        deadline = loop.time() + budget / 1000
        attempts = self._config.send_attempts
        attempt = 0
        while True:
            attempt += 1
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            target: MessageQueue | None = None
            try:
                async with asyncio.timeout(left_ms / 1000):
                    route = await self._publish_route(prepared.topic)
                queues = route.publish
                if self._config.latency_fault_tolerance:
                    queues = self._healthy(queues)
                target = choose(queues, avoid)
                return await self._once(route, prepared, target, left_ms)
            except TimeoutError:
                raise RequestTimeout(f"no route of {prepared.topic} within {budget} ms") from None
            except ClientError as error:
                left_ms = int((deadline - loop.time()) * 1000)
                if not may_retry(error, attempt, attempts, left_ms):
                    raise
                log.info(
                    "send failed, trying again topic=%s attempt=%d error=%s",
                    prepared.topic,
                    attempt,
                    error,
                )
                if target is not None:
                    avoid = target.broker_name
                if error.stale_route:
                    await self._refresh(prepared.topic)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._session.route(topic, fresh=True)
        except ClientError as error:
            log.debug("route refresh failed topic=%s error=%s", topic, error)

    def _healthy(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        names = self._latency.available(
            sorted({q.broker_name for q in queues}), self._session.clock.now_ms()
        )
        return [q for q in queues if q.broker_name in names] or queues

    async def _once(
        self, route: TopicRoute, prepared: _Prepared, target: MessageQueue, left_ms: int
    ) -> list[SendReceipt]:
        session = self._session
        address = route.master_of(target.broker_name) or session.master_of(target)
        started = session.clock.now_ms()
        failed = True
        try:
            reply = await session.remoting.invoke(
                address,
                _code(prepared),
                self._header(prepared, target),
                prepared.body,
                timeout_ms=left_ms,
            )
            failed = False
        finally:
            if self._config.latency_fault_tolerance:
                now = session.clock.now_ms()
                self._latency.record(target.broker_name, now - started, now, failed=failed)
        receipts = self._receipts(reply, prepared, target, address)
        if session.known_route(prepared.topic) is None:
            await self._refresh(prepared.topic)  # auto-created by this very send
        session.greet_soon(address)
        return receipts

    def _header(self, prepared: _Prepared, target: MessageQueue) -> bytes:
        return _encode_header(
            SendMessageRequestHeaderV2(
                producer_group=self.group,
                topic=prepared.topic,
                default_topic=self._config.create_topic_key,
                default_topic_queue_nums=self._config.default_topic_queues,
                queue_id=target.queue_id,
                sys_flag=prepared.sys_flag,
                born_timestamp=self._session.clock.now_ms(),
                flag=prepared.flag,
                properties=prepared.properties,
                reconsume_times=prepared.reconsume,
                unit_mode=False,
                max_reconsume_times=prepared.max_reconsume,
                batch=prepared.batch,
                bname=target.broker_name,
            )
        )

    def _receipts(
        self, reply: Command, prepared: _Prepared, target: MessageQueue, address: str
    ) -> list[SendReceipt]:
        if reply.code not in STORED_CODES:
            raise broker_error(reply.code, reply.remark, address)
        header = decode_ext(SendMessageResponseHeader, reply.ext)
        queue = target
        if header.queue_id != target.queue_id:
            queue = MessageQueue(target.topic, target.broker_name, header.queue_id)
        status = _STATUS[ResponseCode(reply.code)]
        offset_ids = header.msg_id.split(",")
        return [
            SendReceipt(
                status=status,
                message_id=message_id,
                offset_message_id=offset_ids[index] if index < len(offset_ids) else "",
                queue=queue,
                queue_offset=header.queue_offset + index,
            )
            for index, message_id in enumerate(prepared.message_ids)
        ]


Chooser = Callable[[Sequence[MessageQueue], str | None], MessageQueue]


def _code(prepared: _Prepared) -> int:
    return RequestCode.SEND_BATCH_MESSAGE if prepared.batch else RequestCode.SEND_MESSAGE_V2


__all__ = ["Producer", "Selector", "SendReceipt"]
