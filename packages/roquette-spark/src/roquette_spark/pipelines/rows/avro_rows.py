"""Avro bodies, one record each without a container: what columns a schema gives, and bodies as columns, by fastavro."""

import io
import json
from collections.abc import Mapping, Sequence
from datetime import time
from importlib.util import find_spec
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from roquette.base.files import Files
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.message_rows import MOST_DIGITS
from roquette_spark.pipelines.rows.decoder import (
    NULL,
    Bodies,
    Kind,
    array_of,
    arrow_of,
    struct_of,
    within,
)

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
    try:
        whole, named = parsed((*references, avro))
    except ValueError as error:
        raise ConfigError(f"archive: {where} is no Avro schema ({error})") from None
    return _Columns(named).of(whole, where)


def parsed(schemas: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """The last of some schemas as fastavro wants it, each after those it names; and all that have names.

    Raises:
        ValueError: one is no Avro schema; says what of it.
    """
    import fastavro

    named: dict[str, Any] = {}
    try:
        return [fastavro.parse_schema(each, named_schemas=named) for each in schemas][-1], named
    except Exception as error:  # noqa: BLE001 - whatever somebody has written
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from None


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
            problem = f"the Avro schema has more than {_MOST_TYPES:,} types"
            raise ConfigError(f"archive: {where[:100]}: {problem}")
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
        if logical == "decimal" and avro.get("precision", 0) <= MOST_DIGITS:
            return f"decimal({avro['precision']},{avro.get('scale', 0)})"
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind == "record":
            self._within.append(str(avro.get("name")))
            kinds = {f["name"]: self.of(f["type"], f"{where}: {f['name']}") for f in avro["fields"]}
            self._within.pop()
            return struct_of({name: each for name, each in kinds.items() if not _is_empty(each)})
        if kind == "array":
            return array_of(self.of(avro["items"], where))
        if kind == "map":
            value = self.of(avro["values"], where)
            return {
                "type": "map",
                "keyType": "string",
                "valueType": value,
                "valueContainsNull": True,
            }
        return self.of(kind, where)


def _is_empty(kind: Kind) -> bool:
    """Return True if it is a record without fields, or has nothing else: Parquet cannot store it."""
    inside = within(kind)
    return isinstance(kind, dict) and (
        not inside if kind["type"] == "struct" else _is_empty(inside[0])
    )


def read_body(body: bytes | None, schema: Any) -> tuple[dict[str, Any] | None, str | None]:
    """(the record, None), or (None, why it cannot be read)."""
    import fastavro

    if not body:
        return None, "the body is empty"
    stream = io.BytesIO(body)
    try:
        value = fastavro.schemaless_reader(stream, schema)
    except Exception as error:  # noqa: BLE001 - of many kinds, by what the bytes happen to be
        return None, f"the body is no Avro of its schema ({type(error).__name__})"
    if stream.tell() != len(body):
        return None, "the body is longer than an Avro record of its schema"
    return value, None


_TOLD_AS_TEXT: Final = (
    "uuid",
    "time-millis",
    "time-micros",
)  # logical types whose columns are texts


class AvroReader:
    """Reads the bodies of one task."""

    def __init__(self, body_schema: str, avro_schema: str) -> None:
        import fastavro
        from pyspark.sql.types import StructType

        self._schema = arrow_of(StructType.fromJson(json.loads(body_schema)))
        self.news: Kind = NULL
        self._avro = fastavro.parse_schema(json.loads(avro_schema))
        self._has_texts = any(name in avro_schema for name in _TOLD_AS_TEXT)

    def read(self, bodies: pa.Array) -> Bodies:
        found = [read_body(body, self._avro) for body in bodies.to_pylist()]
        if self._has_texts:
            found = [(_texts(value), error) for value, error in found]
        columns = [
            pa.array(
                [None if value is None else value[field.name] for value, _ in found], field.type
            )
            for field in self._schema
        ]
        return Bodies(columns, pa.array([error for _, error in found], pa.string()))


def _texts(value: Any) -> Any:
    """The value with texts for what Arrow has no text for by itself."""
    if isinstance(value, dict):
        return {name: _texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_texts(each) for each in value]
    if isinstance(value, time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
