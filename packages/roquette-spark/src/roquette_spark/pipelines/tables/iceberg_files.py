"""Our data files as Iceberg's and back: partition values, and what is known of the columns."""

import json
from datetime import date, timedelta
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
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

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
    values = [
        _partition_value(schema.find_type(field.source_id), given.get(field.name))
        for field in spec.fields
    ]
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
        (field.name, _partition_text(schema.find_type(field.source_id), found.partition[place]))
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


def _partition_value(kind: types.PrimitiveType, text: str | None) -> Any:
    """As Iceberg counts: days and microseconds since 1970."""
    if text is None:
        return None
    return StringLiteral(text).to(kind).value


def _partition_text(kind: types.IcebergType, value: Any) -> str | None:
    is_day = isinstance(kind, types.DateType) and value is not None
    return partition_text(_EPOCH_DAY + timedelta(days=value) if is_day else value)
