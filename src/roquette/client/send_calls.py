"""What an application sends by its client."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from roquette.client import calls
from roquette.client.arguments import Timeout, as_message, check_count, deliver_at_ms, seconds_of
from roquette.client.client_base import ClientBase
from roquette.client.producer import Selector, SendReceipt
from roquette.errors import MessageIllegal, RequestTimeout
from roquette.message.message import Message, MessageQueue


class SendCalls(ClientBase):
    """Sending: one message, many at once, without waiting."""

    async def send(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
        delay_level: int = 0,
        deliver_at: datetime | timedelta | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait until the broker has it.

        Args:
            key: one key or several, to find the message by. tag: what consumers filter by.
            shard_key: messages with one shard key go to one queue, in order.
            delay_level: 1..18 (1 s .. 2 h) delivers later.
            deliver_at: deliver then (a datetime with a zone), or after so long (a timedelta); `recall` takes it back.
            queue, selector: choose the queue yourself.

        Raises:
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout
        """
        at_ms = 0 if deliver_at is None else deliver_at_ms(deliver_at, self._clock.now_ms())
        message = as_message(topic, body, key, tag, properties, shard_key, delay_level, at_ms)
        check_count("timeout_ms", 1 if timeout_ms is None else timeout_ms)
        return await self._sender.send(
            message, queue=queue, selector=selector, timeout_ms=timeout_ms
        )

    async def recall(self, receipt: SendReceipt) -> None:
        """Take back a message that was sent with `deliver_at` and has not been delivered yet.

        Raises:
            MessageIllegal: the receipt is of no such message, or of a broker that gives no handles.
            BrokerError: the broker refuses: the message is due, or its setting recallMessageEnable is off (the default).
        """
        if not receipt.recall_handle:
            raise MessageIllegal(
                f"message {receipt.message_id} cannot be recalled: its receipt has no recall handle"
            )
        topic, recalled = self.session.namespace.wrap(receipt.queue.topic), False
        await self.session.route(topic)
        address = self.session.master_of(receipt.queue)
        try:
            await self.session.api.call(
                address, calls.recall(self._sender.group, topic, receipt.recall_handle)
            )
            recalled = True
        finally:
            self._trace.recalled(receipt, self._group, recalled)

    async def send_nowait(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
        delay_level: int = 0,
        deliver_at: datetime | timedelta | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> "asyncio.Future[SendReceipt]":
        """Send without waiting for the answer: the future gets it. Waits while too many are unanswered."""
        at_ms = 0 if deliver_at is None else deliver_at_ms(deliver_at, self._clock.now_ms())
        message = as_message(topic, body, key, tag, properties, shard_key, delay_level, at_ms)
        return await self._sender.send_nowait(message, queue=queue, selector=selector)

    async def send_oneway(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without an answer: fastest, but whether it arrived stays unknown."""
        await self._sender.send_oneway(
            as_message(topic, body, key, tag, properties, None, 0), queue=queue
        )

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[bytes | str | Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests, those with shard keys to their keys' queues; a receipt for each, in order.

        Raises:
            MessageIllegal: a message goes to another topic, or breaks a rule; nothing was sent.
            ClientError: a part was not stored. `outcomes` of the error has a receipt or an error for each message, in order:
                parts after it were tried, or, when two had failed, with the same keys, or to a given queue, not sent (NotSent).
        """
        if isinstance(messages, (str, bytes, bytearray)):
            raise TypeError(f"a batch is a list of messages, not {type(messages).__name__}")
        check_count("timeout_ms", 1 if timeout_ms is None else timeout_ms)
        listed = [
            as_message(m) if isinstance(m, Message) else as_message(topic, m) for m in messages
        ]
        if others := sorted({message.topic for message in listed} - {topic}):
            raise MessageIllegal(f"a batch to {topic} has messages to {', '.join(others)}")
        return await self._sender.send_batch(listed, queue=queue, timeout_ms=timeout_ms)

    async def flush(self, *, timeout: Timeout = None) -> None:
        """Wait until what was sent before this call has its end: futures of `send_nowait` are done, whatever with, and what
        was sent one way has come to its broker. The end of the client does the same, for 30 seconds.

        Args:
            timeout: seconds, or a timedelta; None: as long as the sends' own limits are.

        Raises:
            RequestTimeout: it was not so in time, or a connection broke over which something went one way; the error says
                how many messages there are whose end is not known. Sends go on.
        """
        left = await self._sender.flush(None if timeout is None else seconds_of(timeout))
        if left:
            raise RequestTimeout(f"the end of {left} messages is not known")
