"""A table of Apache Iceberg, format 2, by pyiceberg: batches that count once, compaction, and cleaning up after a crash.

The number of a stream's newest batch is a property of the table, set in the same transaction as the batch's files. The
second of two writers from one version fails, and has changed nothing.
"""

import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFile, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.config import Config
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from roquette.base.clock import Clock, SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.message_rows import Transform
from roquette_spark.pipelines.kit.table_files import (
    Commit,
    DataFile,
    Overtaken,
    Snapshot,
    TableFiles,
)
from roquette_spark.pipelines.rows.hidden_parts import iceberg_transform, schema_of_arrow
from roquette_spark.pipelines.rows.parquet_files import Rows
from roquette_spark.pipelines.tables import iceberg_files as history
from roquette_spark.pipelines.tables.delta_table import arrow_schema
from roquette_spark.pipelines.tables.iceberg_files import from_iceberg, to_iceberg
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_place import (
    ADDRESS_FILE,
    CATALOG_FILE,
    OWN_FOLDER,
    CatalogAddress,
    Owner,
    own_names,
)

# Where a table of Iceberg is found: a catalog in a file beside it, or a server of catalogs.


NAME = "roquette"  # of the catalog; variables PYICEBERG_CATALOG__ROQUETTE__CREDENTIAL and so on belong to it
_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)


def check_root(root: str, address: CatalogAddress) -> None:
    """Raises ConfigError when no table of Iceberg can be there."""
    if "://" in root and not root.startswith("file://") and not address.uri:
        raise ConfigError(
            f"{root}: a table of Iceberg in an object store needs a catalog: give the address of a REST catalog, "
            "the name of one in pyiceberg's configuration, or a local directory"
        )
    if re.search(r"[?#]", root):
        raise ConfigError(f"{root}: Iceberg's addresses cannot have ? or #")


