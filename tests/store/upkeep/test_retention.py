"""When files go, by age, size and want of space, and never for a jump of the clock."""

import datetime
import logging
import os
from pathlib import Path

import pytest
from tests.records import append_message, read_queue
from tests.store.crash_model import BORN, HOST, START_MS, small_config

from roquette.base.files import OsFiles
from roquette.errors import MessageIllegal
from roquette.store.cut import drop_log
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.retention import (
    DiskState,
    DiskUsage,
    LogState,
    SteadyTime,
    Urgency,
    clamped_keys,
    count_expired,
    count_oversize,
    proven_ends,
    refusal,
    urgency,
)
from roquette_testing.faulty_files import FaultyFiles

HOUR_MS = 3_600_000
TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS
KEPT_MS = 72 * HOUR_MS
NO_HOUR = ""
EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
ROOMY = DiskUsage(1000 << 30, 900 << 30)


def at_hour(hour: int) -> int:
    """A moment of local time, as deleteWhen means it."""
    return int(datetime.datetime(2026, 5, 4, hour, 30).timestamp() * 1000)


def disk(used_percent: float, total: int = 10_000, directory: str = "/store") -> DiskState:
    return DiskState(directory, total, int(total - used_percent * total / 100))


@pytest.mark.parametrize(
    ("used", "hour", "expected"),
    [
        (10.0, 3, None),
        (10.0, 4, Urgency.TIME),
        (10.0, 5, None),
        (75.0, 3, None),
        (75.1, 3, Urgency.SPACE),
        (85.1, 3, Urgency.FORCED),
        (85.1, 4, Urgency.FORCED),
    ],
)
def test_files_go_at_the_hour_or_for_want_of_space(
    used: float, hour: int, expected: Urgency | None
) -> None:
    config = small_config(delete_when="04")
    assert urgency(config, at_hour(hour), [disk(used)]) is expected


def test_the_fuller_of_two_disks_decides() -> None:
    config = small_config(delete_when="04")
    for used, expected in ((76.0, Urgency.SPACE), (86.0, Urgency.FORCED)):
        assert urgency(config, at_hour(3), [disk(10), disk(used)]) is expected
        assert urgency(config, at_hour(3), [disk(used), disk(10)]) is expected
    words = refusal(
        config, [disk(20, directory="/log"), disk(91, directory="/root")], LogState(1), 0
    )
    assert words is not None
    assert "/root" in words
    assert "/log" not in words


def test_without_forced_cleaning_unexpired_files_stay() -> None:
    config = small_config(delete_when="04", clean_forcibly_enable=False)
    assert urgency(config, at_hour(3), [disk(99)]) is Urgency.SPACE


def test_on_a_large_disk_free_bytes_count_too() -> None:
    """93 % of 10 TB: 700 GB are free, nothing is refused and nothing unexpired goes."""
    config = small_config(delete_when="04")
    large = disk(93.0, total=10 << 40)
    assert not large.is_full(config)
    assert urgency(config, at_hour(3), [large]) is Urgency.SPACE
    by_ratio = small_config(disk_full_free=0, disk_clean_forcibly_free=0)
    assert large.is_full(by_ratio)
    assert urgency(by_ratio, at_hour(3), [large]) is Urgency.FORCED
    assert disk(93.0, total=200 << 30).is_full(config)  # 14 GB of 200
    assert not disk(89.9, total=20 << 30).is_full(small_config(disk_full_free=0))
    assert not disk(90.0).is_full(config)  # as Apache: above, not at


def test_ratios_are_held_within_apaches_bounds_and_that_is_said() -> None:
    low = small_config(disk_max_used_ratio=1, disk_clean_forcibly_ratio=1, disk_warning_ratio=1)
    assert (low.max_used_percent, low.forcibly_percent, low.warning_percent) == (10, 30, 35)
    high = small_config(disk_max_used_ratio=99, disk_clean_forcibly_ratio=99, disk_warning_ratio=99)
    assert (high.max_used_percent, high.forcibly_percent, high.warning_percent) == (95, 85, 90)
    sentences = clamped_keys(high)
    assert len(sentences) == 3
    assert "diskSpaceWarningLevelRatio=99 acts as 90" in sentences[2]
    assert "diskFullFreeBytes" in sentences[2]
    assert clamped_keys(small_config()) == []


