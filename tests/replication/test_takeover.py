"""The table of take-over, event by event."""

import itertools

import pytest
from msgspec.structs import replace
from tests.replication.planted import (
    GrowBeforeEpoch,
    NoDrop,
    OldAck,
    ShrinkUnrecorded,
)

from roquette.errors import AgreementError
from roquette.replication import record
from roquette.replication.effects import (
    Confirmed,
    Deposed,
    Drop,
    Entered,
    Fenced,
    Follow,
    Leave,
    Read,
    Role,
    SetChanged,
    TakeOverSettings,
    Won,
    Write,
)
from roquette.replication.epochs import EpochMarks, Go, Refuse
from roquette.replication.record import (
    EPOCH_STEP,
    NEW_EPOCHS,
    GroupRecord,
    Life,
    MemberPlace,
    OwnStore,
    decode_record,
    fault_of,
    free_id,
    lost_record,
    next_epoch,
    ordered_master,
)
from roquette.replication.takeover import TakeOver


def place(who: int) -> MemberPlace:
    return MemberPlace(address=f"h{who}:1", ha_address=f"h{who}:2")


OPENINGS = [str(number) for number in range(2_000)]  # each table is a later life of its store
LIVES = itertools.count(1)


@pytest.fixture(autouse=True)
def _epochs_one_by_one(monkeypatch) -> None:
    """So that cases can say which epoch comes; what is drawn in front has a case of its own."""
    monkeypatch.setattr(record, "EPOCH_STEP", 1)


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
            elif not isinstance(effect, Entered):  # for the member's file
                rest.append(effect)
        return rest

    def order(self, who: int, accept_loss: bool = False) -> None:
        """An operator's command."""
        self.record = ordered_master(self.record, who, accept_loss)
        self.revision += 7

    def tick(self, table: TakeOver, now: int, end: int = 0) -> list:
        return self.run(table, now, table.tick(now, end))


def member(who: int, clean: bool = True, entries=(), table=TakeOver, **settings) -> TakeOver:
    life = next(LIVES)
    opened = {"opening": OPENINGS[life], "before": tuple(OPENINGS[:life])}
    fresh = f"group-{who}"
    own = OwnStore(name=f"store-{who}", **opened, empty=not entries, clean=clean, fresh=fresh)
    marks = EpochMarks.of(entries)
    return table(who, place(who), marks, TakeOverSettings(**settings), own)


def master(store: Store, who: int = 1, now: int = 1000, end: int = 0, **settings) -> TakeOver:
    """One that has begun its mastership of the group's first epoch."""
    table = member(who, **settings)
    for _ in ("read", "create", "enter", "begin"):
        store.tick(table, now, end)
    assert store.tick(table, now, end) == [Won(1)]
    table.began(now, table.marks.won(1, 0, end), end)
    return table


def slave(store: Store, who: int, leader: TakeOver, now: int, end: int = 0, **settings) -> TakeOver:
    """One that has joined, reports `end`, and is in the set."""
    table = member(who, **settings)
    assert store.tick(table, now, end) == []  # nobody before the record knows this life
    assert store.tick(table, now, end) == [Follow(leader.me, leader.place, leader.epoch)]
    table.marks = leader.marks
    store.run(leader, now, [Read()])
    reports(store, leader, table, now, end)
    assert who in store.record.members
    return table


def reports(store: Store, leader: TakeOver, table: TakeOver, now: int, end: int) -> None:
    """A slave connects and says what it has; the record comes to say that it is in the set."""
    leader.hello(now, table.me, f"c{table.me}-{now}")
    leader.report(now, table.me, f"c{table.me}-{now}", end, max(end, leader._end))
    store.tick(leader, now, leader._end)
    store.run(table, now, [Read()])


def elected(store: Store, table: TakeOver, now: int, end: int, begin_ms: int = 0) -> None:
    """Its TTL is over: it wins, and begins."""
    store.run(table, now - 3100, [Read()])
    assert Won(store.record.epoch + 1) in store.tick(table, now, end), table.trouble
    table.began(now + begin_ms, table.marks.won(table.epoch, 0, end), end)


def test_the_first_one_creates_the_group_and_is_its_master() -> None:
    store = Store()
    table = member(1)
    assert table.tick(0, 0) == [Read()]
    store.run(table, 0, [Read()])
    assert store.tick(table, 100, 30) == []
    assert store.record == GroupRecord(number=1, group="group-1")
    assert store.tick(table, 110, 30) == [] == store.tick(table, 120, 30)
    assert store.record == GroupRecord(
        number=3,
        members=(1,),
        places={1: place(1)},
        group="group-1",
        stores={1: table._own.entry},
        highest_id=1,
    )
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
    assert one.report(1210, 2, "c2-1100", 50, 50) == [Confirmed(50)]
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


def right_and_wrong(bug: type[TakeOver]):
    """With the table as it is, and with the planted bug: the test sees the difference."""
    return pytest.mark.parametrize(("table", "right"), [(TakeOver, True), (bug, False)])


