"""Messages as rows of an archive: which columns, how bodies become columns, which rows are bad."""

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from roquette.base.files import Files
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# JSON bodies beside the columns they become: fields that no column takes, numbers that fit after all, what is malformed.
# Spark's from_json ignores fields it has no column for, over what follows an object, and over all but the last of fields of one name. So each body is looked at here as well; values still become columns by Spark.


LOOKED_TYPE = "struct<rescued: string, text: string, error: string>"
MALFORMED = "the body is malformed JSON, or a value is not of its column's type"
TWICE = "the body has two fields of one name"
_WHOLE = ("byte", "short", "integer", "long")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_DIGITS = 19  # of a long


class NumberText(str):
    """The text of a number with a fraction or an exponent, so that nothing of it is lost."""

    __slots__ = ()


class Twice(ValueError):
    """Two fields of one name in one object."""


def looked_at(body: "Column", schema: str) -> "Column":
    """LOOKED of each body. `schema` is Spark's JSON of the columns."""
    from pyspark.sql import functions as f

    # Not by Arrow: PySpark 4.2 would want pandas for it.
    return f.udf(looker(schema), LOOKED_TYPE, useArrow=False)(body)


def looker(schema: str) -> Callable[[bytes | None], dict[str, str | None] | None]:
    """Return the function that runs in the workers."""
    known = json.loads(schema)
    return lambda body: look_at(body, known)


def look_at(body: bytes | None, known: Any) -> dict[str, str | None] | None:
    """Find what Spark would not see of one body; None where there is nothing to say.

    Args:
        known: Spark's JSON of the columns, parsed.

    Returns:
        rescued: JSON of the fields that no column takes, those within columns among them. text: the body for Spark to
        read instead. error: why the message belongs into the quarantine.
    """
    try:
        value = decode_object((body or b"").decode())
        if not isinstance(value, dict):
            return None  # others say so
        fitted: list[bool] = []
        rescued = rescue(value, known, fitted)
    except Twice:
        return {"rescued": None, "text": None, "error": TWICE}
    except (ValueError, ArithmeticError, RecursionError):
        return {"rescued": None, "text": None, "error": MALFORMED}
    if rescued is None and not fitted:
        return None
    return {
        "rescued": None if rescued is None else text_of(rescued),
        "text": text_of(value) if fitted else None,
        "error": None,
    }


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


def rescue(value: Any, known: Any, fitted: list[bool] | None = None) -> Any:
    """Return the part of a value that has no place in its column; None when all has.

    Numbers such as 19.0 for a column of whole numbers are changed in place; `fitted` gets one entry for each.
    """
    return _rescue(value, known, [] if fitted is None else fitted)


def _rescue(value: Any, known: Any, fitted: list[bool]) -> Any:
    kind = known["type"] if isinstance(known, dict) else known
    if kind == "struct" and isinstance(value, dict):
        fields = {field["name"]: field["type"] for field in known["fields"]}
        return _rescue_items(value, fields, fitted)
    if kind == "map" and isinstance(value, dict):
        return _rescue_items(value, dict.fromkeys(value, known["valueType"]), fitted)
    if kind == "array" and isinstance(value, list):
        found = [_rescue_one(value, i, known["elementType"], fitted) for i in range(len(value))]
        return found if any(each is not None for each in found) else None
    return None


def _rescue_items(value: dict[str, Any], fields: dict[str, Any], fitted: list[bool]) -> Any:
    rescued = {}
    for name, each in value.items():
        if name not in fields:
            rescued[name] = each
        else:
            inner = _rescue_one(value, name, fields[name], fitted)
            if inner is not None:
                rescued[name] = inner
    return rescued or None


def _rescue_one(container: Any, key: Any, known: Any, fitted: list[bool]) -> Any:
    value = container[key]
    if isinstance(value, NumberText) and known in _WHOLE:
        number = Decimal(value)
        if number.is_finite() and number.adjusted() < _MOST_DIGITS and number == int(number):
            container[key] = int(number)
            fitted.append(True)
        return None
    return _rescue(value, known, fitted) if isinstance(value, dict | list) else None


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


_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")  # of columns, says Delta
DAY = "dt"  # the column that partitions unless another one is asked for; a date in UTC
HOUR = "hour"  # of tables by the hour; 0 to 23, in UTC
BY_DAY, BY_HOUR = "day", "hour"
ERROR = "error"
BAD = "_bad"
PARSED = "_parsed"
CORRUPT = "_corrupt"