def test_several_hours_may_be_named() -> None:
    config = small_config(delete_when="4; 16")
    assert [h for h in range(24) if urgency(config, at_hour(h), [disk(0)])] == [4, 16]


def test_only_files_older_than_kept_go_unless_forced() -> None:
    config = small_config(file_reserved_hours=2)
    now = START_MS
    ended = [now - 5 * HOUR_MS, now - 2 * HOUR_MS, now - 2 * HOUR_MS + 1, now - HOUR_MS]
    assert count_expired(config, now, Urgency.TIME, ended) == 2
    assert count_expired(config, now, Urgency.SPACE, ended) == 2
    assert count_expired(config, now, Urgency.FORCED, ended) == 4
    assert count_expired(config, now, None, ended) == 0


def test_a_batch_bounds_what_goes_at_once() -> None:
    config = small_config(file_reserved_hours=0, delete_batch=3, file_reserved_bytes=1)
    assert count_expired(config, START_MS, Urgency.TIME, [0] * 20) == 3
    assert count_oversize(config, 20, 4096, 19) == 3


def test_files_beyond_the_size_go_and_the_newest_stays() -> None:
    config = small_config(file_reserved_bytes=3 * 4096)
    assert [count_oversize(config, files, 4096, files - 1) for files in (1, 3, 4, 6)] == [
        0,
        0,
        1,
        3,
    ]
    assert count_oversize(small_config(file_reserved_bytes=1), 5, 4096, 4) == 4
    assert count_oversize(small_config(), 5, 4096, 4) == 0


# The words.


def test_a_full_disk_says_where_how_full_by_which_limit_and_what_to_do() -> None:
    config = small_config()
    assert refusal(config, [disk(90.0)], LogState(3), 0) is None
    words = refusal(config, [disk(90.1)], LogState(3, at_hour(5)), at_hour(3))
    assert words is not None
    for part in (
        "/store", "90.1 %", "90 % (diskSpaceWarningLevelRatio)", "diskFullFreeBytes", "fileReservedTime",
        "oldest of 3 commit log files are deleted every 10 s",
    ):  # fmt: skip
        assert part in words


@pytest.mark.parametrize(
    ("changes", "log_state", "part"),
    [
        ({}, LogState(1), "is one file, which is in use: there is nothing to delete"),
        ({"clean_forcibly_enable": False}, LogState(4, at_hour(2)), "The expired ones of 4"),
        (
            {"clean_forcibly_enable": False},
            LogState(4, at_hour(5)),
            "expires at 2026-05-04 05:30:00",
        ),
        ({"clean_forcibly_enable": False}, LogState(4), "None of 4 commit log files"),
        (
            {"disk_full_free": 0},
            LogState(1),
            "refused above 90 % (diskSpaceWarningLevelRatio). The",
        ),
    ],
)
def test_the_words_say_what_will_be_deleted(changes, log_state, part) -> None:
    words = refusal(small_config(**changes), [disk(95)], log_state, at_hour(3))
    assert words is not None
    assert part in words


def test_an_unknown_disk_size_is_not_full() -> None:
    assert refusal(small_config(), [DiskState("/store", 0, 0)], LogState(1), 0) is None


# Time that a clock cannot fake.


def test_ends_are_believed_as_far_as_the_log_proves_them() -> None:
    day = 24 * HOUR_MS
    newest = START_MS
    steady = [newest - 5 * day, newest - 3 * day, newest - day]
    assert proven_ends(steady, newest, KEPT_MS) == steady
    assert proven_ends([], newest, KEPT_MS) == []
    # The clock went back: no file ended after the one behind it.
    assert proven_ends([newest + 9 * day, newest - day], newest, KEPT_MS) == [newest - day] * 2
    # Idle for 30 days: what lies before counts from where messages go on.
    idle = [newest - 32 * day, newest - 31 * day, newest - day]
    assert proven_ends(idle, newest, KEPT_MS) == [newest - 2 * day, newest - day, newest - day]


