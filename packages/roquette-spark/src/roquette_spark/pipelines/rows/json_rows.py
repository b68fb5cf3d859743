"""JSON bodies as columns, in a worker: regular ones by pyarrow at once, others one by one.

What a row is, is said here alone. A body that is one JSON object is a row; all else is bad. A field is in its column; where there
is none, or the column cannot hold the value as it is, the field alone is in the rescued ones. A list or a map is one value; objects
within have fields of their own. Values are read as Spark's from_json reads them, but for those it would change: a decimal with too
many places, a number too large for a float.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.message_rows import may_be_column
from roquette_spark.pipelines.rows.decoder import (
    NULL,
    Bodies,
    Kind,
    NumberText,
    arrow_of,
    changed,
    complete,
    decimal_of,
    fields_of,
    joined,
    kind_of,
    struct_of,
    text_day,
    widened,
    within,
)

EMPTY = "the body is empty"
NOT_UTF8 = "the body is not UTF-8"
NO_OBJECT = "the body is no JSON object"
MALFORMED = "the body is malformed JSON"
TWICE = "the body has two fields of one name"
_REGULAR = ("long", "integer", "short", "byte", "double", "float", "boolean", "string")
_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_FLOAT_ENDS = float(2**128 - 2**103)  # from here on the nearest float is infinite
_MOST_WHOLE = 19  # digits of a long
_WIDE = Context(prec=200)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SPECIAL = {
    **dict.fromkeys(("NaN",), float("nan")),
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}
Convert = Callable[[Any], Any]
"""Makes a JSON value one for pa.array. Raises ValueError or ArithmeticError for one that the column cannot hold."""
Place = Callable[[Any], tuple[Any, Any]]
"""The same of an object, a list or a map; also gives what of it has no place, None where all has."""
Row = tuple[dict[str, Any] | None, str | None, str | None]
"""Values by column, why there are none, and JSON of what has no column."""


class NoObjects(PipelineError):
    """No body of a sample is a JSON object."""


class Twice(ValueError):
    """Two fields of one name in one object."""


class _Unfit(ValueError):
    """A value is not of its column's type."""


# Texts and values: each number as it was written.


def decode_object(text: str) -> Any:
    """A JSON value; numbers with a fraction or an exponent keep their text.

    Raises:
        Twice: two fields of an object have one name.
        ValueError: it is malformed, or has half of a surrogate pair.
        RecursionError: it is too deep.
    """
    value = _DECODER.decode(text)
    if _SURROGATE.search(text) is not None:
        text_of(value).encode()  # halves of pairs are no text
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Twice
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=NumberText, parse_constant=NumberText
)


def text_of(value: Any) -> str:
    """JSON with each number as it was written."""
    if isinstance(value, NumberText):
        return str(value)
    if isinstance(value, dict):
        items = (
            f"{json.dumps(name, ensure_ascii=False)}:{text_of(v)}" for name, v in value.items()
        )
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def read_object(body: bytes | None) -> tuple[Any, str | None]:
    """The object of a body, or None and why it is none."""
    if not body:
        return None, EMPTY
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None, NOT_UTF8
    if not text.lstrip(" \t\n\r\v\f").startswith("{"):
        return None, NO_OBJECT
    try:
        return decode_object(text), None
    except Twice:
        return None, TWICE
    except (ValueError, ArithmeticError, RecursionError):
        return None, MALFORMED


def infer_columns(bodies: Iterable[bytes | None], topic: str) -> str:
    """The fields of a sample of bodies, as Spark's JSON; what is only null is a text.

    Raises:
        NoObjects: no body of the sample is a JSON object with fields.
    """
    found: Kind = NULL
    for body in bodies:
        value, _ = read_object(body)
        found = joined(found, kind_of(value))
    return complete_columns(found, topic)


def complete_columns(found: Kind, topic: str) -> str:
    """Spark's JSON of what a sample of bodies has, whatever its fields are called. Raises NoObjects."""
    kinds = {name: complete(kind) for name, kind in fields_of(_known(found)).items()}
    kind = struct_of({name: each for name, each in kinds.items() if each is not None})
    if not kind["fields"]:
        raise NoObjects(
            f"no message in the sample of topic {topic} is a JSON object: use --format raw, or give --schema"
        )
    return json.dumps(kind)


def _known(kind: Kind) -> Kind:
    """With texts for what is only known to be null."""
    return "string" if kind == NULL else changed(kind, _known)


