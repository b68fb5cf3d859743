"""When files go, and when a full disk stops writes."""

import datetime

import pytest
from tests.store.crash_model import BORN, HOST, START_MS, small_config

from roquette.errors import MessageIllegal
from roquette.store.message_store import MessageStore
from roquette.store.retention import DiskState, Urgency, count_expired, urgency
from roquette.testing.faulty_files import FaultyFiles

HOUR_MS = 3_600_000


def at_hour(hour: int) -> int:
    """A moment of local time, as deleteWhen means it."""
    return int(datetime.datetime(2026, 5, 4, hour, 30).timestamp() * 1000)


def disk(used_percent: float) -> DiskState:
    return DiskState("/store", 10_000, int(10_000 - used_percent * 100))


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
    assert urgency(config, at_hour(hour), disk(used)) is expected


def test_several_hours_may_be_named() -> None:
    config = small_config(delete_when="4; 16")
    assert [h for h in range(24) if urgency(config, at_hour(h), disk(0))] == [4, 16]


def test_only_files_older_than_kept_go_unless_forced() -> None:
    config = small_config(file_reserved_hours=2)
    now = START_MS
    ended = [now - 5 * HOUR_MS, now - 2 * HOUR_MS, now - 2 * HOUR_MS + 1, now - HOUR_MS]
    assert count_expired(config, now, Urgency.TIME, ended) == 2
    assert count_expired(config, now, Urgency.SPACE, ended) == 2
    assert count_expired(config, now, Urgency.FORCED, ended) == 4
    assert count_expired(config, now, None, ended) == 0


def test_a_batch_bounds_what_goes_at_once() -> None:
    config = small_config(file_reserved_hours=0, delete_batch=3)
    assert count_expired(config, START_MS, Urgency.TIME, [0] * 20) == 3


def test_a_full_disk_refuses_writes_and_says_what_to_do() -> None:
    config = small_config()
    assert disk(89.9).refusal(config) is None
    words = disk(90.0).refusal(config)
    assert words is not None
    for part in ("/store", "90.0 %", "diskSpaceWarningLevelRatio", "fileReservedTime"):
        assert part in words


def test_an_unknown_disk_size_is_not_full() -> None:
    assert DiskState("/store", 0, 0).refusal(small_config()) is None


def test_settings_changed_while_open_take_effect() -> None:
    store = MessageStore(small_config(delete_when=""), FaultyFiles(), HOST)
    store.open(START_MS)
    for _ in range(200):
        store.append("T", 0, 0, 0, START_MS, BORN, 0, "", 0, b"x" * 100, START_MS)
    store.flush_all()
    later = START_MS + 100 * HOUR_MS
    assert store.plan_retention(later) is None

    hours = ";".join(f"{hour:02d}" for hour in range(24))
    store.reconfigure(small_config(delete_when=hours, max_message_size=50))

    assert store.plan_retention(later) is not None
    with pytest.raises(MessageIllegal, match="maxMessageSize 50"):
        store.append("T", 0, 0, 0, START_MS, BORN, 0, "", 0, b"x" * 51, START_MS)
