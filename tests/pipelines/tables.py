"""What a table has, read by pyarrow alone: no line of ours or of Spark's between."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from roquette_spark.pipelines.kit.table_files import HIVE_NULL, DataFile
from roquette_spark.pipelines.tables.table import Table

Place = tuple[str, int, int]  # broker, queue, offset


def log_files(root: Path) -> list[Path]:
    """The live files by the log's own words: adds without removes, all versions from 0."""
    live: dict[str, None] = {}
    entries = sorted((root / "_delta_log").glob("*.json"))
    assert [int(entry.stem) for entry in entries] == list(range(len(entries)))
    for entry in entries:
        for (
            line
        ) in entry.read_bytes().splitlines():  # a text would be cut at U+2028 within a value, too
            action = json.loads(line)
            if "add" in action:
                assert unquote(action["add"]["path"]) not in live
                live[unquote(action["add"]["path"])] = None
            elif "remove" in action:
                del live[unquote(action["remove"]["path"])]
    return [root / path for path in live]


def folder_files(root: Path) -> list[Path]:
    """The files that a reader of plain folders sees."""
    return sorted(
        path
        for path in root.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    )


def rows(files: list[Path]) -> list[dict[str, Any]]:
    """All rows, without the partition's column."""
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def places(found: list[dict[str, Any]]) -> list[Place]:
    """Where each row was in the topic, sorted."""
    prefix = "" if not found or "queue_id" in found[0] else "_"
    names = ("broker_name", "queue_id", "queue_offset")
    return sorted(tuple(row[prefix + name] for name in names) for row in found)


def partition_of(path: str) -> tuple[tuple[str, str | None], ...]:
    """The values in the folders of a path such as "day=2013-01-01/x.parquet"."""
    pairs = [folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder]
    return tuple(sorted((name, None if v == HIVE_NULL else unquote(v)) for name, _, v in pairs))


def publish(table: Table, staging: str, prefix: str) -> list[DataFile]:
    """The Parquet files that a job has written below a folder as files of the table: they count once committed."""
    found, files = [], table.files
    written = sorted(each.path for each in files.list_tree(staging))
    for number, path in enumerate(each for each in written if each.endswith(".parquet")):
        folders = path[len(staging) + 1 :].split("/")[:-1]
        target = "/".join([*folders, f"{prefix}-{number:05}.parquet"])
        with files.open_new(target) as stream:
            stream.write(files.read(path))
        (footer,), there = files.footers([target]), files.stat(target)
        partition, rows, at = partition_of(target), footer.num_rows, there.modified_ms
        found.append(DataFile(target, there.size, rows, at, partition, footer=footer))
    files.remove_tree(staging)
    return found
