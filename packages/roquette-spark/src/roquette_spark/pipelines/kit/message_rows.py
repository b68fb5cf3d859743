"""Messages as rows of an archive: which columns there are, and those of Avro's schemas."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from roquette.base.files import Files
from roquette.errors import ConfigError

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")  # of columns, says Delta
DAY = "dt"  # the column that partitions unless another one is asked for; a date in UTC
HOUR = "hour"  # of tables by the hour; 0 to 23, in UTC
BY_DAY, BY_HOUR = "day", "hour"
ERROR = "error"

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
    "_rescued": "",  # made by the reader of bodies
}
RESCUED = "_rescued"
# Expectations that a row does not meet, as text; only of tables that mark such rows.
UNMET = "_unmet"
FORMATS = ("json", "connect", "raw", "avro", "registry")
# Values that no column takes are rescued, or become columns.
EVOLVING = ("json", "connect", "registry")
# In the settings of a table with these columns, so that versions that would drop them stop there.
NEWER = "made_by_a_newer_roquette_than_this"


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
        marks: rows have the column UNMET.
    """

    kind: str
    body_schema: str = ""
    avro_schema: str = ""
    keep_body: bool = False
    day_of: str = "store_timestamp"
    partition: str = BY_DAY
    marks: bool = False

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
        if not self.marks:
            del found["marks"]
        return json.dumps(found if self.kind == "raw" else {**found, NEWER: True})

    def extra_names(self) -> list[str]:
        """Those of EXTRA_COLUMNS that its rows have."""
        if self.kind == "raw":
            return []
        taken = {field["name"].lower() for field in json.loads(self.body_schema)["fields"]}
        names = [name for name in EXTRA_COLUMNS if name not in taken]
        if self.kind not in EVOLVING:
            names = [name for name in names if name != RESCUED]
        return [*names, UNMET] if self.marks else names


def own_columns(partition: str = BY_DAY) -> set[str]:
    """Names that are ours beside a body's columns; case does not count."""
    found = {DAY, "_body", UNMET, *EXTRA_COLUMNS, *(f"_{name}" for name in BESIDE_COLUMNS)}
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


def may_be_name(name: str) -> bool:
    """Whether Delta Lake has columns and nested fields of that name."""
    return bool(name) and not _NOT_IN_NAMES & set(name)


def may_be_column(name: str, partition: str = BY_DAY) -> bool:
    """Whether a field's name can become a column's: not ours, and none that Delta refuses."""
    return may_be_name(name) and name.lower() not in own_columns(partition)


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
MOST_DIGITS = 38  # of Delta's, Iceberg's and Spark's decimals
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
        if logical == "decimal" and avro.get("precision", 0) <= MOST_DIGITS:
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
