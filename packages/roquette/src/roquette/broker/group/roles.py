"""Master and replica of a group that elects its master: features of the broker, made anew with each change of roles."""

import logging

from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Copied, Feature
from roquette.broker.group.member import GroupMember
from roquette.broker.replication.follower import Source
from roquette.broker.replication.master import MasterReplication
from roquette.errors import StoreError
from roquette.replication.epochs import EpochMarks, Go, Refuse
from roquette.store.format.config import FlushDiskType
from roquette.wire.codes import ResponseCode
from roquette.wire.ha import Epochs, Welcome

# A group's master: who must have a message is the record's set, and without the lease nothing leaves.


class GroupQuorum:
    """The in-sync set of the record: `broker.replication.quorum.Quorum` by the take-over table."""

    def __init__(self, core: BrokerCore, member: GroupMember) -> None:
        self._core = core
        self._member = member
        self._store = core.store
        self._table = member.table
        self._driver = member.driver
        self._sync_flush = core.live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._seen: tuple[int, Epochs] = (-1, ())

    def hello(self, who: int | str, connection: int) -> None:
        """A replica has connected."""
        if isinstance(who, int):
            self._driver.act(self._table.hello(self._driver.now_ms, who, connection))

    def report(self, who: int | str, connection: int, end: int) -> None:
        """A replica has the log up to `end`."""
        if isinstance(who, int):
            now_ms, wrote = self._driver.now_ms, self._store.wrote
            self._driver.act(self._table.report(now_ms, who, connection, end, wrote))

    def lost(self, who: int | str, connection: int) -> None:
        """A connection has ended."""
        if isinstance(who, int):
            self._driver.act(self._table.lost(who, connection))

    @property
    def confirmed(self) -> int:
        """End of the log that all of the set has."""
        self._driver.act(self._table.wrote(self._driver.now_ms, self._store.wrote))
        return self._table.confirmed

    @property
    def expected(self) -> int:
        """By totalReplicas; where that is not set, all that ever joined and were not cleaned away."""
        record, total = self._table.record, self._core.live.current.total_replicas
        return (total if total > 1 or record is None else len(record.places)) - 1

    @property
    def marks(self) -> Epochs:
        """The log's epochs, from where it begins now."""
        begin = self._store.min_physical_offset
        if self._seen[0] != begin:
            self._seen = begin, self._member.marks.seen_from(begin).entries()
        return self._seen[1]

    @property
    def header_confirm(self) -> int:
        """End of what replicas may show their readers: under SYNC_FLUSH nothing that we may still lose."""
        confirmed = self._table.confirmed
        return min(confirmed, self._store.synced_offset) if self._sync_flush else confirmed

    @property
    def enough(self) -> str | None:
        """Reason why messages are refused: only where answers wait for replicas."""
        if self._member.leaving:
            return "the broker stops: another one becomes master"
        return (self._table.shortage or None) if self._core.replicas.waits else None

    def in_step(self, who: int | str) -> bool:
        """Return True when a replica is in the set, and surely has what it has reported."""
        record = self._table.record
        return record is not None and who in record.members and who not in record.doubtful


class GroupMaster(Feature):
    """Gate for what leaves a group's master, and what its readers see. The first of the features: they start in order."""

    def __init__(
        self, core: BrokerCore, member: GroupMember, replication: MasterReplication
    ) -> None:
        self._core = core
        self._member = member
        self._table = member.table
        self._driver = member.driver
        self._replication = replication

    async def start(self, tasks: Tasks) -> None:
        """Tell the member that the office can begin."""
        self._member.on_confirmed = self._confirmed
        self._member.on_drop = self._replication.drop
        self._member.master_runs(self._core.store)

    def turn_written(self, log_end: int) -> bool:
        """The lease, by the clock, at the write that ends the turn: without it no answer leaves."""
        return self._table.may_acknowledge(self._driver.now_ms)

    def unready(self) -> str:
        """Return the trouble that takes the office soon, or has."""
        return self._table.trouble

    def _confirmed(self, offset: int) -> None:
        core = self._core
        core.replicas.receipt = int(ResponseCode.SLAVE_NOT_AVAILABLE) if self._table.alone else 0
        core.store.set_confirmed(offset)
        core.log_sync.replicated(offset)
        core.shell.wake_soon()

    def health(self) -> dict[str, str]:
        """The group as this master sees it."""
        table = self._table
        members = table.record.members if table.record else ()
        return {
            "groupMembersInStep": ",".join(map(str, members)),
            "groupEpoch": str(table.epoch),
            "groupLeaseLeftMs": str(table.lease_left_ms(self._driver.now_ms)),
            **self._member.health(len(self._core.access.users.state.users)),
        }


# A group's replica: whom it follows, and what the group's history lets it do with its log.


log = logging.getLogger("roquette.broker.replication")

RETRY_S = 0.1


class GroupSource(Source):
    """`Source` and `MasterSource` by the take-over table."""

    retry_s = RETRY_S

    def __init__(self, core: BrokerCore, member: GroupMember) -> None:
        self._core = core
        self._member = member
        self._noise = RateLimited(log, core.clock)
        self.member = member.id
        self._agreed: Copied | None = None  # a mastership whose log ours is a beginning of

    @property
    def address(self) -> str:
        """Address of the master's door; empty while nobody is followed, and while the log is not to grow."""
        followed = self._member.followed
        return followed.place.ha_address if followed is not None and self._member.steady else ""

    ha_address = address

    @property
    def master_address(self) -> str:
        """Address where the master answers requests."""
        followed = self._member.followed
        return followed.place.address if followed is not None else ""

    @property
    def copied(self) -> Copied:
        """The master that is followed, once the logs were compared."""
        followed = self._member.followed
        if followed is None or self._agreed != (followed.place.address, followed.epoch):
            return Copied()
        return self._agreed

    def welcomed(self, answer: Welcome) -> bool:
        """Compare the histories; raises StoreError when the master's is none."""
        member, store = self._member, self._core.store
        self._agreed = None
        theirs = EpochMarks.of(answer.epochs)
        own_end, own_begin = store.wrote, store.min_physical_offset
        join = member.table.welcome(
            answer.epoch, theirs, answer.end, member.marks, own_end, own_begin
        )
        if isinstance(join, Go):
            member.save_marks(join.kept)
            self._agreed = Copied(self.master_address, answer.epoch)
            return True
        if isinstance(join, Refuse):
            self._noise.warning("refused", "the master is not followed: %s", join.why)
        else:
            member.rejoin(join)
        return False

    def epoch_begins(self, epoch: int, start: int) -> None:
        """The mark is on the disk before the bytes. Raises OSError, StoreError."""
        self._member.save_marks(self._member.marks.marked(epoch, start))

    def confirmed(self, offset: int) -> None:
        """Readers may see so much."""
        store = self._core.store
        if offset > store.confirmed:
            store.set_confirmed(offset)
            self._core.shell.wake_soon()

    def health(self) -> dict[str, str]:
        """Return what the member says of its group."""
        return self._member.health(len(self._core.access.users.state.users))

    def behind(self, begin: int) -> None:
        """The handshake has compared the logs' begins already."""
        raise StoreError(f"the master's log begins at {begin}, and it did not say so")
