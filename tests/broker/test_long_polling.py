"""The hold table: who is woken by what, and what it forgets."""

import random

from roquette.broker.pulling.hold_table import HeldPull, HoldTable


def pull(offset=5, codes=None, deadline=100, topic="T", queue_id=0):
    return HeldPull(topic, queue_id, offset, codes, deadline)


def test_an_arrival_wakes_the_pulls_of_its_queue_that_want_it():
    table = HoldTable(10)
    every, tagged, other = pull(), pull(codes=frozenset({1})), pull(queue_id=1)
    for held in (every, tagged, other):
        table.hold(held)

    assert table.on_arrival("T", 0, 5, 2) == [every]
    assert table.on_arrival("T", 0, 6, 1) == [tagged]
    assert table.on_arrival("T", 0, 7, 1) == []
    assert len(table) == 1


def test_an_arrival_before_the_wanted_offset_wakes_nobody():
    table = HoldTable(10)
    table.hold(pull(offset=5))

    assert table.on_arrival("T", 0, 4, 0) == []


def test_deadlines_expire_in_order_and_once():
    table = HoldTable(10)
    late, early, woken = pull(deadline=200), pull(deadline=100), pull(deadline=50, queue_id=3)
    for held in (late, early, woken):
        table.hold(held)
    table.on_arrival("T", 3, 5, 0)

    assert table.expire(99) == []
    assert table.expire(200) == [early, late]
    assert table.expire(999) == []
    assert len(table) == 0


def test_a_full_table_refuses():
    table = HoldTable(1)

    assert table.hold(pull()) is True
    assert table.hold(pull()) is False


def test_pulls_left_behind_are_found():
    table = HoldTable(10)
    behind, level = pull(codes=frozenset({1})), pull(offset=9, queue_id=1)
    table.hold(behind)
    table.hold(level)

    assert table.behind(lambda topic, queue_id: 9) == [behind]
    assert table.drain() == [level]
    assert len(table) == 0


def test_woken_pulls_do_not_pile_up_behind_their_deadlines():
    table = HoldTable(10)
    for _ in range(10_000):
        table.hold(pull(deadline=10**9))
        table.on_arrival("T", 0, 5, 0)

    assert len(table._deadlines) < 2_000


def test_against_a_list():
    rng = random.Random(1)
    table, model = HoldTable(50), []
    for step in range(5_000):
        kind = rng.randrange(3)
        if kind == 0:
            codes = rng.choice([None, frozenset({1}), frozenset({2})])
            held = pull(rng.randrange(5), codes, step + rng.randrange(60), "T", rng.randrange(3))
            assert table.hold(held) is (len(model) < 50)
            if len(model) < 50:
                model.append(held)
        elif kind == 1:
            queue_id, offset, code = rng.randrange(3), rng.randrange(5), rng.randrange(1, 3)
            due = table.on_arrival("T", queue_id, offset, code)
            expected = [
                h
                for h in model
                if h.queue_id == queue_id
                and offset >= h.queue_offset
                and (h.codes is None or code in h.codes)
            ]
            assert due == expected
            model = [h for h in model if h not in due]
        else:
            due = table.expire(step)
            assert sorted(map(id, due)) == sorted(id(h) for h in model if h.deadline_ms <= step)
            model = [h for h in model if h.deadline_ms > step]
        assert len(table) == len(model)