# What a row keeps of its message, by the source's names.
RAW_COLUMNS = (
    "broker_name",
    "queue_id",
    "queue_offset",
    "uniq_key",
    "keys",
    "tags",
    "body",
    "properties",
    "born_timestamp",
    "store_timestamp",
    "born_host",
    "flag",
    "sys_flag",
    "reconsume_times",
    "message_group",
)
# Beside the columns of a body, with a "_" before their names.
BESIDE_COLUMNS = (
    "broker_name",
    "queue_id",
    "queue_offset",
    "uniq_key",
    "keys",
    "tags",
    "born_timestamp",
    "store_timestamp",
)
# And what a producer gave beside the body, and fields of a body without a column, as JSON. Tables of the first form were begun
# without them and are widened.
EXTRA_COLUMNS = {
    "_properties": "properties",
    "_message_group": "message_group",
    "_flag": "flag",
    "_rescued": "_looked.rescued",
}
RESCUED, LOOKED = "_rescued", "_looked"
FORMATS = ("json", "raw", "avro", "registry")
EVOLVING = ("json", "registry")  # values that no column takes are rescued, or become columns
# In the settings of a table with these columns, so that versions that would drop them stop there.
NEWER = "made_by_a_newer_roquette_than_this"


class NoObjects(PipelineError):
    """No body of a sample is a JSON object."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """Form of rows: how bodies become them.

    Attributes:
        kind: one of FORMATS.
        body_schema: Spark's JSON of a body's columns; "" for raw.
        avro_schema: the writer's schema, as JSON text; "" if not Avro.
        keep_body: keep the bytes, too, as `_body`.
        day_of: the column the day is taken from.
        partition: BY_DAY, BY_HOUR, or the name of a column of the table.
    """

    kind: str
    body_schema: str = ""
    avro_schema: str = ""
    keep_body: bool = False
    day_of: str = "store_timestamp"
    partition: str = BY_DAY

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns whose values the table's folders have."""
        return {BY_DAY: (DAY,), BY_HOUR: (DAY, HOUR)}.get(self.partition, (self.partition,))

    @classmethod
    def of_settings(cls, text: str) -> "RowForm":
        """From a table's settings."""
        return cls(**{name: value for name, value in json.loads(text).items() if name != NEWER})

    def settings(self) -> str:
        """For a table's settings."""
        found = {name: getattr(self, name) for name in self.__slots__}
        if self.partition == BY_DAY:
            del found["partition"]  # versions before know nothing else
        return json.dumps(found if self.kind == "raw" else {**found, NEWER: True})

    def extra_names(self) -> list[str]:
        """Those of EXTRA_COLUMNS that its rows have."""
        if self.kind == "raw":
            return []
        taken = {field["name"].lower() for field in json.loads(self.body_schema)["fields"]}
        names = [name for name in EXTRA_COLUMNS if name not in taken]
        return names if self.kind in EVOLVING else [name for name in names if name != RESCUED]


def source_schema() -> str:
    """The columns to read, as DDL."""
    from roquette_spark.values.schema import COLUMNS

    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in RAW_COLUMNS)


def marked(messages: "DataFrame", form: RowForm) -> "DataFrame":
    """Messages with JSON bodies, PARSED (the body's columns as a struct) and BAD (why it is bad, or null)."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    text = f.col("body").cast("string")
    looked = messages.withColumn(LOOKED, looked_at(f.col("body"), form.body_schema))
    fitted = f.coalesce(f.col(f"{LOOKED}.text"), text)
    with_corrupt = StructType.fromJson(json.loads(form.body_schema)).add(CORRUPT, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = looked.withColumn(PARSED, f.from_json(fitted, with_corrupt, options))
    reason = (
        f.when(f.col("body").isNull() | (f.length("body") == 0), "the body is empty")
        .when(~f.is_valid_utf8(text), "the body is not UTF-8")
        .when(~text.rlike(r"^\s*\{"), "the body is no JSON object")
        .when(f.col(f"{LOOKED}.error").isNotNull(), f.col(f"{LOOKED}.error"))
        .when(f.col(PARSED).isNull() | f.col(f"{PARSED}.{CORRUPT}").isNotNull(), MALFORMED)
    )
    return parsed.withColumn(BAD, reason)


def bad_rows(rows: "DataFrame") -> "DataFrame":
    """The rows of the quarantine: the message as it is, and what is wrong with it."""
    from pyspark.sql import functions as f

    day = f.to_date("store_timestamp").alias(DAY)
    return rows.where(f.col(BAD).isNotNull()).select(f.col(BAD).alias(ERROR), *RAW_COLUMNS, day)


def own_columns(partition: str = BY_DAY) -> set[str]:
    """Names that are ours beside a body's columns; case does not count."""
    found = {DAY, "_body", CORRUPT, *EXTRA_COLUMNS, *(f"_{name}" for name in BESIDE_COLUMNS)}
    return found | {HOUR} if partition == BY_HOUR else found


