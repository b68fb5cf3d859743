"""Servers and Java clients shared by the interop tests; every test has topics and groups of its own.

The tests run on Roquette's servers. With ROQUETTE_INTEROP_PROVE=1 they run on Apache's as well (marker
`long`): a test that fails there expects something Apache does not do.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.driver import Driver
from tests.interop.peers import Server, start_broker, start_namesrv

PROVE = os.environ.get("ROQUETTE_INTEROP_PROVE") == "1"
# Quick retries: 18 levels as in Apache's default, the first of them a second each.
QUICK_LEVELS = "1s 1s 1s 1s 1s 1s 1s 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
SETTINGS = {"messageDelayLevel": QUICK_LEVELS, "autoCreateTopicEnable": "true"}


def flavours() -> list[object]:
    """Whose servers the tests run on."""
    found: list[object] = ["roquette"]
    if PROVE:
        found.append(pytest.param("apache", marks=pytest.mark.long))
    return found


@dataclass(frozen=True)
class Cluster:
    """A name server and a broker of one flavour; `folder` is theirs."""

    flavour: str
    namesrv: Server
    broker: Server
    folder: Path


@pytest.fixture(scope="session", params=flavours())
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The shared servers."""
    folder = tmp_path_factory.mktemp(f"cluster-{request.param}")
    namesrv = start_namesrv(request.param, folder / "namesrv")
    try:
        broker = start_broker(request.param, folder / "broker", namesrv.address, settings=SETTINGS)
        try:
            yield Cluster(request.param, namesrv, broker, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Driver]]:
    """The Java client of a version, started when first asked for, ended with the session."""
    started: dict[str, Driver] = {}

    def find(version: str) -> Driver:
        if version not in started:
            started[version] = Driver(version, tmp_path_factory.mktemp(f"java-{version}"))
        return started[version]

    try:
        yield find
    finally:
        for driver in started.values():
            driver.stop()


@pytest.fixture(params=["4.9.8", "5.5.0"])
def java(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Driver:
    """Apache's Java client, in both versions."""
    return drivers(request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A word for this test's topics, groups and clients that no other test uses."""
    return "".join(c if c.isalnum() else "_" for c in request.node.name.removeprefix("test_"))


@pytest.fixture
def producer(java: Driver, cluster: Cluster, name: str) -> Iterator[str]:
    """A Java producer at the shared cluster, by its name."""
    java("producer", name=name, namesrv=cluster.namesrv.address)
    yield name
    java("drop", name=name)
