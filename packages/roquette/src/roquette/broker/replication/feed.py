"""What one replica is sent: the turn's bytes while it keeps up, else the log from where it stands.

What waits for a replica is bounded: with 4 MiB nothing is added (`HaConnection.full`), and later it goes on from the log.
Units end where files of the log and epochs do: Apache's replica drops one that crosses a file, without a word.
"""

import asyncio
import logging
from bisect import bisect_right
from typing import Final, Protocol

from roquette.base.executor import submit
from roquette.base.lifecycle import Tasks
from roquette.broker.replication.quorum import Quorum
from roquette.errors import RemoteProtocolError, StoreError
from roquette.remoting.ha import HaConnection
from roquette.store.message_store import MessageStore
from roquette.wire.ha import Hello, MasterWire, classic_head, epoch_head, welcome

log = logging.getLogger("roquette.broker.replication")

AT_ONCE: Final = 1 << 20
"""A replica that is further behind than this is sent what a worker thread reads, in pieces of this size."""


class Log(Protocol):
    """The master's log, as feeds see it.

    Attributes:
        unit: bytes of the log in one unit. end: of what is written.
    """

    store: MessageStore
    quorum: Quorum
    tasks: Tasks
    unit: int
    end: int

    def bodies(self, start: int) -> list[bytes]:
        """The written log from `start` on, cut where its files end: at most `AT_ONCE` bytes."""

    def greeted(self, feed: "Feed") -> None:
        """A replica has said who it is."""

    def reported(self, feed: "Feed", end: int) -> None:
        """It has the log up to `end`."""

    def is_ahead(self, remote: str, end: int) -> bool:
        """Whether a replica of the classic protocol, which begins with this report, has what this log lacks."""

    def lost(self, feed: "Feed") -> None:
        """Its connection has ended."""


