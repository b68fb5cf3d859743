"""The replica's side of replication: follows a master, appends its bytes as they are, reports how far it has come.

One report a turn, after the write that ends it (ASYNC_FLUSH) or after the sync (SYNC_FLUSH), and one at once when the
connection is made: Apache's replica may stay silent for 5 s then, and its master sends nothing before the first report.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from roquette.base.lifecycle import Health, Tasks
from roquette.base.logs import RateLimited
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Copied, Feature, Lane, MasterSource, words_of_master
from roquette.broker.replication.ha_ticket import TicketSource
from roquette.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    CorruptRecord,
    Refused,
    StoreError,
    StoreFull,
)
from roquette.remoting.client import split_address
from roquette.remoting.ha import HaConnection, Silence, call_master
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, row
from roquette.store.format.config import FlushDiskType
from roquette.wire.bodies import FollowerStatus, HaStatus
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.ha import Piece, SlaveWire, Welcome, hello, report
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import ViewMessageRequestHeader
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker.replication")

# Pause when the disk did not take bytes, or they had rotted: the same ones come again. So long a silence ends the place in
# the set: who goes on reporting an old end would hold acknowledgements up for ten times as long.
FAILED_S: Final = 2.0


class Source:
    """Whom a replica follows, and what it may do with what it gets.

    Attributes:
        member: our id in the group; None: the classic protocol.
        retry_s: pause after a connection that failed or ended.
        trouble: why the master's log is not taken, in words; "no": it is.
        lacks_tables: whether tables of `copied` have not come; set by who copies them.
    """

    member: int | None = None
    retry_s = 1.0
    trouble = "no"
    lacks_tables: Callable[[], bool]

    @property
    def copied(self) -> Copied:
        """Mastership whose tables are to be copied: of a master whose log is not ours, none."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Address of the master's door, host:port; empty while nobody knows. A change ends the connection."""
        raise NotImplementedError

    async def prepare(self) -> bool:
        """Before each call: bring the log into a state that can follow. False: not now."""
        return True

    def behind(self, begin: int) -> None:
        """The master's log begins at `begin`, and ours ends before that: it must begin anew."""
        raise NotImplementedError

    # What the classic protocol does not tell.

    def welcomed(self, answer: Welcome) -> bool:
        """The master has told its epochs and its end. False: its log is not to be followed from our end on."""
        return False

    def epoch_begins(self, epoch: int, start: int) -> None:
        """Bytes of an epoch come that none before had: note it on the disk. Raises OSError, StoreError."""

    def confirmed(self, offset: int) -> None:
        """Take in what the master calls confirmed; our log may end before it."""

    def health(self) -> dict[str, str]:
        """Return what a member of a group says of it."""
        return {}