class TableCatalog:
    """The catalog of one table.

    Args:
        files: the folder of the table.
    """

    def __init__(self, files: TableFiles, address: CatalogAddress) -> None:
        self._files = files
        self.address = address
        name = _NOT_IN_NAMES.sub("_", files.root.rstrip("/").rpartition("/")[2])
        self.identifier = (*address.namespace.split("."), name)
        self._catalog: Any = None

    @property
    def shared(self) -> bool:
        """Return True if other machines may write to the table."""
        return bool(self.address.uri)

    @property
    def location(self) -> str:
        """The address of the table's folder, as Iceberg has it."""
        root = self._files.root
        if self._files.local:
            return f"file://{root}"
        return re.sub(r"^s3[an]://", "s3://", root)

    def load(self) -> Any:
        """The table as pyiceberg's, or None.

        Raises:
            ConfigError: the catalog has another table under that name.
        PipelineError: the catalog does not answer, or refuses.
        """
        if not self.address.uri and not self._files.exists(CATALOG_FILE):
            return None
        try:
            with self.asking():
                table = self._open().load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        if table.location().rstrip("/") != self.location:
            raise ConfigError(
                f"{self._files.root}: the catalog has {'.'.join(self.identifier)} at {table.location()}: "
                "give another name or namespace"
            )
        return table

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around what asks the catalog.

        Raises:
            PipelineError: it does not answer, or refuses, or another writer was faster.
        """
        try:
            yield
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise Overtaken(
                f"another process has changed {self._files.root}: stop it, and start again ({error})"
            ) from None
        except (NoSuchTableError, NoSuchNamespaceError):
            raise
        except SQLAlchemyError as error:
            raise PipelineError(f"the catalog of {self._files.root}: {error}") from None
        except (RESTError, RequestException) as error:
            raise PipelineError(
                f"the catalog {self.address.uri} of {self._files.root}: {error} (pyiceberg takes secrets of an address from "
                "PYICEBERG_CATALOG__ROQUETTE__CREDENTIAL or ..._TOKEN)"
            ) from None

    def create(self, schema: Any, spec: Any, properties: dict[str, str]) -> None:
        """A new table. Raises PipelineError, as `asking` says."""
        catalog = self._open()
        for depth in range(1, len(self.identifier)):
            catalog.create_namespace_if_not_exists(self.identifier[:depth])
        made = catalog.create_table(
            self.identifier,
            schema,
            location=self.location,
            partition_spec=spec,
            properties=dict(properties),
        )
        # SeaweedFS gives the table of another process as if it had made it.
        ours = {name: value for name, value in properties.items() if name.startswith(f"{NAME}.")}
        if made.current_snapshot() is not None or not ours.items() <= made.properties.items():
            raise CommitFailedException("it has created the table")

    def drop(self) -> None:
        self._open().drop_table(self.identifier)

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _open(self) -> Any:
        if self._catalog is None:
            name = NAME if "://" in (self.address.uri or "://") else self.address.uri
            self._catalog = load_catalog(name, **self._properties())
        return self._catalog

    def _properties(self) -> dict[str, Any]:
        # pyiceberg has looked at the environment when it was imported.
        configured = Config()
        if self.address.uri and "://" not in self.address.uri:
            known = configured.get_catalog_config(self.address.uri)
            if known is None:
                there = configured.config.get("catalog")
                names = ", ".join(sorted(there)) if isinstance(there, dict) and there else "none"
                raise ConfigError(
                    f"pyiceberg's configuration has no catalog {self.address.uri} (there: {names}): say what it is in "
                    f".pyiceberg.yaml, or by PYICEBERG_CATALOG__{self.address.uri.upper()}__TYPE and ..."
                )
            return {
                **({} if self._files.local else _object_store()),
                **known,
                **self._local_files(),
            }
        if self.address.uri:
            known = configured.get_catalog_config(NAME) or {}
            tokens = f"{self.address.uri.rstrip('/')}/v1/oauth/tokens"
            found = {"oauth2-server-uri": tokens, **known, "type": "rest", "uri": self.address.uri}
            if self.address.warehouse:
                found["warehouse"] = self.address.warehouse
        else:
            self._files.make_folder(OWN_FOLDER)
            found = {"type": "sql", "uri": f"sqlite:///{self._files.root}/{CATALOG_FILE}"}
        if self._files.local:
            return {"warehouse": self.location, **found, **self._local_files()}
        return {**found, **_object_store()}

    def _local_files(self) -> dict[str, str]:
        """Local files are on the disk when a commit says so."""
        name = "roquette_spark.pipelines.tables.iceberg_table.SyncedFileIO"
        return {"py-io-impl": name} if self._files.local else {}


def _object_store() -> dict[str, str]:
    """Return what Amazon's own tools read from the environment; secrets are left to pyarrow, which reads them, too."""
    found = {
        "s3.region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
    }
    return {name: value for name, value in found.items() if value}


# Spark's JSON of a schema as Iceberg's schema, and back, by way of Arrow. Iceberg has no byte and no short: they become integers.


_FIRST_PARTITION_ID = 1000  # by Iceberg's specification


def iceberg_schema(spark_json: str) -> Schema:
    """Field ids are given anew, in the order of the columns.

    Raises:
        ConfigError: Iceberg has no such type.
    """
    try:
        found = schema_of_arrow(arrow_schema(spark_json))
    except (TypeError, ValueError, DeltaError) as error:
        raise ConfigError(
            f"a table of Iceberg cannot have these columns ({error}): use Delta Lake"
        ) from None
    return assign_fresh_schema_ids(found)


def partition_spec(schema: Schema, parts: Sequence[str]) -> PartitionSpec:
    """By the values of columns, as they are, or by what a Transform makes of them."""
    fields = []
    for number, part in enumerate(parts, _FIRST_PARTITION_ID):
        made = Transform.read(part)
        how = IdentityTransform() if made is None else iceberg_transform(made)
        column, name = (part, part) if made is None else (made.column, made.name)
        fields.append(PartitionField(schema.find_field(column).field_id, number, how, name))
    return PartitionSpec(*fields)


