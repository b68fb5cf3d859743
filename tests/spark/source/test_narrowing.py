"""Conditions narrow ranges, and never by a message that meets them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.records import ListReader

from roquette.base.options import Unfit
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.values.narrowing import (
    CLOCK_STEP_MS,
    Comparison,
    narrowed,
    parse_conditions,
)
from roquette_spark.values.offsets import Offsets
from roquette_spark.values.options import read_options, refuse_ending

busy_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
BASE_MS = 1_700_000_000_000
Times = dict[MessageQueue, list[int]]
Row = dict[str, Any]


class TimedReader(ListReader):
    """Store times per queue, and the searches brokers make in them: `nearest` is Apache's 4.9."""

    def __init__(self, times: Times, *, nearest: bool = False) -> None:
        super().__init__({})
        self.times = times
        self.nearest = nearest

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        times = self.times[queue]
        low, high = 0, len(times)
        while low < high:
            middle = (low + high) // 2
            if times[middle] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if self.nearest and 0 < low < len(times):
            before, after = timestamp_ms - times[low - 1], times[low] - timestamp_ms
            return low - 1 if before < after else low
        return low


def moment(ms: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    return f"TIMESTAMP '{at.isoformat(sep=' ')}'"


Condition = tuple[str, Callable[[Row], bool]]  # as SQL, and what it means
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda found, value: found == value,
    "==": lambda found, value: found == value,
    "!=": lambda found, value: found != value,
    "<>": lambda found, value: found != value,
    "<": lambda found, value: found < value,
    "<=": lambda found, value: found <= value,
    ">": lambda found, value: found > value,
    ">=": lambda found, value: found >= value,
}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column, values, written = draw(
        st.sampled_from(
            [
                ("topic", ["T", "U", ""], "'{}'".format),
                ("broker_name", ["a", "b", "ab"], "'{}'".format),
                ("queue_id", list(range(-1, 4)), str),
                ("`Queue_Offset`", list(range(-2, 14)), str),
                (
                    "store_timestamp",
                    list(range(BASE_MS - 90_000, BASE_MS + 400_000, 7_001)),
                    moment,
                ),
                (
                    "store_timestamp",
                    list(range(BASE_MS - 90_000, BASE_MS + 400_000, 9_999)),
                    "timestamp_millis({})".format,
                ),
            ]
        )
    )
    name = column.strip("`").lower()
    value: Any = st.sampled_from(values)
    form = draw(st.sampled_from(["sign", "in", "NOT IN", "between"]))
    if form == "sign":
        sign, one = draw(st.sampled_from(list(SIGNS))), draw(value)
        return f"{column} {sign} {written(one)}", lambda row: SIGNS[sign](row[name], one)
    if form == "between":
        low, high = draw(value), draw(value)
        text = f"{column} BETWEEN {written(low)} and {written(high)}"
        return text, lambda row: low <= row[name] <= high
    some = draw(st.lists(value, min_size=1, max_size=3))
    text = f"{column} {form}({', '.join(map(written, some))})"
    return text, lambda row: (row[name] in some) == (form == "in")


@st.composite
def stores(draw: st.DrawFn) -> Times:
    """Queues whose store times grow, but for one clock that is set back."""
    queues = st.builds(
        MessageQueue, st.sampled_from("TU"), st.sampled_from("ab"), st.integers(0, 2)
    )
    found = {}
    for queue in draw(st.lists(queues, max_size=4, unique=True)):
        steps = draw(st.lists(st.integers(0, 70_000), max_size=12))
        back_at, back = draw(st.integers(0, 12)), draw(st.integers(0, CLOCK_STEP_MS))
        times, now = [], BASE_MS
        for index, step in enumerate(steps):
            now += step - (back if index == back_at else 0)
            times.append(now)
        found[queue] = times
    return found


