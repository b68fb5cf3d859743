"""A PostgreSQL of Debian for tests: its own folder and port, and rows of all kinds that change at random."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.processes import wait_until
from tests.pipelines.seaweed import free_ports

TABLE = """CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, price numeric(10,2), free numeric, born date,
at timestamp, seen timestamptz, t time, paid boolean, doc jsonb, raw bytea, tags text[], u uuid, f real, d double precision, s smallint)"""
COLUMNS = [
    "id",
    "customer",
    "price",
    "free",
    "born",
    "at",
    "seen",
    "t",
    "paid",
    "doc",
    "raw",
    "tags",
    "u",
    "f",
    "d",
    "s",
]


def values(row: dict[str, Any]) -> dict[str, Any]:
    """Texts of PostgreSQL, and of columns that are texts, as what they say."""
    makers: dict[str, Callable[[Any], Any]] = {
        "price": Decimal, "free": Decimal, "born": date.fromisoformat, "at": datetime.fromisoformat,
        "seen": datetime.fromisoformat, "t": time.fromisoformat, "doc": json.loads,
        "raw": lambda text: bytes.fromhex(text[2:]), "f": float, "d": float,
    }  # fmt: skip
    return {
        name: makers[name](value) if name in makers and isinstance(value, str | Decimal) else value
        for name, value in row.items()
    }


def programs() -> Path | None:
    """Where Debian has PostgreSQL's programs, of the newest version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    return found[-1].parent if found else None


@dataclass
class Postgres:
    """A running server; `user` is who may do all."""

    port: int
    random: random.Random
    user: str = "shop"
    next_id: int = 1

    def sql(self, text: str) -> str:
        """Run statements; what they print."""
        words = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", self.user, "-d", "postgres"]
        done = subprocess.run(
            [*words, "-XqAt", "-v", "ON_ERROR_STOP=1"], input=text, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def properties(self, slot: str) -> str:
        """Debezium's, of this server."""
        return f"""connector.class=io.debezium.connector.postgresql.PostgresConnector
database.hostname=127.0.0.1
database.port={self.port}
database.user={self.user}
database.password=none
database.dbname=postgres
topic.prefix=shop
plugin.name=pgoutput
slot.name={slot}
"""

    def change(self, count: int) -> None:
        """Rows come, change and go, in transactions of a few."""
        lines, alive = [], [int(line) for line in self.sql("SELECT id FROM orders").split()]
        for _ in range(count):
            if self.random.random() < 0.1:
                lines += ["COMMIT;", "BEGIN;"]
            kind = self.random.random()
            if kind < 0.5 or not alive:
                alive.append(self.next_id)
                self.next_id += 1
                lines.append(f"INSERT INTO orders VALUES ({self._row(alive[-1])});")
            elif kind < 0.8:
                names, values = ", ".join(COLUMNS), self._row(self.random.choice(alive))
                key = values.split(",", 1)[0]
                lines.append(f"UPDATE orders SET ({names}) = ROW({values}) WHERE id = {key};")
            else:
                gone = alive.pop(self.random.randrange(len(alive)))
                lines.append(f"DELETE FROM orders WHERE id = {gone};")
        self.sql("BEGIN;\n" + "\n".join(lines) + "\nCOMMIT;")

    def _row(self, key: int) -> str:
        draw = self.random
        moment = datetime(1, 1, 2) + timedelta(microseconds=draw.randrange(3_155_000_000 * 10**8))
        price = Decimal(draw.randrange(-(10**10) + 1, 10**10)).scaleb(-2)
        free = Decimal(draw.randrange(-(10**20), 10**20)).scaleb(-draw.randrange(25))
        text = draw.choice(["", "O''Hara", "日本 🚀", 'a "b" \\ c', "x" * 3000])
        values = [
            f"'{text}'", f"{price:f}", f"{free:f}", f"'{moment.date()}'", f"'{moment}'",
            f"'{moment}+00'", f"'{moment.time()}'", str(draw.random() < 0.5), f"'{json.dumps({'k': key})}'",
            f"decode('{draw.randbytes(5).hex()}', 'hex')", f"ARRAY['a', '{key}', NULL]",
            f"'{draw.getrandbits(128):032x}'", str(draw.randrange(-1000, 1000) / 8),
            repr(draw.random()), str(draw.randrange(-(2**15), 2**15)),
        ]  # fmt: skip
        kept = [values[0], *(value if draw.random() < 0.9 else "NULL" for value in values[1:])]
        return ", ".join([str(key), *kept])

    def rows(self) -> dict[int, dict[str, Any]]:
        """What there is now, by id."""
        lines = self.sql("SET TimeZone = 'UTC'; SELECT to_json(o) FROM orders o").splitlines()
        found = [values(json.loads(line, parse_float=Decimal)) for line in lines]
        return {row["id"]: row for row in found}


@contextlib.contextmanager
def running(seed: int) -> Iterator[Postgres]:
    """A server with an empty table `orders`; skips where Debian's package is not installed."""
    binaries = programs()
    if binaries is None or shutil.which("psql") is None:
        pytest.skip("needs Debian's package postgresql")
    # The server refuses to be root, and its user must be able to go into the folder.
    folder = Path(tempfile.mkdtemp(prefix="roquette-postgres-", dir="/tmp"))
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    before = as_user if os.geteuid() == 0 else []
    try:
        if before:
            shutil.chown(folder, "postgres")
        (port,) = free_ports(1)
        data = folder / "data"
        make = [
            binaries / "initdb",
            "-D",
            data,
            "-U",
            "shop",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C.UTF-8",
        ]
        subprocess.run([*before, *make], check=True, capture_output=True, cwd=folder)
        words = [binaries / "postgres", "-D", data, "-p", port, "-k", folder, "-h", "127.0.0.1"]
        words += ["-c", "wal_level=logical", "-c", "fsync=off"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [*before, *map(str, words)], stdout=log, stderr=log, cwd=folder
            )
        try:
            asks = [binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
            assert wait_until(
                lambda: subprocess.run(asks, capture_output=True, check=False).returncode == 0, 60
            )
            found = Postgres(port, random.Random(seed))
            found.sql(TABLE)
            yield found
        finally:
            server.send_signal(signal.SIGQUIT)  # at once
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
