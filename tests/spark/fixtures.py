"""What every test of a Spark job shares: one session and one pair of servers; tests/conftest.py names this module.

A test that stops or changes its servers starts its own; topics and groups have names that no other test uses. That no topic is
two modules' is checked when a module ends (own_topics.py).
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.spark.places import Place


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark: its JVM takes some seconds to start."""
    from roquette_spark.local.jdk import spark_session

    # One compiler, one collector thread: a JVM of a minute's life takes half the CPU time that way.
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session = spark_session("roquette-tests", 2, spark__driver__extraJavaOptions=options)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def roquette_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Place"]:
    """Our name server and broker, shared."""
    yield from _serve("roquette", tmp_path_factory)


@pytest.fixture(scope="session")
def apache_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Place"]:
    """Apache's name server and broker, shared."""
    yield from _serve("apache", tmp_path_factory)


@pytest.fixture(scope="module")
def roquette(request: pytest.FixtureRequest) -> Iterator["Place"]:
    """Ours, for the topics of one module."""
    yield from _lend("roquette", request)


@pytest.fixture(scope="module")
def apache(request: pytest.FixtureRequest) -> Iterator["Place"]:
    """Apache's, for the topics of one module."""
    yield from _lend("apache", request)


def _serve(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Place"]:
    from tests.spark.places import Place

    place = Place(flavour, tmp_path_factory.mktemp(flavour))
    yield place
    place.discard()


def _lend(flavour: str, request: pytest.FixtureRequest) -> Iterator["Place"]:
    from tests.spark.own_topics import own_topics

    place = request.getfixturevalue(f"{flavour}_servers")
    base = request.getfixturevalue("tmp_path_factory").getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # workers' are in the run's
    with own_topics(place.address, request.node.nodeid, run / f"{flavour}-topics"):
        yield place
