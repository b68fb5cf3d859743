"""Calls by which an application looks at queues and stored messages."""

from collections.abc import Callable
from datetime import datetime

from roquette.client import calls
from roquette.client.arguments import check_count, since_1970_ms
from roquette.client.calls import Call
from roquette.client.client_base import ClientBase
from roquette.client.find_requests import FOREVER_MS, query, view
from roquette.client.operations import ask_all
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.message.message_id import decode_offset_message_id, host_text


class LookCalls(ClientBase):
    """Looking: queues and their offsets."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted; raises RouteNotFound."""
        space = self.session.namespace
        route = await self.session.route(space.wrap(topic), fresh=True)
        return list(space.shown_queues(route.subscribe))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        return await self._ask_master(queue, calls.min_offset)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return await self._ask_master(queue, calls.max_offset)

    async def offset_by_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the first message stored at or after a time (milliseconds when a number)."""
        timestamp = since_1970_ms("when", when)
        return await self._ask_master(queue, lambda known: calls.offset_by_time(known, timestamp))

    async def find(
        self,
        topic: str,
        key: str,
        *,
        most: int = 64,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[ReceivedMessage]:
        """The messages of a topic with a key, or with a message id, of all brokers, by the time they were stored.

        Args:
            key: one of `message.keys`, or a `message_id`.
            most: of each broker, 1 to 1,000; brokers may have a lower limit (Apache's: 64 for what has no time).
            since, until: stored between these.

        Raises:
            RouteNotFound: no name server knows the topic.
            BrokerError, ConnectError, RequestTimeout: no message was found, and a broker did not answer.
            ConfigError: `most` is out of range, a time has no zone.
        """
        check_count("most", most)
        begin_ms = 0 if since is None else since_1970_ms("since", since)
        end_ms = FOREVER_MS if until is None else since_1970_ms("until", until)
        space = self.session.namespace
        topic = space.wrap(topic)
        route = await self.session.route(topic)
        asks = [
            (address, query(name, topic, key, min(most, 1_000), begin_ms, end_ms))
            for name in sorted(route.addresses)
            if (address := route.address_for_read(name)) is not None
        ]
        answers = await self.session.run(ask_all(asks))
        found = [space.show(message) for answer in answers for message in answer.value or ()]
        if not found:
            for answer in answers:
                answer.get()
        return sorted(found, key=lambda message: message.store_timestamp_ms)

    async def message_at(self, offset_message_id: str) -> ReceivedMessage:
        """The message at a place: the `offset_message_id` of a message or a receipt.

        Raises:
            BrokerError: there is none any more. ConnectError, RequestTimeout: the broker does not answer.
            ConfigError: it is no such id.
        """
        try:
            host, offset = decode_offset_message_id(offset_message_id)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        found = await self.session.api.call(host_text(host), view("", "", offset))
        return self.session.namespace.show(found)

    async def _ask_master(
        self, queue: MessageQueue, call: Callable[[MessageQueue], Call[int]]
    ) -> int:
        queue = self.session.namespace.wrap_queue(queue)
        await self.session.route(queue.topic)
        return await self.session.api.call(self.session.master_of(queue), call(queue))