def schema_of_text(text: str, pipeline: str) -> str:
    """Spark's JSON of a schema given as DDL ("id int, name string") or as that JSON.

    Raises:
        ConfigError: it is neither, or has a type that values of JSON never are.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            found = str(StructType.fromJson(json.loads(text)).json())
        else:
            found = str(StructType.fromDDL(text).json())
        JsonReader(found)
    except (PySparkException, ValueError, KeyError, TypeError, ConfigError) as error:
        words = str(error).strip().split("\n", 1)[0][:200]
        raise ConfigError(
            f'{pipeline}: --schema must be columns such as "id int, name string", not {text[:80]!r}: {words}'
        ) from None
    return found


class JsonReader:
    """Reads the bodies of one task.

    Args:
        body_schema: Spark's JSON of the columns.
        takes: as of `widened`.

    Attributes:
        schema: the columns.
        news: as of BodyReader. Messages widen it one after another, so that it is the same however they are cut into batches.

    Raises:
        ConfigError: values of JSON are never of a column's type.
    """

    def __init__(self, body_schema: str, takes: Callable[[str], bool] = may_be_column) -> None:
        from pyspark.sql.types import StructType

        self.news: Kind = json.loads(body_schema)
        self._takes = takes
        self._place = _struct(self.news)
        self._regular = _is_regular(self.news)
        self.schema = arrow_of(StructType.fromJson(self.news))

    def read(self, bodies: pa.Array) -> Bodies:
        if self._regular:
            found = self._read_at_once(bodies)
            if found is not None:
                return found
        return self._read_each(bodies)

    def _read_at_once(self, bodies: pa.Array) -> Bodies | None:
        """None if any body is irregular in any way."""
        count = len(bodies)
        if not count or bodies.null_count:
            return None
        try:
            bodies.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        # Each body within an object that says its row: two in one body, or one of two bodies, are found out.
        numbers = pa.array(np.arange(count))
        rows = numbers.cast(pa.string()).cast(pa.binary())
        objects = pc.binary_join_element_wise(b'{"row":', rows, b',"body":', bodies, b"}\n", b"")
        data = objects.buffers()[2]
        body = pa.struct(list(self.schema))
        try:
            found = pa.json.read_json(
                pa.BufferReader(data),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pa.json.ParseOptions(
                    explicit_schema=pa.schema([("row", pa.int64()), ("body", body)]),
                    newlines_in_values=True,
                    unexpected_field_behavior="error",
                ),
            )
        except pa.ArrowInvalid:
            return None
        values = _one(found.column("body"))
        if not _one(found.column("row")).equals(numbers) or values.null_count:
            return None
        if any_within(values, _is_infinite):
            return None
        return Bodies(values.flatten(), pa.nulls(count, pa.string()))

    def _read_each(self, bodies: pa.Array) -> Bodies:
        return self.bodies_of([self.read_one(body) for body in bodies.to_pylist()])

    def bodies_of(self, found: Sequence[Row]) -> Bodies:
        rows, errors, rescued = zip(*found, strict=True) if found else ((), (), ())
        columns = [
            pa.array([None if row is None else row.get(field.name) for row in rows], field.type)
            for field in self.schema
        ]
        left_over = None if not any(rescued) else pa.array(rescued, pa.string())
        return Bodies(columns, pa.array(errors, pa.string()), left_over)

    def read_one(self, body: bytes | None) -> Row:
        value, why = read_object(body)
        return self.place(value) if why is None else (None, why, None)

    def place(self, value: dict[str, Any]) -> Row:
        """What `decode_object` gives, in its columns."""
        row, left = self._place(value)
        if left is None:
            return row, None, None
        self.news = widened(self.news, kind_of(left, self.news), self._takes)
        return row, None, text_of(left)


def _one(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _is_regular(kind: Kind) -> bool:
    """Return True if pyarrow reads such values as Spark does, or refuses."""
    if not isinstance(kind, dict):
        return kind in _REGULAR
    return kind["type"] != "map" and all(map(_is_regular, within(kind)))


def any_within(values: pa.Array, holds: Callable[[pa.Array], bool]) -> bool:
    """Whether something holds of values that are no structs, lists or maps, or of any within these."""
    if pa.types.is_map(values.type):
        return any_within(values.items, holds)
    if pa.types.is_struct(values.type):
        return any(any_within(each, holds) for each in values.flatten())
    return any_within(values.flatten(), holds) if pa.types.is_list(values.type) else holds(values)


def _is_infinite(values: pa.Array) -> bool:
    """Whether a number was too large for its column: no text of JSON tells an infinite one in another way."""
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_inf(values)).as_py())


def _struct(kind: Kind) -> Place:
    parts: dict[str, tuple[Callable[[Any], Any], bool]] = {}
    for field in kind["fields"]:
        inner = field["type"]
        is_deep = isinstance(inner, dict)
        parts[field["name"]] = (_deep(inner) if is_deep else _plain(inner)), is_deep
    blank = dict.fromkeys(parts)

    def place(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, dict):
            raise _Unfit
        row, left = blank.copy(), {}
        for name, each in value.items():
            if name not in parts:
                left[name] = each
            elif each is not None:
                convert, is_deep = parts[name]
                try:
                    found = convert(each)
                except (ValueError, ArithmeticError):
                    left[name] = each
                    continue
                if is_deep:
                    found, rest = found
                    if rest is not None:
                        left[name] = rest
                row[name] = found
        return row, left or None

    return place


def _deep(kind: Kind) -> Place:
    if kind["type"] == "struct":
        return _struct(kind)
    inner = kind["elementType" if kind["type"] == "array" else "valueType"]
    is_deep = isinstance(inner, dict)
    one: Callable[[Any], Any] = _deep(inner) if is_deep else _plain(inner)
    key = _key(kind.get("keyType", "string"))

    def all_of(values: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        if not is_deep:
            return [None if each is None else one(each) for each in values], []
        pairs = [(None, None) if each is None else one(each) for each in values]
        return [found for found, _ in pairs], [rest for _, rest in pairs]

    def array(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list):
            raise _Unfit
        found, left = all_of(value)
        return found, left if any(each is not None for each in left) else None

    def entries(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, dict):
            raise _Unfit
        found, left = all_of(value.values())
        rest = {name: each for name, each in zip(value, left, strict=False) if each is not None}
        keys = [key(name) for name in value]
        if len(set(keys)) < len(keys):
            raise _Unfit
        return list(zip(keys, found, strict=True)), rest or None

    return array if kind["type"] == "array" else entries


def _key(kind: str) -> Convert:
    """Of a map: names are texts, 1 and true among them."""
    convert = _plain(kind)
    return convert if kind == "string" else lambda name: convert(_DECODER.decode(name))


def _plain(kind: str) -> Convert:
    if (held := decimal_of(kind)) is not None:
        return _decimal(*held)
    if kind in _BITS:
        return _whole(_BITS[kind])
    if kind not in _PLAIN:
        raise ConfigError(f"values of JSON are never of type {kind}")
    return _PLAIN[kind]


def _whole(bits: int) -> Convert:
    least, most = -(2**bits), 2**bits - 1

    def convert(value: Any) -> Any:
        if isinstance(value, NumberText):  # 19.0 and 1.9e1
            number = Decimal(value)
            if not number.is_finite() or number.adjusted() >= _MOST_WHOLE or number != int(number):
                raise _Unfit
            value = int(number)
        if type(value) is not int or not least <= value <= most:
            raise _Unfit
        return value

    return convert


def _decimal(digits: int, places: int) -> Convert:
    step = Decimal(1).scaleb(-places)

    def convert(value: Any) -> Any:
        if type(value) is not int and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
            raise _Unfit
        number = Decimal(value)
        if not number.is_finite() or (number and number.adjusted() >= digits - places):
            raise _Unfit
        found = number.quantize(step, context=_WIDE)
        if found != number:
            raise _Unfit
        return found

    return convert


def _double(value: Any) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if isinstance(value, NumberText) or type(value) is int:
        found = float(value)
        if math.isfinite(found):
            return found
    raise _Unfit


def _float(value: Any) -> float:
    found = _double(value)
    if math.isfinite(found) and abs(found) >= _FLOAT_ENDS:
        raise _Unfit
    return found


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unfit
    return value


def _string(value: Any) -> str:
    return value if type(value) is str else text_of(value)


def _text(value: Any) -> str:
    if type(value) is not str or not value:
        raise _Unfit
    return value


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise _Unfit
    return base64.b64decode(value, validate=True)


def _date(value: Any) -> Any:
    found = text_day(_text(value).strip())
    if found is None:
        raise _Unfit
    return found


def _time(value: Any) -> datetime:
    """Texts as ISO 8601 has them, in UTC where they do not say; numbers are seconds since 1970."""
    if isinstance(value, NumberText) or type(value) is int:
        try:
            return datetime.fromtimestamp(float(value), UTC)
        except OSError:  # beyond what the system's calendar has
            raise _Unfit from None
    found = datetime.fromisoformat(_text(value).strip())
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _local_time(value: Any) -> datetime:
    found = datetime.fromisoformat(_text(value).strip())
    if found.tzinfo is not None:
        raise _Unfit
    return found


_PLAIN: dict[str, Convert] = {
    "double": _double,
    "float": _float,
    "boolean": _boolean,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _local_time,
}