class Feed:
    """One replica on one connection.

    Attributes:
        who: its member id, in the classic protocol its address; None before it has said anything.
        acked: its last report; sent: where the next unit begins; both -1 before its first report.
        told: the confirmed offset that it heard last.
        learner: it is sent the log, and lacks our tables: what it reports brings it into no set.
    """

    def __init__(self, connection: HaConnection, hub: Log) -> None:
        self.connection = connection
        self.who: int | str | None = None
        self.acked = self.sent = self.told = -1
        self.rate = 0  # bytes in the last second
        self.counted = 0  # bytes, when `rate` was taken
        self.learner = False
        self._hub = hub
        self._wire = MasterWire()
        self._last_file_only = False
        self._reading: asyncio.Task[None] | None = None
        self._free = asyncio.Event()

    # What arrives: `remoting.ha.HaSide`.

    def received(self, data: bytes) -> None:
        """A greeting, a report, or a part of one. Raises RemoteProtocolError."""
        greeting, end = self._wire.receive(data)
        if greeting is not None:
            self._greet(greeting)
        if end is not None and not self.connection.closing:
            self._report(end)

    def _greet(self, greeting: Hello) -> None:
        hub, marks = self._hub, self._hub.quorum.marks
        if not marks:
            raise RemoteProtocolError(
                "a replica greets with epochs, and this master has none: it is in no group (enableControllerMode)"
            )
        if self.learner and greeting == (self.who, False, False):
            self.learner = False  # it has them
            return
        if self.acked >= 0 or self.who not in {None, greeting.member}:
            raise RemoteProtocolError("a replica greets again, as another one")
        if self.who is None:
            self.who = greeting.member
            hub.greeted(self)
        self._last_file_only, self.learner = greeting.last_file_only, greeting.learner
        self.connection.send([welcome(hub.end, marks)])

    def _report(self, end: int) -> None:
        hub = self._hub
        begins = self.sent < 0
        most = hub.end if begins else self.sent
        ahead = begins and not self._wire.handshake and hub.is_ahead(self.connection.remote, end)
        if end > most or ahead:  # Apache acknowledges all there is by it (its issue 1155)
            raise RemoteProtocolError(f"a replica reports {end}, it was sent the log up to {most}")
        if self.who is None:
            self.who = self.connection.remote
            hub.greeted(self)
        if self.sent < 0:
            self._begin(end)
        self.acked = end
        hub.reported(self, end)
        self.follow()

    def _begin(self, end: int) -> None:
        """Where the first unit begins (DefaultHAConnection.WriteSocketService.run): an empty classic replica gets the
        last file only, one of a group everything."""
        store, start = self._hub.store, end
        first = store.min_physical_offset
        if not end:
            start = first
            if self._last_file_only or not self._wire.handshake:
                start = max(first, self._hub.end - self._hub.end % store.config.segment_size)
        if start < first:
            log.warning(
                "a replica asks for what is deleted, it gets the log from its begin on "
                "replica=%s asks=%d begin=%d",
                self.who,
                start,
                first,
            )
            start = first
        log.info("a replica follows replica=%s has=%d from=%d", self.who, end, start)
        self.sent = start

    def room(self) -> None:
        """What waited has been taken."""
        self._free.set()
        self.follow()

    def sign(self) -> None:
        """Nothing was sent for long."""
        if self.sent >= 0 and self._reading is None:
            self.told = self._hub.quorum.header_confirm
            self.connection.send([self._head(self.sent, 0)])

    def lost(self) -> None:
        """The connection has ended."""
        if self._reading is not None:
            self._reading.cancel()
        self._hub.lost(self)

    # What is sent.

    def follow(self) -> None:
        """Send what the log has more, or begin to read it when that is much."""
        hub, connection = self._hub, self.connection
        if not 0 <= self.sent < hub.end or self._reading is not None:
            return
        if connection.full or connection.closing:
            return
        if hub.end - self.sent > AT_ONCE:
            self._reading = hub.tasks.start(f"catch-up-{connection.number}", self._catch_up())
            return
        try:
            bodies = hub.bodies(self.sent)
        except (OSError, StoreError) as error:
            connection.close(f"the log cannot be read: {error}")
            return
        self._send(bodies)

    async def _catch_up(self) -> None:
        """Read and send until little is left."""
        hub, connection = self._hub, self.connection
        try:
            while not connection.closing and hub.end - self.sent > AT_ONCE:
                if connection.full:
                    self._free.clear()
                    await self._free.wait()
                    continue
                plan = hub.store.plan_raw(self.sent, AT_ONCE)
                self._send([await submit(plan)])
        except (OSError, StoreError) as error:
            connection.close(f"the log cannot be read: {error}")
        finally:
            self._reading = None
        self.follow()

    def _send(self, bodies: list[bytes]) -> None:
        if not bodies or not bodies[0]:
            self.connection.close(f"the log has nothing at {self.sent} any more")
            return
        parts: list[bytes] = []
        unit = self._hub.unit
        for body in bodies:
            place, whole = 0, len(body)
            while place < whole:
                size = min(unit, whole - place, self._epoch_end(self.sent) - self.sent)
                parts.append(self._head(self.sent, size))
                parts.append(body if size == whole else body[place : place + size])
                place += size
                self.sent += size
        self.told = self._hub.quorum.header_confirm
        self.connection.send(parts)

    def _head(self, offset: int, size: int) -> bytes:
        if not self._wire.handshake:
            return classic_head(offset, size)
        quorum = self._hub.quorum
        marks = quorum.marks
        number = max(0, bisect_right(marks, offset, key=lambda mark: mark[1]) - 1)
        epoch, start = marks[number]
        return epoch_head(offset, size, epoch, start, quorum.header_confirm)

    def _epoch_end(self, offset: int) -> int:
        if self._wire.handshake:
            marks = self._hub.quorum.marks
            number = bisect_right(marks, offset, key=lambda mark: mark[1])
            if number < len(marks):
                return marks[number][1]
        return self._hub.end

    def tell_confirmed(self, confirmed: int) -> None:
        """Replicas show their readers what is confirmed: tell it when no unit does."""
        in_step = self._wire.handshake and self.sent == self._hub.end
        if in_step and self.told < confirmed and not self.connection.full:
            self.sign()
