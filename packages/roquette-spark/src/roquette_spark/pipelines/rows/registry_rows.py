"""Bodies that begin with the id of their schema in a registry (Confluent's wire format: 0, four bytes, the value) as columns.

Values come through the same door as JSON's (rows/json_rows.py), so they evolve, are rescued, and are found bad alike.
"""

import base64
import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.avro_bodies import columns_of_avro
from roquette_spark.pipelines.kit.json_bodies import NumberText
from roquette_spark.pipelines.rows.decoder import Bodies
from roquette_spark.pipelines.rows.json_rows import EMPTY, JsonReader, Row
from roquette_spark.pipelines.rows.kinds import NULL, Kind, complete, joined
from roquette_spark.proto_text import UnusableProto
from roquette_spark.registry import Registry, Schema, UnknownSchema

PREFIX: Final = 5  # bytes
_MOST: Final = 2**31 - 1
NO_PREFIX: Final = "the body does not begin with 0 and a schema's id, as a registry's does"
UNFIT: Final = "a value is not of its column's type"
Reader = Callable[[Sequence[bytes]], list[Row]]
"""Reads values of one schema, without their prefixes."""
_JSON_KINDS = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}


class RegistryReader:
    """Reads the bodies of one task.

    A registry that does not answer fails the task, which is tried again: what cannot be read for now is not bad.
    """

    def __init__(self, body_schema: str, registry: Registry) -> None:
        self._registry = registry
        self._json = JsonReader(body_schema)
        self._typed = JsonReader(
            body_schema
        )  # what it would say of new columns the schemas say better
        self._declared: Kind = NULL
        self._readers: dict[int, Reader] = {}

    @property
    def news(self) -> Kind:
        """Of JSON what no column took; of the others all that their schemas have."""
        return joined(self._declared, self._json.news)

    def read(self, bodies: pa.Array) -> Bodies:
        """As BodyReader says. Raises ConnectError when the registry does not answer, ConfigError when it refuses."""
        at_once = self._of_one_json_schema(bodies)
        if at_once is not None:
            return self._json.read(at_once)
        rows: list[Row] = [(None, EMPTY, None)] * len(bodies)
        places: dict[int, list[int]] = {}
        values = bodies.to_pylist()
        for place, body in enumerate(values):
            if body and len(body) >= PREFIX and not body[0]:
                places.setdefault(_id_of(body), []).append(place)
            elif body:
                rows[place] = None, NO_PREFIX, None
        for schema_id, mine in places.items():
            found = self._reader(schema_id)([values[place][PREFIX:] for place in mine])
            for place, row in zip(mine, found, strict=True):
                rows[place] = row
        return self._typed.bodies_of(rows)

    def _of_one_json_schema(self, bodies: pa.Array) -> pa.Array | None:
        """The values, if all bodies have one prefix and that of JSON."""
        if not len(bodies) or bodies.null_count:
            return None
        prefixes = pc.unique(pc.binary_slice(bodies, 0, PREFIX)).to_pylist()
        if len(prefixes) != 1 or len(prefixes[0]) != PREFIX or prefixes[0][0]:
            return None
        if self._reader(_id_of(prefixes[0])) != self._read_json:
            return None
        return pc.binary_slice(bodies, PREFIX, _MOST)  # without an end pyarrow 26 fails

    def _reader(self, schema_id: int) -> Reader:
        if schema_id not in self._readers:
            self._readers[schema_id] = self._new_reader(schema_id)
        return self._readers[schema_id]

    def _new_reader(self, schema_id: int) -> Reader:
        try:
            schema = self._registry.schema(schema_id)
            if schema.kind == "JSON":
                return self._read_json
            if schema.kind == "PROTOBUF":
                return self._protobuf_reader(self._registry.descriptors(schema_id))
            reader = self._avro_reader(schema)
            self._declared = joined(self._declared, _declared(schema))
            return reader
        except UnknownSchema:
            why = f"the registry has no schema {schema_id}"
        except (_Unusable, UnusableProto) as error:
            why = f"schema {schema_id} cannot be used: {error}"
        return lambda values: [(None, why, None)] * len(values)

    def _read_json(self, values: Sequence[bytes]) -> list[Row]:
        return [self._json.read_one(value) for value in values]

    def _avro_reader(self, schema: Schema) -> Reader:
        import fastavro

        writer = _parsed(schema)

        def read(data: bytes) -> Row:
            stream = io.BytesIO(data)
            try:
                value = fastavro.schemaless_reader(stream, writer)
            except Exception as error:  # noqa: BLE001 - of many kinds, by what the bytes happen to be
                return None, f"the body is no Avro of its schema ({type(error).__name__})", None
            if stream.tell() != len(data):
                return None, "the body is longer than an Avro record of its schema", None
            return self._place(value)

        return lambda values: [read(value) for value in values]

    def _protobuf_reader(self, files: Sequence[bytes]) -> Reader:
        from roquette_spark.pipelines.rows.protobuf_rows import (  # fmt: skip
            ProtobufValues,
            message_of,
            rows_of,
            split_indexes,
        )

        known: dict[tuple[int, ...], ProtobufValues] = {}

        def of_message(path: tuple[int, ...]) -> ProtobufValues:
            if path not in known:
                known[path] = ProtobufValues(message_of(files, path))
                self._declared = joined(self._declared, _kind_of_columns(known[path].schema))
            return known[path]

        def read(values: Sequence[bytes]) -> list[Row]:
            rows: list[Row] = [(None, None, None)] * len(values)
            places: dict[tuple[int, ...], list[tuple[int, bytes]]] = {}
            for place, value in enumerate(values):
                try:
                    path, rest = split_indexes(value)
                    of_message(path)
                except (ValueError, UnusableProto) as error:
                    rows[place] = None, str(error), None
                else:
                    places.setdefault(path, []).append((place, rest))
            for path, mine in places.items():
                table, errors = known[path].decode([rest for _, rest in mine])
                for (place, _), found, why in zip(mine, rows_of(table), errors, strict=True):
                    if why or found is None:
                        rows[place] = None, why or UNFIT, None
                    else:
                        rows[place] = self._place(found)
            return rows

        return read

    def _place(self, value: Any) -> Row:
        try:
            row, why, rescued = self._typed.place(_plain(value))
        except (ValueError, ArithmeticError, RecursionError):
            return None, UNFIT, None
        return row, UNFIT if why else None, rescued


