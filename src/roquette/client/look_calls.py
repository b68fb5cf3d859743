"""What an application can ask of queues."""

from datetime import datetime

from roquette.client import calls
from roquette.client.calls import Call
from roquette.client.client_base import ClientBase
from roquette.message.message import MessageQueue


class LookCalls(ClientBase):
    """Looking: queues and their offsets."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted; raises RouteNotFound."""
        return list((await self.session.route(topic, fresh=True)).subscribe)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The queue's oldest offset."""
        return await self._ask_master(queue, calls.min_offset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the queue's next message will get."""
        return await self._ask_master(queue, calls.max_offset(queue))

    async def offset_by_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the first message stored at or after a time (milliseconds when a number)."""
        timestamp = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
        return await self._ask_master(queue, calls.offset_by_time(queue, timestamp))

    async def _ask_master(self, queue: MessageQueue, call: Call[int]) -> int:
        await self.session.route(queue.topic)
        return await self.session.api.call(self.session.master_of(queue), call)
