"""Property tests: few examples in the quick form, many with ROQUETTE_EXAMPLES=1000 (`make test-long`), no clock.

A test of its own that needs more, or may have fewer, says so with @settings.
"""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile(
    "roquette",
    max_examples=int(os.environ.get("ROQUETTE_EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roquette")

# The session and the servers of tests/spark and tests/pipelines; made when a test asks for them.
pytest_plugins = ["tests.spark.fixtures"]


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """What `roquette.base.logs.configure` changes is undone: `caplog` of the next test would see nothing."""
    both = [logging.getLogger(name) for name in ("roquette", "asyncio")]
    before = [(each.handlers[:], each.propagate, each.level) for each in both]
    raises = logging.raiseExceptions
    yield
    for each, (handlers, propagate, level) in zip(both, before, strict=True):
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)
    logging.raiseExceptions = raises
