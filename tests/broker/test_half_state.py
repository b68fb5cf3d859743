"""Which half messages have ended: against a set, and in bounded memory."""

import random

from roquette.broker.transactions.half_messages import MAX_COPIES, MAX_MARKS, PAGE_BITS, HalfState


def test_it_agrees_with_a_set():
    rng = random.Random(7)
    for _ in range(10):
        state, ended, base = HalfState(), set(), rng.randrange(3 * PAGE_BITS)
        state.load(base, 0)
        limit = base + rng.randrange(1, 3 * PAGE_BITS)
        for _ in range(200):
            first = rng.randrange(max(base - 10, 0), limit)
            for offset in range(first, min(first + rng.choice((1, 1, 50, 5000)), limit)):
                state.end(offset)
                ended.add(offset)
            probe = rng.randrange(max(base - 10, 0), limit)
            assert state.ended(probe) == (probe < base or probe in ended)
            wanted = next((i for i in range(max(probe, base), limit) if i not in ended), limit)
            assert state.next_open(probe, limit) == wanted
            assert state.open_before(limit) == sum(i not in ended for i in range(base, limit))
        state.advance(limit)
        assert state.base == next((i for i in range(base, limit) if i not in ended), limit)
        assert state.open_before(limit) == sum(i not in ended for i in range(base, limit))
        assert state.pages <= (limit - state.base) // PAGE_BITS + 2


def test_ops_are_done_with_when_all_half_messages_of_their_time_have_ended():
    state = HalfState()
    state.load(0, 0)
    state.mark(10, 4)
    state.mark(20, 9)
    for offset in (*range(9), *range(10, 20)):
        state.end(offset)
    state.advance(20)
    assert (state.base, state.op_offset) == (9, 0)
    state.end(9)
    state.advance(20)
    assert (state.base, state.op_offset) == (20, 9)


def test_marks_and_copies_are_bounded():
    state = HalfState()
    state.load(0, 0)
    for number in range(1000):
        state.mark(number * 3, number)
    for number in range(MAX_COPIES + 10):
        state.copied(number * 100, number * 100 + 1)
    assert len(state._marks) <= MAX_MARKS and state._marks[0] == (0, 0)
    assert state.newest(0) == 0 and state.newest(1000) == 1001


def test_a_copy_of_a_copy_is_found():
    state = HalfState()
    state.copied(5, 50)
    state.copied(50, 500)
    assert [state.newest(place) for place in (5, 50, 500, 7)] == [500, 500, 500, 7]
