"""The master's side of replication: the door for replicas, their feeds, what replies may speak of."""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from roquette.base.descriptors import words_of
from roquette.base.executor import submit
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.broker.floor.config_files import Saver
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start
from roquette.broker.replication.ha_ticket import HaTickets
from roquette.errors import ConfigError, RemoteProtocolError, StoreError
from roquette.remoting.ha import HaConnection, HaDoor, HaSide, Silence
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.store.format.layout import REPLICAS_AHEAD
from roquette.store.message_store import MessageStore
from roquette.wire.bodies import HaStatus, ReplicaStatus
from roquette.wire.codes import RequestCode
from roquette.wire.ha import Epochs, Hello, MasterWire, classic_head, epoch_head, welcome
from roquette.wire.json_body import encode_body

# Rules for who must have the bytes before a reply speaks of them: the seam, and the rules of a master without a group.


NOT_ENOUGH = "in-sync replicas not enough"
"""Apache's words (SendMessageProcessor.handlePutMessageResult), code SYSTEM_ERROR."""


class Quorum(Protocol):
    """Counts what replicas report. `who` is a member's id, in the classic protocol the replica's address; a report
    counts for the connection whose greeting came last only."""

    def hello(self, who: int | str, connection: int) -> None:
        """A replica has connected; it takes the place of its older connection."""

    def report(self, who: int | str, connection: int, end: int) -> None:
        """A replica has the log up to `end`."""

    def lost(self, who: int | str, connection: int) -> None:
        """A connection has ended."""

    @property
    def confirmed(self) -> int:
        """End of what replies may speak of; never less than before."""

    @property
    def header_confirm(self) -> int:
        """End of what replicas may show their readers."""

    @property
    def enough(self) -> str | None:
        """Reason why messages are refused now; None: they are taken."""

    @property
    def expected(self) -> int:
        """Replicas that should be in step."""

    @property
    def marks(self) -> Epochs:
        """The log's epochs; none: this master speaks the classic protocol only."""

    def in_step(self, who: int | str) -> bool:
        """Return True when a replica counts as one that has, or will soon have, all of the log."""


