"""Who knows where tables of Iceberg are; known without pyiceberg."""

from dataclasses import dataclass

CATALOG_FILE = "_roquette/catalog.db"  # in the folder of a table that has a catalog of its own


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """A server of Iceberg's REST catalog; without an address the table has a catalog in its own folder.

    Secrets are not part of it: pyiceberg reads them from variables PYICEBERG_CATALOG__ROQUETTE__...

    Attributes:
        uri: such as http://host:8181.
        warehouse: what the server calls the place of tables; may be empty.
        namespace: of the tables; parts with dots.
    """

    uri: str = ""
    warehouse: str = ""
    namespace: str = "roquette"
