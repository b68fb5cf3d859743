"""The table of take-over in a world that goes wrong: brokers, a store, clocks, disks, one seed each.

    python -m tests.replication.takeover_world SEEDS [FIRST] [BUG]

Messages and answers are lost or up to 15 s late and overtake each other; paths are cut in one direction; processes are
paused, killed between any two effects, and stopped in order; machines lose power and with it what was not synced (one,
or all at once); clocks run 1 % fast or slow; becoming master takes 40 to 500 ms; operators order masters, with and
without accepting losses; old log expires. After 16 s all heals, and within 13 s all must be equal and in the set.
"""

import copy
import heapq
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from roquette.errors import AgreementError
from roquette.replication import effects as do
from roquette.replication.effects import Effect, TakeOverSettings
from roquette.replication.epochs import BeginAnew, Cut, EpochMarks, Go, Refuse
from roquette.replication.record import (
    GroupRecord,
    MemberPlace,
    OwnStore,
    lost_record,
    ordered_master,
)
from roquette.replication.takeover import TakeOver

Entry = tuple[int, int]  # epoch, what a client sent
UNCONDITIONAL = -1  # a revision: of the bug that compares none
LENGTH, CALM = 16_000, 13_000


class Wrong(Exception):
    """A promise was broken."""


@dataclass
class Machine:
    """What outlives a process: the log from `begin` on, of which `synced` is on the device, and the marks."""

    sync_flush: bool
    begin: int = 0
    log: list[Entry] = field(default_factory=list)
    synced: int = 0
    marks: EpochMarks = field(default_factory=EpochMarks)
    boot: int = 0
    closed_in_order: bool = True
    ran_in_boot: int = 0
    address: int = 0
    store: int = 0
    openings: tuple[str, ...] = ()
    group: str = ""
    seen: int = 0
    known: tuple[int, ...] = ()
    fault: str = ""
    sync_before: bool = False

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    def entry(self, at: int) -> Entry | None:
        return self.log[at - self.begin] if self.begin <= at < self.end else None

    def has(self) -> tuple[int, int, int]:
        """How much of the group's log; of those that have nothing, who was in the group."""
        return self.marks.written(self.end), self.end, self.marks.last_epoch

    def cut(self, at: int) -> None:
        del self.log[at - self.begin :]
        self.synced = min(self.synced, at)

    def be_empty(self, store: int) -> None:
        """A new disk."""
        self.log, self.begin, self.synced, self.marks = [], 0, 0, EpochMarks()
        self.store, self.openings, self.group, self.fault, self.seen = store, (), "", "", 0
        self.known = ()
        self.closed_in_order, self.ran_in_boot = True, 0

    def take_back(self, older: "Machine") -> None:
        """A copy of the store as it was."""
        self.log, self.begin, self.synced, self.marks = (
            [*older.log],
            older.begin,
            older.synced,
            older.marks,
        )
        self.store, self.openings = older.store, older.openings
        self.group, self.seen, self.known = older.group, older.seen, older.known
        self.closed_in_order, self.ran_in_boot = older.closed_in_order, older.ran_in_boot
        self.sync_before = older.sync_before

    def note(self, record: GroupRecord) -> None:
        lacks = self.known if record.set_back else ()
        self.group, self.seen = record.group, record.number
        self.known = tuple(sorted({*record.places, *lacks}))

    def lose_power(self, r: random.Random) -> None:
        self.boot += 1
        self.cut(r.randint(self.synced, self.end))
        self.synced = self.end


@dataclass
class Life:
    """A process: the table, and the driver around it, which is `Broker` and `GroupMember` in a few lines."""

    table: TakeOver
    clean: bool
    phase: str = "none"  # slave, promoting, master, demoting
    turn: int = 0  # of the phase: what was begun in an earlier one is void
    follow: do.Follow | None = None
    joined: int = 0  # our connection to the master
    welcomed: bool = False
    news: float = -1e9
    confirm: int = 0
    conns: dict[int, int] = field(default_factory=dict)
    have: dict[int, int] = field(default_factory=dict)
    told: int = 0
    read: int = 0
    stopping: bool = False


