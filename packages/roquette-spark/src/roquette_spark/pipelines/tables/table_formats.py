"""The formats of tables, and the options that choose one."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roquette.base.clock import Clock
from roquette.base.options import option
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.stream import StreamedOptions
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_place import ADDRESS_FILE, CATALOG_FILE, CatalogAddress

DELTA, ICEBERG = FORMATS = ("delta", "iceberg")


@dataclass(frozen=True, slots=True)
class TableFormat:
    """Format of tables, and the catalog that knows where they are."""

    name: str = DELTA
    catalog: CatalogAddress = CatalogAddress()  # noqa: RUF009 (a frozen value)

    def open(self, root: str, *, clock: Clock | None = None) -> Table:
        """A table that is there, or one that is yet to be created (its version is -1).

        Raises:
            ConfigError: the format's package is not installed, or it can have no table there.
        """
        if self.name == DELTA:
            return open_table(root, clock=clock)
        try:
            from roquette_spark.pipelines.tables.iceberg_table import open_iceberg_table
        except ImportError as error:
            raise ConfigError(
                f'tables of Iceberg need pyiceberg ({error}): pip install "roquette[lake]"'
            ) from None
        return open_iceberg_table(root, catalog=self.catalog, clock=clock)


def open_found(root: str, version: int | None = None) -> Table:
    """The table that is at a place, whatever its format; its version is -1 where there is none of ours.

    One of Iceberg is found by the catalog in its folder, or by that one's address there. With a version it is read as of that.

    Raises:
        ConfigError: it is one of Iceberg, and nothing says who knows which of its files count.
    """
    own_catalog = "://" not in root and os.path.exists(f"{root}/{CATALOG_FILE}")
    form, files = TableFormat(ICEBERG if own_catalog else DELTA), TableFiles(root)
    if files.local and files.exists(ADDRESS_FILE):
        address = json.loads(files.read(ADDRESS_FILE))
        form = TableFormat(ICEBERG, CatalogAddress(**address))
    elif not own_catalog and any(
        n.endswith(".metadata.json") for n in files.list_names("metadata")
    ):
        raise ConfigError(
            f"{root} is a table of Iceberg, and its folder does not say which catalog it is in: read it by pyiceberg from there"
        )
    table = form.open(root)
    if version is not None:
        table.reload(version)
    return table


def open_place(place: Mapping[str, Any]) -> Table:
    """To read a version of a table, by what `Table.place` gives."""
    catalog = place.get("catalog")
    form = TableFormat() if catalog is None else TableFormat(ICEBERG, CatalogAddress(**catalog))
    table = form.open(place["root"])
    table.reload(place["version"])
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(StreamedOptions):
    """Options of pipelines that write tables of any format."""

    table_format: str = option(DELTA, "What the tables are.", choices=FORMATS)
    catalog: str = option(
        "",
        "With Iceberg: the address of a REST catalog, or the name of any catalog in pyiceberg's configuration; default is "
        "a catalog in the table's own folder.",
        metavar="URL|NAME",
    )
    warehouse: str = option("", "What the REST catalog calls the place of tables.", metavar="NAME")
    namespace: str = option("roquette", "With Iceberg: where tables are in the catalog.")

    def tables(self) -> TableFormat:
        """Raises ConfigError for a catalog of what has none."""
        if self.catalog and self.table_format != ICEBERG:
            raise ConfigError("--catalog is for --table-format iceberg")
        address = CatalogAddress(self.catalog, self.warehouse, self.namespace)
        return TableFormat(self.table_format, address)
