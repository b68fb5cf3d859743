"""Bodies that begin with the id of their schema in a registry (Confluent's wire format: 0, four bytes, the value) as columns.

Values come through the same door as JSON's (rows/json_rows.py), so they evolve, are rescued, and are found bad alike.
"""

import base64
import json
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.message_rows import may_be_column
from roquette_spark.pipelines.rows.avro_rows import columns_of_avro, parsed, read_body
from roquette_spark.pipelines.rows.decoder import (
    NULL,
    Bodies,
    Kind,
    NumberText,
    array_of,
    changed,
    complete,
    struct_of,
    widened,
)
from roquette_spark.pipelines.rows.json_rows import EMPTY, JsonReader, Row, any_within
from roquette_spark.registry import Registry, Schema, UnknownSchema, UnusableProto

PREFIX: Final = 5  # bytes
_MOST: Final = 2**31 - 1
NO_PREFIX: Final = "the body does not begin with 0 and a schema's id, as a registry's does"
UNFIT: Final = "a time of the body is none of the calendar"
Reader = Callable[[Sequence[bytes]], list[Row]]
"""Reads values of one schema, without their prefixes."""
_JSON_KINDS = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}


class RegistryReader:
    """Reads the bodies of one task.

    A registry that does not answer fails the task, which is tried again: what cannot be read for now is not bad.
    """

    def __init__(
        self, body_schema: str, registry: Registry, takes: Callable[[str], bool] = may_be_column
    ) -> None:
        self._registry = registry
        self._json = JsonReader(body_schema, takes)
        # What it would say of new columns the schemas say better.
        self._typed = JsonReader(body_schema, takes)
        self._takes = takes
        self._readers: dict[int, Reader] = {}

    @property
    def news(self) -> Kind:
        """Of JSON what no column took; of the others all that their schemas have."""
        return self._json.news

    def _declare(self, kind: Kind) -> None:
        self._json.news = widened(self._json.news, kind, self._takes)

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
                schema_id = _id_of(body)
                if self._reader(schema_id) == self._read_json:
                    rows[place] = self._json.read_one(body[PREFIX:])
                else:
                    places.setdefault(schema_id, []).append(place)
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
            self._declare(_declared(schema))
            return reader
        except UnknownSchema:
            why = f"the registry has no schema {schema_id}"
        except (_Unusable, UnusableProto) as error:
            why = f"schema {schema_id} cannot be used: {error}"
        return lambda values: [(None, why, None)] * len(values)

    def _read_json(self, values: Sequence[bytes]) -> list[Row]:
        return [self._json.read_one(value) for value in values]

    def _avro_reader(self, schema: Schema) -> Reader:
        writer = _parsed(schema)

        def read(data: bytes) -> Row:
            value, why = read_body(data, writer)
            return self._place(value) if why is None else (None, why, None)

        return lambda values: [read(value) for value in values]

    def _protobuf_reader(self, files: Sequence[bytes]) -> Reader:

        known: dict[tuple[int, ...], ProtobufValues] = {}

        def of_message(path: tuple[int, ...]) -> ProtobufValues:
            if path not in known:
                known[path] = ProtobufValues(message_of(files, path))
                self._declare(_kind_of_columns(known[path].schema))
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
        return self._typed.place(_plain(value))


class _Unusable(ValueError):
    """A registered schema that is none."""


def newest_columns(registry: Registry, subject: str) -> str:
    """Spark's JSON of the columns that values of a subject's newest schema have.

    Of Protobuf the first message of the file. Raises as `Registry.latest`, and ConfigError as `columns_of`.
    """
    schema = registry.latest(subject)
    if schema.kind != "PROTOBUF":
        return columns_of(schema, subject)

    files = registry.descriptors_of(subject)
    kind = complete(_kind_of_columns(ProtobufValues(message_of(files)).schema))
    return json.dumps(kind or struct_of({}))


def _kind_of_columns(schema: pa.Schema) -> Kind:
    from pyspark.sql.pandas.types import from_arrow_schema

    return _text_keys(from_arrow_schema(schema).jsonValue())


def _text_keys(kind: Kind) -> Kind:
    """Maps have texts for keys, as those of JSON and Avro have."""
    found = changed(kind, _text_keys)
    is_map = isinstance(found, dict) and found["type"] == "map"
    return {**found, "keyType": "string"} if is_map else found


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
    """Return the kind of an Avro schema's values; NULL where no column could have them."""
    try:
        return _avro_kind(schema, "")
    except ConfigError:
        return NULL


def _avro_kind(schema: Schema, where: str) -> Kind:
    try:
        texts = [json.loads(text) for text in (*schema.references, schema.text)]
    except ValueError:
        raise ConfigError(f"archive: {where} is no JSON") from None
    return columns_of_avro(texts[-1], texts[:-1], where)


