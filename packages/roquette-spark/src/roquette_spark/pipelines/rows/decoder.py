"""Messages to the rows of a table and of its quarantine, as Arrow: what an archive's tasks do with what they read.

The days and hours of partitions are those in UTC, and times are microseconds in UTC, whatever a session's time zone is.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from roquette_spark.pipelines.kit.message_rows import (
    BESIDE_COLUMNS,
    BY_DAY,
    BY_HOUR,
    DAY,
    ERROR,
    EXTRA_COLUMNS,
    HOUR,
    RAW_COLUMNS,
    RESCUED,
    RowForm,
)
from roquette_spark.pipelines.kit.table_files import LONGEST_FOLDER, too_long

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# Types of columns as Spark's JSON: what a value would need, and a schema that takes more than before. Pure.
# A kind is a name such as "long", or a dict: struct, array, map.


Kind = Any
NULL = "void"  # of a value that says nothing
MOST_FIELDS = 1000  # of all structs of a schema together; more stay without a column
_LONG = 2**63
_WHOLE = ("byte", "short", "integer", "long")
_NUMBERS = (*_WHOLE, "float", "double")


def kind_of(value: Any, number: type) -> Kind:
    """Return the kind of column that a JSON value would need.

    Args:
        number: class of the numbers that are written with a fraction or an exponent.
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, number):
        return "double"
    if isinstance(value, int):
        return "long" if -_LONG <= value < _LONG else "string"
    if isinstance(value, dict):
        fields = [_field(name, kind_of(each, number)) for name, each in value.items()]
        return {"type": "struct", "fields": fields}
    if isinstance(value, list):
        inner: Kind = NULL
        for each in value:
            inner = joined(inner, kind_of(each, number))
        return {"type": "array", "elementType": inner, "containsNull": True}
    return "string"


def joined(one: Kind, other: Kind) -> Kind:
    """A kind for values of both; "string" takes what has nothing in common."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if isinstance(one, dict) and isinstance(other, dict) and one["type"] == other["type"]:
        if one["type"] == "struct":
            return _structs(one, other, joined)
        name = "elementType" if one["type"] == "array" else "valueType"
        return {**one, name: joined(one[name], other[name])}
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    return "double" if one in _NUMBERS and other in _NUMBERS else "string"


def widened(known: Kind, found: Kind) -> Kind:
    """A schema that keeps what it has and takes more: fields it lacks, and whole numbers that are too large for it.

    Fields of which nothing is known but null are left out, and all that are more than MOST_FIELDS.
    """
    wider = _widened(known, found)
    return wider if _count(wider) <= max(MOST_FIELDS, _count(known)) else known


def grew_from(known: Kind, given: Kind) -> bool:
    """Return True if a schema is another one that bodies may have widened since."""
    return bool(_ordered(widened(given, known)) == _ordered(known))


def _ordered(kind: Kind) -> Kind:
    """Return what matters of a kind: names and types."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return sorted((field["name"], _ordered(field["type"])) for field in kind["fields"])
    name = "elementType" if kind["type"] == "array" else "valueType"
    return kind["type"], _ordered(kind[name])


def _widened(known: Kind, found: Kind) -> Kind:
    if isinstance(known, dict) and isinstance(found, dict):
        if known["type"] == "struct" == found["type"]:
            return _structs(known, found, _widened)
        if known["type"] == "array" == found["type"]:
            return {**known, "elementType": _widened(known["elementType"], found["elementType"])}
        if known["type"] == "map" and found["type"] == "struct":
            inner = known["valueType"]
            for field in found["fields"]:
                inner = _widened(inner, field["type"])
            return {**known, "valueType": inner}
    if _plain(known, found) and known in _WHOLE[:3] and found == "long":
        return "long"
    return known


def _structs(one: Kind, other: Kind, both: Any) -> Kind:
    fields = {field["name"]: field for field in one["fields"]}
    taken = {name.lower() for name in fields}
    for field in other["fields"]:
        name = field["name"]
        if name in fields:
            fields[name] = {**fields[name], "type": both(fields[name]["type"], field["type"])}
        elif both is joined:
            fields[name] = field
        elif name.lower() not in taken and (kind := complete(field["type"])) is not None:
            fields[name] = _field(name, kind)
            taken.add(name.lower())
    return {**one, "fields": list(fields.values())}


def complete(kind: Kind) -> Kind:
    """Without what is only known to be null, and without names that differ in case alone; None if nothing remains."""
    if not isinstance(kind, dict):
        return None if kind == NULL else kind
    if kind["type"] in ("array", "map"):
        name = "elementType" if kind["type"] == "array" else "valueType"
        inner = complete(kind[name])
        return None if inner is None else {**kind, name: inner}
    fields, taken = [], set()
    for field in kind["fields"]:
        inner = complete(field["type"])
        if inner is not None and field["name"].lower() not in taken:
            taken.add(field["name"].lower())
            fields.append(_field(field["name"], inner))
    return {**kind, "fields": fields} if fields else None


