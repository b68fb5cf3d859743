"""Apache's v5 clients in five languages as programs the tests drive, by the same commands (LineClient).

    producer    name endpoints topic [check=COMMIT|ROLLBACK]     send         name topic count body tag key order delay
    transaction name topic [end=commit|rollback]                 recall       name topic handle
    push        name endpoints group topic [tags|sql] failUntil  dump         name min timeout
    simple      name endpoints group topic [tags|sql] await      receive      name count invisible
    ack         name msgId                                       change       name msgId invisible
    stop        name                                             release      name

Handlers of a push consumer with `hold=1` (Java) keep their messages until its `release`.

`tls` in producer, push and simple turns it on where the client can choose. What is built stays in `~/.cache/roquette-peers`.
"""

import shutil
import sys
import time
from pathlib import Path

from tests.interop.clients import built_by_go
from tests.interop.driver import LineClient
from tests.interop.peers import (
    CACHE,
    ROOT,
    SMALL_JVM,
    Process,
    absent,
    alone,
    compiled,
    digest,
    failure,
    made,
    require_java,
)

HERE = Path(__file__).resolve().parent
# Columns of the client table.
JAVA, GO, PYTHON, NODE, RUST = "Java v5 5.2.0", "Go v5 5.1.2", "Python v5 5.1.2", "Node v5 1.0.8", "Rust v5 5.0.0"  # fmt: skip


def java_peer() -> str:
    """The class path of the Java peer."""
    require_java()
    return compiled("client5", "v5")


def go_peer() -> Path:
    """The Go peer; go.sum says what its modules must be."""
    return built_by_go("go5", HERE / "go", "the v5 Go client")


def node_peer() -> Path:
    """The Node.js peer beside its node_modules."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        absent(f"needs Node.js and npm for the v5 Node.js client; not found: {', '.join(missing)}")
    sources = [HERE / "node" / name for name in ("package.json", "package-lock.json", "peer.js")]
    quiet = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")
    return made("node5", sources, ("npm", "ci", *quiet)) / "peer.js"


def python_peer() -> Path:
    """The interpreter of an environment that has Apache's Python client, and nothing of ours."""
    tool = (sys.executable, str(ROOT / "tools" / "environment.py"), "make", "python-client")
    where = made("python5", [ROOT / "locks" / "python-client.txt"], (*tool, "--venv", "env"))
    return where / "env" / "bin" / "python"


def rust_peer() -> Path:
    """The Rust peer; Cargo.lock says what its crates must be. The first build takes two minutes."""
    if shutil.which("cargo") is None:
        absent("needs the Rust toolchain for the v5 Rust client; not found: cargo")
    folder = HERE / "rust"
    sources = [folder / "Cargo.toml", folder / "Cargo.lock", folder / "src" / "main.rs"]
    built = CACHE / f"rust5-{digest(*(source.read_bytes() for source in sources))}"
    with alone("rust5"):
        if not built.exists():
            target = CACHE / "rust5-target"
            build = ("cargo", "build", "-q", "--locked", "--target-dir", str(target))
            said = failure(*build, folder=folder)
            if said:
                absent(f"the v5 Rust client could not be built: {said}")
            shutil.copy(target / "debug" / "roquette-interop-v5", built)
    return built


class Spoken(Process):
    """A program whose library logs to stdout: lines that are no answers are passed over."""

    def line(self, timeout_s: float) -> str:
        """The next line that is an answer."""
        end = time.monotonic() + timeout_s
        while not (found := super().line(max(0.1, end - time.monotonic()))).startswith("{"):
            pass
        return found


def started(client: str, folder: Path, roots: Path) -> LineClient:
    """A peer in a folder of its own, where its logs go; `roots` are trusted by those that verify certificates."""
    folder.mkdir(parents=True, exist_ok=True)
    home = {"HOME": str(folder), "NAMESRV_ADDR": ""}
    home |= {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots)}
    if client == JAVA:
        options = (f"-Duser.home={folder}", "-Drocketmq.log.level=WARN", "-Xmx256m")
        command = ["java", *SMALL_JVM, *options, "-cp", java_peer(), "Peer"]
    elif client == GO:
        command = [str(go_peer())]
        home |= {"rocketmq.client.logRoot": str(folder), "rocketmq.client.logLevel": "warn"}
    elif client == NODE:
        command = ["node", str(node_peer())]
    elif client == PYTHON:
        command = [str(python_peer()), str(HERE / "python" / "peer.py")]
    else:
        command = [str(rust_peer())]
    home["PYTHONPATH"] = ""
    return LineClient((Spoken if client == RUST else Process)(command, folder, home), client)