@right_and_wrong(OldAck)
def test_reports_to_an_earlier_mastership_or_connection_do_not_count(table, right) -> None:
    """`old_ack`: two elections within one late message. What 2 had reported was cut off its log since."""
    store = Store()
    one = master(store, table=table)
    two = slave(store, 2, one, 1100)
    three = slave(store, 3, one, 1150)
    one.report(1160, 2, "c2-1100", 60, 60)
    elected(store, three, 5000, 40)  # 3 has 40 only; 2 is cut to 40
    assert store.run(one, 5100, [Read()])[0] == Deposed("broker 3 is master in epoch 2")
    one.marks = three.marks
    reports(store, three, one, 5200, 40)
    reports(store, three, two, 5200, 40)
    elected(store, one, 9000, 40)
    store.tick(one, 9100, 60)  # 20 bytes of its own
    one.report(9150, 2, "c2-1100", 60, 60)
    assert (one.confirmed < 60) is right
    one.hello(9200, 2, "c2-9200")
    one.report(9210, 2, "c2-9200", 40, 60)
    one.report(9215, 2, "c2-1100", 60, 60)
    assert (one.confirmed == 40) is right


@right_and_wrong(NoDrop)
def test_what_was_reported_before_a_power_cut_is_void(table, right) -> None:
    store = Store()
    one = master(store, table=table)
    slave(store, 2, one, 1100)
    one.report(1200, 2, "c2-1100", 80, 80)
    two = member(2, clean=False, entries=one.marks.entries())
    assert store.run(two, 1250, [Read()]) == []  # follows nobody before it has said so
    assert store.tick(two, 1255, 30) == []
    assert not two.settled
    assert store.tick(two, 1260, 30) == [Follow(1, place(1), 1)]
    assert two.settled
    assert store.record.doubtful == {2: (1, 30)}
    assert (Drop(2) in store.run(one, 1300, [Read()])) is right
    store.tick(one, 1310, 80)
    assert (2 in store.record.doubtful) is right
    if right:
        reports(store, one, two, 1400, 80)
        assert store.record.doubtful == {}


def test_a_late_write_does_not_take_in_one_that_has_begun_anew_since() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    store.tick(one, 2700, 0)  # silent: it leaves
    store.tick(one, 2700, 0)
    assert store.record.members == (1,)
    one.hello(2750, 2, "c")
    one.report(2760, 2, "c", 80, 80)
    (late,) = [x for x in one.tick(2770, 80) if isinstance(x, Write)]
    assert late.record.members == (1, 2)
    two = member(2, clean=False, entries=one.marks.entries())  # with 30 of the 80
    store.run(two, 2800, [Read()])
    store.tick(two, 2810, 30)
    assert late.revision != store.revision  # so it is not carried out


@right_and_wrong(GrowBeforeEpoch)
def test_below_the_start_of_its_epoch_everything_may_be_acknowledged(table, right) -> None:
    """The master before has acknowledged 80 with 2 and 4 in the set; 3, at 30, must not come in before it has them."""
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100, table=table)
    slave(store, 4, one, 1150)
    three = member(3)
    store.tick(three, 1200)
    store.tick(three, 1210)
    elected(store, two, 5000, 80)
    two.hello(5010, 3, "c")
    two.report(5020, 3, "c", 30, 80)
    store.tick(two, 5600, 80)
    assert (store.record.members == (2, 4)) is right


@right_and_wrong(ShrinkUnrecorded)
def test_one_that_is_silent_is_needed_until_the_record_says_that_it_is_not(table, right) -> None:
    store = Store()
    one = master(store, table=table)
    slave(store, 2, one, 1100)
    store.tick(one, 2400, 50)
    effects = one.tick(2650, 50)  # the write is lost
    assert [x.record.members for x in effects if isinstance(x, Write)] == [(1,)]
    assert (Confirmed(50) not in one.tick(2750, 50)) is right


def test_one_that_comes_in_is_needed_from_the_moment_it_is_asked_for() -> None:
    store = Store()
    one = master(store)
    two = member(2)
    store.tick(two, 1100, 0)
    store.tick(two, 1110, 0)
    store.run(one, 1120, [Read()])
    one.hello(1130, 2, "c")
    one.report(1140, 2, "c", 0, 0)
    assert any(isinstance(x, Write) for x in one.tick(1150, 0))  # no answer yet
    assert one.tick(1160, 10)[:1] == [Read()]
    assert one.report(1170, 2, "c", 10, 10) == [Confirmed(10)]


def test_an_unknown_outcome_is_asked_for_with_the_same_write() -> None:
    store = Store()
    one = master(store)
    slave(store, 2, one, 1100)
    (write,) = [x for x in one.tick(1700, 0) if isinstance(x, Write)]
    assert one.tick(1800, 0) == [Read(), write]
    store.revision, store.record = 99, write.record  # it was carried out, and the answer lost
    left = one.lease_left_ms(2000)
    assert store.tick(one, 2000, 0) == []
    assert one.lease_left_ms(2000) == left + 600  # from before the first try
    assert one.lease_left_ms(1700) == int(one.settings.hold_ms)
    assert one.tick(2100, 0) == []


