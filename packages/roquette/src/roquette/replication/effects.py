"""Decisions of the table, as values: the driver carries them out, in the order given."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from roquette.replication.record import NEW_EPOCHS, GroupRecord, MemberPlace, OwnStore


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


# Candidacy for master: rules over the record alone.


ALL_DOUBTFUL_MS: Final = (
    1_000  # all lost power: so much later than a TTL, for each to say what it has
)


def patience(record: GroupRecord, me: int, settings: TakeOverSettings) -> int:
    """Return the time the beat must have stood still before `me` stands, ms."""
    if record.ordered not in (0, me):
        return settings.ttl_ms
    if record.master == me:  # an earlier life of ours, which is over
        return 2 * settings.renew_ms
    return settings.ttl_ms if record.master else 0


def by_loss(record: GroupRecord, me: int) -> bool:
    """Is it an order that makes `me` eligible, and nothing else?"""
    unfit = me not in record.members or me in record.doubtful
    return unfit and record.ordered == me and record.accept_loss


def valid_order(record: GroupRecord) -> bool:
    """May the one be master whom an operator wants? Else the order is out of date."""
    fit = record.ordered in record.members and record.ordered not in record.doubtful
    return record.ordered != 0 and (fit or record.accept_loss)


def bar(record: GroupRecord, me: int, waited_ms: int, settings: TakeOverSettings) -> str:
    """Return the reason why `me` may not stand, in words; empty: it may."""
    if by_loss(record, me):
        return ""
    if me not in record.members:
        return (
            f"no master, and broker {me} is not in step: it waits for one of {list(record.members)}, "
            "or for an order to elect it, losses accepted"
        )
    if why := record.unfit.get(me):
        others = [member_id for member_id in record.members if member_id not in record.unfit]
        hope = f"it waits for one of {others}" if others else "nobody else is in step"
        return f"no master, and broker {me} may lack acknowledged messages: {why}; {hope}, or an order to elect it"
    if record.set_back:
        silent = [member_id for member_id, reported in record.doubtful.items() if reported[0] < 0]
        if silent and not NOT_KNOWN < record.shared <= max(record.doubtful.values()):
            lost = f"the broker that was alone in step has lost some of what two had up to {record.shared[1]}"
            why = "the record is an old one" if record.shared == NOT_KNOWN else lost
            return (
                f"{why}: brokers {silent} are to say what they have, or an order to elect one, losses accepted "
                "(roquette broker promote)"
            )
    elif me not in record.doubtful or record.members == (me,):
        return ""
    elif others := [member_id for member_id in record.members if member_id not in record.doubtful]:
        return f"no master, and broker {me} has lost power: it waits for one of {others}"
    if waited_ms <= settings.ttl_ms + ALL_DOUBTFUL_MS:
        return f"brokers {list(record.members)} say what they have: the one with most is sought"
    best = max(record.members, key=lambda member_id: (record.doubtful[member_id], -member_id))
    if best == me:
        return ""
    sick = f"; it is barred: {record.unfit[best]}" if best in record.unfit else ""
    return f"broker {me} waits for {best}, which has most{sick}"


# Writes of members into a group's record, and why they wait to: rules over the record alone.


NOT_SAID: Final = (-1, -1)  # a position: it has not told yet what it has
NOT_KNOWN: Final = (0, 0)  # what is `shared` of an old record, or of an earlier version
NO_RECORD: Final = (
    "this store was of a group, and its record is not there: correct controllerAddr, or order the broker "
    "with the newest messages to be elected, losses accepted (roquette broker promote)"
)


class WriteKind(enum.Enum):
    """Purpose of a write."""

    CREATE = "create"
    PLACE = "place"
    DOUBT = "doubt"
    ELECT = "elect"
    RENEW = "renew"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Asked:
    """A write whose outcome is not known; `after`: the number of the record that it is to replace."""

    kind: WriteKind
    revision: int
    after: int
    record: GroupRecord
    sent_ms: int

    def done_in(self, record: GroupRecord) -> bool:
        """Does that later record come after ours? Only our own writes of an office have our beats."""
        mine = self.record
        return (record.epoch, record.master, record.beat) == (mine.epoch, mine.master, mine.beat)


def not_begun(record: GroupRecord, total: int) -> str:
    """Return the reason why a group does not begin, in words; empty: it may. All that it is to have must be there, and none of them may have
    messages of another life."""
    there = {who: life for who, life in record.stores.items() if who in record.places}
    full = [who for who, life in there.items() if not life.empty]
    if len(there) < total:
        return f"the group has not begun: it waits for {total - len(there)} of {total} brokers"
    if full and len(there) > 1:
        return (
            f"the group has not begun: the stores of brokers {full} have messages, which the others lack; order one of "
            "them to be elected, losses accepted (roquette broker promote)"
        )
    return ""


def old_record(record: GroupRecord | None, me: int, newest: int) -> str:
    """Return the reason why a slave whose log has epoch `newest` follows nobody, in words; empty: the record knows that epoch, or all are
    about to be asked."""
    if record is None or newest <= record.epoch or record.set_back:
        return ""
    return (
        f"this log has epoch {newest}, and the record knows none above {record.epoch}: it is an old one, and broker "
        f"{record.master} is not followed. To keep this log order broker {me} to be elected, losses accepted (roquette broker "
        "promote); to keep the master's, move the store away and start this broker empty"
    )


def placed(
    record: GroupRecord, me: int, place: MemberPlace, own: OwnStore, newest: int, **changes: Any
) -> GroupRecord:
    """With what the record has to know of a member; `newest`: the last epoch of its log."""
    return replace(
        record,
        number=max(record.number, own.seen) + 1,
        places=record.places | {me: place},
        stores=record.stores | {me: own.entry},
        group=record.group or own.group or own.fresh,
        newest_epoch=max(record.newest_epoch, newest),
        highest_id=max(record.highest_id, me, *own.known),
        **changes,
    )


def asked_of_all(
    record: GroupRecord, me: int, newest: int, end: int, known: Iterable[int]
) -> dict[str, Any]:
    """The set of an old record says nothing: all say what they have, with those that it does not know. The new epoch is
    above all that may have been."""
    everybody = {*record.places, *known, me}
    return {
        "epoch": max(record.epoch, record.newest_epoch, newest) + NEW_EPOCHS,
        "master": 0,
        "members": tuple(sorted(everybody)),
        "set_epoch": record.set_epoch + 1,
        "doubtful": dict.fromkeys(everybody, NOT_SAID) | {me: (newest, end)},
        "floor": 0,
    }


def elected(
    record: GroupRecord, me: int, epoch: int, old: int, newest: int, end: int
) -> dict[str, Any]:
    """An election. The set loses the old master; by order, losses accepted, everybody else.

    All that we have (`newest`: epoch of the last byte) may be confirmed: the master before has told nobody since its last
    renewal. Who was alone already has shared nothing since.
    """
    lossy, has = by_loss(record, me), (newest, end)
    members = (me,) if lossy else tuple(w for w in record.members if w == me or w != old)
    return {
        "epoch": epoch,
        "master": me,
        "members": members,
        "set_epoch": record.set_epoch + 1,
        "doubtful": {w: v for w, v in record.doubtful.items() if w in members and w != me},
        "unfit": {w: v for w, v in record.unfit.items() if w in members and w != me},
        "floor": min(record.floor, end),
        "shared": has if len(record.members) > 1 else min(record.shared, has),
        "set_back": False,
        "ordered": 0,
        "accept_loss": False,
        "lossy_epoch": epoch if lossy else record.lossy_epoch,
    }


def second_life(me: int, same_store: bool) -> str:
    """The words of a process whose id another one has taken."""
    what = "a copy of this store" if same_store else "with another store"
    return (
        f"another process has begun as broker {me} ({what}): this one stops. Give each broker its own brokerId and its own "
        "store"
    )