class _Unusable(ValueError):
    """A registered schema that is none."""


def newest_columns(registry: Registry, subject: str) -> str:
    """Spark's JSON of the columns that values of a subject's newest schema have.

    Of Protobuf the first message of the file. Raises as `Registry.latest`, and ConfigError as `columns_of`.
    """
    schema = registry.latest(subject)
    if schema.kind != "PROTOBUF":
        return columns_of(schema, subject)
    from roquette_spark.pipelines.rows.protobuf_rows import ProtobufValues, message_of

    files = registry.descriptors_of(subject)
    kind = complete(_kind_of_columns(ProtobufValues(message_of(files)).schema))
    return json.dumps(kind or {"type": "struct", "fields": []})


def _kind_of_columns(schema: pa.Schema) -> Kind:
    from pyspark.sql.pandas.types import from_arrow_schema

    return _text_keys(from_arrow_schema(schema).jsonValue())


def _text_keys(kind: Kind) -> Kind:
    """Maps have texts for keys, as those of JSON and Avro have."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        fields = [{**each, "type": _text_keys(each["type"])} for each in kind["fields"]]
        return {**kind, "fields": fields}
    if kind["type"] == "map":
        return {**kind, "keyType": "string", "valueType": _text_keys(kind["valueType"])}
    return {**kind, "elementType": _text_keys(kind["elementType"])}


def columns_of(schema: Schema, subject: str) -> str:
    """Spark's JSON of the columns that values of a schema of Avro or JSON have.

    Raises:
        ConfigError: it is no record, or of a type that no column has.
    """
    where = f"the schema of {subject}"
    if schema.kind == "AVRO" and find_spec("fastavro") is None:
        raise ConfigError('archive: Avro needs fastavro: pip install "roquette[avro]"')
    try:
        parsed = json.loads(schema.text)
    except ValueError:
        raise ConfigError(f"archive: {where} is no JSON") from None
    kind = complete(_avro_kind(schema, where) if schema.kind == "AVRO" else _json_kind(parsed))
    if not isinstance(kind, dict) or kind["type"] != "struct":
        raise ConfigError(f"archive: {where} is no record with fields")
    return json.dumps(kind)


def _declared(schema: Schema) -> Kind:
    """What an Avro schema's values have; NULL where no column could."""
    try:
        return _avro_kind(schema, "")
    except ConfigError:
        return NULL


def _avro_kind(schema: Schema, where: str) -> Kind:
    try:
        texts = [json.loads(text) for text in (*schema.references, schema.text)]
    except ValueError:
        raise ConfigError(f"archive: {where} is no JSON") from None
    found: Kind = columns_of_avro(texts[-1], texts[:-1], where)
    return found


def _parsed(schema: Schema) -> Any:
    import fastavro

    named: dict[str, Any] = {}
    try:
        for text in (*schema.references, schema.text):
            parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except Exception as error:  # noqa: BLE001 - whatever somebody registered
        raise _Unusable(f"{type(error).__name__}: {error}"[:200]) from None
    return parsed


def _json_kind(schema: Any) -> Kind:
    """The kind of what a JSON schema describes; NULL where it does not say, and the values will."""
    if not isinstance(schema, dict):
        return NULL
    kind = schema.get("type")
    if isinstance(kind, list):
        known = [each for each in kind if each != "null"]
        kind = known[0] if len(known) == 1 else None
    if kind == "object" and isinstance(schema.get("properties"), dict):
        fields = [(name, _json_kind(each)) for name, each in schema["properties"].items()]
        return {
            "type": "struct",
            "fields": [
                {"name": name, "type": inner, "nullable": True, "metadata": {}}
                for name, inner in fields
            ],
        }
    if kind == "array":
        inner = _json_kind(schema.get("items"))
        return {"type": "array", "elementType": inner, "containsNull": True}
    return _JSON_KINDS.get(str(kind), NULL)


def _id_of(body: bytes) -> int:
    return int.from_bytes(body[1:PREFIX], "big")


def _plain(value: Any) -> Any:
    """A value of Avro as `decode_object` would give it."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return NumberText(repr(value)) if math.isfinite(value) else _SPECIAL[str(value)]
    if isinstance(value, Decimal):
        return NumberText(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


_SPECIAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