def test_somebody_elses_write_after_ours_does_not_hide_that_it_was_carried_out() -> None:
    store = Store()
    one = master(store)
    (write,) = [x for x in one.tick(1600, 0) if isinstance(x, Write)]
    store.revision, store.record = 99, write.record
    store.tick(member(2), 1650)
    two = member(2)
    store.run(two, 1650, [Read()])
    store.tick(two, 1660)
    assert store.record.number == write.record.number + 1
    store.run(one, 1700, [Read()])
    assert one.lease_left_ms(1700) == int(one.settings.hold_ms) - 100


def test_a_win_learned_late_holds_no_lease() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    effects = two.tick(4700, 0)
    (write,) = [x for x in effects if isinstance(x, Write)]
    store.revision, store.record = 99, write.record
    assert store.run(two, 9000, [Read()]) == [Won(2)]
    two.began(9100, two.marks.won(2, 0, 0), 0)
    assert not two.may_acknowledge(9100)
    assert two.tick(9150, 5) != []  # a renewal, which tells
    assert two.confirmed == 0


def test_nothing_is_confirmed_below_the_least_number() -> None:
    store = Store()
    one = master(store, min_in_sync=2, in_sync=2)
    assert store.tick(one, 1100, 10) == []
    assert one.shortage == "in-sync replicas not enough: 1 of 2"
    two = slave(store, 2, one, 1200, end=10)
    assert one.shortage == ""
    assert one.confirmed == 10
    assert one.report(1300, 2, "c2-1200", 30, 20) == []  # beyond our end: no report at all
    assert two.role is Role.SLAVE