def spark_json(schema: Schema) -> str:
    """The inverse of `iceberg_schema`. A time of day is a text, as for Spark's reader."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    fields = [
        each.with_type(pa.string()) if pa.types.is_time(each.type) else each for each in arrow
    ]
    return str(DeltaSchema.from_arrow(pa.schema(fields)).to_json())


METADATA_FOLDER, DATA_FOLDER = "metadata", "data"
ORPHANS_KEPT_MS = 24 * 3_600_000  # files of metadata
_UNFINISHED = r"00000-[-0-9a-f]{36}\.metadata\.json"  # of a creation that was killed
_BATCH = "roquette.txn."  # and the stream
_INFO = "roquette.info."  # and the name
_RETRIES = "commit.retry.num-retries"
_OPERATION = "roquette.operation"  # in the words of our snapshots
# How long the list of earlier versions gets, and how many lists of files a commit leaves.
_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}


class IcebergTable(Table):
    """Open it with `open_iceberg_table`."""

    # pyiceberg 0.11 takes false, 0 and 1970-01-01 of a partition for null where the file does not have the column.
    name, whole_files = " (Iceberg)", True
    log_folder, unfinished = METADATA_FOLDER, _UNFINISHED

    def __init__(
        self, home: TableFiles, catalog: TableCatalog, clock: Clock, entropy: Entropy
    ) -> None:
        # Servers of catalogs ask for the two folders of Iceberg; beside a table's own catalog its partitions are there.
        files = TableFiles(home.address(DATA_FOLDER)) if catalog.shared else home
        self._home = home
        self._data_address = catalog.location + (f"/{DATA_FOLDER}" if catalog.shared else "")
        self._catalog = catalog
        self._table: Any = None
        self._entries: dict[str, Any] = {}  # path -> what pyiceberg knows of the file
        self._read_id: int | None = None  # of an older version that is read
        super().__init__(files, clock, entropy)

    @property
    def shared(self) -> bool:
        return self._catalog.shared

    def claim(self, owner: Owner) -> None:
        """As its base. Who knows only the folder finds the catalog by its address there (see `open_found`).

        Buckets of tables take no such file, and some break by it.
        """
        super().claim(owner)
        if self.shared and self._home.local:
            self._home.write(ADDRESS_FILE, json.dumps(asdict(self._catalog.address)).encode())

    def _clean_log(self) -> None:
        if self._table is None and not self.shared:
            for file in self._home.list_tree(METADATA_FOLDER):
                self._home.remove(file.path)

    def close(self) -> None:
        self._catalog.close()
        super().close()

    def create(
        self, schema: str, partitioned_by: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        made = iceberg_schema(schema)
        properties = {
            **_PROPERTIES,
            **settings,
            "schema.name-mapping.default": made.name_mapping.model_dump_json(),
        }
        with self._catalog.asking():
            self._catalog.create(made, partition_spec(made, partitioned_by), properties)
        self.reload()

    def widen(self, schema: str, settings: Mapping[str, str]) -> None:
        wanted = iceberg_schema(schema)
        try:
            with self._catalog.asking(), self._table.transaction() as change:
                with change.update_schema() as update:
                    update.union_by_name(wanted)
                change.set_properties(dict(settings))
        except (ValidationError, ValueError) as error:
            raise ConfigError(f"{self.files.root} cannot have these columns: {error}") from None
        self._see(self.snapshot)

    def drop(self) -> None:
        assert not self.snapshot.files, self.files.root
        if self._table is None:
            return
        known = history.metadata_files(self._table)
        with self._catalog.asking():
            self._catalog.drop()
        self._remove_metadata(known)
        self.reload()

    def _remove_metadata(self, addresses: set[str]) -> None:
        for path in _below(self._catalog.location, addresses):
            if self._home.exists(path):
                self._home.remove(path)

    def done(self, stream: str) -> int:
        return self.snapshot.batches.get(stream, -1)

    def last_info(self, name: str) -> Any:
        """As its base. It is a property of the table, since snapshots expire."""
        text = None if self._table is None else self._table.properties.get(_INFO + name)
        return None if text is None else json.loads(text)

    def write(self, commit: Commit, operation: str) -> None:
        footers = self._footers(commit.adds)
        adds = {
            file.path: to_iceberg(
                file, self._address(file.path), self._table.metadata, footers[file.path]
            )
            for file in commit.adds
        }
        removes = {file.path: self._entries[file.path] for file in commit.removes}
        properties = {_INFO + name: json.dumps(value) for name, value in commit.info.items()}
        if commit.batch is not None:
            properties[_BATCH + commit.batch[0]] = str(commit.batch[1])
        words = {_OPERATION: operation}
        # In our copy only: pyiceberg 0.12 tries a refused commit again, on top of what another run of the same batch has done.
        self._table.metadata.properties[_RETRIES] = "0"
        with self._catalog.asking(), self._table.transaction() as change:
            change.set_properties(properties)
            update = change.update_snapshot(snapshot_properties=words)
            with update.overwrite() if removes else update.merge_append() as files:
                for each in adds.values():
                    files.append_data_file(each)
                for each in removes.values():
                    files.delete_data_file(each)
        metadata, now_ms = self._table.metadata, self._clock.now_ms()
        self._entries |= adds
        for path in removes:
            del self._entries[path]
        known = [from_iceberg(each, path, metadata, now_ms) for path, each in adds.items()]
        self._see(self._after(replace(commit, adds=known), 0))

    def ours_since(self, version: int) -> bool:
        return any(
            each.summary is not None and _OPERATION in each.summary.additional_properties
            for each in self._table.metadata.snapshots
            if each.sequence_number > version
        )

    def joinable(self) -> list[DataFile]:
        """As its base. A table in which another program has deleted rows is left alone."""
        if self._table is None or history.has_deletes(self._table):
            return []
        ours = own_names(self.snapshot.partitioned_by)
        return [file for path, file in self.snapshot.files.items() if ours.fullmatch(path)]

    def rows_of(
        self, files: Iterable[DataFile], columns: Sequence[str] = ()
    ) -> dict[DataFile, Rows]:
        scan = self._table.scan(selected_fields=tuple(columns) or ("*",), snapshot_id=self._read_id)
        try:
            planned = {self._path_of(each.file.file_path): each for each in scan.plan_files()}
        except ValueError as error:
            raise ConfigError(
                f"{self.files.root}: another program has deleted rows in a way that pyiceberg does not read ({error}): let "
                "it rewrite the table's files, such as by Spark's rewrite_data_files"
            ) from None
        reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), AlwaysTrue())
        return {file: partial(_scan, reader, planned[file.path]) for file in files}

    def place(self) -> dict[str, Any]:
        found = super().place()
        return found | {"root": self._home.root, "catalog": asdict(self._catalog.address)}

    def arrow_schema(self) -> pa.Schema:
        return schema_to_pyarrow(self._table.schema())

    def _held(self, before_ms: int | None) -> set[str]:
        some = self._table.metadata.snapshots
        if before_ms is not None:
            some = history.kept_snapshots(self._table, before_ms, self.keep_versions)
        return _below(self._data_address, history.data_files(self._table, some))

    def _forget(self, before_ms: int) -> None:
        if self._table is None:
            return
        lists = history.metadata_files(self._table)
        with self._catalog.asking():
            history.expire(self._table, before_ms, self.keep_versions)
        self._see(self.snapshot)
        self._remove_metadata(lists - history.metadata_files(self._table))
        if not self.shared:
            self._remove_old_metadata()

    def _remove_old_metadata(self) -> None:
        """Remove what killed commits have left in the folder of metadata."""
        known = _below(self._catalog.location, history.metadata_files(self._table))
        before_ms = self._clock.now_ms() - ORPHANS_KEPT_MS
        for file in self._home.list_tree(METADATA_FOLDER):
            name = file.path.rpartition("/")[2]
            old = file.modified_ms < before_ms and history.METADATA_NAMES.fullmatch(name)
            if old and file.path not in known:
                self._home.remove(file.path)

    def _address(self, path: str) -> str:
        return f"{self._data_address}/{path}"

    def reload(self, version: int | None = None) -> None:
        self._table = self._catalog.load()
        self._entries, self.snapshot, self._read_id = {}, Snapshot(), None
        if self._table is not None:
            if version is not None:
                self._read_id = history.snapshot_at(self._table, version)
            found = history.files_of(self._table, self._read_id)
            paths = {address: self._path_of(address) for address in found}
            self._entries = {paths[address]: each for address, (each, _) in found.items()}
            files = {
                paths[address]: from_iceberg(each, paths[address], self._table.metadata, at)
                for address, (each, at) in found.items()
            }
            ours = own_names(tuple(each.name for each in self._table.spec().fields))
            replaced = history.removed_files(self._table).items()
            removed = {self._path_of(address): at for address, at in replaced}
            removed = {p: at for p, at in removed.items() if ours.fullmatch(p) and p not in files}
            self._see(Snapshot(files=files, removed=removed))
            if version is not None:
                self.snapshot = replace(self.snapshot, version=version)

    def _see(self, files: Snapshot) -> None:
        """These files, and what the table's metadata say now."""
        metadata = self._table.metadata
        properties, inner = metadata.properties, (_BATCH, _INFO)
        self.snapshot = replace(
            files,
            version=metadata.last_sequence_number,
            batches={
                name.removeprefix(_BATCH): int(number)
                for name, number in properties.items()
                if name.startswith(_BATCH)
            },
            schema=spark_json(metadata.schema()),
            partitioned_by=tuple(field.name for field in metadata.spec().fields),
            settings={
                name: value
                for name, value in properties.items()
                if name.startswith("roquette.") and not name.startswith(inner)
            },
            table_id=str(metadata.table_uuid),
        )

    def _path_of(self, address: str) -> str:
        return address.removeprefix(self._data_address + "/")


def _scan(reader: ArrowScan, file: Any) -> Iterator[pa.Table]:
    for batch in reader.to_record_batches([file]):
        yield pa.table(batch)


def _below(folder: str, addresses: set[str]) -> set[str]:
    return {each[len(folder) + 1 :] for each in addresses if each.startswith(folder + "/")}


def open_iceberg_table(
    root: str,
    *,
    catalog: CatalogAddress = CatalogAddress(),  # noqa: B008 (a frozen value)
    clock: Clock | None = None,
    entropy: Entropy | None = None,
) -> IcebergTable:
    """A table that is there, or one that is yet to be created (its version is -1).

    Raises:
        ConfigError: no table of Iceberg can be there, or the catalog has another one under its name.
    """
    check_root(root, catalog)
    home = TableFiles(root)
    return IcebergTable(
        home, TableCatalog(home, catalog), clock or SystemClock(), entropy or Entropy()
    )


# Iceberg's files on a local disk, whose bytes are safe before the catalog names them.


class SyncedFileIO(PyArrowFileIO):
    """Files that pyiceberg writes with, where a table is on a local disk."""

    def new_output(self, location: str) -> "SyncedFile":
        scheme, netloc, path = self.parse_location(location, self.properties)
        return SyncedFile(
            location=location,
            path=path,
            fs=self.fs_by_scheme(scheme, netloc),
            buffer_size=io.DEFAULT_BUFFER_SIZE,
        )


class SyncedFile(PyArrowFile):
    """A file that is synced when it is closed."""

    def create(self, overwrite: bool = False) -> Any:
        folder = os.path.dirname(self._path)
        os.makedirs(folder, exist_ok=True)
        return _SyncedStream(io.FileIO(self._path, "w" if overwrite else "x"))


class _SyncedStream(io.BufferedWriter):
    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        name = str(self.raw.name)  # type: ignore[attr-defined]
        super().close()
        OsFiles().sync_dir(os.path.dirname(name))
