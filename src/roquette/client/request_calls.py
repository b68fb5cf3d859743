"""Requests of an application, and the servers that answer them."""

import asyncio
from collections.abc import Mapping, Sequence

from roquette.client.answers import check_function
from roquette.client.arguments import as_message, consumer_options
from roquette.client.client_base import ClientBase
from roquette.client.consumer_options import StartFrom
from roquette.client.push_consumer import PushConsumer
from roquette.client.requests import ReplyHandler, Server, as_request
from roquette.errors import ConfigError, RequestTimeout
from roquette.message.message import Message, ReceivedMessage

LONGEST_S = 600.0


class RequestCalls(ClientBase):
    """Requests and replies: calls by message, between any languages' clients."""

    async def request(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        timeout: float = 3.0,
        key: str | Sequence[str] | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        shard_key: str | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of one of those that serve the topic.

        Args:
            timeout: seconds, for the sending and the reply together.
            key, tag, properties, shard_key: as in `send`.

        Raises:
            RequestTimeout: no reply came; whether the request was carried out is not known.
            MessageIllegal, RouteNotFound, BrokerError, ConnectError: it was not sent; as `send`.
            ConfigError: `timeout` is no number of seconds between 0.001 and 600.
        """
        if not isinstance(timeout, int | float) or not 0.001 <= timeout <= LONGEST_S:
            raise ConfigError(f"timeout={timeout!r} is not 0.001 to {LONGEST_S:.0f} seconds")
        message = as_message(topic, body, key, tag, properties, shard_key)
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

    async def serve(
        self,
        topic: str,
        *,
        group: str,
        handler: Server,
        concurrency: int = 20,
        start_from: StartFrom = StartFrom.LAST,
    ) -> PushConsumer:
        """Answer the requests to a topic; `close` the returned consumer to stop. Members of a group share them.

        A request whose sender waits no longer is skipped, as far as the server can tell whose clock may be any other than the
        brokers': by how much longer than others it has waited. One whose handler fails gets no reply: its sender's time ends.

        Args:
            handler: gets the request and returns the reply's body, or None for no reply. A function or a coroutine function.
            concurrency, start_from: as in `subscribe`.

        Raises:
            ConfigError: an option is wrong, or this client already has a consumer of the group.
        """
        check_function("handler", handler)
        answer = ReplyHandler(self.session, self._sender.group, handler)
        options = consumer_options(
            group,
            {topic: "*"},
            concurrency=concurrency,
            start_from=start_from,
            model="clustering",
            orderly=False,
            max_reconsume_times=-1,
            strategy="AVG",
        )
        return await self._join(answer, options)