def test_a_slave_that_reports_and_never_catches_up_leaves_the_set() -> None:
    store = Store()
    one = master(store, lag_ms=2000)
    slave(store, 2, one, 1000)
    for now in range(1100, 3100, 100):
        one.report(now, 2, "c2-1000", (now - 1000) // 10, now)
        store.tick(one, now, now)
        assert store.record.members == (1, 2)
    one.report(3100, 2, "c2-1000", 250, 3100)
    store.tick(one, 3101, 3100)
    assert store.record.members == (1,)


def test_a_planned_stop_waits_for_the_set_and_gives_the_office_back() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    store.tick(one, 1200, 50)
    one.released(1210)
    assert store.tick(one, 1300, 50) == []
    one.report(1310, 2, "c2-1100", 50, 50)
    assert one.may_acknowledge(1390)
    assert store.tick(one, 1400, 50) == [Deposed("the office was given back")]
    assert not one.may_acknowledge(1400)
    assert store.tick(two, 1450, 50) == []  # it reads that nobody is master
    assert store.tick(two, 1460, 50) == [Leave(), Won(2)]
    assert store.record.members == (2,)
    assert store.tick(one, 9000, 50) == [Follow(2, place(2), 2)]
    assert store.tick(one, 99_000, 50) == []  # it is about to end: it never stands


def test_the_lease_is_over_from_the_moment_a_release_is_sent() -> None:
    store = Store()
    one = master(store)
    one.released(1010)
    assert any(isinstance(x, Write) for x in one.tick(1100, 0))
    assert one.lease_left_ms(1100) == 0


def test_an_ordered_election() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    three = slave(store, 3, one, 1150)
    store.order(3)
    assert store.record.ordered == 3
    store.run(one, 1200, [Read()])
    assert store.tick(one, 1300) == [Deposed("the office was given back")]
    store.run(two, 1350, [Read()])
    assert store.tick(two, 1360) == []  # it is not for 2
    store.run(three, 1370, [Read()])
    assert store.tick(three, 1380) == [Leave(), Won(2)]
    assert store.record.ordered == 0
    assert store.run(two, 1400, [Read()]) == [Follow(3, place(3), 2)]


def test_an_order_for_one_that_is_gone_is_given_up_after_a_ttl() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    slave(store, 3, one, 1150)
    store.run(two, 1160, [Read()])
    store.order(3)
    store.run(one, 1250, [Read()])
    store.tick(one, 1300)
    store.run(two, 1350, [Read()])
    assert store.tick(two, 4300) == []
    assert Won(2) in store.tick(two, 4400)


@pytest.mark.promise(
    "Groups of brokers", "`broker promote`; only one in step, or losses accepted; a lost record"
)
def test_outside_of_the_set_only_with_losses_accepted() -> None:
    store = Store()
    one = master(store)
    two = member(2)
    store.tick(two, 1100, 0)
    store.tick(two, 1110, 0)
    store.run(two, 1120, [Read()])
    assert store.tick(two, 9000, 0) == []
    assert two.trouble == (
        "no master, and broker 2 is not in step: it waits for one of [1], or for an order to elect it, losses accepted"
    )
    with pytest.raises(AgreementError, match="not in step"):
        store.order(2)
    with pytest.raises(AgreementError, match="no broker with id 9"):
        store.order(9, accept_loss=True)
    store.order(2, accept_loss=True)
    store.run(two, 9100, [Read()])
    assert Won(2) in store.tick(two, 9200, 0)
    assert store.record.lossy_epoch == 2
    assert store.record.members == (2,)
    assert store.run(one, 9300, [Read()])[0] == Deposed("broker 2 is master in epoch 2")


def test_all_have_lost_power_the_one_with_most_is_master() -> None:
    store = Store()
    one = master(store)
    slave(store, 2, one, 1100)
    slave(store, 3, one, 1150)
    marks = one.marks.entries()
    lives = [member(who, clean=False, entries=marks) for who in (1, 2, 3)]
    ends = {1: 70, 2: 90, 3: 80}
    for life in lives[:2]:
        store.run(life, 2000, [Read()])
        store.tick(life, 3100, ends[life.me])  # it enters
        store.tick(life, 3100, ends[life.me])  # and says what it has
    for now in (4000, 9000):
        assert all(Won(2) not in store.tick(life, now, ends[life.me]) for life in lives[:2])
    assert lives[1].trouble == "no master, and broker 2 has lost power: it waits for one of [3]"
    store.run(lives[2], 9100, [Read()])
    store.tick(lives[2], 9200, 80)
    store.tick(lives[2], 9200, 80)
    won = [
        life.me
        for life in lives
        for _ in range(2)
        if Won(2) in store.tick(life, 15_000, ends[life.me])
    ]
    assert won == [2]


def test_a_member_without_marks_has_lost_its_disk() -> None:
    store = Store()
    one = master(store)
    slave(store, 2, one, 1100)
    two = member(2)  # clean, as an empty store is
    store.run(two, 1200, [Read()])
    assert not two.settled
    store.tick(two, 1300, 0)
    store.tick(two, 1300, 0)
    assert store.record.doubtful == {2: (0, 0)}


def test_a_store_of_a_group_begins_no_second_record() -> None:
    store = Store()
    table = member(1, entries=[(1, 0), (4, 70)])
    store.run(table, 0, [Read()])
    assert store.tick(table, 100, 90) == []
    assert "controllerAddr" in table.trouble
    store.record = lost_record("", epoch=4, seen=table.known_number, best=1, highest=3)
    store.revision = 1
    store.run(table, 200, [Read()])
    store.tick(table, 300, 90)  # it enters
    assert store.tick(table, 400, 90) == [Won(4 + NEW_EPOCHS + 1)]
    assert store.record.lossy_epoch == store.record.epoch


def test_a_record_that_goes_back_is_not_believed() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    assert two.saw(5000, 5, GroupRecord(number=1), 4900) == []
    assert "restore it" in two.trouble
    assert two.record.number > 1
    assert two.saw(5000, 0, None, 1000) == []  # a late read of before
    store.run(two, 5100, [Read()])
    assert two.trouble == ""


def test_an_address_that_changes_comes_into_the_record() -> None:
    store = Store()
    one = master(store)
    slave(store, 2, one, 1100)
    again = member(2, entries=one.marks.entries())
    again.place = place(22)
    store.run(again, 1200, [Read()])
    store.tick(again, 1210)
    assert store.record.places[2] == place(22)
    store.run(one, 1300, [Read()])
    three = slave(store, 3, one, 1400)
    assert three.refollow() == [Follow(1, place(1), 1)]


def test_a_welcome_counts_when_it_is_of_the_newest_epoch() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    old = EpochMarks.of([(1, 0)])
    assert not isinstance(two.welcome(1, old, 10, two.marks, 0, 0), Refuse)
    assert isinstance(two.welcome(2, old, 10, two.marks, 0, 0), Refuse)  # its mark is not there
    ahead = EpochMarks.of([(1, 0), (2, 5)])
    assert isinstance(two.welcome(1, old, 10, ahead, 9, 0), Refuse)
    two.tick(9000, 0)  # it stands
    assert isinstance(two.welcome(1, old, 10, two.marks, 0, 0), Refuse)


def test_deposed_before_it_began() -> None:
    store = Store()
    one = master(store)
    two = slave(store, 2, one, 1100)
    store.run(two, 1100, [Read()])
    assert Won(2) in store.tick(two, 4700)
    store.revision, store.record = (
        99,
        GroupRecord(
            number=store.record.number + 1,
            epoch=3,
            master=1,
            members=(1,),
            places=store.record.places,
        ),
    )
    assert store.run(two, 4800, [Read()]) == [
        Deposed("broker 1 is master in epoch 3"),
        Follow(1, place(1), 3),
    ]
    assert two.began(4900, two.marks.won(2, 0, 0), 0) == []
    assert not two.may_acknowledge(4900)


# A member is its store.


def store_of(who: int, last: str, entries=(), **own) -> TakeOver:
    """The life that follows the opening `last` of the store that `member` has begun with, or another store."""
    own = {"name": f"store-{who}", "group": "group-1", "empty": not entries} | own
    own |= {"opening": f"{last}+{next(LIVES)}", "before": (last,)}
    marks = EpochMarks.of(entries)
    return TakeOver(who, place(who), marks, TakeOverSettings(), OwnStore(**own))


def stopped(store: Store, end: int = 80) -> TakeOver:
    """A group of 1 alone: it has stopped in order, and its log ended at `end`."""
    one = master(store, end=end)
    store.tick(one, 1600, end)
    one.released(1700)
    store.tick(one, 1800, end)
    assert store.record.master == 0 and store.record.members == (1,) and store.record.floor == end
    return one


def stand(store: Store, table: TakeOver, now: int, end: int) -> bool:
    """Time passes: is it elected?"""
    return any(isinstance(x, Won) for n in range(60) for x in store.tick(table, now + 200 * n, end))


@pytest.mark.promise(
    "Groups of brokers", "a disk replaced, a store restored, copied, damaged, an id given twice"
)
@pytest.mark.parametrize(
    ("changes", "end", "why"),
    [
        ({}, 80, ""),
        ({"name": "new", "group": "", "entries": ()}, 0, "its disk was replaced"),
        ({"name": "other"}, 80, "another store stood for broker 1"),
        ({"last": "older"}, 80, "an older state of itself"),
        ({"fault": "damage has cut the log"}, 80, "damage has cut the log"),
        ({}, 60, "the log ends at 60, and had been confirmed up to 80"),
    ],
    ids=["itself", "empty", "other", "older", "damaged", "shorter"],
)
def test_a_store_that_is_not_what_the_record_knows_never_stands_alone(changes, end, why) -> None:
    store = Store()
    one = stopped(store)
    changes = {"entries": one.marks.entries()} | changes
    again = store_of(**{"who": 1, "last": store.record.stores[1].opening} | changes)
    assert stand(store, again, 20_000, end) is (why == "")
    if why:
        assert why in store.record.unfit[1] and why in again.trouble
        with pytest.raises(AgreementError, match="may lack acknowledged messages"):
            store.order(1)
        store.order(1, accept_loss=True)
        assert stand(store, again, 40_000, end)
        assert store.record.unfit == {} and store.record.lossy_epoch == 2


def test_a_doubtful_store_is_in_the_set_again_when_it_has_all() -> None:
    store = Store()
    one = master(store, end=80)
    slave(store, 2, one, 1100, 80)
    again = store_of(2, "", name="new", group="")
    for _ in range(3):
        store.tick(again, 1200, 0)
    assert store.record.unfit.keys() == {2}
    assert Drop(2) in store.run(one, 1250, [Read()])
    reports(store, one, again, 1300, 80)
    assert store.record.unfit == {} == store.record.doubtful and store.record.members == (1, 2)


def alone_since_80(store: Store, later: int) -> tuple[TakeOver, TakeOver]:
    """1 and 2 had 80 when 2 left the set; then 1 wrote up to `later` alone, and lost power under ASYNC_FLUSH."""
    one = master(store, end=80)
    two = slave(store, 2, one, 1100, 80)
    one.report(1150, 2, "c2-1100", 80, 80)
    for now in (1700, 2300, 2900, 3500):
        store.tick(one, now, 80)
    for now in (4100, 4700):
        store.tick(one, now, later)
    assert store.record.members == (1,) and one.confirmed == store.record.floor == later
    store.run(two, 4750, [Read()])
    return one, two


def back(store: Store, table: TakeOver) -> TakeOver:
    """The machine of that member has lost power."""
    me = table.me
    last, entries = store.record.stores[me].opening, table.marks.entries()
    return store_of(me, last, entries=entries, clean=False)


def winners(store: Store, ends: dict[TakeOver, int], now: int) -> list[int]:
    """Time passes for all of them: who is elected?"""
    return [
        table.me
        for n in range(80)
        for table, end in ends.items()
        for effect in store.tick(table, now + 200 * n + table.me, end)
        if isinstance(effect, Won)
    ]


@pytest.mark.promise("Groups of brokers", "one that is alone in step loses power under ASYNC_FLUSH")
def test_one_alone_that_lacks_what_two_had_leaves_the_office_to_the_one_that_has_it() -> None:
    """Whole groups, seed 301712, and the same with a power cut: it stood, and 2 was cut to 60."""
    store = Store()
    one, two = alone_since_80(store, later=100)
    again = back(store, one)
    assert winners(store, {again: 60}, 20_000) == []
    assert again.trouble == (
        "the broker that was alone in step has lost some of what two had up to 80: brokers [2] are to say what they have, "
        "or an order to elect one, losses accepted (roquette broker promote)"
    )
    assert winners(store, {again: 60, two: 80}, 40_000) == [2]
    assert store.record.lossy_epoch == 0 == two._start and again.role is Role.SLAVE


@pytest.mark.promise("Groups of brokers", "one that is alone in step loses power under ASYNC_FLUSH")
@pytest.mark.parametrize(("end", "shared"), [(80, (1, 80)), (90, (1, 80)), (60, (0, 0))])
def test_one_alone_that_has_what_two_had_waits_for_nobody(end, shared) -> None:
    """What two had is not known where an earlier version has written the record."""
    store = Store()
    one, _ = alone_since_80(store, later=100)
    assert store.record.shared == (1, 80)
    store.record = replace(store.record, shared=shared)
    assert winners(store, {back(store, one): end}, 20_000) == [1]


@pytest.mark.parametrize(("end", "best"), [(70, 2), (50, 1)])
def test_when_all_have_lost_what_two_had_the_one_with_most_is_elected(end, best) -> None:
    store = Store()
    one, two = alone_since_80(store, later=100)
    ends = {back(store, one): 60, back(store, two): end}
    assert winners(store, ends, 20_000) == [best]


def test_who_has_what_two_had_waits_for_nobody_else() -> None:
    """3 is a machine that is gone for good, and was never cleaned away."""
    store = Store()
    one, two = alone_since_80(store, later=100)
    store.record = replace(store.record, places=store.record.places | {3: place(3)})
    again = back(store, one)
    assert winners(store, {again: 60, two: 79}, 20_000) == []
    assert "brokers [3] are to say what they have" in again.trouble
    assert winners(store, {again: 60, two: 80}, 60_000) == [2]


def test_an_epoch_counts_more_than_an_end_for_what_two_had() -> None:
    """2 went on in an epoch of its own, which nobody has confirmed: its log is longer, and another one."""
    store = Store()
    one, two = alone_since_80(store, later=100)
    store.record = replace(store.record, shared=(3, 80), epoch=3)
    one.marks = EpochMarks.of([(1, 0), (3, 40)])
    store.record = replace(store.record, places=store.record.places | {3: place(3)})
    assert winners(store, {back(store, one): 60, two: 500}, 20_000) == []


def test_an_order_ends_the_wait_for_what_two_had() -> None:
    store = Store()
    one, _ = alone_since_80(store, later=100)
    again = back(store, one)
    assert winners(store, {again: 60}, 20_000) == []
    store.order(1, accept_loss=True)
    assert winners(store, {again: 60}, 40_000) == [1]
    assert store.record.lossy_epoch == store.record.epoch and store.record.shared == (1, 60)
    assert winners(store, {back(store, again): 60}, 60_000) == [1], "nothing more is lost"


def test_an_election_that_leaves_one_alone_says_what_two_had() -> None:
    """The master before has told nobody what it confirmed after its last renewal: all that 2 had may be."""
    store = Store()
    one = master(store, end=80)
    two = slave(store, 2, one, 1100, 80)
    elected(store, two, 4300, 90)
    assert store.record.members == (2,) and store.record.shared == (1, 90)
    store.tick(two, 4900, 95)
    assert store.record.floor == 95 and store.record.shared == (1, 90)
    assert winners(store, {back(store, two): 95}, 40_000) == [2], "alone, and elected again"
    assert store.record.shared == (1, 90)


def test_a_store_of_another_group_touches_nothing() -> None:
    store = Store()
    stopped(store)
    before = store.record
    foreign = store_of(2, "", entries=[(1, 0)], group="another")
    assert not stand(store, foreign, 20_000, 50)
    assert store.record == before
    assert "of the group another" in foreign.trouble


def test_an_empty_store_of_another_group_comes_into_a_group_and_begins_none() -> None:
    """Its group's record was lost, and a late write of a first life began another one: those with messages are not here."""
    record = GroupRecord(number=1, group="late")
    store, empty = Store(), store_of(2, "", group="another")
    store.record, store.revision = record, 1
    assert not stand(store, empty, 20_000, 0)
    assert store.record == record and "of the group another" in empty.trouble
    store = Store()
    stopped(store)
    stand(store, empty := store_of(2, "", group="another"), 20_000, 0)
    assert store.record.stores[2] == empty._own.entry


def test_a_late_first_write_counts_nobody_in() -> None:
    """The record was lost; 1 has messages of it, and is down; the disk of 2 was swapped: one of two copies is lost."""
    store, late = Store(), member(1, total=2)
    late.saw(0, 0, None, 0)
    (write,) = [effect for effect in late.tick(100, 0) if isinstance(effect, Write)]
    store.record, store.revision = write.record, 1
    two = member(2, total=2)
    assert not stand(store, two, 20_000, 0)
    assert two.trouble == "the group has not begun: it waits for 1 of 2 brokers"


def test_a_second_life_of_an_id_ends_the_first() -> None:
    store = Store()
    one = master(store, end=80)
    two = slave(store, 2, one, 1100, 80)
    copied = store_of(2, "when it was copied", entries=one.marks.entries())
    store.run(copied, 1200, [Read()])
    store.tick(copied, 1210, 80)
    assert "opened twice" in store.record.unfit[2]
    left, fenced = store.run(two, 1300, [Read()])
    assert left == Leave(), "what it reports would count as the other's"
    assert isinstance(fenced, Fenced) and "a copy of this store" in fenced.why
    assert two.tick(9000, 80) == []
    assert two.refollow() == []


@pytest.mark.promise("Groups of brokers", "one with the id of a running master waits")
def test_a_master_that_runs_is_not_ended_by_a_copy_of_it() -> None:
    store = Store()
    one = master(store, end=80)
    copied = store_of(1, one._own.opening, entries=one.marks.entries())
    for n in range(5):
        store.tick(one, 1600 + 600 * n, 80)  # renews
        store.tick(copied, 1650 + 600 * n, 80)
    assert "is running as master at h1:1" in copied.trouble
    assert one.may_acknowledge(4100)


@pytest.mark.parametrize("renewed", [True, False])
def test_a_copy_that_saw_its_original_renew_leaves_the_office_to_who_has_all(renewed) -> None:
    """Seed 10880 of the group: the controller went away, and the original acknowledged until its lease was over."""
    store = Store()
    one = master(store, end=80)
    two = slave(store, 2, one, 1100, 80)
    store.tick(one, 1600, 80)
    copied = store_of(1, one._own.opening, entries=one.marks.entries())
    store.tick(copied, 1650, 80)
    if renewed:
        store.tick(one, 2200, 80)
        store.tick(copied, 2250, 80)
        one.hello(2300, 2, "c")
        assert Confirmed(100) in one.report(2300, 2, "c", 100, 100)
        assert store.record.floor == 80, "nothing in the record says that the copy lacks something"
    won = stand(store, copied, 20_000, 80)
    assert won is not renewed, "a store that nobody has used since is as good as any"
    if renewed:
        assert store.record.doubtful == {1: (1, 80)}
        assert stand(store, two, 40_000, 100)


def test_an_old_record_is_not_believed_when_a_member_knows_better() -> None:
    """1 was long out of step and is alone in the set of the record that was put back."""
    store = Store()
    one = stopped(store, end=20)
    old = store.record
    marks = [*one.marks.entries(), (2, 20)]
    one = store_of(1, old.stores[1].opening, entries=one.marks.entries(), seen=old.number)
    two = store_of(2, "", entries=marks, seen=old.number + 50)
    for now in range(20_000, 30_000, 100):
        effects = [*store.tick(two, now, 100), *store.tick(one, now + 50, 20)]
        if Won in map(type, effects):
            break
    assert two.role is Role.MASTER and one.role is not Role.MASTER
    assert store.record.epoch > 2 + NEW_EPOCHS


def test_whom_an_old_record_does_not_know_is_waited_for_and_keeps_what_it_has() -> None:
    """2 came after the backup; 1 followed it once, and remembers its id."""
    store = Store()
    one = stopped(store, end=20)
    old = store.record
    marks = [*one.marks.entries(), (2, 20)]
    opening = old.stores[1].opening
    one = store_of(1, opening, entries=one.marks.entries(), seen=old.number + 50, known=(1, 2))
    for now in range(20_000, 30_000, 100):
        assert Won not in map(type, store.tick(one, now, 20))
    assert "brokers [2] are to say what they have, or an order to elect one" in one.trouble
    two = store_of(2, "", entries=marks, seen=old.number + 60)
    for now in range(30_000, 40_000, 100):
        store.tick(two, now, 100)
        store.tick(one, now + 50, 20)
    assert two.role is Role.MASTER and one.role is Role.SLAVE


@pytest.mark.parametrize(("set_back", "why"), [(True, ""), (False, "an older state of itself")])
def test_an_old_record_says_nothing_of_openings(set_back, why) -> None:
    """Others have entered it already, so its number is above what this store saw; it knows an opening of before."""
    own = OwnStore(name="s", opening="4", before=("3",), seen=20)
    stores = {1: Life("s", "2")}
    found = GroupRecord(number=24, epoch=1, members=(1,), stores=stores, set_back=set_back)
    told = fault_of(own, found, 1, EpochMarks.of([(1, 0)]), 80)
    assert why in told and bool(why) is bool(told)


def test_who_enters_while_an_old_record_asks_is_asked_too() -> None:
    """2 came after the backup; nobody else remembers it."""
    store = Store()
    one = stopped(store, end=20)
    old = store.record
    marks = [*one.marks.entries(), (2, 20)]
    one = store_of(1, old.stores[1].opening, entries=one.marks.entries(), seen=old.number + 50)
    two = store_of(2, "", entries=marks, seen=old.number + 60)
    for now in (20_000, 20_100, 20_200):
        store.tick(one, now, 20)
    assert store.record.set_back and store.record.doubtful == {1: (1, 20)}
    for now in range(20_300, 30_000, 100):
        store.tick(two, now, 100)
        store.tick(one, now + 50, 20)
    assert two.role is Role.MASTER and one.role is Role.SLAVE


def test_who_was_elected_and_wrote_nothing_has_no_more_than_others() -> None:
    """The record was set back: 1 is elected by it and acknowledges, then 2 is there, whose epoch is higher and empty."""
    store = Store()
    one = stopped(store)
    old, before = store.record, one.marks.entries()
    one = store_of(1, old.stores[1].opening, entries=[*before, (2, 80)], seen=old.number)
    two = store_of(2, "", entries=[*before, (9, 80)], seen=old.number + 50)
    for now in range(20_000, 30_000, 100):
        effects = [*store.tick(two, now, 80), *store.tick(one, now + 50, 120)]
        if Won in map(type, effects):
            break
    assert one.role is Role.MASTER and two.role is not Role.MASTER
    store.run(two, 30_000, [Read()])
    theirs = one.marks.won(one.epoch, 0, 120)
    assert two.welcome(one.epoch, theirs, 120, two.marks, 80, 0) == Go(80, theirs.cut(81))


def test_an_order_begins_an_epoch_above_all_that_have_entered() -> None:
    """The record is one of before the group began: its epoch is 0, and 1 has fewer epochs than 2. Ordered with a low
    one, the other refused it for ever."""
    store = Store()
    one = store_of(1, "", entries=[(1, 0)])
    two = store_of(2, "", entries=[(1, 0), (9, 80)], known=(1, 2, 3))
    one.settings = two.settings = TakeOverSettings(total=2)
    begins = GroupRecord(number=3, group="group-1", places={1: one.place, 2: two.place})
    store.revision, store.record = 7, begins
    for now in range(0, 500, 100):
        store.tick(one, now, 80)
        store.tick(two, now + 50, 100)
    assert "order one of them" in two.trouble and store.record.epoch == 0
    assert free_id(begins) == 3 and free_id(store.record) == 4
    store.order(1, accept_loss=True)
    assert stand(store, one, 500, 80)
    assert one.epoch > 9
    for now in (13_000, 13_100):
        store.tick(two, now, 100)
    assert not isinstance(
        two.welcome(one.epoch, one.marks.won(one.epoch, 0, 80), 80, two.marks, 100, 0), Refuse
    )
    assert not two.trouble


def test_a_log_with_a_newer_epoch_than_the_record_says_why_it_follows_nobody() -> None:
    """A member of before has dropped what the record knew of epochs."""
    store = Store()
    one = master(store, end=80)
    two = store_of(2, "", entries=[(1, 0), (9, 80)])
    for now in (1100, 1200):
        store.tick(two, now, 100)
    assert store.record.set_back and not two.trouble  # a matter of seconds
    store.record = replace(
        store.record, set_back=False, newest_epoch=0, number=store.record.number + 1
    )
    store.revision += 7
    store.run(two, 1300, [Read()])
    assert two.welcome(1, one.marks, 80, two.marks, 100, 0) == Refuse(
        "the master is of epoch 1, the newest known is 9"
    )
    assert two.troubles["record"] == (
        "this log has epoch 9, and the record knows none above 1: it is an old one, and broker 1 is not followed. To keep this "
        "log order broker 2 to be elected, losses accepted (roquette broker promote); to keep the master's, move the store away "
        "and start this broker empty"
    )
    store.run(one, 1300, [Read()])
    store.order(2, accept_loss=True)
    store.tick(one, 1400, 80)
    assert stand(store, two, 1500, 100)
    assert two.epoch > 9 and not two.trouble


def test_two_that_are_elected_from_one_state_of_a_record_have_two_epochs(monkeypatch) -> None:
    """The record was set back in between: an epoch in common would say that their logs are the same."""
    monkeypatch.setattr(record, "EPOCH_STEP", EPOCH_STEP)
    store, epochs = Store(), []
    before = (store.revision, store.record)
    for _ in range(2):
        store.revision, store.record = before
        table = member(1)
        for now in range(0, 600, 100):
            store.tick(table, now)
        epochs.append(table.epoch)
    assert {epoch // EPOCH_STEP for epoch in epochs} == {1} and epochs[0] != epochs[1]
    again = next_epoch(epochs[0], "x"), next_epoch(epochs[0], "y")
    assert {epoch // EPOCH_STEP for epoch in again} == {2} and again[0] != again[1]


@pytest.mark.promise(
    "Groups of brokers",
    "the group begins when all are there and empty; a lost record is begun by order only",
)
def test_a_group_begins_when_all_are_there_and_none_has_a_history() -> None:
    store = Store()
    three = [member(who, total=3) for who in (1, 2, 3)]
    for now in range(0, 9000, 100):
        assert not any(store.tick(table, now) for table in three[:2])
    assert three[0].trouble == "the group has not begun: it waits for 1 of 3 brokers"
    assert store.record.epoch == 0
    won = [x for now in range(9000, 9900, 100) for table in three for x in store.tick(table, now)]
    assert Won(1) in won and len(store.record.members) == 1


def test_an_order_begins_a_group_that_waits_and_ends_its_trouble() -> None:
    store = Store()
    one = member(1, total=3)
    for now in range(0, 500, 100):
        store.tick(one, now)
    assert one.troubles == {"office": "the group has not begun: it waits for 2 of 3 brokers"}
    store.order(1, accept_loss=True)
    won = [effect for now in range(500, 9000, 100) for effect in store.tick(one, now)]
    assert Won(1) in won
    assert one.trouble == ""


def test_what_a_later_version_says_is_kept() -> None:
    data = GroupRecord(number=3).encode().replace(b"{", b'{"newer":{"x":[1]},', 1)
    again = decode_record(decode_record(data).encode())
    assert again.number == 3 and bytes(again.other["newer"]) == b'{"x":[1]}'


@pytest.mark.parametrize(
    ("entries", "doubtful"), [([(3, 0)], {}), ([(2, 0)], {2: (2, 90)}), ([], {2: (0, 0)})]
)
def test_a_member_of_yesterday_enters_once_and_is_doubtful_where_its_epochs_are_older(
    entries, doubtful
) -> None:
    """Yesterday's master drops the fields that it does not know, with each renewal."""
    store = Store()
    places = {1: place(1), 2: place(2)}
    old = GroupRecord(number=5, epoch=3, master=1, members=(1, 2), beat=7, places=places)
    store.revision, store.record = 5, old
    two = store_of(2, "", entries=entries, group="")
    end = 90 if entries else 0
    writes = []
    for number in range(1, 12):
        effects = two.tick(1000 + 100 * number, end)
        writes += [x for x in effects if isinstance(x, Write)]
        store.run(two, 1000 + 100 * number, effects)
        record = store.record
        store.record = replace(
            old, number=record.number + 1, beat=7 + number, doubtful=record.doubtful
        )
        store.revision += 7
        store.run(two, 1050 + 100 * number, [Read()])
    assert two.settled and two.role is Role.SLAVE
    assert store.record.doubtful == doubtful
    assert len(writes) <= 2  # it enters, and says what it has
