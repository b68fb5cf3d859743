"""Writes of members into a group's record, and why they wait to: rules over the record alone."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from roquette.replication.identity import OwnStore
from roquette.replication.record import NEW_EPOCHS, GroupRecord, MemberPlace
from roquette.replication.standing import by_loss

TROUBLES: Final = ("identity", "record", "disk", "office")  # kinds of what is wrong with a member
NOT_SAID: Final = (-1, -1)  # a position: it has not told yet what it has
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


def elected(record: GroupRecord, me: int, epoch: int, old: int, end: int) -> dict[str, Any]:
    """An election. The set loses the old master; by order, losses accepted, everybody else."""
    lossy = by_loss(record, me)
    members = (me,) if lossy else tuple(w for w in record.members if w == me or w != old)
    return {
        "epoch": epoch,
        "master": me,
        "members": members,
        "set_epoch": record.set_epoch + 1,
        "doubtful": {w: v for w, v in record.doubtful.items() if w in members and w != me},
        "unfit": {w: v for w, v in record.unfit.items() if w in members and w != me},
        "floor": min(record.floor, end),
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
