"""Messages to the rows of a table and of its quarantine, as Arrow: what an archive's tasks do with what they read.

The days and hours of partitions are those in UTC, and times are microseconds in UTC, whatever a session's time zone is.
"""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from roquette.errors import RoquetteError
from roquette_spark.pipelines.kit.message_rows import (
    BESIDE_COLUMNS,
    BY_DAY,
    BY_HOUR,
    DAY,
    ERROR,
    EXTRA_COLUMNS,
    HOUR,
    MOST_DIGITS,
    RAW_COLUMNS,
    RESCUED,
    UNMET,
    RowForm,
    may_be_column,
    may_be_name,
)
from roquette_spark.pipelines.kit.table_files import LONGEST_FOLDER, too_long
from roquette_spark.pipelines.rows.expectations import NOT_MET, Expectations, reasons_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from roquette_spark.pipelines.rows.hidden_parts import HiddenPart


# Types of columns as Spark's JSON: what a value would need, and a schema that takes more than before. Pure.
# A kind is a name such as "long", or a dict: struct, array, map.


Kind = Any
NULL = "void"  # of a value that says nothing
MOST_FIELDS = 1000  # of all structs of a schema together; more stay without a column
_LONG = 2**63
_WHOLE = ("byte", "short", "integer", "long")
_NUMBERS = (*_WHOLE, "float", "double")


def struct_of(fields: Mapping[str, Kind]) -> Kind:
    """A struct with these fields, all nullable."""
    return {"type": "struct", "fields": [_field(name, kind) for name, kind in fields.items()]}


def array_of(kind: Kind) -> Kind:
    return {"type": "array", "elementType": kind, "containsNull": True}


def fields_of(kind: Kind) -> dict[str, Kind]:
    """The kinds of a struct's fields by name; empty for what is no struct."""
    if not isinstance(kind, dict) or kind["type"] != "struct":
        return {}
    return {field["name"]: field["type"] for field in kind["fields"]}


def within(kind: Kind) -> list[Kind]:
    """The kinds of which one is made: of a struct's fields, of a list's elements, of a map's values."""
    if not isinstance(kind, dict):
        return []
    return list(fields_of(kind).values()) if kind["type"] == "struct" else [kind[_inner(kind)]]


def changed(kind: Kind, change: Callable[[Kind], Kind]) -> Kind:
    """With a change made to each kind of which it is made."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [{**f, "type": change(f["type"])} for f in kind["fields"]]}
    return {**kind, _inner(kind): change(kind[_inner(kind)])}


def _inner(kind: Kind) -> str:
    return "elementType" if kind["type"] == "array" else "valueType"


class NumberText(str):
    """The text of a number with a fraction or an exponent, so that nothing of it is lost."""

    __slots__ = ()


def kind_of(value: Any, known: Kind = NULL) -> Kind:
    """What a JSON value would need for a column.

    Args:
        known: of a column that cannot hold the value; the answer is a wider kind of that sort where there is one.
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, dict):
        fields = fields_of(known)
        return struct_of({n: kind_of(each, fields.get(n, NULL)) for n, each in value.items()})
    if isinstance(value, list):
        inner: Kind = NULL
        element = known.get("elementType", NULL) if isinstance(known, dict) else NULL
        for each in value:
            inner = joined(inner, kind_of(each, element))
        return array_of(inner)
    if isinstance(value, int | NumberText):
        return _number_kind(value, known)
    return "string"


def _number_kind(value: int | NumberText, known: Kind) -> Kind:
    try:
        number = Decimal(value)
        nearest = float(value)
    except (ArithmeticError, OverflowError):  # beyond all that columns hold
        return "string"
    if known in _WHOLE and number.is_finite() and number.adjusted() < 19 and number == int(number):
        return _whole_kind(int(number))
    if number.is_finite() and (held := decimal_of(known)) is not None:
        return _decimal_kind(number, held[1])
    if known != "float" and type(value) is int:
        return _whole_kind(value)
    return "double" if math.isfinite(nearest) or not number.is_finite() else "string"


