"""A PostgreSQL whose rows, of all kinds, change at random."""

import contextlib
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from examples.pipelines_demo import postgres
from examples.pipelines_demo.postgres import Postgres
from tests.pipelines.processes import wait_until

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


@dataclass
class RandomPostgres(Postgres):
    """A running server with a table `orders`, whose rows change at random."""

    random: random.Random
    next_id: int = 1

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

    @contextlib.contextmanager
    def reader(self, slot: str) -> Iterator[None]:
        """Another reader of a slot, which keeps it from all others."""
        binaries = postgres.programs()
        assert binaries is not None
        words = f"-h 127.0.0.1 -p {self.port} -U {postgres.USER} -d postgres --slot {slot} --start -f /dev/null"
        words += " -o proto_version=1 -o publication_names=dbz_publication"
        with subprocess.Popen([binaries / "pg_recvlogical", *words.split()]) as process:
            try:
                # Whose it is: the one before may not be gone yet, and this one asks again each 5 s.
                asked = f"""SELECT application_name FROM pg_replication_slots, pg_stat_activity
                WHERE slot_name = '{slot}' AND pid = active_pid"""
                assert wait_until(lambda: self.sql(asked).strip() == "pg_recvlogical", 60)
                yield
            finally:
                process.kill()

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
def running(seed: int) -> Iterator[RandomPostgres]:
    """A server with an empty table `orders`; skips where Debian's package is not installed."""
    if postgres.programs() is None:
        pytest.skip("needs Debian's package postgresql")
    with postgres.running() as server:
        server.sql(TABLE)
        yield RandomPostgres(server.port, random.Random(seed))
