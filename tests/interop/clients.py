"""The Go and the Node.js client as processes the tests drive, built once from go/ and node/; and etcd, from ../peers/etcd.

Both are Apache's protocol spoken by other hands: github.com/apache/rocketmq-client-go/v2 and npm's ali-ons.
What is built stays in `~/.cache/roquette-peers` under a hash of its sources and lock file.
"""

import os
import shutil
from pathlib import Path

import pytest
from tests.interop.driver import LineClient
from tests.interop.peers import CACHE, HERE, ROOT, Process, absent, alone, digest, failure

GO_VERSION = "2.1.2"
NODE_VERSION = "3.12.0"


def go_program() -> Path:
    """The Go driver; modules are downloaded on first use, and go.sum says what they must be."""
    return built_by_go("go", HERE / "go", "the Go client")


def etcd_program() -> Path:
    """etcd's server, of the module that peers/etcd/go.mod pins."""
    return built_by_go("etcd", ROOT / "tests" / "peers" / "etcd", "etcd")


def prometheus_program() -> Path:
    """Prometheus' engine and rules, of the module that peers/prometheus/go.mod pins: scrapes to alerts."""
    return built_by_go("prometheus", ROOT / "tests" / "peers" / "prometheus", "Prometheus' engine")


def h2spec_program() -> Path:
    """The conformance test of HTTP/2 that peers/h2spec/go.mod pins."""
    return built_by_go("h2spec", ROOT / "tests" / "peers" / "h2spec", "h2spec")


def built_by_go(name: str, folder: Path, what: str) -> Path:
    """The program of a Go module, by its name in the cache."""
    if shutil.which("go") is None:
        absent(f"needs the Go toolchain for {what}; not found: go")
    sources = [folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))]
    built = CACHE / f"{name}-{digest(*(source.read_bytes() for source in sources))}"
    with alone(name):
        if not built.exists():
            # One toolchain, the one that is here; no other is downloaded.
            env = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
            said = failure("go", "mod", "download", folder=folder, **env)
            if said:
                absent(f"the modules of {what} could not be had: {said}")
            fresh = built.with_suffix(f".{os.getpid()}")
            build = ("go", "build", "-buildvcs=false", "-o", str(fresh), ".")
            said = failure(*build, folder=folder, **env)
            if said:
                pytest.fail(said)
            fresh.replace(built)
    return built


def node_program() -> Path:
    """The Node.js driver beside its node_modules; packages are downloaded on first use."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        absent(f"needs Node.js and npm for the Node.js client; not found: {', '.join(missing)}")
    sources = [HERE / "node" / name for name in ("package.json", "package-lock.json", "driver.js")]
    built = CACHE / f"node-{digest(*(source.read_bytes() for source in sources))}"
    with alone("npm"):
        if not built.exists():
            fresh = CACHE / f"{built.name}.{os.getpid()}"
            fresh.mkdir(parents=True)
            for source in sources:
                shutil.copy(source, fresh)
            quiet = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")
            said = failure("npm", "ci", *quiet, folder=fresh)
            if said:
                absent(f"the Node.js client's packages could not be had: {said}")
            fresh.rename(built)
    return built / "driver.js"


class GoClient(LineClient):
    """One process with Apache's Go client."""

    def __init__(self, folder: Path) -> None:
        program = go_program()
        # A broadcasting consumer keeps its offsets below the home folder; not in the real one.
        process = Process([str(program)], folder, {"HOME": str(folder), "NAMESRV_ADDR": ""})
        super().__init__(process, GO_VERSION)


class NodeClient(LineClient):
    """One process with the Node.js client; it serves one cluster, as ali-ons shares a producer."""

    def __init__(self, folder: Path) -> None:
        program = node_program()
        process = Process(["node", str(program)], folder, {"HOME": str(folder)})
        super().__init__(process, NODE_VERSION)
