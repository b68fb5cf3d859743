"""JSON bodies as columns, in a worker: regular ones by pyarrow at once, others one by one.

A body is read as Spark's from_json reads it, but for what Spark would not tell: every field is in its column, in
the rescued ones, or the message is bad (kit/json_bodies.py).
"""

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from roquette_spark.pipelines.kit.message_rows import (  # fmt: skip
    MALFORMED,
    TWICE,
    NumberText,
    Twice,
    decode_object,
    rescue,
    text_of,
)
from roquette_spark.pipelines.rows.decoder import (
    NULL,
    Bodies,
    Kind,
    arrow_of,
    joined,
    kind_of,
    text_day,
)

EMPTY = "the body is empty"
NOT_UTF8 = "the body is not UTF-8"
NO_OBJECT = "the body is no JSON object"
_REGULAR = ("long", "integer", "short", "byte", "double", "float", "boolean", "string")
_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_SPECIAL = {
    **dict.fromkeys(("NaN",), float("nan")),
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}
Convert = Callable[[Any], Any]
Row = tuple[dict[str, Any] | None, str | None, str | None]
"""Values by column, why there are none, and JSON of what has no column."""


class _Unfit(ValueError):
    """A value is not of its column's type."""


class JsonReader:
    """Reads the bodies of one task.

    Attributes:
        news: kind of all that no column took, and of bodies with a value that its column could not take.
    """

    def __init__(self, body_schema: str) -> None:
        from pyspark.sql.types import StructType

        self._known: Kind = json.loads(body_schema)
        self._schema = arrow_of(StructType.fromJson(self._known))
        self._regular = _is_regular(self._known)
        self._convert = _converter(self._known)
        self.news: Kind = NULL

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
        body = pa.struct(list(self._schema))
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
        return Bodies(values.flatten(), pa.nulls(count, pa.string()))

    def _read_each(self, bodies: pa.Array) -> Bodies:
        return self.bodies_of([self.read_one(body) for body in bodies.to_pylist()])

    def bodies_of(self, found: Sequence[Row]) -> Bodies:
        """Rows as columns."""
        rows, errors, rescued = zip(*found, strict=True) if found else ((), (), ())
        columns = [
            pa.array([None if row is None else row.get(field.name) for row in rows], field.type)
            for field in self._schema
        ]
        left_over = None if not any(rescued) else pa.array(rescued, pa.string())
        return Bodies(columns, pa.array(errors, pa.string()), left_over)

    def read_one(self, body: bytes | None) -> Row:
        """A body by itself."""
        if not body:
            return None, EMPTY, None
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return None, NOT_UTF8, None
        if not text.lstrip(" \t\n\r\v\f").startswith("{"):
            return None, NO_OBJECT, None
        try:
            return self.place(decode_object(text))
        except Twice:
            return None, TWICE, None
        except (ValueError, ArithmeticError, RecursionError):
            return None, MALFORMED, None

    def place(self, value: Any) -> Row:
        """Put what `decode_object` gives into its columns. Raises ValueError or ArithmeticError for what JSON cannot have."""
        left = rescue(value, self._known)
        try:
            row = self._convert(value)
        except (ValueError, ArithmeticError):
            self.news = joined(self.news, kind_of(value, NumberText))
            return None, MALFORMED, None
        if left is None:
            return row, None, None
        self.news = joined(self.news, kind_of(left, NumberText))
        return row, None, text_of(left)


def _one(values: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _is_regular(kind: Kind) -> bool:
    """Return True if pyarrow reads such values as Spark does, or refuses."""
    if not isinstance(kind, dict):
        return kind in _REGULAR
    if kind["type"] == "struct":
        return all(_is_regular(field["type"]) for field in kind["fields"])
    return kind["type"] == "array" and _is_regular(kind["elementType"])


def _converter(kind: Kind) -> Convert:
    """Return what makes a JSON value one for pa.array; it raises ValueError or ArithmeticError for what does not fit."""
    if isinstance(kind, dict):
        return _compound(kind)
    if kind.startswith("decimal"):
        digits, _, places = kind.removeprefix("decimal").strip("()").partition(",")
        return _or_null(_decimal(int(digits or 10), int(places or 0)))
    if kind in _BITS:
        return _or_null(_whole(_BITS[kind]))
    if kind not in _PLAIN:
        raise ValueError(f"a JSON body cannot become a column of type {kind}")
    return _or_null(_PLAIN[kind])


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _compound(kind: Kind) -> Convert:
    if kind["type"] == "struct":
        parts = [(field["name"], _converter(field["type"])) for field in kind["fields"]]

        def struct(value: Any) -> Any:
            if not isinstance(value, dict):
                raise _Unfit
            return {name: convert(value.get(name)) for name, convert in parts}

        return _or_null(struct)
    inner = _converter(kind["elementType" if kind["type"] == "array" else "valueType"])
    if kind["type"] == "array":

        def array(value: Any) -> Any:
            if not isinstance(value, list):
                raise _Unfit
            return [inner(each) for each in value]

        return _or_null(array)

    def entries(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Unfit
        return [(name, inner(each)) for name, each in value.items()]

    return _or_null(entries)


def _whole(bits: int) -> Convert:
    least, most = -(2**bits), 2**bits - 1

    def convert(value: Any) -> Any:
        if type(value) is not int or not least <= value <= most:
            raise _Unfit
        return value

    return convert


def _decimal(digits: int, places: int) -> Convert:
    step = Decimal(1).scaleb(-places)

    def convert(value: Any) -> Any:
        if isinstance(value, (bool, dict, list)):
            raise _Unfit
        found = Decimal(value).quantize(step, ROUND_HALF_UP)
        if len(found.as_tuple().digits) > digits:
            raise _Unfit
        return found

    return convert


def _double(value: Any) -> float:
    if isinstance(value, NumberText):
        return float(value)
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    raise _Unfit


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
    "float": _double,
    "boolean": _boolean,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _local_time,
}
