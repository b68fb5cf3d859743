"""History of a table of Iceberg, as its snapshots have it: files of data and of metadata, what was replaced, what may expire."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus, ManifestFile

from roquette.errors import ConfigError

# What pyiceberg and Iceberg's own library name files of metadata.
METADATA_NAMES = re.compile(
    r"snap-\d+-\d+-[-0-9a-f]{36}\.avro|[-0-9a-f]{36}-m\d+\.avro|\d{5,}-[-0-9a-f]{36}\.metadata\.json"
)


def snapshot_at(table: Any, version: int) -> int | None:
    """The id of the snapshot that was the newest one at a version; None: there was none.

    Raises:
        ConfigError: it has expired.
    """
    older = [each for each in table.metadata.snapshots if each.sequence_number <= version]
    if not older and version > 0:
        raise ConfigError(f"{table.location()}: version {version} has expired")
    return max(older, key=lambda each: each.sequence_number).snapshot_id if older else None


def files_of(table: Any, snapshot_id: int | None = None) -> dict[str, tuple[DataFile, int]]:
    """By address: a file of a version, or of the newest, and when it came (ms; 0 if that snapshot has expired)."""
    snapshot = (
        table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    )
    if snapshot is None:
        return {}
    times = {each.snapshot_id: each.timestamp_ms for each in table.metadata.snapshots}
    return {
        entry.data_file.file_path: (entry.data_file, times.get(entry.snapshot_id, 0))
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def has_deletes(table: Any) -> bool:
    """Return True if rows were deleted by files of deletes: another program did that."""
    snapshot = table.current_snapshot()
    return snapshot is not None and any(
        manifest.content == ManifestContent.DELETES for manifest in snapshot.manifests(table.io)
    )


def removed_files(table: Any) -> dict[str, int]:
    """By address: when (ms) a snapshot that is still there took a file out of the table."""
    found: dict[str, int] = {}
    for snapshot in table.metadata.snapshots:
        if snapshot.summary is None or snapshot.summary.operation.value == "append":
            continue
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.status == ManifestEntryStatus.DELETED:
                    found[entry.data_file.file_path] = snapshot.timestamp_ms
    return found


def data_files(table: Any, snapshots: Iterable[Any]) -> set[str]:
    """The addresses that any of some snapshots reads."""
    return {
        entry.data_file.file_path
        for manifest in _manifests(table, snapshots)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def metadata_files(table: Any) -> set[str]:
    """The addresses of all files of metadata that the table knows."""
    metadata = table.metadata
    return (
        {table.metadata_location}
        | {each.metadata_file for each in metadata.metadata_log}
        | {each.manifest_list for each in metadata.snapshots}
        | {each.manifest_path for each in _manifests(table, metadata.snapshots)}
    )


def kept_snapshots(table: Any, before_ms: int, versions: int) -> list[Any]:
    """Those that were the newest one at that time or later, the newest `versions`, and those with a name (a branch, a tag)."""
    metadata = table.metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    ordered = sorted(metadata.snapshots, key=lambda each: each.sequence_number)
    nexts = [each.timestamp_ms for each in ordered[1:]]
    older = [
        each
        for place, (each, until) in enumerate(zip(ordered[:-1], nexts, strict=True))
        if until > before_ms or len(ordered) - place <= versions or each.snapshot_id in named
    ]
    return [*older, *ordered[-1:]]


def expire(table: Any, before_ms: int, versions: int) -> None:
    """Forget the other snapshots. No file goes by that."""
    kept = {each.snapshot_id for each in kept_snapshots(table, before_ms, versions)}
    gone = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in kept]
    if gone:
        table.maintenance.expire_snapshots().by_ids(gone).commit()


def _manifests(table: Any, snapshots: Iterable[Any]) -> Iterator[ManifestFile]:
    """Each once."""
    seen: set[str] = set()
    for snapshot in snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest
