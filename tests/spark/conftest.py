"""The Spark room is tested only where its extra is installed; one session and one pair of servers serve all jobs.

A test that stops or changes its servers starts its own; topics and groups have names that no other test uses.
"""

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.spark.places import Place

collect_ignore_glob = (
    ["test_*.py", "pipelines/test_*.py"]
    if any(importlib.util.find_spec(m) is None for m in ("pyspark", "pyarrow"))
    else []
)


# Modules of few and long tests: begun first, so that no process ends with one while the other has nothing to do.
LONG = ("archive_kills", "sink_kills", "cluster", "newcomer", "watching_jobs", "broker_outages")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long modules first."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)


@pytest.fixture(scope="session", autouse=True)
def _archived_classes() -> None:
    """JVMs of this run, and of the jobs it starts, map Spark's classes from an archive if there is one."""
    from tests.spark.jvm import use_archive

    use_archive()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark: its JVM takes some seconds to start."""
    from roquette.spark.jdk import spark_session

    # One compiler, one collector thread: a JVM of a minute's life takes half the CPU time that way.
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session = spark_session("roquette-tests", 2, spark__driver__extraJavaOptions=options)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def roquette(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Place"]:
    """Our name server and broker, shared."""
    yield from _serve("roquette", tmp_path_factory)


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Place"]:
    """Apache's name server and broker, shared."""
    yield from _serve("apache", tmp_path_factory)


def _serve(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Place"]:
    from tests.spark.places import Place

    place = Place(flavour, tmp_path_factory.mktemp(flavour))
    yield place
    place.discard()


@pytest.fixture(autouse=True)
def _no_plain_errors_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plain_errors sets in a process that is about to end must not reach Spark's workers."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
