"""Bodies that have their schema with them, as Kafka Connect's JsonConverter writes them, and so Debezium: {"schema": ..., "payload":
...}. The payload is the row; days, times and decimals, which are numbers and base64 there, are what their schema says.

Read from the code of Kafka Connect 4.3 (org.apache.kafka.connect.data) and Debezium 3.6 (io.debezium.time, io.debezium.data).
"""

import base64
import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from roquette_spark.pipelines.kit.message_rows import MOST_DIGITS, may_be_column
from roquette_spark.pipelines.rows.decoder import (
    NULL,
    Bodies,
    Kind,
    array_of,
    joined,
    kind_of,
    struct_of,
    widened,
)
from roquette_spark.pipelines.rows.json_rows import (
    JsonReader,
    Row,
    complete_columns,
    read_object,
)

_START, _THEN = b'{"schema":', b',"payload":'
_DAY_0 = datetime(1970, 1, 1)
_DAY_US = 86_400_000_000
_KINDS = {
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "bytes": "binary",
}
Change = Callable[[Any], Any]
"""Makes a payload's value one that JSON's columns take. What it cannot make anything of stays as it is."""


def _moment(per_us: int, over_us: int = 1) -> Change:
    """Of a timestamp in units of which `per_us` are a microsecond, or each of which is `over_us` of them."""

    def change(value: Any) -> Any:
        whole, rest = divmod(value, per_us)
        return value if rest else (_DAY_0 + timedelta(microseconds=whole * over_us)).isoformat()

    return change


def _clock(per_us: int, over_us: int = 1) -> Change:
    """The same of a time of day; midnight at the day's end is 24:00."""

    def change(value: Any) -> Any:
        whole, rest = divmod(value, per_us)
        if whole * over_us == _DAY_US:
            return "24:00:00"
        found = _DAY_0 + timedelta(microseconds=whole * over_us)
        return value if rest or found.date() != _DAY_0.date() else found.time().isoformat()

    return change


def _day(value: Any) -> Any:
    return (_DAY_0 + timedelta(days=value)).date().isoformat()


def _number(value: Any, scale: int) -> str:
    found = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    return format(Decimal(found).scaleb(-scale), "f")


def _any_scale(value: Any) -> Any:
    return _number(value["value"], value["scale"])


_NAMED: dict[str, tuple[Kind, Change]] = {
    "io.debezium.time.Date": ("date", _day),
    "org.apache.kafka.connect.data.Date": ("date", _day),
    "io.debezium.time.Timestamp": ("timestamp_ntz", _moment(1, 1000)),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp_ntz", _moment(1, 1000)),
    "io.debezium.time.MicroTimestamp": ("timestamp_ntz", _moment(1)),
    "io.debezium.time.NanoTimestamp": ("timestamp_ntz", _moment(1000)),
    "io.debezium.time.Time": ("string", _clock(1, 1000)),
    "org.apache.kafka.connect.data.Time": ("string", _clock(1, 1000)),
    "io.debezium.time.MicroTime": ("string", _clock(1)),
    "io.debezium.time.NanoTime": ("string", _clock(1000)),
    "io.debezium.data.VariableScaleDecimal": ("string", _any_scale),
    "io.debezium.time.ZonedTimestamp": ("timestamp", lambda value: value),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _meaning(schema: Any) -> tuple[Kind, Change | None]:
    """The column of a schema's values, and what is done to them; None: nothing.

    Raises:
        KeyError, TypeError, ValueError: it is no schema of Connect.
    """
    name, plain = schema.get("name"), schema["type"]
    if name in _NAMED:
        kind, change = _NAMED[name]
        return kind, _where_it_can(change)
    if name == _DECIMAL:
        scale = int(schema["parameters"]["scale"])
        digits = int(schema["parameters"].get("connect.decimal.precision", MOST_DIGITS))
        fits = 0 <= scale <= digits <= MOST_DIGITS
        kind = f"decimal({digits},{scale})" if fits else "string"
        return kind, _where_it_can(lambda value: _number(value, scale))
    if plain == "struct":
        return _struct(schema["fields"])
    if plain == "array":
        inner, each = _meaning(schema["items"])
        return array_of(inner), None if each is None else _all(each)
    return _KINDS.get(plain, "string"), None  # maps are texts


def _where_it_can(change: Change) -> Change:
    def changed(value: Any) -> Any:
        try:
            return value if value is None else change(value)
        except (ValueError, ArithmeticError, TypeError, KeyError):
            return value

    return changed


def _struct(fields: list[Any]) -> tuple[Kind, Change | None]:
    found = {field["field"]: _meaning(field) for field in fields}
    changes = {name: change for name, (_, change) in found.items() if change is not None}

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            for name in changes.keys() & value.keys():
                value[name] = changes[name](value[name])
        return value

    columns = struct_of({name: kind for name, (kind, _) in found.items()})
    return columns, change if changes else None


def _all(change: Change) -> Change:
    return lambda value: [change(each) for each in value] if isinstance(value, list) else value


class _Schemas:
    """Schemas that bodies have had. Most bodies of a topic begin with the same one: it is read once."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Kind, Change | None] | None = None

    def read(self, body: bytes | None) -> tuple[Any, str | None, Kind]:
        """The row of a body, or None and why there is none; the kind that its schema says, NULL where it has none."""
        if body is None or not body.startswith(_START):
            return *read_object(body), NULL
        if self._last is None or not body.startswith(self._last[0]):
            self._last = _schema_of(body)
        if self._last is None:
            return *read_object(body), NULL
        start, kind, change = self._last
        end = len(body.rstrip()) - 1
        value, why = read_object(body[len(start) : end] if body[end:].startswith(b"}") else body)
        return (value if why or change is None else change(value)), why, kind


def _schema_of(body: bytes) -> tuple[bytes, Kind, Change | None] | None:
    """A body's beginning, until its payload, and what the schema in it says; None: there is no such schema."""
    try:
        text = body.decode()
        schema, end = json.JSONDecoder().raw_decode(text, len(_START))
        start = text[:end].encode() + _THEN
        if schema["type"] != "struct" or not body.startswith(start):
            return None
        return start, *_meaning(schema)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class ConnectReader(JsonReader):
    """Reads the bodies of one task; those without a schema are JSON. Its schema widens the columns, as JsonReader's values do."""

    def __init__(self, body_schema: str, takes: Callable[[str], bool] = may_be_column) -> None:
        super().__init__(body_schema, takes)
        self._schemas, self._seen = _Schemas(), NULL

    def read(self, bodies: pa.Array) -> Bodies:
        """Bodies as columns: at once where none has a schema, else one by one."""
        with_schema = pc.any(pc.starts_with(bodies, _START.decode())).as_py()
        return self._read_each(bodies) if with_schema else super().read(bodies)

    def read_one(self, body: bytes | None) -> Row:
        """A body by itself."""
        value, why, kind = self._schemas.read(body)
        if kind is not self._seen and kind != NULL:
            self._seen, self.news = kind, widened(self.news, kind, self._takes)
        return self.place(value) if why is None else (None, why, None)


def connect_columns(bodies: Iterable[bytes | None], topic: str) -> str:
    """The columns of a sample of bodies, as `infer_columns`. Raises NoObjects."""
    schemas = _Schemas()
    found: Kind = NULL
    for body in bodies:
        value, _, kind = schemas.read(body)
        found = joined(found, kind_of(value) if kind == NULL else kind)
    return complete_columns(found, topic)
