"""The record of a group: the brokers of one name, who of them is master, who has all that was acknowledged."""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

from roquette.base.checksum import crc32
from roquette.errors import AgreementError
from roquette.replication.epochs import EpochMarks

EPOCH_STEP: Final = 1_000  # the thousands of an epoch count elections, the rest is drawn
# A record that takes the place of a lost or old one begins so much above what is known.
NEW_EPOCHS: Final = 1_000 * EPOCH_STEP


class MemberPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses at which a member is found.

    Attributes:
        address: host:port for clients and brokers. ha_address: host:port for replication.
    """

    address: str
    ha_address: str


class Life(msgspec.Struct, frozen=True):
    """Store that stands for an id, and the opening of it.

    Attributes:
        store: drawn at random when the store was new. opening: drawn at random. empty: no message at that opening.
    """

    store: str
    opening: str
    empty: bool = False


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One content of the record. Ids of members begin at 1; the master registers with name servers as 0.

    An older version of a member drops what it does not know: each of the fields behind `lossy_epoch` may be missing again.

    Attributes:
        number: grows with each content, whatever the store calls its revisions.
        epoch: of the newest master; grows with each election (`next_epoch`).
        master: its id; 0: it has given the office back, so challengers need not wait.
        members: the in-sync set, sorted: everybody in it has all that was ever acknowledged.
        set_epoch: grows when `members` changes (Apache: syncStateSetEpoch).
        beat: changes with each renewal: the lease.
        places: by id, of everybody who ever joined and was not cleaned away.
        doubtful: members whose machine may have lost bytes that they had reported (it lost power), with the
            epoch of their last byte and the end of their log; they are not elected until they have caught up, or all are doubtful.
        ordered: id of the member that an operator wants as the master; 0: none. accept_loss: even if it lacks
            acknowledged messages.
        lossy_epoch: the newest epoch that began in that way.
        group: drawn at random when the record was begun: whose epochs these are.
        stores: by id, the newest life that has entered itself.
        unfit: of the doubtful, those whose store is not what the record knows them by, and why: never elected without
            an order.
        floor: everybody in the set has the log up to here.
        shared: what at least two stores had when the set last had more than one: epoch of the last byte, and end.
        set_back: the set says nothing, so who has most is asked of all: members have epochs that this record never had, or
            the only one in the set has lost some of what is `shared`.
        newest_epoch: of the logs of all that have entered themselves: the next election is above it. highest_id: that any of
            them knows: new ones get a higher one. Both may be more than the rest of the record shows, if it was set back.
        other: fields of a later version, as they were.
    """

    number: int = 0
    epoch: int = 0
    master: int = 0
    members: tuple[int, ...] = ()
    set_epoch: int = 0
    beat: int = 0
    places: dict[int, MemberPlace] = {}
    doubtful: dict[int, tuple[int, int]] = {}
    ordered: int = 0
    accept_loss: bool = False
    lossy_epoch: int = 0
    group: str = ""
    stores: dict[int, Life] = {}
    unfit: dict[int, str] = {}
    floor: int = 0
    shared: tuple[int, int] = (0, 0)
    set_back: bool = False
    newest_epoch: int = 0
    highest_id: int = 0
    other: dict[str, msgspec.Raw] = {}

    def address_of(self, member_id: int) -> str | None:
        """Return the address at which that member serves clients; None: it never joined, or was cleaned away."""
        place = self.places.get(member_id)
        return None if place is None else place.address

    def encode(self) -> bytes:
        """JSON."""
        fields = msgspec.structs.asdict(self)
        return msgspec.json.encode(fields.pop("other") | fields)


_FIELDS: Final = {*GroupRecord.__struct_fields__}
_decode: Final = msgspec.json.Decoder(GroupRecord).decode
_split: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_record(data: bytes) -> GroupRecord:
    """A stored content; raises AgreementError when it is none."""
    try:
        other = {name: raw.copy() for name, raw in _split(data).items() if name not in _FIELDS}
        return msgspec.structs.replace(_decode(data), other=other)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AgreementError(f"the group's record is not readable: {error}") from None