class World:
    """One run of one seed."""

    def __init__(self, seed: int, table: type[TakeOver] = TakeOver, bug: str = "") -> None:
        self.r = r = random.Random(seed)
        self.table, self.bug = table, bug
        self.now, self.count = 0.0, 0
        self.q: list[tuple[float, int, tuple[Any, ...]]] = []
        self.n = r.choice((2, 3, 3))
        self.ids = range(1, self.n + 1)
        self.settings = TakeOverSettings(
            silent_ms=r.choice((900, 1_500)),
            lag_ms=r.choice((2_000, 15_000)),
            min_in_sync=r.choice((1, 1, 2)),
            total=self.n,
        )
        self.sync_flush, self.waits = r.random() < 0.5, r.random() < 0.85
        self.record: GroupRecord | None = None
        self.revision = 0
        self.rate = {b: 1 + r.uniform(-0.01, 0.01) for b in self.ids}
        self.base = {b: r.uniform(0, 1e6) for b in self.ids}
        self.machines = {
            b: Machine(self.sync_flush, store=b, sync_before=self.sync_flush) for b in self.ids
        }
        self.up: dict[int, Life | None] = dict.fromkeys(self.ids)
        self.born = dict.fromkeys(self.ids, 0)
        self.paused = dict.fromkeys(self.ids, 0.0)
        self.cut_paths: set[tuple[int, int]] = set()
        self.acked: dict[int, Entry] = {}
        self.twice: dict[int, Entry] = {}  # of that, what somebody else had too
        self.seen: dict[int, Entry] = {}
        self.top = self.elections = self.losses = self.acks = 0
        self.calm = False
        self.loss = r.choice((0, 0.02, 0.1))
        self.crashy = r.choice((0, 0.001, 0.01))
        self.slow = r.choice((20, 200, 900, 6_000, 15_000))
        self.unit = r.choice((1, 3, 9))
        self.expires = r.random() < 0.3
        self.orders = r.random() < 0.4
        self.lossy_orders = r.random() < 0.25
        self.sick_disks, self.sick_records = r.random() < 0.4, r.random() < 0.15
        self.sick: set[int] = set()  # their stores may lack what they had reported
        self.images: set[int] = set()  # theirs, too, by less than a renewal's time
        self.copies: dict[int, list[Machine]] = {b: [] for b in self.ids}
        self.old_records: list[GroupRecord] = []
        self.drawn: Counter[str] = Counter()
        for b in self.ids:
            self.at(r.uniform(0, 300), "restart", b)
        self.at(r.uniform(0, 50), "client")
        self.at(r.uniform(0, 3_000), "fault")
        for after in range(LENGTH + 4_000, LENGTH + CALM, 1_000):
            self.at(after, "operator")

    # Time, paths, lives.

    def at(self, after: float, *what: Any) -> None:
        self.count += 1
        heapq.heappush(self.q, (self.now + after, self.count, what))

    def clock(self, b: int) -> int:
        return int(self.base[b] + self.now * self.rate[b])

    def delay(self) -> float:
        return self.r.uniform(1, 20 if self.calm or self.r.random() < 0.8 else self.slow)

    def open(self, x: int, y: int) -> bool:
        return (x, y) not in self.cut_paths and (self.calm or self.r.random() >= self.loss)

    def own(self, b: int, after: float, *event: Any) -> None:
        """An event of this life."""
        self.at(after, "to", b, self.born[b], event)

    def send(self, b: int, to: int, *message: Any) -> None:
        if self.open(b, to):
            self.at(self.delay(), "to", to, None, ("message", b, message))

    def start(self, b: int) -> None:
        m = self.machines[b]
        m.marks = m.marks.without_beyond(m.end)
        clean = m.sync_before or m.closed_in_order or m.ran_in_boot == m.boot
        if m.fault:
            clean = False
        m.closed_in_order, before = False, m.openings
        m.openings = (*before, f"opening-{self.now:.3f}-{b}")
        own = OwnStore(
            name=f"store-{m.store}",
            opening=m.openings[-1],
            before=before,
            group=m.group,
            seen=m.seen,
            known=m.known,
            fault=m.fault,
            empty=not m.log and not m.marks.marks,
            clean=clean,
            fresh=f"group-{b}-{self.born[b] + 1}",
        )
        if self.bug == "marked_before_settled":
            m.ran_in_boot = m.boot
        m.address += self.r.random() < 0.05
        place = MemberPlace(address=f"h{b}:{m.address}", ha_address=f"h{b}:{m.address + 1}")
        self.born[b] += 1
        table = self.table(b, place, m.marks, self.settings, own)
        self.up[b] = Life(table, clean)
        self.own(b, self.r.uniform(0, 50), "tick")
        self.own(b, self.r.uniform(5, 500), "flush")

    def crash(self, b: int, soon: bool = False) -> None:
        m = self.machines[b]
        self.copy(b, 0.3)
        if self.sick_disks and self.r.random() < 0.1:
            m.sync_flush = not m.sync_flush
        self.up[b] = None
        self.born[b] += 1
        after = self.r.uniform(5, 700 if soon else 6_000)
        self.at(after / 10 if self.calm else after, "restart", b)  # a stop that was ordered before

    def dies(self, b: int, much: int = 1) -> bool:
        """A kill between two effects; between two writes to the disk it is more likely."""
        if self.calm or self.r.random() >= self.crashy * much:
            return False
        self.crash(b)
        return True

    # One event of one broker.

    def deliver(self, b: int, event: tuple[Any, ...]) -> None:
        life = self.up[b]
        assert life is not None
        handler = getattr(self, "on_" + event[0])
        for effect in handler(b, life, self.machines[b], *event[1:]):
            if self.up[b] is not life or self.dies(b):
                return
            self.carry_out(b, life, effect)
        if life.table.settled:
            m = self.machines[b]
            m.ran_in_boot, m.sync_before, m.fault = m.boot, m.sync_flush, ""
        if self.up[b] is life:
            self.gate(b, life, self.machines[b])

    def carry_out(self, b: int, life: Life, effect: Effect) -> None:
        if isinstance(effect, do.Won | do.Follow):  # it will run now
            self.machines[b].note(life.table.record)
        if isinstance(effect, do.Read):
            if self.open(b, 0):
                self.at(self.delay(), "store", b, self.born[b], None, self.clock(b))
        elif isinstance(effect, do.Write):
            if self.open(b, 0):
                self.at(self.delay(), "store", b, self.born[b], effect, self.clock(b))
        elif isinstance(effect, do.Won):
            self.won(b, life, effect.epoch)
        elif isinstance(effect, do.Deposed):
            life.phase, life.turn = "demoting", life.turn + 1
            self.own(b, self.r.uniform(5, 300), "demoted", life.turn)
            if life.stopping:
                self.own(b, 0, "halt")
        elif isinstance(effect, do.Follow):
            life.follow = effect
            if life.phase in ("none", "slave"):
                life.phase = "slave"
                self.hello(b, life)
        elif isinstance(effect, do.Leave):
            life.follow, life.joined = None, 0
        elif isinstance(effect, do.Drop):
            life.conns.pop(effect.who, None)
        elif isinstance(effect, do.Entered):
            m = self.machines[b]
            m.openings = m.openings[-1:]
            m.note(effect.record)
        elif isinstance(effect, do.Fenced):
            raise Wrong(f"{b} is fenced: {effect.why}")

    def won(self, b: int, life: Life, epoch: int) -> None:
        life.phase, life.turn, life.joined, life.follow = "promoting", life.turn + 1, 0, None
        self.own(b, self.r.uniform(20, 250), "mark", life.turn)
        record, m = self.record, self.machines[b]
        if record is None or epoch != record.epoch:
            return  # learns late of a win that is history: holds no lease
        self.elections += 1
        if b in self.sick and self.first_epoch < epoch and record.lossy_epoch != epoch:
            raise Wrong(f"{b} is elected, and its store was swapped: {record}")
        if self.may_lack:
            self.forgive(m)
        for at, entry in self.acked.items():
            if at >= m.begin and m.entry(at) != entry:
                raise Wrong(f"new master {b} of epoch {epoch} lacks acknowledged {entry} at {at}")

    def forgive(self, m: Machine) -> None:
        """An election that may lose something: what is gone was not promised."""
        for promised in (self.acked, self.seen, self.twice):
            for at in [
                at for at, entry in promised.items() if at >= m.begin and m.entry(at) != entry
            ]:
                del promised[at]
                self.losses += 1

    def gate(self, b: int, life: Life, m: Machine) -> None:
        """Who may count on the lease; what is acknowledged now; what a consumer may read."""
        table, now = life.table, self.clock(b)
        if table.lease_left_ms(now) <= 0:
            return
        record = self.record
        if record is None or record.epoch != table.epoch or record.master != b:
            raise Wrong(f"{b} counts on its lease of epoch {table.epoch}, the store is further")
        if life.phase != "master" or not table.may_acknowledge(now):
            return
        end = min(table.confirmed, m.synced) if m.sync_flush else table.confirmed
        if end > life.told and self.waits:
            if table.epoch < self.top and not self.by_old_record:
                raise Wrong(f"{b} acknowledges in epoch {table.epoch} after {self.top} did")
            self.top = max(self.top, table.epoch)
            for at in range(max(life.told, m.begin), end):
                self.same(self.acked, at, m)
                if not table.alone:
                    self.twice[at] = self.acked[at]
            self.acks += end - life.told
            life.told = end
        self.consume(life, m, m.end if self.bug == "read_unconfirmed" else end)

    def consume(self, life: Life, m: Machine, end: int) -> None:
        for at in range(max(life.read, m.begin), end):
            self.same(self.seen, at, m)
        life.read = max(life.read, end)

    def same(self, known: dict[int, Entry], at: int, m: Machine) -> None:
        entry = m.entry(at)
        if entry is None or known.setdefault(at, entry) != entry:
            raise Wrong(f"at {at} there was {known.get(at)}, now {entry}")

    # Events of the driver.

    def on_tick(self, b: int, life: Life, m: Machine) -> Iterator[Effect]:
        self.own(b, self.r.uniform(60, 160), "tick")
        if life.phase == "master":
            for who in list(life.conns):
                self.feed(b, life, m, who)
        elif life.phase == "slave" and life.follow and self.now - life.news > 300:
            self.hello(b, life)
        if self.expires and len(m.log) > 5 and self.r.random() < 0.02:
            keep = life.table.confirmed if life.phase == "master" else min(life.confirm, m.synced)
            gone = max(0, min(keep, m.end) - m.begin - 3)
            del m.log[:gone]
            m.begin += gone
        yield from life.table.tick(self.clock(b), m.end)

    def on_flush(self, b: int, life: Life, m: Machine) -> Iterator[Effect]:
        m.synced = m.end
        self.copy(b, 0.01)
        self.own(b, self.r.uniform(2, 40) if m.sync_flush else self.r.uniform(50, 1_000), "flush")
        yield from ()

    def on_saw(
        self, b: int, life: Life, m: Machine, revision: int, record: GroupRecord | None, sent: int
    ) -> Iterator[Effect]:
        yield from life.table.saw(self.clock(b), revision, record, sent)

    def on_mark(self, b: int, life: Life, m: Machine, turn: int) -> Iterator[Effect]:
        if turn == life.turn:
            m.marks = m.marks.won(life.table.epoch, m.begin, m.end)
            self.own(b, self.r.uniform(20, 250), "begin", turn)
        yield from ()

    def on_begin(self, b: int, life: Life, m: Machine, turn: int) -> Iterator[Effect]:
        if turn == life.turn:
            life.phase, life.told, life.read = "master", m.end, 0
            life.conns, life.have = {}, {}
            yield from life.table.began(self.clock(b), m.marks, m.end)

    def on_demoted(self, b: int, life: Life, m: Machine, turn: int) -> Iterator[Effect]:
        if turn == life.turn:
            life.phase = "none"
            if life.follow is not None:
                life.phase = "slave"
                self.hello(b, life)
        yield from ()

    def on_client(self, b: int, life: Life, m: Machine, value: int) -> Iterator[Effect]:
        if life.stopping or (self.waits and life.table.shortage):
            return
        if not life.table.may_acknowledge(self.clock(b)) and self.r.random() < 0.8:
            return
        end = m.end
        m.log.append((life.table.epoch, value))
        for who in [who for who, have in life.have.items() if have == end]:
            self.feed(b, life, m, who)
        yield from ()

    def on_stop(self, b: int, life: Life, m: Machine) -> Iterator[Effect]:
        life.stopping = True
        self.own(b, 2_500 if life.phase == "master" else self.r.uniform(0, 100), "halt")
        yield from life.table.released(self.clock(b))

    def on_halt(self, b: int, life: Life, m: Machine) -> Iterator[Effect]:
        m.synced, m.closed_in_order = m.end, life.table.settled
        self.crash(b)
        yield from ()

    # Replication.

    def hello(self, b: int, life: Life) -> None:
        assert life.follow is not None
        self.count += 1
        life.joined, life.welcomed, life.news = self.count, False, self.now
        self.send(b, life.follow.master, "hello", life.joined)

    def feed(self, b: int, life: Life, m: Machine, who: int) -> None:
        """A unit from where the slave is; an empty one is the heartbeat."""
        if who not in life.conns or (at := life.have.get(who, -1)) < m.begin:
            return
        starts = (mark.start for mark in m.marks.marks if at < mark.start < m.end)
        stop = min(next(starts, m.end), at + self.unit)  # no unit crosses a mark
        mark = m.marks.at(at)
        entries = tuple(m.log[at - m.begin : stop - m.begin])
        confirm = min(life.table.confirmed, m.synced) if m.sync_flush else life.table.confirmed
        self.send(b, who, "data", life.conns[who], life.table.epoch, mark, at, entries, confirm)

    def on_message(
        self, b: int, life: Life, m: Machine, who: int, message: tuple[Any, ...]
    ) -> Iterator[Effect]:
        yield from getattr(self, "got_" + message[0])(b, life, m, who, *message[1:])

    def got_hello(self, b: int, life: Life, m: Machine, who: int, conn: int) -> Iterator[Effect]:
        if life.phase == "master":
            life.conns[who] = conn
            life.have.pop(who, None)
            yield from life.table.hello(self.clock(b), who, conn)
            marks = m.marks.seen_from(m.begin)
            self.send(b, who, "welcome", conn, life.table.epoch, marks, m.end)

    def got_welcome(
        self,
        b: int,
        life: Life,
        m: Machine,
        who: int,
        conn: int,
        epoch: int,
        theirs: EpochMarks,
        end: int,
    ) -> Iterator[Effect]:
        if life.phase != "slave" or conn != life.joined or life.welcomed:
            return
        told = life.table.welcome(epoch, theirs, end, m.marks, m.end, m.begin)
        if isinstance(told, Refuse):
            life.joined = 0
            if "not a copy" in told.why:
                self.foreign(b, m)
            return
        kept, at = told.kept, told.at
        if self.bug == "cut_at_confirm":
            at = max(m.begin, min(life.confirm, at))
            told, kept = Cut(at, kept.without_beyond(at)), kept.without_beyond(at)
        if self.bug == "epochs_cut_first":
            m.marks = kept
            if self.dies(b, 20):
                return
        if isinstance(told, BeginAnew):
            m.log, m.begin, m.synced = [], at, at
        elif isinstance(told, Cut):
            m.cut(at)
        if self.dies(b, 20):
            return
        m.marks = life.table.marks = kept
        life.confirm = min(
            life.confirm, m.end
        )  # what was cut may have been, before an order that lost it
        if not isinstance(told, Go) and self.r.random() < 0.5:
            life.joined = 0  # it opens its store again, and connects anew
            return
        life.welcomed, life.news = True, self.now
        self.send(b, who, "report", conn, at)
        yield from ()

    def foreign(self, b: int, m: Machine) -> None:
        """An operator does as he is told: he moves the store away, which costs nothing when it has no message."""
        if m.log and not self.losses and not self.lossy_orders:
            raise Wrong(f"{b} is refused as a stranger")
        self.count += 1
        m.be_empty(self.count)
        self.crash(b)

    def got_data(
        self,
        b: int,
        life: Life,
        m: Machine,
        who: int,
        conn: int,
        epoch: int,
        mark: tuple[int, int],
        at: int,
        entries: tuple[Entry, ...],
        confirm: int,
    ) -> Iterator[Effect]:
        if life.phase != "slave" or conn != life.joined or not life.welcomed:
            return
        life.news = self.now
        if at == m.end and entries:
            if self.bug == "report_first":
                self.send(b, who, "report", conn, at + len(entries))
                if self.dies(b, 20):
                    return
            new = mark[0] > m.marks.last_epoch
            if new and self.bug != "data_before_epoch":
                m.marks = life.table.marks = m.marks.marked(*mark)
                if self.dies(b, 20):
                    return
            m.log.extend(entries)
            if new and self.bug == "data_before_epoch":
                if self.dies(b, 20):
                    return
                m.marks = life.table.marks = m.marks.marked(*mark)
            if m.sync_flush:
                m.synced = m.end
            if self.dies(b):
                return
        if at <= m.end:
            life.confirm = max(life.confirm, min(confirm, m.end))
            if epoch >= self.void_before:
                self.consume(life, m, life.confirm)
        self.send(b, who, "report", conn, m.end)
        yield from ()

    def got_report(
        self, b: int, life: Life, m: Machine, who: int, conn: int, end: int
    ) -> Iterator[Effect]:
        if life.phase != "master":
            return
        if life.conns.get(who) == conn:
            life.have[who] = end
        yield from life.table.report(self.clock(b), who, conn, end, m.end)
        if life.conns.get(who) == conn and end < m.end:
            self.feed(b, life, m, who)

    # The store, and what goes wrong.

    def store(self, b: int, born: int, write: do.Write | None, sent: int) -> None:
        if write is not None:
            if write.revision not in (self.revision, UNCONDITIONAL):
                if self.r.random() < 0.5:
                    return  # not carried out, and the answer says nothing of the record
            else:
                self.put(b, write.record)
        if self.open(0, b):
            self.at(self.delay(), "to", b, born, ("saw", self.revision, self.record, sent))

    def put(self, b: int, new: GroupRecord) -> None:
        old = self.record
        if old is not None and new.epoch > old.epoch and new.master:
            self.first_epoch = self.first_epoch or new.epoch
            doubtful = b in old.doubtful
            if old.members == (b,) and doubtful and new.lossy_epoch != new.epoch:
                self.drawn["doubtful, and alone"] += 1
                self.check_alone(b)
            self.by_old_record = self.unproven
            self.drawn["elected by an old record"] += self.by_old_record
            self.may_lack = (
                new.lossy_epoch == new.epoch or doubtful or self.unproven or b in self.images
            )
            if self.may_lack:
                self.void_before = new.epoch
                self.forgive(self.machines[b])
            if doubtful and len(old.members) > 1 and new.lossy_epoch != new.epoch:
                if any(who not in old.doubtful for who in old.members):
                    raise Wrong(f"doubtful {b} is elected where another one is sure: {old}")
                if old.doubtful[b] != max(old.doubtful[who] for who in old.members):
                    raise Wrong(f"doubtful {b} is elected, it does not have most: {old}")
        self.unproven = self.unproven and not new.set_back
        if old is not None:
            fit = {w for w in new.members if w not in new.doubtful}
            self.images -= {w for w in new.places if w not in new.members}
            self.images -= {new.master} if new.epoch > old.epoch else set()
            self.sick -= fit - {w for w in old.members if w not in old.doubtful} - {new.master}
            self.sick -= {new.master} if new.lossy_epoch == new.epoch else set()
        if self.r.random() < 0.2:
            self.old_records.append(new)
        self.record, self.revision = new, self.r.getrandbits(40) + 1

    def check_alone(self, b: int) -> None:
        """It lost power: nobody has more of what two had."""
        m, others = self.machines[b], [x for w, x in self.machines.items() if w != b]
        for at, entry in self.twice.items():
            if at >= m.begin and m.entry(at) != entry and any(x.entry(at) == entry for x in others):
                raise Wrong(f"{b} is elected alone, and another one has {entry} at {at}")

    may_lack = unproven = False
    by_old_record = False  # the newest election was: the record may have lost higher epochs
    first_epoch = 0  # before it nothing was promised
    void_before = 0  # what replicas show of earlier epochs is no promise any more

    def fault(self) -> None:
        r = self.r
        b = r.choice(self.ids)
        what = r.random()
        if what < 0.22:
            if self.up[b]:
                self.crash(b)
        elif what < 0.32:
            for x in self.ids if r.random() < 0.25 else (b,):
                self.machines[x].lose_power(r)
                if self.up[x]:
                    self.crash(x)
        elif what < 0.5:
            self.paused[b] = self.now + r.uniform(100, 8_000)
        elif what < 0.72:
            for y in (0, *self.ids):
                if r.random() < 0.5:
                    self.cut_paths.add((b, y))
                if r.random() < 0.5:
                    self.cut_paths.add((y, b))
            self.at(r.uniform(200, 8_000), "heal")
        elif what < 0.84:
            self.cut_paths.add((b, 0) if r.random() < 0.5 else (0, b))
            self.at(r.uniform(200, 6_000), "heal")
        elif what < 0.92:
            self.own(b, 0, "stop")
        elif what < 0.95 and self.sick_disks:
            self.drawn[self.swap_store(b)] += 1
        elif what < 0.96 and self.sick_records:
            self.sick_records = False  # once: two old records may give one epoch to two masters
            self.drawn[self.set_record_back()] += 1
        elif self.orders:
            loss = self.lossy_orders and r.random() < 0.5
            self.order(r.choice(self.ids), loss)
        self.at(r.uniform(50, 4_000), "fault")

    def copy(self, b: int, chance: float) -> None:
        """Somebody copies a store, perhaps one that runs."""
        if self.sick_disks and self.r.random() < chance:
            self.copies[b].append(copy.copy(self.machines[b]))
            self.copies[b][-1].log = [*self.machines[b].log]

    def swap_store(self, b: int) -> str:
        """Something else than a power cut happens to a store while its broker is down."""
        r, m = self.r, self.machines[b]
        if self.up[b]:
            self.crash(b)
        kind = r.choice(("empty", "older", "older", "damage"))
        if kind == "older" and not self.copies[b]:
            kind = "empty"
        if kind == "empty":
            self.count += 1
            m.be_empty(self.count)
        elif kind == "older":
            known = self.record.stores.get(b) if self.record else None
            m.take_back(r.choice(self.copies[b]))
            m.boot += 1
            # An image of the machine as it ran: what it lacks only `floor` tells.
            if known is None or known.opening in m.openings:
                kind = "image"
                self.images.add(b)
                self.sick.discard(b)
        else:
            m.cut(r.randint(m.begin, m.end))
            m.fault = "damage has cut the log"
        if kind != "image":
            self.sick.add(b)
        return kind

    def set_record_back(self) -> str:
        """All brokers are stopped, and the record is restored from a backup, or lost."""
        for b in self.ids:
            if self.up[b]:
                self.crash(b, soon=True)
        older = self.r.choice(self.old_records) if self.old_records else None
        kind = "record older" if older and self.r.random() < 0.7 else "record lost"
        self.record = older if kind == "record older" else None
        self.revision = self.r.getrandbits(40) + 1 if self.record else 0
        self.unproven = kind == "record older"  # until one that knows better is there
        return kind

    def run_operator(self) -> None:
        """Nobody is elected for long: somebody reads why, and orders the one that has most."""
        record = self.record
        lives = [life for life in self.up.values() if life is not None]
        for life in lives:
            m = self.machines[life.table.me]
            foreign = life.table.trouble.startswith("the store is of the group")
            if foreign and (self.losses or not m.log):
                self.foreign(life.table.me, m)
        if len(lives) < self.n or any(x.table.lease_left_ms(self.clock(x.table.me)) for x in lives):
            return
        best = max(self.ids, key=lambda b: self.machines[b].has())
        self.drawn["operator"] += 1
        if record is None or record.group != self.machines[best].group:
            epoch = max(m.marks.last_epoch for m in self.machines.values())
            seen = max(life.table.known_number for life in lives)
            self.put(0, lost_record(self.machines[best].group, epoch, seen, best, best))
        else:
            self.order(best, True)

    def order(self, member: int, loss: bool) -> None:
        """An operator's command writes the record itself."""
        if self.record is None:
            return
        try:
            wanted = ordered_master(self.record, member, loss)
        except AgreementError:
            return
        if wanted is not self.record:
            self.put(0, wanted)

    def run(self) -> "World":
        while self.q:
            self.now, _, what = heapq.heappop(self.q)
            if not self.calm and self.now > LENGTH:
                self.calm = True
                self.cut_paths.clear()
                self.paused = dict.fromkeys(self.ids, 0.0)
            if self.now > LENGTH + CALM:
                break
            getattr(self, "run_" + what[0])(*what[1:])
        self.check_end()
        return self

    def run_to(self, b: int, born: int | None, event: tuple[Any, ...]) -> None:
        if self.up[b] is None or (born is not None and born != self.born[b]):
            return
        if self.paused[b] > self.now:
            self.at(self.paused[b] - self.now + self.r.random(), "to", b, born, event)
            return
        self.deliver(b, event)

    def run_store(self, *what: Any) -> None:
        self.store(*what)

    def run_client(self) -> None:
        live = [
            b
            for b in self.ids
            if (x := self.up[b]) and x.phase == "master" and self.paused[b] <= self.now
        ]
        if live:
            self.deliver(self.r.choice(live), ("client", self.count))
        if self.now < LENGTH + CALM / 2:
            self.at(self.r.uniform(20, 400), "client")

    def run_fault(self) -> None:
        if not self.calm:
            self.fault()

    def run_heal(self) -> None:
        self.cut_paths.clear()

    def run_restart(self, b: int) -> None:
        if self.up[b] is None:
            self.start(b)

    def check_end(self) -> None:
        """All healed long ago: one log, all in the set, nobody in doubt, one master."""
        record = self.record
        begin = max(m.begin for m in self.machines.values())
        logs = [(m.end, m.log[begin - m.begin :]) for m in self.machines.values()]
        lives = [life for life in self.up.values() if life is not None]
        masters = [x.table.me for x in lives if x.table.may_acknowledge(self.clock(x.table.me))]
        right = record is not None and set(record.members) == set(self.ids) and not record.doubtful
        if not right or any(log != logs[0] for log in logs) or len(masters) != 1:
            ends = {b: (m.begin, m.end, m.marks.entries()) for b, m in self.machines.items()}
            why = [f"{x.table.me}: {x.phase} {x.table.trouble}" for x in lives]
            raise Wrong(f"no convergence: masters {masters}, {ends}, {record}, {why}")
        assert record is not None
        for life in lives:
            if record.places[life.table.me] != life.table.place:
                raise Wrong(f"the record has an old place of {life.table.me}")


def find(bug: str, seeds: range) -> tuple[int, str] | None:
    """The first of the seeds that shows the planted bug, and how; None: none does."""
    from tests.replication.planted import PLANTED

    for seed in seeds:
        try:
            World(seed, PLANTED.get(bug, TakeOver), bug).run()
        except Wrong as error:
            return seed, str(error)
    return None


def main() -> int:
    """See the head of the file."""
    seeds = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    bug = sys.argv[3] if len(sys.argv) > 3 else ""
    if bug:
        print(bug, find(bug, range(first, first + seeds)))
        return 0
    acks = elections = losses = 0
    drawn: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        try:
            world = World(seed).run()
        except Wrong as error:
            print(f"seed {seed}: {error}")
            return 1
        acks, elections, losses = (
            acks + world.acks,
            elections + world.elections,
            losses + world.losses,
        )
        drawn += world.drawn
    print(
        f"{seeds} seeds from {first}: {acks} acknowledged, {elections} elections, {losses} allowed losses, {dict(drawn)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