def test_a_jump_counts_when_it_has_stood_for_as_long_as_files_are_kept() -> None:
    time = SteadyTime()
    assert time.at(START_MS, 0, START_MS, KEPT_MS) == START_MS
    assert time.at(START_MS + HOUR_MS, HOUR_MS, START_MS, KEPT_MS) == START_MS + HOUR_MS
    assert not time.doubts
    jumped = START_MS + TEN_YEARS_MS
    assert time.at(jumped + 2 * HOUR_MS, 2 * HOUR_MS, START_MS, KEPT_MS) == START_MS + 2 * HOUR_MS
    assert time.doubts
    late = 2 * HOUR_MS + KEPT_MS
    assert time.at(jumped + late - 1, late - 1, START_MS, KEPT_MS) == START_MS + late - 1
    assert time.at(jumped + late, late, START_MS, KEPT_MS) == jumped + late
    assert not time.doubts


def test_a_jump_that_is_taken_back_leaves_nothing_behind() -> None:
    time = SteadyTime()
    time.at(START_MS, 0, START_MS, KEPT_MS)
    time.at(START_MS + TEN_YEARS_MS, 1, START_MS, KEPT_MS)
    assert time.at(START_MS + 2, 2, START_MS, KEPT_MS) == START_MS + 2
    assert not time.doubts
    time.at(START_MS + TEN_YEARS_MS, 3, START_MS, KEPT_MS)  # a second one begins anew
    soon = KEPT_MS + 2
    assert time.at(START_MS + TEN_YEARS_MS + soon, soon, START_MS, KEPT_MS) == START_MS + soon


def test_a_broker_that_lay_idle_begins_at_its_newest_record() -> None:
    time = SteadyTime()
    assert time.at(START_MS + KEPT_MS, 0, START_MS, KEPT_MS) == START_MS + KEPT_MS
    long_idle = SteadyTime()
    now = START_MS + 2 * KEPT_MS
    assert long_idle.at(now, 0, START_MS, KEPT_MS) == START_MS
    assert long_idle.doubts
    assert long_idle.at(now + KEPT_MS, KEPT_MS, START_MS, KEPT_MS) == now + KEPT_MS


# A store.


def fill(store: MessageStore, count: int, at: int, step_ms: int = 0) -> int:
    """Append so many messages, about 16 a file; returns the time of the last one."""
    for number in range(count):
        now = at + number * step_ms
        append_message(store, "T", 0, 0, 0, now, BORN, 0, "", 0, b"x" * 100, now)
    store.flush_all()
    return at + (count - 1) * step_ms


def opened(files: FaultyFiles, at: int, **changes: object) -> MessageStore:
    store = MessageStore(small_config(**changes), files, HOST)
    store.open(at)
    return store


def delete(store: MessageStore, now: int, usage=ROOMY, **more) -> int:
    """One pass; returns how many bytes of the log are gone."""
    before = store.min_physical_offset
    plan = store.plan_retention(now, usage, **more)
    if plan is not None:
        plan.run()
    return store.min_physical_offset - before


def test_a_clock_set_ten_years_ahead_deletes_nothing() -> None:
    store = opened(FaultyFiles(), START_MS, delete_when=EVERY_HOUR)
    fill(store, 200, START_MS)
    assert delete(store, START_MS, elapsed_ms=0) == 0
    jumped = START_MS + TEN_YEARS_MS
    assert delete(store, jumped + 1000, elapsed_ms=1000) == 0
    fill(store, 100, jumped + 2000)  # and it goes on under the new time
    assert delete(store, jumped + 3000, elapsed_ms=3000) == 0
    assert delete(store, jumped + KEPT_MS, elapsed_ms=KEPT_MS) == 0
    assert delete(store, jumped + KEPT_MS + 3000, elapsed_ms=KEPT_MS + 3000) > 0


