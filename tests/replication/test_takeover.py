"""The table of take-over, event by event."""

from roquette.replication.effects import (
    Confirmed,
    Deposed,
    Follow,
    Leave,
    Read,
    Role,
    SetChanged,
    TakeOverSettings,
    Won,
    Write,
)
from roquette.replication.epochs import EpochMarks
from roquette.replication.record import GroupRecord, Place
from roquette.replication.takeover import TakeOver


def place(who: int) -> Place:
    return Place(address=f"h{who}:1", ha_address=f"h{who}:2")


class Store:
    """The register of one group, and members that are told at once what they asked."""

    def __init__(self) -> None:
        self.revision = 0
        self.record: GroupRecord | None = None

    def run(self, table: TakeOver, now: int, effects: list) -> list:
        """Carry out reads and writes; the other effects, in order."""
        rest = []
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Read):
                queue += table.saw(now, self.revision, self.record, now)
            elif isinstance(effect, Write):
                if effect.revision == self.revision:
                    self.revision += 7
                    self.record = effect.record
                queue += table.saw(now, self.revision, self.record, now)
            else:
                rest.append(effect)
        return rest

    def tick(self, table: TakeOver, now: int, end: int = 0) -> list:
        return self.run(table, now, table.tick(now, end))


def member(who: int, clean: bool = True, entries=(), **settings) -> TakeOver:
    return TakeOver(who, place(who), EpochMarks.of(entries), TakeOverSettings(**settings), clean)


def master(store: Store, who: int = 1, now: int = 1000, end: int = 0, **settings) -> TakeOver:
    """One that has begun its mastership of the group's first epoch."""
    table = member(who, **settings)
    store.tick(table, now, end)
    store.tick(table, now, end)
    assert store.tick(table, now, end) == [Won(1)]
    table.began(now, table.marks.won(1, 0, end), end)
    return table


def slave(store: Store, who: int, leader: TakeOver, now: int, end: int = 0, **settings) -> TakeOver:
    """One that has joined, reports `end`, and is in the set."""
    table = member(who, **settings)
    assert store.tick(table, now, end) == [Follow(leader.me, leader.place, leader.epoch)]
    assert store.tick(table, now, end) == []
    table.marks = leader.marks
    store.run(leader, now, [Read()])
    leader.hello(now, who, f"c{who}")
    leader.report(now, who, f"c{who}", end, end)
    store.tick(leader, now, end)
    store.run(table, now, [Read()])
    assert who in store.record.members
    return table


def test_the_first_one_creates_the_group_and_is_its_master() -> None:
    store = Store()
    table = member(1)
    assert table.tick(0, 0) == [Read()]
    store.run(table, 0, [Read()])
    assert store.tick(table, 100, 30) == []
    assert store.record == GroupRecord(number=1, members=(1,), places={1: place(1)})
    assert store.tick(table, 200, 30) == [Won(1)]
    assert table.role is Role.MASTER
    assert not table.may_acknowledge(200)  # not before the mark is on disk
    assert table.lease_left_ms(200) == int(table.settings.hold_ms)
    assert table.began(400, table.marks.won(1, 0, 30), 30) == [SetChanged((1,)), Confirmed(30)]
    assert table.may_acknowledge(400)
    assert table.marks.entries() == [(1, 0)]


def test_a_slave_joins_comes_into_the_set_and_takes_over() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    assert store.record.members == (1, 2)
    assert one.tick(1200, 50) == []  # 2 does not have it
    assert one.report(1210, 2, "c2", 50, 50) == [Confirmed(50)]
    store.tick(one, 1700, 50)  # renewed
    store.run(two, 1750, [Read()])
    assert store.tick(two, 4750, 50) == []
    assert store.tick(two, 4751, 50) == [Leave(), Won(2)]
    assert store.record.members == (2,)
    assert not one.may_acknowledge(4640)
    assert store.run(one, 4800, [Read()]) == [
        Deposed("broker 2 is master in epoch 2"),
        Follow(2, place(2), 2),
    ]
    assert one.role is Role.SLAVE
    assert two.began(4900, two.marks.won(2, 0, 50), 50) == [SetChanged((2,)), Confirmed(50)]
    assert two.marks.entries() == [(1, 0), (2, 50)]
