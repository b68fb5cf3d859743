"""Calls by which an application sends."""

import asyncio
from collections.abc import Sequence
from typing import Unpack, cast

from roquette.client import calls
from roquette.client.answers import V
from roquette.client.arguments import (
    Timeout,
    as_message,
    check_words,
    milliseconds_of,
    seconds_of,
)
from roquette.client.client_base import ClientBase
from roquette.client.producer import SendReceipt
from roquette.client.send_options import OnewayOptions, SendOptions
from roquette.errors import MessageIllegal, RequestTimeout
from roquette.message.message import Message, MessageQueue


class SendCalls(ClientBase[V]):
    """Sending: one message, many at once, without waiting."""

    async def send(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        *,
        timeout: Timeout = None,
        **options: Unpack[SendOptions],
    ) -> SendReceipt:
        """Send one message and wait until the broker has it.

        Args:
            options: see `SendOptions`.
            timeout: of all tries together, in seconds or as a timedelta; None: the client's `send_timeout` (3 s).

        Raises:
            MessageIllegal, RouteNotFound, BrokerError, ConnectError, RequestTimeout
        """
        check_words("send", options, SendOptions)
        message = as_message(topic, body, options, self._clock, self._encode)
        limit_ms = milliseconds_of(timeout)
        return await self._sender.send(
            message,
            queue=options.get("queue"),
            selector=options.get("selector"),
            timeout_ms=limit_ms,
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
        body: bytes | str | V = b"",
        **options: Unpack[SendOptions],
    ) -> "asyncio.Future[SendReceipt]":
        """Send without waiting for the answer: the future gets it. Waits while too many are unanswered."""
        check_words("send_nowait", options, SendOptions)
        message = as_message(topic, body, options, self._clock, self._encode)
        return await self._sender.send_nowait(
            message, queue=options.get("queue"), selector=options.get("selector")
        )

    async def send_oneway(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        **options: Unpack[OnewayOptions],
    ) -> None:
        """Send without an answer: fastest, but whether it arrived stays unknown."""
        check_words("send_oneway", options, OnewayOptions)
        message = as_message(topic, body, cast(SendOptions, options), encode=self._encode)
        await self._sender.send_oneway(message, queue=options.get("queue"))

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[bytes | str | V | Message],
        *,
        queue: MessageQueue | None = None,
        timeout: Timeout = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests, those with shard keys to their keys' queues; a receipt for each, in order.

        Raises:
            MessageIllegal: a message goes to another topic, or breaks a rule; nothing was sent.
            ClientError: a part was not stored. `outcomes` of the error has a receipt or an error for each message, in order:
                parts after it were tried, or, when two had failed, with the same keys, or to a given queue, not sent (NotSent).
        """
        if isinstance(messages, (str, bytes, bytearray)):
            raise TypeError(f"a batch is a list of messages, not {type(messages).__name__}")
        limit_ms = milliseconds_of(timeout)
        listed = [
            as_message(m) if isinstance(m, Message) else as_message(topic, m, encode=self._encode)
            for m in messages
        ]
        if others := sorted({message.topic for message in listed} - {topic}):
            raise MessageIllegal(f"a batch to {topic} has messages to {', '.join(others)}")
        return await self._sender.send_batch(listed, queue=queue, timeout_ms=limit_ms)

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
