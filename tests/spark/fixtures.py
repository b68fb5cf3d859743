"""What every test of a Spark job shares: one session and one pair of servers; tests/conftest.py names this module.

A test that stops or changes its servers starts its own; topics and groups have names that no other test uses.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.spark.places import Place


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark: its JVM takes some seconds to start."""
    from roquette.spark.local.jdk import spark_session

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