def check_names(form: RowForm) -> None:
    """Columns of bodies must not be called as ours, nor twice.

    Raises:
        ConfigError: says which; or the day is to be taken from a column that is not there.
    """
    body = json.loads(form.body_schema)["fields"] if form.kind != "raw" else []
    names = [field["name"] for field in body]
    if form.day_of not in ("store_timestamp", "born_timestamp", *names):
        raise ConfigError(
            f"archive: --day-of {form.day_of} is neither store_timestamp, born_timestamp nor a column "
            f"of the body; those are: {', '.join(names) or 'none, with --format raw'}"
        )
    ours, seen = own_columns(form.partition), set[str]()
    for name in names:
        if name.lower() in ours or name.lower() in seen:
            raise ConfigError(
                f"archive: the body's column {name} has the name of another column (case does not count): "
                + (
                    f"leave it out of --schema, its values then go to {RESCUED}"
                    if form.kind in EVOLVING
                    else "use --format raw"
                )
            )
        seen.add(name.lower())


def schema_of_text(spark: "SparkSession", text: str) -> str:
    """Spark's JSON of a schema given as DDL ("id int, name string") or as that JSON.

    Raises:
        ConfigError: it is neither.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            return str(StructType.fromJson(json.loads(text)).json())
        return str(StructType.fromDDL(text).json())
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        words = str(error).strip().split("\n", 1)[0][:200]
        raise ConfigError(
            f'archive: --schema must be columns such as "id int, name string", not {text[:80]!r}: {words}'
        ) from None


def infer_json_schema(spark: "SparkSession", bodies: "DataFrame", topic: str) -> str:
    """The schema of a sample of bodies (one column `body`), as Spark's JSON.

    Raises:
        NoObjects: no body of the sample is a JSON object.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    texts = bodies.select(f.col("body").cast("string").alias("body")).where(
        r"is_valid_utf8(body) and body rlike '^\\s*\\{'"
    )
    found = spark.read.json(texts.rdd.map(lambda row: row[0]))
    fields = [field for field in found.schema.fields if field.name != "_corrupt_record"]
    if not fields:
        raise NoObjects(
            f"archive: no message in the sample of topic {topic} is a JSON object: use --format raw, or give "
            "--schema"
        )
    return str(StructType(fields).json())


def possible_columns(schema: str, partition: str) -> str:
    """A schema that nobody wrote for us (Spark's JSON), without fields that cannot be columns: those are rescued."""
    found: dict[str, Any] = {}
    for field in json.loads(schema)["fields"]:
        if may_be_column(field["name"], partition):
            found.setdefault(field["name"].lower(), field)
    return json.dumps({"type": "struct", "fields": list(found.values())})


def may_be_column(name: str, partition: str = BY_DAY) -> bool:
    """Return True if a field's name can become a column's: not ours, and none that Delta refuses."""
    ours = own_columns(partition)
    return bool(name) and name.lower() not in ours and not _NOT_IN_NAMES & set(name)


# Avro bodies (one record each, no container, the writer's schema given) as columns, by fastavro.


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
_MOST_DECIMAL_DIGITS = 38  # of Delta's, Iceberg's and Spark's decimals
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
    import fastavro

    named: dict[str, Any] = {}
    try:
        for each in references:
            fastavro.parse_schema(each, named_schemas=named)
        whole = fastavro.parse_schema(avro, named_schemas=named)
    except Exception as error:  # noqa: BLE001 - whatever somebody has written
        problem = f"{type(error).__name__}: {error}"[:200]
        raise ConfigError(f"archive: {where} is no Avro schema ({problem})") from None
    return _Columns(named).of(whole, where)


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
        if logical == "decimal" and avro.get("precision", 0) <= _MOST_DECIMAL_DIGITS:
            return f"decimal({avro['precision']},{avro.get('scale', 0)})"
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind == "record":
            self._within.append(str(avro.get("name")))
            fields = [self._field(each, where) for each in avro["fields"]]
            self._within.pop()
            return {"type": "struct", "fields": [f for f in fields if not _is_empty(f["type"])]}
        if kind == "array":
            element = self.of(avro["items"], where)
            return {"type": "array", "elementType": element, "containsNull": True}
        if kind == "map":
            value = self.of(avro["values"], where)
            return {
                "type": "map",
                "keyType": "string",
                "valueType": value,
                "valueContainsNull": True,
            }
        return self.of(kind, where)

    def _field(self, field: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {
            "name": field["name"],
            "type": self.of(field["type"], f"{where}: {field['name']}"),
            "nullable": True,
            "metadata": {},
        }


def _is_empty(kind: Any) -> bool:
    """Return True if it is a record without fields, or has nothing else: Parquet cannot store it."""
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "struct":
        return not kind["fields"]
    return _is_empty(kind["elementType" if kind["type"] == "array" else "valueType"])


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