def _field(name: str, kind: Kind) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _plain(*kinds: Kind) -> bool:
    return all(isinstance(kind, str) for kind in kinds)


def _count(kind: Kind) -> int:
    """Fields of all structs."""
    if not isinstance(kind, dict):
        return 0
    if kind["type"] == "struct":
        return sum(1 + _count(field["type"]) for field in kind["fields"])
    return _count(kind["elementType" if kind["type"] == "array" else "valueType"])


_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[\sT].*)?)?)?\s*")


@dataclass(frozen=True, slots=True)
class Bodies:
    """Bodies of some messages as columns.

    Attributes:
        columns: one array for each field of the form's `body_schema`, in its order.
        errors: why a body cannot be read; null for the good ones. What columns have in the others' places is not looked at.
        rescued: JSON of the fields that no column takes, null where there are none; None: there are none anywhere.
    """

    columns: list[pa.Array]
    errors: pa.Array
    rescued: pa.Array | None = None


class BodyReader(Protocol):
    """One way to read bodies. Lives in one task."""

    @property
    def news(self) -> Kind:
        """Kind (rows/kinds.py) of what no column took so far."""

    def read(self, bodies: pa.Array) -> Bodies:
        """Bodies (binary, may be null or empty) as columns; never raises for what a body has."""
        ...


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of one batch of messages.

    Attributes:
        good: with the columns of `table_type`.
        bad: with those of `quarantine_type`; None for a form that takes every message.
        rescued: good rows with fields that no column takes.
    """

    good: pa.Table
    bad: pa.Table | None
    rescued: int = 0


class Decoder:
    """Decodes the batches of one task.

    Args:
        reader: of the bodies; None for the raw form.
    """

    def __init__(self, form: RowForm, reader: BodyReader | None = None) -> None:
        assert (reader is None) == (form.kind == "raw"), form.kind
        self._form = form
        self._reader = reader
        self.schema = arrow_of(table_type(form))
        self.bad_schema = arrow_of(quarantine_type())
        self._place = -1  # of a column with texts that partitions the table
        if form.partition not in (BY_DAY, BY_HOUR):
            place = self.schema.get_field_index(form.partition)
            self._place = place if pa.types.is_string(self.schema.field(place).type) else -1

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """`batch` has RAW_COLUMNS of messages."""
        if self._reader is None:
            columns = [batch.column(name) for name in RAW_COLUMNS]
            columns += self._when(batch, {})
            return Decoded(self._rows(columns), None)
        bodies = self._reader.read(batch.column("body"))
        good = self._rows(self._columns(batch, bodies))
        errors = self._too_long(good, bodies.errors)
        if errors.null_count == len(errors):
            bad = self.bad_schema.empty_table()
        else:
            good = good.filter(fine := pc.is_null(errors))
            bad = self._bad(batch, errors, pc.invert(fine))
        rescued = good.num_rows - good.column(RESCUED).null_count if bodies.rescued else 0
        return Decoded(good, bad, rescued)

    def _rows(self, columns: list[pa.Array]) -> pa.Table:
        """An empty text names no folder: it is null in the column that partitions, as Delta Lake has it."""
        rows = pa.Table.from_arrays(columns, schema=self.schema)
        if self._place >= 0:
            texts = rows.column(self._place)
            kept = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
            rows = rows.set_column(self._place, self.schema.field(self._place), kept)
        return rows

    def _too_long(self, rows: pa.Table, errors: pa.Array) -> pa.Array:
        """The errors, and those of values that cannot be the name of a folder."""
        if self._place < 0:
            return errors
        name, texts = self._form.partition, rows.column(self._place).combine_chunks()
        if (pc.max(pc.binary_length(texts)).as_py() or 0) <= LONGEST_FOLDER // 3 - len(name):
            return errors
        coded = texts.dictionary_encode()
        why = f"the value of {name}, which partitions the table, is too long for a folder's name"
        found = [why if too_long(name, text) else None for text in coded.dictionary.to_pylist()]
        return pc.coalesce(errors, pa.array(found, pa.string()).take(coded.indices))

    def _columns(self, batch: pa.RecordBatch, bodies: Bodies) -> list[pa.Array]:
        names = [field["name"] for field in json.loads(self._form.body_schema)["fields"]]
        columns = list(bodies.columns)
        columns += [batch.column(name) for name in BESIDE_COLUMNS]
        for name in self._form.extra_names():
            if name == RESCUED:
                columns.append(_or_nulls(bodies.rescued, batch.num_rows))
            else:
                columns.append(batch.column(EXTRA_COLUMNS[name]))
        if self._form.keep_body:
            columns.append(batch.column("body"))
        return [*columns, *self._when(batch, dict(zip(names, bodies.columns, strict=True)))]

    def _when(self, batch: pa.RecordBatch, body: dict[str, pa.Array]) -> list[pa.Array]:
        """The day, and the hour if the table is by hours."""
        name = self._form.day_of
        is_own = name in ("store_timestamp", "born_timestamp")
        values = batch.column(name) if is_own else body[name]
        if self._form.partition != BY_HOUR:
            return [_day_of(values)]
        moments = _moments_of(values)
        return [_day_of(moments), pc.hour(moments).cast(pa.int32())]

    def _bad(self, batch: pa.RecordBatch, errors: pa.Array, chosen: pa.Array) -> pa.Table:
        columns = [errors, *(batch.column(name) for name in RAW_COLUMNS)]
        columns.append(_day_of(batch.column("store_timestamp")))
        return pa.Table.from_arrays(columns, schema=self.bad_schema).filter(chosen)


def table_type(form: RowForm) -> "StructType":
    """The columns of a table, day and hour the last."""
    from pyspark.sql.types import StructType

    found = StructType()
    if form.kind == "raw":
        for name in RAW_COLUMNS:
            found.add(name, _message_type(name))
        return _with_places(found, form)
    for field in StructType.fromJson(json.loads(form.body_schema)).fields:
        found.add(field.name, field.dataType)
    for name in BESIDE_COLUMNS:
        found.add(f"_{name}", _message_type(name))
    for name in form.extra_names():
        found.add(name, "string" if name == RESCUED else _message_type(EXTRA_COLUMNS[name]))
    if form.keep_body:
        found.add("_body", "binary")
    return _with_places(found, form)


def _with_places(found: "StructType", form: RowForm) -> "StructType":
    found.add(DAY, "date")
    return found.add(HOUR, "integer") if form.partition == BY_HOUR else found


def quarantine_type() -> "StructType":
    """The columns of a quarantine."""
    from pyspark.sql.types import StructType

    found = StructType().add(ERROR, "string")
    for name in RAW_COLUMNS:
        found.add(name, _message_type(name))
    return found.add(DAY, "date")


def messages_schema() -> pa.Schema:
    """Return the columns that are read of each message."""
    from pyspark.sql.types import StructType

    found = StructType()
    for name in RAW_COLUMNS:
        found.add(name, _message_type(name))
    return arrow_of(found)


def arrow_of(columns: "StructType") -> pa.Schema:
    """As Arrow; times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(columns, timezone="UTC")


