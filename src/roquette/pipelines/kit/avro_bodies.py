"""Avro bodies (one record each, no container, the writer's schema given) as columns, by fastavro."""

import io
import json
from collections.abc import Mapping
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
    "uuid": "string",
}


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
    return json.dumps(spark_type(found, path)), json.dumps(found)


def spark_type(avro: Any, where: str) -> Any:
    """Spark's JSON of an Avro type. Raises ConfigError for unions of several types and named references."""
    if isinstance(avro, list):
        kinds = [each for each in avro if each != "null"]
        if len(kinds) != 1:
            raise ConfigError(
                f"archive: {where}: a union of several types is not supported: {avro}"
            )
        return spark_type(kinds[0], where)
    kind = avro if isinstance(avro, str) else avro.get("type")
    if isinstance(avro, dict):
        if avro.get("logicalType") in _LOGICAL:
            return _LOGICAL[avro["logicalType"]]
        if kind == "record":
            return {"type": "struct", "fields": [_field(each, where) for each in avro["fields"]]}
        if kind == "array":
            element = spark_type(avro["items"], where)
            return {"type": "array", "elementType": element, "containsNull": True}
        if kind == "map":
            value = spark_type(avro["values"], where)
            return {
                "type": "map",
                "keyType": "string",
                "valueType": value,
                "valueContainsNull": True,
            }
        if isinstance(kind, list | dict):
            return spark_type(kind, where)
    if kind not in _PLAIN:
        raise ConfigError(f"archive: {where}: the Avro type {kind} is not supported")
    return _PLAIN[kind]


def _field(field: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {
        "name": field["name"],
        "type": spark_type(field["type"], f"{where}: {field['name']}"),
        "nullable": True,
        "metadata": {},
    }


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
