"""The log of a table: which Parquet files are the table now. Pure: text in, values out.

The form is Delta Lake's transaction log (reader version 1, writer version 2): numbered JSON files of actions in
`_delta_log`, so that every Delta reader sees our tables as Delta tables, and no library is needed to write
them. A number can be taken once; that is what makes a commit atomic. docs/decisions/0013 says why.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from roquette.pipelines.kit.table_values import Commit, DataFile, Snapshot, TableCorrupt

LOG_FOLDER = "_delta_log"
_SAFE = "/=-_.~:+,@"  # in names


def entry_name(version: int) -> str:
    """The file of a version in the log's folder."""
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    """The file that sums up all versions up to this one."""
    return f"{version:020}.checkpoint.parquet"


def version_of(name: str, suffix: str) -> int | None:
    """The version of a file name with that suffix; None for other files."""
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdigit() else None


def encode_creation(
    schema: str,
    partitioned_by: Sequence[str],
    settings: Mapping[str, str],
    *,
    table_id: str,
    now_ms: int,
) -> bytes:
    """Version 0: the table exists, with no rows."""
    return _lines(
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "CREATE TABLE",
                "engineInfo": "Roquette",
            }
        },
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": _metadata(schema, partitioned_by, settings, table_id, now_ms)},
    )


def _metadata(
    schema: str,
    partitioned_by: Sequence[str],
    settings: Mapping[str, str],
    table_id: str,
    created_ms: int,
) -> dict[str, Any]:
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": list(partitioned_by),
        "configuration": dict(settings),
        "createdTime": created_ms,
    }


def encode_widening(
    snapshot: Snapshot, schema: str, settings: Mapping[str, str], *, now_ms: int
) -> bytes:
    """A version with other columns and settings and the same rows: the files there are lack the new columns."""
    info = {"timestamp": now_ms, "operation": "ADD COLUMNS", "engineInfo": "Roquette"}
    there = snapshot
    metadata = _metadata(schema, there.partitioned_by, settings, there.table_id, there.created_ms)
    return _lines({"commitInfo": info}, {"metaData": metadata})


def encode_commit(commit: Commit, *, operation: str, now_ms: int) -> bytes:
    """The JSON lines of one version."""
    info = {"timestamp": now_ms, "operation": operation, "engineInfo": "Roquette", **commit.info}
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    if commit.batch is not None:
        stream, number = commit.batch
        actions.append({"txn": {"appId": stream, "version": number, "lastUpdated": now_ms}})
    actions += [{"remove": _remove(file, now_ms, commit.data_change)} for file in commit.removes]
    actions += [{"add": _add(file, commit.data_change)} for file in commit.adds]
    return _lines(*actions)


def _add(file: DataFile, data_change: bool) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe=_SAFE),
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": data_change,
        "stats": file.stats or json.dumps({"numRecords": file.rows}),
    }


def _remove(file: DataFile, now_ms: int, data_change: bool) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe=_SAFE),
        "deletionTimestamp": now_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size,
    }


def _lines(*actions: Mapping[str, Any]) -> bytes:
    return b"".join(
        json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions
    )


def replay(snapshot: Snapshot, version: int, data: bytes) -> Snapshot:
    """The snapshot after one more entry.

    Raises:
        TableCorrupt: the entry is not readable, or asks for what we do not know.
    """
    try:
        actions = [json.loads(line) for line in data.decode().splitlines() if line.strip()]
    except ValueError as error:
        raise TableCorrupt(f"{LOG_FOLDER}/{entry_name(version)} is malformed: {error}") from None
    return replace(apply(snapshot, actions), version=version)


def apply(snapshot: Snapshot, actions: Iterable[Mapping[str, Any]]) -> Snapshot:
    """The snapshot after actions, which come from an entry or from a checkpoint."""
    files, removed = dict(snapshot.files), dict(snapshot.removed)
    batches, changes = dict(snapshot.batches), dict[str, Any]()
    for action in actions:
        if action.get("add"):
            file = _file_of(action["add"])
            files[file.path] = file
            removed.pop(file.path, None)
        elif action.get("remove"):
            path = unquote(action["remove"]["path"])
            files.pop(path, None)
            removed[path] = int(action["remove"].get("deletionTimestamp") or 0)
        elif action.get("txn"):
            batches[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif action.get("metaData"):
            changes |= _metadata_changes(action["metaData"])
        elif action.get("protocol") and int(action["protocol"]["minReaderVersion"]) > 1:
            raise TableCorrupt(
                "the table needs a newer Delta reader: another program has upgraded it "
                f"(minReaderVersion {action['protocol']['minReaderVersion']})"
            )
    return replace(snapshot, files=files, removed=removed, batches=batches, **changes)


def _metadata_changes(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema": str(found["schemaString"]),
        "partitioned_by": tuple(found["partitionColumns"]),
        "settings": dict(found.get("configuration") or {}),
        "table_id": str(found["id"]),
        "created_ms": int(found.get("createdTime") or 0),
    }


def _file_of(add: Mapping[str, Any]) -> DataFile:
    text = add.get("stats") or "{}"
    return DataFile(
        path=unquote(add["path"]),
        size=int(add["size"]),
        rows=int(json.loads(text).get("numRecords", 0)),
        modified_ms=int(add["modificationTime"]),
        partition=tuple(sorted(dict(add.get("partitionValues") or {}).items())),
        stats=text,
    )


def checkpoint_actions(snapshot: Snapshot, *, removed_since_ms: int) -> list[dict[str, Any]]:
    """What a checkpoint of this snapshot holds; older removals are forgotten."""
    metadata = _metadata(
        snapshot.schema,
        snapshot.partitioned_by,
        snapshot.settings,
        snapshot.table_id,
        snapshot.created_ms,
    )
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    actions += [
        {"txn": {"appId": stream, "version": number}} for stream, number in snapshot.batches.items()
    ]
    actions += [{"add": _add(file, False)} for file in snapshot.files.values()]
    actions += [
        {
            "remove": {
                "path": quote(path, safe=_SAFE),
                "deletionTimestamp": at,
                "dataChange": False,
            }
        }
        for path, at in snapshot.removed.items()
        if at >= removed_since_ms
    ]
    return actions
