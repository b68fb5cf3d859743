"""Identity of a member's store: what its own file says of it, and what the group's record knows.

An id and an epoch are small numbers that a new disk, a clone or an old copy has as well. So a store has a name of its
own, drawn at random, and so has each opening of it; both stand in the record from the first look of each life on.
"""

from dataclasses import dataclass

from roquette.replication.epochs import EpochMarks
from roquette.replication.record import GroupRecord, Life


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStore:
    """Store as its member's own file says.

    Attributes:
        name: of the store, drawn at random when it was new. opening: drawn at random for this life.
        before: the last opening that is known to have stood in the record, and those since, which may have.
        group: whose record it has been in; empty: none yet.
        seen: the number of the record when it was last noted. known: ids of those in the group then.
        fault: what its opening found that no power cut explains, in words: damage, a copied directory.
        empty: it has no message and no epoch.
        clean: nothing that was reported or acknowledged can be missing: the machine has run on since, or the store was
            closed in order, or SYNC_FLUSH; and the table of the life before was `settled`.
        fresh: names the group if this member begins its record.
    """

    name: str
    opening: str
    before: tuple[str, ...] = ()
    group: str = ""
    seen: int = 0
    known: tuple[int, ...] = ()
    fault: str = ""
    empty: bool = True
    clean: bool = True
    fresh: str = ""

    @property
    def entry(self) -> Life:
        """Entry that the record is to have."""
        return Life(self.name, self.opening, self.empty)

    def foreign(self, record: GroupRecord) -> str:
        """Return the reason why this is no store of that record's group; empty: it may be."""
        begun = record.epoch > 0 or bool(record.members)
        if (self.empty and begun) or not record.group or self.group in ("", record.group):
            return ""  # an empty one may come into a group, but not begin another
        return (
            f"the store is of the group {self.group[:8]}, the record of the group {record.group[:8]}, which began anew or is "
            "another installation's: set controllerAddr back, or move the store away and start empty"
        )


def fault_of(own: OwnStore, record: GroupRecord, me: int, marks: EpochMarks, end: int) -> str:
    """Return the reason why this store may not be what the record takes it for; empty: it is, but for what a power cut has taken."""
    known = record.stores.get(me)
    if known is not None and known.store != own.name:
        return f"another store stood for broker {me}: its disk was replaced, or its id given twice"
    old = record.set_back or own.seen > record.number  # it may not know our last openings
    if known is not None and known.opening not in own.before and not old:
        return "the store is an older state of itself, or was opened twice: it does not know its last opening"
    if own.fault or me not in record.members:
        return own.fault
    if not marks.marks and (record.floor > 0 or (known is None and record.epoch > 0)):
        return "the store is empty, and the record says that it has all that was acknowledged"
    if own.clean and end < record.floor:
        return f"the log ends at {end}, and had been confirmed up to {record.floor}"
    return ""
