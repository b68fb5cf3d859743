"""Messages that arrive later, in `group_chaos`: delayed, timed, of transactions, and those whose handler fails."""

import asyncio
import itertools
from datetime import timedelta
from typing import TYPE_CHECKING

from roquette import StartFrom
from roquette.client.client import Client
from roquette.errors import ClientError
from roquette.message.message import ReceivedMessage

if TYPE_CHECKING:
    from tests.simulation.group_chaos import GroupChaos

LATER = "later"
PRODUCER, CONSUMER = "10.0.2.4", "10.0.3.3"


class Died(asyncio.CancelledError):
    """The producer's process, within a transaction."""


class Later:
    """Each body is named after what happens to it: its way, how long it takes at least, and a number.

    Attributes:
        owed: acknowledged, and to be consumed; with the time of the acknowledgement.
        never: rolled back.
    """

    def __init__(self, world: "GroupChaos") -> None:
        self.world = world
        self.owed: dict[bytes, float] = {}
        self.never: set[bytes] = set()
        self.got: dict[bytes, float] = {}
        self.failed: set[bytes] = set()
        self.sent: dict[bytes, float] = {}

    async def run(self) -> None:
        """Produce, until the world wants no more."""
        world, rng = self.world, self.world.loop.random
        mq = await world.client(PRODUCER, send_attempts=1, group="later")
        mq.on_check(LATER, self._check)
        reader = await world.client(CONSUMER)
        await reader.subscribe(LATER, group="later", handler=self._take, start_from=StartFrom.FIRST)
        for number in itertools.count():
            if not world.producing:
                return
            way = rng.choice(("level", "timer", "retry", "commit", "rollback", "forgotten"))
            wait = rng.choice((0, 1, 5)) if way in ("level", "timer") else 0
            body = f"{way}-{wait}-{number}".encode()
            self.sent[body] = world.now
            try:
                await self._send(mq, way, wait, body)
            except ClientError:
                await asyncio.sleep(rng.uniform(0.02, 0.3))
            await asyncio.sleep(rng.uniform(0, 0.8))

    async def _send(self, mq: Client, way: str, wait: int, body: bytes) -> None:
        if way in ("commit", "rollback", "forgotten"):
            if way == "rollback":
                self.never.add(body)
            try:
                async with mq.transaction(LATER, body) as transaction:
                    self._owe(body, transaction.receipt.status, way != "rollback")
                    if way == "rollback":
                        raise LookupError
                    if way == "forgotten":
                        raise Died
            except (LookupError, Died):
                pass
            return
        level = {0: 0, 1: 1, 5: 2}[wait] if way == "level" else 0
        at = timedelta(seconds=wait) if way == "timer" and wait else None
        receipt = await mq.send(LATER, body, delay_level=level, deliver_at=at)
        self._owe(body, receipt.status, True)

    def _owe(self, body: bytes, status: str, owed: bool) -> None:
        if owed and status in ("SEND_OK", "SLAVE_NOT_AVAILABLE"):
            self.owed[body] = self.world.now

    async def _check(self, message: ReceivedMessage) -> bool:
        return not message.body.startswith(b"rollback")

    async def _take(self, message: ReceivedMessage) -> None:
        body, now, wrong = message.body, self.world.now, self.world.wrong
        way, wait, _ = body.decode().split("-")
        if body in self.never:
            wrong.append(f"rolled back, and delivered: {body!r}")
        least = float(wait) - self.world.pops.early_ms(0) / 1000
        if now - self.sent[body] < least:
            wrong.append(f"delivered {now - self.sent[body]} s after it was sent: {body!r}")
        if way == "retry" and body not in self.failed:
            self.failed.add(body)
            raise LookupError("this handler fails the first time")
        self.got[body] = now

    def left(self) -> list[bytes]:
        """What is owed and did not come yet."""
        return [body for body in self.owed if body not in self.got]
