"""Servers and Java clients shared by the interop tests; every test has topics and groups of its own.

The tests run on Roquette's servers, those with the marker `also` on closed ones too (ways.py). With ROQUETTE_INTEROP_PROVE=1 they run on Apache's as well (marker
`long`): a test that fails there expects something Apache does not do.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.clients import GoClient, NodeClient, etcd_program, go_program, node_program
from tests.interop.driver import CLASS_PATHS, Driver
from tests.interop.features import (
    CLIENTS,
    FEATURES,
    V5_CLIENTS,
    V5_FEATURES,
    Recorder,
    parameters,
    shown,
)
from tests.interop.peers import (
    SERVERS,
    Server,
    class_path,
    compiled,
    require_java,
    start_broker,
    start_namesrv,
)
from tests.interop.v5.peers import (
    GO,
    JAVA,
    NODE,
    PYTHON,
    RUST,
    go_peer,
    java_peer,
    node_peer,
    python_peer,
    rust_peer,
)

PROVE = os.environ.get("ROQUETTE_INTEROP_PROVE") == "1"
# Quick retries: 18 levels as in Apache's default, the first of them a second each.
QUICK_LEVELS = "1s 1s 1s 1s 1s 1s 1s 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
SETTINGS = {
    "messageDelayLevel": QUICK_LEVELS,
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
}


recorder = pytest.StashKey[Recorder]()


def java_clients() -> None:
    """Both versions, with our programs for them."""
    require_java()
    for name in CLASS_PATHS.values():
        compiled(name)


def java_servers() -> None:
    """Apache's servers."""
    require_java()
    class_path(SERVERS["5.5.0"])


# What is built for tests with one of these fixtures, or with the parameter "apache".
BUILDS: tuple[tuple[set[str], Callable[[], object]], ...] = (
    ({"stage", JAVA}, java_peer),
    ({"stage", GO}, go_peer),
    ({"stage", NODE}, node_peer),
    ({"stage", PYTHON}, python_peer),
    ({"stage", RUST}, rust_peer),
    ({"java", "drivers"}, java_clients),
    ({"mixed", "peer", "made", "yard", "ward", "started", "apache"}, java_servers),
    ({"go"}, go_program),
    ({"node"}, node_program),
    ({"etcd", "etcd_binary"}, etcd_program),
)


def pytest_configure(config: pytest.Config) -> None:
    """Begin the record of what this run shows of which client."""
    config.stash[recorder] = Recorder()


# Modules of a minute and more: begun first, so that no worker ends with one while the others have nothing to do.
LONG = (
    "store_compat",
    "store_toolkit",
    "semantics",
    "java_transactions",
    "go",
    "mqadmin",
    "cross",
    "etcd_managed",
    "console",
    "v5",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long modules first, in a run of several processes. And a marker with a misspelt name would be a cell nobody sees."""
    items[:] = [item for item in items if belongs(item)]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)
    for client, feature in (pair for item in items for pair in shown(item)):
        known = V5_FEATURES if client in V5_CLIENTS else FEATURES
        assert client in CLIENTS + V5_CLIENTS and feature in known, (client, feature)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get and build the peers that the chosen tests need: the first time it takes minutes, more than a test may take.

    What fails here fails again, and is told, in the tests that need it.
    """
    if session.config.option.collectonly:
        return
    chosen = [item for item in session.items if item.get_closest_marker("interop")]
    needed = {name for item in chosen for name in getattr(item, "fixturenames", ())}
    parametrized = [item.callspec.params for item in chosen if hasattr(item, "callspec")]
    needed |= {str(value) for params in parametrized for value in params.values()}
    for fixtures, build in BUILDS:
        if needed & fixtures:
            with contextlib.suppress(pytest.skip.Exception, pytest.fail.Exception):
                build()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the outcome of marked tests."""
    report = yield
    item.config.stash[recorder].note(item, report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the record."""
    session.config.stash[recorder].write()


CLOSED = ("-closed", "-signed")


def flavours() -> list[object]:
    """Whose servers the tests run on; on closed ones only tests with the marker `also` (belongs())."""
    found: list[object] = ["roquette", *(f"roquette{closed}" for closed in CLOSED)]
    if PROVE:
        proving = ("apache", *(f"apache{closed}" for closed in CLOSED))
        found += [pytest.param(flavour, marks=pytest.mark.long) for flavour in proving]
    return found


def belongs(item: pytest.Item) -> bool:
    """Whether a test is one of this run: on closed servers those that ask for it, with the newest Java client."""
    given = {name: str(value) for name, value in parameters(item).items()}
    closed = {value.partition("-")[2] for value in given.values() if value.endswith(CLOSED)}
    if not closed:
        return True
    asked = {word for mark in item.iter_markers("also") for word in mark.args}
    return closed <= asked and "4.9.8" not in given.values()


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
        # The Go client sends traces only where the trace topic is; SQL92 is off in Apache's default.
        settings = {**SETTINGS, "traceTopicEnable": "true", "enablePropertyFilter": "true"}
        broker = start_broker(request.param, folder / "broker", namesrv.address, settings=settings)
        try:
            yield Cluster(request.param, namesrv, broker, folder)
        finally:
            broker.discard()
    finally:
        namesrv.discard()


@pytest.fixture
def started() -> Iterator[list[Server]]:
    """Servers that end with the test, youngest first."""
    require_java()
    found: list[Server] = []
    yield found
    for server in reversed(found):
        if server.process.popen.poll() is None:
            server.discard()


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


@pytest.fixture(scope="session")
def strict(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Servers of the same flavour that create no topics."""
    folder = tmp_path_factory.mktemp(f"strict-{cluster.flavour}")
    namesrv = start_namesrv(cluster.flavour, folder / "namesrv")
    settings = {"autoCreateTopicEnable": "false"}
    broker = start_broker(cluster.flavour, folder / "broker", namesrv.address, settings=settings)
    yield Cluster(cluster.flavour, namesrv, broker, folder)
    broker.discard()
    namesrv.discard()


@pytest.fixture(scope="session")
def go(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoClient]:
    """Apache's Go client, one process for all tests of a cluster."""
    client = GoClient(tmp_path_factory.mktemp(f"go-{cluster.flavour}"))
    yield client
    client.stop()


@pytest.fixture(scope="session")
def node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeClient]:
    """The Node.js client, one process for all tests of a cluster."""
    client = NodeClient(tmp_path_factory.mktemp(f"node-{cluster.flavour}"))
    yield client
    client.stop()


@pytest.fixture(params=["4.9.8", "5.5.0"])
def java(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Driver:
    """Apache's Java client, in both versions."""
    return drivers(request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A word for this test's topics, groups and clients that no other test uses."""
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    full = f"{module}_{request.node.name.removeprefix('test_')}"
    return "".join(c if c.isalnum() else "_" for c in full)


@pytest.fixture
def producer(java: Driver, cluster: Cluster, name: str) -> Iterator[str]:
    """A Java producer at the shared cluster, by its name."""
    java("producer", name=name, namesrv=cluster.namesrv.address)
    yield name
    java("drop", name=name)
