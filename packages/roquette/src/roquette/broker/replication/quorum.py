"""Who must have the bytes before a reply speaks of them: the seam, and the rules of a master without a group."""

from typing import Protocol

from roquette.broker.floor.core import BrokerCore
from roquette.wire.ha import Epochs

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
        """What replies may speak of; never less than before."""

    @property
    def header_confirm(self) -> int:
        """What replicas may show their readers."""

    @property
    def enough(self) -> str | None:
        """Why messages are refused now; None: they are taken."""

    @property
    def expected(self) -> int:
        """Replicas that should be in step."""

    @property
    def marks(self) -> Epochs:
        """The log's epochs; none: this master speaks the classic protocol only."""

    def in_step(self, who: int | str) -> bool:
        """Whether a replica counts as one that has, or will soon have, all of the log."""


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
        """Whether it is connected and not further behind than haMaxGapNotInSync (isInSyncSlave)."""
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
