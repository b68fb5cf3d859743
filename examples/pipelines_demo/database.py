"""A table of PostgreSQL into a topic, from there into tables, and a query over them: at each end what the database has."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from examples.demo.flights import Flight
from examples.demo.servers import DemoError
from examples.pipelines_demo import postgres
from examples.pipelines_demo.run import Run, check, is_cancelled

from roquette_spark.local.jdk import find_java_home

ROWS = 3_000  # flights that the database has in the end, but for those it deletes
FROM_DATABASE = "shop-public-departures"  # topic.prefix, schema and table
_TABLE = """CREATE TABLE departures (id bigint PRIMARY KEY, carrier text NOT NULL, tailnum text, delay numeric(8,2),
day date NOT NULL, at timestamptz)"""


def missing() -> str:
    """What this part needs and is not there; "": nothing."""
    lacks = []
    if postgres.programs() is None:
        lacks.append("PostgreSQL (apt-get install postgresql)")
    if find_java_home(os.environ) is None:
        lacks.append("Java 17 or 21 (apt-get install openjdk-17-jdk-headless)")
    return " and ".join(lacks)


def from_a_database(run: Run) -> bool:
    """Rows, changes and deletions of a database: PostgreSQL -> topic -> Delta and Iceberg, the current state -> DuckDB.

    Returns:
        False when it was left out, since what it needs is not there. Raises DemoError for that in CI.
    """
    if lacks := missing():
        words = f"A DATABASE'S WAY TO ITS TABLES IS LEFT OUT: THERE IS NO {lacks}"
        if os.environ.get("CI"):
            raise DemoError(words)
        print(f"\n{words}")
        return False
    with postgres.running() as database:
        _way(run, database)
    return True


def _way(run: Run, database: postgres.Postgres) -> None:
    flights = run.flights[:ROWS]
    first, new = flights[: ROWS * 3 // 5], flights[ROWS * 3 // 5 :]
    print(f"\na PostgreSQL of our own gets a table of {len(first):,} flights", flush=True)
    database.sql(_TABLE + ";\n" + "\n".join(map(_insert, first)))
    settings = run.directory / "shop.properties"
    settings.write_text(database.properties("demo"))
    words = ["--debezium", str(settings), "--idle", "3s"]
    found = run.pipeline("ingest", *words, report="ingest-rows")
    check("rows of the database in the topic", found["topics"], {FROM_DATABASE: len(first)})

    gone = [flight["id"] for flight in flights if is_cancelled(flight)]
    late = {flight["id"] for flight in flights if flight["carrier"] == "UA"} - set(gone)
    print(
        f"\n{len(new):,} flights come, {len(gone):,} cancelled ones go, {len(late):,} change",
        flush=True,
    )
    database.sql("\n".join(map(_insert, new)))
    database.sql(f"DELETE FROM departures WHERE id IN ({_listed(gone)});")
    database.sql(
        f"UPDATE departures SET delay = delay + 0.25, tailnum = NULL WHERE id IN ({_listed(late)});"
    )
    changes = len(new) + len(gone) + len(late)
    found = run.pipeline("ingest", *words, report="ingest-changes")
    check("new rows, changes and deletions", found["topics"], {FROM_DATABASE: changes})

    lake = ["--topics", FROM_DATABASE, "--format", "connect"]
    for form in ("delta", "iceberg"):
        to = ["--to", str(run.directory / f"database-{form}"), "--table-format", form]
        found = run.pipeline("archive", *lake, *to, report=f"archive-{form}")
        topic = found["topics"][FROM_DATABASE]
        check(
            f"events in {form}",
            (topic["rows"], topic["missing"], topic["twice"]),
            (len(first) + changes, 0, 0),
        )

    state = run.directory / "database-state"
    words = ["--topic", FROM_DATABASE, "--to", str(state), "--key", "id"]
    words += ["--envelope", "debezium", "--version", "source.lsn"]
    run.pipeline("current-state", *words, report="current-state-database")
    wanted = database.sql("SELECT to_json(d) FROM departures d ORDER BY id").splitlines()
    check(
        "rows of the current state, by DuckDB, with PostgreSQL's",
        _queried(state),
        list(map(_plain, wanted)),
    )


def _insert(flight: Flight) -> str:
    def text(name: str) -> str:
        value = flight[name]
        return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"

    day = f"'{flight['year']:04}-{flight['month']:02}-{flight['day']:02}'"
    delay = flight["dep_delay"]
    moment = f"{day}::timestamptz + interval '{flight['sched_dep_time']} minutes'"
    values = [
        str(flight["id"]),
        text("carrier"),
        text("tailnum"),
        "NULL" if delay is None else str(delay),
        day,
        moment,
    ]
    return f"INSERT INTO departures VALUES ({', '.join(values)});"


def _listed(ids: Iterable[Any]) -> str:
    return ", ".join(map(str, ids)) or "NULL"


def _plain(line: str) -> tuple[Any, ...]:
    row = json.loads(line)
    return (
        row["id"],
        row["carrier"],
        row["tailnum"],
        None if row["delay"] is None else float(row["delay"]),
        row["day"],
    )


def _queried(state: Path) -> list[tuple[Any, ...]]:
    """The view that `current-state` writes for DuckDB, over the table's files."""
    import duckdb

    view = (state / "_view" / "duckdb.sql").read_text()
    select = (
        view[view.index("SELECT") :]
        .rstrip()
        .rstrip(";")
        .replace(f"delta_scan('{state}')", "changes")
    )
    from deltalake import DeltaTable

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("changes", DeltaTable(str(state)).to_pyarrow_table())
        text = f"SELECT id, carrier, tailnum, delay::double, day::text FROM ({select}) ORDER BY id"
        return connection.execute(text).fetchall()
