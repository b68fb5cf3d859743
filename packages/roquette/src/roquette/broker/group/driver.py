"""Carries out what the take-over table decides: calls to the agreement, one of each kind at a time, and orders to the
member. All of it on the event loop; time is the member's clock that goes on while the machine sleeps."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from roquette.base.clock import Clock
from roquette.base.lifecycle import Health, Tasks
from roquette.base.logs import RateLimited
from roquette.errors import AgreementError
from roquette.replication.effects import (
    Confirmed,
    Deposed,
    Drop,
    Effect,
    Entered,
    Fenced,
    Follow,
    Leave,
    Read,
    SetChanged,
    Won,
    Write,
)
from roquette.replication.record import Agreement, GroupRecord, read_group
from roquette.replication.takeover import TakeOver

log = logging.getLogger("roquette.broker.replication")


class Orders(Protocol):
    """Orders of the table to the member."""

    def won(self, epoch: int) -> None:
        """Become master."""

    def deposed(self, why: str) -> None:
        """Acknowledge nothing from now on, and be a replica again."""

    def follow(self, order: Follow) -> None:
        """Connect to that master; no order before it counts."""

    def leave(self) -> None:
        """Take nothing from the master any more."""

    def drop(self, who: int) -> None:
        """Close the connection of a replica of ours."""

    def entered(self, record: GroupRecord) -> None:
        """The record knows this opening of the store: note it on the disk."""

    def fail(self, why: str) -> None:
        """This process cannot go on."""

    def confirmed(self, offset: int) -> None:
        """All of the set has the log up to here."""

    def own_end(self) -> int:
        """Return where our log ends."""

    def sick(self) -> str:
        """Return why our disk takes no messages, in words; empty: it does."""


class TakeOverDriver:
    """Runs one table.

    Args:
        key: of the group's record.
    """

    def __init__(
        self,
        table: TakeOver,
        agreement: Agreement,
        key: str,
        clock: Clock,
        orders: Orders,
    ) -> None:
        self.table = table
        self._agreement = agreement
        self._key = key
        self._clock = clock
        self._orders = orders
        self._tasks = Tasks()
        self._reading = self._writing = False
        self._noise = RateLimited(log, clock)
        self._trouble = ""
        self._reached_ms = self.now_ms  # when the record was last read or written
        self._owed: list[Effect] = []  # what waits for the disk, and all behind it

    @property
    def now_ms(self) -> int:
        """The time of leases."""
        return self._clock.lease_ms()

    def start(self, look_ms: int) -> None:
        """Look at the record each `look_ms`, for ever."""

        async def look(health: Health) -> None:
            while True:
                self.table.sick = self._orders.sick()
                self.table.unreachable = self._unreachable()
                self.act(self.table.tick(self.now_ms, self._orders.own_end()))
                self._tell_trouble()
                health.worked()
                await asyncio.sleep(look_ms / 1000)

        self._tasks.keep("take-over", look)

    def _unreachable(self) -> str:
        """Only when it lasts: without the record nobody keeps or gets a lease."""
        if self.now_ms - self._reached_ms <= self.table.settings.ttl_ms:
            return ""
        return "the group's record is out of reach: see to the controllers (controllerAddr)"

    def _tell_trouble(self) -> None:
        """Log why there is no master, once for each reason."""
        if self.table.trouble != self._trouble:
            self._trouble = self.table.trouble
            if self._trouble:
                log.warning("the group has a trouble key=%s: %s", self._key, self._trouble)
            else:
                log.info("the group's trouble is over key=%s", self._key)

    async def stop(self) -> None:
        """End all calls."""
        await self._tasks.stop()

    def act(self, effects: Iterable[Effect]) -> None:
        """Carry out, in this order. While the disk does not take what one of them needs, the record is let alone: the
        table asks for it again and again."""
        if self._owed:
            fresh = [each for each in effects if not isinstance(each, Read | Write)]
            effects, self._owed = [*self._owed, *fresh], []
        left = iter(effects)
        for effect in left:
            try:
                self._carry_out(effect)
            except OSError as error:
                self._owed = [effect, *left]
                self._noise.warning("disk", "the member's file cannot be written: %s", error)

    def _carry_out(self, effect: Effect) -> None:
        orders = self._orders
        match effect:
            case Read():
                self._read()
            case Write():
                self._write(effect)
            case Won():
                orders.won(effect.epoch)
            case Deposed():
                orders.deposed(effect.why)
            case Follow():
                orders.follow(effect)
            case Leave():
                orders.leave()
            case Drop():
                orders.drop(effect.who)
            case Entered():
                orders.entered(effect.record)
            case Fenced():
                orders.fail(effect.why)
            case Confirmed():
                orders.confirmed(effect.offset)
            case SetChanged():
                log.info("brokers in step: %s key=%s", effect.members, self._key)

    def _read(self) -> None:
        if not (self._reading or self._writing):
            self._reading = True
            self._tasks.start("read-record", self._get())

    async def _get(self) -> None:
        sent_ms = self.now_ms
        try:
            revision, record = await read_group(self._agreement, self._key)
        except AgreementError as error:
            self._noise.warning("record", "the group's record is out of reach: %s", error)
            return
        finally:
            self._reading = False
        self._reached_ms = self.now_ms
        self.act(self.table.saw(self.now_ms, revision, record, sent_ms))

    def _write(self, order: Write) -> None:
        if not self._writing:
            self._writing = True
            self._tasks.start("write-record", self._put(order))

    async def _put(self, order: Write) -> None:
        sent_ms = self.now_ms
        try:
            value = order.record.encode()
            revision = await self._agreement.put_if(self._key, order.revision, value)
        except AgreementError as error:
            self._noise.warning("record", "the group's record may not be written: %s", error)
            return
        finally:
            self._writing = False
        self._reached_ms = self.now_ms
        if revision is None:
            self._read()
        else:
            self.act(self.table.saw(self.now_ms, revision, order.record, sent_ms))
