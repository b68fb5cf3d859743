"""A group's replica: whom it follows, and what the group's history lets it do with its log."""

import logging

from roquette.base.logs import RateLimited
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.master_source import Copied
from roquette.broker.group.member import GroupMember
from roquette.broker.replication.follower import Source
from roquette.errors import StoreError
from roquette.replication.epochs import EpochMarks
from roquette.replication.join import Go, Refuse
from roquette.wire.ha import Welcome

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
        """Where the master's door is; empty while nobody is followed, and while the log is not to grow."""
        followed = self._member.followed
        return followed.place.ha_address if followed is not None and self._member.steady else ""

    ha_address = address

    @property
    def master_address(self) -> str:
        """Where the master answers requests."""
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
        """What the member says of its group."""
        return self._member.health(len(self._core.access.users.state.users))

    def behind(self, begin: int) -> None:
        """The handshake has compared the logs' begins already."""
        raise StoreError(f"the master's log begins at {begin}, and it did not say so")