def ordered_master(record: GroupRecord, member: int, accept_loss: bool) -> GroupRecord:
    """The content with an operator's order: the master gives the office back, and others than `member` wait a TTL.

    It is `record` itself when there is nothing to order: that member is master, or the order stands in it already.
    Raises AgreementError in words when that member may not become master.
    """
    serves = record.master == member and member not in record.unfit
    if serves or (record.ordered, record.accept_loss) == (member, accept_loss):
        return record
    if member not in record.places:
        raise AgreementError(
            f"no broker with id {member} ever joined; known are {sorted(record.places)}"
        )
    if member not in record.members and not accept_loss:
        raise AgreementError(
            f"broker {member} is not in step (in step: {list(record.members)}): as master it would lose "
            "acknowledged messages. Let it catch up, or accept the loss."
        )
    if member in record.unfit and not accept_loss:
        raise AgreementError(
            f"broker {member} may lack acknowledged messages: {record.unfit[member]}. Let it catch up, or accept the loss."
        )
    return msgspec.structs.replace(
        record, number=record.number + 1, ordered=member, accept_loss=accept_loss
    )


def free_id(record: GroupRecord) -> int:
    """For a new member: never one of before, whose store may come back."""
    return max(record.highest_id, *record.places, *record.stores, 0) + 1


def next_epoch(last: int, opening: str) -> int:
    """The epoch of the election after `last`, of the member whose store has that opening.

    Two masters that are elected from one state of a record, which was set back or lost in between, must not have one
    epoch: logs that have an epoch in common are taken for the same.
    """
    return (last // EPOCH_STEP + 1) * EPOCH_STEP + crc32(f"{opening} {last}".encode()) % EPOCH_STEP


def lost_record(group: str, epoch: int, seen: int, best: int, highest: int) -> GroupRecord:
    """In the place of a record that is lost, or of another group: `best` is to be elected, whatever the others have.

    Args:
        epoch, seen: the newest epoch and number of the record that any member knows. highest: id of those that answer.
    """
    return GroupRecord(
        number=seen + 1,
        epoch=epoch + NEW_EPOCHS,
        group=group,
        ordered=best,
        accept_loss=True,
        highest_id=highest,
    )


def record_key(cluster: str, broker_name: str) -> str:
    """The key of a group."""
    return f"roquette/{cluster}/{broker_name}"


def is_record_key(key: str) -> bool:
    """Return True if it is one of a group: where records stand, other things may stand, too."""
    parts = key.split("/")
    return len(parts) == 3 and parts[0] == "roquette" and all(parts)


# The seam to the one place where a group's record stands: read it, and replace it only if nobody else has.


class Stored(NamedTuple):
    """Value that stands under a key.

    Attributes:
        revision: of this content, opaque; 0: there is none.
    """

    revision: int
    value: bytes


class Agreement(Protocol):
    """A linearizable register per key: etcd, or a file of one name server.

    A call that fails with AgreementError may have been carried out nevertheless (an answer was lost): the caller
    reads, and repeats the same `put_if` until a read shows what became of it.
    """

    async def get(self, key: str) -> Stored:
        """The newest content, never an older one than any earlier answer. Raises AgreementError."""
        ...

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        """Replace the content whose revision is `revision` (0: there is none yet); the new revision, or None: it is
        another one. Raises AgreementError: the outcome is unknown."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


async def read_group(agreement: Agreement, key: str) -> tuple[int, GroupRecord | None]:
    """A group's record and its revision; 0, None: there is none. Raises AgreementError."""
    stored = await agreement.get(key)
    return stored.revision, decode_record(stored.value) if stored.revision else None


# Identity of a member's store: what its own file says of it, and what the group's record knows.
# An id and an epoch are small numbers that a new disk, a clone or an old copy has as well. So a store has a name of its own, drawn at random, and so has each opening of it; both stand in the record from the first look of each life on.


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