def _whole_kind(value: int) -> Kind:
    return "long" if -_LONG <= value < _LONG else "string"


def decimal_of(kind: Kind) -> tuple[int, int] | None:
    """Digits of a decimal, and how many of them are behind the point."""
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return None if found is None else (int(found[1] or 10), int(found[2] or 0))


def _decimal_kind(number: Decimal, scale: int) -> Kind:
    """With that scale, for a number that has no more places."""
    exponent = number.as_tuple().exponent
    whole = max(0, number.adjusted() + 1)
    if not isinstance(exponent, int) or -exponent > scale or whole + scale > MOST_DIGITS:
        return "string"
    return f"decimal({whole + scale},{scale})"


def joined(one: Kind, other: Kind) -> Kind:
    """A kind for values of both; "string" takes what has nothing in common."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if isinstance(one, dict) and isinstance(other, dict) and one["type"] == other["type"]:
        if one["type"] == "struct":
            fields = {field["name"]: field for field in one["fields"]}
            for field in other["fields"]:
                there = fields.get(field["name"])
                kind = field["type"] if there is None else joined(there["type"], field["type"])
                fields[field["name"]] = {**field, "type": kind}
            return {**one, "fields": list(fields.values())}
        return {**one, _inner(one): joined(one[_inner(one)], other[_inner(one)])}
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    return "double" if one in _NUMBERS and other in _NUMBERS else "string"


def widened(
    known: Kind,
    found: Kind,
    takes: Callable[[str], bool] = may_be_name,
    *,
    limited: bool = True,
) -> Kind:
    """A schema that keeps what it has and takes more, as both Delta Lake and Iceberg allow it.

    Fields that it lacks come to it, as long as there is room. Of types whole numbers become long, float becomes double, and decimals get
    more digits before the point; both formats keep an int from becoming a double. Left out are fields of which nothing is
    known but null, names that no column can have, and a name that reads like another one's path (a.b beside b within a).

    Args:
        takes: whether a name can be that of one of its columns.
        limited: to MOST_FIELDS.
    """
    return _Widening(known, takes, MOST_FIELDS if limited else None).of(known, found, "")


class _Widening:
    """Of one schema; what it counts and names is looked up when something is added, which is rare."""

    def __init__(self, known: Kind, takes: Callable[[str], bool], most: int | None) -> None:
        self._known = known
        self._column = takes
        self._most = most
        self._count = -1
        self._names: set[str] = set()

    def of(self, known: Kind, found: Kind, where: str) -> Kind:
        """Of a part of the schema; `where` is its path, with a dot behind it."""
        if isinstance(known, dict) and isinstance(found, dict):
            if known["type"] == "struct" == found["type"]:
                return self._struct(known, found, where)
            if known["type"] == "array" == found["type"]:
                inner = self.of(known["elementType"], found["elementType"], f"{where}element.")
                return {**known, "elementType": inner}
            if known["type"] == "map" and found["type"] == "struct":
                inner = known["valueType"]
                for field in found["fields"]:
                    inner = self.of(inner, field["type"], f"{where}value.")
                return {**known, "valueType": inner}
        return found if is_wider(known, found) else known

    def _struct(self, known: Kind, found: Kind, where: str) -> Kind:
        fields = {field["name"]: field for field in known["fields"]}
        for field in found["fields"]:
            name, there = field["name"], fields.get(field["name"])
            path = f"{where}{name}"
            if there is not None:
                fields[name] = {**there, "type": self.of(there["type"], field["type"], f"{path}.")}
            elif self._takes(name, path):
                kind = complete(field["type"])
                if kind is not None and self._has_room(path, kind):
                    fields[name] = _field(name, kind)
        return {**known, "fields": list(fields.values())}

    def _takes(self, name: str, path: str) -> bool:
        return self._column(name) if name == path else may_be_name(name)

    def _has_room(self, path: str, kind: Kind) -> bool:
        if self._count < 0:
            self._count = _count(self._known)
            self._names.update(_paths(self._known, ""))
        new, count = list(_paths(kind, path)), self._count + 1 + _count(kind)
        if self._most is not None and count > self._most:
            return False
        if len(set(new)) < len(new) or not self._names.isdisjoint(new):
            return False
        self._count = count
        self._names.update(new)
        return True


def _paths(kind: Kind, path: str) -> Iterator[str]:
    """The paths of a kind's fields, in lower case, and its own."""
    if path:
        yield path.lower()
    if isinstance(kind, dict):
        before = f"{path}." if path else ""
        if kind["type"] == "struct":
            for name, each in fields_of(kind).items():
                yield from _paths(each, before + name)
        else:
            yield from _paths(kind[_inner(kind)], before + _inner(kind).removesuffix("Type"))


