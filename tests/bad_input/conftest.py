"""A name server and a broker for the whole room: nothing a test does may disturb the next one."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.real_servers import ServerProcess, broker_arguments, server


class Servers(NamedTuple):
    """Both servers, and where the broker's files are."""

    namesrv: ServerProcess
    broker: ServerProcess
    store: Path


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    root = tmp_path_factory.mktemp("bad-input")
    store = root / "store"
    name_server = ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={root}/kv.json"]
    with server(name_server) as namesrv, server(broker_arguments(store)) as broker:
        yield Servers(namesrv, broker, store)


@pytest.fixture(params=["namesrv", "broker"])
def victim(request: pytest.FixtureRequest, servers: Servers) -> ServerProcess:
    """Each of the two in turn."""
    found: ServerProcess = getattr(servers, request.param)
    return found
