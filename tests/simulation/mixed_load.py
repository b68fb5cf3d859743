"""Hours of everything that applications do with a broker, and whether what it costs stays flat.

One round after the other: a plain send, a batch, a delayed message, a transaction. A push consumer, which fails now and then,
and a group that pops take all of it. Its books hold what is on its way only. A soak in virtual time (test_soak.py) and one
of real servers (tests/crash/test_soak.py) run it.
"""

import asyncio
import statistics
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from roquette import StartFrom
from roquette.client.client import Client
from roquette.message.message import ReceivedMessage

TOPIC = "orders"
QUIET_S = 60.0
LOOKS = 24
SETTINGS = {"file_reserved_bytes": 8 << 20, "segment_size": 1 << 20}  # files come and go


class MixedLoad:
    """One run.

    Args:
        mq: a client with a group of its own.
        seconds: how long, by the loop's time, with `pause` seconds between rounds.
        look: figures of the server, by name.

    Attributes:
        sent: messages so far.
        looks: what `look` gave, with the 99th percentile of sends since the look before as `send_ms`.
    """

    def __init__(self, mq: Client[Any], seconds: float, pause: float, look: Callable[[], dict[str, float]]) -> None:  # fmt: skip
        self._mq, self._seconds, self._pause, self._look = mq, seconds, pause, look
        self._spans: list[float] = []
        self._due: dict[str, set[bytes]] = {"push": set(), "pop": set()}
        self._failed: set[bytes] = set()
        self.sent = 0
        self.looks: list[dict[str, float]] = []

    async def run(self) -> None:
        """All of it; fails when a message does not come."""
        loop = asyncio.get_running_loop()
        await self._round()  # which makes the topic
        popping = loop.create_task(self._pop())
        async with self._mq.subscribe(TOPIC, self._take, group="push", start_from=StartFrom.FIRST):
            began = loop.time()
            for number in range(1, LOOKS + 1):
                while not self._spans or loop.time() < began + self._seconds * number / LOOKS:
                    await self._round()
                    await asyncio.sleep(self._pause)
                p99 = sorted(self._spans)[len(self._spans) * 99 // 100] * 1000
                self.looks.append(self._look() | {"send_ms": p99})
                self._spans.clear()
            for _ in range(int(QUIET_S)):
                if not any(self._due.values()):
                    break
                await asyncio.sleep(1.0)
        popping.cancel()
        left = {group: sorted(due)[:5] for group, due in self._due.items() if due}
        assert not left, f"never consumed: {left}"

    def _next(self) -> bytes:
        self.sent += 1
        body = b"%d" % self.sent
        for due in self._due.values():
            due.add(body)
        return body

    async def _round(self) -> None:
        mq, time = self._mq, asyncio.get_running_loop().time
        began = time()
        await mq.send(TOPIC, self._next(), key=f"order-{self.sent}", tag="new")
        self._spans.append(time() - began)
        await mq.send_batch(TOPIC, [self._next(), self._next()])
        await mq.send(TOPIC, self._next(), deliver_at=timedelta(seconds=5))
        async with mq.transaction(TOPIC, self._next()):
            pass

    async def _take(self, message: ReceivedMessage) -> bool:
        if int(message.body) % 50 == 0 and message.reconsume_times == 0:
            return False
        self._due["push"].discard(message.body)
        return True

    async def _pop(self) -> None:
        async with self._mq.pop(TOPIC, group="pop", invisible=30.0) as messages:
            async for message in messages:
                self._due["pop"].discard(message.body)
                await message.ack()


def grown(looks: list[dict[str, float]]) -> dict[str, float]:
    """By how much each figure is larger in the last quarter than in the second; medians."""
    quarter = len(looks) // 4
    early, late = looks[quarter : 2 * quarter], looks[-quarter:]
    return {
        name: statistics.median(look[name] for look in late)
        - statistics.median(look[name] for look in early)
        for name in looks[0]
    }
