"""Property tests: few examples in the quick form, the same in each run; many others with ROQUETTE_EXAMPLES=1000 (`make test-long`).

A test of its own that needs more, or may have fewer, says so with @settings.
"""

import fnmatch
import logging
import os
import tomllib
from collections.abc import Iterator
from itertools import count, groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile(
    "roquette",
    max_examples=int(os.environ.get("ROQUETTE_EXAMPLES", "50")),
    derandomize="ROQUETTE_EXAMPLES" not in os.environ,
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roquette")

# What each case took; and the session and the servers of tests/spark and tests/pipelines, made when a test asks for them.
pytest_plugins = ["tests.record", "tests.spark.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the marker `long` to the cases that tests/long_cases.toml lists."""
    lists = tomllib.loads((Path(__file__).parent / "long_cases.toml").read_text())["left"]
    for path, cases in groupby(items, lambda item: item.nodeid.partition("::")[0]):
        # A file's own lists, found once: there are 12,000 cases, and each process collects them.
        near = [(left, count()) for left in lists if is_in(path, left["cases"])]
        for item in cases if near else ():
            for left, numbers in near:
                if (
                    is_named(item.nodeid, left["cases"])
                    and not is_named(item.nodeid, left.get("but", []))
                    and ("one_in" not in left or next(numbers) % left["one_in"])
                ):
                    item.add_marker(pytest.mark.long)


def is_in(path: str, patterns: list[str]) -> bool:
    """May one of these name a case of the file?"""
    return any(fnmatch.fnmatchcase(path, pattern.partition("::")[0]) for pattern in patterns)


def is_named(case: str, patterns: list[str]) -> bool:
    """Is it one of these: a file, a test with all its cases, or cases by a pattern within brackets?"""
    function, _, parameters = case.partition("[")
    for pattern in patterns:
        wanted, _, inside = pattern.partition("[")
        if wanted == case.partition("::")[0]:
            return True
        if fnmatch.fnmatchcase(function, wanted) and (
            not inside or fnmatch.fnmatchcase(parameters, inside)
        ):
            return True
    return False


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """What `roquette.base.log_settings.configure` changes is undone: `caplog` of the next test would see nothing."""
    both = [logging.getLogger(name) for name in ("roquette", "asyncio")]
    before = [(each.handlers[:], each.propagate, each.level) for each in both]
    raises = logging.raiseExceptions
    yield
    for each, (handlers, propagate, level) in zip(both, before, strict=True):
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)
    logging.raiseExceptions = raises