class ClassicQuorum:
    """Apache's rules outside of a group (CommitLog.handleHA, GroupTransferService, DefaultHAService).

    An ASYNC_MASTER waits for nobody. A SYNC_MASTER waits until inSyncReplicas brokers, itself among them, have a message:
    with 1, the default, at once. With allAckInSyncStateSet it waits for all replicas that are in step.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._store = core.store
        self._sync = core.live.current.broker_role == "SYNC_MASTER"
        self._ends: dict[int, int] = {}  # by connection; -1 before its first report
        self._numbers: dict[int | str, int] = {}
        self._confirmed = 0

    def hello(self, who: int | str, connection: int) -> None:
        """A replica has connected."""
        self._ends.pop(self._numbers.get(who, 0), None)
        self._numbers[who] = connection
        self._ends[connection] = -1

    def report(self, who: int | str, connection: int, end: int) -> None:
        """A replica has the log up to `end`."""
        if connection in self._ends:
            self._ends[connection] = end

    def lost(self, who: int | str, connection: int) -> None:
        """A connection has ended."""
        self._ends.pop(connection, None)
        if self._numbers.get(who) == connection:
            del self._numbers[who]

    def _is_near(self, end: int) -> bool:
        gap = self._live.current.ha_max_gap_not_in_sync
        return end >= 0 and self._store.max_physical_offset - end < gap

    def in_step(self, who: int | str) -> bool:
        """Return True when it is connected and not further behind than haMaxGapNotInSync (isInSyncSlave)."""
        return self._is_near(self._ends.get(self._numbers.get(who, 0), -1))

    @property
    def confirmed(self) -> int:
        """As far as enough brokers have the log."""
        config, end = self._live.current, self._store.max_physical_offset
        if self._sync and config.all_ack_in_sync_state_set:
            end = min((each for each in self._ends.values() if self._is_near(each)), default=end)
        elif self._sync and config.in_sync_replicas > 1:
            ends = sorted(self._ends.values(), reverse=True)
            others = config.in_sync_replicas - 1
            end = ends[others - 1] if len(ends) >= others else 0
        self._confirmed = max(self._confirmed, end)
        return self._confirmed

    @property
    def header_confirm(self) -> int:
        """Not told in the classic protocol."""
        return self._confirmed

    @property
    def enough(self) -> str | None:
        """With fewer brokers in step than minInSyncReplicas a SYNC_MASTER refuses messages."""
        if not self._sync:
            return None
        least = self._live.current.min_in_sync_replicas
        if least <= 1 or 1 + sum(map(self._is_near, self._ends.values())) >= least:
            return None
        return NOT_ENOUGH

    @property
    def expected(self) -> int:
        """By totalReplicas: nobody else knows."""
        return self._live.current.total_replicas - 1

    @property
    def marks(self) -> Epochs:
        """None: there are no epochs outside of a group."""
        return ()


# The feed of one replica: the turn's bytes while it keeps up, else the log from where it stands.
# The bytes that wait for a replica are bounded: with 4 MiB nothing is added (`HaConnection.full`), and later it goes on from the log. Units end where files of the log and epochs do: Apache's replica drops one that crosses a file, without a word.


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
        """Return True when a replica of the classic protocol, which begins with this report, has what this log lacks."""

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
        """Set where the first unit begins (DefaultHAConnection.WriteSocketService.run): an empty classic replica gets
        the last file only, one of a group everything."""
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
        """Go on: what waited has been taken."""
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


MOST_AHEAD: Final = 16  # hosts that are remembered: anybody may report anything
SAVE_S: Final = 1.0  # their file is written once in so long
TELL_S: Final = 0.02  # replicas hear of a confirmed offset so soon, when no unit brings it


class ReplicasAhead(msgspec.Struct):
    """replicasAhead.json.

    Attributes:
        hosts: of each replica that has what this log lacks: where its log ended, and where this one ended then.
    """

    hosts: dict[str, tuple[int, int]] = {}


class MasterReplication(Feature):
    """Feeds replicas.

    Args:
        quorum: who must have the bytes before a reply speaks of them.

    Attributes:
        end: of the written log. unit: bytes of the log in one unit.
    """

    def __init__(self, core: BrokerCore, quorum: Quorum) -> None:
        self._tickets = HaTickets(core)
        config = core.live.current
        self.store = core.store
        self.quorum = quorum
        self.tasks = Tasks()
        self.unit = config.ha_transfer_batch_size
        self.end = core.store.max_physical_offset
        self._core = core
        self._feeds: dict[int, Feed] = {}  # by connection
        self._known = ReplicasAhead()
        self._came: set[str] = set()  # of those, since the start
        self._known_file = Saver(core.files, REPLICAS_AHEAD, lambda: self._known)
        self._ours = 1 << 62  # a log that was not closed in order: as far as it was found, or sent
        self._noise = RateLimited(log, core.clock)
        self._confirmed = -1
        # Else nobody asks what is confirmed while there is no replica.
        self._counts = core.replicas.waits or bool(quorum.marks)
        self._shared: tuple[int, int, list[bytes]] = (-1, -1, [])
        self._telling = False
        silence = Silence(config.ha_send_heartbeat_interval, config.ha_housekeeping_interval)
        self._door = HaDoor(self._come, silence, core.clock, tls=core.protection.tls)

    def rows(self) -> Iterable[Row]:
        """GET_BROKER_HA_STATUS, GET_HA_TICKET."""
        return [
            row(RequestCode.GET_BROKER_HA_STATUS, self.status, None, Lane.ADMIN, Promise.NOTHING),
            *self._tickets.rows(),
        ]

    def beats(self) -> Iterable[Beat]:
        """Return the beat that measures what each replica gets in a second, for `status`."""
        return [Beat("replication-rates", 1.0, self._measure)]

    def load(self, start: Start) -> None:
        """Note where the log ends after a power cut: a replica may have what that has taken from it. Apache's compares no
        record and comes again, when this log has grown past it, too: so who was ahead is in a file."""
        self._known = self._core.files.load(REPLICAS_AHEAD, ReplicasAhead) or self._known
        if start.abnormal:
            self._ours = self.store.max_physical_offset

    async def start(self, tasks: Tasks) -> None:
        """Open the door. Raises ConfigError: the port is taken, and replies wait for replicas."""
        config, port = self._core.live.current, self._core.identity.ha_port
        self.end = self.store.max_physical_offset
        self.moved()
        try:
            await self._door.open(config.bind_address, port)
        except OSError as error:
            words = f"cannot listen for replicas on {config.bind_address}:{port}: {words_of(error)}"
            if config.broker_role == "SYNC_MASTER" or config.enable_controller_mode:
                raise ConfigError(f"{words}; set another haListenPort") from None
            log.warning("%s; no replica can follow (haListenPort)", words)

    def _come(self, connection: HaConnection) -> HaSide:
        return self._tickets.door(connection, lambda known: Feed(known, self))

    # The turn.

    def turn_written(self, log_end: int) -> bool:
        """Send what the turn has written to all that are in step."""
        if log_end != self.end:
            self.end = log_end
            if self._feeds or self._counts:
                for feed in list(self._feeds.values()):
                    feed.follow()
                self.moved()
        return True

    def bodies(self, start: int) -> list[bytes]:
        """The written log from `start` on, cut where its files end; read once for all that stand there."""
        if self._shared[:2] == (start, self.end):
            return self._shared[2]
        found, place, most = [], start, min(self.end, start + AT_ONCE)
        while place < most:
            data = self.store.read_raw(place, most - place)
            if not data:
                break
            found.append(data)
            place += len(data)
        self._shared = start, self.end, found
        return found

    def moved(self) -> None:
        """Replies that waited for what is confirmed now may leave. To be called when the quorum has changed."""
        confirmed = self.quorum.confirmed
        self._core.replicas.refusal = self.quorum.enough
        if confirmed <= self._confirmed:
            return
        self._confirmed = confirmed
        self._core.log_sync.replicated(confirmed)
        if self.quorum.marks and self._feeds and not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_later(TELL_S, self._tell)

    def _tell(self) -> None:
        self._telling = False
        for feed in list(self._feeds.values()):
            feed.tell_confirmed(self.quorum.header_confirm)

    # Replicas: what feeds say.

    def greeted(self, feed: Feed) -> None:
        """A replica has said who it is: an older connection of it ends."""
        assert feed.who is not None
        for other in list(self._feeds.values()):
            if other.who == feed.who:
                other.connection.close(f"replica {feed.who} has connected again")
                self.lost(other)
        self._feeds[feed.connection.number] = feed
        self.quorum.hello(feed.who, feed.connection.number)

    def reported(self, feed: Feed, end: int) -> None:
        """A replica has the log up to `end`. One that lacks tables counts only when it is in step already: the log alone
        takes no doubt from it."""
        assert feed.who is not None
        if not feed.learner or self.quorum.in_step(feed.who):
            self.quorum.report(feed.who, feed.connection.number, end)
        self.moved()

    def is_ahead(self, remote: str, end: int) -> bool:
        """Return True when a replica of the classic protocol, which begins with this report, has what this log lacks.

        It keeps its end while it is refused, so it is known by it when this log has grown past that; and when it has grown
        before it came, by what nobody can have got of this log since it was opened (Apache's compares no record).
        """
        host, hosts = remote.rpartition(":")[0], self._known.hosts
        known = hosts.get(host)
        self._ours = max([self._ours, *(feed.sent for feed in self._feeds.values())])
        ours = min(self.end, self._ours)
        if end > ours and (known is None or known[0] != end):
            known = hosts[host] = (end, ours)
            if len(hosts) > MOST_AHEAD:
                del hosts[next(iter(hosts))]
            self._known_file.soon(self.tasks, SAVE_S)
        if known is not None and end <= known[1]:
            del hosts[host]  # emptied, or it fits again
            self._known_file.soon(self.tasks, SAVE_S)
        if known is None or known[0] != end:
            return False
        self._came = {host, *self._came} & hosts.keys()
        words = "a replica has what this log lacks, and gets nothing: %s; roquette store take-tail brings it here"
        self._noise.line(logging.ERROR, f"ahead {host}", words, _ahead_words(host, *known))
        return True

    def lost(self, feed: Feed) -> None:
        """A connection has ended."""
        if self._feeds.pop(feed.connection.number, None) is not None:
            assert feed.who is not None
            self._ours = max(self._ours, feed.sent)
            log.info("a replica has gone replica=%s has=%d", feed.who, feed.acked)
            self.quorum.lost(feed.who, feed.connection.number)
            self.moved()

    def drop(self, who: int | str) -> None:
        """Close a replica's connection: it comes again, and says what it has."""
        for feed in list(self._feeds.values()):
            if feed.who == who:
                feed.connection.close(f"replica {who} must say anew what it has")

    # What operators see.

    def _measure(self) -> None:
        self.moved()  # settings may have changed
        for feed in self._feeds.values():
            feed.rate, feed.counted = feed.connection.sent - feed.counted, feed.connection.sent

    def status(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_HA_STATUS."""
        found = [
            ReplicaStatus(
                addr=feed.connection.remote,
                slave_ack_offset=feed.acked,
                diff=self.end - feed.acked,
                in_sync=self._in_step(feed),
                transferred_byte_in_second=feed.rate,
                transfer_from_where=feed.sent,
            )
            for feed in self._feeds.values()
        ]
        near = sum(each.in_sync for each in found)
        answer = HaStatus(
            master=True,
            master_commit_log_max_offset=self.end,
            in_sync_slave_nums=near,
            ha_connection_info=found,
        )
        return Reply(b"", encode_body(answer))

    def _in_step(self, feed: Feed) -> bool:
        return feed.who is not None and self.quorum.in_step(feed.who)

    def health(self) -> dict[str, str]:
        """Replicas, those expected and in step, how far the last one is behind, bytes; those that have what this log lacks."""
        feeds = list(self._feeds.values())
        return {
            "replicas": str(len(feeds)),
            "replicasExpected": str(self.quorum.expected),
            "replicasInStep": str(sum(map(self._in_step, feeds))),
            "replicaLagBytes": str(max((self.end - max(f.acked, 0) for f in feeds), default=0)),
            "replicaAhead": "; ".join(
                _ahead_words(host, *ends)
                for host, ends in self._known.hosts.items()
                if host in self._came
            )
            or "no",
        }

    async def stop(self) -> None:
        """Close the door and all connections."""
        await self._door.close()
        await self.tasks.stop()

    def save_now(self) -> None:
        """Write down who is ahead."""
        self._known_file.try_save_now()


def _ahead_words(host: str, end: int, ours: int) -> str:
    return f"{host} was {end - ours} bytes ahead of this log, from offset {ours} on"
