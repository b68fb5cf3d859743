"""Take-over of the master's office: one member's part of the decision, as a pure table of events and effects.

The store behind `Agreement` is linearizable `put_if` on one record; answers may be lost and reads late. The lease is
the beat in that record: its holder counts from before it sent a renewal, others from after they read one. A power cut
or kill between any two effects is right; of this table nothing is kept on disk, it begins idle and trusts no lease.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from roquette.base.metric_families import TROUBLES
from roquette.replication import effects as do
from roquette.replication.effects import (
    NO_RECORD,
    NOT_KNOWN,
    Asked,
    Effect,
    Role,
    TakeOverSettings,
    WriteKind,
    asked_of_all,
    bar,
    by_loss,
    elected,
    not_begun,
    old_record,
    patience,
    placed,
    second_life,
    valid_order,
)
from roquette.replication.epochs import EpochMarks, Join, Refuse, join
from roquette.replication.in_sync import InSync
from roquette.replication.record import GroupRecord, MemberPlace, OwnStore, fault_of, next_epoch

LONG_AGO: Final = -(1 << 60)
HAND_OVER_MS: Final = 1_000  # a planned stop waits so long for slaves to have all


class TakeOver:
    """One life of one member.

    Args:
        own: which store this is.

    Attributes:
        role: MASTER from `Won` on. epoch: of the own mastership, or the one that is followed.
        record: the newest that was seen. marks: of the log; the driver replaces them when it saves others.
        confirmed: all of the set has the log up to here.
        sick: why this member's disk takes no messages. unreachable: why the record cannot be read. In words, which the
            driver sets; empty: it does, it can.
        settled: the record says that we may have lost something, if we may. Until then the driver leaves on disk that
            the store was not closed in order, in an earlier boot: the next life must be unclean, too.
    """

    def __init__(
        self,
        me: int,
        place: MemberPlace,
        marks: EpochMarks,
        settings: TakeOverSettings,
        own: OwnStore,
    ) -> None:
        self.me = me
        self.place = place
        self.marks = marks
        self.settings = settings
        self.role = Role.IDLE
        self.epoch = self.confirmed = 0
        self.record: GroupRecord | None = None
        self._own = own
        self._fault = ""  # our store is not what the record knows
        self._entered = False  # the record knows this life
        self.settled = False
        self.sick = self.unreachable = ""
        self._why_none = self._store_trouble = ""
        self._revision = 0
        self._absent = False  # a read has shown that there is no record
        self._beat = (-1, 0, 0)
        self._beat_ms = LONG_AGO  # when that beat was first seen
        self._got_ms = self._lease_ms = LONG_AGO
        self._asked: Asked | None = None
        self._end = 0
        self._start = 0  # of our epoch: below it everything may be acknowledged
        self._began_ms: int | None = None
        self._told_members: tuple[int, ...] = ()
        self._slaves = InSync(settings)
        self._followed: do.Follow | None = None
        self._old_master = 0
        self._leaving_ms: int | None = None
        self._lost = ""  # this life has no part in the group any more

    # What others ask.

    def may_acknowledge(self, now_ms: int) -> bool:
        """Are we the one master, for certain? Ask at the write that ends a turn."""
        return self._began_ms is not None and self.lease_left_ms(now_ms) > 0

    def lease_left_ms(self, now_ms: int) -> int:
        """Return the time for which we may count on our lease; 0: not at all."""
        if self.role is not Role.MASTER:
            return 0
        return max(0, int(self._lease_ms + self.settings.hold_ms - now_ms))

    @property
    def shortage(self) -> str:
        """Reason why a master that waits for replicas refuses messages; empty: it does not."""
        have = len(self.record.members) if self.record else 0
        need = max(self.settings.min_in_sync, self.settings.in_sync)
        return f"in-sync replicas not enough: {have} of {need}" if have < need else ""

    @property
    def alone(self) -> bool:
        """Is what we confirm ours only? A replica that we ask to come into the set counts, it has all of it."""
        return self._need() <= {self.me}

    @property
    def known_number(self) -> int:
        """The newest number of the record that this member has seen, in an earlier life, too."""
        return max(self._own.seen, self.record.number if self.record else 0)

    @property
    def troubles(self) -> dict[str, str]:
        """Troubles by their kind, in words; none when all is well, or it is only a matter of seconds."""
        newest = self.marks.last_epoch if self.role is Role.SLAVE else 0
        record = self._store_trouble or self.unreachable or old_record(self.record, self.me, newest)
        told = zip(TROUBLES, (self._lost, record, self.sick, self._why_none), strict=True)
        return {kind: words for kind, words in told if words}

    @property
    def trouble(self) -> str:
        """All of that in one line."""
        return "; ".join(self.troubles.values())

    def welcome(
        self,
        epoch: int,
        theirs: EpochMarks,
        their_end: int,
        mine: EpochMarks,
        own_end: int,
        own_begin: int,
    ) -> Join:
        """A master has shaken hands: what to do with our log. Once a connection: a late one is out of date."""
        newest = max(self.record.epoch if self.record else 0, mine.last_epoch)
        if epoch < newest or theirs.last_epoch != epoch:
            return Refuse(f"the master is of epoch {epoch}, the newest known is {newest}")
        if self.role is not Role.SLAVE:
            return Refuse("we follow nobody at present")
        return join(theirs, their_end, mine, own_end, own_begin)

    # Events.

    def saw(
        self, now_ms: int, revision: int, record: GroupRecord | None, sent_ms: int
    ) -> list[Effect]:
        """Take what the store had at some time after `sent_ms`: a read, or a write of ours that was carried out."""
        old = self.record
        if record is None or (old and record.number < old.number):
            # An answer that was asked for before our record came may be older than it, and says nothing.
            if old and sent_ms >= self._got_ms:
                self._store_trouble = (
                    f"the group's record is gone, or older than number {old.number}: restore it"
                )
            self._absent = old is None
            return []
        if self._lost:
            return []
        self._store_trouble = self._own.foreign(record)
        if self._store_trouble:
            return []
        # Our own clock says how long the beat stands still: clocks of two members are never compared.
        if (beat := (record.epoch, record.master, record.beat)) != self._beat:
            if not self._entered and record.master == self.me and beat[:2] == self._beat[:2]:
                # Somebody renews in our name: our store is a copy, and that one acknowledges what we lack.
                self._own = dataclasses.replace(self._own, clean=False)
            self._beat, self._beat_ms = beat, now_ms
        self.record, self._revision, self._got_ms = record, revision, now_ms
        effects: list[Effect] = []
        asked = self._asked
        if asked is not None and record.number > asked.after:
            self._asked = None
            if asked.done_in(record):
                effects += self._carried_out(asked)
                # what our own write has changed is no news
                old = asked.record
        # Before all else: a life that another one of its id has replaced neither follows nor serves.
        effects += self._enter(record)
        if self._lost:
            return effects
        self._settle(record)
        if self.role is not Role.MASTER:
            return effects + self._follow(record)
        if record.epoch != self.epoch or record.master != self.me:
            return [*effects, self._depose(record), *self._follow(record)]
        # What such a slave reported before may be lost: it shakes hands again before it counts.
        anew = _changed(old.doubtful if old else {}, record.doubtful)
        anew |= _changed(old.stores if old else {}, record.stores)
        effects.extend(do.Drop(each) for each in sorted(anew) if self._slaves.lost(each, None))
        if self._began_ms is not None and self._told_members != record.members:
            self._told_members = record.members
            effects.append(do.SetChanged(record.members))
        return effects + self._advance(now_ms)

    def tick(self, now_ms: int, own_end: int) -> list[Effect]:
        """Time goes on; call it each `look_ms`. `own_end`: of the log, as written."""
        self._end = own_end
        if self._lost:
            return []
        effects = self._advance(now_ms)
        if self._asked is not None:  # the very same write, until a record shows what became of it
            return [*effects, do.Read(), do.Write(self._asked.revision, self._asked.record)]
        wish = self._wish(now_ms)
        if wish is None:
            if self.role is not Role.MASTER or now_ms - self._got_ms >= self.settings.renew_ms:
                effects.append(do.Read())
            return effects
        kind, record = wish
        # The write names the end of our log: from here on no master may append to it.
        if kind is WriteKind.ELECT:
            self.role = Role.IDLE
            if self._followed is not None:
                self._followed = None
                effects.append(do.Leave())
        if kind is WriteKind.RELEASE:
            self._lease_ms = LONG_AGO  # from the moment it is sent
        after = self.record.number if self.record else 0
        self._asked = Asked(kind, self._revision, after, record, now_ms)
        return [*effects, do.Write(self._revision, record)]

    def began(self, now_ms: int, marks: EpochMarks, own_end: int) -> list[Effect]:
        """The mark of the epoch that was won is on disk, the log ends at `own_end`, and the master runs."""
        if self.role is not Role.MASTER or marks.last_epoch != self.epoch or self.record is None:
            return []
        self.marks, self._start, self._end, self._began_ms = marks, own_end, own_end, now_ms
        self._told_members = self.record.members
        return [do.SetChanged(self.record.members), *self._advance(now_ms)]

    def hello(self, now_ms: int, slave_id: int, connection: object) -> list[Effect]:
        """A slave has shaken hands on a new connection (any value that tells connections apart)."""
        if self.role is Role.MASTER and slave_id != self.me:
            self._slaves.hello(slave_id, connection)
        return []

    def report(
        self, now_ms: int, slave_id: int, connection: object, end: int, own_end: int
    ) -> list[Effect]:
        """A slave has the log up to `end`; `own_end`: ours, as written. A claim beyond it does not count."""
        if self.role is Role.MASTER and self._slaves.report(
            now_ms, slave_id, connection, end, own_end
        ):
            self._end = own_end
            return self._advance(now_ms)
        return []

    def wrote(self, now_ms: int, own_end: int) -> list[Effect]:
        """Our log has grown."""
        self._end = own_end
        return self._advance(now_ms)

    def lost(self, slave_id: int, connection: object) -> list[Effect]:
        """A slave's connection is gone."""
        self._slaves.lost(slave_id, connection)
        return []

    def refollow(self) -> list[Effect]:
        """Say once more whom to follow."""
        self._followed = None
        return self._follow(self.record) if self.record else []

    def released(self, now_ms: int) -> list[Effect]:
        """A planned stop: the log grows no more; the office goes back as soon as the set has all of it, or after
        a second. `Deposed` tells that it is done. This table never stands again."""
        self._leaving_ms = now_ms
        return []

    # A record has come.

    def _carried_out(self, asked: Asked) -> list[Effect]:
        if asked.kind is WriteKind.RENEW:
            self._lease_ms = max(self._lease_ms, asked.sent_ms)
        if asked.kind is not WriteKind.ELECT:
            return []
        self.role, self.epoch, self._lease_ms = Role.MASTER, asked.record.epoch, asked.sent_ms
        self._began_ms, self.confirmed, self._old_master, self._why_none = None, 0, 0, ""
        self._slaves.clear()
        return [do.Won(self.epoch)]

    def _depose(self, record: GroupRecord) -> Effect:
        self.role, self._began_ms, self._lease_ms = Role.IDLE, None, LONG_AGO
        if record.master == 0:
            return do.Deposed("the office was given back")
        return do.Deposed(f"broker {record.master} is master in epoch {record.epoch}")

    def _follow(self, record: GroupRecord) -> list[Effect]:
        place = record.places.get(record.master)
        standing = self._asked is not None and self._asked.kind is WriteKind.ELECT
        mine = self.role is Role.MASTER or record.master == self.me or self._lost != ""
        if mine or place is None or standing:
            return []
        follow = do.Follow(record.master, place, record.epoch)
        if follow == self._followed or not self.settled:
            return []
        self._followed, self._old_master = follow, record.master
        self.role, self.epoch = Role.SLAVE, record.epoch
        return [follow]

    # The master's side.

    def _need(self) -> set[int]:
        """Return the members that must have what we acknowledge: the set in the record, and from the moment we ask for it the new one."""
        proposed = self._asked.record.members if self._asked else ()
        return {*self.record.members, *proposed} if self.record else set()

    def _advance(self, now_ms: int) -> list[Effect]:
        need = self._need()
        if not self.may_acknowledge(now_ms) or len(need) < self.settings.min_in_sync:
            return []
        confirmed = self._slaves.confirmed(need - {self.me}, self._end)
        if confirmed <= self.confirmed:
            return []
        self.confirmed = confirmed
        return [do.Confirmed(confirmed)]

    def _floor(self) -> int:
        """Return the offset one must have to come into the set: below the start of our epoch all may be acknowledged, by the
        master before us, who told nobody."""
        return max(self.confirmed, self._start)

    def _office(self, now_ms: int, record: GroupRecord) -> tuple[WriteKind, GroupRecord] | None:
        """Return the record that a master wants to write."""
        ordered = valid_order(record) and record.ordered != self.me
        fails = self.sick != "" and len(record.members) > 1  # another one has all, and a disk
        if ordered or fails or record.set_back or self._hands_over(now_ms):
            return WriteKind.RELEASE, self._beaten(now_ms, record, master=0)
        members, doubtful = self._members(now_ms, record)
        unfit = {member: why for member, why in record.unfit.items() if member in doubtful}
        changed = (members, doubtful, unfit, 0) != (
            record.members, record.doubtful, record.unfit, record.ordered
        )  # fmt: skip
        if not changed and now_ms - self._lease_ms < self.settings.renew_ms:
            return None
        floor = max(self.confirmed, record.floor)
        shared = NOT_KNOWN if self.alone else (self.marks.written(floor), floor)
        return WriteKind.RENEW, self._beaten(
            now_ms,
            record,
            members=members,
            set_epoch=record.set_epoch + (members != record.members),
            doubtful=doubtful,
            unfit=unfit,
            floor=floor,
            shared=max(record.shared, shared),
            ordered=0,
            accept_loss=False,
        )

    def _hands_over(self, now_ms: int) -> bool:
        if self._leaving_ms is None:
            return False
        return self.confirmed >= self._end or now_ms - self._leaving_ms > HAND_OVER_MS

    def _members(
        self, now_ms: int, record: GroupRecord
    ) -> tuple[tuple[int, ...], dict[int, tuple[int, int]]]:
        """The set as it should be, and who of it is doubtful still."""
        began = self._began_ms
        if began is None:
            return record.members, record.doubtful
        unsure = [
            member
            for member in record.places
            if member not in record.members or member in record.doubtful
        ]
        level = {member for member in unsure if self._slaves.admit(now_ms, member, self._floor())}
        others = (member for member in record.members if member != self.me)
        kept = {member for member in others if not self._slaves.gone(now_ms, member, began)}
        members = tuple(sorted({self.me} | kept | level))
        sure = level | {self.me}
        doubtful = {w: v for w, v in record.doubtful.items() if w in members and w not in sure}
        return members, doubtful

    def _beaten(self, now_ms: int, record: GroupRecord, **changes: Any) -> GroupRecord:
        """With a beat that no other write of this broker has, in an earlier life either: the clock."""
        beat = now_ms if now_ms != record.beat else now_ms + 1
        return self._placed(record, beat=beat, **changes)

    def _placed(self, record: GroupRecord, **changes: Any) -> GroupRecord:
        return placed(record, self.me, self.place, self._own, self.marks.last_epoch, **changes)

    # Everybody's wishes.

    def _wish(self, now_ms: int) -> tuple[WriteKind, GroupRecord] | None:
        record = self.record
        if record is None:
            return self._create()
        if self.role is Role.MASTER:
            return self._office(now_ms, record)
        if not self._entered and record.master == self.me and not self._vacant(now_ms, record):
            self._why_none = f"broker {self.me} is running as master at {record.address_of(self.me)}: give this one a brokerId of its own"
            return None
        if not self._entered or record.places.get(self.me) != self.place:
            changes = self._accused(record) | self._ask_all(record)
            return WriteKind.PLACE, self._placed(record, **changes)
        if not record.members and record.epoch == 0:
            return self._begin(now_ms, record)
        if record.set_back and not {*record.places, *self._own.known} <= {*record.doubtful}:
            if not self._vacant(now_ms, record):
                return None
            asks = asked_of_all(record, self.me, *self._position(), self._own.known)
            return WriteKind.DOUBT, self._placed(record, **asks)
        # Said before it stands: the others wait for what a doubtful member has to say (standing.bar).
        if not self.settled or self._grown_since(now_ms, record):
            return WriteKind.DOUBT, self._placed(record, doubtful=self._doubt(record))
        return self._stand(now_ms, record)

    def _create(self) -> tuple[WriteKind, GroupRecord] | None:
        """A record of nobody yet, ourselves included: when this write comes late, where another one was lost, our store may
        be full or gone, and who begins that record would count on it."""
        if not self._absent or self._leaving_ms is not None:
            return None
        if self.marks.marks or self._own.group:
            self._store_trouble = NO_RECORD
            return None
        return WriteKind.CREATE, GroupRecord(number=self._own.seen + 1, group=self._own.fresh)

    def _begin(self, now_ms: int, record: GroupRecord) -> tuple[WriteKind, GroupRecord] | None:
        self._why_none = not_begun(record, self.settings.total)
        if not self._why_none:
            return WriteKind.PLACE, self._placed(record, members=(self.me,))
        return self._election(now_ms, record) if by_loss(record, self.me) else None

    def _ask_all(self, record: GroupRecord) -> dict[str, Any]:
        """Return what our first entry says when the set says nothing: an old record's, or us alone with less than two had."""
        if self.marks.last_epoch > record.epoch or self._own.seen > record.number:
            return {"set_back": True, "shared": NOT_KNOWN}
        lost = not self._own.clean and not self._fault and self._position() < record.shared
        return {"set_back": True} if lost and record.members == (self.me,) else {}

    # Whose store may lack something.

    def _enter(self, record: GroupRecord) -> list[Effect]:
        """Does the record know this life, and is it the newest of our id?"""
        known = record.stores.get(self.me)
        if known == self._own.entry:
            first, self._entered = not self._entered, True
            return [do.Entered(record)] if first else []
        if self._entered and known is not None:
            # The record knew us and now knows another life: a copy of our store, or a second process with our id.
            self._lost = second_life(self.me, known.store == self._own.name)
            deposed = [do.Deposed(self._lost)] if self.role is Role.MASTER else []
            self.role, self._lease_ms, self._began_ms = Role.IDLE, LONG_AGO, None
            # Until its process has ended, what it reports would count as what the other life has.
            return [*deposed, do.Leave(), do.Fenced(self._lost)]
        if not self._entered:
            fault = fault_of(self._own, record, self.me, self.marks, self._end)
            self._fault = self._fault or fault
            behind = self.marks.last_epoch < record.epoch and self.me in record.members
            if known is None and behind:  # nobody knows this store
                self._own = dataclasses.replace(self._own, clean=False)
        return []

    def _accused(self, record: GroupRecord) -> dict[str, Any]:
        """Return what our first entry says against our own store."""
        if not self._fault or self.me not in record.members:
            return {}
        return {
            "doubtful": self._doubt(record),
            "unfit": record.unfit | {self.me: self._fault},
        }

    def _doubt(self, record: GroupRecord) -> dict[int, tuple[int, int]]:
        return record.doubtful | {self.me: self._position()}

    def _vacant(self, now_ms: int, record: GroupRecord) -> bool:
        """Does nobody count on a lease any more, for certain?"""
        limit = patience(record, self.me, self.settings)
        return not limit or now_ms - self._beat_ms > limit

    def _position(self) -> tuple[int, int]:
        return self.marks.written(self._end), self._end

    def _settle(self, record: GroupRecord) -> None:
        """Does the record say that we may have lost something, if we may? A member without marks has lost all.

        One that is not in the set, or alone in it, says it too: a late write of an earlier life, or one of a master
        that rests on what an earlier life has reported, fails by that.
        """
        if not self.settled and self._entered:
            fit = not self._fault and (record.epoch == 0 or bool(self.marks.marks))
            sure = self._own.clean and (fit or self.me not in record.members)
            self.settled = sure or self.me in record.doubtful

    def _grown_since(self, now_ms: int, record: GroupRecord) -> bool:
        """Doubtful, and now that all are asked what they have, with something else than we said?"""
        reported = record.doubtful.get(self.me)
        vacant = now_ms - self._beat_ms > self.settings.ttl_ms
        return vacant and reported is not None and reported != self._position()

    # Standing.

    def _stand(self, now_ms: int, record: GroupRecord) -> tuple[WriteKind, GroupRecord] | None:
        waited = now_ms - self._beat_ms
        if self._leaving_ms is not None or not self._vacant(now_ms, record):
            self._why_none = ""
            return None
        self._why_none = bar(record, self.me, waited, self.settings)
        barred = self._why_none or (self.sick and not by_loss(record, self.me))
        return None if barred else self._election(now_ms, record)

    def _election(self, now_ms: int, record: GroupRecord) -> tuple[WriteKind, GroupRecord]:
        last = max(record.epoch, record.newest_epoch, self.marks.last_epoch)
        epoch = next_epoch(last, self._own.opening)
        old = record.master or self._old_master  # silent: it comes back when it is level
        changes = elected(record, self.me, epoch, old, *self._position())
        return WriteKind.ELECT, self._beaten(now_ms, record, **changes)


def _changed(old: Mapping[int, object], new: Mapping[int, object]) -> set[int]:
    return {member for member, what in new.items() if old.get(member) != what}
