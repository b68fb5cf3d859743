"""Marks of epochs: where two logs part, and the file."""

import contextlib

import pytest

from roquette.base.files import OsFiles
from roquette.errors import StoreError
from roquette.replication.epochs import (
    LIMIT,
    BeginAnew,
    Cut,
    EpochMarks,
    Go,
    Refuse,
    decode_epochs,
    join,
    load_epochs,
    save_epochs,
)

# As in the documentation of Apache's CheckpointFile.
APACHE = b"2\n773307083\n7-7000\n8-8000\n"


def marks(*entries: tuple[int, int]) -> EpochMarks:
    return EpochMarks.of(entries)


@pytest.mark.parametrize(
    ("mine", "end", "theirs", "their_end", "point"),
    [
        ([(1, 0)], 50, [(1, 0)], 80, 50),
        ([(1, 0)], 80, [(1, 0)], 50, 50),
        (
            [(1, 0)],
            80,
            [(1, 0), (2, 60)],
            90,
            60,
        ),  # we have unacknowledged bytes of 1 beyond its end
        ([(1, 0), (3, 60)], 70, [(1, 0), (2, 60)], 90, 60),  # an epoch of ours that nobody had
        ([(1, 0), (2, 60)], 70, [(1, 0), (2, 60), (3, 60)], 90, 60),
        ([(1, 0), (2, 60), (4, 65)], 70, [(1, 0), (2, 60), (3, 80)], 90, 65),
        ([(1, 0)], 10, [(2, 0)], 10, None),
        ([(1, 0), (2, 10)], 40, [(2, 30)], 90, 40),  # its log begins at 30
        ([(1, 0), (2, 10)], 20, [(2, 30)], 90, None),  # and ours ends before
        ([(2, 30)], 40, [(1, 0), (2, 10)], 90, 40),
        ([], 40, [(1, 0)], 90, None),
    ],
)
def test_the_common_point(mine, end, theirs, their_end, point) -> None:
    assert marks(*mine).common(end, marks(*theirs), their_end) == point
    assert marks(*theirs).common(their_end, marks(*mine), end) == point


def test_stretches() -> None:
    some = marks((1, 10), (2, 60), (3, 60), (4, 90))
    assert [some.at(x) and some.at(x).epoch for x in (9, 10, 59, 60, 89, 90, 200)] == [
        None,
        1,
        1,
        3,
        3,
        4,
        4,
    ]
    assert [some.written(x) for x in (0, 10, 11, 60, 61, 90, 91)] == [0, 1, 1, 1, 3, 3, 4]
    assert some.cut(60) == marks((1, 10))
    assert some.without_beyond(60) == marks((1, 10), (2, 60), (3, 60))
    assert some.seen_from(70) == marks((3, 70), (4, 90))
    assert some.seen_from(60) == marks((1, 60), (2, 60), (3, 60), (4, 90))
    assert some.seen_from(10) == some
    assert some.seen_from(0) == some
    assert some.last_epoch == 4
    assert some.marked(4, 90) is some
    assert some.marked(4, 95) is some  # of a master whose log begins at 95
    for wrong in ((0, 95), (5, 80)):
        with pytest.raises(StoreError):
            some.marked(*wrong)


def test_the_first_mastership_covers_what_the_log_has() -> None:
    assert marks().won(1, 20, 70) == marks((1, 20))
    assert marks((1, 20)).won(2, 20, 70) == marks((1, 20), (2, 70))


def test_many_elections_without_a_message_do_not_pile_up() -> None:
    assert LIMIT >= 1_000
    some = marks((1, 0), *((epoch, 5) for epoch in range(2, LIMIT)))
    for epoch in range(LIMIT, LIMIT + 4):  # up to the limit, and beyond it
        some = some.marked(epoch, 5)
        assert len(some.marks) <= LIMIT
        assert some.marks[0] == (1, 0)
        assert some.last_epoch == epoch
    assert len(some.marks) < 10


MASTER = marks((1, 0), (3, 50))


@pytest.mark.parametrize(
    ("mine", "begin", "end", "kind", "at"),
    [
        ([], 0, 0, Go, 0),
        ([(1, 0)], 0, 40, Go, 40),
        ([(1, 0)], 0, 60, Cut, 50),
        ([(1, 0), (2, 45)], 0, 60, Cut, 45),
        ([(1, 0), (3, 50)], 0, 70, Go, 70),
        ([(1, 0), (3, 50)], 0, 99, Cut, 80),
        ([], 0, 40, Refuse, None),
        ([(7, 0)], 0, 40, Refuse, None),
        ([(1, 0)], 55, 60, BeginAnew, 0),  # what the logs have in common has expired here
    ],
)
def test_joining(mine, begin, end, kind, at) -> None:
    got = join(MASTER, 80, marks(*mine), end, begin)
    assert isinstance(got, kind)
    if not isinstance(got, Refuse):
        assert got.at == at
        assert got.kept == MASTER.without_beyond(at)


def test_joining_a_master_whose_log_begins_later() -> None:
    master = MASTER.seen_from(60)
    assert join(master, 80, marks(), 0, 0) == BeginAnew(60, marks((3, 60)))
    assert join(master, 80, marks((1, 0)), 40, 0) == BeginAnew(60, marks((3, 60)))
    assert join(master, 80, marks((1, 0), (3, 50)), 55, 0) == BeginAnew(60, marks((3, 60)))
    assert join(master, 80, marks((1, 0), (3, 50)), 70, 0) == Go(70, MASTER)
    assert isinstance(join(master, 80, marks((9, 0)), 40, 0), Refuse)
    assert join(master, 80, marks((1, 0), (2, 40)), 70, 0) == BeginAnew(60, marks((3, 60)))
    assert isinstance(join(marks(), 80, marks(), 0, 0), Refuse)


def test_the_file_is_apaches(tmp_path) -> None:
    path = str(tmp_path / "epochFileCheckpoint")
    files = OsFiles()
    assert load_epochs(files, path) == EpochMarks()
    save_epochs(files, path, marks((7, 7000), (8, 8000)))
    assert files.read_bytes(path) == APACHE
    assert load_epochs(files, path) == marks((7, 7000), (8, 8000))
    assert decode_epochs(b"1\r\n0\r\n5-0\r\n") == marks((5, 0))
    assert decode_epochs(EpochMarks().encode()) == EpochMarks()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"2\n",
        APACHE[:-3],
        APACHE.replace(b"8000", b"8001"),
        APACHE.replace(b"2\n", b"3\n", 1),
        b"1\n0\n7-7-7\n",
        b"1\n0\nseven\n",
        b"2\n0\n7-10\n6-20\n",
        b"2\n0\n7-10\n8-5\n",
        b"1\n0\n7-99999999999999999999\n",
        b"\xff\xfe\n0\n",
    ],
)
def test_a_damaged_file_is_refused_in_words(tmp_path, data) -> None:
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(data)
    with pytest.raises(StoreError, match="epochFileCheckpoint"):
        load_epochs(OsFiles(), str(path))


def test_any_byte_that_changes_is_noticed() -> None:
    whole = marks((1, 0), (2, 123), (30, 4567)).encode()
    for at in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[at] ^= 1 << bit
            with contextlib.suppress(StoreError):
                assert decode_epochs(bytes(data)).encode() == whole
