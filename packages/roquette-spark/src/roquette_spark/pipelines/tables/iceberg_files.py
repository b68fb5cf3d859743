"""Files of a table of Iceberg: ours as its manifests say them and back, and which of them its snapshots have."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types
from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.io.pyarrow import (
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import HourTransform, IdentityTransform
from pyiceberg.typedef import Record

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import DataFile, partition_text

_EPOCH_DAY = date(1970, 1, 1)
_TEXT_BOUNDS = (types.StringType, types.DateType, types.TimestampType, types.TimestamptzType)
# Not integer, not float: once such a column is widened, pyiceberg 0.11 takes a bound of four bytes for one of eight and
# cannot plan a scan with a filter on it.
_BOUNDED = (*_TEXT_BOUNDS, types.LongType, types.DoubleType, types.DecimalType)


def to_iceberg(
    file: DataFile, address: str, metadata: TableMetadata, footer: pq.FileMetaData
) -> IcebergFile:
    """Return what the table's manifest says of a file.

    Args:
        address: the file's whole address.
        footer: of the Parquet file.

    Raises:
        PipelineError: the columns of the file are not the table's.
    """
    known = _metrics_of_footer(file, metadata, footer)
    spec, schema = metadata.spec(), metadata.schema()
    given = dict(file.partition)
    values = [_partition_value(field, schema, given.get(field.name)) for field in spec.fields]
    made = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=address,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **known,
    )
    made.spec_id = spec.spec_id
    return made


def from_iceberg(
    found: IcebergFile, path: str, metadata: TableMetadata, modified_ms: int
) -> DataFile:
    """The inverse, under a path that is relative to the table."""
    spec, schema = metadata.specs()[found.spec_id], metadata.schema()
    partition = [
        (field.name, _partition_text(field, schema, found.partition[place]))
        for place, field in enumerate(spec.fields)
    ]
    return DataFile(
        path=path,
        size=found.file_size_in_bytes,
        rows=found.record_count,
        modified_ms=modified_ms,
        partition=tuple(sorted(partition)),
        stats=_stats_of_metrics(found, schema),
    )


def _metrics_of_footer(
    file: DataFile, metadata: TableMetadata, footer: pq.FileMetaData
) -> dict[str, Any]:
    schema = metadata.schema()
    if footer.num_rows != file.rows:
        raise PipelineError(f"{file.path} has {footer.num_rows} rows, {file.rows} were written")
    try:
        _check_pyarrow_schema_compatible(schema, _whole_columns(schema, footer))
        found: dict[str, Any] = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        ).to_serialized_dict()
    except (KeyError, ValueError) as error:
        raise PipelineError(
            f"{file.path} has other columns than its table: nothing was changed ({error})"
        ) from None
    for key in ("lower_bounds", "upper_bounds"):
        found[key] = {
            number: bound
            for number, bound in found[key].items()
            if isinstance(schema.find_type(number), _BOUNDED)
        }
    return found


def _whole_columns(schema: Schema, footer: pq.FileMetaData) -> pa.Schema:
    """Of the file, without the ids that it may carry: the check goes by names."""
    found = footer.schema.to_arrow_schema()
    return pa.schema([field.remove_metadata() for field in found])


def _stats_of_metrics(found: IcebergFile, schema: Schema) -> str:
    """How many nulls there are; columns within structs are left out."""
    counts = found.null_value_counts or {}
    nulls = {f.name: counts[f.field_id] for f in schema.fields if f.field_id in counts}
    return json.dumps({"numRecords": found.record_count, "nullCount": nulls}, separators=(",", ":"))


def _partition_value(field: PartitionField, schema: Schema, text: str | None) -> Any:
    """As Iceberg counts: days, hours and microseconds since 1970."""
    if text is None:
        return None
    if isinstance(field.transform, HourTransform):
        return (datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(hours=1)
    kind = field.transform.result_type(schema.find_type(field.source_id))
    return StringLiteral(text).to(kind).value


def _partition_text(field: PartitionField, schema: Schema, value: Any) -> str | None:
    kind = schema.find_type(field.source_id)
    if value is not None and not isinstance(field.transform, IdentityTransform):
        return str(field.transform.to_human_string(kind, value))
    is_day = isinstance(kind, types.DateType) and value is not None
    return partition_text(_EPOCH_DAY + timedelta(days=value) if is_day else value)


# History of a table, as its snapshots have it: files of data and of metadata, what was replaced, what may expire.


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


def files_of(table: Any, snapshot_id: int | None = None) -> dict[str, tuple[IcebergFile, int]]:
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
