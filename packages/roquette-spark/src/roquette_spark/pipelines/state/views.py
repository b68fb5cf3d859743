"""One row per key for engines that read the table by its log: the text of views. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from roquette_spark.pipelines.state.change_rows import DELETED
from roquette_spark.pipelines.state.newest import ORDER

FOLDER = "_view"  # readers of Parquet skip names with "_"
_NEWEST = "_newest"


@dataclass(frozen=True, slots=True)
class StateView:
    """The view of one table.

    Attributes:
        root: address of the table.
        columns: of the table; the view has all but `deleted`.
        key: the columns that are the key.
    """

    root: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @classmethod
    def of_schema(cls, root: str, schema: str, key: Sequence[str]) -> "StateView":
        """`schema` is Spark's JSON of the table's columns."""
        names = tuple(field["name"] for field in json.loads(schema)["fields"])
        return cls(root, names, tuple(key))

    def shown(self) -> list[str]:
        """The view's columns."""
        return [name for name in self.columns if name != DELETED]

    def files(self) -> dict[str, str]:
        """What users are given, by the name of the file."""
        return {
            "duckdb.sql": f"CREATE OR REPLACE VIEW current_state AS\n{self.duckdb()};\n",
            "spark.sql": f"CREATE OR REPLACE TEMPORARY VIEW current_state AS\n{self.spark()};\n",
            "polars.py": f"import polars as pl\n\n{self.polars()}",
        }

    def duckdb(self, source: str = "") -> str:
        """A query. `source` is what stands for the table, default is delta_scan of its address."""
        quoted = self.root.replace("'", "''")
        return self._query('"', source or f"delta_scan('{quoted}')")

    def spark(self, source: str = "") -> str:
        """A query. `source` is what stands for the table, default is Delta by its address."""
        return self._query("`", source or f"delta.{_quoted(self.root, '`')}")

    def polars(self, source: str = "") -> str:
        """Code that makes the LazyFrame `current_state`. `source` is an expression, default is scan_delta."""
        return (
            f"changes = {source or f'pl.scan_delta({self.root!r})'}\n"
            f"order = {list(ORDER)!r}\n"
            "newest_first = changes.sort(order, descending=True, nulls_last=True)\n"
            f"newest = newest_first.unique(subset={list(self.key)!r}, keep='first', maintain_order=True)\n"
            f"current_state = newest.filter(~pl.col({DELETED!r})).select({self.shown()!r})\n"
        )

    def _query(self, quote: str, source: str) -> str:
        def names(found: Sequence[str], after: str = "") -> str:
            return ", ".join(_quoted(name, quote) + after for name in found)

        return (
            f"SELECT {names(self.shown())}\n"
            f"FROM (SELECT *, row_number() OVER (PARTITION BY {names(self.key)}\n"
            f"        ORDER BY {names(ORDER, ' DESC NULLS LAST')}) AS {_NEWEST}\n"
            f"      FROM {source}) AS changes\n"
            f"WHERE {_NEWEST} = 1 AND NOT {_quoted(DELETED, quote)}"
        )


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote
