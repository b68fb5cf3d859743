"""Where a table of Iceberg is found: a catalog in a file beside it, or a server of catalogs."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.utils.config import Config
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.tables.iceberg_address import CATALOG_FILE, CatalogAddress
from roquette_spark.pipelines.tables.table_place import OWN_FOLDER

NAME = "roquette"  # of the catalog; variables PYICEBERG_CATALOG__ROQUETTE__CREDENTIAL and so on belong to it
_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)


def check_root(root: str, address: CatalogAddress) -> None:
    """Raises ConfigError when no table of Iceberg can be there."""
    if "://" in root and not root.startswith("file://") and not address.uri:
        raise ConfigError(
            f"{root}: a table of Iceberg in an object store needs a catalog: give the address of a REST catalog, or "
            "a local directory"
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
        self._address = address
        name = _NOT_IN_NAMES.sub("_", files.root.rstrip("/").rpartition("/")[2])
        self.identifier = (*address.namespace.split("."), name)
        self._catalog: Any = None

    @property
    def shared(self) -> bool:
        """Whether other machines may write to the table."""
        return bool(self._address.uri)

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
        if not self._address.uri and not self._files.exists(CATALOG_FILE):
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
            raise PipelineError(
                f"another process has changed {self._files.root}: stop it, and start again ({error})"
            ) from None
        except (NoSuchTableError, NoSuchNamespaceError):
            raise
        except SQLAlchemyError as error:
            raise PipelineError(f"the catalog of {self._files.root}: {error}") from None
        except (RESTError, RequestException) as error:
            raise PipelineError(
                f"the catalog {self._address.uri} of {self._files.root}: {error} (pyiceberg takes secrets from "
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
        """Forget the table; its files stay."""
        self._open().drop_table(self.identifier)

    def close(self) -> None:
        """Let connections go."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _open(self) -> Any:
        if self._catalog is None:
            self._catalog = load_catalog(NAME, **self._properties())
        return self._catalog

    def _properties(self) -> dict[str, Any]:
        if self._address.uri:
            # pyiceberg has looked at the environment when it was imported.
            known = Config().get_catalog_config(NAME) or {}
            tokens = f"{self._address.uri.rstrip('/')}/v1/oauth/tokens"
            found = {"oauth2-server-uri": tokens, **known, "type": "rest", "uri": self._address.uri}
            if self._address.warehouse:
                found["warehouse"] = self._address.warehouse
        else:
            self._files.make_folder(OWN_FOLDER)
            found = {"type": "sql", "uri": f"sqlite:///{self._files.root}/{CATALOG_FILE}"}
        if self._files.local:
            return {
                **found,
                "warehouse": found.get("warehouse", self.location),
                "py-io-impl": "roquette_spark.pipelines.tables.iceberg_io.SyncedFileIO",
            }
        return {**found, **_object_store()}


def _object_store() -> dict[str, str]:
    """What Amazon's own tools read from the environment; secrets are left to pyarrow, which reads them, too."""
    found = {
        "s3.region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
    }
    return {name: value for name, value in found.items() if value}
