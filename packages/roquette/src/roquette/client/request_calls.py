"""Requests of an application, and the servers that answer them."""

import asyncio
from datetime import timedelta
from typing import Final, Unpack, cast

from roquette.client.answers import V, check_function, for_loop
from roquette.client.arguments import Topics, as_message, check_words, member_options, seconds_of
from roquette.client.client_base import ClientBase
from roquette.client.consumer import Consumer
from roquette.client.consumer_options import ConsumerOptions, ServeOptions, StartFrom
from roquette.client.push_consumer import PushConsumer
from roquette.client.requests import ReplyHandler, Server, as_request
from roquette.client.send_options import KeyedOptions, SendOptions
from roquette.client.settings import options_of_call
from roquette.errors import RequestTimeout
from roquette.message.message import Message, ReceivedMessage

LONGEST_S: Final = 600.0


class RequestCalls(ClientBase[V]):
    """Requests and replies: calls by message, between any languages' clients."""

    async def request(
        self,
        topic: str | Message,
        body: bytes | str | V = b"",
        *,
        timeout: float | timedelta = 3.0,
        **options: Unpack[KeyedOptions],
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of one of those that serve the topic.

        Args:
            timeout: seconds, or a timedelta, for the sending and the reply together.
            options: see `KeyedOptions`.

        Raises:
            RequestTimeout: no reply came; whether the request was carried out is not known.
            MessageIllegal, RouteNotFound, BrokerError, ConnectError: it was not sent; as `send`.
            ConfigError: `timeout` is no number of seconds between 0.001 and 600.
        """
        timeout = seconds_of(timeout, "timeout", 0.001, LONGEST_S)
        check_words("request", options, KeyedOptions)
        message = as_message(topic, body, cast(SendOptions, options), encode=self._encode)
        session, replies = self.session, self._replies
        began = asyncio.get_running_loop().time()
        correlation_id = f"{session.client_id}-{self._entropy.token(16)}"
        sent = False
        try:
            async with asyncio.timeout(timeout) as limit:
                await replies.meet(session, session.namespace.wrap(message.topic))
                replies.expect(correlation_id)
                request = as_request(message, correlation_id, session.client_id, timeout)
                left_ms = int((timeout - (asyncio.get_running_loop().time() - began)) * 1000)
                await self._sender.send(request, timeout_ms=max(1, left_ms))
                sent = True
                return await replies.wait(correlation_id)
        except TimeoutError:
            if not limit.expired():
                raise
            how = "was stored, and no reply came" if sent else "was not known to be stored"
            words = f"the request to {message.topic} {how} within {timeout} s"
            raise RequestTimeout(words) from None
        finally:
            replies.forget(correlation_id)

    def serve(
        self, topic: Topics, handler: Server[V], *, group: str, **options: Unpack[ServeOptions]
    ) -> Consumer:
        """Answer the requests to a topic, from when the consumer is awaited or entered on. Members of a group share them.

        A request whose sender waits no longer is skipped, as far as the server can tell whose clock may be any other than the
        brokers': by how much longer than others it has waited. One whose handler fails gets no reply: its sender's time ends.

        Args:
            handler: gets the request and returns the reply's body (or a value, with `Client(encode=)`), or None for no reply. A coroutine
                function, or a function, which runs in a thread.
            options: see `ServeOptions`.

        Raises:
            ConfigError: an option is wrong, or this client already has a consumer of the group.
        """
        options = options_of_call("serve", options, ServeOptions, self._environ)
        options.setdefault("start_from", StartFrom.LAST)  # nobody waits for old requests any more
        chosen = member_options(group, topic, cast(ConsumerOptions, options))
        check_function("handler", handler)

        async def join() -> PushConsumer:
            server = for_loop(handler, chosen.concurrency)
            answer = ReplyHandler(self.session, self._sender.group, server, self._encode)
            return await self._join(answer, chosen)

        return Consumer(group, join)