def _message_type(name: str) -> Any:
    """A column of the source, by Spark's type."""
    from pyspark.sql.types import ArrayType, MapType, StringType

    from roquette_spark.values.schema import COLUMNS

    return {
        "array<string>": ArrayType(StringType()),
        "map<string,string>": MapType(StringType(), StringType()),
        "int": "integer",
        "bigint": "long",
    }.get(COLUMNS[name], COLUMNS[name])


def _or_nulls(values: pa.Array | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.string()) if values is None else values


def _day_of(values: pa.Array) -> pa.Array:
    """The day in UTC of times or dates; of texts what Spark takes for a date; null of all else."""
    if pa.types.is_timestamp(values.type):
        plain = values.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
        return plain.cast(pa.date32(), safe=False)
    if pa.types.is_date(values.type):
        return values.cast(pa.date32())
    if pa.types.is_string(values.type):
        begins = pc.utf8_slice_codeunits(pc.utf8_ltrim_whitespace(values), 0, 11)
        coded = begins.dictionary_encode()
        days = pa.array([text_day(text) for text in coded.dictionary.to_pylist()], pa.date32())
        return days.take(coded.indices)
    return pa.nulls(len(values), pa.date32())


def _moments_of(values: pa.Array) -> pa.Array:
    """Times in UTC, without a zone: of times, and of texts that are ISO 8601's; null of all else."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    if pa.types.is_string(values.type):
        coded = values.dictionary_encode()
        found = [text_moment(text) for text in coded.dictionary.to_pylist()]
        return pa.array(found, pa.timestamp("us")).take(coded.indices)
    return pa.nulls(len(values), pa.timestamp("us"))


def text_moment(text: str) -> datetime | None:
    """The time of a text such as 2023-01-31T05:06:07+02:00, in UTC and without a zone; one that names no zone is in UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
        return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def text_day(text: str) -> date | None:
    """The date at the begin of a text, as Spark reads it: 2023-01-31, 2023-1-5, 2023-1 or 2023."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day = (int(each or 1) for each in found.groups())
    try:
        return date(year, month, day)
    except ValueError:
        return None