def is_wider(known: Kind, found: Kind) -> bool:
    """Of types that both Delta Lake and Iceberg let a column change between."""
    if not isinstance(known, str) or not isinstance(found, str):
        return False
    one, other = decimal_of(known), decimal_of(found)
    if one is not None and other is not None:
        return other[1] == one[1] and other[0] > one[0]
    return (known, found) == ("float", "double") or (known in _WHOLE[:3] and found == "long")


def possible_columns(schema: str, takes: Callable[[str], bool] = may_be_column) -> str:
    """A schema that nobody wrote for us (Spark's JSON), without fields that cannot be columns: those are rescued."""
    return json.dumps(widened(struct_of({}), json.loads(schema), takes, limited=False))


def renamed(kind: Kind, names: Mapping[str, str]) -> Kind:
    """A struct whose fields have other names."""
    fields = [{**each, "name": names.get(each["name"], each["name"])} for each in kind["fields"]]
    return {**kind, "fields": fields}


def grew_from(known: Kind, given: Kind) -> bool:
    """Whether a schema is another one that bodies may have widened since."""
    return bool(_ordered(widened(given, known, limited=False)) == _ordered(known))


def _ordered(kind: Kind) -> Kind:
    """Return what matters of a kind: names and types."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return sorted((name, _ordered(each)) for name, each in fields_of(kind).items())
    return kind["type"], _ordered(kind[_inner(kind)])


def complete(kind: Kind) -> Kind:
    """Without what is only known to be null, without names that no column can have or that differ in case alone.

    None if nothing remains.
    """
    if not isinstance(kind, dict):
        return None if kind == NULL else kind
    if kind["type"] in ("array", "map"):
        inner = complete(kind[_inner(kind)])
        return None if inner is None else {**kind, _inner(kind): inner}
    fields: dict[str, Any] = {}
    for field in kind["fields"]:
        inner = complete(field["type"])
        if inner is not None and may_be_name(field["name"]):
            fields.setdefault(field["name"].lower(), _field(field["name"], inner))
    return {**kind, "fields": list(fields.values())} if fields else None


def _field(name: str, kind: Kind) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _count(kind: Kind) -> int:
    """Fields of all structs."""
    return len(fields_of(kind)) + sum(map(_count, within(kind)))


_DECIMAL = re.compile(r"decimal(?:\((\d+)(?:,\s*(\d+))?\))?")
ASIDE = "an operator has set its batch aside"
UNREADABLE = "the body cannot be read"
MOST_REASON = 500  # characters
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
        """The bodies' columns with what no column took so far, as far as `widened` takes it; NULL: nothing to say."""

    def read(self, bodies: pa.Array) -> Bodies:
        """Bodies (binary, may be null or empty) as columns. What it raises for bodies costs one of them (see `decode_safely`)."""
        ...


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of one batch of messages.

    Attributes:
        good: the rows of the table.
        bad: messages that are none, with the columns of `quarantine_type`; None for a form that takes every message.
        rescued: good rows with fields that no column takes.
        unmet: expectation -> rows that do not meet it; they are marked, or bad.
    """

    good: pa.Table
    bad: pa.Table | None
    rescued: int = 0
    unmet: Counter[str] = dataclasses.field(default_factory=Counter)


def decode_safely(decode: Callable[[pa.RecordBatch], Decoded], batch: pa.RecordBatch) -> Decoded:
    """What `decode` makes of a batch; where it fails, of the halves of it, so that a message which fails by itself is bad with its reason.

    Raises:
        RoquetteError, OSError, MemoryError: as `decode` does: these say nothing of a message, and the task is tried again.
    """
    try:
        return decode(batch)
    except (RoquetteError, OSError, MemoryError):
        raise
    except Exception as error:
        count = batch.num_rows
        if not count:
            raise
        if count == 1:
            why = f"{UNREADABLE} ({type(error).__name__}: {error})"[:MOST_REASON]
            return Decoded(decode(batch.slice(0, 0)).good, set_aside(batch, why))
    halves = batch.slice(0, count // 2), batch.slice(count // 2)
    found = [decode_safely(decode, half) for half in halves]
    unmet: Counter[str] = Counter()
    for each in found:
        unmet.update(each.unmet)
    return Decoded(
        pa.concat_tables([each.good for each in found]),
        pa.concat_tables([each.bad for each in found if each.bad is not None]),
        sum(each.rescued for each in found),
        unmet,
    )


def set_aside(batch: pa.RecordBatch, errors: pa.Array | str) -> pa.Table:
    """The messages that have an error, as rows of the quarantine: each as it is, and what is wrong with it."""
    if isinstance(errors, str):
        errors = pa.repeat(pa.scalar(errors), batch.num_rows)
    columns = [errors, *(batch.column(name) for name in RAW_COLUMNS)]
    columns.append(_day_of(batch.column("store_timestamp")))
    rows = pa.Table.from_arrays(columns, schema=arrow_of(quarantine_type()))
    return rows.filter(pc.is_valid(errors)) if errors.null_count else rows


class Decoder:
    """Decodes the batches of one task.

    Args:
        reader: of the bodies; None for the raw form.
        expected: what rows are to meet; those that do not are bad, or, with `mark`, have it in a column.
    """

    def __init__(
        self,
        form: RowForm,
        reader: BodyReader | None = None,
        expected: Expectations | None = None,
        *,
        mark: bool = False,
    ) -> None:
        assert (reader is None) == (form.kind == "raw"), form.kind
        self._expected = expected
        self._mark = mark
        self._form = form
        self._reader = reader
        self.schema = self._plain = arrow_of(table_type(form))
        self.hidden: HiddenPart | None = None
        if form.transform is not None:
            from roquette_spark.pipelines.rows import hidden_parts  # needs pyiceberg

            self.hidden = hidden_parts.HiddenPart(form.transform, self._plain)
            self.schema = self.hidden.schema
        self.bad_schema = arrow_of(quarantine_type())
        self._place = -1  # of a column with texts that partitions the table
        if form.partition not in (BY_DAY, BY_HOUR):
            transform = form.transform
            name = form.partition if transform is None else transform.column
            place = self.schema.get_field_index(name)
            emptied = transform is None or transform.function == "truncate"
            if emptied and pa.types.is_string(self.schema.field(place).type):
                self._place = place

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """`batch` has RAW_COLUMNS of messages. Raises as `decode_safely`."""
        if self._reader is None:
            columns = [batch.column(name) for name in RAW_COLUMNS]
            columns += self._when(batch, {})
            return Decoded(self._with_hidden(self._rows(columns)), None)
        return decode_safely(partial(self._decode, self._reader), batch)

    def _decode(self, reader: BodyReader, batch: pa.RecordBatch) -> Decoded:
        bodies = reader.read(batch.column("body"))
        good = self._rows(self._columns(batch, bodies))
        errors = self._too_long(good, bodies.errors)
        unmet: Counter[str] = Counter()
        if self._expected is not None:
            good, errors, unmet = self._judged(self._expected, good, errors)
        if errors.null_count == len(errors):
            bad = self.bad_schema.empty_table()
        else:
            good, bad = good.filter(pc.is_null(errors)), set_aside(batch, errors)
        rescued = good.num_rows - good.column(RESCUED).null_count if bodies.rescued else 0
        return Decoded(self._with_hidden(good), bad, rescued, unmet)

    def _with_hidden(self, rows: pa.Table) -> pa.Table:
        return rows if self.hidden is None else self.hidden.added(rows)

    def _judged(
        self, expected: Expectations, rows: pa.Table, errors: pa.Array
    ) -> tuple[pa.Table, pa.Array, Counter[str]]:
        """The rows with their marks, or more errors; and how many rows do not meet which expectation."""
        readable = pc.is_null(errors)
        masks = {name: pc.and_(mask, readable) for name, mask in expected.judge(rows).items()}
        counts = Counter({name: mask.true_count for name, mask in masks.items()})
        if not counts.total():
            return rows, errors, counts
        reasons = reasons_of(masks, len(errors))
        if self._mark:
            place = rows.schema.get_field_index(UNMET)
            return rows.set_column(place, rows.schema.field(place), reasons), errors, counts
        told = pc.binary_join_element_wise(pa.scalar(NOT_MET), reasons, "")
        return rows, pc.coalesce(errors, told), counts

    def _rows(self, columns: list[pa.Array]) -> pa.Table:
        """An empty text names no folder: it is null in the column that partitions, as Delta Lake has it."""
        rows = pa.Table.from_arrays(columns, schema=self._plain)
        if self._place >= 0:
            texts = rows.column(self._place)
            kept = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
            rows = rows.set_column(self._place, self.schema.field(self._place), kept)
        return rows

    def _too_long(self, rows: pa.Table, errors: pa.Array) -> pa.Array:
        """The errors, and those of values that cannot be the name of a folder; what a transform makes is short."""
        if self._place < 0 or self._form.transform is not None:
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
            elif name == UNMET:
                columns.append(pa.nulls(batch.num_rows, pa.string()))
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


def table_type(form: RowForm) -> "StructType":
    """The columns of a table, day and hour the last."""
    from pyspark.sql.types import StructType

    found: dict[str, Any] = {}
    if form.kind == "raw":
        found |= _of_message(RAW_COLUMNS)
    else:
        body = StructType.fromJson(json.loads(form.body_schema))
        found |= {field.name: field.dataType for field in body.fields}
        found |= {f"_{name}": kind for name, kind in _of_message(BESIDE_COLUMNS).items()}
        extra = {
            name: EXTRA_COLUMNS[name] for name in form.extra_names() if name not in (RESCUED, UNMET)
        }
        kinds = _of_message(tuple(extra.values()))
        found |= {n: kinds[extra[n]] if n in extra else "string" for n in form.extra_names()}
        found |= {"_body": "binary"} if form.keep_body else {}
    found |= {DAY: "date"} | ({HOUR: "integer"} if form.partition == BY_HOUR else {})
    return _columns(found)


def quarantine_type() -> "StructType":
    return _columns({ERROR: "string", **_of_message(RAW_COLUMNS), DAY: "date"})


def messages_schema() -> pa.Schema:
    """Return the columns that are read of each message."""
    return arrow_of(_columns(_of_message(RAW_COLUMNS)))


def _columns(kinds: Mapping[str, Any]) -> "StructType":
    from pyspark.sql.types import StructType

    found = StructType()
    for name, kind in kinds.items():
        found.add(name, kind)
    return found


def arrow_of(columns: "StructType") -> pa.Schema:
    """As Arrow; times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(columns, timezone="UTC")


def _of_message(names: Collection[str]) -> dict[str, Any]:
    """Columns of the source, by Spark's types."""
    from pyspark.sql.types import ArrayType, MapType, StringType

    from roquette_spark.values.schema import COLUMNS

    known = {
        "array<string>": ArrayType(StringType()),
        "map<string,string>": MapType(StringType(), StringType()),
        "int": "integer",
        "bigint": "long",
    }
    return {name: known.get(COLUMNS[name], COLUMNS[name]) for name in names}


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
