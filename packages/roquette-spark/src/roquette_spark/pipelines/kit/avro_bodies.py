"""Avro bodies (one record each, no container, the writer's schema given) as columns, by fastavro."""

import io
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from roquette.base.files import Files
from roquette.errors import ConfigError

_PLAIN = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "uuid": "string",
    "time-millis": "string",
    "time-micros": "string",
}
_MOST_DIGITS = 38  # of Delta's, Iceberg's and Spark's decimals
_MOST_TYPES = (
    10_000  # of a schema: names that stand for each other can make very many of a short text
)


def read_avro_schema(path: str, files: Files) -> tuple[str, str]:
    """Spark's JSON of the columns, and the Avro schema, of a schema file.

    Raises:
        ConfigError: there is no file, no fastavro, or a type that has no counterpart.
    """
    if find_spec("fastavro") is None:
        raise ConfigError('archive: --format avro needs fastavro: pip install "roquette[avro]"')
    if not path:
        raise ConfigError("archive: --format avro needs --schema FILE, the writer's schema (.avsc)")
    try:
        found = json.loads(files.read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"archive: the Avro schema {path} cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise ConfigError(f"archive: the Avro schema {path} is no record")
    return json.dumps(columns_of_avro(found, (), path)), json.dumps(found)


def columns_of_avro(avro: Any, references: Sequence[Any], where: str) -> Any:
    """Spark's JSON of an Avro schema; a time of day is a text such as 10:05:00. Records without fields have no column.

    Args:
        references: schemas of the types that it names, each after those it names itself.

    Raises:
        ConfigError: it is no Avro schema, has a type that no column has (a union of several types, a type within itself),
            or more than 10,000 of them.
    """
    import fastavro

    named: dict[str, Any] = {}
    try:
        for each in references:
            fastavro.parse_schema(each, named_schemas=named)
        whole = fastavro.parse_schema(avro, named_schemas=named)
    except Exception as error:  # noqa: BLE001 - whatever somebody has written
        said = f"{type(error).__name__}: {error}"[:200]
        raise ConfigError(f"archive: {where} is no Avro schema ({said})") from None
    return _Columns(named).of(whole, where)


class _Columns:
    """Spark's types of one parsed schema: it names types by their full names."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._left = _MOST_TYPES
        self._within: list[str] = []

    def of(self, avro: Any, where: str) -> Any:
        """Of a type. Raises as `columns_of_avro`."""
        self._left -= 1
        if self._left < 0:
            said = f"the Avro schema has more than {_MOST_TYPES:,} types"
            raise ConfigError(f"archive: {where[:100]}: {said}")
        if isinstance(avro, list):
            kinds = [each for each in avro if each != "null"]
            if len(kinds) != 1:
                raise ConfigError(
                    f"archive: {where}: a union of several types is not supported: {avro}"
                )
            return self.of(kinds[0], where)
        if isinstance(avro, dict):
            return self._complex(avro, where)
        if avro in self._named and avro not in self._within:
            return self.of(self._named[avro], where)
        if avro not in _PLAIN:
            what = "a type within itself" if avro in self._within else "the type"
            raise ConfigError(f"archive: {where}: {what}, {avro}, is not supported")
        return _PLAIN[avro]

    def _complex(self, avro: Mapping[str, Any], where: str) -> Any:
        kind, logical = avro.get("type"), avro.get("logicalType")
        if logical == "decimal" and avro.get("precision", 0) <= _MOST_DIGITS:
            return f"decimal({avro['precision']},{avro.get('scale', 0)})"
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind == "record":
            self._within.append(str(avro.get("name")))
            fields = [self._field(each, where) for each in avro["fields"]]
            self._within.pop()
            return {"type": "struct", "fields": [f for f in fields if not _is_empty(f["type"])]}
        if kind == "array":
            element = self.of(avro["items"], where)
            return {"type": "array", "elementType": element, "containsNull": True}
        if kind == "map":
            value = self.of(avro["values"], where)
            return {
                "type": "map",
                "keyType": "string",
                "valueType": value,
                "valueContainsNull": True,
            }
        return self.of(kind, where)

    def _field(self, field: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {
            "name": field["name"],
            "type": self.of(field["type"], f"{where}: {field['name']}"),
            "nullable": True,
            "metadata": {},
        }


def _is_empty(kind: Any) -> bool:
    """Whether it is a record without fields, or has nothing else: Parquet cannot store it."""
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "struct":
        return not kind["fields"]
    return _is_empty(kind["elementType" if kind["type"] == "array" else "valueType"])


def read_body(body: bytes | None, schema: Any) -> tuple[dict[str, Any] | None, str | None]:
    """(the record, None), or (None, why it cannot be read)."""
    import fastavro

    if not body:
        return None, "the body is empty"
    stream = io.BytesIO(body)
    try:
        value = fastavro.schemaless_reader(stream, schema)
    except Exception as error:  # noqa: BLE001 - of many kinds, by what the bytes happen to be
        return None, f"the body is no Avro of this schema ({type(error).__name__})"
    if stream.tell() != len(body):
        return None, "the body is longer than an Avro record of this schema"
    return value, None
