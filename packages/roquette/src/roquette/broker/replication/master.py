"""The master's side of replication: the door for replicas, their feeds, what replies may speak of."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from roquette.base.descriptors import words_of
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start
from roquette.broker.replication.feed import AT_ONCE, Feed
from roquette.broker.replication.ha_ticket import HaTickets
from roquette.broker.replication.quorum import Quorum
from roquette.errors import ConfigError
from roquette.remoting.ha import HaConnection, HaDoor, HaSide, Silence
from roquette.remoting.outcomes import Reply
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire.bodies import HaStatus, ReplicaStatus
from roquette.wire.codes import RequestCode
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker.replication")

MOST_AHEAD: Final = 16  # hosts that are remembered: anybody may report anything
TELL_S: Final = 0.02  # replicas hear of a confirmed offset so soon, when no unit brings it


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
        self._ahead: dict[
            str, tuple[int, int]
        ] = {}  # by host: its end, and where ours may be another
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
        """What each replica gets in a second, for `status`."""
        return [Beat("replication-rates", 1.0, self._measure)]

    def load(self, start: Start) -> None:
        """What a power cut has taken from the log, a replica may have."""
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
        """A replica has the log up to `end`. One that lacks tables counts only when answers wait for it already."""
        assert feed.who is not None
        if not feed.learner or self.quorum.in_step(feed.who):
            self.quorum.report(feed.who, feed.connection.number, end)
        self.moved()

    def is_ahead(self, remote: str, end: int) -> bool:
        """Whether a replica of the classic protocol, which begins with this report, has what this log lacks.

        It keeps its end while it is refused, so it is known by it when this log has grown past that; and when it has grown
        before it came, by what nobody can have got of this log since it was opened (Apache's compares no record).
        """
        host = remote.rpartition(":")[0]
        known = self._ahead.get(host)
        self._ours = max([self._ours, *(feed.sent for feed in self._feeds.values())])
        ours = min(self.end, self._ours)
        if end > ours and (known is None or known[0] != end):
            known = self._ahead[host] = (end, ours)
            if len(self._ahead) > MOST_AHEAD:
                del self._ahead[next(iter(self._ahead))]
        if known is not None and end <= known[1]:
            del self._ahead[host]  # emptied, or it fits again
        if known is None or known[0] != end:
            return False
        words = "a replica has what this log lacks, and gets nothing: %s; roquette store take-tail brings it here"
        self._noise.line(logging.ERROR, f"ahead {host}", words, _ahead_words(host, known))
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
            "replicaAhead": "; ".join(_ahead_words(*one) for one in self._ahead.items()) or "no",
        }

    async def stop(self) -> None:
        """Close the door and all connections."""
        await self._door.close()
        await self.tasks.stop()


def _ahead_words(host: str, ends: tuple[int, int]) -> str:
    end, ours = ends
    return f"{host} was {end - ours} bytes ahead of this log, from offset {ours} on"