@given(stores(), st.lists(conditions(), min_size=1, max_size=4), st.booleans(), st.integers(0, 5))
@busy_machine
def test_no_message_that_meets_the_conditions_is_left_out(
    times: Times, wanted: list[Condition], nearest: bool, first: int
) -> None:
    start: Offsets = {queue: min(first, len(stored)) for queue, stored in times.items()}
    end: Offsets = {queue: len(stored) for queue, stored in times.items()}
    parsed = parse_conditions(" AND ".join(text for text, _ in wanted))

    low, high = narrowed(TimedReader(times, nearest=nearest), parsed, start, end)

    assert low.keys() == high.keys() <= start.keys()
    for queue in low:
        assert start[queue] <= low[queue] < high[queue] <= end[queue]
    for queue, stored in times.items():
        for offset in range(start[queue], end[queue]):
            row = {
                "topic": queue.topic,
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
            }
            row |= {"queue_offset": offset, "store_timestamp": stored[offset]}
            if all(meets(row) for _, meets in wanted):
                assert queue in low
                assert low[queue] <= offset < high[queue]


Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "b", 1)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("queue_id = 0 AND queue_offset < 10", {Q0: 3}, {Q0: 10}),
        ("broker_name <> 'a' and queue_offset between 7 and 8", {Q1: 7}, {Q1: 9}),
        ("queue_offset IN (5, 900) AND topic = 'T' AND queue_id > 0", {Q1: 5}, {Q1: 901}),
        ("queue_offset > 7 AND queue_offset <= 7", {}, {}),
        ("topic = 'U'", {}, {}),
    ],
)
def test_what_is_read(text: str, start: Offsets, end: Offsets) -> None:
    whole = {Q0: 3, Q1: 0}, {Q0: 5_000_000, Q1: 5_000_000}

    assert narrowed(ListReader({}), parse_conditions(text), *whole) == (start, end)


def test_times_narrow_with_a_minute_to_spare() -> None:
    reader = TimedReader({Q0: [BASE_MS + 1_000 * offset for offset in range(1_000)]})
    text = f"store_timestamp >= {moment(BASE_MS + 300_000)} AND store_timestamp < {moment(BASE_MS + 400_000)}"

    ranges = narrowed(reader, parse_conditions(text), {Q0: 0}, {Q0: 1_000})

    assert ranges == ({Q0: 240}, {Q0: 462})


def test_a_queue_whose_messages_are_all_too_old_is_left_out() -> None:
    reader = TimedReader({Q0: [BASE_MS, BASE_MS], Q1: [BASE_MS, BASE_MS + 600_000]})
    text = f"store_timestamp >= {moment(BASE_MS + 600_000)}"

    ranges = narrowed(reader, parse_conditions(text), {Q0: 0, Q1: 0}, {Q0: 2, Q1: 2})

    assert ranges == ({Q1: 1}, {Q1: 2})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "queue_id = 0 OR queue_id = 1",
            "'OR' is not understood: conditions are joined by AND only",
        ),
        ("NOT queue_id = 0", "'NOT' is none of topic, broker_name"),
        ("tags = 'A'", "'tags' is none of topic, broker_name"),
        ("queue_id = '0'", "queue_id is compared with a whole number, not with '0'"),
        ("queue_id = 0.5", "'.5' is not understood"),
        ("queue_offset <", "queue_offset is compared with a whole number, not with nothing"),
        ("queue_offset LIKE '1%'", "'LIKE' after queue_offset"),
        ("queue_offset", "'' after queue_offset"),
        ("queue_id IN (1, 2", "a list has no end"),
        ("queue_id BETWEEN 1, 2", "BETWEEN has no AND"),
        ("topic = 'it''s'", "is not understood"),
        ("store_timestamp > '2026-09-13'", "with timestamp_millis"),
        ("store_timestamp > TIMESTAMP '2026-09-13 12:00:00'", "TIMESTAMP '...' with a zone"),
        ("store_timestamp > TIMESTAMP 'noon'", "'noon' is no time"),
    ],
)
def test_conditions_that_are_not_understood_are_told(text: str, told: str) -> None:
    with pytest.raises(Unfit) as found:
        parse_conditions(text)

    assert told in str(found.value)


def test_the_option() -> None:
    given = {"namesrvAddr": "ns:1", "subscribe": "T"}
    options = read_options(given | {"narrowBy": "queue_id = 3"})

    assert options.narrow_by == (Comparison("queue_id", "in", (3,)),)
    assert read_options(given).narrow_by == read_options(given | {"narrowBy": ""}).narrow_by == ()
    with pytest.raises(ConfigError, match="narrowBy is for tables"):
        refuse_ending(options)
    with pytest.raises(ConfigError, match="option narrowBy: 'OR' is not understood"):
        read_options(given | {"narrowBy": "queue_id = 3 OR queue_id = 4"})
