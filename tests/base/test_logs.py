"""Where log lines go, and how often."""

import io
import logging
from collections.abc import Iterator

import pytest

from roquette.base.logs import RateLimited, configure
from roquette.testing.manual_clock import ManualClock


@pytest.fixture
def roquette_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("roquette")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield logger
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_configure_sends_ours_and_replaces_itself(roquette_logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure("info", io.StringIO())
    configure("info", stream)
    logging.getLogger("roquette.store").info("open root=%s", "/store")
    logging.getLogger("roquette.store").debug("hidden")
    logging.getLogger("elsewhere").warning("not ours")
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith(" INFO roquette.store open root=/store\n")


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