def test_a_restart_under_the_wrong_clock_deletes_nothing() -> None:
    files = FaultyFiles()
    store = opened(files, START_MS, delete_when=EVERY_HOUR)
    last = fill(store, 200, START_MS, step_ms=HOUR_MS)
    jumped = last + TEN_YEARS_MS
    store.close(last)
    store = opened(files, jumped, delete_when=EVERY_HOUR)
    gone = delete(store, jumped, elapsed_ms=50)
    assert gone > 0, "what was old before the jump goes as ever"
    kept = store.max_physical_offset - store.min_physical_offset
    assert kept >= 72 * 200, "72 hours of messages stay"
    assert delete(store, jumped + HOUR_MS, elapsed_ms=HOUR_MS + 50) < 4096 * 2
    fill(store, 50, jumped + HOUR_MS)
    store.close(jumped + HOUR_MS)
    store = opened(
        files, jumped + 2 * HOUR_MS, delete_when=EVERY_HOUR
    )  # the log has both times now
    assert delete(store, jumped + 2 * HOUR_MS, elapsed_ms=50) == 0


def test_want_of_space_deletes_whatever_the_clock_says() -> None:
    store = opened(FaultyFiles(), START_MS)
    fill(store, 200, START_MS)
    delete(store, START_MS, elapsed_ms=0)
    tight = (1000, 140)
    assert delete(store, START_MS + TEN_YEARS_MS, tight, elapsed_ms=1) == 9 * 4096


def test_an_operator_may_delete_after_a_long_rest() -> None:
    store = opened(FaultyFiles(), START_MS)
    fill(store, 200, START_MS)
    later = START_MS + 100 * HOUR_MS
    assert delete(store, later, elapsed_ms=0) == 0
    assert delete(store, later, elapsed_ms=1, manual=True) == 9 * 4096


def test_a_clock_set_back_deletes_nothing_and_files_expire_again_later() -> None:
    store = opened(FaultyFiles(), START_MS, delete_when=EVERY_HOUR)
    fill(store, 100, START_MS)
    back = START_MS - TEN_YEARS_MS
    fill(store, 100, back)
    assert delete(store, back + 1000, elapsed_ms=1000) == 0
    assert delete(store, back + KEPT_MS + 1000, elapsed_ms=KEPT_MS + 1000) > 0


def test_a_log_larger_than_allowed_loses_its_oldest_files_at_any_hour() -> None:
    store = opened(FaultyFiles(), START_MS, file_reserved_bytes=5 * 4096)
    fill(store, 200, START_MS)
    while delete(store, START_MS, elapsed_ms=0):
        pass
    held = store.max_physical_offset - store.min_physical_offset
    assert 4 * 4096 < held <= 5 * 4096
    one = opened(FaultyFiles(), START_MS, file_reserved_bytes=1)
    fill(one, 200, START_MS)
    while delete(one, START_MS, elapsed_ms=0):
        pass
    assert one.max_physical_offset - one.min_physical_offset <= 4096, "the file in use stays"
    assert read_queue(one, "T", 0, one.max_offset("T", 0) - 1, 1, 1, None).count == 1


def test_queue_and_index_files_go_with_the_log() -> None:
    files = FaultyFiles()
    store = opened(files, START_MS, file_reserved_bytes=4096, delete_batch=1000)
    for number in range(400):
        append_message(store, "T", 0, 0, 0, START_MS, BORN, 0, f"KEYS\x01k{number}\x02", 0, b"x" * 100, START_MS,
            keys=f"k{number}",
        )  # fmt: skip
    store.flush_all()
    queues, indexes = len(files.list_dir("/s/consumequeue/T/0")), len(files.list_dir("/s/index"))
    delete(store, START_MS, elapsed_ms=0)
    assert len(files.list_dir("/s/commitlog")) == 1
    assert len(files.list_dir("/s/consumequeue/T/0")) <= 2 < queues
    assert len(files.list_dir("/s/index")) <= 2 < indexes


def test_files_that_could_not_be_deleted_come_again() -> None:
    files = FaultyFiles()
    store = opened(files, START_MS, file_reserved_bytes=5 * 4096)
    fill(store, 200, START_MS)
    plan = store.plan_retention(START_MS, ROOMY)
    assert plan is not None
    files.fail("remove", 3)
    with pytest.raises(OSError, match="Input/output"):
        plan.run()
    again = store.plan_retention(START_MS, ROOMY)
    assert again is not None
    again.run()
    names = files.list_dir("/s/commitlog")
    assert int(names[0]) == store.min_physical_offset


