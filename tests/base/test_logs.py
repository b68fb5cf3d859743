"""Where log lines go, and how often."""

import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from roquette.base.log_settings import LogSettings, configure
from roquette.base.logs import MAX_TRACEBACK, RateLimited
from roquette_testing.embedded import ManualClock


def test_configure_sends_ours_and_replaces_itself() -> None:
    stream = io.StringIO()
    configure(LogSettings(), io.StringIO())
    configure(LogSettings(), stream)
    logging.getLogger("roquette.store").info("open root=%s", "/store")
    logging.getLogger("roquette.store").debug("hidden")
    logging.getLogger("elsewhere").warning("not ours")
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith(" INFO roquette.store open root=/store\n")


def as_json(say: Callable[[logging.Logger], None]) -> dict[str, Any]:
    stream = io.StringIO()
    configure(LogSettings(log_format="json"), stream)
    say(logging.getLogger("roquette.store"))
    (line,) = stream.getvalue().splitlines()
    assert line.isascii()
    told: dict[str, Any] = json.loads(line)
    return told


def test_a_json_line_has_the_text_and_its_fields() -> None:
    told = as_json(lambda log: log.info("taken root=%s at=%d share=%.1f %s", "/a b", 7, 0.25, "x"))
    assert told.pop("time").endswith("+00:00")
    assert told == {
        "level": "INFO",
        "logger": "roquette.store",
        "message": 'taken root="/a b" at=7 share=0.2 x',
        "fields": {"root": "/a b", "at": 7, "share": 0.25},
    }


def test_a_json_line_without_values_has_no_fields() -> None:
    told = as_json(lambda log: log.warning("full"))
    assert sorted(told) == ["level", "logger", "message", "time"]


@pytest.mark.parametrize("value", ['"}\n{"level": "forged"}', "\x1b[2J", "\udc80", "x" * 5_000])
def test_no_value_breaks_a_json_line(value: str) -> None:
    told = as_json(lambda log: log.info("group=%s lag=%s", value, float("nan")))
    assert told["level"] == "INFO"
    assert told["fields"]["group"].startswith(value[:300])
    assert len(told["fields"]["group"]) < 500
    assert told["fields"]["lag"] == "nan"


def test_a_traceback_is_a_list_of_lines() -> None:
    def deep(levels: int) -> None:
        if not levels:
            raise ValueError("wrong\nlevel=forged")
        deep(levels - 1)

    try:
        deep(200)
    except ValueError as error:
        failure = error
    told = as_json(lambda log: log.error("task failed name=%s", "flush", exc_info=failure))
    assert told["message"] == "task failed name=flush"
    assert told["traceback"][0] == "Traceback (most recent call last):"
    assert told["traceback"][-1] == "level=forged"
    assert len(told["traceback"]) <= MAX_TRACEBACK + 1


def test_a_repeated_line_is_shown_once_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    noise = RateLimited(logging.getLogger("roquette.test"), clock, interval_ms=10_000)
    for _ in range(5):
        noise.warning("peer", "bad frame peer=%s", "x")
        clock.advance(1_000)
    noise.warning("other", "something else")
    clock.advance(5_000)
    noise.warning("peer", "bad frame peer=%s", "y")
    assert [r.getMessage() for r in caplog.records] == [
        "bad frame peer=x",
        "something else",
        "bad frame peer=y (and 4 more like it)",
    ]


def test_keys_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    noise = RateLimited(logging.getLogger("roquette.test"), ManualClock(), keys=10)
    for number in range(1_000):
        noise.warning(str(number), "line %d", number)
    assert len(noise._seen) <= 10
