"""Where readers find one row per key without a view: the newest version that is one folder of Parquet files."""

import json
from dataclasses import dataclass
from datetime import datetime

from roquette_spark.pipelines.kit.table_values import DataFile, Snapshot
from roquette_spark.pipelines.state.bucket_files import STORED, Changed
from roquette_spark.pipelines.state.buckets import base_folder
from roquette_spark.pipelines.state.change_rows import DELETED
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_place import own_names
from roquette_spark.pipelines.tables.table_writer import TableWriter

POINTER = "CURRENT"  # the file
POINTED = "current"  # in the commits of batches


@dataclass(frozen=True, slots=True)
class Pointer:
    """What the file CURRENT says.

    Attributes:
        version: of the table's log.
        snapshot: the folder; "" while there are no rows.
        rows: that are not deleted.
    """

    version: int = 0
    snapshot: str = ""
    rows: int = 0

    @classmethod
    def of_files(cls, version: int, files: list[DataFile]) -> "Pointer | None":
        """None if they are not one folder, or there are changes."""
        folders = {base_folder(file.path) for file in files}
        if len(folders) > 1 or "" in folders:
            return None
        rows = sum(file.rows for file in files if dict(file.partition).get(DELETED) != "true")
        return cls(version, min(folders, default=""), rows)

    @classmethod
    def of_table(cls, table: TableWriter) -> "Pointer":
        """By its log."""
        there = table.snapshot
        found = cls.of_files(there.version, list(there.files.values()))
        if found is None:
            kept = table.last_info(POINTED)
            found = cls() if kept is None else cls(**json.loads(kept))
        return found

    def after(self, there: Snapshot, changed: Changed) -> "Pointer":
        """Of the version that a batch makes."""
        gone = {file.path for file in changed.removes}
        files = [file for path, file in there.files.items() if path not in gone]
        return Pointer.of_files(there.version + 1, [*files, *changed.adds]) or self

    def encode(self) -> str:
        """JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


def pin(table: TableWriter, pointer: Pointer) -> None:
    """Files of the pointer's folder stay."""
    assert isinstance(table, Table), table
    table.pinned = pointer.snapshot


def remove_strays(table: TableWriter, folder: str) -> None:
    """Files of tasks that failed go from a folder that readers are led to: no commit names them, nor ever will."""
    there = table.snapshot
    ours = own_names(there.partitioned_by)
    for file in table.files.list_tree(folder) if folder else ():
        known = file.path in there.files or file.path in there.removed
        if not known and ours.fullmatch(file.path):
            table.files.remove(file.path)


def newest_stored(there: Snapshot) -> datetime | None:
    """When the broker stored the newest change that a table has; None if no file says it."""
    found = [
        (json.loads(file.stats or "{}").get("maxValues") or {}).get(STORED)
        for file in there.files.values()
    ]
    return max((datetime.fromisoformat(text) for text in found if text), default=None)