def test_settings_changed_while_open_take_effect(caplog) -> None:
    store = opened(FaultyFiles(), START_MS, delete_when=NO_HOUR)
    fill(store, 200, START_MS)
    later = START_MS + 100 * HOUR_MS
    assert store.plan_retention(later) is None

    logging.getLogger("roquette").propagate = True
    with caplog.at_level("WARNING", "roquette.store"):
        store.reconfigure(
            small_config(delete_when=EVERY_HOUR, max_message_size=50, disk_warning_ratio=99)
        )

    assert "diskSpaceWarningLevelRatio=99 acts as 90" in caplog.text
    assert store.plan_retention(later) is not None
    with pytest.raises(MessageIllegal, match="maxMessageSize 50"):
        append_message(store, "T", 0, 0, 0, START_MS, BORN, 0, "", 0, b"x" * 51, START_MS)


def test_the_space_of_deleted_files_comes_back_at_once(tmp_path) -> None:
    """No map and no descriptor holds what has no name any more."""
    config = small_config(root_dir=str(tmp_path / "s"), file_reserved_bytes=4096, delete_batch=100)
    store = MessageStore(config, OsFiles(), HOST)
    store.open(START_MS)
    fill(store, 300, START_MS)
    for offset in range(0, 300, 7):
        read_queue(store, "T", 0, offset, 32, 1 << 20, None)
    assert delete(store, START_MS) > 10 * 4096
    held = [
        line for line in Path("/proc/self/maps").read_text().splitlines()
        if str(tmp_path) in line and "(deleted)" in line
    ]  # fmt: skip
    links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert held == []
    assert [link for link in links if str(tmp_path) in link and "(deleted)" in link] == []
    store.close(START_MS)


def with_two_set_aside(at: int) -> MessageStore:
    """A replica whose log was set aside two times, in files of 4 KiB; and has one that began anew."""
    files = FaultyFiles()
    for lost in range(2):
        files.now_ms = at + lost * HOUR_MS
        store = opened(files, at, file_reserved_hours=72)
        fill(store, 220, at)
        store.close(at)
        drop_log(files, store.config)
    store = opened(files, at, file_reserved_hours=72)
    fill(store, 60, at)
    return store


def aside(store: MessageStore) -> int:
    store.disk.measure()
    return len(store.disk.kept)


FULL = DiskUsage(1000 << 30, 100 << 30)
FULLER = DiskUsage(1000 << 30, 20 << 30)


def test_what_was_set_aside_goes_first_and_oldest_first_when_the_disk_needs_it() -> None:
    now = at_hour(3)
    store = with_two_set_aside(now)
    first, count = store.min_physical_offset, aside(store)
    old = [one.path for one in store.disk.kept]
    assert count > 20
    assert old == sorted(old, key=lambda path: (".2/" in path, path))

    while (left := aside(store)) > 0:
        assert [one.path for one in store.disk.kept] == old[-left:]
        assert delete(store, now, FULLER) == 0
        assert aside(store) == max(0, left - 10)
    assert store._files.list_dir(store.layout.replaced) == []
    delete(store, now, FULLER)
    assert store.min_physical_offset > first


def test_what_was_set_aside_stays_while_the_disk_has_space_or_until_it_expires() -> None:
    now = at_hour(3)
    store = with_two_set_aside(now)
    count = aside(store)
    assert delete(store, at_hour(4), ROOMY) == 0
    assert delete(store, now + 70 * HOUR_MS, FULL) == 0
    assert delete(store, now + 72 * HOUR_MS, ROOMY, manual=True) > 0
    assert aside(store) == count
    first = store.min_physical_offset
    while delete(store, now + 72 * HOUR_MS, FULL) and store.min_physical_offset == first:
        aside(store)
    assert 0 < aside(store) < count  # that of an hour later


def test_a_hand_that_deletes_what_was_set_aside_disturbs_nobody() -> None:
    store = with_two_set_aside(at_hour(3))
    count = aside(store)
    assert f"bytes in {count} files in /s/replaced" in store.disk.kept_words
    store._files.remove_tree(store.layout.replaced)
    delete(store, at_hour(3), FULLER)
    assert aside(store) == 0
    assert store.disk.kept_words == "no"
