"""Decisions of the table, as values: the driver carries them out, in the order given."""

import enum
from dataclasses import dataclass

from roquette.replication.record import GroupRecord, MemberPlace


class Role(enum.Enum):
    """Role of a member at the moment."""

    IDLE = "IDLE"
    SLAVE = "SLAVE"
    MASTER = "MASTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverSettings:
    """Times in ms of the own steady clock.

    Attributes:
        ttl_ms: of the lease: how long others wait for a renewal before they stand.
        renew_ms: the master renews so often. look_ms: call `tick` so often.
        drift: by how much a clock may run fast or slow. slack_ms: the holder stops so much earlier.
        silent_ms: a slave without a report for so long leaves the set; our slaves report each third of it.
        lag_ms: one that reports, and has not caught up for so long, leaves it too.
        total: so many brokers begin a group.
        min_in_sync: with fewer in the set nothing is confirmed. in_sync: nor is anything accepted (inSyncReplicas).
    """

    ttl_ms: int = 3_000
    renew_ms: int = 500
    look_ms: int = 100
    drift: float = 0.01
    slack_ms: int = 50
    silent_ms: int = 1_500
    lag_ms: int = 15_000
    total: int = 1
    min_in_sync: int = 1
    in_sync: int = 1

    @property
    def hold_ms(self) -> float:
        """Time for which the holder counts on its lease, by its own clock, from before it sent the renewal."""
        return self.ttl_ms * (1 - self.drift) / (1 + self.drift) - self.slack_ms


@dataclass(frozen=True, slots=True)
class Read:
    """Read the record and call `saw`; needless while another call to the store is under way."""


@dataclass(frozen=True, slots=True)
class Write:
    """`put_if(revision, record)`; when it was carried out, `saw` with the new revision, otherwise read. The same
    write comes again until a record shows what became of it."""

    revision: int
    record: GroupRecord


@dataclass(frozen=True, slots=True)
class Won:
    """End the replica, sync `marks.won(epoch, own begin, own end)`, start the master, call `began`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Deposed:
    """Acknowledge and serve nothing from now on; end the master, or what was begun of it."""

    why: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Be a slave of that one: connect there, close any other connection first."""

    master: int
    place: MemberPlace
    epoch: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Close the connection to the master and take nothing from it any more: we are about to stand."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Close a slave's connection: it reported before it lost power. It comes again and says what it has."""

    who: int


@dataclass(frozen=True, slots=True)
class Entered:
    """The record knows this opening of our store: keep what it says before anything else."""

    record: GroupRecord


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another process stands for our id now: end this one."""

    why: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """All of the set has the log up to here."""

    offset: int


@dataclass(frozen=True, slots=True)
class SetChanged:
    """The in-sync set of our mastership."""

    members: tuple[int, ...]


Effect = (
    Read | Write | Won | Deposed | Follow | Leave | Drop | Entered | Fenced | Confirmed | SetChanged
)