class SlaveReplication(Feature):
    """Follows a master as long as the broker lives."""

    def __init__(self, core: BrokerCore, source: Source, tickets: TicketSource) -> None:
        config = core.live.current
        self._core = core
        self._source = source
        self._tickets = tickets
        self._silence = Silence(config.ha_send_heartbeat_interval, config.ha_housekeeping_interval)
        self._noise = RateLimited(log, core.clock)
        self._link: _Link | None = None
        self._calls = 0
        self._tasks = Tasks()
        self._pause_s = source.retry_s

    def rows(self) -> Iterable[Row]:
        """GET_BROKER_HA_STATUS."""
        return [
            row(RequestCode.GET_BROKER_HA_STATUS, self.status, None, Lane.ADMIN, Promise.NOTHING)
        ]

    def beats(self) -> Iterable[Beat]:
        """Silence, and another master's address."""
        return [Beat("replication-silence", self._silence.beat_s, self._look)]

    async def start(self, tasks: Tasks) -> None:
        """Begin to follow."""
        self._tasks.keep("follow-master", self._follow)

    async def _follow(self, health: Health) -> None:
        source = self._source
        while True:
            address, self._pause_s = source.address, source.retry_s
            if address and await source.prepare():
                try:
                    await self._follow_once(address)
                    health.worked()
                except ConnectError as error:
                    self._noise.warning("connect", "the master is not reached error=%s", error)
            await asyncio.sleep(self._pause_s)

    async def _follow_once(self, address: str) -> None:
        """Follow until the connection ends. Raises ConnectError."""
        core, ended = self._core, asyncio.Event()
        ticket = await self._tickets.fetch(address)
        made: list[_Link] = []

        def side(connection: HaConnection) -> "_Link":
            if ticket:
                connection.send([ticket])
            made.append(_Link(connection, address, core, self._source, self._tasks, ended))
            return made[0]

        self._calls += 1
        tls = core.protection.calls.tls
        await call_master(address, side, core.clock, number=self._calls, tls=tls)
        link = self._link = made[0]
        log.info("following master=%s from=%d", address, core.store.max_physical_offset)
        try:
            await ended.wait()
        finally:
            self._link = None
            self._pause_s = max(FAILED_S if link.failed else 0.0, self._pause_s)
            link.connection.leave()
        log.info("the master's connection has ended master=%s", address)

    def _look(self) -> None:
        link = self._link
        if link is None:
            return
        if link.address != self._source.address:
            link.connection.close(f"the master is at {self._source.address or 'no place'} now")
        link.rate, link.counted = link.connection.taken - link.counted, link.connection.taken
        link.connection.look(self._silence)
        if not link.connection.closing:
            link.tell_tables()

    def status(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_HA_STATUS."""
        link, end = self._link, self._core.store.max_physical_offset
        known = FollowerStatus(master_addr=self._source.address or None, max_offset=end)
        if link is not None:
            known.is_activated = True
            known.transferred_byte_in_second = int(link.rate / self._silence.beat_s)
            known.last_read_timestamp = ctx.now_ms - link.connection.silent_ms
            known.last_write_timestamp = ctx.now_ms - link.connection.mute_ms
        return Reply(b"", encode_body(HaStatus(master=False, ha_client_runtime_info=known)))

    def health(self) -> dict[str, str]:
        """Whom it follows, whether they are connected, and why not when that is the log's fault."""
        return {
            "followsMaster": self._source.address or "unknown",
            "followsConnected": str(self._link is not None).lower(),
            **self._source.health(),
            "followsRefused": self._source.trouble,
        }

    def unready(self) -> str:
        """Return why what is sent does not come here."""
        told = self.health()
        why = told.get("groupTrouble") or told["followsRefused"].removeprefix("no")
        return f"it follows no master{why and ': '}{why}" if self._link is None else ""

    async def stop(self) -> None:
        """Follow no more."""
        await self._tasks.stop()


class _Link:
    """One connection to the master: `remoting.ha.HaSide`."""

    def __init__(
        self,
        connection: HaConnection,
        address: str,
        core: BrokerCore,
        source: Source,
        tasks: Tasks,
        ended: asyncio.Event,
    ) -> None:
        self.connection = connection
        self.address = address
        self.rate = self.counted = 0
        self._core = core
        self._store = core.store
        self._source = source
        self._tasks = tasks
        self._ended = ended
        self._handshake = source.member is not None
        self._wire = SlaveWire(self._handshake, core.store.config.segment_size)
        self._synced_only = core.live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._syncing = False
        self._epoch = -1
        self.failed = False
        self._old_end = 0  # what the master had when we came it may have read from a disk that rots
        self._reported = -1  # nothing yet: the master sends nothing either
        self._learns = False  # we said that we lack tables: the master is not to count us
        if source.member is not None:
            self._learns = source.lacks_tables()
            connection.send([hello(source.member, learner=self._learns)])
        else:  # of an empty log: where it is to begin
            self._report(core.store.max_physical_offset or core.store.raw_end)

    def received(self, data: bytes) -> None:
        """Append what has come, end the turn, report. Raises RemoteProtocolError."""
        connection = self.connection
        if self._source.address != self.address:  # it was to be left before this came
            connection.close("its bytes are not wanted any more")
            return
        try:
            for one in self._wire.receive(data):
                if isinstance(one, Piece):
                    if not self._take(one):
                        break
                elif not self._source.welcomed(one):
                    connection.leave()
                    break
                else:
                    self._old_end = one.end
                    self._report(self._safe_end())
        except (OSError, StoreError) as error:
            self.failed = isinstance(error, CorruptRecord | StoreFull | OSError)
            connection.close(f"the master's bytes cannot be taken: {error}")
        self._core.shell.end_turn()
        if not connection.closing and self._store.writable:
            self._after_turn()

    def _take(self, piece: Piece) -> bool:
        """Append a piece; False: the connection is of no use."""
        store = self._store
        if piece.data:
            if piece.offset > store.raw_end and store.max_physical_offset:
                self._source.behind(piece.offset)
                self.connection.close(
                    f"the master's log begins at {piece.offset}, ours ends at {store.raw_end}"
                )
                return False
            if piece.epoch > self._epoch:
                self._source.epoch_begins(piece.epoch, piece.epoch_start)
                self._epoch = piece.epoch
            checks = piece.offset < self._old_end and store.config.check_crc_on_recover
            store.append_raw(piece.offset, piece.data, checks)
        if self._handshake:
            self._source.confirmed(piece.confirmed)
        return True

    def _safe_end(self) -> int:
        return self._store.synced_offset if self._synced_only else self._store.wrote

    def _after_turn(self) -> None:
        if self._reported < 0:
            return  # no answer to our greeting yet
        if self._safe_end() > self._reported:
            self._report(self._safe_end())
        if self._synced_only and not self._syncing and self._store.wrote > self._reported:
            self._syncing = True
            self._tasks.start("report-synced", self._report_synced())

    async def _report_synced(self) -> None:
        """Report after the sync that is under way, and after the next, until all is reported."""
        try:
            while not self.connection.closing and self._store.wrote > self._reported:
                if await self._core.log_sync.on_disk(self._store.wrote):
                    self._report(self._safe_end())
        finally:
            self._syncing = False

    def _report(self, end: int) -> None:
        self._reported = end
        frames = [report(end, handshake=self._handshake)]
        if self._learns and not self._source.lacks_tables():
            self._learns = False
            frames.insert(0, hello(self._source.member or 0))
        self.connection.send(frames)

    def tell_tables(self) -> None:
        """Tell the master, when the tables have come, that it may count us."""
        if self._learns and self._reported >= 0 and not self._source.lacks_tables():
            self._report(self._reported)

    def room(self) -> None:
        """Reports are small."""

    def sign(self) -> None:
        """A sign of life: the last report again."""
        if self._reported >= 0:
            self._report(self._reported)

    def lost(self) -> None:
        """The connection has ended."""
        self._ended.set()


# Whom a replica outside of a group follows: haMasterAddress, or what the name servers say.


class ClassicSource(Source):
    """Apache's default replication (brokerRole=SLAVE): no epochs, so the master is asked for our log's last record.

    A master that has lost it, or has another one there, sends nothing that fits: our log stays as it is, and says so.

    A log that is empty is to get all that the master has. A replica that reports 0 gets the last file only, so the master
    is asked where its log begins; when that is 0, the log begins with its first byte, which is always zero.
    """

    def __init__(self, core: BrokerCore, master: MasterSource) -> None:
        """`master`: what the name servers answered to our registration."""
        self._core = core
        self._outbound = core.outbound
        self._master = master
        self._noise = RateLimited(log, core.clock)

    @property
    def address(self) -> str:
        """The master's door for replicas."""
        return self._core.live.current.ha_master_address or self._master.ha_address

    @property
    def copied(self) -> Copied:
        """The master: the protocol compares no logs."""
        return Copied(self._master.master_address)

    async def prepare(self) -> bool:
        """Let an empty log begin where the master's does. False: it does not say where, or its log is not ours."""
        store = self._core.store
        own, last = store.max_physical_offset, store.last_record_offset
        master = self._master.master_address
        if (
            not master
        ):  # haMasterAddress without name servers: Apache's masters listen one port below
            host, port = split_address(self.address)
            master = f"{host}:{port - 1}"
        try:
            found = await self._outbound.runtime_info(master, 3_000)
            begin, end = int(found["commitLogMinOffset"]), int(found["commitLogMaxOffset"])
            shown = min(end, int(found.get("commitLogConfirmOffset", end)))
            same = not begin <= last < shown or await self._has_ours(master, last)
        except (ClientError, KeyError, ValueError) as error:
            self._noise.warning("silent", "the master does not say what it has error=%r", error)
            return bool(own)
        if end and store.raw_end == 0:
            store.begin_log(begin or 1)
        self.trouble = "no"
        if end < own:
            self.trouble = f"its log has {own - end} bytes from {end} on that its master lacks"
        elif not same:
            self.trouble = f"its log ends at {own} in another record than its master's has there"
        if self.trouble != "no":
            words = "this replica keeps its log and does not follow %s: %s"
            self._noise.line(logging.ERROR, "ahead", words, master, self.trouble)
        # A master of ours sends nothing while we have more, and tells it; Apache's would send what it gets later.
        return same and (end >= own or "roquetteForm" in found)

    async def _has_ours(self, master: str, last: int) -> bool:
        """Return True when the master has our last record at its place. Raises ClientError."""
        ext = encode_ext(ViewMessageRequestHeader(offset=last))
        code = RequestCode.VIEW_MESSAGE_BY_ID
        try:
            reply = await self._outbound.ask(master, code, ext, timeout_ms=3_000)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            return False
        return reply.body == self._core.store.record_at(last)

    def behind(self, begin: int) -> None:
        """The master has deleted what we need."""
        log.error(
            "the master has deleted what this replica lacks: stop it, empty its store, and start it again begin=%d",
            begin,
        )


# Answers of a replica to what only a master does: each such request is refused in words that name the master.
# The list of those requests follows from what their rows promise: what goes to the log or to a file of the tables is the master's. Apache's codes and texts where it has some of its own (SendMessageProcessor.rejectRequest, PullMessageProcessor, EndTransactionProcessor, RecallMessageProcessor, AdminBrokerProcessor.validateSlave, resetOffsetInner).


_R, _A = RequestCode, ResponseCode
_NO_SEND: Final = (
    _A.SERVICE_NOT_AVAILABLE,  # SYSTEM_BUSY in Apache, which is no reason to look for the master
    "service not available now. It may be caused by one of the following reasons: the broker is a slave",
)
_NO_CHANGE: Final = (
    _A.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
)
_TEXTS: Final = {
    _R.END_TRANSACTION: (_A.SLAVE_NOT_AVAILABLE, "a slave broker ends no transaction"),
    _R.RECALL_MESSAGE: (_A.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"),
    _R.INVOKE_BROKER_TO_RESET_OFFSET: (_A.SYSTEM_ERROR, "Can not reset offset in slave broker"),
    **dict.fromkeys(
        (
            _R.UPDATE_AND_CREATE_TOPIC,
            _R.UPDATE_AND_CREATE_TOPIC_LIST,
            _R.DELETE_TOPIC_IN_BROKER,
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            _R.DELETE_SUBSCRIPTIONGROUP,
        ),
        _NO_CHANGE,
    ),
}
_SENDS: Final = frozenset((Lane.SEND, Lane.REPLY, Lane.ACK, Lane.PULL))
_ONE_MASTER: Final = frozenset((_R.LOCK_BATCH_MQ, _R.UNLOCK_BATCH_MQ))
"""Two clients must not get them of two brokers: a replica serves them while nobody is master."""


class ReplicaRole(Feature):
    """Refuses.

    Args:
        absent: a master's features that the replica has not; they are asked for their rows and nothing else.
    """

    def __init__(self, core: BrokerCore, absent: Iterable[Feature], source: MasterSource) -> None:
        core.tables.backward_commits.never = True
        self._absent = list(absent)
        self._source = source

    def rows(self) -> list[Row]:
        """Refusals of everything that the absent features serve."""
        return [self._refusal(one) for feature in self._absent for one in feature.rows()]

    def admit(self, row: Row) -> Row:
        """Return what is served in place of a row of the features that are there."""
        if row.promise in {Promise.LOG, Promise.FILE}:
            return self._refusal(row)
        return self._without_master(row) if row.code in _ONE_MASTER else row

    def _refusal(self, row: Row) -> Row:
        def refuse(ctx: RequestContext, header: None, body: bytes) -> Outcome:
            raise self._refused(ctx.command.code, row.lane)

        refusal = Row(row.code, refuse, None, row.lane)
        refusal.decode, refusal.coerce = row.decode, row.coerce  # the guard reads the header
        return refusal

    def _without_master(self, row: Row) -> Row:
        process = row.process

        def serve(ctx: RequestContext, header: None, body: bytes) -> Outcome:
            if self._source.master_address:
                raise self._refused(ctx.command.code, row.lane)
            outcome: Outcome = process(ctx, header, body)
            return outcome

        return Row(row.code, serve, None, row.lane, row.promise)

    def _refused(self, code: int, lane: int) -> Refused:
        answer, words = _TEXTS.get(
            RequestCode(code),
            _NO_SEND if lane in _SENDS else (_A.NO_PERMISSION, "a slave broker does not do this"),
        )
        return Refused(int(answer), f"{words}{words_of_master(self._source)}")