def _parsed(schema: Schema) -> Any:
    try:
        return parsed([json.loads(text) for text in (*schema.references, schema.text)])[0]
    except ValueError as error:
        raise _Unusable(str(error)) from None


def _json_kind(schema: Any) -> Kind:
    """The kind of what a JSON schema describes; NULL where it does not say, and the values will."""
    if not isinstance(schema, dict):
        return NULL
    kind = schema.get("type")
    if isinstance(kind, list):
        known = [each for each in kind if each != "null"]
        kind = known[0] if len(known) == 1 else None
    if kind == "object" and isinstance(schema.get("properties"), dict):
        return struct_of({n: _json_kind(each) for n, each in schema["properties"].items()})
    if kind == "array":
        return array_of(_json_kind(schema.get("items")))
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


# Protobuf values as Arrow columns, decoded a batch at a time by ptars. Pure: schemas come as descriptors, nobody is asked.
# Types are those that tables have: unsigned numbers become the next wider type that holds them, enums are their names, google.protobuf.Duration is microseconds, google.type.TimeOfDay a text such as 10:05:00.000000.


BROKEN: Final = "the body is no Protobuf of its schema"
NO_INDEXES: Final = "the body has no valid message indexes after its schema's id"
NO_DAY: Final = "a google.type.Date of the body is no day of the calendar"
NULL_VALUE: Final = "the body is empty"
_MOST_INDEXES: Final = 100  # of nesting; Protobuf itself ends at this depth
_DAY: Final = 86_400_000_000  # microseconds
_WIDER: Final = {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def split_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Find which message of its schema's file a value is, and the value: what follows the schema's id in Confluent's wire format.

    The path has an index for each level of nesting, from the outside. A count and the indexes are zigzag varints; a
    count of 0 stands for the file's first message.

    Raises:
        ValueError: they end early, or are negative or too many.
    """
    count, at = _zigzag(data, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError(NO_INDEXES)
    path = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise ValueError(NO_INDEXES)
        path.append(index)
    return tuple(path) or (0,), data[at:]


def message_of(files: Sequence[bytes], path: Sequence[int] = (0,)) -> Any:
    """The descriptor of a message.

    Args:
        files: serialized FileDescriptorProto, each after those it imports; the last one has the message. Those of
            google/protobuf need not be given.
        path: its index in the file, then within each message around it, as `split_indexes` gives.

    Raises:
        UnusableProto: the files are no descriptors, lack an import, or have no such message.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool, given = DescriptorPool(), []
    try:
        given = [FileDescriptorProto.FromString(each) for each in files]
        names = {each.name for each in given}
        for each in given:
            for name in each.dependency:
                if name not in names and name in _WELL_KNOWN:
                    names.add(name)
                    _add_well_known(pool, name)
            pool.Add(each)
        file = pool.FindFileByName(given[-1].name)
    except (DecodeError, IndexError, KeyError, TypeError) as error:
        raise UnusableProto(f"the Protobuf schema cannot be used: {error}"[:300]) from None
    found: Any = None
    messages: Any = given[-1].message_type
    for index in path:
        if not 0 <= index < len(messages):
            raise UnusableProto(f"the Protobuf schema {file.name} has no message {list(path)}")
        name = messages[index].name
        found = found.nested_types_by_name[name] if found else file.message_types_by_name[name]
        messages = messages[index].nested_type
    if found is None:
        raise UnusableProto(f"the Protobuf schema {file.name}: the path of the message is empty")
    return found


class ProtobufValues:
    """Decodes values of one message type.

    Args:
        descriptor: what `message_of` gives.

    Attributes:
        schema: the columns, all nullable: one for each field, in the order of their numbers.

    Raises:
        ConfigError: ptars is not installed. UnusableProto: it cannot use the schema.
    """

    def __init__(self, descriptor: Any) -> None:
        try:
            ptars = import_module("ptars")
        except ImportError:
            raise ConfigError(
                'Protobuf bodies need ptars: pip install "roquette[registry]"'
            ) from None
        config = ptars.PtarsConfig(
            timestamp_unit="us", time_unit="us", duration_unit="us", enum_repr="string"
        )
        try:
            pool = ptars.HandlerPool([descriptor.file], config)
            self._handler = pool.get_for_message(descriptor)
            found = ptars.get_schema(descriptor, config)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # Rust's, of no class that can be imported
                raise
            raise UnusableProto(f"the Protobuf schema cannot be used: {error}"[:300]) from None
        self.schema = pa.schema([pa.field(each.name, _held(each.type)) for each in found])
        self._descriptor = descriptor

    def decode(self, values: Sequence[bytes | None]) -> tuple[pa.Table, list[str | None]]:
        """One row for each value, and why a value cannot be read (None: it can).

        An empty value is a message of defaults; rows of those that cannot be read have nulls. One bad value costs
        about log2(len(values)) more decodings of a part of them. Laxer than Google's own decoder in two things: unknown
        fields may be groups that do not end well, or have numbers above 2^29. A google.protobuf.Timestamp outside of what
        64-bit microseconds hold becomes their first or last.
        """
        errors: list[str | None] = [NULL_VALUE if each is None else None for each in values]
        tables: list[pa.Table] = []
        parts = [(0, len(values))]
        while parts:
            start, end = parts.pop()
            found = self._at_once(values[start:end])
            if found is not None:
                tables.append(found)
                columns = (each for batch in found.to_batches() for each in batch.columns)
                if any(any_within(each, _is_first_day) for each in columns):
                    errors[start:end] = self._wrong_days(values[start:end])
            elif end - start == 1:
                errors[start] = errors[start] or BROKEN
                tables.append(self._nulls())
            else:
                middle = (start + end) // 2
                parts += [(middle, end), (start, middle)]
        return pa.concat_tables(tables), errors

    def _at_once(self, values: Sequence[bytes | None]) -> pa.Table | None:
        if None in values:
            return None
        try:
            found = self._handler.array_to_record_batch(pa.array(values, pa.binary()))
            if any(any_within(each, _is_odd_time) for each in found.columns):
                return None
            return pa.Table.from_batches([found]).cast(self.schema)
        except ValueError:  # pa.ArrowInvalid is one, too
            return None

    def _wrong_days(self, values: Sequence[bytes | None]) -> list[str | None]:
        """NO_DAY for each that has such a date, which ptars takes for 1970-01-01; none of them is None."""
        from google.protobuf.message_factory import GetMessageClass

        message: Any = GetMessageClass(self._descriptor)
        return [NO_DAY if _has_no_day(message.FromString(each)) else None for each in values]

    def _nulls(self) -> pa.Table:
        return pa.table([pa.nulls(1, each.type) for each in self.schema], self.schema)


def rows_of(table: pa.Table) -> list[dict[str, Any] | None]:
    """Rows as Python's values without fields that are absent; None for a row with a time that Python's calendar does not have.

    Of a map's equal keys the last one stands, as Protobuf has it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of the equal keys
            return [_present(row) for row in table.to_pylist(maps_as_pydicts="lossy")]
    except (OverflowError, ValueError):
        if len(table) == 1:
            return [None]
    middle = len(table) // 2
    return [*rows_of(table.slice(0, middle)), *rows_of(table.slice(middle))]


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _present(each) for name, each in value.items() if each is not None}
    return [_present(each) for each in value] if isinstance(value, list) else value


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A varint's number and where the next byte is."""
    number = shift = 0
    while shift < 35:  # 32 bits in groups of 7
        if at == len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise ValueError(NO_INDEXES)


def _is_odd_time(values: pa.Array) -> bool:
    """Return True if a time of day is none, such as 25:00: Arrow makes a text of it that tells no time."""
    if not pa.types.is_time(values.type):
        return False
    times = values.cast(pa.int64())
    odd = pc.or_(pc.less(times, 0), pc.greater_equal(times, _DAY))
    return bool(pc.any(odd).as_py())


def _is_first_day(values: pa.Array) -> bool:
    """Return True if a 1970-01-01 is among them."""
    if not pa.types.is_date(values.type):
        return False
    return bool(pc.any(pc.equal(values.cast(pa.int32()), 0)).as_py())


def _has_no_day(message: Any) -> bool:
    """Return True if a google.type.Date within a message is none, such as 2026-02-30."""
    if message.DESCRIPTOR.full_name == "google.type.Date":
        try:
            date(message.year, message.month, message.day)
        except ValueError:
            return True
        return False
    return any(
        _has_no_day(each)
        for field, value in message.ListFields()
        for each in _messages(field, value)
    )


def _messages(field: Any, value: Any) -> Iterable[Any]:
    """Return the messages in a field's value."""
    if field.message_type is None:
        return ()
    if field.message_type.GetOptions().map_entry:
        has_messages = field.message_type.fields_by_name["value"].message_type is not None
        return value.values() if has_messages else ()
    return value if field.is_repeated else (value,)


def _held(kind: pa.DataType) -> pa.DataType:
    """The type that a table has for one of ptars."""
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([pa.field(each.name, _held(each.type)) for each in fields])
    if pa.types.is_map(kind):
        return pa.map_(_held(kind.key_type), _held(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_held(kind.value_type))
    if pa.types.is_duration(kind):
        return pa.int64()
    return pa.string() if pa.types.is_time(kind) else _WIDER.get(kind, kind)


_WELL_KNOWN: Final = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
}


def _add_well_known(pool: Any, name: str) -> None:
    pool.AddSerializedFile(import_module(_WELL_KNOWN[name]).DESCRIPTOR.serialized_pb)
