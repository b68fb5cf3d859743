"""Messages to the rows of a table and of its quarantine, as Arrow: what an archive's tasks do with what they read.

The days of partitions are days in UTC, and times are microseconds in UTC, whatever a session's time zone is.
"""

import json
import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from roquette.pipelines.kit.message_rows import (
    BESIDE_COLUMNS,
    DAY,
    ERROR,
    EXTRA_COLUMNS,
    RAW_COLUMNS,
    RESCUED,
    RowForm,
)
from roquette.pipelines.rows.kinds import Kind

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """`batch` has RAW_COLUMNS of messages."""
        if self._reader is None:
            columns = [batch.column(name) for name in RAW_COLUMNS]
            columns.append(self._day(batch, {}))
            return Decoded(pa.Table.from_arrays(columns, schema=self.schema), None)
        bodies = self._reader.read(batch.column("body"))
        good = pa.Table.from_arrays(self._columns(batch, bodies), schema=self.schema)
        fine = pc.is_null(bodies.errors)
        if bodies.errors.null_count == len(bodies.errors):
            bad = self.bad_schema.empty_table()
        else:
            good = good.filter(fine)
            bad = self._bad(batch, bodies.errors, pc.invert(fine))
        rescued = good.num_rows - good.column(RESCUED).null_count if bodies.rescued else 0
        return Decoded(good, bad, rescued)

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
        return [*columns, self._day(batch, dict(zip(names, bodies.columns, strict=True)))]

    def _day(self, batch: pa.RecordBatch, body: dict[str, pa.Array]) -> pa.Array:
        name = self._form.day_of
        if name in ("store_timestamp", "born_timestamp"):
            return _day_of(batch.column(name))
        return _day_of(body[name])

    def _bad(self, batch: pa.RecordBatch, errors: pa.Array, chosen: pa.Array) -> pa.Table:
        columns = [errors, *(batch.column(name) for name in RAW_COLUMNS)]
        columns.append(_day_of(batch.column("store_timestamp")))
        return pa.Table.from_arrays(columns, schema=self.bad_schema).filter(chosen)


def table_type(form: RowForm) -> "StructType":
    """The columns of a table, that of its partitions the last."""
    from pyspark.sql.types import StructType

    found = StructType()
    if form.kind == "raw":
        for name in RAW_COLUMNS:
            found.add(name, _message_type(name))
        return found.add(DAY, "date")
    for field in StructType.fromJson(json.loads(form.body_schema)).fields:
        found.add(field.name, field.dataType)
    for name in BESIDE_COLUMNS:
        found.add(f"_{name}", _message_type(name))
    for name in form.extra_names():
        found.add(name, "string" if name == RESCUED else _message_type(EXTRA_COLUMNS[name]))
    if form.keep_body:
        found.add("_body", "binary")
    return found.add(DAY, "date")


def quarantine_type() -> "StructType":
    """The columns of a quarantine."""
    from pyspark.sql.types import StructType

    found = StructType().add(ERROR, "string")
    for name in RAW_COLUMNS:
        found.add(name, _message_type(name))
    return found.add(DAY, "date")


def messages_schema() -> pa.Schema:
    """What to read of each message."""
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

    from roquette.spark.schema import COLUMNS

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
