"""Other engines beside us on one table, in turns at random: rows are equal by every reader, or something is refused in words."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest
from tests.pipelines.kit import test_iceberg_table as iceberg
from tests.pipelines.kit.other_engines import actions, delete_by_file, delete_by_vector
from tests.pipelines.kit.test_table import OWNER, SETTINGS, STREAM, SetClock, column, schema_of

from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import Commit
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.table import Table

TURNS = 12
DAYS = [date(2013, 1, 1), date(2013, 1, 2), None]
SCHEMA = schema_of("long", column("v", "string"))
ARROW = pa.schema([("n", pa.int64()), ("dt", pa.date32()), ("v", pa.string())])
Rows = dict[int, str | None]


class Turns:
    """One table and what is to be in it.

    Attributes:
        wanted: value by number, of all rows.
        done: how often each engine did what.
    """

    table: Table

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.wanted: Rows = {}
        self.done: Counter[str] = Counter()
        self._next = self._batch = 0
        self._inside = False
        self.told: list[str] = []

    # What we do. Others may come between files and their commit.

    def our_batch(self) -> None:
        rows = self.new_rows()
        out = ParquetFiles(
            self.table.files, f"batch-{self._batch:010}-x", rows.schema, ("dt",), whole=self.whole
        )
        out.write(rows)
        commit = Commit(adds=out.close(), batch=(STREAM, self._batch), blind=True)
        self._batch += 1
        self.table.commit(commit, "STREAMING UPDATE")
        self.expect(rows)

    def our_compaction(self) -> None:
        self.table.compact(target_bytes=1 << 20, at_least=2)

    def our_clean_up(self) -> None:
        self.clock_ahead()
        self.table.vacuum(keep_ms=60_000)

    def our_restart(self) -> None:
        self.table.close()
        self.open()
        assert self.table.done(STREAM) == self._batch - 1

    def turn(self) -> None:
        """Somebody does something; then everybody reads."""
        ours = (self.our_batch, self.our_compaction, self.our_clean_up, self.our_restart)
        act = self.random.choice([*ours, *self.others(), self.our_batch, self.our_compaction])
        try:
            act()
            self.done[act.__name__] += 1
        except (PipelineError, ConfigError) as error:
            self.told.append(str(error))
            self.done[f"{act.__name__} refused"] += 1
            self.our_restart_after_refusal()
        self.check()

    def our_restart_after_refusal(self) -> None:
        self.table.close()
        self.open()
        self._batch = self.table.done(STREAM) + 1

    def between(self, write: Callable[..., None]) -> Callable[..., None]:
        """The commit, before which another engine may come."""

        def written(*given: Any) -> None:
            if not self._inside and self.random.random() < 0.5:
                self._inside = True
                act = self.random.choice(self.others())
                act()
                self.done[f"{act.__name__} before a commit"] += 1
                self._inside = False
            write(*given)

        return written

    def new_rows(self) -> pa.Table:
        numbers = range(self._next, self._next + self.random.randrange(1, 20))
        self._next = numbers.stop
        days = [self.random.choice(self.days) for _ in numbers]
        values = [self.random.choice(["a", "b", None]) for _ in numbers]
        return self.rows_of(list(numbers), days, values)

    def expect(self, rows: pa.Table) -> None:
        self.wanted |= dict(zip(rows["n"].to_pylist(), rows[self.value].to_pylist(), strict=True))

    def chosen(self) -> list[int]:
        some = self.random.sample(sorted(self.wanted), self.random.randrange(len(self.wanted) + 1))
        return some[:8]

    def check(self) -> None:
        for name, found in self.readings().items():
            assert len(found) == len({n for n, _ in found}), (name, self.done)
            assert dict(found) == self.wanted, (name, self.done)

    def our_reading(self) -> list[tuple[int, str | None]]:
        self.table.reload()
        found = []
        for rows in self.table.rows_of(self.table.snapshot.files.values()).values():
            for some in rows():
                found += zip(some["n"].to_pylist(), some[self.value].to_pylist(), strict=True)
        return found

    rule: Any
    value: str
    days: Any

    def rows_of(self, numbers: list[int], days: list[Any], values: list[Any]) -> pa.Table:
        raise NotImplementedError

    def others(self) -> list[Callable[[], None]]:
        raise NotImplementedError

    def readings(self) -> dict[str, list[tuple[int, str | None]]]:
        raise NotImplementedError

    def clock_ahead(self) -> None:
        raise NotImplementedError

    def open(self) -> None:
        raise NotImplementedError


class DeltaTurns(Turns):
    """With delta-rs and, by its words in the log, Spark; read by Polars and DuckDB, too."""

    value, days = "v", DAYS

    def __init__(self, root: Path, seed: int) -> None:

        super().__init__(root, seed)
        self.whole = False
        self.clock = SetClock()
        self.clock.ms = SystemClock().now_ms()
        self.open()

    def open(self) -> None:
        table = open_table(str(self.root), clock=self.clock, entropy=Entropy(self.random.random()))
        table.claim(OWNER)
        table.clean()
        if table.snapshot.version < 0:
            table.create(SCHEMA, ("dt",), SETTINGS)
        table.write = self.between(table.write)  # type: ignore[method-assign]
        self.table = table

    def clock_ahead(self) -> None:
        self.clock.ms += 120_000

    def rows_of(self, numbers: list[int], days: list[Any], values: list[Any]) -> pa.Table:
        return pa.table({"n": numbers, "dt": days, "v": values}, schema=ARROW)

    @property
    def peer(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.root)

    def others(self) -> list[Callable[[], None]]:
        found = [self.append, self.delete, self.merge, self.optimize, self.vacuum]
        return [*found, self.vector, self.vector]

    def append(self) -> None:
        rows = self.new_rows()
        deltalake.write_deltalake(self.root, rows, mode="append")
        self.expect(rows)

    def delete(self) -> None:
        gone = self.chosen()
        if gone:
            self.peer.delete(f"n in ({', '.join(map(str, gone))})")
        for n in gone:
            del self.wanted[n]

    def merge(self) -> None:
        numbers = self.chosen()
        more = self.new_rows()
        changed = self.rows_of(numbers, [DAYS[0]] * len(numbers), ["m"] * len(numbers))
        source = pa.concat_tables([changed, more])
        merger = self.peer.merge(source, "s.n = t.n", source_alias="s", target_alias="t")
        merger.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute()
        self.expect(source)

    def optimize(self) -> None:
        self.peer.optimize.compact()

    def vacuum(self) -> None:
        """Within a commit of ours it would remove the files that are about to count, as full vacuums do: never at 0 hours."""
        self.peer.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def vector(self) -> None:
        """As Spark deletes."""
        live = pa.table(self.peer.get_add_actions()).to_pylist()
        if not live:
            return
        path = self.random.choice(sorted(each["path"] for each in live))
        added = [a["add"] for a in actions(self.root) if "add" in a and a["add"]["path"] == path]
        gone = self.places.setdefault(path, set()) if added[-1].get("deletionVector") else set()
        rows = deltalake_rows(self.root, path)
        gone |= {self.random.randrange(len(rows)) for _ in range(3)}
        self.places[path] = gone
        if len(gone) < len(rows):
            delete_by_vector(self.root, path, sorted(gone))
            for place in gone:
                self.wanted.pop(rows[place], None)

    @property
    def places(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = self.__dict__.setdefault("_places", {})
        return found

    def readings(self) -> dict[str, list[tuple[int, str | None]]]:
        by_delta = pa.table(self.peer.scan(columns=["n", "v"]))
        with duckdb.connect() as connection:
            connection.register("t", by_delta)
            by_duckdb = connection.execute("SELECT n, v FROM t").fetchall()
        return {
            "delta-rs": list(
                zip(by_delta["n"].to_pylist(), by_delta["v"].to_pylist(), strict=True)
            ),
            "DuckDB": by_duckdb,
            "Polars": polars.scan_delta(str(self.root)).select("n", "v").collect().rows(),
            "ours": self.our_reading(),
        }


def deltalake_rows(root: Path, path: str) -> list[int]:
    """The numbers in a file, deleted ones among them."""
    from urllib.parse import unquote

    import pyarrow.parquet as pq

    found: list[int] = pq.ParquetFile(root / unquote(path)).read(columns=["n"])["n"].to_pylist()
    return found


class IcebergTurns(Turns):
    """With pyiceberg and, by its words in the metadata, an engine that merges on read; read by DuckDB and Polars, too."""

    value, days = "word", DAYS[:2]

    def __init__(self, root: Path, seed: int) -> None:

        super().__init__(root, seed)
        self.whole = True
        self.clock = iceberg.SetClock()
        self.positions = False
        self.open()

    def open(self) -> None:
        table = iceberg.new_table(self.root, self.clock, self.random.randrange(1 << 30))
        table.write = self.between(table.write)  # type: ignore[method-assign]
        self.table = table

    def clock_ahead(self) -> None:
        self.clock.ahead_ms += 120_000

    def rows_of(self, numbers: list[int], days: list[Any], values: list[Any]) -> pa.Table:
        columns = {
            "n": numbers,
            "word": values,
            "at": [None] * len(numbers),
            "tags": [["x"]] * len(numbers),
            "dt": days,
        }
        return pa.table(columns, schema=iceberg.ARROW)

    @property
    def peer(self) -> Any:
        return iceberg.peer(self.root)

    def others(self) -> list[Callable[[], None]]:
        return [self.append, self.delete, self.rewrite, self.position_deletes]

    def append(self) -> None:
        rows = self.new_rows()
        self.peer.append(rows.cast(self.peer.schema().as_arrow()))
        self.expect(rows)

    def delete(self) -> None:
        gone = self.chosen()
        if gone:
            from pyiceberg.expressions import In

            self.peer.delete(In("n", gone))
        for n in gone:
            del self.wanted[n]

    def rewrite(self) -> None:
        """All files into one a day, as others' compaction."""
        peer = self.peer
        peer.overwrite(peer.scan().to_arrow())

    def position_deletes(self) -> None:
        """Some rows of a file; seldom, since we leave such a table's files alone from then on."""
        files = [each.file.file_path for each in self.peer.scan().plan_files()]
        if not files or self.random.random() < 0.7:
            return
        path = self.random.choice(sorted(files))
        rows = deltalake_rows(Path("/"), path.removeprefix("file:///"))
        places = sorted({self.random.randrange(len(rows)) for _ in range(3)})
        delete_by_file(self.peer, path, places)
        for place in places:
            self.wanted.pop(rows[place], None)

    def readings(self) -> dict[str, list[tuple[int, str | None]]]:
        by_iceberg = self.peer.scan(selected_fields=("n", "word")).to_arrow()
        with duckdb.connect() as connection:
            connection.register("t", by_iceberg)
            by_duckdb = connection.execute("SELECT n, word FROM t").fetchall()
        pairs = zip(by_iceberg["n"].to_pylist(), by_iceberg["word"].to_pylist(), strict=True)
        return {"pyiceberg": list(pairs), "DuckDB": by_duckdb, "ours": self.our_reading()}


def play(kind: type[Turns], folder: Path, seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        turns = kind(folder / f"t{seed}", seed)
        try:
            for _ in range(TURNS):
                turns.turn()
        finally:
            turns.table.close()
        total += turns.done
        assert all(str(turns.root) in each for each in turns.told), turns.told
    return total


@pytest.mark.parametrize("kind", [DeltaTurns, IcebergTurns])
def test_a_few_rounds_in_turns(kind: type[Turns], tmp_path: Path) -> None:
    done = play(kind, tmp_path, range(4))

    assert done["our_batch"] and done["our_compaction"]
    assert any(name.endswith("before a commit") for name in done)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [DeltaTurns, IcebergTurns])
def test_two_hundred_rounds_in_turns(kind: type[Turns], tmp_path: Path) -> None:
    done = play(kind, tmp_path, range(100, 300))

    print(dict(done))
    refused = sum(count for name, count in done.items() if name.endswith("refused"))
    assert refused < done.total() / 10
