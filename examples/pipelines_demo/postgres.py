"""A PostgreSQL of Debian's package: a folder and a port of its own, gone when it ends."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from examples.demo.servers import DemoError

START_S = 60
USER = "shop"  # who may do all


def programs() -> Path | None:
    """Where Debian has PostgreSQL's programs, of the newest version; None: it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    return found[-1].parent if found and shutil.which("psql") else None


@dataclass
class Postgres:
    """A running server on this machine."""

    port: int

    def sql(self, text: str) -> str:
        """Run statements; what they print. Raises DemoError: one was refused."""
        words = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"]
        words += ["-XqAt", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise DemoError(f"PostgreSQL: {done.stderr.strip()}")
        return done.stdout

    def properties(self, slot: str) -> str:
        """What Debezium is told of it. slot: PostgreSQL keeps what this reader has not seen yet under the name."""
        return f"""connector.class=io.debezium.connector.postgresql.PostgresConnector
database.hostname=127.0.0.1
database.port={self.port}
database.user={USER}
database.password=none
database.dbname=postgres
topic.prefix=shop
plugin.name=pgoutput
slot.name={slot}
"""


@contextlib.contextmanager
def running() -> Iterator[Postgres]:
    """An empty server. Raises DemoError: it is not installed, or does not start."""
    binaries = programs()
    if binaries is None:
        raise DemoError("there is no PostgreSQL: apt-get install postgresql")
    # The server refuses to be root, and its user must be able to go into the folder.
    folder = Path(tempfile.mkdtemp(prefix="roquette-postgres-", dir="/tmp"))
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    before = as_user if os.geteuid() == 0 else []
    try:
        if before:
            shutil.chown(folder, "postgres")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        data = folder / "data"
        make = [binaries / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8"]
        make += ["--no-sync", "--locale=C.UTF-8"]
        subprocess.run([*before, *map(str, make)], check=True, capture_output=True, cwd=folder)
        words = [binaries / "postgres", "-D", data, "-p", port, "-k", folder, "-h", "127.0.0.1"]
        words += ["-c", "wal_level=logical", "-c", "fsync=off"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [*before, *map(str, words)], stdout=log, stderr=log, cwd=folder
            )
        try:
            ask = [str(binaries / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
            end = time.monotonic() + START_S
            while subprocess.run(ask, capture_output=True, check=False).returncode:
                if server.poll() is not None or time.monotonic() > end:
                    raise DemoError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
                time.sleep(0.05)
            yield Postgres(port)
        finally:
            server.send_signal(signal.SIGQUIT)  # at once
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
