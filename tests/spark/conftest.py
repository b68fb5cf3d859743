"""The Spark rooms are tested only where their extra is installed; what jobs share is in fixtures.py."""

import importlib.util

import pytest

collect_ignore_glob = (
    ["test_*.py", "*/test_*.py"]
    if any(importlib.util.find_spec(m) is None for m in ("pyspark", "pyarrow"))
    else []
)


# Modules of few and long tests: begun first, so that no process ends with one while the other has nothing to do.
LONG = ("archive_kills", "sink_kills", "cluster", "newcomer", "watching_jobs", "broker_outages")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long modules first."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)


@pytest.fixture(scope="session", autouse=True)
def archived_classes() -> None:
    """JVMs of this run, and of the jobs it starts, map Spark's classes from an archive if there is one."""
    from tests.spark.jvm import use_archive

    use_archive()


@pytest.fixture(autouse=True)
def no_plain_errors_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plain_errors sets in a process that is about to end must not reach Spark's workers."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
